"""Small ways to write kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_uop import DType, KernelInfo, UOp

INPUT = 1
"""Slot of the first input where there is one output."""


def elementwise(name: str, size: int, output: DType, inputs: Sequence[DType], build: Callable[..., UOp]) -> UOp:
  """`out[i] = build(in0[i], in1[i], …)` over `size` elements. Slot 0 is the output."""
  i = UOp.range(size, 0)
  loads = [read(INPUT + k, dtype, size, i) for k, dtype in enumerate(inputs)]
  return kernel(name, param(0, output, size).index(i).store(build(*loads)).end(i))


def param(slot: int, dtype: DType, size: int) -> UOp:
  """A buffer of so many elements."""
  return UOp.param(slot, dtype.ptr(size))


def read(slot: int, dtype: DType, size: int, place: UOp, *gate: UOp) -> UOp:
  """An element of a buffer; 0 where the `gate`, if there is one, is false."""
  return param(slot, dtype, size).index(place, *gate).load()


def kernel(name: str, *effects: UOp) -> UOp:
  """The SINK of these effects."""
  return UOp.sink(*effects, arg=KernelInfo(name))
