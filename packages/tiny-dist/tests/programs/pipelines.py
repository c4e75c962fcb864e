"""Trains a network in stages, and prints the losses: `pipelines.py STAGES MICROBATCHES [jit]`. There may be more ranks
than stages: they share the rows, then."""

import sys
from collections.abc import Callable, Sequence

import numpy as np

from tiny_dist import Mesh, Pipeline, init
from tiny_runtime import Buffer, use_communicator
from tiny_tensor import Tensor, TinyJit, nn
from tiny_uop import Collective

stages, microbatches, jit = int(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3
world = init()
mesh = Mesh({"data": -1, "stage": stages})
rows = mesh.row("data")
order: list[str] = []
"""What this rank sends to the next stage (f: a forward pass has ended), receives from there (b), or both (x)."""


class Block:
  """`(n, 8)` → `(n, 8)`."""

  def __init__(self) -> None:
    self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

  def __call__(self, x: Tensor) -> Tensor:
    return x + self.down(self.up(x).tanh())


class Stage:
  """Some blocks."""

  def __init__(self, blocks: list[Callable[[Tensor], Tensor]]) -> None:
    self.blocks = blocks

  def __call__(self, x: Tensor) -> Tensor:
    return x.sequential(self.blocks)


Tensor.manual_seed(3)
blocks = [Block() for _ in range(4)]
each = len(blocks) // stages
model = Pipeline([Stage(list(blocks[i : i + each])) for i in range(0, 4, each)], mesh, "stage", microbatches)
for p in nn.state.get_parameters(blocks):  # of all stages, though only those of its own are made
  p.shard_(rows)
optimizer = nn.optim.Adam(nn.state.get_parameters(model.own), lr=0.01)
rng = np.random.default_rng(0)


def step(x: Tensor, y: Tensor) -> Tensor:
  optimizer.zero_grad()
  loss = model.step(x, y, lambda found, wanted: (found - wanted).square().mean())
  optimizer.step()
  return loss.realize()


class Watching:
  """The world, which notes the order."""

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:
    if what.kind == "send_recv" and what.position == 0:
      sends, receives = what.sent[0][1] > 0, what.received[0][1] > 0
      order.append("x" if sends and receives else "f" if sends else "b")
    return world.collective(what, results, inputs)


use_communicator(Watching())
run, losses = TinyJit(step) if jit else step, []
with Tensor.train():
  for _ in range(4):
    a = rng.normal(size=(16, 8)).astype(np.float32)
    x, y = (Tensor(v).shard(rows, 0).realize() for v in (a, np.sin(a)))
    order.clear()
    losses.append(run(x, y).item())
print(" ".join(f"{loss:.5f}" for loss in losses) + f" {''.join(order)}\n", end="", flush=True)
