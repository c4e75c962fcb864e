"""Random draws against their exact distributions: Kolmogorov and Smirnov's test for reals, χ² for integers,
permutations and samples; independence of neighbours, words, draws and seeds.

Seeds are fixed, so that a test passes always or never. The bounds are passed by a right generator with 999 seeds of
1000; the last test shows that they are not passed by slightly wrong ones.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit

N = 3000


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    Tensor.manual_seed(2024)
    yield


def ks_excess(sample: Any, cdf: Callable[[Any], Any]) -> float:
  """The Kolmogorov–Smirnov statistic over its critical value at α = 0.001 (the limit distribution for large n)."""
  x = np.sort(np.asarray(sample, dtype=np.float64).ravel())
  n, f = len(x), cdf(x)
  distance = max((np.arange(1, n + 1) / n - f).max(), (f - np.arange(n) / n).max())
  return float(distance / math.sqrt(-math.log(0.001 / 2) / (2 * n)))


def chi2_excess(counts: Any, expected: Any) -> float:
  """The χ² statistic over its critical value at α = 0.001 (Wilson and Hilferty's approximation, 1931)."""
  counts, expected = np.asarray(counts, dtype=np.float64).ravel(), np.broadcast_to(expected, np.size(counts))
  k = len(counts) - 1
  critical = k * (1 - 2 / (9 * k) + 3.0902 * math.sqrt(2 / (9 * k))) ** 3
  return float(((counts - expected) ** 2 / expected).sum() / critical)


def uniform_cdf(low: float, high: float) -> Callable[[Any], Any]:
  return lambda x: np.clip((x - low) / (high - low), 0, 1)


def normal_cdf(mean: float, std: float) -> Callable[[Any], Any]:
  return lambda x: np.array([0.5 * math.erfc((mean - v) / (std * math.sqrt(2))) for v in x])


LAYER = (60, 5, 10)  # fan-in 50, fan-in and fan-out 110, 3000 elements
DRAWS: dict[str, tuple[Callable[[], Tensor], Callable[[Any], Any]]] = {
  "rand": (lambda: Tensor.rand(N), uniform_cdf(0, 1)),
  "rand float64": (lambda: Tensor.rand(N, dtype="float64"), uniform_cdf(0, 1)),
  "rand_like": (lambda: Tensor.zeros(N).rand_like(), uniform_cdf(0, 1)),
  "uniform": (lambda: Tensor.uniform(N, low=-3.0, high=5.0), uniform_cdf(-3, 5)),
  "randn": (lambda: Tensor.randn(N), normal_cdf(0, 1)),
  "randn float64": (lambda: Tensor.randn(N, dtype="float64"), normal_cdf(0, 1)),
  "randn_like": (lambda: Tensor.zeros(N).randn_like(), normal_cdf(0, 1)),
  "normal": (lambda: Tensor.normal(N, mean=-2.0, std=3.0), normal_cdf(-2, 3)),
  "scaled_uniform": (lambda: Tensor.scaled_uniform(*LAYER), uniform_cdf(-(N**-0.5), N**-0.5)),
  "glorot_uniform": (lambda: Tensor.glorot_uniform(*LAYER), uniform_cdf(-((6 / 110) ** 0.5), (6 / 110) ** 0.5)),
  "kaiming_uniform": (
    lambda: Tensor.kaiming_uniform(*LAYER, a=math.sqrt(5)),
    uniform_cdf(-(50**-0.5), 50**-0.5),
  ),
  "kaiming_normal": (lambda: Tensor.kaiming_normal(*LAYER, a=1.0), normal_cdf(0, 50**-0.5)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name: str) -> None:
  draw, cdf = DRAWS[name]
  assert ks_excess(draw().numpy(), cdf) < 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_few_bits_are_as_many_steps(dtype: str) -> None:
  """Uniform on the multiples of 2^-11 and 2^-8: every value that there is between 1/2 and 1."""
  bits = 11 if dtype == "float16" else 8
  steps = Tensor.rand(N, dtype=dtype).float().numpy() * 2**bits
  assert (steps == np.floor(steps)).all() and steps.max() < 2**bits
  assert chi2_excess(np.bincount((steps / 2 ** (bits - 5)).astype(int), minlength=32), N / 32) < 1


@pytest.mark.parametrize(
  "low, high", [(0, 7), (-5, 12), (0, 256), (-(2**62), 2**62), (0, 3 * 2**61), (-(2**63), 2**63)]
)
def test_integers(low: int, high: int) -> None:
  values = [int(v) for v in Tensor.randint(N, low=low, high=high, dtype="int64").tolist()]
  assert min(values) >= low and max(values) < high
  cells = min(high - low, 17)
  counts = np.bincount([(v - low) * cells // (high - low) for v in values], minlength=cells)
  # cells of a span that is no multiple of their count differ by one value
  edges = [-(-(high - low) * i // cells) for i in range(cells + 1)]
  assert chi2_excess(counts, N * np.diff(np.array(edges, dtype=np.float64)) / (high - low)) < 1


def test_integers_that_the_dtype_cannot_hold() -> None:
  assert Tensor.randint(3, low=0, high=256, dtype="uint8").dtype.name == "uint8"
  assert max(Tensor.randint(64, low=0, high=2**64, dtype="uint64").tolist()) > 2**63
  with pytest.raises(ValueError, match=r"\[0, 255\], got low=0 and high=257"):
    Tensor.randint(3, low=0, high=257, dtype="uint8")
  with pytest.raises(ValueError, match="int32"):
    Tensor.randint(3, low=-(2**31) - 1, high=0)


def test_bits_of_words() -> None:
  words = Tensor._random_words((N,)).numpy().astype(np.uint64)
  bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
  ones = bits.astype(float).mean(0)
  assert np.abs(ones - 0.5).max() < 4.2 * 0.5 / math.sqrt(N)  # the largest of 64
  correlation = np.corrcoef(bits.astype(float).T) - np.eye(64)
  assert np.abs(correlation).max() < 5.2 / math.sqrt(N)  # the largest of 2016


def test_permutations() -> None:
  size, count = 6, 40
  permutations = np.array([Tensor.randperm(size).tolist() for _ in range(count)])
  assert (np.sort(permutations, 1) == np.arange(size)).all()
  where = [np.bincount(permutations[:, place], minlength=size) for place in range(size)]
  assert chi2_excess(np.array(where), count / size) < 1
  triples = permutations.reshape(-1, 3).argsort(1)
  counts = [int((triples == order).all(1).sum()) for order in itertools.permutations(range(3))]
  assert chi2_excess(counts, len(triples) / 6) < 1


def test_samples_with_replacement() -> None:
  weights = np.array([0.0, 1.0, 2.5, 0.5, 4.0])
  drawn = np.asarray(Tensor(weights.astype(np.float32)).multinomial(N, replacement=True).tolist())
  counts = np.bincount(drawn, minlength=5)
  assert counts[0] == 0 and chi2_excess(counts[1:], N * weights[1:] / weights.sum()) < 1


def test_samples_without_replacement() -> None:
  """Rows of two out of three: the exact probabilities of ordered pairs."""
  weights = np.array([1.0, 2.0, 5.0])
  pairs = np.asarray(Tensor(np.tile(weights, (300, 1)).astype(np.float32)).multinomial(2).tolist())
  orders = list(itertools.permutations(range(3), 2))
  counts = [int((pairs == order).all(1).sum()) for order in orders]
  total = weights.sum()
  expected = [300 * weights[a] / total * weights[b] / (total - weights[a]) for a, b in orders]
  assert chi2_excess(counts, expected) < 1


def test_dropout_is_a_coin_for_each_element() -> None:
  with Tensor.train():
    kept = Tensor.ones(N).dropout(0.3).numpy() != 0
  assert chi2_excess([kept.sum(), N - kept.sum()], [0.7 * N, 0.3 * N]) < 1
  pairs = np.bincount(kept[:-1:2] * 2 + kept[1::2], minlength=4)
  assert chi2_excess(pairs, N / 2 * np.array([0.09, 0.21, 0.21, 0.49])) < 1


def seeded(seed: int, count: int = N) -> Any:
  Tensor.manual_seed(seed)
  return Tensor.rand(count).numpy()


def pairs_excess(x: Any, y: Any) -> float:
  """χ² of points of the unit square in 8 × 8 cells."""
  cells = np.bincount((x * 8).astype(int) * 8 + (y * 8).astype(int), minlength=64)
  return chi2_excess(cells, len(x) / 64)


@pytest.mark.parametrize("other", [1, 2, 1 << 32, -1])
def test_seeds_are_independent(other: int) -> None:
  assert pairs_excess(seeded(0), seeded(other)) < 1


def test_neighbours_and_draws_are_independent() -> None:
  x, y = seeded(5), Tensor.rand(N).numpy()
  assert pairs_excess(x, y) < 1
  for lag in (1, 2, 64):
    assert pairs_excess(x[:-lag], x[lag:]) < 1
  words = Tensor._random_words((N,))
  halves = [half.cast("float64").numpy() / 2**32 for half in (words._low_word(), words._high_word())]
  assert pairs_excess(*halves) < 1
  normal = Tensor.randn(N).numpy()
  assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 3.3 / math.sqrt(N)


def test_these_tests_see_what_is_slightly_wrong() -> None:
  x = seeded(6)
  assert ks_excess(x**1.15, uniform_cdf(0, 1)) > 1
  assert ks_excess(np.asarray(Tensor.randn(N).tolist()) * 1.25, normal_cdf(0, 1)) > 1
  assert chi2_excess(np.bincount((x**1.15 * 17).astype(int), minlength=17), N / 17) > 1
  assert pairs_excess(x, (x + 0.3) % 1) > 1 and pairs_excess(x, (0.75 * seeded(7) + x * 0.25)) > 1


# *** when, where and by whom they are computed does not matter ***


def draws() -> list[Tensor]:
  with Tensor.train():
    return [
      Tensor.rand(5),
      Tensor.randint(4, high=100),
      Tensor.randn(3),
      Tensor.ones(6).dropout(0.5),
      Tensor.rand(2, dtype="float64"),
    ]


def expected() -> list[Any]:
  Tensor.manual_seed(9)
  return [t.tolist() for t in draws()]


@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (2, 0, 4, 1, 3)])
def test_the_order_of_realising_does_not_matter(order: tuple[int, ...]) -> None:
  plain = expected()
  Tensor.manual_seed(9)
  drawn = draws()
  Tensor.rand(100).realize()  # a later draw, computed before
  for n in order:
    drawn[n].realize()
  assert [t.tolist() for t in drawn] == plain
  Tensor.manual_seed(9)
  together = draws()
  together[0].realize(*together[1:])
  assert [t.tolist() for t in together] == plain


def test_a_replay_draws_what_a_call_would() -> None:
  jitted: TinyJit[[], list[Tensor]] = TinyJit(lambda: [t.realize() for t in draws()])
  for _ in range(3):
    jitted()
  assert jitted.captured
  plain = expected()
  Tensor.manual_seed(9)
  assert [t.tolist() for t in jitted()] == plain


def test_threads_share_the_stream_without_repeating_it() -> None:
  Tensor.manual_seed(9)
  alone = {tuple(Tensor.rand(3).tolist()) for _ in range(48)}
  Tensor.manual_seed(9)
  drawn: list[Tensor] = []
  threads = [threading.Thread(target=lambda: drawn.extend(Tensor.rand(3) for _ in range(12))) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert {tuple(t.tolist()) for t in reversed(drawn)} == alone
