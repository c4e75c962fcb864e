"""One row per elementwise operation: the types it is tried on, how a kernel has it, how exact it has to be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tiny_runtime.conformance.values import edge_values, small_integers
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes, truncate
from tiny_uop.truncate import FORMATS, Number, from_bits, to_bits

FLOATS = dtypes.floats
INTS = dtypes.ints
NUMBERS = (*INTS, *FLOATS)
ALL = dtypes.all
BITS = (dtypes.bool, *INTS)

Values = Callable[[DType], tuple[Number, ...]]


def _all(*operands: object) -> bool:
  return True


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
  drawn: int = 200
  """Of so many operands drawn at random the result is looked at, too: a mistake may be seldom."""
  accept: Callable[..., bool] = _all
  """From the type and operands, whether the result is specified."""
  signed_zeros: bool = False
  """Whether 0.0 and -0.0 are different results: where IEEE 754 says which it is."""
  look_at: str = ""
  """What usually is the matter."""


def alu(op: Ops) -> Callable[..., UOp]:
  """The operation itself, as a kernel would have it."""
  return lambda first, *rest: first.alu(op, *rest)


def _moderate(limit: float) -> Callable[..., bool]:
  return lambda dtype, *operands: all(v != v or v in (float("inf"), float("-inf")) or abs(v) <= limit for v in operands)


def _is_exponent(dtype: DType, x: Number, n: Number) -> bool:
  """Whether LDEXP is specified: a whole number of no more than twice the largest exponent."""
  return abs(n) <= 2 * _largest_exponent(dtype) and n == int(n)


def _largest_exponent(dtype: DType) -> int:
  return math.frexp(from_bits(dtype, FORMATS[dtype.name].largest))[1] - 1


def _exponents(dtype: DType) -> list[int]:
  """Powers of two around which results become subnormal, then 0, and infinite."""
  form = FORMATS[dtype.name]
  least, normal, largest = 1 - form.bias - form.mantissa, 1 - form.bias, _largest_exponent(dtype)
  return [least - 2, least - 1, least, least + 1, (least + normal) // 2, normal - 1, normal, largest, largest + 1]


def _and_exponents(dtype: DType) -> tuple[Number, ...]:
  """The edges, and whole numbers by which LDEXP makes numbers of the range's ends."""
  more = [float(e) for e in _exponents(dtype) if truncate(dtype, float(e)) == e]
  return tuple({to_bits(dtype, v): v for v in (*edge_values(dtype), *more)}.values())


def _and(exact: Callable[[DType], list[float]]) -> Values:
  """The edges, and numbers that are those of one function: with their neighbours."""

  def values(dtype: DType) -> tuple[Number, ...]:
    patterns = {to_bits(dtype, v): None for v in edge_values(dtype)}
    for value in exact(dtype):
      middle = to_bits(dtype, value)
      patterns.update(dict.fromkeys(p for p in (middle - 1, middle, middle + 1) if 0 <= p < 1 << dtype.bits))
    return tuple(from_bits(dtype, pattern) for pattern in patterns)

  return values


def _powers(base: float) -> Values:
  """Arguments of a power: where it becomes subnormal, 0 and infinite, and between."""
  return _and(lambda dtype: [(e + part) / math.log2(base) for e in _exponents(dtype) for part in (0.0, 0.3, 0.875)])


_ROOTS = _and(lambda dtype: [1.0, 0.9, 1.1, *(from_bits(dtype, n) for n in (1, 2, 3, 5))])
_ANGLES = _and(
  lambda dtype: [n * math.pi / 2 for n in (*range(-8, 9), 100, 1001, 60000)] + [123.0, 1e3, 12345.0, 1e5, 1e6]
)


def _shift_values(dtype: DType) -> tuple[Number, ...]:
  return tuple(sorted({*edge_values(dtype), *(n for n in (0, 1, dtype.bits // 2, dtype.bits - 1))}))


_ZERO = "x / 0 is 0 and x % 0 is 0 in the IR; hardware traps or gives something else, so guard the divisor"
_FLOOR = f"the quotient rounds toward minus infinity, the remainder has the divisor's sign. {_ZERO}"
_TRUNC = f"the quotient rounds toward zero, the remainder has the dividend's sign; lowest / -1 wraps. {_ZERO}"
_NAN = "comparisons with NaN are false, but != is true; 0.0 equals -0.0. Integers: signed and unsigned differ"
_WRAP = "integers wrap at the width of their type: narrow ones too, so truncate after computing in a wider register"
_MATH = "accuracy of the function, its values at 0, infinity and NaN, and results that are subnormal"


def _functions(*ops: Ops, values: Values, accept: Callable[..., bool] = _all) -> dict[Ops, Row]:
  return {op: Row(FLOATS, 1, alu(op), 4, 1, values, accept=accept, signed_zeros=True, look_at=_MATH) for op in ops}


# NEG, SUB and MULACC are made by code generators; what a kernel has is the form that they are made of
ROWS: dict[Ops, Row] = {
  Ops.NEG: Row(NUMBERS, 1, lambda a: a * -1, signed_zeros=True, look_at="-x is not 0 - x for floats: zeros have signs"),
  **_functions(Ops.EXP2, values=_powers(2.0)),
  **_functions(Ops.EXP, values=_powers(math.e)),
  **_functions(Ops.LOG2, Ops.LOG, values=_ROOTS),
  # large arguments need hundreds of bits of pi; GPUs' libraries differ there
  **_functions(Ops.SIN, Ops.COS, values=_ANGLES, accept=_moderate(2.0**20)),
  Ops.SQRT: Row(FLOATS, 1, alu(Ops.SQRT), signed_zeros=True, look_at="it is correctly rounded: no reciprocal estimate"),
  Ops.TRUNC: Row(FLOATS, 1, alu(Ops.TRUNC), signed_zeros=True, look_at="large numbers stay; a conversion overflows"),
  Ops.ADD: Row(ALL, 2, alu(Ops.ADD), signed_zeros=True, look_at=f"{_WRAP}. For bool it is or"),
  Ops.SUB: Row(NUMBERS, 2, lambda a, b: a - b, signed_zeros=True, look_at=_WRAP),
  Ops.MUL: Row(ALL, 2, alu(Ops.MUL), signed_zeros=True, look_at=f"{_WRAP}. For bool it is and"),
  Ops.FDIV: Row(FLOATS, 2, alu(Ops.FDIV), signed_zeros=True, look_at="it is correctly rounded: no reciprocal estimate"),
  Ops.LDEXP: Row(FLOATS, 2, alu(Ops.LDEXP), values=_and_exponents, drawn=0, accept=_is_exponent,
                 signed_zeros=True, look_at="it is rounded once, subnormal results too; 2**n alone may overflow"),
  Ops.FLOORDIV: Row(INTS, 2, alu(Ops.FLOORDIV), look_at=_FLOOR),
  Ops.FLOORMOD: Row(INTS, 2, alu(Ops.FLOORMOD), look_at=_FLOOR),
  Ops.TRUNCDIV: Row(INTS, 2, alu(Ops.TRUNCDIV), look_at=_TRUNC),
  Ops.TRUNCMOD: Row(INTS, 2, alu(Ops.TRUNCMOD), look_at=_TRUNC),
  Ops.MAX: Row(ALL, 2, alu(Ops.MAX), look_at="NaN if either is NaN, unlike C's fmax; signed and unsigned differ"),
  Ops.CMPLT: Row(ALL, 2, alu(Ops.CMPLT), look_at=_NAN),
  Ops.CMPNE: Row(ALL, 2, alu(Ops.CMPNE), look_at=_NAN),
  Ops.CMPEQ: Row(ALL, 2, alu(Ops.CMPEQ), look_at=_NAN),
  Ops.AND: Row(BITS, 2, alu(Ops.AND)),
  Ops.OR: Row(BITS, 2, alu(Ops.OR)),
  Ops.XOR: Row(BITS, 2, alu(Ops.XOR)),
  Ops.SHL: Row(INTS, 2, alu(Ops.SHL), values=_shift_values, drawn=0, accept=lambda dtype, a, b: 0 <= b, look_at=_WRAP),
  Ops.SHR: Row(INTS, 2, alu(Ops.SHR), values=_shift_values, drawn=0, accept=lambda dtype, a, b: 0 <= b,
               look_at="arithmetic for signed types"),
  Ops.THREEFRY: Row((dtypes.uint64,), 2, alu(Ops.THREEFRY), look_at="Threefry-2x32, 20 rounds, low word first"),
  Ops.WHERE: Row(ALL, 3, alu(Ops.WHERE), signed_zeros=True, look_at="the first branch is taken where the bool is true"),
  # exact products and sums: fused or not gives the same
  Ops.MULACC: Row(NUMBERS, 3, lambda a, b, c: a * b + c, values=small_integers, drawn=0, look_at=_WRAP),
}  # fmt: skip

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
