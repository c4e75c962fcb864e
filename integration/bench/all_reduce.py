"""How fast a sum over ranks is, against MPI's own: `python -m tiny_dist run -n 2 integration/bench/all_reduce.py`.

16 MiB of float32 in turns: MPI_Allreduce by mpi4py on NumPy arrays, and the sum of a sharded tensor, captured. Prints
the rates and their ratio, medians over turns: what else the machine does hits both.
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
TURNS = 15

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


def seconds(call: Callable[[], None]) -> float:
  world.barrier()
  start = time.perf_counter()
  call()
  world.barrier()
  return time.perf_counter() - start


for _ in range(3):
  bare()
  ours()
times = [(seconds(bare), seconds(ours)) for _ in range(TURNS)]
assert (total(x).numpy() == out).all()
if world.rank == 0:
  one, other = (statistics.median(column) for column in zip(*times))
  nbytes = ELEMENTS * 4 / 1e6
  ratio = statistics.median(a / b for a, b in times)
  print(f"{nbytes:.0f} MB: MPI_Allreduce {nbytes / one:.0f} MB/s, ours {nbytes / other:.0f} MB/s, ratio {ratio:.2f}")
