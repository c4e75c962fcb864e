"""Elementary functions. Integers are cast to the default float first."""

from __future__ import annotations

import math
from typing import Self

from tiny_tensor import approximation as ap
from tiny_tensor.base import Operand
from tiny_tensor.elementwise import ElementwiseMixin
from tiny_uop import DType, Ops, dtypes


class MathMixin(ElementwiseMixin):
  """Exponentials, logarithms, trigonometric and hyperbolic functions, powers."""

  __slots__ = ()

  def exp(self) -> Self:
    """e to the power of self."""
    return self.as_float().alu(Ops.EXP)

  def exp2(self) -> Self:
    """2 to the power of self."""
    return self.as_float().alu(Ops.EXP2)

  def log(self) -> Self:
    """Natural logarithm; -inf at 0, NaN below."""
    return self.as_float().alu(Ops.LOG)

  def log2(self) -> Self:
    """Logarithm to base 2."""
    return self.as_float().alu(Ops.LOG2)

  def log10(self) -> Self:
    """Logarithm to base 10."""
    return self.log2() * math.log10(2)

  def sqrt(self) -> Self:
    """Square root; NaN below 0."""
    return self.as_float().alu(Ops.SQRT)

  def rsqrt(self) -> Self:
    """`1 / sqrt(self)`."""
    return self.sqrt().reciprocal()

  def sin(self) -> Self:
    """Sine, of radians."""
    return self.as_float().alu(Ops.SIN)

  def cos(self) -> Self:
    """Cosine, of radians."""
    return self.as_float().alu(Ops.COS)

  def tan(self) -> Self:
    """Tangent, of radians."""
    return self.sin() / self.cos()

  def with_precision(self) -> tuple[Self, DType]:
    """Self in at least float32, and the dtype to return to: for functions of several steps."""
    x = self.as_float()
    return (x if x.dtype.bits >= 32 else x.as_dtype(dtypes.float32)), x.dtype

  def asin(self) -> Self:
    """Arc sine; NaN outside [-1, 1]."""
    x, dtype = self.with_precision()
    size = x.abs()
    small = size <= 0.5
    # asin(x) = π/2 - 2·asin(√((1-x)/2)) brings the upper half to the lower one
    u = small.where(x * x, (size.mul(-1) + 1) * 0.5)
    root = (small.where(1.0, u)).sqrt()
    core = ap.chebyshev(ap.asin_ratio, 0.0, 0.25, u.clamp(0.0, 0.25))
    upper = (root * core).mul(-2).add(math.pi / 2)
    out = small.where(x * core, (x < 0).where(upper.mul(-1), upper))
    return ((size > 1) | x.isnan()).where(math.nan, out).as_dtype(dtype)

  def acos(self) -> Self:
    """Arc cosine; NaN outside [-1, 1]."""
    x, dtype = self.with_precision()
    return x.asin().mul(-1).add(math.pi / 2).as_dtype(dtype)

  def atan(self) -> Self:
    """Arc tangent."""
    x, dtype = self.with_precision()
    size = x.abs()
    large, middle = size > 1 + math.sqrt(2), size > math.sqrt(2) - 1
    # atan(x) = π/2 - atan(1/x) = π/4 + atan((x-1)/(x+1)) bring everything to |x| <= √2-1
    reduced = large.where(large.where(size, 1).reciprocal().mul(-1), middle.where((size - 1) / (size + 1), size))
    reduced = size.isinf().where(0.0, reduced)
    core = reduced * ap.chebyshev(ap.atan_ratio, 0.0, 0.1716, reduced * reduced)
    out = core + large.where(math.pi / 2, middle.where(math.pi / 4, 0.0))
    return (x < 0).where(out.mul(-1), out).as_dtype(dtype)

  def sinh(self) -> Self:
    """Hyperbolic sine."""
    x, dtype = self.with_precision()
    small = x.abs() < 1
    inner = small.where(x, 0.0)
    near = inner * ap.chebyshev(ap.sinh_ratio, 0.0, 1.0, inner * inner)
    size = (x < 0).where(x.mul(-1), x)
    half = (size * 0.5).exp()
    # e^x overflows before e^x/2 does
    far = half * 0.5 * half - size.mul(-1).exp() * 0.5
    return small.where(near, (x < 0).where(far.mul(-1), far)).as_dtype(dtype)

  def cosh(self) -> Self:
    """Hyperbolic cosine."""
    x, dtype = self.with_precision()
    half = (x.abs() * 0.5).exp()
    return (half * 0.5 * half + x.abs().mul(-1).exp() * 0.5).as_dtype(dtype)

  def tanh(self) -> Self:
    """Hyperbolic tangent."""
    x, dtype = self.with_precision()
    small = x.abs() < 0.55
    inner = small.where(x, 0.0)
    near = inner * ap.chebyshev(ap.tanh_ratio, 0.0, 0.3025, inner * inner)
    e = (x * -2).clamp(None, 80.0).exp()
    return small.where(near, ((e + 1).reciprocal() * 2 - 1)).as_dtype(dtype)

  def log1p_small(self) -> Self:
    """log(1 + self) for self >= -0.5, accurate near 0."""
    near = self.abs() < 0.5
    inner = near.where(self, 0.0)
    return near.where(inner * ap.chebyshev(ap.log1p_ratio, -0.5, 0.5, inner), (near.where(0.0, self) + 1).log())

  def asinh(self) -> Self:
    """Inverse hyperbolic sine."""
    x, dtype = self.with_precision()
    size = (x < 0).where(x.mul(-1), x)
    # x² overflows where log(2x) is exact
    big = size > 1e8
    s = big.where(1.0, size)
    # log(s + √(s²+1)) = log1p(s + s²/(1 + √(s²+1)))
    mid = (s + s * s / ((s * s + 1).sqrt() + 1)).log1p_small()
    out = big.where(big.where(size, 1.0).log() + math.log(2), mid)
    return (x < 0).where(out.mul(-1), out).as_dtype(dtype)

  def acosh(self) -> Self:
    """Inverse hyperbolic cosine; NaN below 1."""
    x, dtype = self.with_precision()
    big = x > 1e8
    s = big.where(1.5, x)
    t = s - 1
    mid = (t + (t * (s + 1)).sqrt()).log1p_small()
    return big.where(big.where(x, 1.0).log() + math.log(2), mid).as_dtype(dtype)

  def atanh(self) -> Self:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    x, dtype = self.with_precision()
    size = (x < 0).where(x.mul(-1), x)
    out = (size * 2 / (size.mul(-1) + 1)).log1p_small() * 0.5
    return (x < 0).where(out.mul(-1), out).as_dtype(dtype)

  def erf(self) -> Self:
    """Error function."""
    x, dtype = self.with_precision()
    size = x.abs()
    small = size < 1
    inner = small.where(x, 0.0)
    near = inner * ap.chebyshev(ap.erf_ratio, 0.0, 1.0, inner * inner)
    z = small.where(1.0, size.clamp(None, 12.0))
    t = (z + 2).reciprocal() * 2
    tail = t * (ap.chebyshev(ap.erfc_scaled_log, 2 / 14, 2 / 3, t) - z * z).exp()
    far = (x < 0).where(tail - 1, tail.mul(-1) + 1)
    return x.isnan().where(x, small.where(near, far)).as_dtype(dtype)

  # *** powers ***

  def pow(self, x: Operand, reverse: bool = False) -> Self:
    """`self ** x`. Integers to a negative power are 0 unless the base is 1 or -1 (PyTorch)."""
    if not reverse and isinstance(x, (int, float)) and not isinstance(x, bool):
      if float(x).is_integer() and abs(x) <= 64 and (x >= 0 or dtypes.is_float(self.dtype)):
        dtype = self.dtype if isinstance(x, int) else dtypes.promote(self.dtype, self.as_float().dtype)
        return self.as_dtype(dtype).counted().integer_power(int(x))
      if x == 0.5:
        return self.sqrt()
      if x == -0.5:
        return self.rsqrt()
    base, exponent = self.pair(x, reverse)
    if not dtypes.is_float(base.dtype):
      return base.counted().integer_pow(exponent.counted())
    out, dtype = base.with_precision()
    return out.float_pow(exponent.as_dtype(out.dtype)).as_dtype(dtype)

  def integer_power(self, n: int) -> Self:
    """By repeated squaring: exact where the products are."""
    if n < 0:
      return self.integer_power(-n).reciprocal()
    out, square = None, self
    while n:
      if n & 1:
        out = square if out is None else out * square
      square, n = square * square, n >> 1
    return self.const_like(1) if out is None else out

  def integer_pow(self, n: Self) -> Self:
    """Integer to integer power, one squaring per bit of the exponent."""
    out, square = self.const_like(1), self
    for bit in range(self.dtype.bits - (0 if dtypes.is_unsigned(self.dtype) else 1)):
      out = n.bits(Ops.AND, 1 << bit).ne(0).where(out * square, out)
      square = square * square
    if dtypes.is_unsigned(self.dtype):
      return out
    odd = n.bits(Ops.AND, 1).ne(0)
    unit = self.eq(1).where(
      self.const_like(1), self.eq(-1).where(odd.where(self.const_like(-1), self.const_like(1)), 0)
    )
    return (n < 0).where(unit, out)

  def float_pow(self, y: Self) -> Self:
    """x^y = ±2^(y·log2|x|), with the special cases of C's pow. The gradient is exact at x = 0 for y = 1 too."""
    zero, negative = self.eq(0), self < 0
    size = zero.where(1.0, self.abs())
    out = (y * size.log2()).exp2()
    whole = y.trunc() == y
    odd = whole & ((y * 0.5).trunc() * 2 != y)
    out = negative.where((whole | self.isinf()).where(odd.where(out.mul(-1), out), math.nan), out)
    pole = odd.where(self.detach().reciprocal(), math.inf)
    at_zero = y.eq(1).where(self, y.eq(0).where(1.0, (y < 0).where(pole, y.isnan().where(y, self.const_like(0)))))
    out = zero.where(at_zero, out)
    # infinite bases and exponents: |x| = 1 gives 1 for any y, y = 0 gives 1 for any x, even NaN
    out = (self.abs().eq(1) & y.isinf()).where(1.0, out)
    return (y.eq(0) | self.eq(1)).where(1.0, out)

  def logaddexp(self, other: Operand) -> Self:
    """`log(exp(self) + exp(other))` without overflow."""
    a, b = self.as_float().pair(other)
    a, b = a.as_float(), b.as_float()
    top = a.maximum(b)
    low = a.minimum(b)
    # equal infinities have no difference
    gap = ((top == low) & top.isinf()).where(0.0, low - top)
    return top + gap.exp().log1p_small()
