"""Nodes and rewrites in lines of bounded length; with DEBUG=6 each rewrite as a line, to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tiny_uop.context import DEBUG_KERNELS, debugs
from tiny_uop.locks import shared_lock
from tiny_uop.observe.observer import Observer, Rewrite, Span
from tiny_uop.ops import Ops
from tiny_uop.text.formula import ATOM, formula

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

SIDE = 52
"""Characters for a node; so a line has at most 160."""

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
    before_kind, after_kind = _outline(before), _outline(after)
    left, right = (before_kind, after_kind) if before_kind != after_kind else (left, f"{right}, deeper")
  return f"{left} → {right}"


def _outline(node: UOp) -> str:
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


class Printer(Observer):
  """Prints each rewrite, under a heading for each pass that has any."""

  def __init__(self) -> None:
    self._heading = ""
    self._lock = shared_lock()

  def rewrote(self, step: Rewrite) -> None:
    if not _wanted(step.span):
      return
    heading, depth = _place(step.span)
    inset = "  " * depth
    change = brief_change(step.before, step.after, SIDE)
    text = f"rewrite  {inset + step.table:<14.14} {step.rule.name:<26.26} {change}\n"
    with self._lock:
      if heading != self._heading:
        self._heading = heading
        text = f"--- {heading}: rewrites\n{text}"
      sys.stderr.write(text)


def _place(span: Span | None) -> tuple[str, int]:
  """What a rewrite is part of, in words, and how many tables it is inside of."""
  names: list[str] = []
  tables = 0
  while span is not None:
    if span.kind == "table":
      tables += 1
    else:
      names.append(span.name)
    span = span.parent
  return ": ".join(dict.fromkeys(reversed(names))) or "no pass", max(tables - 1, 0)


def _wanted(span: Span | None) -> bool:
  """Whether rewrites in a span are to be printed: those of a kernel whose name DEBUG_KERNELS has."""
  if not DEBUG_KERNELS.value:
    return True
  while span is not None and span.kind != "kernel":
    span = span.parent
  return span is not None and debugs(span.name, 6)


PRINTER = Printer()
