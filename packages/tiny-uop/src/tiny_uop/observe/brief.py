"""A node in one line of bounded length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.ops import Ops
from tiny_uop.text.formula import ATOM, formula

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

_DEEPEST = 8
_SOURCES = 6  # of a node with more, the first ones are shown


def brief(node: UOp, limit: int) -> str:
  """The node as a formula, as deep as fits in `limit` characters; of what lies deeper, the operation: `load…`."""
  text = found = _to_depth(node, 0)[1]
  for depth in range(1, _DEEPEST):
    if len(text) > limit:
      break
    found, text = text, _to_depth(node, depth)[1]
  found = text if len(text) <= limit else found
  found = found if len(found) <= limit else found[: limit - 1] + "…"
  return found if found.isprintable() else "".join([c if c.isprintable() else "\ufffd" for c in found])


def brief_change(before: UOp, after: UOp, limit: int) -> str:
  """`before → after`, each in at most `limit` characters; where they look the same, with what tells them apart."""
  left, right = brief(before, limit), brief(after, limit)
  if left == right:
    left, right = (_kind(before), _kind(after)) if _kind(before) != _kind(after) else (left, f"{right}, deeper")
  return f"{left} → {right}"


def _kind(node: UOp) -> str:
  return f"{node.op.name} {node.dtype.name} of {len(node.src)}"


def _to_depth(node: UOp, depth: int) -> tuple[int, str]:
  if node.src and depth == 0 and node.op is not Ops.RANGE:
    return ATOM, f"{node.op.name.lower()}…"
  if node.op is Ops.CONST and isinstance(node.arg, tuple):
    return ATOM, f"({', '.join(map(str, node.arg[:2]))}, …)"
  sources = [_to_depth(s, depth - 1) for s in node.src[:_SOURCES]] if node.op is not Ops.RANGE else []
  if len(node.src) > _SOURCES:
    sources.append((ATOM, "…"))
  return formula(node, sources)
