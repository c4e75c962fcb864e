"""Elementwise ops as LLVM IR. Each function emits instructions and gives the operand that holds the result."""

from __future__ import annotations

from collections.abc import Callable

from tiny_codegen.kernel.expressions import cannot_overflow, guards, is_signed
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.instructions import Instruction, fitting
from tiny_codegen.render.llvm.text import constant, suffix, value_type
from tiny_uop import DType, Ops, UOp, dtypes

_BITS = {Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor"}
_COMPARE = {Ops.CMPNE: "icmp ne", Ops.CMPEQ: "icmp eq"}
_INT = {**_BITS, Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul", Ops.SHL: "shl"}
# by the kind of the sources
_BINARY = {
  "bool": {**_BITS, **_COMPARE, Ops.CMPLT: "icmp ult", Ops.ADD: "or", Ops.MUL: "and", Ops.MAX: "or"},
  "int": {**_INT, **_COMPARE, Ops.CMPLT: "icmp slt", Ops.SHR: "ashr"},
  "uint": {**_INT, **_COMPARE, Ops.CMPLT: "icmp ult", Ops.SHR: "lshr"},
  "float": {
    Ops.ADD: "fadd", Ops.SUB: "fsub", Ops.MUL: "fmul", Ops.FDIV: "fdiv",
    Ops.CMPLT: "fcmp olt", Ops.CMPNE: "fcmp une", Ops.CMPEQ: "fcmp oeq",
  },
}  # fmt: skip
_BINARY["index"] = _BINARY["int"]
_MATH = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc"}


def _unsupported(u: UOp) -> NotImplementedError:
  types = ", ".join(str(s.dtype) for s in u.src)
  return NotImplementedError(
    f"LLVM has no instruction for {u.op.name}({types}) -> {u.dtype}: decompose it before rendering"
  )


def _divide(body: Function, u: UOp, a: str, b: str) -> str:
  """Integer division that cannot trap: x / 0 = x % 0 = 0, INT_MIN / -1 wraps. Bounds drop the guards that are not
  needed.
  """
  kind, dtype = value_type(u.dtype), u.dtype
  signed, quotient, unsafe_for = is_signed(dtype), u.op is Ops.TRUNCDIV, guards(u)
  flags = f"<{dtype.count} x i1>" if dtype.count > 1 else "i1"
  zero = constant(dtype, 0)
  by_zero = body.let(f"icmp eq {kind} {b}, {zero}") if unsafe_for.zero else None
  by_minus = body.let(f"icmp eq {kind} {b}, {constant(dtype, -1)}") if unsafe_for.minus_one else None
  for unsafe in (by_zero, by_minus):
    if unsafe is not None:
      b = body.let(f"select {flags} {unsafe}, {kind} {constant(dtype, 1)}, {kind} {b}")
  result = body.let(f"{'s' if signed else 'u'}{'div' if quotient else 'rem'} {kind} {a}, {b}")
  # a remainder by the substituted 1 is 0 already
  if by_minus is not None and quotient:
    negated = body.let(f"sub {kind} {zero}, {a}")
    result = body.let(f"select {flags} {by_minus}, {kind} {negated}, {kind} {result}")
  if by_zero is not None and quotient:
    result = body.let(f"select {flags} {by_zero}, {kind} {zero}, {kind} {result}")
  return result


def _maximum(body: Function, u: UOp, a: str, b: str) -> str:
  kind = value_type(u.dtype)
  if u.dtype.kind == "float":
    # |x| is never -0.0; which of two zeros another maximum is does not matter, and takes x86 two instructions more
    flags = "" if _is_magnitude(u) else "nsz"
    return body.call(f"llvm.maximum.{suffix(u.dtype)}", kind, (kind, a), (kind, b), flags=flags)
  name = "smax" if is_signed(u.dtype) else "umax"
  return body.call(f"llvm.{name}.{suffix(u.dtype)}", kind, (kind, a), (kind, b))


def _is_magnitude(u: UOp) -> bool:
  """Whether a MAX is of a number and its negative."""
  x, y = u.src
  return (x.op is Ops.NEG and x.src[0] is y) or (y.op is Ops.NEG and y.src[0] is x)


def _binary(body: Function, u: UOp) -> str:
  operands, source = u.src, u.src[0].dtype
  kind, (a, b) = value_type(source), (body.operand(s) for s in operands)
  if (name := _BINARY[source.kind].get(u.op)) is not None:
    return body.let(f"{name}{' nsw' if cannot_overflow(u) else ''} {kind} {a}, {b}")
  if u.op is Ops.MAX:
    return _maximum(body, u, a, b)
  if u.op in (Ops.TRUNCDIV, Ops.TRUNCMOD) and source.kind in ("int", "uint", "index"):
    return _divide(body, u, a, b)
  raise _unsupported(u)


def _unary(body: Function, u: UOp) -> str:
  kind, a = value_type(u.dtype), body.operand(u.src[0])
  if u.op is Ops.NEG and u.dtype.kind in ("int", "uint", "index"):
    return body.let(f"sub {kind} {constant(u.dtype, 0)}, {a}")
  if u.dtype.kind != "float" or (u.op is not Ops.NEG and u.op not in _MATH):
    raise _unsupported(u)
  if u.op is Ops.NEG:
    return body.let(f"fneg {kind} {a}")
  return body.call(f"llvm.{_MATH[u.op]}.{suffix(u.dtype)}", kind, (kind, a))


def _float_to_int(body: Function, a: str, source: DType, target: DType) -> str:
  """Toward zero. Out of range, LLVM's result is poison; frozen it is some value, the same for every user, and nothing
  traps.
  """
  # narrow types convert by way of int32, as hardware does, which also wraps what is only out of the narrow range
  width = target if target.bits >= 32 else dtypes.int32.vec(target.count)
  instruction = "fptosi" if is_signed(width) else "fptoui"
  made = body.let(f"{instruction} {value_type(source)} {a} to {value_type(width)}")
  made = body.let(f"freeze {value_type(width)} {made}")
  return made if width is target else body.let(f"trunc {value_type(width)} {made} to {value_type(target)}")


def convert(body: Function, a: str, source: DType, target: DType) -> str:
  """CAST of operand `a` between any two types of as many lanes."""
  old, new = value_type(source), value_type(target)
  if target.kind == "bool":
    compare = "fcmp une" if source.kind == "float" else "icmp ne"
    return a if source.kind == "bool" else body.let(f"{compare} {old} {a}, {constant(source, 0)}")
  if source.kind == "float" and target.kind == "float":
    if source.bits == target.bits and source is not target:  # half and bfloat16
      single = dtypes.float32.vec(source.count)
      return convert(body, convert(body, a, source, single), single, target)
    instruction = "fpext" if source.bits < target.bits else "fptrunc"
    if body.fence_halves and source.scalar() is dtypes.float32 and target.scalar() is dtypes.float16:
      a = body.call(f"llvm.arithmetic.fence.{suffix(source)}", old, (old, a))
    return a if source is target else body.let(f"{instruction} {old} {a} to {new}")
  if source.kind == "float":
    return _float_to_int(body, a, source, target)
  if target.kind == "float":
    return body.let(f"{'sitofp' if is_signed(source) else 'uitofp'} {old} {a} to {new}")
  if source.kind == "bool":
    return body.let(f"zext {old} {a} to {new}")
  if source.bits == target.bits:
    return a
  instruction = "trunc" if source.bits > target.bits else "sext" if is_signed(source) else "zext"
  return body.let(f"{instruction} {old} {a} to {new}")


def _bitcast(body: Function, u: UOp) -> str:
  source, target, a = u.src[0].dtype, u.dtype, body.operand(u.src[0])
  if source.itemsize != target.itemsize:
    raise _unsupported(u)
  if source.kind == "bool":  # a byte in memory, one bit here
    source, a = dtypes.uint8.vec(source.count), convert(body, a, source, dtypes.uint8.vec(source.count))
  if target.kind == "bool":
    byte = dtypes.uint8.vec(target.count)
    return convert(body, body.cast_bits(value_type(source), a, value_type(byte)), byte, target)
  return body.cast_bits(value_type(source), a, value_type(target))


def _where(body: Function, u: UOp) -> str:
  condition, kind = u.src[0], value_type(u.dtype)
  flag, yes, no = (body.operand(s) for s in u.src)
  return body.let(f"select {value_type(condition.dtype)} {flag}, {kind} {yes}, {kind} {no}")


def _fused(body: Function, u: UOp) -> str:
  kind = value_type(u.dtype)
  a, b, c = (body.operand(s) for s in u.src)
  if u.dtype.kind == "float":
    return body.call(f"llvm.fma.{suffix(u.dtype)}", kind, (kind, a), (kind, b), (kind, c))
  return body.let(f"add {kind} {body.let(f'mul {kind} {a}, {b}')}, {c}")


def _instruction(body: Function, u: UOp, found: Instruction) -> str:
  """The result of an intrinsic for vectors of one size: widened to a multiple of it, in pieces if there are several."""
  wide, kind = found.dtype, value_type(found.dtype)
  lanes = -(-u.dtype.count // wide.count) * wide.count
  joined, total = u.dtype.scalar().vec(lanes), "poison"
  operands = [body.part(body.operand(s), u.dtype, 0, lanes)[1] for s in u.src]
  for first in range(0, lanes, wide.count):
    piece = [o if lanes == wide.count else _piece(body, joined, o, wide, first) for o in operands]
    total_or_piece = body.call(found.name, kind, *((kind, p) for p in piece), *found.extra)
    total = total_or_piece if lanes == wide.count else _insert(body, joined, total, wide, total_or_piece, first)
  return body.first(total, joined, u.dtype.count)


def _piece(body: Function, dtype: DType, value: str, piece: DType, first: int) -> str:
  name = f"llvm.vector.extract.{suffix(piece)}.{suffix(dtype)}"
  return body.call(name, value_type(piece), (value_type(dtype), value), ("i64", str(first)))


def _insert(body: Function, dtype: DType, value: str, piece: DType, part: str, first: int) -> str:
  name, kind = f"llvm.vector.insert.{suffix(dtype)}.{suffix(piece)}", value_type(dtype)
  return body.call(name, kind, (kind, value), (value_type(piece), part), ("i64", str(first)))


_SPECIAL: dict[Ops, Callable[[Function, UOp], str]] = {
  Ops.CAST: lambda body, u: convert(body, body.operand(u.src[0]), u.src[0].dtype, u.dtype),
  Ops.BITCAST: _bitcast,
  Ops.WHERE: _where,
  Ops.MULACC: _fused,
}


def elementwise(body: Function, u: UOp) -> str:
  """The operand that holds an elementwise node's value. Raises NotImplementedError for ops that LLVM has no
  instruction for.
  """
  if (special := _SPECIAL.get(u.op)) is not None:
    return special(body, u)
  if (found := fitting(body.instructions, u.op, u.dtype)) is not None:
    return _instruction(body, u, found)
  return _binary(body, u) if len(u.src) == 2 else _unary(body, u)
