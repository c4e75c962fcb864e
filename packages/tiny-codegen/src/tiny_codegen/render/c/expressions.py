"""Elementwise ops on one lane as C expressions."""

from __future__ import annotations

import math

from tiny_codegen.kernel.expressions import cannot_overflow, guards, is_signed
from tiny_codegen.render.c.dialect import CDialect
from tiny_uop import DType, Ops, UOp, dtypes

_BITS = {Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^"}
_COMPARE = {Ops.CMPLT: "<", Ops.CMPNE: "!=", Ops.CMPEQ: "=="}
_BOOL = {**_BITS, **_COMPARE, Ops.ADD: "|", Ops.MUL: "&", Ops.MAX: "|"}
_INFIX = {**_BITS, Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.FDIV: "/", Ops.SHL: "<<"}


def suffix(dtype: DType) -> str:
  """What marks a literal or a function of this float type."""
  return "" if dtype.bits == 64 else "f"


def literal(dialect: CDialect, dtype: DType, value: bool | int | float) -> str:
  """A constant of a scalar type, exact."""
  scalar = dtype.scalar()
  if scalar.kind == "bool":
    return "1" if value else "0"
  if scalar.kind == "float":
    return _float_literal(dialect, scalar, float(value))
  number = int(value)
  if scalar.bits < 64 and scalar is not dtypes.index:
    if number == -(1 << 31):
      return "(-2147483647 - 1)"
    return f"{number}u" if scalar is dtypes.uint32 else f"({number})" if number < 0 else str(number)
  mark = dialect.long_suffix
  if number == -(1 << 63):
    return f"(-9223372036854775807{mark} - 1)"
  return f"{number}U{mark}" if scalar.kind == "uint" else f"({number}{mark})" if number < 0 else f"{number}{mark}"


def _float_literal(dialect: CDialect, dtype: DType, value: float) -> str:
  mark = suffix(dtype)
  if math.isnan(value):
    text = dialect.nan.format(mark)
  elif math.isinf(value):
    text = f"(-{dialect.infinity.format(mark)})" if value < 0 else dialect.infinity.format(mark)
  else:
    text = value.hex() + mark
  if dtype.bits < 32:
    return f"(({dialect.type_of(dtype)}){text})"
  return f"({text})" if text.startswith("-") else text


def _wrapping(dialect: CDialect, u: UOp, a: str, b: str) -> str:
  """Integer arithmetic that wraps: unsigned, since signed overflow is undefined in C, and not narrower than int, to
  which C promotes.
  """
  name, symbol = dialect.type_of(u.dtype), _INFIX[u.op]
  if u.op in _BITS or cannot_overflow(u) or _shifts_nothing_out(u):
    return f"({a} {symbol} {b})" if u.dtype.bits >= 32 else f"({name})({a} {symbol} {b})"
  wide = _unsigned(dialect, u.dtype)
  return f"({name})(({wide}){a} {symbol} ({wide}){b})"


def _unsigned(dialect: CDialect, dtype: DType) -> str:
  """The type in which arithmetic wraps."""
  return dialect.type_of(dtypes.uint64 if dtype.bits == 64 else dtypes.uint32)


def _shifts_nothing_out(u: UOp) -> bool:
  """Whether the bounds of a SHL's operands keep what it shifts within the type, and positive."""
  (low, high), most = (u.src[0].vmin, u.src[0].vmax), u.src[1].vmax
  return bool(
    u.op is Ops.SHL and low >= 0 and most < u.dtype.bits and int(high) << int(most) <= int(dtypes.max(u.dtype))
  )


def _divide(dialect: CDialect, u: UOp, a: str, b: str) -> str:
  name, check = dialect.type_of(u.dtype), guards(u)
  symbol = "/" if u.op is Ops.TRUNCDIV else "%"
  text = f"({name})({a} {symbol} {b})"
  if u.src[1].vmin == 0 == u.src[1].vmax:
    return "0"  # compilers object to a division by a literal zero
  if check.minus_one:
    negated = f"({name})(0 - ({_unsigned(dialect, u.dtype)}){a})" if u.op is Ops.TRUNCDIV else "0"
    text = f"({b} == -1 ? {negated} : {text})"
  return f"({b} == 0 ? 0 : {text})" if check.zero else text


def cast(dialect: CDialect, a: str, source: DType, target: DType) -> str:
  """CAST of one lane. Narrow integers go through int32, which wraps what is out of their range only."""
  if target.kind == "bool":
    return f"({a} != 0)"
  name = dialect.type_of(target)
  if source.kind == "float" and target.kind in ("int", "uint") and target.bits < 32:
    return f"({name})({dialect.type_of(dtypes.int32)}){a}"
  return f"({name}){a}"


def _bitcast(dialect: CDialect, u: UOp, a: str) -> str:
  source, target = u.src[0].dtype, u.dtype
  if source.bits != target.bits or source.count != target.count:
    raise NotImplementedError(f"{dialect.name} cannot bitcast {source} to {target}: lanes must have the same width")
  old, new = dialect.type_of(source), dialect.type_of(target)
  if source.kind == "bool" or target.kind == "bool":
    return cast(dialect, a, source, target)
  if source.kind in ("int", "uint") and target.kind in ("int", "uint"):
    return f"({new}){a}"
  return dialect.bitcast.format(old=old, new=new, value=a)


def _function(dialect: CDialect, u: UOp, *operands: str) -> str:
  narrow = dialect.through_float and u.dtype.bits < 32
  for op, name in dialect.functions:
    if op is u.op:
      passed = [f"({dialect.type_of(dtypes.float32)}){a}" if narrow else a for a in operands]
      text = f"{name.format(suffix(u.dtype))}({', '.join(passed)})"
      return f"({dialect.type_of(u.dtype)}){text}" if narrow else text
  raise NotImplementedError(f"{dialect.name} has no {u.op.name}: decompose it before rendering")


def _maximum(u: UOp, a: str, b: str) -> str:
  # a NaN in b makes the comparison false, which gives b
  return f"({a} > {b} || {a} != {a} ? {a} : {b})" if u.dtype.kind == "float" else f"({a} > {b} ? {a} : {b})"


def _binary(dialect: CDialect, u: UOp, a: str, b: str) -> str:
  kind = u.src[0].dtype.kind
  if kind == "bool":
    if u.op not in _BOOL:
      raise NotImplementedError(f"{dialect.name} has no {u.op.name} of bools")
    return f"({a} {_BOOL[u.op]} {b})"
  if u.op in _COMPARE:
    return f"({a} {_COMPARE[u.op]} {b})"
  if u.op is Ops.MAX:
    return _maximum(u, a, b)
  if kind == "float" and u.op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV):
    return f"({a} {_INFIX[u.op]} {b})"
  if kind != "float" and u.op in (Ops.TRUNCDIV, Ops.TRUNCMOD):
    return _divide(dialect, u, a, b)
  if kind != "float" and u.op is Ops.SHR:
    return f"({dialect.type_of(u.dtype)})({a} >> {b})"
  if kind != "float" and u.op in _INFIX and u.op is not Ops.FDIV:
    return _wrapping(dialect, u, a, b)
  raise NotImplementedError(f"{dialect.name} has no {u.op.name} of {u.src[0].dtype}: decompose it before rendering")


def expression(dialect: CDialect, u: UOp, operands: list[str]) -> str:
  """One lane of an elementwise node over one lane of its sources."""
  if u.op is Ops.CAST:
    return cast(dialect, operands[0], u.src[0].dtype, u.dtype)
  if u.op is Ops.BITCAST:
    return _bitcast(dialect, u, operands[0])
  if u.op is Ops.WHERE:
    return f"({operands[0]} ? {operands[1]} : {operands[2]})"
  if u.op is Ops.NEG:
    wraps = is_signed(u.dtype) or u.dtype.kind == "uint"
    zero = f"({dialect.type_of(u.dtype)})(0 - ({_unsigned(dialect, u.dtype)})" if wraps else "(-"
    return f"{zero}{operands[0]})"
  if len(operands) == 2:
    return _binary(dialect, u, *operands)
  if u.dtype.kind != "float":
    raise NotImplementedError(f"{dialect.name} has no {u.op.name} of {u.dtype}")
  return _function(dialect, u, *operands)
