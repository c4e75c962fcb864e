"""Small ways to write kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_uop import DType, KernelInfo, UOp

INPUT = 1
"""Slot of the first input where there is one output."""


def elementwise(name: str, size: int, output: DType, inputs: Sequence[DType], build: Callable[..., UOp]) -> UOp:
  """`out[i] = build(in0[i], in1[i], …)` over `size` elements. Slot 0 is the output."""
  i = UOp.range(size, 0)
  loads = [UOp.param(INPUT + k, dtype.ptr(size)).index(i).load() for k, dtype in enumerate(inputs)]
  return kernel(name, UOp.param(0, output.ptr(size)).index(i).store(build(*loads)).end(i))


def kernel(name: str, *effects: UOp) -> UOp:
  """The SINK of these effects."""
  return UOp.sink(*effects, arg=KernelInfo(name))
