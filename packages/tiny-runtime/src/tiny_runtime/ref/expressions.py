"""Elementwise operations as Python expressions over the names of their sources.

The common cases are written out because they are several times faster than a call; everything else calls
`tiny_uop.exec_alu`, which defines the meaning.
"""

from __future__ import annotations

import math
from ctypes import c_float
from functools import partial
from typing import Any

from tiny_uop import DType, GroupOp, Ops, UOp, dtypes, truncate
from tiny_uop.evaluate import exec_alu

_INFIX = {
  Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^",
  Ops.CMPLT: "<", Ops.CMPNE: "!=", Ops.CMPEQ: "==",
}  # fmt: skip
_DIVISION = {Ops.FLOORDIV: "//", Ops.FLOORMOD: "%"}
_BOOL_INFIX = {Ops.ADD: "|", Ops.MUL: "&", Ops.MAX: "|"}


def rounded(dtype: DType, expression: str, names: dict[str, Any]) -> str:
  """`expression` rounded or wrapped to `dtype`. Adds what it calls to `names`."""
  if dtype.kind == "index" or dtype is dtypes.float64 or dtype.kind == "bool":
    return expression
  if dtype is dtypes.float32:
    names["c_float"] = c_float
    return f"c_float({expression}).value"
  if dtype.kind == "uint":
    return f"(({expression}) & {(1 << dtype.bits) - 1})"
  if dtype.kind == "int":
    half = 1 << (dtype.bits - 1)
    return f"((({expression}) + {half} & {2 * half - 1}) - {half})"
  names[f"to_{dtype.name}"] = partial(truncate, dtype)
  return f"to_{dtype.name}({expression})"


def constant(dtype: DType, value: Any, names: dict[str, Any]) -> str:
  """A CONST."""
  if isinstance(value, float) and not math.isfinite(value):
    names["inf"], names["nan"] = math.inf, math.nan
  return f"({value!r})"


def _general(op: Ops, dtype: DType, args: list[str], source: DType, names: dict[str, Any]) -> str:
  name = f"{op.name.lower()}_{dtype.name}"
  if op is Ops.BITCAST:
    name += f"_{source.name}"
  names[name] = partial(_call, op, dtype, source)
  return f"{name}({', '.join(args)})"


def _call(op: Ops, dtype: DType, source: DType, *args: Any) -> Any:
  return exec_alu(op, dtype, args, source)


def _cast(dtype: DType, source: DType, arg: str, names: dict[str, Any]) -> str:
  if dtypes.is_int(dtype) and source.kind != "float":
    # bool is an int to Python; adding 0 keeps it from being stored as True
    return rounded(dtype, f"{arg} + 0", names)
  if dtype.kind == "bool":
    return f"({arg} != 0)"
  if dtype.kind == "float" and source.kind == "float":
    return rounded(dtype, arg, names)
  return _general(Ops.CAST, dtype, [arg], source, names)


def expression(op: Ops, dtype: DType, args: list[str], source: DType, names: dict[str, Any]) -> str:
  """The value of elementwise `op` of result type `dtype`, where `source` is the type of the first argument."""
  if op is Ops.CAST:
    return _cast(dtype, source, args[0], names)
  if op is Ops.WHERE:
    return f"({args[1]} if {args[0]} else {args[2]})"
  if source.kind == "bool" and op in _BOOL_INFIX:
    return f"({args[0]} {_BOOL_INFIX[op]} {args[1]})"
  if op in _INFIX and not (dtype.kind == "bool" and op is Ops.SUB):
    value = f"({args[0]} {_INFIX[op]} {args[1]})"
    exact = op in GroupOp.Compare or op in (Ops.AND, Ops.OR, Ops.XOR)
    return value if exact else rounded(dtype, value, names)
  if op is Ops.MAX:
    return f"({args[0]} if {args[0]} >= {args[1]} or {args[0]} != {args[0]} else {args[1]})"
  if op in _DIVISION:
    return rounded(dtype, f"({args[0]} {_DIVISION[op]} {args[1]} if {args[1]} else 0)", names)
  return _general(op, dtype, args, source, names)


def identity(op: Ops, dtype: DType) -> Any:
  """What a reduction starts from."""
  if op is Ops.ADD:
    return truncate(dtype, 0)
  return truncate(dtype, 1) if op is Ops.MUL else dtypes.min(dtype)


def is_supported(u: UOp) -> bool:
  """Whether `expression` can write this elementwise node: scalars only."""
  return u.dtype.count == 1 and all(s.dtype.count == 1 for s in u.src)
