"""DEBUG=6: a line per rewrite, to stderr."""

from __future__ import annotations

import sys

from tiny_uop.locks import shared_lock
from tiny_uop.observe.brief import brief_change
from tiny_uop.observe.observer import Observer, Rewrite, Span

SIDE = 52
"""Characters for a node; so a line has at most 160."""


class Printer(Observer):
  """Prints each rewrite, under a heading for each pass that has any."""

  def __init__(self) -> None:
    self._heading = ""
    self._lock = shared_lock()

  def rewrote(self, step: Rewrite) -> None:
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


PRINTER = Printer()
