"""Watching compilation: spans of work, attempts of rules and rewrites are told to observers, when there are any.

Settings choose the built-in observers (`DEBUG=6` prints, `TRACK_MATCH_STATS` counts, `VIZ=-1` records); `observing`
adds others for a block. Like settings, observers are process-wide. Nothing here costs more than a look at three
settings while nobody watches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tiny_uop.context import DEBUG, TRACK_MATCH_STATS, VIZ
from tiny_uop.locks import shared_lock
from tiny_uop.pattern import PatternMatcher, Rule
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


class Observer:
  """What is told about the work. Each method does nothing here: override those that you want.

  They are called on the thread that does the work, possibly on several at once. They must not raise.
  """

  def begin(self, span: Span) -> None:
    """A piece of work starts; `span.after` is not known yet."""

  def end(self, span: Span) -> None:
    """It is done, or has raised (then `span.after` is None)."""

  def tried(self, table: str, rule: Rule, seconds: float, matched: bool) -> None:
    """A rule was tried on a node. `seconds` leaves out what rules inside it took."""

  def rewrote(self, step: Rewrite) -> None:
    """A rule has replaced a node."""


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
  """One rule applied to one node: `before` became `after`, both at the head of their graphs."""

  span: Span | None
  """The innermost work that it is part of."""
  table: str
  rule: Rule
  before: UOp
  after: UOp
  started: float
  """As `time.perf_counter` has it, as all times here."""
  seconds: float
  """With what rules inside it took."""


class Span:
  """A named piece of work from one graph to another: `with span("pass", "gates", root) as work: ...`.

  `kind` is `schedule`, `kernel` (a kernel through the passes), `compile` (all that a device's compiler does), `pass`
  (a step of one of these), `table` (one `graph_rewrite`), or a word of your own.
  """

  __slots__ = ("after", "before", "kind", "name", "observers", "parent", "seconds", "started")
  after: UOp | None
  parent: Span | None

  def __init__(self, kind: str, name: str, before: UOp | None, observers: tuple[Observer, ...]) -> None:
    self.kind, self.name, self.before, self.observers = kind, name, before, observers
    self.after = self.parent = None
    self.started = self.seconds = 0.0

  def gives(self, after: UOp) -> UOp:
    """Note the result, and hand it on."""
    self.after = after
    return after

  def __enter__(self) -> Span:
    self.parent = _here.span
    _here.span = self
    self.started = perf_counter()
    for observer in self.observers:
      observer.begin(self)
    return self

  def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
  ) -> None:
    self.seconds = perf_counter() - self.started
    _here.span = self.parent
    for observer in self.observers:
      observer.end(self)


class _Unseen(Span):
  """What `span` gives while nobody watches: one object for all."""

  __slots__ = ()

  def gives(self, after: UOp) -> UOp:
    return after

  def __enter__(self) -> Span:
    return self

  def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
  ) -> None:
    pass


class _Here(threading.local):
  """Where a thread is: its innermost span, and the time that the rules inside the one being tried have taken."""

  span: Span | None = None
  inner: float = 0.0


_here = _Here()
_UNSEEN = _Unseen("", "", None, ())
_added: tuple[Observer, ...] = ()
_adding = shared_lock()


def active() -> bool:
  """Whether anyone watches."""
  return DEBUG.value >= 6 or TRACK_MATCH_STATS.value > 0 or VIZ.value < 0 or _added != ()


def observers() -> tuple[Observer, ...]:
  """Who watches now."""
  found = _added
  if DEBUG.value >= 6:
    from tiny_uop.observe.printer import PRINTER

    found += (PRINTER,)
  if TRACK_MATCH_STATS.value > 0:
    from tiny_uop.observe.stats import process_stats

    found += (process_stats(),)
  if VIZ.value < 0:
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

  def candidates(self, op: Any) -> Any:
    return self.table.candidates(op)

  def rewrite(self, uop: UOp, ctx: Any = None) -> UOp | None:
    for rule, match in self.table.candidates(uop.op):
      outer, _here.inner = _here.inner, 0.0
      started = perf_counter()
      done, new = started, None
      try:
        new = match(uop, ctx)
        done = perf_counter()
        for observer in self.watching:
          observer.tried(self.name, rule, done - started - _here.inner, new is not None)
        if new is not None:
          step = Rewrite(_here.span, self.name, rule, uop, new, started, done - started)
          for observer in self.watching:
            observer.rewrote(step)
          return new
      finally:
        # what observers take is not the time of the rule that this one runs inside of
        _here.inner = outer + perf_counter() - started
    return None
