"""Where nodes come from: the line of the user's program, the module of his model, and what the step was about.

Marks are beside the graph: a node keeps its mark as it keeps a shape, so that it is no part of what makes two nodes
equal, of keys, or of text, and ends with the node. A node that is built twice has the mark of the first time. Marks are
made only while somebody wants them (`recording`): profiles, `DEBUG=2`, and what captures a function.

    node.__dict__.get(MARK)   # of a tensor-level node: its Mark, if it has one
    origins_of(call)          # of a CALL of a schedule: the Origins that it computes, that with most work first
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from tiny_uop.locks import shared_lock
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.node import Node
  from tiny_uop.uop import UOp

Phase = Literal["forward", "backward", "optimiser"]
MARK = "origins.mark"
"""What a node keeps its mark under."""
MOST_MARKS = 100_000
_ORIGINS = "origins.origins"


class Origin(NamedTuple):
  """Where a value was asked for."""

  file: str
  """The path of the user's file."""
  line: int
  function: str
  """The function that the line is in."""
  module: str
  """The module of the model: `model.layer2.0.conv1`; empty outside of modules."""
  phase: Phase
  """`backward` for what a gradient is made of, at the line that is differentiated; `optimiser` for its step."""


class Mark:
  """An Origin before anybody asks for it: a place in bytecode, whose line takes a search to find."""

  __slots__ = ("_origin", "code", "instruction", "module", "phase")

  _known: ClassVar[dict[tuple[int, int, str, Phase], Mark]] = {}  # by the id of the code, which the mark keeps

  def __init__(self, code: CodeType, instruction: int, module: str, phase: Phase) -> None:
    self.code, self.instruction, self.module, self.phase = code, instruction, module, phase
    self._origin: Origin | None = None

  @classmethod
  def at(cls, code: CodeType, instruction: int, module: str = "", phase: Phase = "forward") -> Mark:
    """The one mark of a place: they are compared by identity."""
    key = (id(code), instruction, module, phase)
    found = cls._known.get(key)
    if found is None:
      if len(cls._known) >= MOST_MARKS:  # of code that is made anew all the time
        cls._known.clear()
      found = cls._known[key] = Mark(code, instruction, module, phase)
    return found

  @property
  def origin(self) -> Origin:
    """With its line."""
    if self._origin is None:
      at = (line for start, stop, line in self.code.co_lines() if start <= self.instruction < stop)
      line = next(at, None) or self.code.co_firstlineno
      self._origin = Origin(self.code.co_filename, line, self.code.co_name, self.module, self.phase)
    return self._origin

  def of(self, phase: Phase) -> Mark:
    """The same place in another phase."""
    return self if phase == self.phase else Mark.at(self.code, self.instruction, self.module, phase)


class Recording:
  """Whether marks are made: how many want that. The one instance is `recording`."""

  __slots__ = ("_lock", "wanted")

  def __init__(self) -> None:
    self.wanted = 0
    self._lock = shared_lock()

  def change(self, by: int) -> None:
    """One more wants it, or one less."""
    with self._lock:
      self.wanted += by

  @contextmanager
  def on(self) -> Iterator[None]:
    """Marks are made in the block, by all threads."""
    self.change(1)
    try:
      yield
    finally:
      self.change(-1)


recording = Recording()


def set_mark(node: UOp, mark: Mark) -> None:
  """Give a node a mark, if it has none; one with a gradient of its own is its value, with the same mark."""
  node.__dict__.setdefault(MARK, mark)
  while node.op is Ops.CUSTOM_GRADIENT:
    node = node.src[0]
    node.__dict__.setdefault(MARK, mark)


def keep_mark(old: Node, new: Node) -> None:
  """A node that takes the place of another comes from where that did."""
  if (mark := old.__dict__.get(MARK)) is not None:
    new.__dict__.setdefault(MARK, mark)


def origins_of(call: Node) -> tuple[Origin, ...]:
  """What a CALL of a schedule computes, that with most work first; empty where that was not recorded."""
  found: tuple[Origin, ...] = call.__dict__.get(_ORIGINS, ())
  return found


def set_origins(call: Node, origins: tuple[Origin, ...]) -> None:
  """Say what a CALL computes. An equal one that ran before computed something else."""
  call.__dict__[_ORIGINS] = origins
