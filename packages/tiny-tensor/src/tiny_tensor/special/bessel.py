"""Bessel and Airy functions. float16 and bfloat16 are computed in float32.

Near 0 by series in x²; beyond, an exponential or a wave times a series in 1/x (Abramowitz & Stegun, "Handbook of
Mathematical Functions", chapters 9 and 10). `tables.py` has the series. Errors are stated in units of the last
place of 1 (eps: 1.2e-7 in float32, 2.2e-16 in float64); a test measures them. Where a function swings, they are
relative to the height of its wave.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tiny_tensor.autograd.custom_gradient import with_slopes
from tiny_tensor.special import chebyshev as ap
from tiny_tensor.special import series, table
from tiny_uop import truncate

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

NEAR_J, NEAR_K = 4.0, 2.0  # where the series in x² end


def bessel_j0(x: Tensor) -> Tensor:
  """J, the Bessel function of the first kind, of order 0; 0 at ±inf. Error: 4 eps of the wave √(2/(πx))."""
  x, dtype = x._with_precision()
  return with_slopes(_first_kind(x, 0), "bessel_j0", (x, SLOPES["j0"]))._as_dtype(dtype)


def bessel_j1(x: Tensor) -> Tensor:
  """J of order 1; 0 at ±inf. Error: 4 eps of the wave √(2/(πx)), relative below 3.8."""
  x, dtype = x._with_precision()
  return with_slopes(_first_kind(x, 1), "bessel_j1", (x, _j1_slope))._as_dtype(dtype)


def bessel_y0(x: Tensor) -> Tensor:
  """Y, the Bessel function of the second kind, of order 0; -inf at 0, NaN below. Error: 4 eps of the wave or of the
  value, whichever is larger.
  """
  x, dtype = x._with_precision()
  return with_slopes(_second_kind(x, 0), "bessel_y0", (x, SLOPES["y0"]))._as_dtype(dtype)


def bessel_y1(x: Tensor) -> Tensor:
  """Y of order 1; -inf at 0, NaN below. Error: 4 eps of the wave or of the value, whichever is larger."""
  x, dtype = x._with_precision()
  return with_slopes(_second_kind(x, 1), "bessel_y1", (x, SLOPES["y1"]))._as_dtype(dtype)


def modified_bessel_i0(x: Tensor) -> Tensor:
  """`i0`."""
  return x.i0()


def modified_bessel_i1(x: Tensor) -> Tensor:
  """`i1`."""
  return x.i1()


def modified_bessel_k0(x: Tensor) -> Tensor:
  """K, the modified Bessel function of the second kind, of order 0; inf at 0, NaN below. Relative error: 7 eps, and
  that of exp(-x).
  """
  x, dtype = x._with_precision()
  return with_slopes(_decaying(x, 0, False), "modified_bessel_k0", (x, SLOPES["k0"]))._as_dtype(dtype)


def modified_bessel_k1(x: Tensor) -> Tensor:
  """K of order 1; inf at 0, NaN below. Relative error: 7 eps, and that of exp(-x)."""
  x, dtype = x._with_precision()
  return with_slopes(_decaying(x, 1, False), "modified_bessel_k1", (x, SLOPES["k1"]))._as_dtype(dtype)


def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
  """`modified_bessel_k0(x) * exp(x)`, which does not become 0. Relative error: 7 eps."""
  x, dtype = x._with_precision()
  return with_slopes(_decaying(x, 0, True), "scaled_modified_bessel_k0", (x, SLOPES["k0e"]))._as_dtype(dtype)


def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
  """`modified_bessel_k1(x) * exp(x)`, which does not become 0. Relative error: 7 eps."""
  x, dtype = x._with_precision()
  return with_slopes(_decaying(x, 1, True), "scaled_modified_bessel_k1", (x, SLOPES["k1e"]))._as_dtype(dtype)


def spherical_bessel_j0(x: Tensor) -> Tensor:
  """sin(x)/x; 1 at 0, 0 at ±inf. Error: 2 eps of 1/x."""
  x, dtype = x._with_precision()
  plain = x.eq(0) | x.isinf()
  safe = plain.where(1.0, x)
  out = plain.where(x.eq(0).where(1.0, x.const_like(0)), safe.sin() / safe)
  return with_slopes(out, "spherical_bessel_j0", (x, _spherical_slope))._as_dtype(dtype)


def airy_ai(x: Tensor) -> Tensor:
  """The Airy function Ai; 0 at ±inf. With ζ = 2/3·|x|^(3/2), error: (5 + 1.2 ζ) eps, relative above -3.5 and of the
  wave |x|^(-1/4)/√π below.
  """
  x, dtype = x._with_precision()
  return with_slopes(_airy(x, 0), "airy_ai", (x, SLOPES["airy"]))._as_dtype(dtype)


def _less_zero(x: Tensor, zero: tuple[float, float]) -> Tensor:
  """x less a number that is given in two parts."""
  high = float(truncate(x.dtype, zero[0]))
  return (x - high) - (zero[0] - high + zero[1])


def _wave(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
  """(J, Y) for x from 4 on."""
  t = x.reciprocal() * NEAR_J
  u = t * t
  p, q = series(f"P{order}")(u), series(f"Q{order}")(u) * t
  c, s, height = x.cos(), x.sin(), (x * math.pi).rsqrt()
  if order == 0:
    return ((p + q) * c + (p - q) * s) * height, ((p + q) * s - (p - q) * c) * height
  return ((p + q) * s - (p - q) * c) * height, ((p - q) * s + (p + q) * c) * (height * -1)


def _near_j(x: Tensor, order: int) -> Tensor:
  """J for |x| up to 4."""
  zero = table(f"J{order}_ZERO")
  size, u = x.abs(), x * x
  out = series(f"J{order}")(u) * (_less_zero(size, zero) * (size + zero[0]))
  return (u < 1e-17).where(1.0, out) if order == 0 else out * x


def _first_kind(x: Tensor, order: int) -> Tensor:
  size = x.abs()
  near = size <= NEAR_J
  far = _wave((near | size.isinf()).where(NEAR_J, size), order)[0]
  far = far if order == 0 else (x < 0).where(far * -1, far)
  out = size.isinf().where(x.const_like(0), near.where(_near_j(near.where(x, 0.0), order), far))
  return x.isnan().where(x.detach(), out)


def _second_kind(x: Tensor, order: int) -> Tensor:
  inside = (x > 0) & x.ne(math.inf)
  near = inside & (x <= NEAR_J)
  safe = near.where(x, 1.0)
  smooth = series(f"Y{order}")(safe * safe)
  smooth = smooth if order == 0 else smooth / safe
  far = _wave((inside & (x > NEAR_J)).where(x, NEAR_J), order)[1]
  out = near.where(smooth + safe.log() * _near_j(safe, order) * (2 / math.pi), far)
  return inside.where(out, x.eq(0).where(-math.inf, x.eq(math.inf).where(x.const_like(0), math.nan)))


def _decaying(x: Tensor, order: int, scaled: bool) -> Tensor:
  """K, or K·exp(x)."""
  near = (x > 0) & (x <= NEAR_K)
  safe = near.where(x, 1.0)
  u = safe * safe
  smooth, rising = series(f"K{order}")(u), series(f"I{order}")(u) * (safe * 0.5).log()
  inner = smooth - rising if order == 0 else smooth / safe + rising * safe
  size = (x > NEAR_K).where(x, NEAR_K)
  outer = series(f"K{order}_FAR")(size.reciprocal() * 2) * size.rsqrt()
  if scaled:
    inner = inner * safe.exp()
  else:
    outer = outer * (size * -1).exp()
  out = near.where(inner, outer)
  return (x > 0).where(out, x.eq(0).where(math.inf, x.const_like(math.nan)))


def _airy(x: Tensor, derivative: int) -> Tensor:
  """Ai, or Ai'."""
  first, middle_end, last = table("AIRY_LOW").low, table("AIRY_LOW").high, table("AIRY_HIGH").high
  first_phase = 2 / 3 * (-first) ** 1.5
  names = ("AIRY_LOW", "AIRY_HIGH", "AIRY_FAR", "AIRY_P", "AIRY_Q")
  found = [table(name if derivative == 0 else name.replace("AIRY", "AIRY_SLOPE")) for name in names]
  low_series, high_series, far_series, p_series, q_series = found
  swinging, far = x < first, x > last
  middle = (swinging | far).where(0.0, x)
  low = low_series(middle.minimum(middle_end))
  low = low if derivative else low * _less_zero(middle, table("AIRY_ZERO"))
  inner = (x < middle_end).where(low, high_series(middle.maximum(middle_end)))
  size = (swinging | far).where(x.abs(), -first)
  root = size.sqrt()
  zeta = size * root * (2 / 3)
  width = root.sqrt() if derivative else root.rsqrt()
  decay = far.where(zeta, first_phase)
  outer = far_series(decay.reciprocal()) * (decay * -1).exp() * width
  endless = zeta.isinf()
  z = (swinging & endless.logical_not()).where(zeta, first_phase)
  t = z.reciprocal() * first_phase
  u = t * t
  p, q, c, s = p_series(u), q_series(u) * t, z.cos(), z.sin()
  wave = (p - q) * s - (p + q) * c if derivative else (p - q) * c + (p + q) * s
  wave = endless.where(x.const_like(0), wave * width * math.sqrt(0.5 / math.pi))
  out = swinging.where(wave, far.where(endless.where(x.const_like(0), outer), inner))
  return x.isnan().where(x.detach(), out)


# Derivatives, by the function's value y and its argument x.

SLOPES: dict[str, Callable[..., Any]] = {
  "j0": lambda y, x: x.bessel_j1() * -1,
  "y0": lambda y, x: x.bessel_y1() * -1,
  "y1": lambda y, x: x.bessel_y0() - y / x,
  "k0": lambda y, x: x.modified_bessel_k1() * -1,
  "k1": lambda y, x: x.modified_bessel_k0() * -1 - y / x,
  "k0e": lambda y, x: y - x.scaled_modified_bessel_k1(),
  "k1e": lambda y, x: y - y / x - x.scaled_modified_bessel_k0(),
  "airy": lambda y, x: with_slopes(_airy(x, 1), "airy_ai_slope", (x, SLOPES["airy_curve"])),
  "airy_curve": lambda y, x: x * x.airy_ai(),
}
"""Derivatives that are one expression: of the value of a function and its arguments."""


def _j1_slope(y: Tensor, x: Tensor) -> Tensor:
  zero = x.eq(0)
  return zero.where(0.5, x.bessel_j0() - y / zero.where(1.0, x))


def spherical_rest(u: float) -> float:
  """The derivative of sin(x)/x, over x, by u = x²."""
  return math.fsum((-1) ** (k + 1) * (2 * k + 2) * u**k / math.factorial(2 * k + 3) for k in range(12))


def _spherical_slope(y: Tensor, x: Tensor) -> Tensor:
  small = x.abs() < 1
  inner, outer = small.where(x, 0.0), small.where(1.0, x)
  near = ap.polynomial(spherical_rest, 0.0, 1.0, inner * inner) * inner
  return small.where(near, (outer.cos() - y) / outer)
