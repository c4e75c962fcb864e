"""Prefetching of what loops pack with gaps; and rows of which every second element is packed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param
from codegen_prefetches import PACKED, elements, prefetches

from tiny_codegen import PASSES, CacheSizes, LLVMRenderer, PassContext, compile_kernel, cpu_target, run_passes
from tiny_codegen.lower.prefetch.gaps import AHEAD
from tiny_codegen.lower.prefetch.insert import prefetch
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp

FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")
CACHES = CacheSizes(32 << 10, 256 << 10, 1 << 20)
TARGET = LLVMRenderer(cpu_target("x86_64", "", FEATURES, caches=CACHES))
CHANNELS, SIZE, LANES, ROWS = 64, 32, 16, 4


def strided(images: int = 2, step: int = 2, size: int = SIZE) -> UOp:
  """`out[n, o, y, x] = sum over c of w[c, o] * image[n, c, step * y, step * x]`, an image in local memory at a time."""
  n, o, y, x, c = loop(images, 0), loop(LANES, 1), loop(size, 2), loop(size, 3), over(CHANNELS, 4)
  wide = step * size
  image = param(1, images * CHANNELS * wide * wide).index(((n * CHANNELS + c) * wide + y * step) * wide + x * step)
  product = image.load() * param(2, CHANNELS * LANES).index(c * LANES + o).load()
  out = param(0, images * LANES * size * size).index(((n * LANES + o) * size + y) * size + x)
  rows = (2, 3) if step > 1 else (2,)  # which are one loop where nothing is left out
  opts = (Opt(OptOps.VECTOR, 1, 0), Opt(OptOps.UPCAST, rows[-1], ROWS), Opt(OptOps.STAGE, 1, (4, *rows, 6)))
  return UOp.sink(out.store(product.reduce(Ops.ADD, c)).end(n, o, y, x), arg=KernelInfo("strided", opts))


def asked(kernel: UOp, caches: CacheSizes = CACHES) -> dict[UOp | None, list[UOp]]:
  linear = run_passes(kernel, PassContext(TARGET.target), ("prefetch",))
  return prefetches(prefetch(linear, replace(TARGET.target, caches=caches)), PACKED)


def test_rows_with_gaps_are_asked_for() -> None:
  """Every second row is read, each in the lines that it lies in."""
  ((packing, lines),) = asked(strided()).items()
  row, gap = 2 * SIZE - 1, 2 * (2 * SIZE)
  assert packing is not None
  assert packing.src[0].arg == CHANNELS * SIZE, "the loops over channels and rows are one"
  places = [place for line in lines for place in elements(line, dict.fromkeys(line.ranges, 0))]
  assert [place - AHEAD * gap for place in places] == [*range(0, row - 1, 64 // 4), row - 1]
  text = str(compile_kernel(strided(), TARGET).src[2].arg)
  assert text.count("call void @llvm.prefetch.p0(") == len(lines)


def test_what_is_in_order_is_left_to_the_processor() -> None:
  assert asked(strided(step=1)) == {}


def test_what_fits_into_the_cache_is_not_asked_for() -> None:
  assert asked(strided(), CacheSizes(32 << 10, 64 << 20, 1 << 30)) == {}


@pytest.mark.parametrize(("size", "step"), [(32, 2), (28, 2), (32, 3), (16, 2)])
def test_every_second_element(size: int, step: int, run_kernel: Any) -> None:
  """Nothing is read behind the last one: the buffer ends with what it needs, where the last row begins in it."""
  x, w = data(2, CHANNELS, step * size, step * size), data(CHANNELS, LANES, seed=1)
  (out, *_) = run_kernel(strided(step=step, size=size), [garbage(2, LANES, size, size), x, w])
  expected = np.einsum("ncyx,co->noyx", x[:, :, ::step, ::step].astype(np.float64), w.astype(np.float64))
  np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_every_second_element_of_rows_that_vectors_do_not_divide() -> None:
  """The last vector of a row is a part of one, and reads no more than that."""
  text = str(compile_kernel(strided(size=28), TARGET).src[2].arg)
  names = ["%p1"]
  for name, of in re.findall(r"(%v\d+) = getelementptr (?:inbounds )?float, ptr (%\w+)", text):
    names += [name] if of in names else []  # some are so far from another one
  kinds = [kind for name in names for kind in re.findall(rf"load ([^,]+), ptr {name},", text)]
  assert kinds == ["<16 x float>"] * 3 + ["<8 x float>"], "28 elements are 16 and 12; of 16, the last 4 are not there"


def copied(count: int, step: int = 2) -> UOp:
  """`out[i] = x[step * i]` for vectors of 16 lanes."""
  i = loop(count, 0)
  source = param(1, step * (count - 1) + 1).index(i * step).load()
  opts = (Opt(OptOps.VECTOR, 0, LANES),)
  return UOp.sink(param(0, count).index(i).store(source).end(i), arg=KernelInfo("copied", opts))


def test_two_vectors_have_every_second_element(run_kernel: Any) -> None:
  """The second ends with the last lane, so that no element behind it is read; one shuffle puts them together."""
  count = 64
  root = run_passes(
    copied(count), PassContext(TARGET.target), passes=PASSES[: [p.name for p in PASSES].index("unroll")]
  )
  loads = [u for u in root.toposort if u.op is Ops.LOAD]
  assert [u.dtype.count for u in loads] == [LANES, LANES]
  assert {u.op for u in root.toposort} >= {Ops.VECTORIZE, Ops.EXTRACT}
  text = str(compile_kernel(copied(count), TARGET).src[2].arg)
  lanes = ", ".join(f"i32 {lane}" for lane in (*range(0, 16, 2), *range(17, 32, 2)))
  assert re.search(rf"shufflevector <16 x float> %\w+, <16 x float> %\w+, <16 x i32> <{lanes}>", text)
  assert "extractelement" not in text, "no lane is taken by itself"
  x = data(2 * count - 1)
  assert (run_kernel(copied(count), [garbage(count), x])[0] == x[::2]).all()


def test_steps_of_three_are_read_one_by_one(run_kernel: Any) -> None:
  x = data(3 * 63 + 1)
  assert (run_kernel(copied(64, 3), [garbage(64), x])[0] == x[::3]).all()
