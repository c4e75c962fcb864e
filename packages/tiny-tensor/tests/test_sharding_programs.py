"""Random programs over sharded tensors give what they give over whole ones, wherever the pieces are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, dtypes

Step = Callable[[Tensor, Tensor], Tensor]

# of a value and another of its shape (a, b), each to a value of two axes with at least one element
STEPS: dict[str, Step] = {
  "add": lambda x, y: x + y,
  "scale": lambda x, y: y * 2.0 - x,
  "where": lambda x, y: (x < y).where(x, 3.0),
  "rows": lambda x, y: x - x.max(0, keepdim=True),
  "columns": lambda x, y: x / (1.0 + x.abs().sum(1, keepdim=True)),
  "all": lambda x, y: x + (y * 0.5).sum(),
  "product": lambda x, y: x * (y * 0.25).prod(0),
  "matmul": lambda x, y: x @ y.T @ x * 0.01,
  "turn": lambda x, y: x.T + y.T,
  "flip": lambda x, y: x.flip(0) + y.flip((0, 1)),
  "shift": lambda x, y: x.pad(((1, 0), (0, 0)))[:-1] + y,
  "end": lambda x, y: x[x.shape[0] // 2 :, x.shape[1] // 3 :],
  "start": lambda x, y: x[: x.shape[0] // 2 + 1] * 2.0,
  "step": lambda x, y: x[::2, ::-1],
  "one": lambda x, y: x[-1:] + y[0],
  "cat": lambda x, y: x.cat(y, dim=0),
  "cat_columns": lambda x, y: x.cat(y[:, :1], dim=1),
  "stack": lambda x, y: x.stack(y, dim=1).sum(1),
  "around": lambda x, y: x.reshape(-1).reshape(x.shape[1], x.shape[0]),
  "expand": lambda x, y: (x.unsqueeze(0).expand(3, *x.shape) * y).sum(0),
  "pad": lambda x, y: x.pad(((2, 1), (1, 0)), value=1.5),
  "gather": lambda x, y: x[y[:, 0].abs().int() % x.shape[0]],
  "running": lambda x, y: x.cumsum(0),
  "softmax": lambda x, y: x.softmax(0) + y.softmax(1),
  "halves": lambda x, y: x.cast(dtypes.float16).float(),
  "bits": lambda x, y: x.contiguous().bitcast(dtypes.int32).bitcast(dtypes.float32),
  "kept": lambda x, y: (x + 1.0).contiguous(),
  "realized": lambda x, y: (x * y * 0.1).realize(),
  "elsewhere": lambda x, y: x.shard_like(y),
  "counted": lambda x, y: x + Tensor.arange(int(x.shape[1])).to(x.device),
  "sorted": lambda x, y: x.sort(0)[0],
}


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def placed(values: np.ndarray, count: int, axis: int | None) -> Tensor:
  x = Tensor(values)
  names = [f"{x.device}:{i}" for i in range(count)]
  return x.shard(names, axis if axis is not None and values.shape[axis] >= count else None)


def run(x: Tensor, y: Tensor, names: list[str]) -> tuple[Tensor, Tensor]:
  for name in names:
    z = STEPS[name](x, y if y.shape == x.shape else x * 0.5)
    x, y = z, x
  return x, x.sum(0)


@pytest.mark.parametrize("name", STEPS)
def test_every_operation(name: str) -> None:
  a, b = (np.linspace(lo, 2, 30, dtype=np.float32).reshape(6, 5) for lo in (-3, 1))
  expected = run(Tensor(a), Tensor(b), [name])[0].numpy()
  for count, first, second in ((2, 0, 0), (3, 1, None), (4, 0, 1)):
    x, y = run(placed(a, count, first), placed(b, count, second), [name])
    assert x.device == tuple(f"{Tensor(0).device}:{i}" if i else Tensor(0).device for i in range(count))
    np.testing.assert_allclose(x.numpy(), expected, rtol=2e-5, atol=1e-5)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
  names=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5),
  shape=st.tuples(st.integers(1, 7), st.integers(1, 5)),
  count=st.integers(1, 4),
  axes=st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([None, 0, 1])),
  seed=st.integers(0, 99),
)
def test_programs(
  names: list[str], shape: tuple[int, int], count: int, axes: tuple[int | None, int | None], seed: int
) -> None:
  rng = np.random.default_rng(seed)
  a, b = (rng.integers(-4, 5, shape).astype(np.float32) for _ in range(2))
  expected = run(Tensor(a), Tensor(b), names)
  found = run(placed(a, count, axes[0]), placed(b, count, axes[1]), names)
  for x, y in zip(found, expected, strict=True):
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-4, atol=1e-4)
