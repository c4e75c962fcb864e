"""Expressions as formulas for people to read: `p1[r0*32 + r1] + 1.0`. They do not parse back: see `text` for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tiny_uop.args import Accumulate
from tiny_uop.dtype import PtrDType
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

# a text with its precedence (as in Python): an operand of lower precedence than its operator gets parentheses
Formula = tuple[int, str]

INFIX: dict[Ops, tuple[int, str]] = {
  Ops.CMPLT: (1, "<"), Ops.CMPNE: (1, "!="), Ops.CMPEQ: (1, "=="), Ops.OR: (2, "|"), Ops.XOR: (3, "^"),
  Ops.AND: (4, "&"), Ops.SHL: (5, "<<"), Ops.SHR: (5, ">>"), Ops.ADD: (6, "+"), Ops.SUB: (6, "-"), Ops.MUL: (7, "*"),
  Ops.FDIV: (7, "/"), Ops.FLOORDIV: (7, "//"), Ops.FLOORMOD: (7, "%"),
}  # fmt: skip
ATOM = 9
_LIMIT = 20_000  # a formula repeats shared nodes, so its length can be exponential in theirs


def render_formula(uop: UOp) -> str:
  """An expression as an infix formula; parts that would make it too long are left out as `...`."""
  texts: dict[UOp, Formula] = {}
  for node in uop.toposort:
    level, text = formula(node, [texts[s] for s in node.src])
    texts[node] = (level, text) if len(text) <= _LIMIT else (ATOM, "...")
  return texts[uop][1]


def formula(node: UOp, sources: list[Formula]) -> Formula:
  """One node over the texts of its sources, of which some may be left out."""
  op = node.op
  if op in INFIX and len(sources) == 2:
    level, sign = INFIX[op]
    left, right = sources
    a = f"({left[1]})" if left[0] < level or (level == 1 and left[0] == 1) else left[1]
    b = f"({right[1]})" if right[0] <= level else right[1]
    return level, f"{a}{sign}{b}" if level == 7 else f"{a} {sign} {b}"
  texts = [text for _, text in sources]
  if (special := _SPECIAL.get(op)) is not None and (found := special(node, texts)) is not None:
    return ATOM, found or repr(node.arg)  # of a nameless node, which text from elsewhere may have
  inner = ", ".join(texts)
  extra = "" if node.arg is None else f", {node.arg}" if inner else str(node.arg)
  return ATOM, f"{op.name.lower()}({inner}{extra})"


def _index(_: UOp, texts: list[str]) -> str | None:
  if len(texts) == 2:
    return f"{texts[0]}[{texts[1]}]"
  return f"{texts[0]}[{texts[1]} if {texts[2]}]" if len(texts) == 3 else None


def _load(node: UOp, texts: list[str]) -> str | None:
  if not texts or node.src[0].op is not Ops.INDEX or not texts[0].endswith("]"):
    return None
  return texts[0] if len(texts) == 1 else f"{texts[0][:-1]} else {texts[1]}]"


_IN_PLACE = {Ops.ADD: "+=", Ops.MUL: "*=", Ops.MAX: "max=", Ops.AND: "&=", Ops.OR: "|=", Ops.XOR: "^="}


def _store(node: UOp, texts: list[str]) -> str | None:
  if len(texts) != 2:
    return None
  if not isinstance(node.arg, Accumulate):
    return f"{texts[0]} = {texts[1]}"
  sign = _IN_PLACE.get(node.arg.op, f"{node.arg.op.name.lower()}=")
  return f"{texts[0]} {'atomic ' if node.arg.atomic else ''}{sign} {texts[1]}"


def _reduce(node: UOp, texts: list[str]) -> str | None:
  if not (type(node.arg) is tuple and len(node.arg) == 2 and isinstance(node.arg[0], Ops) and texts):
    return None
  op, axes = node.arg
  name = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max"}.get(op, op.name.lower())
  over = ", ".join(texts[1:]) if len(texts) > 1 else f"axes {axes}"
  return f"{name}({texts[0]} for {over})"


def _end(_: UOp, texts: list[str]) -> str | None:
  return f"for {', '.join(texts[1:])}: {texts[0]}" if len(texts) > 1 else None


_SPECIAL: dict[Ops, Callable[[UOp, list[str]], str | None]] = {
  Ops.CONST: lambda node, texts: repr(node.arg) if isinstance(node.arg, str) else str(node.arg),
  Ops.VARIABLE: lambda node, texts: str(node.arg[0]) if type(node.arg) is tuple and node.arg else None,
  Ops.RANGE: lambda node, texts: f"r{node.arg[0]}" if type(node.arg) is tuple and node.arg else None,
  Ops.SPECIAL: lambda node, texts: str(node.arg),
  Ops.PARAM: lambda node, texts: f"p{node.arg}",
  Ops.ALLOC: lambda node, texts: f"m{node.arg}",
  Ops.BUFFER: lambda node, texts: f"b{node.arg[0]}" if type(node.arg) is tuple and node.arg else None,
  Ops.BIND: lambda node, texts: texts[0] if texts else None,
  Ops.AFTER: lambda node, texts: texts[0] if texts and isinstance(node.dtype, PtrDType) else None,
  Ops.CAST: lambda node, texts: f"{node.dtype}({', '.join(texts)})",
  Ops.BITCAST: lambda node, texts: f"bits_{node.dtype}({', '.join(texts)})",
  Ops.INDEX: _index,
  Ops.LOAD: _load,
  Ops.STORE: _store,
  Ops.REDUCE: _reduce,
  Ops.END: _end,
  Ops.VECTORIZE: lambda node, texts: f"<{', '.join(texts)}>",
}
