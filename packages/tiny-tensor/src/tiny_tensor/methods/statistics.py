"""Statistics: extrema, reductions without NaN, mode, differences, areas, covariances, norms, histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tiny_tensor.base import Axis, DTypeLike, Operand, TensorBase
from tiny_tensor.naming import methods_known_as
from tiny_tensor.shapes import normalize_axes, normalize_axis
from tiny_uop import dtypes, prod


@methods_known_as(dim="axis")
class StatisticsMixin(TensorBase):
  """Reductions that are made of several, and histograms: how many elements lie between edges."""

  __slots__ = ()

  # *** extrema ***

  def amax(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """`max`."""
    return self.max(None if axis == () else axis, keepdim)

  def amin(self, axis: Axis = None, keepdim: bool = False) -> Self:
    """`min`."""
    return self.min(None if axis == () else axis, keepdim)

  def aminmax(self, axis: Axis = None, keepdim: bool = False) -> tuple[Self, Self]:
    """(minimum, maximum)."""
    return self.min(axis, keepdim), self.max(axis, keepdim)

  # *** without NaN ***

  def nansum(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
    """`sum` in which NaN counts as 0."""
    return self.isnan().where(0, self).sum(axis, keepdim, dtype)

  def nanmean(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
    """`mean` of what is not NaN."""
    x = self._as_float(dtype)
    return x.nansum(axis, keepdim) / x.isnan().logical_not().sum(axis, keepdim)

  def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of what is not NaN; NaN where there is nothing else."""
    if dim is None:
      return self.ravel().nanmedian(0)[0]
    axis = normalize_axis(dim, self.ndim)
    if self.ndim == 0:
      return self._apart(), self.const_like(0, dtypes.int32)
    values, places = self.sort(axis)
    middle = (self.isnan().logical_not().sum(axis, keepdim=True) - 1).clamp(0, None).floordiv(2)
    found = values.gather(axis, middle), places.gather(axis, middle)
    return found if keepdim else (found[0].squeeze(axis), found[1].squeeze(axis))

  def nanquantile(
    self, q: float | Sequence[float] | Self, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
  ) -> Self:  # fmt: skip
    """`quantile` of what is not NaN; NaN where there is nothing else."""
    if dim is None:
      out = self.ravel().nanquantile(q, 0, False, interpolation)
      return out.reshape((*out.shape, *(1,) * self.ndim)) if keepdim else out
    return self._ranked(q, dim, keepdim, interpolation, without_nan=True)

  # *** counts ***

  def count_nonzero(self, axis: Axis = None) -> Self:
    """How many elements are not zero."""
    return self._as_bool().sum(axis)

  def mode(self, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
    """(the most frequent elements along `dim`, the least of several; the int32 position of their last occurrence)."""
    axis = normalize_axis(dim, self.ndim)
    if self.ndim == 0:
      return self._apart(), self.const_like(0, dtypes.int32)
    x = self.detach().transpose(axis, -1)
    same = x.unsqueeze(-1) == x.unsqueeze(-2)
    counts = same.sum(-1)
    often = counts == counts.max(-1, keepdim=True)
    best = x._opposite()
    least = often.where(best, dtypes.min(x.dtype)).max(-1, keepdim=True)
    here = often & (best == least)
    place = here.where(x._along(x.ndim - 1), 0).max(-1, keepdim=True).transpose(axis, -1)
    values = self.gather(axis, place)
    return (values, place) if keepdim else (values.squeeze(axis), place.squeeze(axis))

  def isin(self, test_elements: Operand, assume_unique: bool = False, invert: bool = False) -> Self:
    """Whether an element is among `test_elements` (or, with `invert`, is not)."""
    wanted = self._operand(test_elements)
    found = (self.unsqueeze(-1) == wanted.reshape((wanted.numel(),))).any(-1)
    return found.logical_not() if invert else found

  def bucketize(self, boundaries: Self, *, right: bool = False, out_int32: bool = True) -> Self:
    """int32: which of the intervals between ascending `boundaries` an element lies in; see searchsorted."""
    return boundaries.searchsorted(self, right=right, out_int32=out_int32)

  # *** differences and areas ***

  def diff(self, n: int = 1, dim: int = -1, prepend: Self | None = None, append: Self | None = None) -> Self:
    """Differences of neighbours along `dim`, `n` times; `!=` for bool. None of it, with n 0, is `self`."""
    axis = normalize_axis(dim, self.ndim)
    if n < 0:
      raise ValueError(f"diff: n must not be negative, got {n}")
    if n == 0:
      return self._apart()
    around = [t for t in (prepend, self, append) if t is not None]
    x = around[0].cat(*around[1:], dim=axis) if len(around) > 1 else self
    for _ in range(n):
      size = int(x.shape[axis])
      if size == 0:
        return x
      above, below = x._select_axis(axis, 1, size), x._select_axis(axis, 0, size - 1)
      x = above.ne(below) if dtypes.is_bool(x.dtype) else above - below
    return x

  def trapezoid(self, x: Self | None = None, *, dx: float = 1, dim: int = -1) -> Self:
    """The area under points along `dim`, at the places `x` or `dx` apart, by the trapezoidal rule."""
    axis = normalize_axis(dim, self.ndim)
    return self._areas(x, dx, axis).sum(axis)

  def cumulative_trapezoid(self, x: Self | None = None, *, dx: float = 1, dim: int = -1) -> Self:
    """The running areas of `trapezoid`."""
    axis = normalize_axis(dim, self.ndim)
    return self._areas(x, dx, axis).cumsum(axis)

  def _areas(self, x: Self | None, dx: float, axis: int) -> Self:
    """Of each interval along an axis."""
    n = int(self.shape[axis])
    middle = self._select_axis(axis, min(1, n), n) + self._select_axis(axis, 0, max(n - 1, 0))
    if x is None:
      return middle * (dx / 2)
    return middle * (self._lying_along(axis, x.diff(dim=0)) if x.ndim == 1 else x.diff(dim=axis)) / 2

  # *** moments ***

  def cov(self, *, correction: int = 1, fweights: Self | None = None, aweights: Self | None = None) -> Self:
    """Covariances of variables `(variables, observations)`, or of one; observations are counted `fweights` times and
    weighted by `aweights`.
    """
    if self.ndim > 2:
      raise ValueError(f"cov takes at most two axes, got shape {self.shape}")
    for what, w in (("fweights", fweights), ("aweights", aweights)):
      if w is not None and (w.ndim > 1 or w.numel() != self.atleast_2d().shape[1]):
        raise ValueError(f"cov: {what} of shape {w.shape} must be a vector, one for each observation of {self.shape}")
    if fweights is not None and not dtypes.is_int(fweights.dtype):
      raise TypeError(f"cov: fweights count observations, got {fweights.dtype.name}")
    x = self._as_float().atleast_2d()
    weights = [w._as_dtype(x.dtype) for w in (fweights, aweights) if w is not None]
    if weights:
      w = weights[0] * weights[1] if len(weights) > 1 else weights[0]
      total = w.sum()
      rest = total - correction * (1 if aweights is None else (w * aweights).sum() / total)
      centred = x - (x * w).sum(-1, keepdim=True) / total
      out = (centred * w).matmul(centred.transpose(0, 1)) / rest.clamp(0, None)
    else:
      centred = x - x.mean(-1, keepdim=True)
      out = centred.matmul(centred.transpose(0, 1)) / max(int(x.shape[1]) - correction, 0)
    return out.squeeze() if self.ndim < 2 or x.shape[0] == 1 else out

  def corrcoef(self) -> Self:
    """Coefficients of correlation of variables `(variables, observations)`."""
    c = self.cov()
    if c.ndim == 0:
      return c / c
    deviation = c.diagonal().sqrt()
    return (c / deviation.unsqueeze(-1) / deviation).clamp(-1, 1)

  # *** norms ***

  def vector_norm(
    self, ord: float = 2, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None
  ) -> Self:
    """The p-norm over axes (all by default) taken as one: p any number, 0 (how many are not zero), ±infinity."""
    x = self._as_float(dtype)
    axes = tuple(range(self.ndim)) if axis is None or axis == () else normalize_axes(axis, self.ndim)
    wide, kind = x._with_precision()
    empty = any(isinstance(self.shape[a], int) and self.shape[a] == 0 for a in axes)
    if empty and (ord < 0 or math.isinf(ord)):
      raise ValueError(f"vector_norm: order {ord} of no elements, shape {self.shape}")
    if ord == 0:
      out = wide.ne(0).sum(axes, keepdim)._as_dtype(wide.dtype)
    elif math.isinf(ord):
      size = wide.abs()
      out = size.max(axes, keepdim) if ord > 0 else size.min(axes, keepdim)
    elif ord == 1:
      out = wide.abs().sum(axes, keepdim)
    else:
      out = wide._powers_summed(ord, axes, keepdim)
    return out._as_dtype(kind)

  def _powers_summed(self, p: float, axes: tuple[int, ...], keepdim: bool) -> Self:
    """(Σ|x|^p)^(1/p), whose gradient is 0 where all are 0."""
    zero = self.eq(0)
    size = zero.where(1.0, self.abs())
    terms = self.square() if p == 2 else zero.where(0.0 if p > 0 else math.inf, size.pow(p))
    total = terms.sum(axes, keepdim)
    none = total.eq(0)
    root = none.where(1.0, total)
    root = root.sqrt() if p == 2 else root.pow(1 / p)
    return none.where(0.0, root)

  def norm(
    self, p: float | str | None = "fro", dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None
  ) -> Self:
    """The p-norm of all elements, or over axes; "fro" is 2. "nuc" is the sum of singular values of matrices."""
    if p == "nuc":
      axes = (-2, -1) if dim is None else tuple(normalize_axes(dim, self.ndim))
      return self.nuclear_norm((axes[0], axes[1]), keepdim, dtype)  # type: ignore[attr-defined, no-any-return]
    return self.vector_norm(2 if p in (None, "fro") else float(p), dim, keepdim, dtype)

  def dist(self, other: Self, p: float = 2) -> Self:
    """The p-norm of the difference."""
    return (self - other).vector_norm(p)

  def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
    """Slices along `dim` whose p-norm is greater than `maxnorm` scaled down to it. ValueError below two axes."""
    if self.ndim < 2:
      raise ValueError(f"renorm takes slices of two axes at least, got shape {self.shape}")
    axis = normalize_axis(dim, self.ndim)
    others = tuple(i for i in range(self.ndim) if i != axis)
    size = self.vector_norm(p, others, keepdim=True)
    return self * (size > maxnorm).where(maxnorm / (size + 1e-7), 1.0)

  def equal(self, other: Self) -> bool:
    """Whether shape and all elements are the same; computes both."""
    return self.shape == other.shape and not bool(self.ne(other).any().item())

  def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
    """How many elements lie in each of `bins` equal intervals from `min` to `max`, which belongs to the last; both 0:
    from the least to the greatest element.
    """
    x = self.ravel().detach()
    low, high = x._filled((), min), x._filled((), max)
    if min == 0 and max == 0 and x.numel():
      low, high = x.min(), x.max()
    flat = low.eq(high)
    low, high = flat.where(low - 1, low), flat.where(high + 1, high)
    place = ((x - low) * bins / (high - low)).floor().clamp(None, bins - 1)._as_dtype(dtypes.int32)
    inside = (x >= low) & (x <= high)
    hot = (place.unsqueeze(0) == x._count_up(bins).unsqueeze(-1)) & inside
    return hot.sum(-1)._as_dtype(self.dtype)

  def histogram(
    self, bins: int | Self = 100, *, range: Sequence[float] | None = None, weight: Self | None = None,
    density: bool = False,
  ) -> tuple[Self, Self]:  # fmt: skip
    """(sums of weights, or how many elements, `(bins,)`; edges `(bins + 1,)`) of all elements, of the dtype of `self`,
    a float. `bins` is a number of equal intervals in `range`, by default from the least to the greatest element, or
    ascending edges. With `density` sums are divided by the widths and by their total, so that the integral is 1.
    """
    points = self.ravel().unsqueeze(-1)
    weights = None if weight is None else weight.ravel()
    if weights is not None and weight is not None and weight.shape != self.shape:
      raise ValueError(f"histogram: weight has shape {weight.shape}, expected {self.shape}, that of the input")
    counts, edges = points.histogramdd([bins], range=range, weight=weights, density=density)
    return counts, edges[0]._apart()

  def histogramdd(
    self, bins: int | Sequence[int | Self], *, range: Sequence[float] | None = None, weight: Self | None = None,
    density: bool = False,
  ) -> tuple[Self, tuple[Self, ...]]:  # fmt: skip
    """`histogram` of points `(…, n)` in n dimensions: sums of shape `(bins of each dimension…)`, and edges for each.

    `bins` is a number for all dimensions, or a number or edges for each; `range` the bounds of one after the other;
    `weight` has a value for each point, `(…)`.
    """
    if self.ndim < 2:
      raise ValueError(f"histogramdd takes points (…, n), got shape {self.shape}")
    x = self._as_float().detach()
    n = int(x.shape[-1])
    each: list[int | Self] = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n:
      raise ValueError(f"histogramdd: points of shape {self.shape} have {n} dimensions, got {len(each)} bins")
    if range is not None and len(range) != 2 * n:
      raise ValueError(f"histogramdd: range has two bounds for each of {n} dimensions, got {len(range)}")
    if weight is not None and weight.shape != self.shape[:-1]:
      raise ValueError(f"histogramdd: weight has shape {weight.shape}, expected {self.shape[:-1]}, one for a point")
    x = x.reshape((prod(self.shape[:-1]), n))
    columns = [column.squeeze(-1) for column in x.split(1, 1)] if n else []
    edges: list[Self] = []
    flat, inside = x._filled(x.shape[:1], 0, dtypes.int32), x._filled(x.shape[:1], True, dtypes.bool)
    for d, (column, b) in enumerate(zip(columns, each, strict=True)):
      ends = None if range is None else (float(range[2 * d]), float(range[2 * d + 1]))
      edge = column._equal_edges(b, ends) if isinstance(b, int) else b._as_dtype(x.dtype).detach()
      if edge.ndim != 1 or edge.shape[0] < 2:
        raise ValueError(f"histogram: edges are a vector of two at least, got shape {edge.shape}")
      size = int(edge.shape[0]) - 1
      above = column.unsqueeze(-1) >= edge.unsqueeze(0)
      low, high = edge._select_axis(0, 0, 1), edge._select_axis(0, size, size + 1)
      inside = inside & (column >= low) & (column <= high)
      flat = flat * size + (above.sum(-1).clamp(1, size) - 1)
      edges.append(edge)
    sizes = [int(e.shape[0]) - 1 for e in edges]
    hot = (x._count_up(math.prod(sizes)).unsqueeze(-1) == flat) & inside
    total = hot.where(1 if weight is None else weight.reshape(flat.shape)._as_dtype(x.dtype), 0)
    counts = total._as_dtype(x.dtype).sum(-1).reshape(sizes)
    if density:
      counts = counts / counts.sum()
      for d, edge in enumerate(edges):
        widths = edge._select_axis(0, 1, sizes[d] + 1) - edge._select_axis(0, 0, sizes[d])
        counts = counts / widths.reshape([size if i == d else 1 for i, size in enumerate(sizes)])
    return counts, tuple(edges)

  def _equal_edges(self, bins: int, ends: tuple[float, float] | None) -> Self:
    """The edges `(bins + 1,)` of equal intervals between bounds, or between the least and the greatest element."""
    if bins < 1:
      raise ValueError(f"histogram: bins must be positive, got {bins}")
    if ends is not None and not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] <= ends[1]):
      raise ValueError(f"histogram: the range must be finite and ascending, got {ends}")
    if ends is None and self.numel():
      low, high = self.min(), self.max()
    else:
      low, high = (self._filled((), v) for v in ends or (0.0, 1.0))
    flat = low.eq(high)
    low, high = flat.where(low - 0.5, low), flat.where(high + 0.5, high)
    index = self._count_up(bins + 1)._as_dtype(self.dtype)
    step = (high - low) / bins
    return (index < (bins + 1) // 2).where(index * step + low, (index * -1 + bins) * step * -1 + high)
