"""How much of what ranks send each other is hidden behind what they compute: `python -m tiny_dist run -n 2
integration/bench/overlap.py MB_PER_SECOND`.

A perceptron is trained data parallel, by steps that are captured; gradients go in buckets of 4 MiB. What is sent goes
over MPI, and then takes as long as over a link of that many bytes in a second (500 by default) that moves them by
itself, one transfer after the other, as a network's hardware does: who waits for it sleeps. By turns the transfers are
under way while kernels run, as always, and are waited for where they begin. Prints, of the median step, the time of the
transfers, how much of it the rank has waited for them, and what is hidden.
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
from tiny_uop.context import Context

RATE, WIDTH, LAYERS, ROWS, STEPS = float(sys.argv[1] if len(sys.argv) > 1 else 500) * 1e6, 1024, 6, 512, 15
world = init()


class SlowLink:
  """The world, over a link."""

  def __init__(self) -> None:
    self.overlaps, self.free = True, 0.0
    self.transfers, self.waited = 0.0, 0.0

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:  # fmt: skip
    before = sum(world.traffic.values())
    end = world.collective(what, results, inputs)
    seconds = (sum(world.traffic.values()) - before) / RATE
    self.free = arrives = max(time.perf_counter(), self.free) + seconds
    self.transfers += seconds

    def wait() -> None:
      left = arrives - time.perf_counter()
      if left > 0:
        time.sleep(left)
        self.waited += left
      if end is not None:
        end()

    if self.overlaps:
      return wait
    wait()
    return None


link = SlowLink()
use_communicator(link)
mesh = Mesh()
Tensor.manual_seed(0)
layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
parameters = nn.state.get_parameters(layers)
for p in parameters:
  p.shard_(mesh)
optimizer = nn.optim.SGD(parameters, lr=0.001)
data = np.random.default_rng(world.rank).normal(size=(ROWS * world.size, WIDTH)).astype(np.float32)
x = Tensor(data).shard(mesh, 0).realize()


@TinyJit
def step(x: Tensor) -> Tensor:
  optimizer.zero_grad()
  loss = x.sequential([f for layer in layers for f in (layer, Tensor.relu)]).square().mean()
  loss.backward()
  optimizer.step()
  return loss.realize()


found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
with Context(BUCKET_BYTES=4 << 20), Tensor.train():
  for n in range(STEPS + 3):
    for link.overlaps in (True, False):
      world.barrier()
      link.transfers = link.waited = 0.0
      start = time.perf_counter()
      step(x).item()
      if n >= 3:
        found[link.overlaps].append((time.perf_counter() - start, link.transfers, link.waited))
for overlaps, rows in found.items():
  whole, transfers, waited = (statistics.median(column) for column in zip(*rows))
  if world.rank == 0:
    print(
      f"{'under way meanwhile' if overlaps else 'waited for at once':20}: a step {whole * 1e3:.0f} ms, "
      f"transfers {transfers * 1e3:.0f} ms, waited for {waited * 1e3:.0f} ms, hidden {1 - waited / transfers:.0%}"
    )
