"""`%`, `//` and `fmod` of floats, bit by bit, against C's `fmod` and Python's definition of the other two."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tiny_tensor import Context, Tensor, TinyJit

Array = NDArray[np.floating]
Compute = Callable[[Tensor, Tensor], list[Tensor]]


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def remainder(a: float, b: float) -> float:
  return math.fmod(a, b) if math.isfinite(a) and b else math.nan


def modulo(a: float, b: float) -> float:
  """Python's `%`, which raises for a divisor 0, and is inexact for no float64."""
  return a % b if math.isfinite(a) and b else math.nan


def quotient(a: float, b: float) -> float:
  if not b:
    return math.nan if not a or math.isnan(a) or math.isnan(b) else math.copysign(math.inf, a) * math.copysign(1, b)
  return a // b if math.isfinite(a) else math.nan


def bits(x: Array) -> NDArray[np.unsignedinteger]:
  return x.view(f"u{x.dtype.itemsize}")


def results(x: Tensor, y: Tensor) -> list[Tensor]:
  made = [x.fmod(y), x % y, x // y]
  made[0].realize(*made[1:])
  return made


def check(a: Array, b: Array, expected: tuple[Array, Array, Array], compute: Compute = results) -> None:
  """The three results for operands, which are compared bit by bit but for NaN."""
  found = [r.numpy() for r in compute(Tensor(a).realize(), Tensor(b).realize())]
  for name, got, wanted in zip(("fmod", "%", "//"), found, expected, strict=True):
    same = (bits(got) == bits(wanted)) | (np.isnan(got) & np.isnan(wanted))
    wrong = np.nonzero(~same)[0][:3]
    assert same.all(), [f"{name} of {a[i]!r}, {b[i]!r} is {wanted[i]!r}, got {got[i]!r}" for i in wrong]


SPECIAL = (0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.5, 4095.99, 4096.0, 8388608.0, 16777215.0, 1e20, 1e30, math.inf, math.nan)
LIMITS = {"float16": (6e-8, 6.1e-5, 65504.0), "float32": (1e-45, 1.1754943508222875e-38, 3.4028234663852886e38),
          "float64": (5e-324, 2.2250738585072014e-308, 1.7976931348623157e308)}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_special_numbers(dtype: str) -> None:
  sizes = [*SPECIAL, *LIMITS[dtype]]
  with np.errstate(all="ignore"):
    points = np.array([s for v in sizes for s in (v, -v)], dtype)
  a, b = (v.ravel().copy() for v in np.meshgrid(points, points))
  # of float16 and float32 Python's results in float64 are rounded once, and remainders not at all
  wanted = [np.array([f(float(p), float(q)) for p, q in zip(a, b)]) for f in (remainder, modulo, quotient)]
  with np.errstate(all="ignore"):
    check(a, b, (wanted[0].astype(dtype), wanted[1].astype(dtype), np.floor_divide(a, b)))
  if dtype == "float64":
    check(a, b, (wanted[0], wanted[1], wanted[2]))


@pytest.fixture(scope="module")
def captured() -> Compute:
  return TinyJit(results)


@given(pairs=st.lists(st.tuples(st.floats(), st.floats()), min_size=30, max_size=30))
def test_float64_is_python(captured: Compute, pairs: list[tuple[float, float]]) -> None:
  a, b = (np.array(v) for v in zip(*pairs))
  made = [np.array([f(p, q) for p, q in pairs]) for f in (remainder, modulo, quotient)]
  check(a, b, (made[0], made[1], made[2]), captured)


def patterns(dtype: str, count: int, seed: int) -> tuple[Array, Array]:
  """Numbers of any bits; of exponents next to each other; multiples, or next to them."""
  rng = np.random.default_rng(seed)
  kind = f"u{np.dtype(dtype).itemsize}"
  made = []
  for _ in range(2):
    any_bits = np.frombuffer(rng.bytes(count * np.dtype(dtype).itemsize), kind).view(dtype)
    near = np.ldexp(rng.standard_normal(count), rng.integers(-20, 12, count)).astype(dtype)
    made.append(np.concatenate([any_bits, near]))
  a, b = made
  with np.errstate(all="ignore"):
    times = (b * rng.integers(1, 1000, 2 * count).astype(dtype)).astype(dtype)
    return np.concatenate([a, times]), np.concatenate([b, b])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_bits(dtype: str) -> None:
  a, b = patterns(dtype, 250, 0)
  with np.errstate(all="ignore"):
    check(a, b, (np.fmod(a, b), np.remainder(a, b), np.floor_divide(a, b)))


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8e4m3", "fp8e5m2"])
def test_narrow_floats_are_exact(dtype: str) -> None:
  a, b = (Tensor(v).cast(dtype) for v in patterns("float32", 100, 1))
  p, q = a.numpy().astype(np.float32), b.numpy().astype(np.float32)
  with np.errstate(all="ignore"):
    np.testing.assert_array_equal(a.fmod(b).cast("float32").numpy(), np.fmod(p, q))
    for got, wanted in ((a % b, np.remainder(p, q)), (a // b, np.floor_divide(p, q))):
      assert got.dtype.name == a.dtype.name
      np.testing.assert_array_equal(got.cast("float32").numpy(), Tensor(wanted).cast(dtype).cast("float32").numpy())


def test_remainders_of_python_numbers() -> None:
  x = Tensor([1.0, -5.5, 1e30, 5.0])
  assert (x % 0.1).tolist() == (x.numpy() % np.float32(0.1)).tolist()
  assert (x // math.inf).tolist() == [0.0, -1.0, 0.0, 0.0]
  assert (x % math.inf).tolist() == [1.0, math.inf, float(np.float32(1e30)), 5.0]
  assert (7 % Tensor([-4.0, 4.0])).tolist() == [-1.0, 3.0]
  # the sign of a remainder 0 is that of the divisor
  assert [math.copysign(1, v) for v in (Tensor([-4.0, 4.0, -0.0]) % Tensor([2.0, -2.0, 1.0])).tolist()] == [1, -1, 1]


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_more_random_bits(dtype: str) -> None:
  for seed in range(20):
    a, b = patterns(dtype, 5000, seed + 10)
    with np.errstate(all="ignore"):
      check(a, b, (np.fmod(a, b), np.remainder(a, b), np.floor_divide(a, b)))
