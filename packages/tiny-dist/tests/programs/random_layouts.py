"""Random operations over random layouts on a mesh of two axes, against NumPy: `random_layouts.py FIRST COUNT LOCAL`
runs the programs of so many seeds, with `LOCAL` devices of each rank. Every rank makes the same."""

import random
import sys

import numpy as np

from tiny_dist import Mesh, init
from tiny_tensor import Tensor

first, count, local = map(int, sys.argv[1:4])
world = init()
size = world.size * local
mesh = Mesh({"data": 2, "model": size // 2} if size % 2 == 0 else {"data": 1, "model": size}, local=local)


def layout(rng: random.Random, shape: tuple[int, ...]) -> dict[str, int] | None:
  found: dict[str, int] = {}
  for name, n in mesh.axes.items():
    axis = rng.choice([None, *range(len(shape))])
    taken = [m for other, m in mesh.axes.items() if axis is not None and found.get(other) == axis]
    if axis is not None and shape[axis] >= n * int(np.prod(taken)):
      found[name] = axis
  return found or None


def made(rng: random.Random, shape: tuple[int, ...]) -> tuple[Tensor, np.ndarray, str]:
  a, where = np.array([rng.randint(-4, 4) for _ in range(int(np.prod(shape)))], np.float32), layout(rng, shape)
  return Tensor(a.reshape(shape)).shard(mesh, where), a.reshape(shape), f"{shape} in {where}"


def stepped(rng: random.Random, x: Tensor, a: np.ndarray) -> tuple[Tensor, np.ndarray, str]:
  kind = rng.randrange(10)
  axes = tuple(sorted(rng.sample(range(a.ndim), rng.randint(1, a.ndim))))
  if kind == 0:
    y, b, says = made(rng, a.shape)
    return x + y, a + b, f"plus {says}"
  if kind == 1:
    y, b, says = made(rng, (a.shape[-1], rng.randint(1, 9)))
    return x @ y, a @ b, f"@ {says}"
  if kind == 2:
    starts = [rng.randrange(n) for n in a.shape]
    cut = tuple([slice(i, rng.randint(i + 1, n)) for i, n in zip(starts, a.shape)])
    other = tuple([slice(s.start, s.stop) if rng.random() < 0.5 else slice(0, s.stop - s.start) for s in cut])
    return x[cut] + 2 * x[other], a[cut] + 2 * a[other], f"{cut} and {other}"  # two moves at once
  if kind == 3:
    around = tuple([(rng.randint(0, 5), rng.randint(0, 2)) for _ in a.shape])
    return x.pad(around), np.pad(a, around), f"pad {around}"
  if kind == 4:
    return x.flip(axes), np.flip(a, axes), f"flip {axes}"
  if kind == 5:
    order = tuple(rng.sample(range(a.ndim), a.ndim))
    return x.permute(order), a.transpose(order), f"permute {order}"
  if kind == 6:
    shape = rng.choice([(a.shape[0], -1), (-1, a.shape[-1]), (1, -1), (a.size // a.shape[-1], 1, -1)])
    return x.reshape(shape), a.reshape(shape), f"reshape {shape}"
  if kind == 7:
    return x.sum(axes, keepdim=True), a.sum(axes, keepdims=True), f"sum {axes}"
  if kind == 8:
    where = layout(rng, a.shape)
    return x.shard(mesh, where), a, f"to {where}"
  return x.contiguous().realize(), a, "realize"


for seed in range(first, first + count):
  rng = random.Random(seed)
  x, a, says = made(rng, tuple([rng.randint(1, 9) for _ in range(rng.randint(2, 3))]))
  steps = [f"seed {seed}: {says}"]
  for _ in range(rng.randint(1, 4)):
    x, a, says = stepped(rng, x, a)
    steps.append(says)
  np.testing.assert_array_equal(x.numpy(), a, err_msg=" · ".join(steps))
print(f"{count} programs are right on {world.rank}" + "\n", end="", flush=True)
