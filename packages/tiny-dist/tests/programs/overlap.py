"""A step of training in which kernels run while gradients travel: as it is made, and captured and replayed."""

from collections.abc import Callable, Sequence

import numpy as np

from tiny_dist import Mesh, init
from tiny_runtime import Buffer, GlobalCounters, use_communicator
from tiny_tensor import Tensor, TinyJit, nn
from tiny_uop import Collective

world = init()
under_way: list[int] = []
"""How many kernels have run between the beginning and the end of each collective."""


class Counting:
  """The world, with an eye on what is run meanwhile."""

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:
    end = world.collective(what, results, inputs)
    begun = GlobalCounters.kernel_count
    assert end is not None, "MPI overlaps"
    before = end

    def ended() -> None:
      under_way.append(GlobalCounters.kernel_count - begun)
      before()

    return ended


use_communicator(Counting())
mesh = Mesh()
Tensor.manual_seed(0)
layers = [nn.Linear(n, m) for n, m in zip((16, 24, 32, 40), (24, 32, 40, 4))]
parameters = nn.state.get_parameters(layers)
for p in parameters:
  p.shard_(mesh)
optimizer = nn.optim.SGD(parameters, lr=0.1)
data = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)


@TinyJit
def step(x: Tensor) -> Tensor:
  optimizer.zero_grad()
  loss = x.sequential([f for layer in layers for f in (layer, Tensor.tanh)]).square().mean()
  loss.backward()
  optimizer.step()
  return loss.realize()


counts, losses = [], []
with Tensor.train():
  for _ in range(4):
    under_way.clear()
    losses.append(step(Tensor(data).shard(mesh, 0).realize()).item())
    counts.append(sum(n > 1 for n in under_way))
assert losses == sorted(losses, reverse=True), losses
print(f"{min(counts) > 1} {counts[0] == counts[-1] or counts}\n", end="", flush=True)
