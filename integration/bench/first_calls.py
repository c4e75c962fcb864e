"""What the first call of a program takes in a new process: the rows of `engine.py` with an empty and a filled cache."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np
from suite.lanes import LANES
from suite.measuring import error_of
from suite.models import BertSize
from suite.worker import ready
from suite.workload import Workload
from suite.workloads import minilm, mnist, resnet18


@dataclass(frozen=True)
class First:
  """A program, and the CPU seconds that its first call may take on a core of AMD's Zen 4."""

  workload: Workload
  small: Workload
  """The same, to try the benchmark."""
  cold: float
  warm: float = 0.25


FIRST = {
  "resnet18": First(resnet18(1, 224), resnet18(1, 32), 3.0),
  "convnet": First(mnist(128), mnist(2), 1.3),
  "minilm": First(minilm(1, 128, BertSize()), minilm(1, 8, BertSize(2, 32, 2, 64, 50)), 0.9),
}
"""The programs: an inference, a training step with Adam, and an encoder of texts."""


def seconds() -> float:
  """CPU time of this process and of those that it started and that are over."""
  times = os.times()
  return time.process_time() + times.children_user + times.children_system


def measure_first(lane: str, name: str, small: bool) -> dict[str, float]:
  """The figures of this process, which stays on one processor. Raises ValueError for a wrong result."""
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
  row = FIRST[name].small if small else FIRST[name].workload
  start = seconds()
  library = LANES[lane].open()
  imported = seconds()
  run, results = ready(library, row)
  prepared = seconds()
  result = np.array(library.array(run()), dtype=np.float64)
  done = seconds()
  exact = LANES["exact"].open()
  error = error_of(result, np.array(exact.array(ready(exact, row)[0]()), dtype=np.float64))
  if not error <= row.tolerance:
    raise ValueError(f"{row.name} on {lane}: off by {error:.1e} of the largest value, {row.tolerance:.1e} is allowed")
  return {"import": imported - start, "prepare": prepared - imported, "first call": done - prepared, "error": error}
