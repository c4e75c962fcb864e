"""Shrinks a random program that differs to one that is as short as shows a difference of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar


class Lines(Protocol):
  """What is shrunk: a frozen dataclass with lines of Python among its fields."""

  __dataclass_fields__: ClassVar[dict[str, Any]]

  @property
  def lines(self) -> tuple[str, ...]: ...


P = TypeVar("P", bound=Lines)


def kind_of(text: str | None) -> str | None:
  """What the words of a difference have in common with those of a shorter program: the name of an exception, "value",
  or None if there is no difference."""
  if text is None:
    return None
  first = text.split(maxsplit=1)[0]
  return first if first.endswith(("Error", "Broken", "Exception")) else "value"


def shrunk(
  program: P,
  difference: Callable[[P], str | None],
  simpler: Callable[[P], Iterator[P]],
  kind_of: Callable[[str | None], str | None] = kind_of,
) -> tuple[P, str]:
  """A program of which nothing `simpler` differs in the same way, and its difference in words. Programs that cannot be
  carried out do not count. Each is tried once."""
  text = difference(program)
  assert text is not None
  kind, tried = kind_of(text), {program}

  def holds(shorter: P) -> str | None:
    if shorter in tried:
      return None
    tried.add(shorter)
    try:
      found = difference(shorter)
    except Exception:
      return None
    return found if kind_of(found) == kind else None

  again = True
  while again:
    again = False
    for shorter in simpler(program):
      if (found := holds(shorter)) is not None:
        program, text, again = shorter, found, True
        break
  return program, text


def without_a_line(program: P) -> Iterator[P]:
  """The programs with one line less, the last first."""
  for i in reversed(range(len(program.lines))):
    yield replace(program, lines=program.lines[:i] + program.lines[i + 1 :])
