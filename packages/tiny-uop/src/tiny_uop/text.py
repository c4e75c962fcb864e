"""The textual form of the IR: one node per line, sources first. `parse.py` reads it back to the identical object.

    tiny-uop 1
    %0 = VARIABLE index () arg=("x", 0, 15)
    %1 = CONST index () arg=4
    %2 = MUL index (%0, %1)

The first line is the version of the IR; the last one is the root. `arg=` and `tag=` are literals (`print_literal`) and
left out where None. Blank lines and those that start with `#` are comments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tiny_uop.args import ARG_TYPES
from tiny_uop.dtype import DType
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

IR_VERSION = 1
HEADER = "tiny-uop"


def print_literal(value: Any) -> str:
  """An argument as text: numbers, True, False, None, "strings" as in JSON, (tuples,), @dtypes, Enum.MEMBER,
  Record(field=value).

  Raises TypeError for anything else, and for classes that are not registered with `register_arg`.
  """
  if value is None or isinstance(value, (bool, int)) and not isinstance(value, Enum):
    return str(value)
  if isinstance(value, float):
    return repr(value)  # the shortest text that reads back exactly; inf, -inf and nan are words of ours
  if isinstance(value, str):
    return json.dumps(value)
  if isinstance(value, tuple):
    inner = ", ".join([print_literal(v) for v in value])
    return f"({inner},)" if len(value) == 1 else f"({inner})"
  if isinstance(value, DType):
    return f"@{value.name}"
  name = type(value).__name__
  if isinstance(value, Ops):
    return f"Ops.{value.name}"
  if ARG_TYPES.get(name) is type(value):
    if isinstance(value, Enum):
      return f"{name}.{value.name}"
    if is_dataclass(value):
      return f"{name}({', '.join(f'{f.name}={print_literal(getattr(value, f.name))}' for f in fields(value))})"
  raise TypeError(
    f"{value!r} of type {name} cannot stand in an argument: use a number, bool, str, None, DType, tuple, "
    "or an enum or frozen dataclass registered with tiny_uop.register_arg"
  )


def print_node(node: UOp, number: Mapping[UOp, int]) -> str:
  """The line of one node; `number` has those of the node and of its sources."""
  sources = ", ".join([f"%{number[s]}" for s in node.src])
  line = f"%{number[node]} = {node.op.name} {node.dtype.name} ({sources})"
  if node.arg is not None:
    line += f" arg={print_literal(node.arg)}"
  if node.tag is not None:
    line += f" tag={print_literal(node.tag)}"
  return line


def print_uop(uop: UOp) -> str:
  """The graph under `uop` as text; `parse_uop` gives back the identical object."""
  lines = [f"{HEADER} {IR_VERSION}"]
  number: dict[UOp, int] = {}
  for node in uop.toposort:
    number[node] = len(number)
    lines.append(print_node(node, number))
  return "\n".join(lines) + "\n"


# precedence (as in Python) and sign of the operations that have one
_INFIX: dict[Ops, tuple[int, str]] = {
  Ops.CMPLT: (1, "<"), Ops.CMPNE: (1, "!="), Ops.CMPEQ: (1, "=="), Ops.OR: (2, "|"), Ops.XOR: (3, "^"), Ops.AND: (4,
  "&"),
  Ops.SHL: (5, "<<"), Ops.SHR: (5, ">>"), Ops.ADD: (6, "+"), Ops.SUB: (6, "-"), Ops.MUL: (7, "*"), Ops.FDIV: (7, "/"),
  Ops.FLOORDIV: (7, "//"), Ops.FLOORMOD: (7, "%"),
}  # fmt: skip
_ATOM = 9
_FORMULA_LIMIT = 20_000  # a formula repeats shared nodes, so its length can be exponential in theirs


def render_formula(uop: UOp) -> str:
  """An expression as an infix formula for people to read; parts that would make it too long are left out as `...`."""
  texts: dict[UOp, tuple[int, str]] = {}
  for node in uop.toposort:
    level, text = _formula(node, [texts[s] for s in node.src])
    texts[node] = (level, text) if len(text) <= _FORMULA_LIMIT else (_ATOM, "...")
  return texts[uop][1]


def _formula(node: UOp, sources: list[tuple[int, str]]) -> tuple[int, str]:
  op = node.op
  if op is Ops.CONST:
    return _ATOM, str(node.arg)
  if op is Ops.VARIABLE:
    return _ATOM, str(node.arg[0])
  if op is Ops.RANGE:
    return _ATOM, f"r{node.arg[0]}"
  if op is Ops.SPECIAL:
    return _ATOM, str(node.arg)
  if op is Ops.BIND:
    return _ATOM, sources[0][1]
  if op in _INFIX and len(sources) == 2:
    level, sign = _INFIX[op]
    left, right = sources
    a = f"({left[1]})" if left[0] < level or (level == 1 and left[0] == 1) else left[1]
    b = f"({right[1]})" if right[0] <= level else right[1]
    return level, f"{a}{sign}{b}" if level == 7 else f"{a} {sign} {b}"
  inner = ", ".join([text for _, text in sources])
  if op is Ops.CAST:
    return _ATOM, f"{node.dtype}({inner})"
  if op is Ops.BITCAST:
    return _ATOM, f"bits_{node.dtype}({inner})"
  extra = "" if node.arg is None else f", {node.arg}" if inner else str(node.arg)
  return _ATOM, f"{op.name.lower()}({inner}{extra})"
