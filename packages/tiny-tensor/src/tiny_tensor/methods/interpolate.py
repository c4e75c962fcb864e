"""Resampling of the last axes to other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tiny_tensor.base import TensorBase
from tiny_tensor.shapes import number
from tiny_uop import DType, dtypes


class InterpolateMixin(TensorBase):
  """interpolate: sums of at most four elements with weights, one axis after the other."""

  __slots__ = ()

  def interpolate(self, size: Sequence[int], mode: str = "linear", align_corners: bool = False) -> Self:
    """Resample the last axes to `size` by "linear", "cubic", "nearest" or "nearest-exact" interpolation (PyTorch's).

    The dtype stays. Integers are interpolated as floats, kept in range after each axis, and rounded at the end, halves
    upwards.
    """
    if mode not in ("linear", "cubic", "nearest", "nearest-exact"):
      raise ValueError(f"mode must be 'linear', 'cubic', 'nearest' or 'nearest-exact', got {mode!r}")
    if align_corners and mode.startswith("nearest"):
      raise ValueError("align_corners only goes with mode='linear' and 'cubic'")
    return self._resampled([int(s) for s in size], mode, align_corners, [None] * len(size))

  def _resampled(self, sizes: Sequence[int], mode: str, align_corners: bool, scales: Sequence[float | None]) -> Self:
    """The last axes resampled, from the last to the first, in this dtype."""
    out = self if mode.startswith("nearest") else self._as_dtype(self._resampling_dtype())
    for axis, (new, scale) in reversed(list(enumerate(zip(sizes, scales, strict=True), start=self.ndim - len(sizes)))):
      out = out._resample(axis, new, mode, align_corners, scale)
      if mode == "cubic" and not dtypes.is_float(self.dtype):  # it goes beyond the values it is made of
        out = out.clamp(float(dtypes.min(self.dtype)), float(dtypes.max(self.dtype)))
    return out._rounded_to(self.dtype)

  def _resampling_dtype(self) -> DType:
    """The float in which elements are averaged: 32 bits at least, and 64 for integers that need them."""
    wide = dtypes.is_int(self.dtype) and self.dtype.bits >= 32
    return dtypes.float64 if wide else dtypes.promote(self.dtype, dtypes.float32)

  def _rounded_to(self, dtype: DType) -> Self:
    """Cast to `dtype`; floats to integers rounded, halves upwards, and kept in range."""
    if not dtypes.is_float(self.dtype) or dtypes.is_float(dtype):
      return self._as_dtype(dtype)
    if dtypes.is_bool(dtype):
      return self.ge(0.5)
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    whole = (self + 0.5).floor().maximum(low)
    # the greatest of 64 bits are no floats: what is beyond them is chosen after the cast
    return (whole >= float(high)).where(self.const_like(high, dtype), whole._as_dtype(dtype))

  def _resample(self, axis: int, new: int, mode: str, align_corners: bool, scale: float | None = None) -> Self:
    """One axis of `interpolate`, as sums of at most four elements with weights. `scale` says how much longer the axis
    becomes where that is not new / old. Of floats of 32 bits at least, but for the nearest element.
    """
    old = number(self.shape[axis], "axes that are resampled")
    if old < 1 or new < 1:
      raise ValueError(f"interpolate needs sizes of at least 1, got {old} resampled to {new}")
    step = old / new if scale is None else 1 / scale
    at = self._count_up(new)._as_dtype(dtypes.float64)
    if mode.startswith("nearest"):
      low = ((at + 0.5) * step if mode == "nearest-exact" else at * step).floor()
      return self.transpose(axis, -1)._picked(low, old)._as_dtype(self.dtype).transpose(axis, -1)
    # (at + 0.5) * step - 0.5 without a product in a sum: the element at or before a place is the same if they are fused
    at = at * ((old - 1) / max(new - 1, 1)) if align_corners else (at + (0.5 - 0.5 / step)) * step
    if mode == "linear":
      at = at.clamp(0, old - 1)
    low = at.floor()
    share = (at - low)._as_dtype(self.dtype)
    weights = [share.mul(-1) + 1, share] if mode == "linear" else share._cubic_weights()
    first = 0 if mode == "linear" else -1
    x = self.transpose(axis, -1)
    out: Self | None = None
    for tap, weight in enumerate(weights, start=first):
      term = x._picked(low + tap, old) * weight
      out = term if out is None else out + term
    assert out is not None
    return out.transpose(axis, -1)

  def _picked(self, index: Self, size: int) -> Self:
    """Elements of the last axis at whole positions; the first and the last one stand for those outside."""
    return index.clamp(0, size - 1)._as_dtype(dtypes.int32)._hot(size).where(self.unsqueeze(-2), 0).sum(-1)

  def _cubic_weights(self) -> list[Self]:
    """Weights of the four elements around places that are `self`, in [0, 1), behind the second (Keys, 1981; with
    a = -3/4, as PyTorch has it).
    """
    a = -0.75

    def near(x: Self) -> Self:
      return ((x * (a + 2) - (a + 3)) * x) * x + 1

    def far(x: Self) -> Self:
      return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(self + 1), near(self), near(self.mul(-1) + 1), far(self.mul(-1) + 2)]
