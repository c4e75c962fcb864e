"""The record of a run for `TinyJit`: random draws, reads of values, schedules; and a count of assignments."""

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from tiny_uop import UOp
from tiny_uop.locks import shared_lock
from tiny_uop.uop import bound_values_read


class JitError(RuntimeError):
  """A `TinyJit` was used in a way in which a replay could not give what the function would give."""


class Recording:
  """What happened in the frontend during one run of a function under TinyJit."""

  def __init__(self, refuse_reads: bool, keep: bool) -> None:
    self.refuse_reads = refuse_reads
    self.keep = keep
    """Whether what was computed in the run is read later though no tensor has it any more."""
    self.made: dict[UOp, None] = {}
    """The BUFFERs that came to life in the run and still have memory."""
    self.refused: JitError | None = None
    """The first read that was refused: the function may have caught the error."""
    self.draws: list[tuple[UOp, Callable[[], bytes]]] = []
    """For each random draw, the HOST buffer with its key and counter, and what gives those of the next such draw."""
    self.differentiated = False
    """Whether there was a `backward()`: it looks for tensors that require a gradient."""
    self.lines: dict[UOp, str] = {}
    """For each schedule that ran, the line of the program that asked for it."""
    self.before: Collection[UOp] = ()
    """Graphs of constants that lived before a run that will not be captured: the host may write them, as no part of the
    run. Such is the state that an optimiser begins with."""
    self.stays: Callable[[UOp], bool] | None = None
    """Of a BUFFER, whether replays find in it what it has now; None where nothing is to be made of that."""


class Busy:
  """How many functions are recorded or transformed in all threads: while it is 0, no thread has to look at its own."""

  count = 0
  _lock = shared_lock()

  @classmethod
  def change(cls, by: int) -> None:
    """One more, or one less."""
    with cls._lock:
      cls.count += by


class Writes:
  """Counts what a replay could miss: assignments that wait, and tensors that begin to stand for something else."""

  count = 0


_PACKAGES = {"tiny_tensor", "tiny_runtime", "tiny_sched", "tiny_uop"}
_active = threading.local()


def current() -> Recording | None:
  """The recording that runs in this thread, if one does."""
  recording: Recording | None = getattr(_active, "recording", None)
  return recording


@contextmanager
def recording(refuse_reads: bool = True, keep: bool = True) -> Iterator[Recording]:
  """For the block, `current()` is a new recording."""
  outer, made = current(), Recording(refuse_reads, keep)
  Busy.change(1)
  _active.recording = made
  try:
    yield made
  finally:
    _active.recording = outer
    Busy.change(-1)


def record_draw(buffer: UOp, following: Callable[[], bytes]) -> None:
  """Tells a recording, if one runs, that `buffer` on HOST holds the key and counter of a random draw.

  `following()` makes and gives the bytes for the next draw like it.
  """
  if (active := current()) is not None:
    active.draws.append((buffer, following))


def record_run(linear: UOp) -> None:
  """Tells a recording, if one runs, that the schedule `linear` runs now."""
  if (active := current()) is not None:
    active.lines[linear] = caller()


def record_backward() -> None:
  """Tells a recording, if one runs, that there is a `backward()`."""
  if (active := current()) is not None:
    active.differentiated = True


def note_write() -> None:
  """Says that a live tensor will have other contents, stands for another graph or requires a gradient or not, without a
  schedule that ran."""
  Writes.count += 1


def check_readable(what: str) -> None:
  """Raises JitError while a capture runs: a value that Python looks at would be the same in every replay."""
  if (active := current()) is None or not active.refuse_reads:
    return
  error = JitError(
    f"{what} at {caller()} reads a value inside a function that TinyJit captures; replays would go on with the value "
    "of this call. Return the Tensor and read it outside"
  )
  active.refused = active.refused or error
  raise error


def _check_bound(name: str) -> None:
  """Raises JitError while a capture runs: what Python does with the value of a variable would be done with that value
  in every replay."""
  if Busy.count and current() is not None:
    check_readable(f"taking the number that the variable {name!r} is bound to")


bound_values_read.append(_check_bound)


def caller() -> str:
  """The innermost line on the stack that is not of these packages, as "file:line"."""
  frame = sys._getframe(1)
  while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
    frame = frame.f_back
  return f"{frame.f_code.co_filename}:{frame.f_lineno}"
