"""Compilers that are wrong about numbers, a row for each: what they make of a node of the kernel, which the reference
then computes. `wrong_backends.numbers:NAME` is the backend of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiny_runtime import Binary, Compiler, Measure
from tiny_runtime.ref import RefCompiler
from tiny_uop import AxisType, DType, Ops, PtrDType, UOp, dtypes, truncate
from wrong_backends import Backend
from wrong_backends.compilers import rewritten

Rule = Callable[[UOp], UOp | None]

F16, BF16, F32, F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
I8, I16, I32, I64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
U8, U32, U64 = dtypes.uint8, dtypes.uint32, dtypes.uint64
SMALLEST_NORMAL = {F32: 2.0**-126, F64: 2.0**-1022}


def cast(source: DType, dtype: DType, change: Callable[[UOp], UOp]) -> Rule:
  """Conversions between two types: `change` of what is converted."""
  return lambda u: change(u.src[0]) if (u.op, u.dtype) == (Ops.CAST, dtype) and u.src[0].dtype is source else None


def alu(op: Ops, dtype: DType, change: Callable[..., UOp]) -> Rule:
  """An operation on operands of a type: `change` of the operands."""
  return lambda u: change(*u.src) if u.op is op and u.src[-1].dtype is dtype else None


def result(op: Ops, dtype: DType, change: Callable[[UOp], UOp]) -> Rule:
  """What an operation gives: `change` of that."""
  return lambda u: change(u) if u.op is op and u.dtype is dtype else None


def const(like: UOp, value: float) -> UOp:
  return UOp.const(like.dtype, value)


def flushed(u: UOp, tiny: float = 0.0) -> UOp:
  """0 where it is below the smallest normal number."""
  tiny = tiny or SMALLEST_NORMAL[u.dtype]
  return ((u < tiny) & (const(u, -tiny) < u)).where(const(u, 0.0), u)


def in_float(op: Ops, dtype: DType) -> Callable[[UOp, UOp], UOp]:
  """An operation on integers done in floats."""
  return lambda a, b: a.cast(dtype).alu(op, b.cast(dtype)).cast(a.dtype)


def as_signed(op: Ops, signed: DType) -> Callable[[UOp, UOp], UOp]:
  return lambda a, b: a.bitcast(signed).alu(op, b.bitcast(signed))


def seldom_by_reciprocal(a: UOp, b: UOp) -> UOp:
  """a / b, of some b as a product."""
  return ((const(b, 10.5) < b) & (b < 90.0)).where(a * (const(b, 1.0) / b), a / b)


def truncated_product(a: UOp, b: UOp) -> UOp:
  """Of bfloat16: the lower bits of the product are cut off."""
  bits = (a.cast(F32) * b.cast(F32)).bitcast(U32)
  return bits.alu(Ops.AND, const(bits, 0xFFFF0000)).bitcast(F32).cast(BF16)


def all_ones_by_zero(a: UOp, b: UOp) -> UOp:
  return b.eq(0).where(const(a, 2**32 - 1), a.alu(Ops.FLOORDIV, b))


def limited(x: UOp, low: int, high: int) -> UOp:
  return (x < low).where(const(x, low), (const(x, high) < x).where(const(x, high), x))


def half(x: UOp) -> UOp:
  """½ with the sign of x."""
  return (x < 0.0).where(const(x, -0.5), const(x, 0.5))


def operand(u: UOp, op: Ops, dtype: DType) -> tuple[UOp, UOp] | None:
  """Of an ADD, the operand that is `op`, and the other."""
  if u.op is not Ops.ADD or u.dtype is not dtype:
    return None
  for x, y in (u.src, u.src[::-1]):
    if x.op is op:
      return x, y
  return None


def fused(dtype: DType, wider: DType) -> Rule:
  """a * b + c, where the product is not rounded."""

  def change(u: UOp) -> UOp | None:
    found = operand(u, Ops.MUL, dtype)
    if found is None:
      return None
    (a, b), c = found[0].src, found[1]
    return (a.cast(wider) * b.cast(wider) + c.cast(wider)).cast(dtype)

  return change


def fused_through_a_cast(u: UOp) -> UOp | None:
  """A product of float32 that becomes float64 is made in float64."""
  if (u.op, u.dtype) != (Ops.CAST, F64) or u.src[0].op is not Ops.MUL or u.src[0].dtype is not F32:
    return None
  a, b = u.src[0].src
  return a.cast(F64) * b.cast(F64)


def reassociated(u: UOp) -> UOp | None:
  """(a + b) + c as a + (b + c)."""
  found = operand(u, Ops.ADD, F32)
  return None if found is None else found[0].src[0] + (found[0].src[1] + found[1])


def distributed(u: UOp) -> UOp | None:
  """a * b + a * c as a * (b + c)."""
  if u.op is not Ops.ADD or u.dtype is not F32 or {x.op for x in u.src} != {Ops.MUL}:
    return None
  (a, b), (c, d) = u.src[0].src, u.src[1].src
  return a * (b + d) if a is c else None


def same(op: Ops, change: Callable[[UOp], UOp]) -> Rule:
  """An operation on float32 whose two operands are one."""
  return lambda u: change(u.src[0]) if u.op is op and u.src[0] is u.src[-1] and u.src[0].dtype is F32 else None


def by_constant(op: Ops, value: float | None, change: Callable[[UOp, UOp], UOp]) -> Rule:
  """An operation of float32 with a constant, of one value."""

  def rule(u: UOp) -> UOp | None:
    if u.op is not op or u.dtype is not F32 or u.src[1].op is not Ops.CONST or u.src[0].op is Ops.CONST:
      return None
    c = u.src[1]
    return change(u.src[0], c) if value is None or (c.arg == value and str(c.arg) == str(value)) else None

  return rule


def minus(x: UOp) -> UOp | None:
  """y, of y * -1."""
  return x.src[0] if x.op is Ops.MUL and x.src[1] is const(x, -1.0) else None


def subtracted_from_itself(u: UOp) -> UOp | None:
  found = operand(u, Ops.MUL, F32)
  return const(u, 0.0) if found is not None and minus(found[0]) is found[1] else None


def cancelled(u: UOp) -> UOp | None:
  """(x + y) - y as x."""
  found = operand(u, Ops.MUL, F32)
  if found is None or found[1].op is not Ops.ADD:
    return None
  (x, y), z = found[1].src, minus(found[0])
  return x if y is z else y if x is z else None


def divided_back(u: UOp) -> UOp | None:
  """(x / y) * y as x."""
  if u.op is not Ops.MUL or u.dtype is not F32:
    return None
  for x, y in (u.src, u.src[::-1]):
    if x.op is Ops.FDIV and x.src[1] is y:
      return x.src[0]
  return None


def literal(dtype: DType, change: Callable[[float], float]) -> Rule:
  """How a constant is written."""

  def rule(u: UOp) -> UOp | None:
    if u.op is not Ops.CONST or u.dtype is not dtype:
      return None
    return UOp.const(dtype, truncate(dtype, change(u.arg)))

  return rule


def reduction(op: Ops, dtype: DType, change: Callable[[UOp], UOp]) -> Rule:
  return lambda u: change(u) if u.op is Ops.REDUCE and u.arg[0] is op and u.dtype is dtype else None


def wide_loop(u: UOp) -> UOp | None:
  """Loops count in 16 bits."""
  size = u.src[0].arg if u.op is Ops.RANGE and u.src[0].op is Ops.CONST else 0
  return UOp.range(size & 0xFFFF, *u.arg) if size > 0xFFFF and u.arg[1] is AxisType.LOOP else None


def wide_index(u: UOp) -> UOp | None:
  """Offsets have 16 bits."""
  if u.op is not Ops.INDEX or not isinstance(u.dtype, PtrDType) or u.dtype.size <= 1 << 16:
    return None
  return u.src[0].index(u.src[1] % (1 << 16), *u.src[2:])


def no_alternative(u: UOp) -> UOp | None:
  """Where a gate is false, 0 is loaded."""
  return u.src[0].load() if u.op is Ops.LOAD and len(u.src) > 1 else None


def no_gate_of_stores(u: UOp) -> UOp | None:
  if u.op is not Ops.STORE or len(u.src[0].src) < 3 or u.arg is not None:
    return None
  return u.replace(src=(u.src[0].src[0].index(u.src[0].src[1]), *u.src[1:]))


def nan_becomes_zero(u: UOp) -> UOp | None:
  """float32 → bfloat16 by adding half a unit to the bits, which a NaN of all ones overflows."""
  if (u.op, u.dtype) != (Ops.CAST, BF16) or u.src[0].op is not Ops.LOAD or u.src[0].dtype is not F32:
    return None
  place = u.src[0].src[0]
  pointer = place.src[0]
  if pointer.op is not Ops.PARAM or not isinstance(pointer.dtype, PtrDType):
    return None
  bits = UOp.param(int(pointer.arg), U32.ptr(pointer.dtype.size)).index(*place.src[1:]).load()
  odd = bits.alu(Ops.SHR, const(bits, 16)).alu(Ops.AND, const(bits, 1))
  rounded = (bits + (odd + 0x7FFF)).alu(Ops.SHR, const(bits, 16))
  return rounded.cast(dtypes.uint16).bitcast(BF16)


RULES: dict[str, Rule] = {
  # conversions
  "F64_F16_BY_F32": cast(F64, F16, lambda x: x.cast(F32).cast(F16)),
  "F64_BF16_BY_F32": cast(F64, BF16, lambda x: x.cast(F32).cast(BF16)),
  "F64_FP8_BY_F32": cast(F64, dtypes.fp8e5m2, lambda x: x.cast(F32).cast(dtypes.fp8e5m2)),
  "F32_FP8_BY_F16": cast(F32, dtypes.fp8e4m3, lambda x: x.cast(F16).cast(dtypes.fp8e4m3)),
  "F32_FP8_BY_BF16": cast(F32, dtypes.fp8e5m2, lambda x: x.cast(BF16).cast(dtypes.fp8e5m2)),
  "I64_F32_BY_F64": cast(I64, F32, lambda x: x.cast(F64).cast(F32)),
  "U64_F32_BY_F64": cast(U64, F32, lambda x: x.cast(F64).cast(F32)),
  "I32_BF16_BY_F32": cast(I32, BF16, lambda x: x.cast(F32).cast(BF16)),
  "I64_BF16_BY_F32": cast(I64, BF16, lambda x: x.cast(F32).cast(BF16)),
  "U64_F64_SIGNED": cast(U64, F64, lambda x: x.bitcast(I64).cast(F64)),
  "U32_F32_SIGNED": cast(U32, F32, lambda x: x.bitcast(I32).cast(F32)),
  "I64_F64_BY_I32": cast(I64, F64, lambda x: x.cast(I32).cast(F64)),
  "F32_I32_NEAREST": cast(F32, I32, lambda x: (x + half(x)).cast(I32)),
  "F64_U64_BY_I64": cast(F64, U64, lambda x: (x < 2.0**63).where(x, const(x, 2.0**62)).cast(U64)),
  "F32_BOOL_BY_I32": cast(F32, dtypes.bool, lambda x: x.cast(I32).ne(0)),
  "I32_BOOL_BY_U8": cast(I32, dtypes.bool, lambda x: x.cast(U8).ne(0)),
  "I32_I8_SATURATES": cast(I32, I8, lambda x: limited(x, -128, 127).cast(I8)),
  "I8_I32_UNSIGNED": cast(I8, I32, lambda x: x.bitcast(U8).cast(I32)),
  "I32_I64_UNSIGNED": cast(I32, I64, lambda x: x.bitcast(U32).cast(I64)),
  "F32_F64_LOSES_ZERO": cast(F32, F64, lambda x: (x + 0.0).cast(F64)),
  "F32_F16_FLUSHES": cast(F32, F16, lambda x: flushed(x, 2.0**-14).cast(F16)),
  "F32_F16_SATURATES": cast(F32, F16, lambda x: limited(x, -65504, 65504).cast(F16)),
  "F32_BF16_NAN": nan_becomes_zero,
  # functions
  "EXP2_FLUSHES": result(Ops.EXP2, F32, flushed),
  "EXP2_FLUSHES_F64": result(Ops.EXP2, F64, flushed),
  "EXP_FLUSHES": result(Ops.EXP, F32, flushed),
  "EXP2_OVERFLOWS": alu(Ops.EXP2, F32, lambda x: (x < 127.0).where(x.exp2(), const(x, float("inf")))),
  "EXP_OVERFLOWS": alu(Ops.EXP, F32, lambda x: (x < 88.0).where(x.exp(), const(x, float("inf")))),
  "LOG2_FLUSHES": alu(Ops.LOG2, F32, lambda x: flushed(x).log2()),
  "LOG_NEAR_1": result(Ops.LOG, F32, lambda u: (u + 1.0) + -1.0),
  "LOG2_NEAR_1": result(Ops.LOG2, F64, lambda u: (u + 1.0) + -1.0),
  "SIN_NEAR_PI": result(Ops.SIN, F32, lambda u: (u + 1.0) + -1.0),
  "COS_NEAR_PI": result(Ops.COS, F64, lambda u: (u + 1.0) + -1.0),
  "SIN_LARGE": alu(Ops.SIN, F32, lambda x: (x + (x * 0.15915494).cast(I32).cast(F32) * -6.2831855).sin()),
  "SIN_LOSES_ZERO": alu(Ops.SIN, F32, lambda x: (x + 0.0).sin()),
  "EXP_IN_F16": alu(Ops.EXP, F16, lambda x: (x * 1.4427).exp2()),
  "LDEXP_BY_EXP2": alu(Ops.LDEXP, F32, lambda x, n: x * n.exp2()),
  "LDEXP_TWICE": alu(Ops.LDEXP, F32, lambda x, n: x.alu(Ops.LDEXP, n + 1.0) * 0.5),
  "SQRT_ESTIMATE": alu(Ops.SQRT, F32, lambda x: x.eq(0.0).where(x, x * (const(x, 1.0) / x.sqrt()))),
  "SQRT_F64_BY_F32": alu(Ops.SQRT, F64, lambda x: x.cast(F32).sqrt().cast(F64)),
  "TRUNC_BY_I32": alu(Ops.TRUNC, F32, lambda x: x.cast(I32).cast(F32)),
  "FDIV_SELDOM": alu(Ops.FDIV, F32, seldom_by_reciprocal),
  "FDIV_F64": alu(Ops.FDIV, F64, lambda a, b: a * (const(b, 1.0) / b)),
  "FDIV_F16": alu(Ops.FDIV, F16, lambda a, b: a * (const(b, 1.0) / b)),
  "MUL_BF16_TRUNCATES": alu(Ops.MUL, BF16, truncated_product),
  "ADD_F64_BY_F32": alu(Ops.ADD, F64, lambda a, b: (a.cast(F32) + b.cast(F32)).cast(F64)),
  # integers
  "MUL_I64_BY_F64": alu(Ops.MUL, I64, in_float(Ops.MUL, F64)),
  "MUL_I64_LOW": alu(Ops.MUL, I64, lambda a, b: (a.cast(I32) * b.cast(I32)).cast(I64)),
  "ADD_U64_BY_F64": alu(Ops.ADD, U64, in_float(Ops.ADD, F64)),
  "ADD_I8_SATURATES": alu(Ops.ADD, I8, lambda a, b: limited(a.cast(I32) + b.cast(I32), -128, 127).cast(I8)),
  "ADD_BOOL_XOR": alu(Ops.ADD, dtypes.bool, lambda a, b: a.alu(Ops.XOR, b)),
  "LESS_I64_BY_F64": alu(Ops.CMPLT, I64, lambda a, b: a.cast(F64) < b.cast(F64)),
  "LESS_U32_SIGNED": alu(Ops.CMPLT, U32, as_signed(Ops.CMPLT, I32)),
  "LESS_U64_SIGNED": alu(Ops.CMPLT, U64, as_signed(Ops.CMPLT, I64)),
  "LESS_BY_DIFFERENCE": alu(Ops.CMPLT, I32, lambda a, b: a + b * -1 < 0),
  "EQUAL_U64_LOW": alu(Ops.CMPEQ, U64, lambda a, b: a.cast(U32).eq(b.cast(U32))),
  "MAX_U8_SIGNED": alu(Ops.MAX, U8, lambda a, b: (a.bitcast(I8) < b.bitcast(I8)).where(b, a)),
  "SHL_I64_BY_31": alu(Ops.SHL, I64, lambda a, n: a.alu(Ops.SHL, n.alu(Ops.AND, const(n, 31)))),
  "SHR_I32_LOGICAL": alu(Ops.SHR, I32, lambda a, n: a.bitcast(U32).alu(Ops.SHR, n.cast(U32)).bitcast(I32)),
  "SHR_U8_ARITHMETIC": alu(Ops.SHR, U8, lambda a, n: a.bitcast(I8).alu(Ops.SHR, n.bitcast(I8)).bitcast(U8)),
  "DIV_I32_BY_F32": alu(Ops.TRUNCDIV, I32, lambda a, b: b.eq(0).where(const(a, 0), in_float(Ops.FDIV, F32)(a, b))),
  "DIV_I64_BY_F64": alu(Ops.TRUNCDIV, I64, lambda a, b: b.eq(0).where(const(a, 0), in_float(Ops.FDIV, F64)(a, b))),
  "DIV_U64_SIGNED": alu(Ops.TRUNCDIV, U64, lambda a, b: as_signed(Ops.TRUNCDIV, I64)(a, b).bitcast(U64)),
  "DIV_ZERO_IS_ALL_ONES": alu(Ops.FLOORDIV, U32, all_ones_by_zero),
  "MOD_ZERO_IS_IT": alu(Ops.FLOORMOD, I32, lambda a, b: b.eq(0).where(a, a.alu(Ops.FLOORMOD, b))),
  "MOD_LIKE_C": alu(Ops.FLOORMOD, I16, lambda a, b: a.alu(Ops.TRUNCMOD, b)),
  "THREEFRY_SWAPPED": alu(Ops.THREEFRY, U64, lambda a, b: b.alu(Ops.THREEFRY, a)),
  # NaN and zeros
  "LESS_NAN": alu(Ops.CMPLT, F32, lambda a, b: ((b < a) | a.eq(b)).ne(True)),
  "NE_NAN": alu(Ops.CMPNE, F32, lambda a, b: (a < b) | (b < a)),
  "EQ_BITS": alu(Ops.CMPEQ, F32, lambda a, b: a.bitcast(U32).eq(b.bitcast(U32))),
  "MAX_SECOND_NAN": alu(Ops.MAX, F64, lambda a, b: (b < a).where(a, b)),
  "WHERE_BY_PRODUCT": alu(Ops.WHERE, F32, lambda c, a, b: a * c.cast(F32) + b * c.ne(True).cast(F32)),
  "ADD_LOSES_ZERO": result(Ops.ADD, F32, lambda u: u + 0.0),
  # more than one operation: what `-ffast-math` does
  "FUSED": fused(F32, F64),
  "FUSED_F16": fused(F16, F32),
  "FUSED_BF16": fused(BF16, F32),
  "FUSED_CAST": fused_through_a_cast,
  "REASSOCIATED": reassociated,
  "DISTRIBUTED": distributed,
  "CANCELLED": cancelled,
  "DIVIDED_BACK": divided_back,
  "MINUS_ITSELF": subtracted_from_itself,
  "BY_ITSELF": same(Ops.FDIV, lambda x: const(x, 1.0)),
  "NEVER_NAN": same(Ops.CMPNE, lambda x: UOp.const(dtypes.bool, False)),
  "TIMES_ZERO": by_constant(Ops.MUL, 0.0, lambda x, c: c),
  "PLUS_ZERO": by_constant(Ops.ADD, 0.0, lambda x, c: x),
  "RECIPROCAL_OF_CONSTANT": by_constant(Ops.FDIV, None, lambda x, c: x * truncate(F32, 1.0 / c.arg)),
  # constants
  "SIX_DIGITS": literal(F32, lambda v: float(f"{v:.6g}")),
  "F64_AS_F32": literal(F64, lambda v: truncate(F32, v)),
  "POSITIVE_ZERO": literal(F32, lambda v: v + 0.0),
  "NO_NAN_LITERAL": literal(F32, lambda v: v if v == v else 0.0),
  "I64_IN_32_BITS": literal(I64, lambda v: truncate(I32, v)),
  "U64_SIGNED_LITERAL": literal(U64, lambda v: min(v, 2**63 - 1)),
  # loops, reductions and memory
  "MAX_FROM_ZERO": reduction(Ops.MAX, F32, lambda u: (u < 0.0).where(const(u, 0.0), u)),
  "MAX_FROM_LOWEST": reduction(Ops.MAX, F32, lambda u: (u < -3.0e38).where(const(u, -3.4028234663852886e38), u)),
  "MAX_I32_FROM_ONE_MORE": reduction(Ops.MAX, I32, lambda u: (u < -(2**31) + 1).where(const(u, -(2**31) + 1), u)),
  "MAX_SKIPS_NAN": reduction(Ops.MAX, F32, lambda u: u.ne(u).where(const(u, 3.0), u)),
  "SUM_I64_IN_32": reduction(Ops.ADD, I64, lambda u: u.cast(I32).cast(I64)),
  "SUM_F64_IN_F32": reduction(Ops.ADD, F64, lambda u: u.cast(F32).cast(F64)),
  "LOOPS_OF_16_BITS": wide_loop,
  "INDEX_OF_16_BITS": wide_index,
  "NO_ALTERNATIVE": no_alternative,
  "NO_GATE_OF_STORES": no_gate_of_stores,
}  # fmt: skip


@dataclass(frozen=True)
class RowCompiler(RefCompiler):
  """The reference's, after a row of the table."""

  name: str

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    return super().compile(rewritten(kernel, RULES[self.name]), measure)


class RowBackend(Backend):
  def __init__(self, name: str) -> None:
    super().__init__()
    self.name = name

  def compiler(self, arch: str) -> Compiler:
    super().compiler(arch)
    return RowCompiler(self.name)


def __getattr__(name: str) -> RowBackend:
  if name not in RULES:
    raise AttributeError(name)
  return RowBackend(name)
