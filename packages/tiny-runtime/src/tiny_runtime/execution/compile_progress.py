"""What a terminal shows while kernels are compiled, from one second on: `compiling 41/87 kernels · reduce_64x56x56` and
a bar, in one line on stderr that is gone when all is done, or has failed.

A thread that sleeps for that second shows the line, so that one kernel that takes long is seen as well; tqdm is
imported no sooner.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tiny_runtime.compile_cache import kernel_name
from tiny_runtime.settings import PROGRESS
from tiny_uop import UOp
from tiny_uop.context import DEBUG
from tiny_uop.locks import shared_lock, undivided

PATIENCE = 1.0  # seconds
FORMAT = "compiling {n_fmt}/{total_fmt} kernels · {desc} |{bar:24}|"


@contextmanager
def compiling(kernels: Sequence[UOp]) -> Iterator[Callable[[UOp], None]]:
  """While the block compiles these kernels, it tells the function it gets of each that it comes to, these or others."""
  if not kernels or not PROGRESS or DEBUG >= 1 or sys.stderr is None or not sys.stderr.isatty():
    yield lambda kernel: None
    return
  line = _Line(kernels)
  timer = threading.Timer(PATIENCE, line.show)
  timer.daemon = True
  timer.start()
  try:
    yield line.begin
  finally:
    timer.cancel()
    line.close()


class _Line:
  """The line, on its way: how many kernels are done, and which one is next."""

  def __init__(self, kernels: Sequence[UOp]) -> None:
    self.new, self.done, self.name = set(kernels), 0, ""
    self.total = len(self.new)
    self.bar: Any = None
    self.closed = False
    self._lock = shared_lock()

  def begin(self, kernel: UOp) -> None:
    """From now on this one is compiled; nothing for one that is not new, or was begun before."""
    if kernel not in self.new:
      return
    self.new.remove(kernel)
    self.done, self.name = self.total - len(self.new) - 1, kernel_name(kernel)
    if self.bar is not None:
      self._draw()

  def show(self) -> None:
    """Draw it for the first time."""
    with undivided, self._lock:  # a fork in between would leave tqdm's locks to nobody
      if not self.closed:
        from tqdm import tqdm

        self.bar = tqdm(total=self.total, bar_format=FORMAT, leave=False, dynamic_ncols=True, file=sys.stderr)
        self._draw()

  def _draw(self) -> None:
    with undivided, self._lock:
      if not self.closed:
        self.bar.n = self.done
        self.bar.set_description_str(self.name)

  def close(self) -> None:
    """Take it away."""
    with self._lock:
      self.closed = True
      if self.bar is not None:
        self.bar.close()
