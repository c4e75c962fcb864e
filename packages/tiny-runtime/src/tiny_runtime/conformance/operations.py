"""One row per elementwise operation: the types it is tried on, how a kernel has it, how exact it has to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiny_runtime.conformance.values import edge_values, small_integers
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes
from tiny_uop.truncate import Number

FLOATS = dtypes.floats
INTS = dtypes.ints
NUMBERS = (*INTS, *FLOATS)
ALL = dtypes.all
BITS = (dtypes.bool, *INTS)

Values = Callable[[DType], tuple[Number, ...]]


@dataclass(frozen=True)
class Row:
  """How one operation is tried."""

  types: tuple[DType, ...]
  """Types of the last operand (and of the others, where `WHERE` does not say otherwise)."""
  operands: int
  build: Callable[..., UOp]
  """From the operands to the value."""
  ulp: float = 0
  """Tolerance for float32 and float64, in units in the last place. 0: correctly rounded."""
  narrow_ulp: float = 0
  """The same for the 8- and 16-bit floats, which are computed in a wider type and rounded once."""
  values: Values = edge_values
  accept: Callable[..., bool] = lambda *operands: True
  """Operands for which the result is specified."""


def alu(op: Ops) -> Callable[..., UOp]:
  """The operation itself, as a kernel would have it."""
  return lambda first, *rest: first.alu(op, *rest)


def _moderate(limit: float) -> Callable[..., bool]:
  return lambda *operands: all(v != v or v in (float("inf"), float("-inf")) or abs(v) <= limit for v in operands)


def _shift_values(dtype: DType) -> tuple[Number, ...]:
  return tuple(sorted({*edge_values(dtype), *(n for n in (0, 1, dtype.bits // 2, dtype.bits - 1))}))


# NEG, SUB and MULACC are made by code generators; what a kernel has is the form that they are made of
ROWS: dict[Ops, Row] = {
  Ops.NEG: Row(NUMBERS, 1, lambda a: a * -1),
  Ops.EXP2: Row(FLOATS, 1, alu(Ops.EXP2), ulp=4, narrow_ulp=1),
  Ops.LOG2: Row(FLOATS, 1, alu(Ops.LOG2), ulp=4, narrow_ulp=1),
  Ops.EXP: Row(FLOATS, 1, alu(Ops.EXP), ulp=4, narrow_ulp=1),
  Ops.LOG: Row(FLOATS, 1, alu(Ops.LOG), ulp=4, narrow_ulp=1),
  # large arguments need hundreds of bits of pi; GPUs' libraries differ there
  Ops.SIN: Row(FLOATS, 1, alu(Ops.SIN), ulp=4, narrow_ulp=1, accept=_moderate(2.0**20)),
  Ops.SQRT: Row(FLOATS, 1, alu(Ops.SQRT)),
  Ops.TRUNC: Row(FLOATS, 1, alu(Ops.TRUNC)),
  Ops.ADD: Row(ALL, 2, alu(Ops.ADD)),
  Ops.SUB: Row(NUMBERS, 2, lambda a, b: a - b),
  Ops.MUL: Row(ALL, 2, alu(Ops.MUL)),
  Ops.FDIV: Row(FLOATS, 2, alu(Ops.FDIV)),
  Ops.FLOORDIV: Row(INTS, 2, alu(Ops.FLOORDIV)),
  Ops.FLOORMOD: Row(INTS, 2, alu(Ops.FLOORMOD)),
  Ops.TRUNCDIV: Row(INTS, 2, alu(Ops.TRUNCDIV)),
  Ops.TRUNCMOD: Row(INTS, 2, alu(Ops.TRUNCMOD)),
  Ops.MAX: Row(ALL, 2, alu(Ops.MAX)),
  Ops.CMPLT: Row(ALL, 2, alu(Ops.CMPLT)),
  Ops.CMPNE: Row(ALL, 2, alu(Ops.CMPNE)),
  Ops.CMPEQ: Row(ALL, 2, alu(Ops.CMPEQ)),
  Ops.AND: Row(BITS, 2, alu(Ops.AND)),
  Ops.OR: Row(BITS, 2, alu(Ops.OR)),
  Ops.XOR: Row(BITS, 2, alu(Ops.XOR)),
  Ops.SHL: Row(INTS, 2, alu(Ops.SHL), values=_shift_values, accept=lambda a, b: 0 <= b),
  Ops.SHR: Row(INTS, 2, alu(Ops.SHR), values=_shift_values, accept=lambda a, b: 0 <= b),
  Ops.THREEFRY: Row((dtypes.uint64,), 2, alu(Ops.THREEFRY)),
  Ops.WHERE: Row(ALL, 3, alu(Ops.WHERE)),
  # exact products and sums: fused or not gives the same
  Ops.MULACC: Row(NUMBERS, 3, lambda a, b, c: a * b + c, values=small_integers),
}

CONVERSIONS = frozenset({Ops.CAST, Ops.BITCAST})
"""Operations between two types, which have tests of their own."""


def missing_rows() -> list[str]:
  """Elementwise operations of tiny-uop that nothing here tests."""
  return sorted(op.name for op in GroupOp.Elementwise - ROWS.keys() - CONVERSIONS)


if absent := missing_rows():
  raise RuntimeError(f"operations without a conformance case: {', '.join(absent)}. Add a row to operations.py for each")


def operand_types(op: Ops, dtype: DType) -> tuple[DType, ...]:
  """Types of the operands of a row's case."""
  return (dtypes.bool, dtype, dtype) if op is Ops.WHERE else (dtype,) * ROWS[op].operands


def tolerance(row: Row, dtype: DType) -> float:
  """In ulp, for a result type."""
  return row.ulp if dtype.bits >= 32 else row.narrow_ulp
