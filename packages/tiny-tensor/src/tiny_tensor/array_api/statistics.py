"""Statistics and tests along axes (None: all), and differences. Sums of small integers are made in the default integer
type."""

from __future__ import annotations

from tiny_tensor.array_api.operands import Array, Axis
from tiny_tensor.shapes import normalize_axis
from tiny_uop import DType

__all__ = ["all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var"]


def sum(x: Array, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
  """The sum."""
  return x.sum(axis, keepdims, dtype)


def prod(x: Array, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
  """The product."""
  return x.prod(axis, keepdims, dtype)


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
  """The arithmetic mean."""
  return x.mean(axis, keepdims)


def var(x: Array, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False) -> Array:
  """The variance: squared deviations from the mean, summed, over `n - correction`."""
  return x.var(axis, keepdims, correction)


def std(x: Array, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False) -> Array:
  """The standard deviation: the root of `var`."""
  return x.std(axis, keepdims, correction)


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
  """The maximum; NaN if any element is."""
  return x.max(axis, keepdims)


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
  """The minimum; NaN if any element is."""
  return x.min(axis, keepdims)


def all(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
  """Whether all elements are true (not zero)."""
  return x.all(axis, keepdims)


def any(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
  """Whether any element is true (not zero)."""
  return x.any(axis, keepdims)


def running_axis(x: Array, axis: int | None) -> int:
  """The axis of a running sum. Raises ValueError without one where there are several to choose from."""
  if axis is None and x.ndim != 1:
    raise ValueError(f"a running sum or product of shape {x.shape} needs an axis")
  return normalize_axis(axis or 0, x.ndim)


def with_initial(x: Array, axis: int, value: int, wanted: bool) -> Array:
  """`x` with a first entry along `axis`, if wanted."""
  if not wanted:
    return x
  first = x._filled((*x.shape[:axis], 1, *x.shape[axis + 1 :]), value)
  return first.cat(x, dim=axis)


def cumulative_sum(
  x: Array, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
  """Running sums along `axis`, with 0 in front if `include_initial`."""
  place = running_axis(x, axis)
  out = x.cumsum(place) if dtype is None else x.cast(dtype).cumsum(place).cast(dtype)
  return with_initial(out, place, 0, include_initial)


def cumulative_prod(
  x: Array, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
  """Running products along `axis`, with 1 in front if `include_initial`."""
  place = running_axis(x, axis)
  out = x.cumprod(place) if dtype is None else x.cast(dtype).cumprod(place).cast(dtype)
  return with_initial(out, place, 1, include_initial)


def diff(
  x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None, append: Array | None = None
) -> Array:
  """Differences of neighbours along `axis`, `n` times over, of `x` with `prepend` before and `append` behind it."""
  return x.diff(n, axis, prepend, append)
