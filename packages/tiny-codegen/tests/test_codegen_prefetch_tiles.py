"""Prefetching for the next tile: what a register tile of a convolution reads where it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from codegen_kernels import loop, over, param
from codegen_prefetches import PACKED, elements, prefetches

from tiny_codegen import LLVMRenderer, build_program, cpu_target
from tiny_codegen.cost_model import CACHE_LINE
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, evaluate

TARGET = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")))
LINE = CACHE_LINE // 4  # elements of a cache line
CHANNELS, SIZE, TAPS = 40, 512, 3


def stem(rows: int = 16, size: int = SIZE, step: int = 2) -> UOp:
  """`out[o, y, x] = sum over c and t of w[o, c, t] * image[c, y, step * x + t]`: lanes of o, so many rows of x."""
  wide = step * size + LINE
  y, x, o, c, t = loop(size, 0), loop(size, 1), loop(16, 2), over(CHANNELS, 3), over(TAPS, 4)
  image = param(1, CHANNELS * size * wide).index((c * size + y) * wide + x * step + t).load()
  weight = param(2, 16 * CHANNELS * TAPS).index((c * TAPS + t) * 16 + o).load()
  end = param(0, 16 * size * size).index((o * size + y) * size + x).store((image * weight).reduce(Ops.ADD, c, t))
  opts = (Opt(OptOps.VECTOR, 2, 16), Opt(OptOps.UPCAST, 1, rows), Opt(OptOps.UNROLL, 4, TAPS))
  return UOp.sink(end.end(y, x, o), arg=KernelInfo("stem", opts))


def depthwise(taps: int = TAPS, size: int = SIZE) -> UOp:
  """`out[c, y, x] = sum over s and t of w[c, s, t] * image[c, y + s, x + t]`: lanes of x, 8 rows of y."""
  c, y, x, s, t = loop(CHANNELS, 0), loop(size, 1), loop(16, 2), over(taps, 3), over(taps, 4)
  wide, high = 16 + LINE, size + taps
  image = param(1, CHANNELS * high * wide).index((c * high + y + s) * wide + x + t).load()
  weight = param(2, CHANNELS * taps**2).index((c * taps + s) * taps + t).load()
  end = param(0, CHANNELS * size * 16).index((c * size + y) * 16 + x).store((image * weight).reduce(Ops.ADD, s, t))
  opts = (Opt(OptOps.VECTOR, 2, 16), Opt(OptOps.UPCAST, 1, 8), *[Opt(OptOps.UNROLL, 3, taps)] * (taps > 1))
  return UOp.sink(end.end(c, y, x), arg=KernelInfo("depthwise", opts))


def asked(kernel: UOp) -> list[UOp]:
  return [u for lines in prefetches(build_program(kernel, TARGET).src[1], PACKED).values() for u in lines]


def lines_read(kernel: UOp, fixed: dict[int, int]) -> Iterator[int]:
  """The lines of parameter 1 that are read where loops have these counters, in all iterations of others."""
  for u in build_program(kernel, TARGET).src[1].src:
    if u.op is Ops.LOAD and u.src[0].src[0].op is Ops.PARAM and u.src[0].src[0].arg == 1:
      offset = u.src[0].src[1]
      values = {r: fixed[r.arg[0]] for r in offset.ranges if r.arg[0] in fixed}
      loops = [r for r in offset.ranges if r not in values]
      for counters in itertools.product(*[range(r.src[0].arg) for r in loops]):
        place = evaluate(offset, {**values, **dict(zip(loops, counters))})
        assert isinstance(place, int)
        yield from {place // LINE, (place + u.dtype.count - 1) // LINE}


@pytest.mark.parametrize(("kernel", "tile"), [(stem(), (3, 1)), (depthwise(), (0, 1))], ids=["scalars", "vectors"])
def test_the_sum_asks_for_what_the_next_tile_reads(kernel: UOp, tile: tuple[int, int]) -> None:
  """All new lines of it, and few others."""
  fixed, (outer, inner) = {0: tile[0], 1: 5}, (0, 1)
  wanted = set(lines_read(kernel, {**fixed, inner: 6})) - set(lines_read(kernel, fixed))
  found = set[int]()
  for u in asked(kernel):
    values = {r: fixed[r.arg[0]] for r in u.ranges if r.arg[0] in (outer, inner)}
    found.update(element // LINE for element in elements(u, values))
  assert wanted and wanted <= found
  assert len(found - wanted) <= len(wanted)


@pytest.mark.parametrize(
  "kernel",
  [stem(size=48), stem(rows=4), depthwise(1)],
  ids=["it stays in the cache", "the next tile is in the same lines", "no window"],
)
def test_what_is_near_or_read_in_order_is_not_asked_for(kernel: UOp) -> None:
  assert not asked(kernel)


def test_a_line_is_asked_for_once_in_a_tile() -> None:
  kernel = depthwise()
  found = [element // LINE for u in asked(kernel) for element in elements(u, {r: 1 for r in u.ranges if r.arg[0] < 2})]
  assert len(found) <= len(set(found)) + 2
