"""Arithmetic, comparison, bitwise operations, selection, parts of numbers, logic; Python's operators."""

from __future__ import annotations

import math
import operator
import typing
from functools import reduce
from typing import Any, Self, TypeVar

from tiny_tensor.autograd.custom_gradient import flat_in, with_slopes
from tiny_tensor.base import DTypeLike, Operand, TensorBase, const_uop, is_const, python_number, to_dtype
from tiny_tensor.methods import remainder
from tiny_tensor.naming import known_as, unary
from tiny_uop import DType, Ops, dtypes
from tiny_uop.dtype import FLOAT_LIMITS

E = TypeVar("E", bound=TensorBase)


def _differ(value: E, x: E) -> E:
  return value.ne(x)._as_dtype(x.dtype)


class ElementwiseMixin(TensorBase):
  """Operations of one or more operands, element by element. Operands broadcast and their dtypes promote."""

  __slots__ = ()

  def cast(self, dtype: object) -> Self:
    """Convert to another dtype (or its name). Float → int truncates toward zero."""
    return self._as_dtype(to_dtype(dtype))  # type: ignore[arg-type]

  def bitcast(self, dtype: object) -> Self:
    """Reinterpret the bits. For another item size the last axis scales; ValueError where it does not divide."""
    target = to_dtype(dtype)  # type: ignore[arg-type]
    uop = self.uop.bitcast(target)
    uop.shape  # noqa: B018  # worked out now, so that the error is raised here
    return self if target == self.dtype else self._derive(uop)

  def _as_float(self, dtype: DTypeLike | None = None) -> Self:
    """Itself, or for bool and integers cast to the default float: what float maths works on. With `dtype` cast to that,
    which has to be a float: TypeError."""
    if dtype is not None:
      kind = to_dtype(dtype)
      if not dtypes.is_float(kind):
        raise TypeError(f"the result is a float, which {kind.name} cannot hold: cast it afterwards")
      return self._as_dtype(kind)
    return self if dtypes.is_float(self.dtype) else self._as_dtype(dtypes.default_float)

  # *** arithmetic ***

  def _pair(self, x: Operand, reverse: bool = False) -> tuple[Self, Self]:
    """Both operands with one shape and dtype, swapped if `reverse`."""
    a, b = self._broadcasted(x)
    return (b, a) if reverse else (a, b)

  def add(self, x: Operand, reverse: bool = False, alpha: float = 1) -> Self:
    """`self + alpha * x`."""
    a, b = self._pair(x, reverse)
    return a.alu(Ops.ADD, b if alpha == 1 else b._scaled(alpha))

  def _scaled(self, factor: float) -> Self:
    """`self * factor` in the dtype of `self`; integers and bool only by whole numbers: TypeError."""
    if not dtypes.is_float(self.dtype) and not float(factor).is_integer():
      raise TypeError(f"alpha={factor} is not for {self.dtype.name}: give a whole number")
    return self.mul(factor if dtypes.is_float(self.dtype) else int(factor))._as_dtype(self.dtype)

  def neg(self) -> Self:
    """`-self`; `logical_not` for bool."""
    return self.logical_not() if dtypes.is_bool(self.dtype) else self.mul(-1)

  def sub(self, x: Operand, reverse: bool = False, alpha: float = 1) -> Self:
    """`self - alpha * x`."""
    a, b = self._pair(x, reverse)
    if dtypes.is_bool(a.dtype):
      raise TypeError("bool tensors cannot be subtracted: use ^ (logical xor) or cast them to an integer")
    return a.alu(Ops.ADD, b.mul(-1) if alpha == 1 else b._scaled(-alpha))

  def mul(self, x: Operand, reverse: bool = False) -> Self:
    """`self * x`."""
    a, b = self._pair(x, reverse)
    return a.alu(Ops.MUL, b)

  def div(self, x: Operand, reverse: bool = False, rounding_mode: str | None = None) -> Self:
    """`self / x`, a float. `rounding_mode` "trunc" or "floor" rounds, and keeps integers integers."""
    a, b = self._pair(x, reverse)
    if rounding_mode == "floor":
      return a.floordiv(b)
    if rounding_mode == "trunc":
      return a.idiv(b)
    if rounding_mode is not None:
      raise ValueError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    return a._as_float().alu(Ops.FDIV, b._as_float())

  def floordiv(self, x: Operand, reverse: bool = False) -> Self:
    """`self // x`, rounded toward -inf, as Python does: of floats the exact quotient, and ±inf or NaN for a divisor 0.
    Integer division by 0 gives 0, as in NumPy.
    """
    a, b = self._pair(x, reverse)
    if dtypes.is_float(a.dtype):
      return remainder.floor_quotient(a, b)
    a, b = a._counted(), b._counted()
    return a.alu(Ops.FLOORDIV, b)

  def idiv(self, x: Operand, reverse: bool = False) -> Self:
    """Division rounded toward zero."""
    a, b = self._pair(x, reverse)
    if dtypes.is_float(a.dtype):
      return a.div(b).trunc()
    return a._counted().alu(Ops.TRUNCDIV, b._counted())

  def _counted(self) -> Self:
    """bool as int8: what integer division works on."""
    return self._as_dtype(dtypes.int8) if dtypes.is_bool(self.dtype) else self

  def mod(self, x: Operand, reverse: bool = False) -> Self:
    """`self % x`: the remainder of floor division, with the sign of `x`. Of floats it is exact, as Python's: NaN for an
    infinite `self` and a divisor 0.
    """
    a, b = self._pair(x, reverse)
    return remainder.floored(a, b) if dtypes.is_float(a.dtype) else a._counted().alu(Ops.FLOORMOD, b._counted())

  def fmod(self, x: Operand, reverse: bool = False) -> Self:
    """Remainder of the division rounded toward zero, with the sign of `self`: of floats C's `fmod`, which is exact."""
    a, b = self._pair(x, reverse)
    return remainder.truncated(a, b) if dtypes.is_float(a.dtype) else a._counted().alu(Ops.TRUNCMOD, b._counted())

  def abs(self) -> Self:
    """Magnitude."""
    if dtypes.is_unsigned(self.dtype) or dtypes.is_bool(self.dtype):
      return self._apart()
    size = self.alu(Ops.MAX, self.mul(-1))
    # of 0.0 and -0.0 either is a maximum
    return self.ne(0).where(size, self.const_like(0)) if dtypes.is_float(self.dtype) else size

  def sign(self) -> Self:
    """-1, 0 or 1; NaN stays."""
    if dtypes.is_bool(self.dtype):
      return self._apart()
    up, zero = self.const_like(1), self.const_like(0)
    down = zero if dtypes.is_unsigned(self.dtype) else self.const_like(-1)
    out = (self > 0).where(up, (self < 0).where(down, zero))
    return (self != self).where(self.detach(), out)._flat_in(self) if dtypes.is_float(self.dtype) else out

  sgn = sign

  square = unary("`self * self`.", lambda x: x * x)
  reciprocal = unary("`1 / self`.", lambda x: x.div(1, reverse=True))

  def _flat_in(self, *others: Self) -> Self:
    """Itself, which depends on other floats, with derivatives 0, though its graph does not show it."""
    floats = [o for o in others if dtypes.is_float(o.dtype) and not is_const(o.uop)]
    return self._derive(flat_in(self.uop, *[o.uop for o in floats]), *floats) if floats else self

  def detach(self) -> Self:
    """The same values, through which no gradient flows."""
    detached = self._wrap(self.uop.detach(), False)
    detached._contents = self._contents
    return detached

  # *** rounding ***

  def trunc(self) -> Self:
    """Rounded toward zero; integers stay."""
    return self.alu(Ops.TRUNC) if dtypes.is_float(self.dtype) else self._apart()

  def floor(self) -> Self:
    """Rounded toward -inf."""
    whole = self.trunc()
    return (self < whole).where(whole - 1, whole) if dtypes.is_float(self.dtype) else whole

  def ceil(self) -> Self:
    """Rounded toward +inf."""
    whole = self.trunc()
    return (self > whole).where(whole + 1, whole) if dtypes.is_float(self.dtype) else whole

  def round(self, decimals: int = 0) -> Self:
    """Rounded to the nearest integer, halves to the even one; or to `decimals` digits behind the point."""
    if decimals and dtypes.is_float(self.dtype):
      scale = 10.0 ** abs(decimals)
      return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale
    whole = self.trunc()
    if not dtypes.is_float(self.dtype):
      return whole
    rest = (self - whole).abs()
    odd = (whole * 0.5).trunc() * 2 != whole
    return ((rest > 0.5) | (rest.eq(0.5) & odd)).where(whole + self.sign(), whole)

  # *** comparison ***

  def _compare(self, op: Ops, x: Operand, reverse: bool = False) -> Self:
    """A comparison; bool. An operand that is no number or tensor is a TypeError."""
    a, b = self._pair(x, reverse)
    return a.alu(op, b, dtype=dtypes.bool)

  def eq(self, x: Operand) -> Self:
    """`self == x`."""
    return self._compare(Ops.CMPEQ, x)

  def ne(self, x: Operand) -> Self:
    """`self != x`."""
    return self._compare(Ops.CMPNE, x)

  def lt(self, x: Operand) -> Self:
    """`self < x`."""
    return self._compare(Ops.CMPLT, x)

  def gt(self, x: Operand) -> Self:
    """`self > x`."""
    return self._compare(Ops.CMPLT, x, reverse=True)

  def le(self, x: Operand) -> Self:
    """`self <= x`."""
    a, b = self._pair(x)
    return (a < b) | (a == b) if dtypes.is_float(a.dtype) else (b < a).logical_not()

  def ge(self, x: Operand) -> Self:
    """`self >= x`."""
    a, b = self._pair(x)
    return b <= a

  __lt__, __gt__, __le__, __ge__ = lt, gt, le, ge

  def __eq__(self, x: object) -> Self:  # type: ignore[override]
    return self.eq(x)  # type: ignore[arg-type]

  def __ne__(self, x: object) -> Self:  # type: ignore[override]
    return self.ne(x)  # type: ignore[arg-type]

  __hash__ = TensorBase.__hash__

  isnan = unary("Whether an element is NaN.", lambda x: x != x)

  def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
    """Whether an element is +inf or -inf."""
    wanted = [v for v, wish in ((math.inf, detect_positive), (-math.inf, detect_negative)) if wish]
    found = [self.eq(v) for v in wanted if dtypes.is_float(self.dtype)]
    return reduce(operator.or_, found) if found else self.const_like(False, dtypes.bool)

  isfinite = unary("Whether an element is neither infinite nor NaN.", lambda x: (x.isinf() | x.isnan()).logical_not())

  def isclose(self, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Self:
    """`|self - other| <= atol + rtol * |other|`; infinities are close to themselves."""
    if rtol < 0 or atol < 0:
      raise ValueError(f"isclose: tolerances must not be negative, got rtol={rtol} and atol={atol}")
    a, b = self._pair(other)
    if not dtypes.is_float(a.dtype):
      a, b = a._as_dtype(dtypes.float64), b._as_dtype(dtypes.float64)
    near = a.isfinite() & b.isfinite() & ((a - b).abs() <= b.abs() * rtol + atol)
    out = near | (a == b)
    return out | (a.isnan() & b.isnan()) if equal_nan else out

  # *** logic and bits ***

  def logical_not(self) -> Self:
    """Whether an element is false, or zero."""
    x = self._as_dtype(dtypes.bool) if dtypes.is_bool(self.dtype) else self.ne(0)
    return x.alu(Ops.CMPNE, x.const_like(True), dtype=dtypes.bool)

  def _bits(self, op: Ops, x: Operand, reverse: bool = False) -> Self:
    """A bitwise operation. Raises TypeError for floats."""
    a, b = self._pair(x, reverse)
    if dtypes.is_float(a.dtype):
      raise TypeError(f"{op.name} works on bool and integers, got {self.dtype.name}")
    return a.alu(op, b)

  def bitwise_and(self, x: Operand, reverse: bool = False) -> Self:
    """`self & x`."""
    return self._bits(Ops.AND, x, reverse)

  def bitwise_or(self, x: Operand, reverse: bool = False) -> Self:
    """`self | x`."""
    return self._bits(Ops.OR, x, reverse)

  def bitwise_xor(self, x: Operand, reverse: bool = False) -> Self:
    """`self ^ x`."""
    return self._bits(Ops.XOR, x, reverse)

  def bitwise_not(self) -> Self:
    """`~self`."""
    return self.logical_not() if dtypes.is_bool(self.dtype) else self._bits(Ops.XOR, -1)

  def lshift(self, x: Operand, reverse: bool = False) -> Self:
    """`self << x`; a count of the bit width or more gives 0."""
    a, b = self._shift_operands(x, reverse)
    shifted = a.alu(Ops.SHL, b._bits(Ops.AND, a.dtype.bits - 1))
    return a._in_width(b).where(shifted, a.const_like(0))

  def rshift(self, x: Operand, reverse: bool = False) -> Self:
    """`self >> x`, arithmetic on signed types; a count of the bit width or more leaves only the sign."""
    a, b = self._shift_operands(x, reverse)
    last = a.const_like(a.dtype.bits - 1)
    if dtypes.is_unsigned(a.dtype):
      return a._in_width(b).where(a.alu(Ops.SHR, b._bits(Ops.AND, a.dtype.bits - 1)), a.const_like(0))
    return a.alu(Ops.SHR, a._in_width(b).where(b, last))

  def _shift_operands(self, x: Operand, reverse: bool) -> tuple[Self, Self]:
    """`pair` for shifts. Raises TypeError where the operands are no integers."""
    a, b = self._pair(x, reverse)
    if not dtypes.is_int(a.dtype):
      raise TypeError(f"shifts work on integers, got {self.dtype.name}")
    return a, b

  def _in_width(self, count: Self) -> Self:
    """Whether a shift count lies in [0, bits)."""
    inside = count < self.dtype.bits
    return inside if dtypes.is_unsigned(count.dtype) else inside & (count >= 0)

  # *** selection ***

  def where(self, x: Operand, y: Operand) -> Self:
    """`x` where `self` holds (is not zero), else `y`. The three broadcast; the dtypes of `x` and `y` promote."""
    condition = self if dtypes.is_bool(self.dtype) else self.ne(0)
    numbers = [typing.cast(Operand, python_number(v)) for v in (x, y)]
    x, y = [self._operand(v) if hasattr(v, "__array_interface__") else v for v in numbers]
    if isinstance(x, TensorBase):
      a, b = typing.cast(Self, x)._pair(y)
    elif isinstance(y, TensorBase):
      a, b = typing.cast(Self, y)._pair(x, reverse=True)
    else:
      dtype = dtypes.promote(*(dtypes.from_py(v) for v in (x, y)))
      a, b = (self._wrap(const_uop(v, dtype), False) for v in (x, y))  # type: ignore[arg-type]
    c, a, b = condition._broadcasted(a, b, match_dtype=False)
    return c.alu(Ops.WHERE, a, b, dtype=a.dtype)

  def maximum(self, x: Operand) -> Self:
    """The larger of two elements; NaN if either is."""
    a, b = self._pair(x)
    return a.alu(Ops.MAX, b)

  def minimum(self, x: Operand) -> Self:
    """The smaller of two elements; NaN if either is."""
    a, b = self._pair(x)
    return a._opposite().alu(Ops.MAX, b._opposite())._opposite()

  def _opposite(self) -> Self:
    """The order-reversing involution of the dtype: negation of floats, complement of the others."""
    return self.mul(-1) if dtypes.is_float(self.dtype) else self.bitwise_not()

  @known_as(min="min_", max="max_")
  def clamp(self, min_: Operand | None = None, max_: Operand | None = None) -> Self:
    """Limited to [min_, max_]; where they cross, `max_` wins, and NaN where an element of a bound is. Raises ValueError
    without any bound.
    """
    if min_ is None and max_ is None:
      raise ValueError("clamp needs min_, max_ or both")
    out = self if min_ is None else (self < min_)._or_nan(min_).where(min_, self)
    return out if max_ is None else (out > max_)._or_nan(max_).where(max_, out)

  def _or_nan(self, bound: Operand) -> Self:
    """Whether itself holds, or an element of a bound is NaN."""
    if isinstance(bound, TensorBase) and dtypes.is_float(bound.dtype):
      return self | typing.cast(Self, bound.isnan())
    return self

  clip = clamp

  def masked_fill(self, mask: Self, value: Operand) -> Self:
    """`value` where `mask` holds; the dtype stays."""
    return mask.where(value, self)._as_dtype(self.dtype)

  def lerp(self, end: Operand, weight: Operand) -> Self:
    """`self + (end - self) * weight`."""
    end = self._operand(end)
    return self + (end - self) * weight

  def copysign(self, other: Operand) -> Self:
    """The magnitude of `self` with the sign of `other`; -0.0 counts as negative."""
    a, b = self._pair(other)
    a, b = a._as_float(), b._as_float()
    size = a.isnan().where(a, a.abs())
    return b._has_sign().where(size.mul(-1), size)._flat_in(b)

  # *** parts and limits ***

  frac = unary("What is behind the point, with the sign of x.", lambda x: x - x.trunc().detach())

  def positive(self) -> Self:
    """Itself. Raises TypeError for bool."""
    if dtypes.is_bool(self.dtype):
      raise TypeError("positive takes numbers, got bool")
    return self

  def nan_to_num(self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Self:
    """Numbers in the place of NaN (0), +inf and -inf (the largest and the least of the dtype)."""
    if not dtypes.is_float(self.dtype):
      return self._apart()
    most, least = FLOAT_LIMITS[self.dtype.name][0], -FLOAT_LIMITS[self.dtype.name][0]
    out = self.isnan().where(0.0 if nan is None else nan, self)
    out = self.eq(math.inf).where(most if posinf is None else posinf, out)
    return self.eq(-math.inf).where(least if neginf is None else neginf, out)

  def heaviside(self, values: Operand) -> Self:
    """0 below 0, 1 above, `values` at 0."""
    x, at_zero = self._pair(values)
    return x.eq(0).where(at_zero, (x > 0)._as_dtype(x.dtype)).detach()

  def clamp_min(self, min_: Operand) -> Self:
    """Limited from below."""
    return self.clamp(min_, None)

  def clamp_max(self, max_: Operand) -> Self:
    """Limited from above."""
    return self.clamp(None, max_)

  def fmax(self, other: Operand) -> Self:
    """The larger of two elements; of NaN and a number the number. Equal ones: the gradient is that of `self`."""
    a, b = self._pair(other)
    return ((a >= b) | b.isnan()).where(a, b)

  def fmin(self, other: Operand) -> Self:
    """The smaller of two elements; of NaN and a number the number. Equal ones: the gradient is that of `self`."""
    a, b = self._pair(other)
    return ((a <= b) | b.isnan()).where(a, b)

  # *** tests and logic ***

  def signbit(self) -> Self:
    """Whether the sign is set: negative numbers, -0.0, and NaN with a sign."""
    if not dtypes.is_float(self.dtype):
      return self < 0
    return self._bits_of() < 0

  def _bits_of(self) -> Self:
    """The bits of floats as signed integers."""
    return self.detach().bitcast(f"int{self.dtype.bits}")

  def frexp(self) -> tuple[Self, Self]:
    """(m, e), a float and int32, with `self = m 2**e` and 0.5 <= |m| < 1; 0, infinities and NaN are (itself, 0)."""
    dtype = self._as_float().dtype
    x = self._as_float() if dtype == dtypes.float64 else self._as_float()._as_dtype(dtypes.float32)
    digits, places = (52, 11) if dtype == dtypes.float64 else (23, 8)
    bias, most = (1 << (places - 1)) - 2, (1 << places) - 1
    # below the least normal number the exponent's field does not say how small a number is
    bits = x._bits_of()
    tiny = bits.rshift(digits).bitwise_and(most).eq(0)
    lifted = tiny.where((x * 2.0**64)._bits_of(), bits).rshift(digits).bitwise_and(most)
    plain = lifted.eq(0) | lifted.eq(most)
    exponent = plain.where(0, lifted - tiny.where(bias + 64, bias))._as_dtype(dtypes.int32)
    return x.alu(Ops.LDEXP, (exponent * -1)._as_dtype(x.dtype))._as_dtype(dtype), exponent

  def nextafter(self, other: Operand) -> Self:
    """The next number of the dtype from `self` toward `other`; `other` where they are equal, NaN where either is. The
    gradient is that of `self`, and 0 where they are equal.
    """
    x, y = (t._as_float() for t in self._pair(other))
    a, b = x.detach(), y.detach()
    bits = a._bits_of()
    # the bits of a float count its magnitude
    away = (a < b) ^ (bits < 0)
    step = bits + away.where(1, -1)._as_dtype(bits.dtype)
    least = (b < 0).where(dtypes.min(bits.dtype) + 1, bits.const_like(1))
    moved = a.eq(0).where(least, step).bitcast(a.dtype)
    out = (a.isnan() | b.isnan()).where(math.nan, a.eq(b).where(b, moved))
    return with_slopes(out, "nextafter", (x, _differ))._flat_in(y)

  def gcd(self, other: Operand) -> Self:
    """The greatest common divisor of integers, never negative; that of 0 and 0 is 0. By Euclid's algorithm with the
    remainder of least magnitude, which takes log(N) / log(1 + √2) steps at most (Dupré, 1846). TypeError for floats.
    """
    a, b = self._pair(other)
    if not dtypes.is_int(a.dtype):
      raise TypeError(f"gcd takes integers, got {a.dtype.name}")
    # a magnitude has one bit less than a signed integer, but for that of the least one
    wide = dtypes.uint64 if a.dtype.bits > 32 else dtypes.uint32
    x, y = (t._magnitude(wide) for t in (a, b))
    for _ in range(math.ceil(a.dtype.bits * math.log(2) / math.log(1 + math.sqrt(2))) + 1):
      done = y.eq(0)
      rest = x.alu(Ops.FLOORMOD, done.where(1, y))
      x, y = done.where(x, y), done.where(0, (y - rest < rest).where(y - rest, rest))
    return x._as_dtype(a.dtype)

  def _magnitude(self, dtype: DType) -> Self:
    """Absolute values of integers, in an unsigned dtype that holds all of them."""
    if dtypes.is_unsigned(self.dtype):
      return self._as_dtype(dtype)
    x = self._as_dtype(dtype)
    return (self < 0).where(x.const_like(0) - x, x)

  def lcm(self, other: Operand) -> Self:
    """The least common multiple of integers, never negative; 0 where either is. TypeError for floats."""
    a, b = self._pair(other)
    common = a.gcd(b)
    return (a.floordiv(common.eq(0).where(1, common)) * b).abs()

  isposinf = unary("Whether an element is +inf.", lambda x: x.isinf(detect_negative=False))
  isneginf = unary("Whether an element is -inf.", lambda x: x.isinf(detect_positive=False))
  isreal = unary("True: there are no complex numbers.", lambda x: x.const_like(True, dtypes.bool))

  def logical_and(self, other: Operand) -> Self:
    """Whether both are true (not zero)."""
    return self.ne(0) & self._operand(other).ne(0)

  def logical_or(self, other: Operand) -> Self:
    """Whether one is true (not zero)."""
    return self.ne(0) | self._operand(other).ne(0)

  def logical_xor(self, other: Operand) -> Self:
    """Whether just one is true (not zero)."""
    return self.ne(0) ^ self._operand(other).ne(0)

  def __neg__(self) -> Self:
    return self.neg()

  def __invert__(self) -> Self:
    return self.bitwise_not()


# operator of two operands, as `__…__`, `__r…__` (`1 + a`) and `__i…__` (`a += b`) have it → the method that it calls
OPERATORS = {
  "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "mod", "pow": "pow",
  "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "lshift",
  "rshift": "rshift",
}  # fmt: skip


def _define(operator: str, method: str) -> None:
  def plain(self: Any, x: Operand) -> Any:
    return getattr(self, method)(x)

  def reflected(self: Any, x: Operand) -> Any:
    return getattr(self, method)(x, reverse=True)

  def assigning(self: Any, x: Operand) -> Any:
    return self.assign(getattr(self, method)(x))

  for prefix, function in (("", plain), ("r", reflected), ("i", assigning)):
    function.__name__ = f"__{prefix}{operator}__"
    setattr(ElementwiseMixin, function.__name__, function)


for _operator, _method in OPERATORS.items():
  _define(_operator, _method)
