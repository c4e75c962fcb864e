"""Layer and batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tiny_tensor.base import TensorBase
from tiny_tensor.shapes import normalize_axes


class NormMixin(TensorBase):
  """Normalisation by mean and variance."""

  __slots__ = ()

  def layernorm(self, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> Self:
    """`(x - mean) / sqrt(var + eps)` over `axis`, with the biased variance (Ba et al., 2016)."""
    x, dtype = self._with_precision()
    mean = x.mean(axis, keepdim=True)
    return ((x - mean) * (x._variance_about(mean, axis) + eps).rsqrt())._as_dtype(dtype)

  def _variance_about(self, mean: Self, axis: int | Sequence[int]) -> Self:
    """The biased variance of floats over `axis`, which is kept, given their mean.

    Moving the mean does not change the sum of squares about it to first order, so the mean is a constant there, and the
    gradient needs no sum of its own for it. For higher derivatives the second term says what the mean would have added:
    its value and its gradient are 0.
    """
    fixed = mean.detach()
    return (self - fixed).square().mean(axis, keepdim=True) - (mean - fixed).square()

  def batchnorm(
    self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: int | Sequence[int] = 1
  ) -> Self:
    """`(x - mean) * invstd * weight + bias` with per-channel statistics along `axis` (Ioffe & Szegedy, 2015)."""
    axes = normalize_axes(axis, self.ndim)
    shape = tuple(s if i in axes else 1 for i, s in enumerate(self.shape))

    def spread(t: Self) -> Self:
      return t if t.ndim == self.ndim else t.reshape(shape)

    out = self - spread(mean)
    if weight is not None:
      out = out * spread(weight)
    out = out * spread(invstd)
    return out if bias is None else out + spread(bias)
