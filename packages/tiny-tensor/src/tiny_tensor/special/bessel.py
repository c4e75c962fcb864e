"""Bessel and Airy functions. float16 and bfloat16 are computed in float32.

Near 0 by series in x²; beyond, an exponential or a wave times a series in 1/x (Abramowitz & Stegun, "Handbook of
Mathematical Functions", chapters 9 and 10). `tables.py` has the series. Errors are stated in units of the last
place of 1 (eps: 1.2e-7 in float32, 2.2e-16 in float64); a test measures them. Where a function swings, they are
relative to the height of its wave.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiny_tensor.autograd.custom_gradient import precise
from tiny_tensor.special import series, table
from tiny_uop import truncate

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

NEAR_J, NEAR_K = 4.0, 2.0  # where the series in x² end


def _j1_slope(y: Tensor, x: Tensor) -> Tensor:
  zero = x.eq(0)
  return zero.where(0.5, x.bessel_j0() - y / zero.where(1.0, x))


@precise(lambda y, x: x.bessel_j1() * -1)
def bessel_j0(x: Tensor) -> Tensor:
  """J, the Bessel function of the first kind, of order 0; 0 at ±inf. Error: 4 eps of the wave √(2/(πx))."""
  return _first_kind(x, 0)


@precise(_j1_slope)
def bessel_j1(x: Tensor) -> Tensor:
  """J of order 1; 0 at ±inf. Error: 4 eps of the wave √(2/(πx)), relative below 3.8."""
  return _first_kind(x, 1)


@precise(lambda y, x: x.bessel_y1() * -1)
def bessel_y0(x: Tensor) -> Tensor:
  """Y, the Bessel function of the second kind, of order 0; -inf at 0, NaN below. Error: 4 eps of the wave or of the
  value, whichever is larger.
  """
  return _second_kind(x, 0)


@precise(lambda y, x: x.bessel_y0() - y / x)
def bessel_y1(x: Tensor) -> Tensor:
  """Y of order 1; -inf at 0, NaN below. Error: 4 eps of the wave or of the value, whichever is larger."""
  return _second_kind(x, 1)


@precise(lambda y, x: x.modified_bessel_k1() * -1)
def modified_bessel_k0(x: Tensor) -> Tensor:
  """K, the modified Bessel function of the second kind, of order 0; inf at 0, NaN below. Relative error: 7 eps, and
  that of exp(-x).
  """
  return _decaying(x, 0, False)


@precise(lambda y, x: x.modified_bessel_k0() * -1 - y / x)
def modified_bessel_k1(x: Tensor) -> Tensor:
  """K of order 1; inf at 0, NaN below. Relative error: 7 eps, and that of exp(-x)."""
  return _decaying(x, 1, False)


@precise(lambda y, x: y - x.scaled_modified_bessel_k1())
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
  """`modified_bessel_k0(x) * exp(x)`, which does not become 0. Relative error: 7 eps."""
  return _decaying(x, 0, True)


@precise(lambda y, x: y - y / x - x.scaled_modified_bessel_k0())
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
  """`modified_bessel_k1(x) * exp(x)`, which does not become 0. Relative error: 7 eps."""
  return _decaying(x, 1, True)


def spherical_bessel_j0(x: Tensor) -> Tensor:
  """sin(x)/x; 1 at 0, 0 at ±inf. Error: 2 eps of 1/x."""
  far = x.isinf()
  return far.where(0.0, far.where(1.0, x)._sine_ratio())


@precise(lambda slope, x: x * x.airy_ai())
def airy_ai_slope(x: Tensor) -> Tensor:
  """Ai'."""
  return _airy(x, 1)


@precise(lambda y, x: airy_ai_slope(x))
def airy_ai(x: Tensor) -> Tensor:
  """The Airy function Ai; 0 at ±inf. With ζ = 2/3·|x|^(3/2), error: (5 + 1.2 ζ) eps, relative above -3.5 and of the
  wave |x|^(-1/4)/√π below.
  """
  return _airy(x, 0)


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
