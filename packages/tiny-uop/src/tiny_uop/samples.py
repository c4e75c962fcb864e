"""Leaves from which the examples of rewrite rules are built."""

from __future__ import annotations

import math

from tiny_uop.dtype import DType, dtypes
from tiny_uop.ops import Ops
from tiny_uop.uop import UOp


class Samples:
  """Values with known bounds and types. Asking twice for a name gives the same node."""

  n: UOp
  m: UOp
  """Two of dtype index in [-8, 7]."""
  p: UOp
  q: UOp
  """Two of dtype index in [0, 15]."""
  i: UOp
  j: UOp
  """Any two int32, from memory."""
  b: UOp
  c: UOp
  """Any two bools, from memory."""
  f: UOp
  g: UOp
  """Any two float32, from memory."""

  def __init__(self) -> None:
    self.n, self.m = self.var("n", -8, 7), self.var("m", -8, 7)
    self.p, self.q = self.var("p", 0, 15), self.var("q", 0, 15)
    self.i, self.j = self.value(dtypes.int32, 0), self.value(dtypes.int32, 1)
    self.b, self.c = self.value(dtypes.bool, 2), self.value(dtypes.bool, 3)
    self.f, self.g = self.value(dtypes.float32, 4), self.value(dtypes.float32, 5)

  def var(self, name: str, low: int, high: int, dtype: DType = dtypes.index) -> UOp:
    """An integer in [low, high]."""
    return UOp.variable(name, low, high, dtype)

  def value(self, dtype: DType, slot: int) -> UOp:
    """Any value of a type: element 0 of the memory PARAM `slot` points to."""
    return UOp.param(slot, dtype.ptr(1)).index(0).load()

  def convert(self, op: Ops, dtype: DType, value: UOp) -> UOp:
    """A CAST or BITCAST, of constants as well."""
    return UOp(op, dtype, (value,))

  def range(self, extent: int | UOp, loop: int = 0) -> UOp:
    """A loop counter in [0, extent)."""
    return UOp.range(extent, loop)

  def lanes(self, *values: int | UOp) -> UOp:
    """A vector: an int32 constant of these numbers, or one made of these scalars."""
    scalars = tuple(v for v in values if isinstance(v, UOp))
    if not scalars:
      return UOp.const(dtypes.int32.vec(len(values)), values)
    return UOp(Ops.VECTORIZE, scalars[0].dtype.vec(len(values)), scalars)

  def pointer(self, size: int, dtype: DType = dtypes.float32, slot: int = 6) -> UOp:
    """A kernel's buffer argument of `size` elements."""
    return UOp.param(slot, dtype.ptr(size))

  def buffer(self, *shape: int, dtype: DType = dtypes.float32, slot: int = 0, device: str = "CPU") -> UOp:
    """Contents of a buffer on a device, of a shape (tensor level)."""
    # ids far from those of real buffers; a parsed graph may still mention them
    place = UOp(Ops.DEVICE, arg=device)
    return UOp(Ops.BUFFER, dtype, (place,), (1_000_000_000 + slot, math.prod(shape))).reshape(shape)
