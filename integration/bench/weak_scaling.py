"""Weak scaling: the same rows on each rank, on one rank and on all: `python -m tiny_dist run -n 2
integration/bench/weak_scaling.py`.

A perceptron with two hidden layers, trained data parallel by steps that are captured. Times are of processors, so what
else the machine does counts little: a rank that waits for another looks at MPI all the time, as long as there is a
processor for each rank. Prints for each number of ranks a step's time, what part of it collectives take, the bytes that
a rank sends in it, and the efficiency: the time on one rank as a share. The last line compares with the plan: with the
rate at which these bytes went, and what a step computes on one rank.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from tiny_dist import Mesh, init
from tiny_runtime import Buffer, use_communicator
from tiny_tensor import Tensor, TinyJit, nn
from tiny_uop import Collective

WIDTH, ROWS, STEPS = 1024, int(sys.argv[1]) if len(sys.argv) > 1 else 256, 15
world = init()


class Timed:
  """The world, which notes the time in collectives."""

  def __init__(self) -> None:
    self.seconds, self.count = 0.0, 0

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:  # fmt: skip
    began = time.process_time()
    end = world.collective(what, results, inputs)
    self.seconds, self.count = self.seconds + time.process_time() - began, self.count + 1
    if end is None:
      return None
    wait = end

    def ended() -> None:
      began = time.process_time()
      wait()
      self.seconds += time.process_time() - began

    return ended


def step_of(devices: Mesh | str, rows: int) -> Callable[[], None]:
  """A step of training on some devices."""
  Tensor.manual_seed(0)
  layers = [nn.Linear(784, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)]
  parameters = nn.state.get_parameters(layers)
  for p in parameters:
    p.shard_(devices)
  optimizer = nn.optim.SGD(parameters, lr=0.01)
  rng = np.random.default_rng(0)
  x = Tensor(rng.normal(size=(rows, 784)).astype(np.float32)).shard(devices, 0).realize()
  y = Tensor(rng.integers(0, 10, rows, np.int32)).shard(devices, 0).realize()

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = layers[2](layers[1](layers[0](x).relu()).relu()).sparse_categorical_crossentropy(y)
    loss.backward()
    optimizer.step()
    return loss.realize()

  def run() -> None:
    with Tensor.train():
      step(x, y).item()

  return run


timed = Timed()
use_communicator(timed)
steps = step_of("CPU", ROWS), step_of(Mesh(), ROWS * world.size)
for run in (*steps, *steps, *steps):
  run()
alone, together, sending = [], [], []
before = sum(world.traffic.values())
timed.count = 0
for _ in range(STEPS):
  world.barrier()
  start = time.process_time()
  steps[0]()
  alone.append(time.process_time() - start)
  world.barrier()
  start, timed.seconds = time.process_time(), 0.0
  steps[1]()
  together.append(time.process_time() - start)
  sending.append(timed.seconds)
nbytes = (sum(world.traffic.values()) - before) / STEPS
one, all_of, sent = (max(world.all_of(statistics.median(times))) for times in (alone, together, sending))
if world.rank == 0:
  print(f"ranks  {'step':>8}  {'in collectives':>14}  {'sent by each':>12}  efficiency")
  print(f"{1:5}  {one * 1e3:5.1f} ms  {'0 %':>14}  {'0 MB':>12}  100 %")
  print(
    f"{world.size:5}  {all_of * 1e3:5.1f} ms  {100 * sent / all_of:12.0f} %  {nbytes / 1e6:>9.1f} MB  "
    f"{100 * one / all_of:.0f} %"
  )
  rate = nbytes / sent
  planned = sent / (sent + one)
  print(f"planned: {100 * planned:.0f} % in {timed.count // STEPS} collectives, at {rate / 1e6:.0f} MB/s")
