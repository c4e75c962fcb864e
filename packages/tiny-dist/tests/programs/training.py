"""Trains a convolutional network or a transformer, and prints the losses: `training.py NET LAYOUT STEPS`."""

import sys
from pathlib import Path

import numpy as np

from tiny_dist import Mesh, init, shard_parameters, shard_state
from tiny_runtime import GlobalCounters
from tiny_tensor import Tensor, TinyJit, nn

net, layout, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
used = GlobalCounters.mem_used
world = init()
local = 2 if layout.endswith("local") else 1
mesh = Mesh({"data": 2, "model": -1}, local=local) if layout.startswith("grid") else Mesh({"data": -1})
Tensor.manual_seed(0)


class Convolutional:
  """`(n, 1, 8, 8)` → `(n, 10)`."""

  def __init__(self) -> None:
    self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm(8)
    self.hidden, self.out = nn.Linear(8 * 4 * 4, 64), nn.Linear(64, 10)
    self.columns: list[nn.Linear] = [self.hidden]
    self.rows: list[nn.Linear] = [self.out]
    self.tables: list[nn.Embedding] = []

  def __call__(self, x: Tensor) -> Tensor:
    return self.out(self.hidden(self.norm(self.conv(x)).relu().max_pool2d().flatten(1)).relu())


class Transformer:
  """Words `(n, 8)` → `(n, 10)`: two blocks of four heads."""

  def __init__(self) -> None:
    self.words, self.out = nn.Embedding(32, 32), nn.Linear(32, 10)
    self.blocks = [Block() for _ in range(2)]
    self.columns: list[nn.Linear] = [layer for b in self.blocks for layer in (b.q, b.k, b.v, b.up)]
    self.rows: list[nn.Linear] = [layer for b in self.blocks for layer in (b.o, b.down)]
    self.tables: list[nn.Embedding] = [self.words]

  def __call__(self, x: Tensor) -> Tensor:
    h = self.words(x)
    for block in self.blocks:
      h = block(h)
    return self.out(h.mean(1))


class Block:
  """Attention and two layers: `(n, t, 32)` → the same."""

  def __init__(self) -> None:
    self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
    self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
    self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)

  def __call__(self, h: Tensor) -> Tensor:
    n, t, _ = h.shape
    x = self.first(h)
    q, k, v = (layer(x).reshape(n, t, 4, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
    h = h + self.o(q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(n, t, 32))
    return h + self.down(self.up(self.second(h)).gelu())


model: Convolutional | Transformer = Convolutional() if net == "conv" else Transformer()
parameters = nn.state.get_parameters(model)
for p in parameters:
  p.shard_(mesh)
if layout == "tensor":
  for layer in model.columns:
    layer.weight.shard_(mesh, 0)
    assert layer.bias is not None
    layer.bias.shard_(mesh, 0)
  for layer in model.rows:
    layer.weight.shard_(mesh, 1)
  for table in model.tables:
    table.weight.shard_(mesh, 0)
elif layout.startswith("grid"):  # the same along one axis of the mesh, and the batch along the other
  for layer in model.columns:
    layer.weight.shard_(mesh, {"model": 0})
    assert layer.bias is not None
    layer.bias.shard_(mesh, {"model": 0})
  for layer in model.rows:
    layer.weight.shard_(mesh, {"model": 1})
  for table in model.tables:
    table.weight.shard_(mesh, {"model": 0})
if layout == "grid-zero3":
  shard_parameters(parameters, mesh, "data")
if layout == "zero3":
  shard_parameters(parameters, mesh)
optimizer = nn.optim.Adam(parameters, lr=0.01)
if layout == "zero2":
  shard_state(optimizer, mesh)
if layout == "grid-zero2":
  shard_state(optimizer, mesh, "data")
rng = np.random.default_rng(0)


@TinyJit
def step(x: Tensor, y: Tensor) -> Tensor:
  optimizer.zero_grad()
  loss = model(x).sparse_categorical_crossentropy(y)
  loss.backward()
  optimizer.step()
  return loss.realize()


losses, batch = [], max(16, world.size)
with Tensor.train():
  for _ in range(steps):
    images, words = rng.normal(size=(batch, 1, 8, 8)).astype(np.float32), rng.integers(0, 32, (batch, 8), np.int32)
    x: np.ndarray = images if net == "conv" else words
    y = (np.abs(x).reshape(batch, -1).sum(1) * 10).astype(np.int32) % 10
    axis = None if layout == "tensor" else {"data": 0} if layout.startswith("grid") else 0
    losses.append(step(Tensor(x).shard(mesh, axis).realize(), Tensor(y).shard(mesh, axis).realize()).item())
if len(sys.argv) > 4:
  kept = GlobalCounters.mem_used - used
  Path(f"{sys.argv[4]}-{world.rank}").write_text(f"{sum(world.traffic.values())} {kept}")
print(" ".join(f"{loss:.6f}" for loss in losses) + "\n", end="", flush=True)
