"""What a `TinyJit` that captures has to hear of from the frontend: random draws, and reads that it must refuse."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiny_uop import UOp


class JitError(RuntimeError):
  """A `TinyJit` was used in a way in which a replay could not give what the function would give."""


class Recording:
  """What happened in the frontend during one capture."""

  def __init__(self) -> None:
    self.draws: list[tuple[UOp, Callable[[], bytes]]] = []
    """For each random draw, the HOST buffer with its key and counter, and what gives those of the next such draw."""


_active = threading.local()


def current() -> Recording | None:
  """The recording of the capture that runs in this thread, if one does."""
  recording: Recording | None = getattr(_active, "recording", None)
  return recording


@contextmanager
def recording() -> Iterator[Recording]:
  """For the block, `current()` is a new recording."""
  outer, made = current(), Recording()
  _active.recording = made
  try:
    yield made
  finally:
    _active.recording = outer


def record_draw(buffer: UOp, following: Callable[[], bytes]) -> None:
  """Tells a capture, if one runs, that `buffer` on HOST holds the key and counter of a random draw.

  `following()` makes and gives the bytes for the next draw like it.
  """
  if (active := current()) is not None:
    active.draws.append((buffer, following))


def check_readable(what: str) -> None:
  """Raises JitError while a capture runs: a value that Python looks at would be the same in every replay."""
  if current() is not None:
    raise JitError(
      f"{what} reads a value inside a function that TinyJit captures; replays would go on with the value of this call. "
      "Return the Tensor and read it outside"
    )
