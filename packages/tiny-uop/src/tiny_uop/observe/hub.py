"""Watching compilation: spans of work, attempts of rules and rewrites are told to observers, when there are any.

Settings choose the built-in observers (`DEBUG=6` prints, `TRACK_MATCH_STATS` counts, `VIZ` records); `observing` adds
others for a block. Like settings, observers are process-wide. Nothing here costs more than a look at three
settings while nobody watches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tiny_uop.context import DEBUG, TRACK_MATCH_STATS, VIZ
from tiny_uop.locks import shared_lock
from tiny_uop.observe.observer import Observer, Rewrite, Span, here
from tiny_uop.pattern import PatternMatcher

if TYPE_CHECKING:
  import os

  from tiny_uop.observe.recorder import Recorder
  from tiny_uop.uop import UOp


class _Unseen(Span):
  """What `span` gives while nobody watches: one object for all."""

  __slots__ = ()

  def gives(self, after: UOp) -> UOp:
    return after

  def __enter__(self) -> Span:
    return self

  def __exit__(self, *_: object) -> None:
    pass


_UNSEEN = _Unseen("", "", None, ())
_added: tuple[Observer, ...] = ()
_adding = shared_lock()


def active() -> bool:
  """Whether anyone watches."""
  return DEBUG.value >= 6 or TRACK_MATCH_STATS.value > 0 or VIZ.value != 0 or _added != ()


def observers() -> tuple[Observer, ...]:
  """Who watches now."""
  found = _added
  if DEBUG.value >= 6:
    from tiny_uop.observe.printer import PRINTER

    found += (PRINTER,)
  if TRACK_MATCH_STATS.value > 0:
    from tiny_uop.observe.stats import process_stats

    found += (process_stats(),)
  if VIZ.value != 0:
    from tiny_uop.observe.recorder import process_recorder

    found += (process_recorder(),)
  return found


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
  """The observer is told about all work of the process that begins inside the block."""
  global _added
  with _adding:
    _added += (observer,)
  try:
    yield
  finally:
    with _adding:
      _added = tuple([o for o in _added if o is not observer])


@contextmanager
def tracing(path: str | os.PathLike[str], limit: int = 256_000_000) -> Iterator[Recorder]:
  """Record the work that begins inside the block to the file `path` (compressed if it ends in `.gz`)."""
  from tiny_uop.observe.recorder import Recorder

  recorder = Recorder(path, limit)
  try:
    with observing(recorder):
      yield recorder
  finally:
    recorder.save()


def span(kind: str, name: str, before: UOp | None = None) -> Span:
  """A context manager around a piece of work; `work.gives(result)` inside it notes what came out. See Span."""
  return Span(kind, name, before, observers()) if active() else _UNSEEN


def observed(table: PatternMatcher, name: str) -> PatternMatcher:
  """The table, or while anyone watches, one that does the same and tells. `name` says in whose service it runs."""
  return ObservedTable(table, name, observers()) if active() else table


class ObservedTable(PatternMatcher):
  """A table whose `rewrite` tries the rules one by one, timed, and tells observers."""

  def __init__(self, table: PatternMatcher, name: str, watching: tuple[Observer, ...]) -> None:
    # not PatternMatcher's: the rules are checked and indexed already, in the table
    vars(self).update(vars(table))
    self.table, self.name, self.watching = table, name, watching

  def candidates(self, op: Any, dtype: Any) -> Any:
    return self.table.candidates(op, dtype)

  def rewrite(self, uop: UOp, ctx: Any = None) -> UOp | None:
    for rule, match in self.table.candidates(uop.op, uop.dtype):
      outer, here.inner = here.inner, 0.0
      started = perf_counter()
      done, new = started, None
      try:
        new = match(uop, ctx)
        done = perf_counter()
        for observer in self.watching:
          observer.tried(self.name, rule, done - started - here.inner, new is not None)
        if new is not None:
          step = Rewrite(here.span, self.name, rule, uop, new, started, done - started)
          for observer in self.watching:
            observer.rewrote(step)
          return new
      finally:
        # what observers take is not the time of the rule that this one runs inside of
        here.inner = outer + perf_counter() - started
    return None
