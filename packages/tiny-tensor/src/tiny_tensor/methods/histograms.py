"""Histograms: how many elements lie between edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from tiny_tensor.base import TensorBase
from tiny_uop import dtypes, prod


class HistogramMixin(TensorBase):
  """histc, histogram and histogramdd. The last interval has its upper edge, too; NaN lies nowhere."""

  __slots__ = ()

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
    self,
    bins: int | Self = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Self | None = None,
    density: bool = False,
  ) -> tuple[Self, Self]:
    """(sums of weights, or how many elements, `(bins,)`; edges `(bins + 1,)`) of all elements, of the dtype of `self`,
    a float. `bins` is a number of equal intervals in `range`, by default from the least to the greatest element, or
    ascending edges. With `density` sums are divided by the widths and by their total, so that the integral is 1.
    """
    points = self.ravel().unsqueeze(-1)
    weights = None if weight is None else weight.ravel()
    if weights is not None and weight is not None and weight.shape != self.shape:
      raise ValueError(f"histogram: weight has shape {weight.shape}, expected {self.shape}, that of the input")
    counts, edges = points.histogramdd([bins], range=range, weight=weights, density=density)
    return counts, edges[0]

  def histogramdd(
    self,
    bins: int | Sequence[int | Self],
    *,
    range: Sequence[float] | None = None,
    weight: Self | None = None,
    density: bool = False,
  ) -> tuple[Self, tuple[Self, ...]]:
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
