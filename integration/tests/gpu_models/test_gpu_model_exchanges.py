"""Threads of a wave that give each other their values, on the models of the GPUs: each bit of their numbers, each
type.
"""

from __future__ import annotations

import re
import struct

import pytest

from gpu_model.amd import GFX942, GFX1100
from gpu_model.cuda import ModelBackend
from gpu_model.metal import BACKEND
from gpu_model.toolchain import compiler
from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.target import Target, reference
from tiny_runtime.conformance.values import small
from tiny_runtime.contract import Backend
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, PtrDType, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

I, F = dtypes.int32, dtypes.float32  # noqa: E741
BACKENDS: dict[str, tuple[Backend, int]] = {
  "gfx942": (GFX942, 64), "gfx1100": (GFX1100, 32), "cuda": (ModelBackend(), 32), "metal": (BACKEND, 32)
}  # fmt: skip
each = pytest.mark.parametrize("name", BACKENDS)


@each
def test_each_bit(name: str) -> None:
  """Two waves and the numbers of partners, one bit after the other and the first and the last together."""
  backend, wave = BACKENDS[name]
  threads = 2 * wave
  masks = [*(1 << n for n in range(wave.bit_length() - 1)), wave // 2 + 1]
  t = UOp.range(threads, 0, AxisType.LOCAL)
  own = UOp.param(1, I.ptr(threads)).index(t).load()
  out = UOp.param(0, I.ptr(threads * len(masks)))
  stores = [out.index(t * len(masks) + n).store(own.shuffle(mask)) for n, mask in enumerate(masks)]
  kernel = UOp.sink(UOp.group(*stores).end(t), arg=KernelInfo("partners", ()))
  values = [7 * n - 100 for n in range(threads)]
  target = Target("MODEL", backend, "a model")
  try:
    got = target.run(kernel, [bytes(4 * threads * len(masks)), struct.pack(f"{threads}i", *values)], {}, 0)[0]
  finally:
    target.device.close()
  expected = [values[n ^ mask] for n in range(threads) for mask in masks]
  assert list(struct.unpack(f"{len(expected)}i", got)) == expected


def sums(dtypes_of: tuple[DType, ...], threads: int) -> UOp:
  """The greatest element and the sum of a row of 128 of each type, by `threads` of a workgroup for each of two rows."""
  r, effects = UOp.range(128, 1, AxisType.REDUCE), []
  row = UOp.range(2, 0)
  for slot, dtype in enumerate(dtypes_of):
    value = UOp.param(2 * slot + 1, dtype.ptr(256)).index(row * 128 + r).load()
    results = UOp.param(2 * slot, dtype.ptr(4))
    effects += [results.index(row * 2 + n).store(value.reduce(op, r)) for n, op in enumerate((Ops.MAX, Ops.ADD))]
  opts = (Opt(OptOps.GROUP, 1, threads), Opt(OptOps.LOCAL, 0, 2))
  return UOp.sink(UOp.group(*effects).end(row), arg=KernelInfo("sums", opts))


@each
@pytest.mark.parametrize("threads", (16, 128))
def test_each_type(name: str, threads: int) -> None:
  """Small integers, whose sums are exact in all types. Two rows of 16 threads are in one wave; 128 are several."""
  backend, _ = BACKENDS[name]
  types = (dtypes.bool, dtypes.uint8, dtypes.int16, I, dtypes.int64, dtypes.float16, dtypes.bfloat16, F)
  kernel = sums(types if name == "metal" else (*types, dtypes.float64), threads)
  pointers = sorted((u for u in kernel.toposort if u.op is Ops.PARAM), key=lambda u: int(u.arg))
  contents = [small(u.dtype.base, u.dtype.size, u.arg) for u in pointers if isinstance(u.dtype, PtrDType)]
  target = Target("MODEL", backend, "a model")
  try:
    compare(target, reference(), kernel, contents)
    assert bool(re.search(r"barrier[.(]", target.compile(kernel).source)) == (threads > 16)
  finally:
    target.device.close()
