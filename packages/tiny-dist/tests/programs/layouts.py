"""Tensors in every layout on the ranks, through operations of every kind, against NumPy."""

import numpy as np

from tiny_dist import Mesh, init
from tiny_tensor import Tensor

world = init()
mesh = Mesh({"data": -1})
n = world.size
rng = np.random.default_rng(0)
a = rng.normal(size=(2 * n + 1, 3 * n)).astype(np.float32)  # axis 0 in pieces that differ in length
b = rng.normal(size=(2 * n + 1, 3 * n)).astype(np.float32)


def check(name: str, found: Tensor, expected: np.ndarray) -> None:
  np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-5, err_msg=name)


for axis in (None, 0, 1):
  x = Tensor(a).shard(mesh, axis)
  assert x.shape == a.shape and (n == 1 or x.device == tuple(mesh)), x.device
  check("itself", x, a)
  check("realized", x.contiguous().realize() * 2, a * 2)
  for other in (None, 0, 1):
    check(f"sum of {axis} and {other}", x + Tensor(b).shard(mesh, other), a + b)
  for axes in (0, 1, (0, 1)):
    check(f"sum over {axes}", x.sum(axes), a.sum(axes))
    check(f"maximum over {axes}", x.max(axes), a.max(axes))
  check("product", x.T @ Tensor(b).shard(mesh, axis), a.T @ b)
  check("rows", x[1:3], a[1:3])
  check("columns", x[:, 2:], a[:, 2:])
  check("one row", x[n], a[n])
  check("backwards", x.flip(0) + 1, a[::-1] + 1)
  check("padded", x.pad(((1, 2), (0, 1))), np.pad(a, ((1, 2), (0, 1))))
  check("much padding", x.pad(((3 * n, 0), (0, 0))), np.pad(a, ((3 * n, 0), (0, 0))))
  check("two after each other", x.cat(x * 2), np.concatenate([a, a * 2]))
  check("another shape", x.reshape(-1) * 3, a.reshape(-1) * 3)
  check("transposed", x.T.contiguous().realize(), a.T)
  check("softmax", x.softmax(0).sum(0), np.ones(3 * n, np.float32))
  check("sorted", x.sort(0)[0], np.sort(a, 0))
  for to in (None, 0, 1):
    moved = x.shard(mesh, to).realize()
    check(f"from {axis} to {to}", moved, a)
    sharding = moved.uop.sharding
    assert n == 1 or (sharding is not None and sharding.axis == to), sharding
check("whole", Tensor(a).shard(mesh, 0).to("CPU"), a)
print(f"layouts are right on {world.rank}" + "\n", end="", flush=True)
