"""How fast a sum over ranks is, against MPI's own: `python -m tiny_dist run -n 2 integration/bench/all_reduce.py`.

16 MiB of float32 in turns: MPI_Allreduce by mpi4py on NumPy arrays, and the sum of a sharded tensor, captured. Prints
the rates and their ratio, medians over turns: by the clock, and by the time of the processors that the ranks took, of
which what else the machine does takes little. A rank that waits for another looks at MPI all the time, as long as there
is a processor for each.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from tiny_dist import Mesh, from_pieces, init
from tiny_tensor import Tensor, TinyJit

ELEMENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 4 << 20
TURNS = 41

world = init()
mesh = Mesh()
own = np.full(ELEMENTS, world.rank + 1.0, np.float32)
out = np.empty_like(own)
x = from_pieces(Tensor(own).reshape(1, ELEMENTS), mesh, 0).realize()


@TinyJit
def total(x: Tensor) -> Tensor:
  return x.sum(0).realize()


def bare() -> None:
  MPI.COMM_WORLD.Allreduce(own, out)


def ours() -> None:
  total(x)


def seconds(call: Callable[[], None]) -> tuple[float, float]:
  """By the clock, and of processors: of all ranks, per rank."""
  world.barrier()
  start, worked = time.perf_counter(), time.process_time()
  call()
  world.barrier()
  return time.perf_counter() - start, sum(world.all_of(time.process_time() - worked)) / world.size


for _ in range(3):
  bare()
  ours()
times = [(seconds(bare), seconds(ours)) for _ in range(TURNS)]
assert (total(x).numpy() == out).all()
for kind, words in enumerate(("by the clock", "of processors")):
  one, other = (statistics.median(pair[kind] for pair in column) for column in zip(*times))
  ratio = statistics.median(a[kind] / b[kind] for a, b in times)
  if world.rank == 0:
    rates = f"MPI_Allreduce {ELEMENTS * 4e-6 / one:.0f} MB/s, ours {ELEMENTS * 4e-6 / other:.0f} MB/s"
    print(f"{ELEMENTS * 4e-6:.0f} MB, time {words}: {rates}, ratio {ratio:.2f}")
