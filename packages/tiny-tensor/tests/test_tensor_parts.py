"""Parts and neighbours of numbers, divisors, histograms, ends of sequences: against Python and NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor


@pytest.fixture(autouse=True, scope="module")
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def numbers(dtype: Any) -> Any:
  """Numbers at the edges of a float, the ones that have no edges among them."""
  info = np.finfo(dtype)
  sizes = [0, 1, 0.5, 3.7, info.tiny, info.tiny / 4, info.smallest_subnormal, info.max, np.inf]
  return np.array([*sizes, *[-s for s in sizes], np.nan], dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_frexp(dtype: Any) -> None:
  x = numbers(dtype)
  mantissa, exponent = Tensor(x).frexp()
  m, e = np.frexp(x)
  np.testing.assert_array_equal(mantissa.numpy(), m)
  np.testing.assert_array_equal(exponent.numpy(), np.where(np.isfinite(x), e, 0))
  assert mantissa.numpy().dtype == dtype and exponent.numpy().dtype == np.int32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nextafter(dtype: Any) -> None:
  a, b = np.meshgrid(numbers(dtype), numbers(dtype))
  with np.errstate(over="ignore"):
    got, expected = Tensor(a).nextafter(Tensor(b)).numpy(), np.nextafter(a, b)
  np.testing.assert_array_equal(got, expected)
  signs = ~np.isnan(expected)
  np.testing.assert_array_equal(np.signbit(got)[signs], np.signbit(expected)[signs])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(*[st.integers(-(2**63) + 1, 2**63 - 1)] * 2), min_size=20, max_size=20), st.integers(0, 62))
def test_divisors_and_multiples(pairs: list[tuple[int, int]], bits: int) -> None:
  # neighbours in Fibonacci's sequence take the most steps of Euclid's algorithm
  fibonacci = [(7540113804746346429, 4660046610375530309), (0, 0), (0, -6), (6, 0)]
  pairs = [(int(a >> bits if a >= 0 else -(-a >> bits)), b) for a, b in pairs][:16] + fibonacci
  a, b = (Tensor(np.array(side, np.int64)) for side in zip(*pairs, strict=True))
  assert a.gcd(b).tolist() == [math.gcd(*p) for p in pairs]
  multiples = [math.lcm(*p) for p in pairs]
  found = a.lcm(b).tolist()
  assert [f for f, m in zip(found, multiples, strict=True) if m < 2**63] == [m for m in multiples if m < 2**63]


def test_divisors_of_small_and_unsigned_integers() -> None:
  assert Tensor([-128, -128, 12], dtype="int8").gcd(Tensor([96, 0, 18], dtype="int8")).tolist() == [32, -128, 6]
  assert Tensor([255, 200], dtype="uint8").gcd(15).tolist() == [15, 5]
  with pytest.raises(TypeError, match="gcd takes integers, got float32"):
    Tensor([1.0]).gcd(2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("density", [False, True])
def test_histograms(weighted: bool, density: bool) -> None:
  rng = np.random.default_rng(0)
  x, w = rng.standard_normal(40).astype(np.float32), rng.uniform(0.5, 2, 40).astype(np.float32)
  weights, ours = (w, Tensor(w)) if weighted else (None, None)
  cases: list[tuple[Any, Any]] = [(7, None), (4, (-1.0, 1.5)), (np.array([-1.0, 0.0, 0.25, 2.0], np.float32), None)]
  for bins, ends in cases:
    given_bins = bins if isinstance(bins, int) else Tensor(bins)
    counts, edges = Tensor(x).histogram(given_bins, range=ends, weight=ours, density=density)
    expected, places = np.histogram(x, bins, range=ends, weights=weights, density=density)
    np.testing.assert_allclose(edges.numpy(), places, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(counts.numpy(), expected, rtol=1e-5)
  points = x.reshape(20, 2)
  counts, all_edges = Tensor(points).histogramdd(
    [3, Tensor([-1.0, 0.0, 3.0])], weight=Tensor(w[:20]) if weighted else None, density=density
  )
  either: Any = [3, np.array([-1.0, 0.0, 3.0])]
  expected, found = np.histogramdd(points, either, weights=w[:20] if weighted else None, density=density)
  np.testing.assert_allclose(counts.numpy(), expected, rtol=1e-5)
  np.testing.assert_allclose(all_edges[0].numpy(), found[0], rtol=1e-6, atol=1e-6)


def test_histograms_of_nothing_and_of_one_value() -> None:
  assert [t.tolist() for t in Tensor([]).histogram(2)] == [[0.0, 0.0], [0.0, 0.5, 1.0]]
  assert [t.tolist() for t in Tensor([3.0, 3.0, math.nan]).histogram(1, range=(3, 3))] == [[2.0], [2.5, 3.5]]
  with pytest.raises(ValueError, match="bins must be positive, got 0"):
    Tensor([1.0]).histogram(0)
  with pytest.raises(ValueError, match="2 dimensions, got 1 bins"):
    Tensor([[1.0, 2.0]]).histogramdd([3])


def test_sequences_end_where_they_say() -> None:
  for start, stop, steps in ((4.3, -3.0, 50), (0.0, 0.7, 50), (0.1, 0.1, 3)):
    got = Tensor.linspace(start, stop, steps).numpy()
    assert got[0] == np.float32(start) and got[-1] == np.float32(stop)
    np.testing.assert_allclose(got, np.linspace(start, stop, steps), rtol=1e-5, atol=1e-7)
  assert Tensor.logspace(0, 3, 4, dtype="int32").tolist() == [1, 10, 100, 1000]


def test_sum_to_size_is_the_transpose_of_broadcasting() -> None:
  x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
  np.testing.assert_allclose(Tensor(x).sum_to_size(3, 1).numpy(), x.sum((0, 2))[:, None], rtol=1e-5)
  assert Tensor(x).sum_to_size((2, 3, 4)).shape == (2, 3, 4)
  with pytest.raises(ValueError, match=r"\(2, 4\) does not broadcast"):
    Tensor(x).sum_to_size(2, 4)


def test_nothing_is_left_out_of_a_join() -> None:
  x = Tensor([[1.0, 2.0]])
  assert Tensor.cat(Tensor([]), x, Tensor([], dtype="float64"), dim=1).tolist() == [[1.0, 2.0]]
  assert Tensor.cat(Tensor([]), Tensor([], dtype="float64"), dim=0).shape == (0,)
  assert Tensor.cat(x, Tensor([], dtype="float64")).dtype.name == "float64"
  assert Tensor([1.0, 5.0]).diff(0, prepend=Tensor([3.0])).tolist() == [1.0, 5.0]
