"""Colours, for terminals only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TextIO

from tiny_uop.context import NO_COLOR


@dataclass(frozen=True)
class Style:
  """Marks text with colours if `colour` says so, else leaves it alone."""

  colour: bool = False

  def _mark(self, code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

  def bold(self, text: str) -> str:
    """Headings."""
    return self._mark("1", text)

  def warn(self, text: str) -> str:
    """What the reader should know first."""
    return self._mark("33", text)

  def difference(self, kind: Literal[" ", "-", "+"], text: str) -> str:
    """A line of a diff: removed ones red, added ones green."""
    return self._mark({"-": "31", "+": "32", " ": ""}[kind], text) if kind != " " else text


def style_for(file: TextIO, when: str = "auto") -> Style:
  """`when` is `always`, `never`, or `auto`: on a terminal, unless NO_COLOR is set (see no-color.org)."""
  return Style(when == "always" or (when == "auto" and file.isatty() and not NO_COLOR))
