"""Order statistics: the k-th value, medians and quantiles. NaN counts as greater than every number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, overload

from tiny_tensor.base import TensorBase
from tiny_tensor.methods.radix import place_of
from tiny_tensor.sequence import has_groups
from tiny_tensor.shapes import normalize_axis
from tiny_uop import dtypes

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


class QuantileMixin(TensorBase):
  """kthvalue, median and quantile."""

  __slots__ = ()

  def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
    """(the k-th smallest elements along `dim`, their int32 positions); k counts from 1. ValueError out of range."""
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis]) if self.ndim else 1
    if not 1 <= k <= size:
      raise ValueError(f"kthvalue: k={k} must be between 1 and {size}, the size of axis {dim} of shape {self.shape}")
    return self._kth(k, axis, keepdim, nan_first=False)

  def _kth(self, k: int, axis: int, keepdim: bool, nan_first: bool) -> tuple[Self, Self]:
    """`kthvalue`; with `nan_first` the first NaN where there is one."""
    if self.ndim == 0:
      return self.topk(k, axis, largest=False)
    if self.numel() == 0 or not all(isinstance(s, int) for s in self.shape) or has_groups(self.device):
      places = self.detach().topk(k, axis, largest=False)[1]._select_axis(axis, k - 1, k)
      if nan_first:
        missing = self.isnan()
        places = missing.any(axis, True).where(missing.argmax(axis, True), places)
    else:
      x = self.detach().transpose(axis, -1)
      found = place_of(x._ascending_keys(False, x.shape[-1]), k, nan_first)
      places = found.reshape((*x.shape[:-1], 1)).transpose(axis, -1)
    values = self.gather(axis, places)
    return (values, places) if keepdim else (values.squeeze(axis), places.squeeze(axis))

  @overload
  def median(self, dim: None = None, keepdim: bool = False) -> Self: ...

  @overload
  def median(self, dim: int, keepdim: bool = False) -> tuple[Self, Self]: ...

  def median(self, dim: int | None = None, keepdim: bool = False) -> Self | tuple[Self, Self]:
    """The median of all elements; with `dim` (the medians along it, their int32 positions).

    Of two elements in the middle it is the lesser; where there is a NaN, it is NaN (PyTorch). ValueError for none.
    """
    if dim is None:
      return self.flatten().median(0)[0]
    self._check_not_empty("median", dim)
    size = int(self.shape[normalize_axis(dim, self.ndim)]) if self.ndim else 1
    return self._kth((size + 1) // 2, normalize_axis(dim, self.ndim), keepdim, dtypes.is_float(self.dtype))

  def quantile(
    self,
    q: float | Sequence[float] | Self,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
  ) -> Self:
    """The value below which the share `q`, in [0, 1], of the elements (along `dim`) lies, by the `interpolation`
    "linear", "lower", "higher", "nearest" or "midpoint" of the two next to it. NaN where there is one.

    A vector `q` puts an axis of its size in front. Raises ValueError for a number outside and for no elements.
    """
    if dim is None:
      out = self.flatten().quantile(q, 0, False, interpolation)
      return out.reshape((*out.shape, *(1,) * self.ndim)) if keepdim else out
    return self._ranked(q, dim, keepdim, interpolation, without_nan=False)

  def _ranked(
    self, q: float | Sequence[float] | Self, dim: int, keepdim: bool, interpolation: str, without_nan: bool
  ) -> Self:
    """`quantile` along an axis, of all elements or of those that are not NaN."""
    if interpolation not in INTERPOLATIONS:
      raise ValueError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}")
    self._check_not_empty("quantile", dim)
    x, dtype = self._with_precision()
    share = self._shares(q)._as_dtype(x.dtype)
    axis = normalize_axis(dim, x.ndim)
    ordered = (x if x.ndim else x.reshape((1,))).sort(axis)[0].transpose(axis, -1)
    n = int(ordered.shape[-1])
    rank = share.reshape((share.numel(),))
    if without_nan:
      last = (ordered.isnan().logical_not().sum(-1, keepdim=True) - 1).clamp(0, None)
      rank = rank * last._as_dtype(rank.dtype)
    else:
      rank = (rank * (n - 1)).broadcast_to((*ordered.shape[:-1], rank.numel()))
    if interpolation == "nearest":
      rank = rank.round()
    below, above = rank.floor(), rank.ceil()
    low, high = (ordered.gather(-1, end._as_dtype(dtypes.int32)) for end in (below, above))
    part = {"lower": rank.const_like(0), "higher": rank.const_like(1), "midpoint": rank.const_like(0.5)}
    weight = part.get(interpolation, rank - below)
    # equal infinities have no difference
    out = (low == high).where(low, low.lerp(high, weight))
    if not without_nan:
      out = ordered._select_axis(ordered.ndim - 1, n - 1, n).isnan().where(math.nan, out)
    out = out.transpose(axis, -1)
    out = out.unsqueeze(0).transpose(0, axis + 1)
    out = out if keepdim and self.ndim else out.squeeze(axis + 1)
    return out.reshape((*share.shape, *out.shape[1:]))._as_dtype(dtype)

  def _shares(self, q: float | Sequence[float] | Self) -> Self:
    """What quantile is asked for, as a tensor of no or one axis."""
    if isinstance(q, TensorBase):
      share = q
    else:
      wrong = [v for v in ([q] if isinstance(q, (int, float)) else q) if not 0 <= v <= 1]
      if wrong:
        raise ValueError(f"quantile: q must lie in [0, 1], got {wrong[0]}")
      share = type(self)(q, device=self.device, dtype=dtypes.float64)  # type: ignore[call-arg]
    if share.ndim > 1:
      raise ValueError(f"quantile: q must be a number or a vector, got shape {share.shape}")
    return share
