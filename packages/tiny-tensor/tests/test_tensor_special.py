"""Special functions against the C library's, and derivatives that are known in closed form; numbers that are exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from tiny_tensor import Context, Tensor


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


POINTS = [-7.25, -2.5, -1.1, -0.3, 1e-3, 0.4, 0.999, 1.0, 1.7, 2.0, 3.5, 7.9, 8.1, 15.0, 26.0]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 3e-6)])
@pytest.mark.parametrize(("name", "theirs"), [("erfc", math.erfc), ("lgamma", math.lgamma)], ids=["erfc", "lgamma"])
def test_against_the_c_library(name: str, theirs: Callable[[float], float], dtype: str, tolerance: float) -> None:
  x = Tensor(POINTS, dtype=dtype)
  for point, got in zip(x.tolist(), getattr(x, name)().tolist(), strict=True):
    expected = theirs(point)
    if abs(expected) > 1e-37 or dtype == "float64":  # float32 ends there
      # near its zeros lgamma is a difference
      assert got == pytest.approx(expected, rel=tolerance * max(1, point * point), abs=tolerance), point


def test_inverses() -> None:
  x = Tensor([-0.999999, -0.7, -1e-4, 0.0, 0.3, 0.97, 0.9999999], dtype="float64")
  assert x.erfinv().erf().tolist() == pytest.approx(x.tolist(), rel=1e-12)
  p = Tensor([1e-6, 0.2, 0.5, 0.9], dtype="float64")
  assert p.ndtri().ndtr().tolist() == pytest.approx(p.tolist(), rel=1e-9)
  assert p.logit().sigmoid().tolist() == pytest.approx(p.tolist(), rel=1e-12)


def test_digamma_and_trigamma_of_whole_and_half_numbers() -> None:
  euler = 0.5772156649015329
  x = Tensor([1.0, 0.5, 2.0, -0.5], dtype="float64")
  known = [-euler, -euler - 2 * math.log(2), 1 - euler, 2 - euler - 2 * math.log(2)]
  assert x.digamma().tolist() == pytest.approx(known, rel=1e-12)
  known = [math.pi**2 / 6, math.pi**2 / 2, math.pi**2 / 6 - 1, math.pi**2 / 2 + 4]
  assert x.polygamma(1).tolist() == pytest.approx(known, rel=1e-12)


def test_gradient_of_lgamma_is_digamma() -> None:
  x = Tensor([0.3, 2.5, 9.0, -1.5], dtype="float64", requires_grad=True)
  (slope,) = x.lgamma().sum().gradient(x)
  assert slope.tolist() == pytest.approx(x.digamma().tolist(), rel=1e-12)
  (curve,) = slope.sum().gradient(x)
  assert curve.tolist() == pytest.approx(x.polygamma(1).tolist(), rel=1e-12)


def test_bessel_functions_and_their_recurrence() -> None:
  # of Abramowitz & Stegun, table 9.8
  assert Tensor([1.0, 5.0], dtype="float64").i0e().tolist() == pytest.approx([0.4657596077, 0.1835408126], rel=1e-9)
  x = Tensor([0.5, 3.0, 7.9, 8.1, 30.0], dtype="float64", requires_grad=True)
  (slope,) = x.i1().sum().gradient(x)
  assert slope.tolist() == pytest.approx((x.i0() - x.i1() / x).tolist(), rel=1e-10)


def test_ends() -> None:
  x = Tensor([math.inf, -math.inf, math.nan])
  assert str(x.erfc().tolist()) == "[0.0, 2.0, nan]"
  assert str(x.lgamma().tolist()) == "[inf, inf, nan]"
  assert Tensor([0.0, -1.0]).lgamma().tolist() == [math.inf, math.inf]
  assert str(Tensor([1.0, -1.0, 1.5]).erfinv().tolist()) == "[inf, -inf, nan]"
