"""Random numbers: reproducible, independent of when and where they are computed, and of the right distribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_sched import schedule_cache_info
from tiny_tensor import Context, Tensor, dtypes
from tiny_uop.evaluate import threefry


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    Tensor.manual_seed(7)
    yield


def test_threefry_matches_the_published_vectors() -> None:
  # Random123's known answers for threefry2x32-20: counter, key and result as (word 0, word 1)
  vectors = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
  ]
  for counter, key, result in vectors:
    c, k, r = (low | high << 32 for low, high in (counter, key, result))
    assert threefry(c, k) == r
    assert Tensor([c], dtype="uint64").threefry(Tensor([k], dtype="uint64")).item() == r


def test_a_seed_gives_the_same_numbers() -> None:
  first = [Tensor.rand(3).tolist(), Tensor.randn(3).tolist()]
  Tensor.manual_seed(7)
  assert [Tensor.rand(3).tolist(), Tensor.randn(3).tolist()] == first
  Tensor.manual_seed(8)
  assert Tensor.rand(3).tolist() != first[0]
  assert Tensor.rand(3).tolist() != Tensor.rand(3).tolist()


def test_the_order_of_realising_does_not_matter() -> None:
  a, b = Tensor.rand(4), Tensor.rand(4)
  second, first = b.tolist(), a.tolist()
  Tensor.manual_seed(7)
  assert (Tensor.rand(4).tolist(), Tensor.rand(4).tolist()) == (first, second)
  Tensor.manual_seed(7)
  assert Tensor.rand(8).tolist() == first + second


def test_draws_share_a_schedule() -> None:
  Tensor.rand(5).realize()
  misses = schedule_cache_info().misses
  for _ in range(3):
    Tensor.rand(5).realize()
  assert schedule_cache_info().misses == misses


def test_a_draw_is_kept() -> None:
  a = Tensor.rand(3)
  b = a + 1
  np.testing.assert_allclose(b.numpy() - 1, a.numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform(dtype: str) -> None:
  values = Tensor.rand(2000, dtype=dtype)
  a: Any = values.cast("float64").numpy()
  assert values.dtype.name == dtype and a.min() >= 0 and a.max() < 1
  assert abs(a.mean() - 0.5) < 0.03 and abs(a.var() - 1 / 12) < 0.01
  low: Any = Tensor.uniform(500, low=-3.0, high=-1.0).numpy()
  assert low.min() >= -3 and low.max() < -1


def test_normal() -> None:
  for a in (Tensor.randn(2000).numpy(), Tensor.randn(2000, dtype="float64").numpy()):
    assert abs(a.mean()) < 0.1 and abs(a.std() - 1) < 0.08 and np.isfinite(a).all()
  a = Tensor.normal(2000, mean=5.0, std=0.1).numpy()
  assert abs(a.mean() - 5) < 0.02 and abs(a.std() - 0.1) < 0.01


def test_integers() -> None:
  a: Any = Tensor.randint(3000, low=-2, high=5).numpy()
  assert set(a.tolist()) == set(range(-2, 5)) and np.bincount(a + 2).min() > 300
  wide: Any = Tensor.randint(100, low=0, high=2**40, dtype="int64").numpy()
  assert wide.max() > 2**32 and wide.min() >= 0


def test_permutation_and_samples() -> None:
  assert sorted(Tensor.randperm(20).tolist()) == list(range(20)) and Tensor.randperm(0).shape == (0,)
  assert Tensor.randperm(20).tolist() != Tensor.randperm(20).tolist()
  weights = Tensor([0.0, 1.0, 0.0, 3.0])
  drawn: Any = weights.multinomial(400, replacement=True).numpy()
  assert set(drawn.tolist()) == {1, 3} and 250 < (drawn == 3).sum() < 350
  assert sorted(weights.multinomial(2).tolist()) == [1, 3]
  with pytest.raises(ValueError, match="5 samples of 4"):
    weights.multinomial(5)


def test_dropout() -> None:
  x = Tensor.ones(2000)
  assert x.dropout(0.5) is x
  with Tensor.train():
    assert Tensor.training
    a: Any = x.dropout(0.25).numpy()
  assert not Tensor.training
  np.testing.assert_allclose(np.unique(a), [0, 4 / 3], rtol=1e-6)
  assert abs((a == 0).mean() - 0.25) < 0.04
  with Tensor.train():
    assert x.dropout(1.0).sum().item() == 0


def test_initialisers_have_their_bounds() -> None:
  assert np.abs(Tensor.kaiming_uniform(10, 24, a=1.0).numpy()).max() <= 24**-0.5 * 3**0.5
  assert np.abs(Tensor.glorot_uniform(10, 14).numpy()).max() <= 0.5
  assert np.abs(Tensor.scaled_uniform(10, 10).numpy()).max() <= 0.1
  assert Tensor.kaiming_normal(10, 3).dtype is dtypes.float32
  assert Tensor.zeros(2, 3).rand_like().shape == (2, 3) and Tensor.zeros(2, 3).randn_like().shape == (2, 3)
