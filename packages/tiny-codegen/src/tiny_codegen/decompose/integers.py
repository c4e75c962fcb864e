"""Integer division that rounds down, made of division that rounds toward zero, shifts and masks.

TRUNCDIV and TRUNCMOD keep the IR's meaning for a zero divisor and for INT_MIN / -1: renderers guard what the hardware
would trap on, unless bounds rule it out.
"""

from __future__ import annotations

from tiny_codegen.decompose.arithmetic import MADE_OF_OTHERS
from tiny_codegen.target import Target
from tiny_uop import Ops, Samples, UOp, UPat, dtypes, rule
from tiny_uop.pattern import Rule


def _power(d: UOp) -> int | None:
  """k where all lanes of a constant are 2**k."""
  value = d.arg if d.op is Ops.CONST and not isinstance(d.arg, tuple) else 0
  return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


def _is_unsigned(x: UOp, d: UOp) -> bool:
  return x.dtype.kind == "uint" or (x.vmin >= 0 and d.vmin >= 0)


def _floor_divide(x: UOp, d: UOp) -> UOp:
  if (power := _power(d)) is not None:
    return x >> power  # an arithmetic shift rounds down
  if _is_unsigned(x, d):
    return x.alu(Ops.TRUNCDIV, d)
  if d.op is Ops.CONST and d.vmin > 0:
    # x // d = ~(~x // d) for x < 0: one division of a non-negative number, which compilers turn into a multiplication
    sign = x >> (x.dtype.bits - 1)
    return (x ^ sign).alu(Ops.TRUNCDIV, d) ^ sign
  quotient = x.alu(Ops.TRUNCDIV, d)
  return quotient - _crosses_zero(x, d).cast(x.dtype)


def _crosses_zero(x: UOp, d: UOp) -> UOp:
  """Whether the quotient toward zero lies above the one rounded down: there is a remainder, of another sign than the
  divisor's.
  """
  rest = x.alu(Ops.TRUNCMOD, d)
  return rest.ne(0) & ((rest ^ d) < 0)


def _floor_remainder(x: UOp, d: UOp) -> UOp:
  if (power := _power(d)) is not None:
    return x & ((1 << power) - 1)
  if _is_unsigned(x, d):
    return x.alu(Ops.TRUNCMOD, d)
  if d.op is Ops.CONST and d.vmin > 0:
    return x - _floor_divide(x, d) * d
  rest = x.alu(Ops.TRUNCMOD, d)
  return rest + _crosses_zero(x, d).where(d, d.const_like(0))


def _shift_quotient(x: UOp, d: UOp) -> UOp | None:
  power = _power(d)
  return x >> power if power is not None and x.vmin >= 0 else None


def _mask_remainder(x: UOp, d: UOp) -> UOp | None:
  power = _power(d)
  return x & ((1 << power) - 1) if power is not None and x.vmin >= 0 else None


def _natural(s: Samples) -> UOp:
  return s.var("natural", 0, 100, dtypes.int32)


def _signed(s: Samples, slot: int) -> UOp:
  return s.value(dtypes.int8, slot)


def _unsigned(s: Samples, slot: int) -> UOp:
  return s.value(dtypes.uint8, slot)


def _truncated(op: Ops, x: UOp, d: int) -> UOp:
  return x.alu(op, x.const_like(d))


_x, _d = UPat.var("x", dtypes.ints), UPat.var("d")

CHEAPER_DIVISIONS = (
  rule("divide_by_power", UPat(Ops.TRUNCDIV, None, (_x, _d)), _shift_quotient,
       example=lambda s: _truncated(Ops.TRUNCDIV, _natural(s), 8),
       near_miss=lambda s: _truncated(Ops.TRUNCDIV, s.i, 8)),
  rule("remainder_by_power", UPat(Ops.TRUNCMOD, None, (_x, _d)), _mask_remainder,
       example=lambda s: _truncated(Ops.TRUNCMOD, _natural(s), 8),
       near_miss=lambda s: _truncated(Ops.TRUNCMOD, s.i, 8)),
)  # fmt: skip

# by the operation that the target lacks
FLOOR_DIVISIONS: dict[Ops, Rule] = {
  Ops.FLOORDIV:
    rule("floor_division", UPat(Ops.FLOORDIV, None, (_x, _d)), _floor_divide, grows=MADE_OF_OTHERS,
         example=(lambda s: s.i // 8, lambda s: _natural(s) // 7, lambda s: _signed(s, 0) // 7,
                  lambda s: _signed(s, 0) // _signed(s, 1), lambda s: _unsigned(s, 0) // _unsigned(s, 1)),
         near_miss=lambda s: _truncated(Ops.TRUNCDIV, s.i, 7)),
  Ops.FLOORMOD:
    rule("floor_remainder", UPat(Ops.FLOORMOD, None, (_x, _d)), _floor_remainder, grows=MADE_OF_OTHERS,
         example=(lambda s: s.i % 8, lambda s: _natural(s) % 7, lambda s: _signed(s, 0) % 7,
                  lambda s: _signed(s, 0) % _signed(s, 1), lambda s: _unsigned(s, 0) % _unsigned(s, 1)),
         near_miss=lambda s: _truncated(Ops.TRUNCMOD, s.i, 7)),
}  # fmt: skip


def division_rules(target: Target) -> list[Rule]:
  """The rules for the divisions that a target lacks, and for those that are cheaper otherwise."""
  missing = [row for op, row in FLOOR_DIVISIONS.items() if op not in target.native_ops]
  return [*CHEAPER_DIVISIONS, *missing]
