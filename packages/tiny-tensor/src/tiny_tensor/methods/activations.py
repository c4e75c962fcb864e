"""Activation functions."""

from __future__ import annotations

import math
from typing import Self

from tiny_tensor.base import Scalar, TensorBase


class ActivationMixin(TensorBase):
  """relu and its relatives, element by element. Gradients are PyTorch's, at the kinks too unless noted."""

  __slots__ = ()

  def relu(self) -> Self:
    """`max(x, 0)`; NaN stays."""
    return (self <= 0).where(0, self)

  def relu6(self) -> Self:
    """relu limited to 6."""
    return self.hardtanh(0, 6)

  def hardtanh(self, min_val: Scalar = -1, max_val: Scalar = 1) -> Self:
    """Limited to [min_val, max_val]; no gradient at the bounds."""
    return (self <= min_val).where(min_val, (self >= max_val).where(max_val, self))._as_dtype(self.dtype)

  def leaky_relu(self, neg_slope: float = 0.01) -> Self:
    """x where positive, else `neg_slope * x`."""
    x = self._as_float()
    return (x > 0).where(x, x * neg_slope)

  def silu(self) -> Self:
    """`x * sigmoid(x)`."""
    x, dtype = self._with_precision()
    return (x * x.sigmoid())._as_dtype(dtype)

  def swish(self) -> Self:
    """`silu`."""
    return self.silu()

  def elu(self, alpha: float = 1.0) -> Self:
    """x where positive, else `alpha * (exp(x) - 1)`."""
    x = self._as_float()
    positive = x > 0
    return positive.where(x, (positive.where(0.0, x).expm1()) * alpha)

  def celu(self, alpha: float = 1.0) -> Self:
    """`max(x, 0) + min(alpha * (exp(x/alpha) - 1), 0)`."""
    x = self._as_float()
    positive = x > 0
    return positive.where(x, (positive.where(0.0, x) / alpha).expm1() * alpha)

  def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
    """Scaled elu (Klambauer et al., 2017)."""
    return self.elu(alpha) * gamma

  def gelu(self, approximate: str = "tanh") -> Self:
    """`0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`; with `approximate="none"` `0.5 x (1 + erf(x / √2))`."""
    x, dtype = self._with_precision()
    if approximate == "none":
      return (x * ((x * math.sqrt(0.5)).erf() + 1) * 0.5)._as_dtype(dtype)
    if approximate != "tanh":
      raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    # (1 + tanh(u)) / 2 is sigmoid(2u), which is accurate in its tails
    u = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return (x * (u * 2).sigmoid())._as_dtype(dtype)

  def quick_gelu(self) -> Self:
    """`x * sigmoid(1.702 x)`."""
    x, dtype = self._with_precision()
    return (x * (x * 1.702).sigmoid())._as_dtype(dtype)

  def softplus(self, beta: float = 1.0) -> Self:
    """`log(1 + exp(beta x)) / beta`."""
    x, dtype = self._with_precision()
    return ((x * beta).logaddexp(0.0) / beta)._as_dtype(dtype)

  def mish(self) -> Self:
    """`x * tanh(softplus(x))`."""
    x, dtype = self._with_precision()
    return (x * x.softplus().tanh())._as_dtype(dtype)

  def softsign(self) -> Self:
    """`x / (1 + |x|)`."""
    return self / (self.abs() + 1)

  def logsigmoid(self) -> Self:
    """`log(sigmoid(x))`."""
    return -(-self._as_float()).softplus()

  def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
    """`alpha x + beta` limited to [0, 1]; no gradient at the bounds."""
    x = self._as_float()
    line = x * alpha + beta
    if alpha <= 0:
      return line.hardtanh(0, 1)
    # where x, which is exact, reaches the bounds: `line` may be computed with one rounding or with two
    return (x <= -beta / alpha).where(0, (x >= (1 - beta) / alpha).where(1, line))._as_dtype(x.dtype)

  def hardswish(self) -> Self:
    """`x * relu6(x + 3) / 6`."""
    return self * (self + 3).relu6() * (1 / 6)
