"""Prefetching of panels: the lines of the next one are asked for while one is multiplied."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param
from codegen_prefetches import PANEL, elements, prefetches

from tiny_codegen import CacheSizes, LLVMRenderer, compile_kernel, cpu_target
from tiny_codegen.kernel.expressions import stride
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, dtypes

FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")
CACHES = CacheSizes(32 << 10, 256 << 10, 1 << 20)
TARGET = LLVMRenderer(cpu_target("x86_64", "", FEATURES, caches=CACHES))
LANES, ROWS = 16, 4
LINE = 64 // 4


def product(
  images: int = 2, outputs: int = 16, length: int = 64, size: int = 4096, threads: bool = False, packed: bool = True
) -> UOp:
  """`out[n, o, j] = sum over k of w[o, k] * x[n, k, j]`, with panels of LANES values of j in local memory or where they
  are."""
  n, o, j, k = loop(images, 0), loop(outputs, 1), loop(size, 2), over(length, 3)
  x = param(1, images * length * size).index((n * length + k) * size + j).load()
  out = param(0, images * outputs * size).index((n * outputs + o) * size + j)
  end = out.store((param(2, outputs * length).index(o * length + k).load() * x).reduce(Ops.ADD, k)).end(n, o, j)
  opts = [Opt(OptOps.VECTOR, 2, LANES), Opt(OptOps.UPCAST, 1, ROWS)] + [Opt(OptOps.SWAP, 1, 2)] * (outputs > ROWS)
  opts += [Opt(OptOps.STAGE, 1, (3,))] * packed
  return UOp.sink(end, arg=KernelInfo("product", tuple(opts + [Opt(OptOps.THREAD, 2, 0)] * threads)))


def source(kernel: UOp, renderer: LLVMRenderer = TARGET) -> str:
  return str(compile_kernel(kernel, renderer).src[2].arg)


def asked(kernel: UOp) -> int:
  return sum(map(len, lines(kernel).values()))


def lines(kernel: UOp) -> dict[UOp | None, list[UOp]]:
  return prefetches(compile_kernel(kernel, TARGET).src[1], PANEL)


@pytest.mark.parametrize("packed", [True, False])
def test_all_of_the_next_panel_is_asked_for_once(packed: bool) -> None:
  tiles, length, size = 4, 64, 4096
  outputs = ROWS * (tiles + packed)  # the first one packs
  ((walk, found),) = lines(product(outputs=outputs, length=length, size=size, packed=packed)).items()
  (asked_for,) = found
  image, tile, panel = sorted(asked_for.ranges - {walk}, key=lambda r: r.arg[0])
  for at_image, at_panel in ((0, 0), (1, 3)):
    got = list(elements(asked_for, {image: at_image, panel: at_panel}))
    first = [(at_image * length + k) * size + (at_panel + 1) * LINE for k in range(length)]
    assert got == [line + LINE - 1 for line in first], "by their last elements: buffers may begin anywhere in a line"
    ours = list(elements(asked_for, {image: at_image, panel: at_panel, tile: 0}))
    assert len(ours) == length // tiles, "four tiles share the one column of lines of a panel"


def test_each_step_takes_a_few_instructions() -> None:
  text = source(product())
  body = text[: text.index("call void @llvm.prefetch.p0(")].rpartition("\nloop")[2]
  assert len(re.findall(r"\n", body)) < 30, "where a column begins is computed before the loop"
  assert "div" not in body
  assert "rem" not in body


def window(images: int = 2, channels: int = 32, size: int = 128, outputs: int = 32) -> UOp:
  """A convolution of 3×3 taps: for each row of places, a window of three padded rows of each channel is packed."""
  n, o, y, x = loop(images, 0), loop(outputs, 1), loop(size, 2), loop(size, 3)
  c, i, j = over(channels, 4), over(3, 5), over(3, 6)
  row, column = y + i - 1, x + j - 1
  inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
  place = ((n * channels + c) * size + row) * size + column
  pixel = param(1, images * channels * size * size).index(place, inside).load(UOp.const(dtypes.float32, 0.0))
  weight = param(2, outputs * channels * 9).index(((o * channels + c) * 3 + i) * 3 + j).load()
  out = param(0, images * outputs * size * size).index(((n * outputs + o) * size + y) * size + x)
  end = out.store((pixel * weight).reduce(Ops.ADD, c, i, j)).end(n, o, y, x)
  opts = (
    Opt(OptOps.VECTOR, 1, LANES), Opt(OptOps.UPCAST, 3, 8), Opt(OptOps.SWAP, 0, 1), Opt(OptOps.SWAP, 0, 2),
    Opt(OptOps.STAGE, 2, (4, 5, 6)), Opt(OptOps.STAGE, 1, (3, 4, 5, 6, 8)),
  )  # fmt: skip
  return UOp.sink(end, arg=KernelInfo("window", opts))


def test_windows_are_asked_for_row_by_row() -> None:
  size, channels = 128, 32
  ((walk, found),) = lines(window(size=size, channels=channels)).items()
  assert walk is not None
  assert walk.src[0].arg == channels, "the loop over what is packed one after the other, not the taps inside"
  *others, _ = sorted({r for u in found for r in u.ranges} - {walk}, key=lambda r: r.arg[0])
  got = {place // LINE for u in found for place in elements(u, dict.fromkeys(others, 0))}
  image = channels * size * size  # the next one, whose first row of places reads two rows
  rows = [image + channel * size * size + row * size for channel in range(channels) for row in (0, 1)]
  assert got >= {(row + column) // LINE for row in rows for column in range(size)}


@pytest.mark.parametrize("packed", [True, False])
def test_what_the_second_level_keeps_is_there(packed: bool) -> None:
  assert asked(product(packed=packed)) == 1
  assert asked(product(size=256, packed=packed)) == 0


def test_what_only_one_tile_reads_is_not_asked_for() -> None:
  assert asked(product(outputs=16, packed=False)) == 1
  assert asked(product(outputs=ROWS, packed=False)) == 0


def test_panels_that_fill_the_second_level_get_no_company() -> None:
  assert asked(product(length=2048, outputs=8, images=1)) == 0
  assert asked(product(length=2560, outputs=8, images=1, packed=False)) == 0


def test_threads_do_not_know_what_they_take_next() -> None:
  n = asked(product(images=1, threads=True))
  assert n == 0


def test_short_sums_are_not_worth_it() -> None:
  assert asked(product(images=16, length=16, size=8192)) == 0


def test_strides_are_read_when_products_are_shifts() -> None:
  i = loop(8, 0)
  assert stride(i.alu(Ops.SHL, i.const_like(4)) + 3, i) == 16


def test_two_sums_ask_for_themselves(run_kernel: Any) -> None:
  """What one of them computes for it, in a loop of its own, the other does not know."""
  images, outputs, length, size = 8, 8, 512, 28
  n, o, j, k = loop(images, 0), loop(outputs, 1), loop(size, 2), over(length, 3)
  x = param(1, images * length * size).index((n * length + k) * size + j).load()
  out = param(0, images * outputs * size).index((n * outputs + o) * size + j)
  end = out.store((param(2, outputs * length).index(o * length + k).load() * x).reduce(Ops.ADD, k)).end(n, o, j)
  opts = (
    Opt(OptOps.PADTO, 2, LANES), Opt(OptOps.VECTOR, 2, LANES), Opt(OptOps.UPCAST, 1, ROWS),
    Opt(OptOps.STAGE, 1, (2, 3)),
  )  # fmt: skip
  kernel = UOp.sink(end, arg=KernelInfo("two_sums", opts))
  assert asked(kernel) > 1
  values, w = data(images, length, size), data(outputs, length, seed=1)
  (got, *_) = run_kernel(kernel, (garbage(images, outputs, size), values, w))
  np.testing.assert_allclose(got, np.einsum("ok,nkj->noj", w, values), rtol=1e-4, atol=1e-4)
  llvm.parse_assembly(source(kernel)).verify()


def test_results(run_kernel: Any) -> None:
  x, w = data(2, 64, 4096), data(16, 64, seed=1)
  (got, *_) = run_kernel(product(), (garbage(2, 16, 4096), x, w))
  np.testing.assert_allclose(got.reshape(2, 16, 4096), np.einsum("ok,nkj->noj", w, x), rtol=1e-4, atol=1e-4)


def test_what_is_put_together_from_two_vectors_is_asked_for() -> None:
  """Every second element of a row is: all lines that the next panel is in."""
  images, outputs, length, size = 2, 16, 64, 4096
  n, o, j, k = loop(images, 0), loop(outputs, 1), loop(size // 2, 2), over(length, 3)
  x = param(1, images * length * size).index((n * length + k) * size + j * 2).load()
  out = param(0, images * outputs * size // 2).index((n * outputs + o) * (size // 2) + j)
  end = out.store((param(2, outputs * length).index(o * length + k).load() * x).reduce(Ops.ADD, k)).end(n, o, j)
  kernel = UOp.sink(end, arg=KernelInfo("every_second", product().arg.opts))
  ((walk, found),) = lines(kernel).items()
  got = set()
  for u in found:
    outside = [r for r in u.ranges if r is not walk and r.src[0].arg != outputs // ROWS]
    got |= {place // LINE for place in elements(u, dict.fromkeys(outside, 0))}
  assert got >= {(k * size + 2 * LANES + at) * 4 // 64 for k in range(length) for at in (0, 2 * LANES - 2)}


def test_steps_that_are_written_out_ask_for_as_many_rows() -> None:
  """Also where several panels are packed together: all of the next ones, once."""
  outputs, length, size, panels, steps = 20, 64, 4096, 2, 4  # in five tiles, of which the first packs
  kernel = product(outputs=outputs, length=length, size=size)
  written = [Opt(OptOps.UNROLL, 3, steps), Opt(OptOps.SPLIT, 2, panels), Opt(OptOps.SWAP, 7, 1)]
  opts = (*kernel.arg.opts[:-1], *written, Opt(OptOps.STAGE, 1, (7, 3, 6)))
  ((walk, found),) = lines(kernel.replace(arg=KernelInfo("several", opts))).items()
  assert walk is not None
  assert walk.src[0].arg == length // steps
  got = set()
  for u in found:
    outside = [r for r in u.ranges if r is not walk and r.src[0].arg > outputs // ROWS]
    got |= {place // LINE for place in elements(u, dict.fromkeys(outside, 0))}
  first = panels * LANES * 4 // 64
  assert got >= {k * size * 4 // 64 + first + n for k in range(length) for n in range(panels)}
