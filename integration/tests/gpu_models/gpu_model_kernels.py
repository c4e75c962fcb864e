"""Kernels that the tests of the models of GPUs run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.standard import (
  convolution,
  dequantised,
  gelu,
  layer_norm,
  linear,
  matmul,
  softmax,
  sums,
  total,
  transpose,
)
from tiny_runtime.conformance.target import Target, reference
from tiny_runtime.conformance.values import small
from tiny_runtime.contract import Backend
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, PtrDType, UOp, dtypes

F = dtypes.float32
Chosen = TypeVar("Chosen")


def some(cases: Iterable[Chosen], every: int) -> list[Chosen]:
  """Every nth case; all of them with GPU_MODEL=all, which `hatch run gpu-model-all` sets."""
  return list(cases)[:: 1 if os.environ.get("GPU_MODEL") == "all" else every]


SMALL: Mapping[str, Callable[[], UOp]] = {
  "matmul": lambda: matmul(40, 64, 32, F, F, F),
  "matmul_half": lambda: matmul(32, 33, 48, dtypes.float16, F, dtypes.float16, transposed=True),
  "matmul_int8": lambda: matmul(16, 48, 32, dtypes.int8, dtypes.int32, dtypes.int32),
  "matmul_thin": lambda: matmul(1, 64, 512, F, F, F, transposed=True),
  "linear": lambda: linear(32, 24, 40),
  "dequantised": lambda: dequantised(16, 24, 32),
  "convolution": lambda: convolution(4, 10, 8),
  "softmax": lambda: softmax(3, 500),
  "layer_norm": lambda: layer_norm(4, 256),
  "total": lambda: total(5000, F),
  "column_sums": lambda: sums(70, 40, 0),
  "gelu": lambda: gelu(700),
  "transpose": lambda: transpose(33, 70),
}
"""The standard kernels, at sizes that REF interprets in a moment."""


def check_on(backend: Backend, kernel: UOp, tolerance: float = 0) -> str:
  """Run a kernel on small random integers and compare with REF. Raises Misbehaved; gives the program's source."""
  target = Target("MODEL", backend, "a model")
  contents = []
  for u in sorted((u for u in kernel.toposort if u.op is Ops.PARAM), key=lambda u: int(u.arg)):
    assert isinstance(u.dtype, PtrDType)
    contents.append(small(u.dtype.base, u.dtype.size, u.arg))
  try:
    compare(target, reference(), kernel, contents, tolerance=tolerance)
    return target.compile(kernel).source
  finally:
    target.device.close()


def product(
  shape: tuple[int, int, int], sides: tuple[int, int, int], types: tuple[DType, DType], core: int, causal: bool = False
) -> UOp:
  """`out[m, n] = a[m, k] @ b[k, n]` on tensor core number `core`, whose matrices have `sides` (m, n, k). `causal`: a
  row takes the elements of a up to the diagonal."""
  (m, n, k), (dtype, out) = shape, types
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  a = UOp.param(1, dtype.ptr(m * k)).index(i * k + r).load().cast(out)
  b = UOp.param(2, dtype.ptr(k * n)).index(r * n + j).load().cast(out)
  term = (r < i + 1).where(a * b, UOp.const(out, 0)) if causal else a * b
  store = UOp.param(0, out.ptr(m * n)).index(i * n + j).store(term.reduce(Ops.ADD, r)).end(i, j)
  padding = [Opt(OptOps.PADTO, axis, side) for axis, (size, side) in enumerate(zip(shape, sides)) if size % side]
  return UOp.sink(store, arg=KernelInfo("product", (*padding, Opt(OptOps.TC, 2, core))))
