"""Integer operations of the IR as z3 terms, in two theories: mathematical integers and bit vectors.

Both compute what `tiny_uop.evaluate` does. Bit vectors decide wrapping, masks and shifts; integers decide linear
arithmetic, and division by constants, of any size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tiny_uop.dtype import DType, dtypes
from tiny_uop.ops import Ops


def load_z3() -> Any:
  """The module `z3`. Raises ImportError that says how to install it."""
  try:
    import z3
  except ImportError as missing:
    raise ImportError("proofs about UOps (SPEC=2) need the z3 solver: pip install 'tiny-uop[proof]'") from missing
  return z3


Operation = Callable[..., Any]
_PLAIN: dict[Ops, Operation] = {
  Ops.NEG: operator.neg,
  Ops.ADD: operator.add,
  Ops.SUB: operator.sub,
  Ops.MUL: operator.mul,
  Ops.MULACC: lambda x, y, z: x * y + z,
}


class Integers:
  """`index` as z3 integers; fixed-width types as integers that are wrapped after each operation."""

  def __init__(self) -> None:
    self.z3 = z3 = load_z3()
    self.integer: dict[Ops, Operation] = {
      **_PLAIN,
      Ops.MAX: lambda x, y: z3.If(x >= y, x, y),
      Ops.FLOORDIV: self.floor_div,
      Ops.FLOORMOD: self.floor_mod,
      Ops.TRUNCDIV: self.trunc_div,
      Ops.TRUNCMOD: lambda x, y: z3.If(y == 0, 0, x - self.trunc_div(x, y) * y),
    }

  def symbol(self, name: str, dtype: DType) -> Any:
    return self.z3.Const(name, self.sort(dtype))

  def constant(self, dtype: DType, value: int) -> Any:
    return self.sort(dtype).cast(value)

  def sort(self, dtype: DType) -> Any:
    return self.z3.IntSort()

  def less(self, dtype: DType, x: Any, y: Any) -> Any:
    return x < y

  def number(self, x: Any, dtype: DType) -> int:
    """The Python value of a solved term."""
    return int(x.as_long())

  def in_type(self, x: Any, dtype: DType) -> list[Any]:
    """What holds for every value of the type."""
    return [] if dtype.kind == "index" else [dtypes.min(dtype) <= x, x <= dtypes.max(dtype)]

  def wrap(self, x: Any, dtype: DType) -> Any:
    if dtype.kind == "index":
      return x
    low, span = int(dtypes.min(dtype)), 1 << dtype.bits
    return (x - low) % span + low if low else x % span

  def convert(self, x: Any, source: DType, target: DType) -> Any:
    return self.wrap(x, target)

  def apply(self, op: Ops, dtype: DType, args: list[Any]) -> Any | None:
    """The term, or None where this theory has none."""
    if op in (Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR):
      return self.bitwise(op, dtype, *args)
    operation = self.integer.get(op)
    return None if operation is None else self.wrap(operation(*args), dtype)

  def floor_div(self, x: Any, y: Any) -> Any:
    # z3's division leaves a remainder that is not negative: it rounds down for positive divisors only
    return self.by_sign(y, lambda: x / y, lambda: -x / -y)

  def floor_mod(self, x: Any, y: Any) -> Any:
    return self.by_sign(y, lambda: x % y, lambda: -(-x % -y))

  def trunc_div(self, x: Any, y: Any) -> Any:
    above = self.by_sign(y, lambda: x / y, lambda: -(x / -y))
    below = self.by_sign(y, lambda: -(-x / y), lambda: -x / -y)
    return self.z3.If(x >= 0, above, below)

  def by_sign(self, y: Any, positive: Callable[[], Any], negative: Callable[[], Any]) -> Any:
    z3 = self.z3
    if z3.is_int_value(y):
      sign = y.as_long()
      return positive() if sign > 0 else negative() if sign < 0 else z3.IntVal(0)
    return z3.If(y > 0, positive(), z3.If(y < 0, negative(), 0))

  def bitwise(self, op: Ops, dtype: DType, x: Any, y: Any) -> Any | None:
    z3 = self.z3
    known = y.as_long() if z3.is_int_value(y) else None
    if known is not None and 0 <= known < 64 and op in (Ops.SHL, Ops.SHR):
      return self.wrap(x * (1 << known) if op is Ops.SHL else x / (1 << known), dtype)
    if known is not None and op is Ops.AND and known >= 0 and known & (known + 1) == 0:
      return x % (known + 1)
    if known == -1 and op is Ops.XOR:
      return -x - 1
    if dtype.kind == "index":
      return None
    bits = BitVectors()
    made = bits.apply(op, dtype, [z3.Int2BV(x, dtype.bits), z3.Int2BV(y, dtype.bits)])
    return z3.BV2Int(made, dtype.kind == "int")


class BitVectors(Integers):
  """Fixed-width types as bit vectors; `index` as in `Integers`."""

  def __init__(self) -> None:
    super().__init__()
    z3 = self.z3
    bits: dict[Ops, Operation] = {
      **_PLAIN,
      Ops.AND: operator.and_,
      Ops.OR: operator.or_,
      Ops.XOR: operator.xor,
      Ops.SHL: operator.lshift,
    }
    unsigned: dict[Ops, Operation] = {
      Ops.SHR: z3.LShR,
      Ops.MAX: lambda x, y: z3.If(z3.UGE(x, y), x, y),
      **dict.fromkeys((Ops.FLOORDIV, Ops.TRUNCDIV), lambda x, y: z3.If(y == 0, 0, z3.UDiv(x, y))),
      **dict.fromkeys((Ops.FLOORMOD, Ops.TRUNCMOD), lambda x, y: z3.If(y == 0, 0, z3.URem(x, y))),
    }
    signed: dict[Ops, Operation] = {
      Ops.SHR: operator.rshift,
      Ops.MAX: lambda x, y: z3.If(x >= y, x, y),
      Ops.TRUNCDIV: lambda x, y: z3.If(y == 0, 0, x / y),
      Ops.TRUNCMOD: lambda x, y: z3.If(y == 0, 0, z3.SRem(x, y)),
      Ops.FLOORDIV: self._floor_div,
      Ops.FLOORMOD: lambda x, y: z3.If(y == 0, 0, x % y),  # the remainder with the divisor's sign
    }
    self.tables = {"uint": {**bits, **unsigned}, "int": {**bits, **signed}}

  def _floor_div(self, x: Any, y: Any) -> Any:
    z3 = self.z3
    rest = z3.SRem(x, y)
    down = z3.And(rest != 0, (rest < 0) != (y < 0))
    return z3.If(y == 0, 0, z3.If(down, x / y - 1, x / y))

  def sort(self, dtype: DType) -> Any:
    return super().sort(dtype) if dtype.kind == "index" else self.z3.BitVecSort(dtype.bits)

  def less(self, dtype: DType, x: Any, y: Any) -> Any:
    return self.z3.ULT(x, y) if dtype.kind == "uint" else x < y

  def number(self, x: Any, dtype: DType) -> int:
    return int(x.as_signed_long() if dtype.kind == "int" else x.as_long())

  def in_type(self, x: Any, dtype: DType) -> list[Any]:
    return []

  def convert(self, x: Any, source: DType, target: DType) -> Any:
    z3 = self.z3
    if "index" in (source.kind, target.kind):
      if source.kind == target.kind:
        return x
      return z3.Int2BV(x, target.bits) if source.kind == "index" else z3.BV2Int(x, source.kind == "int")
    more = target.bits - source.bits
    if more <= 0:
      return z3.Extract(target.bits - 1, 0, x) if more else x
    return z3.SignExt(more, x) if source.kind == "int" else z3.ZeroExt(more, x)

  def apply(self, op: Ops, dtype: DType, args: list[Any]) -> Any | None:
    if dtype.kind == "index":
      return super().apply(op, dtype, args)
    operation = self.tables[dtype.kind].get(op)
    return None if operation is None else operation(*args)
