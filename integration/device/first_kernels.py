"""The first kernels on a device, from the simplest on: which of them work says where to look."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_tensor import Device, Tensor, TinyJit, dtypes


def drawn(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
  return np.random.default_rng(seed).standard_normal(shape, np.float32)


def copies() -> None:
  data = drawn(0, 10_000_001)
  assert (Tensor(data).contiguous().realize().numpy() == data).all()


def adds() -> None:
  assert (Tensor.arange(1000) + 1).tolist() == list(range(1, 1001))


def sums() -> None:
  data = drawn(0, 1 << 20)
  assert abs(float(Tensor(data).sum().item()) - data.sum(dtype=np.float64)) < 0.01


def multiplies() -> None:
  a, b = drawn(0, 300, 257), drawn(1, 300, 257)
  assert np.allclose((Tensor(a) @ Tensor(b).T).numpy(), a @ b.T, atol=1e-3)


def multiplies_on_tensor_cores() -> None:
  a, b = drawn(0, 512, 512), drawn(1, 512, 512)
  for kind, most in ((dtypes.bfloat16, 1.0), (dtypes.float16, 0.2)):
    x, y = (Tensor(array).cast(kind).contiguous().realize() for array in (a, b))
    error = np.abs((x @ y).cast(dtypes.float32).numpy() - a @ b).max()
    assert error < most, f"{kind}: off by {error}"


def multiplies_large_matrices() -> None:
  """With as much shared memory as there is, and on sm_90a by warpgroups."""
  a, b = drawn(0, 2048, 2048), drawn(1, 2048, 2048)
  x, y = (Tensor(array).cast(dtypes.bfloat16).contiguous().realize() for array in (a, b))
  for product, expected in ((x @ y, a @ b), (x @ y.T, a @ b.T), (x.T @ y, a.T @ b)):
    error = np.abs(product.cast(dtypes.float32).numpy() - expected).max()
    assert error < 3.0, f"off by {error}"


def captures() -> None:
  step = TinyJit(lambda x: ((x + 1).contiguous() * 2).realize())
  for n in range(5):
    assert step(Tensor([float(n), 1.0]).contiguous().realize()).tolist() == [2.0 * n + 2, 4.0]


def trains() -> None:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
  (x @ x).relu().sum().backward()
  assert x.grad is not None and x.grad.tolist() == [[7.0, 11.0], [9.0, 13.0]]


STEPS: tuple[Callable[[], None], ...] = (
  copies, adds, sums, multiplies, multiplies_on_tensor_cores, multiplies_large_matrices, captures, trains
)  # fmt: skip


def main() -> int:
  failed = 0
  print("device", Device.DEFAULT, Device[Device.DEFAULT].info)
  for step in STEPS:
    start, what = time.perf_counter(), step.__name__.replace("_", " ")
    try:
      step()
      print(f"it {what}: {time.perf_counter() - start:.2f} s", flush=True)
    except Exception:
      failed += 1
      print(f"WRONG: {what}\n{traceback.format_exc()}", flush=True)
  print(f"{len(STEPS) - failed} of {len(STEPS)} work")
  return int(failed > 0)


if __name__ == "__main__":
  sys.exit(main())
