"""Layer and batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tiny_tensor.losses import LossMixin
from tiny_tensor.shapes import normalize_axes


class NormMixin(LossMixin):
  """Normalisation by mean and variance."""

  __slots__ = ()

  def layernorm(self, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> Self:
    """`(x - mean) / sqrt(var + eps)` over `axis`, with the biased variance (Ba et al., 2016)."""
    x, dtype = self.with_precision()
    y = x - x.mean(axis, keepdim=True)
    return (y * (y.square().mean(axis, keepdim=True) + eps).rsqrt()).as_dtype(dtype)

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
