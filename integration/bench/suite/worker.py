"""The process of a lane: it does what its parent says on standard input, and answers on standard output, in JSON lines.

    python -m suite.worker LANE CPUS

With one processor time is CPU time, so that what others do on it counts as little as possible.

`{"do": "prepare", "workload", "small", "to"}` makes inputs, runs the program until it is warm, and saves the result at
`to`. `{"do": "slice", "seconds"}` runs it for about so long: `{"seconds"}` of a call, the mean, and the `best`.
`{"do": "roof", …}` measures the machine. What goes wrong comes back as `{"error"}`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np

from suite.lanes import LANES, Lane
from suite.library import Library, Tensor
from suite.workload import Workload
from suite.workloads import all_workloads

WARM_UP = 3  # calls before the first that counts: the first runs, the second is captured, the third is a replay
BLOCK_SECONDS = 2e-4  # calls between two looks at the clock
STARTS = {
  "tiny_tensor": "from tiny_tensor import Tensor; print((Tensor([1,2,3])+1).tolist())",
  "tinygrad": "from tinygrad import Tensor; print((Tensor([1,2,3])+1).tolist())",
  "numpy": "import numpy; print((numpy.array([1,2,3])+1).tolist())",
  "torch": "import torch; print((torch.tensor([1,2,3])+1).tolist())",
}


class Worker:
  """What one lane is doing."""

  def __init__(self, lane: Lane, clock: Callable[[], float]) -> None:
    self.lane = lane
    self.usual_clock = self.clock = clock
    self.together, self.least = 1, float("inf")
    self.library: Library | None = None
    self.run: Callable[[], Any] | None = None
    self.roofline: Any = None

  def prepare(self, workload: str, small: bool, to: str) -> dict[str, Any]:
    """See `worker`. The answer says how long the first call took."""
    self.run, self.together, self.least = None, 1, float("inf")
    gc.collect()
    (row,) = (w for w in all_workloads(small) if w.name == workload)
    if row.kind in ("cold", "warm"):
      self.run = starter(self.lane, row.kind)
      self.clock = perf_counter if self.usual_clock is perf_counter else children_time
      self.run()
      return {"first": 0.0}
    self.clock = self.usual_clock
    if self.library is None:
      self.library = self.lane.open()
    lib = self.library
    self.run, results = ready(lib, row)
    start = perf_counter()
    values = [value(lib, self.run())]
    first = perf_counter() - start
    while len(values) < WARM_UP:
      if lib.variant == "exact" and row.kind == "call":
        break
      values.append(value(lib, self.run()))
    np.save(to, np.stack(values) if results == "all" else values[-1])
    return {"first": first}

  def slice(self, seconds: float) -> dict[str, Any]:
    """See `worker`."""
    assert self.run is not None
    if self.least < seconds:
      self.run()  # the caches are then as this program leaves them
    calls, least, start = 0, float("inf"), self.clock()
    before = start
    while True:
      for _ in range(self.together):
        self.run()
      now = self.clock()
      calls += self.together
      least = min(least, (now - before) / self.together)
      if now - start >= seconds:
        break
      before = now
    self.least, self.together = least, max(1, int(BLOCK_SECONDS / least))
    return {"seconds": (now - start) / calls, "best": least, "calls": calls}

  def roof(self, kind: str, nbytes: int, seconds: float) -> dict[str, Any]:
    """See `worker`."""
    from suite.roofline import Roofline

    self.roofline = self.roofline or Roofline()
    return {"rate": self.roofline.measure(kind, nbytes, seconds, self.clock)}


def value(lib: Library, result: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
  """A copy of a result, for comparison; several tensors end to end. Of values and indices the values: equal ones may
  stand in any order."""
  if isinstance(result, tuple):
    result = result[0]
  if isinstance(result, list):
    return np.concatenate([value(lib, tensor).ravel() for tensor in result])
  return np.array(lib.array(result), dtype=np.float64)


def ready(lib: Library, row: Workload) -> tuple[Callable[[], Any], str]:
  """(a function that runs the program, which of the first results count: those of training differ, so "all" do)."""
  weights, inputs = row.arrays()
  tensors = row.tensors(lib, inputs)
  if row.kind == "train":
    return lib.training_step(row.program, weights, tensors, rate=1e-3), "all"
  if row.kind == "adam":
    return lib.adam(weights, tensors, rate=1e-3), "all"
  held = {name: lib.tensor(array) for name, array in weights.items()}

  def program(library: Library, *given: Tensor) -> Tensor:
    return row.program(library, held, *given)

  return lib.runner(program, tensors), "last"


def children_time() -> float:
  """CPU time of the processes that this one started and that are over."""
  times = os.times()
  return times.children_user + times.children_system


def starter(lane: Lane, kind: str) -> Callable[[], None]:
  """A function that runs a new process; with cold caches of compiled code if `kind` says so. From the second call on
  all modules are there as bytecode, as pip leaves them, whatever PYTHONDONTWRITEBYTECODE says."""
  command = [sys.executable, "-c", STARTS[lane.library]]
  folder = tempfile.TemporaryDirectory(prefix="bench-start-")
  settings = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": os.path.join(folder.name, "bytecode")}

  def run() -> None:
    cache = tempfile.mkdtemp(dir=folder.name) if kind == "cold" else folder.name
    done = subprocess.run(command, env=settings | {"XDG_CACHE_HOME": cache}, capture_output=True, text=True)
    if done.returncode or done.stdout != "[2, 3, 4]\n":
      raise RuntimeError(f"{' '.join(command)} printed {done.stdout!r} {done.stderr[-500:]!r}")

  return run


def main() -> None:
  """Answers until standard input ends."""
  lane, cpus = sys.argv[1], [int(cpu) for cpu in sys.argv[2].split(",")]
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, cpus)
  answers = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)  # what libraries print is no answer
  clock = process_time if len(cpus) == 1 else perf_counter
  worker = Worker(LANES[lane] if lane in LANES else Lane(lane, ""), clock)
  for line in sys.stdin:
    request = json.loads(line)
    try:
      answer = getattr(worker, request.pop("do"))(**request)
    except Exception as error:  # the parent shows it in the row
      traceback.print_exc()
      answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
  main()
