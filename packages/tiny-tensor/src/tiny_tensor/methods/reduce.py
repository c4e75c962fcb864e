"""Reductions along axes."""

from __future__ import annotations

import math
from typing import Any, Self

from tiny_tensor.base import Axis, DTypeLike, TensorBase, const_uop, to_dtype
from tiny_tensor.methods.windows import windows
from tiny_tensor.naming import methods_known_as
from tiny_tensor.shapes import args_to_tuple, normalize_axes, normalize_axis, upper
from tiny_uop import DType, Ops, UOp, dtypes, prod, sint


def accumulator_dtype(dtype: DType) -> DType:
  """The dtype that sums of `dtype` are made in: at least 32 bits."""
  if dtypes.is_float(dtype):
    return dtypes.promote(dtype, dtypes.float32)
  return dtypes.promote(dtype, dtypes.uint32 if dtypes.is_unsigned(dtype) else dtypes.int32)


@methods_known_as(dim="axis", unbiased="correction")
class ReduceMixin(TensorBase):
  """sum, prod, max, min, mean, variance and tests. `axis` is one axis, several, or None for all."""

  __slots__ = ()

  def _reduce(self, op: Ops, axis: Axis, keepdim: bool) -> Self:
    """One REDUCE; the axes are dropped unless `keepdim`."""
    axes = normalize_axes(axis, self.ndim)
    out = self._derive(self.uop.reduce_axes(op, axes)) if axes else self._apart()
    return out if keepdim else out.reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes))

  def sum(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
    """Sum. bool and small integers are summed in 32 bits; float16 and bfloat16 in float32, then rounded back."""
    accumulate = accumulator_dtype(self.dtype) if dtype is None else to_dtype(dtype)
    out = self._as_dtype(accumulate)._reduce(Ops.ADD, axis, keepdim)
    return out._as_dtype(self.dtype) if dtype is None and dtypes.is_float(self.dtype) else out

  def _sum_of_products(self, other: Self, axis: Axis, dtype: DTypeLike | None = None, mask: Self | None = None) -> Self:
    """`(self * other).sum(axis)`, with products made in the type that they are summed in, not rounded to a narrow one
    first; the result has `dtype`, or else the type of the operands. Where `mask` is false nothing is added, also of
    infinities and NaN."""
    common = dtypes.promote(self.dtype, other.dtype)
    if (narrow := TensorBase._narrow) is not None and common is dtypes.float32 and dtype is None:  # in `autocast`
      return self._as_dtype(narrow)._sum_of_products(other._as_dtype(narrow), axis, None, mask)._as_dtype(common)
    wide = dtypes.promote(common, accumulator_dtype(common) if dtype is None else to_dtype(dtype))
    product = self._as_dtype(wide) * other._as_dtype(wide)
    out = (product if mask is None else mask.where(product, 0)).sum(axis, dtype=dtype)
    if mask is not None:
      out = out._derive(
        out.uop.contiguous_backward()
      )  # both factors take its gradient behind the mask, which is larger
    return out._as_dtype(common) if dtype is None else out

  def prod(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
    """Product; dtypes as for `sum`."""
    accumulate = accumulator_dtype(self.dtype) if dtype is None else to_dtype(dtype)
    out = self._as_dtype(accumulate)._reduce(Ops.MUL, axis, keepdim)
    return out._as_dtype(self.dtype) if dtype is None and dtypes.is_float(self.dtype) else out

  def _check_not_empty(self, what: str, axis: Axis) -> None:
    """ValueError when `axis` has no elements to choose from."""
    if any(isinstance(self.shape[a], int) and self.shape[a] == 0 for a in normalize_axes(axis, self.ndim)):
      raise ValueError(f"{what} of no elements: axis {axis} of shape {self.shape} has size 0")

  def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """Maximum; NaN if any element is. Raises ValueError over no elements."""
    self._check_not_empty("max", axis)
    return self._reduce(Ops.MAX, axis, keepdim)

  def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """Minimum; NaN if any element is. Raises ValueError over no elements."""
    self._check_not_empty("min", axis)
    return self._opposite()._reduce(Ops.MAX, axis, keepdim)._opposite()

  def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """Whether any element is true (not zero)."""
    return self._as_bool()._reduce(Ops.MAX, axis, keepdim)

  def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """Whether all elements are true (not zero)."""
    return self._as_bool().logical_not().any(axis, keepdim).logical_not()

  def _as_bool(self) -> Self:
    """Whether elements are not zero."""
    return self if dtypes.is_bool(self.dtype) else self.ne(0)

  def mean(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
    """Arithmetic mean, a float; NaN over no elements."""
    if dtype is not None:
      return self._as_float(dtype).mean(axis, keepdim)
    x, kind = self._with_precision()
    n = prod(self.shape[a] for a in normalize_axes(axis, self.ndim))
    return x.sum(axis, keepdim).div(n)._as_dtype(kind)

  def var(self, axis: Axis = None, keepdim: bool = False, correction: float | None = 1) -> Self:
    """Variance: squared deviations from the mean summed over `n - correction` (0 at least)."""
    x, dtype = self._with_precision()
    deviation = x - x.mean(axis, keepdim=True)
    n = prod(self.shape[a] for a in normalize_axes(axis, self.ndim))
    total = deviation.square().sum(axis, keepdim)
    less = 1 if correction is None else correction
    return total.div(max(n - less, 0) if isinstance(n, int) else (x._operand(n) - less).maximum(0))._as_dtype(dtype)

  def var_mean(self, axis: Axis = None, keepdim: bool = False, correction: float | None = 1) -> tuple[Self, Self]:
    """Variance and mean."""
    return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

  def std(self, axis: Axis = None, keepdim: bool = False, correction: float | None = 1) -> Self:
    """Standard deviation: the root of `var`."""
    return self.var(axis, keepdim, correction).sqrt()

  def std_mean(self, axis: Axis = None, keepdim: bool = False, correction: float | None = 1) -> tuple[Self, Self]:
    """Standard deviation and mean."""
    return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

  # *** positions ***

  def _along(self, axis: int, dtype: DType | None = None) -> Self:
    """0, 1, 2, … along `axis`, of size 1 along the others."""
    size = self.shape[axis]
    index = dtype or (dtypes.int32 if upper(size) < 1 << 31 else dtypes.int64)
    return self._count_up(size, index).reshape([size if i == axis else 1 for i in range(self.ndim)])

  def _count_up(self, n: sint, dtype: DType = dtypes.int32) -> Self:
    """The vector 0, 1, …, n-1: the number of ones in windows that end ever later, which the scheduler puts in closed
    form.
    """
    if isinstance(n, UOp):
      return self._count_up(upper(n), dtype)._select_axis(0, 0, n)
    if n <= 1:
      return self._wrap(const_uop(0, dtype, (n,), self.device), False)
    ones = self._wrap(const_uop(1, dtype, (n,), self.device), False)
    return windows(ones._pad_zeros([(n - 1, 0)]), (n,), (1,), (1,))._reduce(Ops.ADD, 1, False) - 1

  def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
    """int32 position of the first maximum (of the first NaN, if there is one); in the flattened tensor without
    `axis`.
    """
    if axis is None:
      flat = self.flatten().argmax(0)
      return flat.reshape((1,) * self.ndim) if keepdim else flat
    self._check_not_empty("argmax", axis)
    place = normalize_axis(axis, self.ndim)
    if not self.ndim:
      return self.const_like(0, dtypes.int32)
    x = self.detach()
    top = x == x.max(place, keepdim=True)
    if dtypes.is_float(x.dtype):
      top = top | x.isnan()
    n = self.shape[place]
    backwards = x._along(place).mul(-1) + n
    return top.where(backwards, 0).max(place, keepdim).mul(-1) + n

  def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
    """int32 position of the first minimum (of the first NaN, if there is one)."""
    return self.detach()._opposite().argmax(axis, keepdim)

  def sum_to_size(self, *size: Any) -> Self:
    """The sum over axes that `size` leaves out at the front or has 1 for: the transpose of broadcasting. ValueError for
    a shape that does not broadcast to that of `self`.
    """
    shape = args_to_tuple(size)
    front = self.ndim - len(shape)
    if front < 0 or any(new not in (1, old) for old, new in zip(self.shape[front:], shape, strict=True)):
      raise ValueError(f"sum_to_size: shape {shape} does not broadcast to that of the tensor, {self.shape}")
    gone = [i for i, new in enumerate(shape, front) if new == 1 != self.shape[i]]
    axes = (*range(front), *gone)
    return self.sum(axes, keepdim=True).reshape(shape) if axes or not self.ndim else self

  # *** log-sum-exp and softmax ***

  def _safe_max(self, axis: Axis) -> Self:
    """The maximum kept and detached, with infinities as 0: what is subtracted before exponentials."""
    top = self.detach().max(axis, keepdim=True)
    return top.isinf().where(0.0, top)

  def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """`log(sum(exp(self)))` without overflow."""
    x, dtype = self._with_precision()
    top = x._safe_max(axis)
    out = (x - top).exp().sum(axis, keepdim).log() + (top if keepdim else top.reshape(x.sum(axis).shape))
    return out._as_dtype(dtype)

  def softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
    """Exponentials that sum to 1 along `axis`, of x minus its maximum, so that none overflows. Same shape, a float."""
    if dtype is not None:
      return self._as_float(dtype).softmax(axis)
    x, result = self._with_precision()
    if self.numel() == 0:
      return self._as_float()
    e = (x - x.detach().max(axis, keepdim=True)).exp()
    # one division for a row
    return (e * e.sum(axis, keepdim=True).reciprocal())._as_dtype(result)

  def _softmax_or_zeros(self) -> Self:
    """`softmax` along the last axis; where all of a row is -inf, zeros, and so are gradients."""
    x, result = self._with_precision()
    if self.numel() == 0:
      return self._as_float()
    top = x.detach().max(-1, keepdim=True)
    e = (x - top.ne(-math.inf).where(top, 0.0)).exp()
    total = e.sum(-1, keepdim=True)
    return (e * total.ne(0.0).where(total, 1.0).reciprocal())._as_dtype(result)

  def log_softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
    """Logarithm of `softmax`."""
    if dtype is not None:
      return self._as_float(dtype).log_softmax(axis)
    x, result = self._with_precision()
    if self.numel() == 0:
      return self._as_float()
    m = x - x.detach().max(axis, keepdim=True)
    return (m - m.exp().sum(axis, keepdim=True).log())._as_dtype(result)

  def softmin(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
    """`softmax` of the negated values."""
    return self._as_float(dtype).neg().softmax(axis)

  def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
    """Divided by the p-norm along `dim` (at least `eps`)."""
    norm = self.vector_norm(p, dim, keepdim=True)
    return self / (norm < eps).where(eps, norm)
