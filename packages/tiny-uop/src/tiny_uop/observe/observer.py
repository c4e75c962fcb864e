"""Who watches, and what is told: observers, spans of work, rewrites."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING

from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_uop.pattern import Rule
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
    self.parent = here.span
    here.span = self
    self.started = perf_counter()
    for observer in self.observers:
      observer.begin(self)
    return self

  def __exit__(self, *_: object) -> None:
    self.seconds = perf_counter() - self.started
    here.span = self.parent
    for observer in self.observers:
      observer.end(self)


class Here(threading.local):
  """Where a thread is: its innermost span, and the time that the rules inside the one being tried have taken."""

  span: Span | None = None
  inner: float = 0.0


here = Here()
