"""The textual form of the IR: one node per line, sources first. `parse.py` reads it back to the identical object.

    tiny-uop 1
    %0 = VARIABLE index () arg=("x", 0, 15)
    %1 = CONST index () arg=4
    %2 = MUL index (%0, %1)

The first line is the version of the IR; the last one is the root. `arg=` and `tag=` are literals (`print_literal`) and
left out where None. Blank lines and those that start with `#` are comments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tiny_uop.args import ARG_TYPES, mistyped_field
from tiny_uop.dtype import DType
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

IR_VERSION = 1
"""Version of the IR and its text: see the README on when it goes up."""
HEADER = "tiny-uop"
# the limits of literals, which keep text from anywhere from exhausting stack or time
MAX_NESTING = 64
MAX_DIGITS = 1000
_INT_LIMIT = 10**MAX_DIGITS


def print_literal(value: Any, depth: int = 0) -> str:
  """An argument as text: numbers, True, False, None, "strings" as in JSON, (tuples,), @dtypes, Enum.MEMBER,
  Record(field=value).

  Raises TypeError for what does not parse back: anything else, classes that are not registered with `register_arg`,
  records with fields of other types than declared, and literals beyond the limits of the form.
  """
  if depth > MAX_NESTING:
    raise TypeError(f"an argument cannot nest deeper than {MAX_NESTING}")
  if value is None or isinstance(value, (bool, int)) and not isinstance(value, Enum):
    if value is not None and not -_INT_LIMIT < value < _INT_LIMIT:
      raise TypeError(f"an integer of more than {MAX_DIGITS} digits cannot stand in an argument")
    return str(value)
  if isinstance(value, float):
    return repr(value)  # the shortest text that reads back exactly; inf, -inf and nan are words of ours
  if isinstance(value, str):
    import json  # late: who only builds graphs prints none

    return json.dumps(value)
  if isinstance(value, tuple):
    inner = ", ".join([print_literal(v, depth + 1) for v in value])
    return f"({inner},)" if len(value) == 1 else f"({inner})"
  if isinstance(value, DType):
    return f"@{value.name}"
  if isinstance(value, Ops):
    return f"Ops.{value.name}"
  return _print_registered(value, depth)


def _print_registered(value: Any, depth: int) -> str:
  name = type(value).__name__
  if ARG_TYPES.get(name) is type(value):
    if isinstance(value, Enum):
      return f"{name}.{value.name}"
    if is_dataclass(value):
      if (mistake := mistyped_field(value)) is not None:
        raise TypeError(f"{value!r} cannot stand in an argument: {mistake}")
      inner = ", ".join([f"{f.name}={print_literal(getattr(value, f.name), depth + 1)}" for f in fields(value)])
      return f"{name}({inner})"
  legal = "a number, bool, str, None, DType, tuple, or an enum or frozen dataclass registered with register_arg"
  raise TypeError(f"{value!r} of type {name} cannot stand in an argument: use {legal}")


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
