"""Bessel, Airy, incomplete gamma, zeta functions, orthogonal polynomials: identities, known numbers, ends, slopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.func import grad, vmap


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


POINTS = [0.01, 0.7, 1.99, 2.01, 3.3, 3.99, 4.01, 7.5, 40.0]


def double(values: Any) -> Tensor:
  return Tensor(values, dtype="float64")


def test_wronskians() -> None:
  """They tie functions of both kinds together, on both sides of where the series change."""
  x = double(POINTS)
  swinging = x.bessel_j1() * x.bessel_y0() - x.bessel_j0() * x.bessel_y1()
  np.testing.assert_allclose(swinging.numpy(), 2 / (math.pi * x.numpy()), rtol=1e-13)
  growing = x.i0e() * x.scaled_modified_bessel_k1() + x.i1e() * x.scaled_modified_bessel_k0()
  np.testing.assert_allclose(growing.numpy(), 1 / x.numpy(), rtol=1e-14)


def test_known_numbers() -> None:
  # Abramowitz & Stegun, tables 9.1, 9.8, 10.11, and Γ(1/3)
  x = double([1.0, 5.0])
  assert x.bessel_j0().tolist() == pytest.approx([0.7651976865579666, -0.1775967713143383], rel=1e-14)
  assert x.modified_bessel_k0().tolist() == pytest.approx([0.4210244382407083, 0.003691098334042594], rel=1e-14)
  assert double(0).airy_ai().item() == pytest.approx(3 ** (-2 / 3) / math.gamma(2 / 3), rel=1e-15)
  assert double([2, 4, 2]).zeta(double([1, 1, 0.5])).tolist() == pytest.approx(
    [math.pi**2 / 6, math.pi**4 / 90, math.pi**2 / 2], rel=1e-14
  )
  # P(1, x) = 1 - exp(-x), P(1/2, x) = erf(√x)
  at = double([1e-3, 0.3, 2.0, 9.0])
  assert double(1).igamma(at).tolist() == pytest.approx((at * -1).expm1().neg().tolist(), rel=1e-13)
  assert double(0.5).igamma(at).tolist() == pytest.approx(at.sqrt().erf().tolist(), rel=1e-13)
  assert double(0.5).igammac(at).tolist() == pytest.approx(at.sqrt().erfc().tolist(), rel=1e-13)


def test_both_sides_of_where_the_methods_change() -> None:
  """The recurrence in `a` ties neighbours, of which one is computed by another method."""
  a, x = double([7.5, 19.5, 19.5, 19.5, 0.5, 200.0]), double([8.4, 20.4, 10.0, 60.0, 1.4, 520.0])
  step = (a * x.log() - x - (a + 1).lgamma()).exp()
  np.testing.assert_allclose((a.igamma(x) - (a + 1).igamma(x)).numpy(), step.numpy(), rtol=1e-9, atol=1e-16)
  np.testing.assert_allclose(((a + 1).igammac(x) - a.igammac(x)).numpy(), step.numpy(), rtol=1e-9, atol=1e-16)


def test_ends() -> None:
  x = Tensor([0.0, math.inf, -math.inf, math.nan, -1.0])
  ends = {
    "bessel_j0": "1.0 0.0 0.0 nan", "bessel_j1": "0.0 0.0 0.0 nan", "bessel_y0": "-inf 0.0 nan nan nan",
    "bessel_y1": "-inf 0.0 nan nan nan", "modified_bessel_k0": "inf 0.0 nan nan nan",
    "scaled_modified_bessel_k1": "inf 0.0 nan nan nan", "spherical_bessel_j0": "1.0 0.0 0.0 nan",
    "modified_bessel_i0": "1.0 inf inf nan", "modified_bessel_i1": "0.0 inf -inf nan",
  }  # fmt: skip
  found = {name: getattr(x, name)() for name in ends}
  Tensor.realize(*found.values())
  for name, expected in ends.items():
    assert " ".join(map(str, found[name].tolist())).startswith(expected), name
  assert str(x[1:4].airy_ai().tolist()) == "[0.0, 0.0, nan]"
  a, at = Tensor([0.0, 0, 1, 1, -1, 1, math.inf, math.inf]), Tensor([0.0, 1, 0, math.inf, 1, -1, 1, math.inf])
  assert str(a.igamma(at).tolist()) == "[nan, 1.0, 0.0, 1.0, nan, nan, 0.0, nan]"
  assert str(a.igammac(at).tolist()) == "[nan, 0.0, 1.0, 0.0, nan, nan, 1.0, nan]"
  s, q = Tensor([1.0, 0.5, 2, 2, 2.5, 3, math.inf]), Tensor([1.0, 1, 0, -1, -1.5, math.inf, 2])
  assert str(s.zeta(q).tolist()) == "[inf, nan, inf, inf, nan, 0.0, 0.0]"


def test_zeta_of_negative_numbers_is_a_sum() -> None:
  s, q = double([2, 3, 5, 8]), double([-0.5, -3.75, -2.25, -7.1])
  first = double(sum(1 / (q.numpy() + k) ** s.numpy() for k in range(8)))
  np.testing.assert_allclose(s.zeta(q).numpy(), (first + s.zeta(q + 8)).numpy(), rtol=1e-13)


SLOPES: dict[str, tuple[Callable[[Tensor], Tensor], list[float]]] = {
  **{
    name: (lambda x, name=name: getattr(x, name)(), points)  # type: ignore[misc]
    for name, points in {
      "bessel_j0": [-5.0, -1.0, 0.0, 1.0, 4.5], "bessel_j1": [-5.0, 0.0, 1.0, 4.5], "bessel_y0": [0.5, 3.0, 9.0],
      "bessel_y1": [0.5, 3.0, 9.0], "modified_bessel_k0": [0.5, 1.5, 3.0], "modified_bessel_k1": [0.5, 1.5, 3.0],
      "scaled_modified_bessel_k0": [0.5, 1.5, 3.0], "scaled_modified_bessel_k1": [0.5, 1.5, 3.0],
      "spherical_bessel_j0": [-2.0, 0.0, 0.4, 3.0], "airy_ai": [-7.0, -2.0, -0.5, 0.5, 1.4, 3.0],
    }.items()
  },
  "igamma": (lambda x: double(2.5).igamma(x), [0.3, 2.0, 6.0]),
  "igammac": (lambda x: double(30.0).igammac(x), [12.0, 29.0, 33.0, 90.0]),
  "igamma small": (lambda x: double(0.25).igamma(x), [0.1, 1.0, 4.0]),
  "zeta": (lambda x: double(3.0).zeta(x), [0.4, 2.0, -1.3]),
  "chebyshev": (lambda x: x.chebyshev_polynomial_t(5) + x.chebyshev_polynomial_u(40), [-0.9, 0.3, 1.1]),
  "legendre": (lambda x: x.legendre_polynomial_p(Tensor([4, 0, 3])), [-0.9, 0.3, 1.5]),
}  # fmt: skip


ALWAYS = ("bessel_j1", "bessel_y1", "airy_ai", "igamma small", "zeta", "legendre")


@pytest.mark.parametrize("name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.nightly) for n in SLOPES])
def test_slopes(name: str) -> None:
  """The first two derivatives against differences."""
  f, points = SLOPES[name]
  x, h = double(points), 1e-5
  slope = grad(lambda t: f(t).sum())
  curve = grad(lambda t: slope(t).sum())
  found = [slope(x), curve(x), (f(x + h) - f(x - h)) / (2 * h), (slope(x + h) - slope(x - h)) / (2 * h)]
  Tensor.realize(*found)
  first, second, near_first, near_second = (t.numpy() for t in found)
  np.testing.assert_allclose(first, near_first, rtol=1e-6, atol=1e-8)
  np.testing.assert_allclose(second, near_second, rtol=1e-6, atol=1e-8)


def test_a_gradient_that_is_not_known() -> None:
  a = double([1.0, 2.0])
  a.requires_grad_()
  for value in (a.igamma(double(2.0)), a.zeta(double(2.0))):
    with pytest.raises(RuntimeError, match="which is none in a value of shape \\(2,\\)"):
      value.sum().backward()


POLYNOMIALS: dict[str, Callable[[Any, Any], Any]] = {
  "chebyshev_polynomial_t": lambda n, t: np.cos(n * t),
  "chebyshev_polynomial_u": lambda n, t: np.sin((n + 1) * t) / np.sin(t),
  "chebyshev_polynomial_v": lambda n, t: np.cos((n + 0.5) * t) / np.cos(t / 2),
  "chebyshev_polynomial_w": lambda n, t: np.sin((n + 0.5) * t) / np.sin(t / 2),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_chebyshev_polynomials(name: str) -> None:
  t = np.linspace(0.1, 3.0, 7)
  x, f = double(np.cos(t)), POLYNOMIALS[name]
  few, many = getattr(x, name)(9), getattr(x, name)(Tensor([9, 0, 33, 1000, 7, 2, 31]))
  np.testing.assert_allclose(few.numpy(), f(9, t), rtol=1e-10, atol=1e-12)
  np.testing.assert_allclose(many.numpy(), f(np.array([9, 0, 33, 1000, 7, 2, 31]), t), rtol=1e-9, atol=1e-11)
  shifted = getattr((x + 1) * 0.5, f"shifted_{name}")(9)
  np.testing.assert_allclose(shifted.numpy(), few.numpy(), rtol=1e-10, atol=1e-12)
  # both ways agree outside of [-1, 1] and at its ends, where the angles are 0 and π
  x = double([-3.0, -1.0, 1.0, 1.5, -1.01, 1.25])
  stepped = [getattr(x, name)(k).numpy() for k in (6, 7, 32)]
  for k, by_steps in zip((6, 7, 32), stepped, strict=True):
    by_angle = getattr(x.cat(double([0.0])), name)(Tensor([k] * 6 + [33])).numpy()[:6]
    np.testing.assert_allclose(by_angle, by_steps, rtol=1e-11)


def test_polynomials_of_numbers() -> None:
  x = double([0.5, 2.0])
  assert x.hermite_polynomial_h(3).tolist() == [8 * 0.125 - 6, 64 - 24]
  assert x.hermite_polynomial_he(3).tolist() == [0.125 - 1.5, 8 - 6]
  assert x.laguerre_polynomial_l(2).tolist() == pytest.approx([0.125, -1])
  assert x.legendre_polynomial_p(2.9).tolist() == pytest.approx([-0.125, 5.5])
  assert x.legendre_polynomial_p(0).tolist() == [1, 1] and x.legendre_polynomial_p(-1).tolist() == [0, 0]
  assert Tensor([2, 3]).chebyshev_polynomial_t(2).tolist() == [7, 17]
  assert vmap(lambda v: v.legendre_polynomial_p(2))(x).tolist() == pytest.approx([-0.125, 5.5])
  degrees = Tensor([[0], [1], [-2]])
  assert x.hermite_polynomial_h(degrees).tolist() == [[1, 1], [1, 4], [0, 0]]
  with pytest.raises(ValueError, match="L of degree 5000 is a graph"):
    x.laguerre_polynomial_l(5000)


def test_low_precision_is_computed_in_float32() -> None:
  x = Tensor([0.5, 3.0], dtype="float16")
  assert x.bessel_j0().dtype.name == x.igamma(x).dtype.name == x.legendre_polynomial_p(3).dtype.name == "float16"
  np.testing.assert_allclose(x.bessel_y0().numpy(), x.float().bessel_y0().half().numpy())
