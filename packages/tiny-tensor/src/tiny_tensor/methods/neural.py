"""Activations, normalisation and losses: what networks are made of besides weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, TypeVar

from tiny_runtime import Device, buffer_of
from tiny_tensor import capturing
from tiny_tensor.autograd import tracing
from tiny_tensor.base import Scalar, TensorBase, only_stored
from tiny_tensor.naming import unary
from tiny_tensor.realize import storage
from tiny_tensor.shapes import normalize_axes
from tiny_tensor.strides import run_of
from tiny_uop import Ops, dtypes, sint

T = TypeVar("T", bound=TensorBase)
UNCHANGED = frozenset({Ops.CAST, Ops.CONTIGUOUS, Ops.COPY, Ops.DETACH, Ops.RESHAPE})  # numbers and their order


class NeuralMixin(TensorBase):
  """relu and its relatives, element by element, with PyTorch's gradients, at the kinks too unless noted; layer and
  batch normalisation; cross-entropies, of `reduction` "mean", "sum" or "none".
  """

  __slots__ = ()

  relu = unary("`max(x, 0)`; NaN stays.", lambda x: (x <= 0).where(0, x))
  relu6 = unary("relu limited to 6.", lambda x: x.hardtanh(0, 6))

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

  swish = silu

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

  softsign = unary("`x / (1 + |x|)`.", lambda x: x / (x.abs() + 1))
  logsigmoid = unary("`log(sigmoid(x))`.", lambda x: -(-x._as_float()).softplus())

  def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
    """`alpha x + beta` limited to [0, 1]; no gradient at the bounds."""
    x = self._as_float()
    line = x * alpha + beta
    if alpha <= 0:
      return line.hardtanh(0, 1)
    # where x, which is exact, reaches the bounds: `line` may be computed with one rounding or with two
    return (x <= -beta / alpha).where(0, (x >= (1 - beta) / alpha).where(1, line))._as_dtype(x.dtype)

  hardswish = unary("`x * relu6(x + 3) / 6`.", lambda x: x * (x + 3).relu6() * (1 / 6))

  def _reduced(self, reduction: str) -> Self:
    """Mean, sum or itself. Raises ValueError for another name."""
    if reduction == "mean":
      return self.mean()
    if reduction == "sum":
      return self.sum()
    if reduction == "none":
      return self
    raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")

  def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
    """`-Y log(x) - (1-Y) log(1-x)` of probabilities; logarithms are at least -100, as in PyTorch."""
    Y = Y._as_dtype(self.dtype)
    logs = self.log().clamp(-100.0, None), (self.neg() + 1).log().clamp(-100.0, None)
    return (-(Y * logs[0]) - (Y.neg() + 1) * logs[1])._reduced(reduction)

  def binary_crossentropy_logits(self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None) -> Self:
    """Binary cross-entropy of `sigmoid(self)`, without overflow."""
    Y = Y._as_dtype(self.dtype)
    yes, no = self.logsigmoid(), (-self).logsigmoid()
    weight = 1.0 if pos_weight is None else pos_weight
    return -(Y * yes * weight + (Y.neg() + 1) * no)._reduced(reduction)

  def sparse_categorical_crossentropy(
    self, Y: Self, ignore_index: int = -1, label_smoothing: float = 0.0, reduction: str = "mean"
  ) -> Self:
    """Cross-entropy of logits `(…, classes)` against class numbers `(…)`; elements equal to `ignore_index` do not
    count.
    """
    if Y.shape != self.shape[:-1]:
      raise ValueError(f"labels of shape {Y.shape} do not fit logits of shape {self.shape}, expected {self.shape[:-1]}")
    return _of_classes(self.log_softmax(-1), Y, None, ignore_index, reduction, label_smoothing)

  def cross_entropy(
    self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0, weight: Self | None = None,
    ignore_index: int | None = None,
  ) -> Self:  # fmt: skip
    """Cross-entropy of logits `(n, classes, …)` against class numbers `(n, …)` or probabilities of the same shape.

    `weight (classes,)`; the mean over class numbers is weighted and leaves out those equal to `ignore_index`.
    """
    axis = 0 if self.ndim == 1 else 1
    if Y.shape != self.shape:
      logs = _classes_last(self.log_softmax(axis), Y, "logits")
      return _of_classes(logs, Y, weight, ignore_index, reduction, label_smoothing)
    check_smoothing(label_smoothing)
    target = Y._as_dtype(self._as_float().dtype)
    if label_smoothing:
      target = target * (1 - label_smoothing) + label_smoothing / self.shape[axis]
    if weight is not None:
      target = target * weight.reshape([-1 if i == axis else 1 for i in range(self.ndim)])
    return (-(self.log_softmax(axis) * target).sum(axis))._reduced(reduction)

  def nll_loss(
    self, Y: Self, weight: Self | None = None, ignore_index: int | None = None, reduction: str = "mean"
  ) -> Self:
    """Negative log-likelihood of log-probabilities `(n, classes, …)` at class numbers `(n, …)`; "mean" is weighted."""
    return _of_classes(_classes_last(self, Y, "log-probabilities"), Y, weight, ignore_index, reduction, 0.0)

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


def _classes_last(x: T, Y: T, what: str) -> T:
  """Values `(n, classes, …)` as `(n, …, classes)`. Raises ValueError where class numbers do not fit."""
  axis = 0 if x.ndim == 1 else 1
  if Y.shape != x.shape[:axis] + x.shape[axis + 1 :]:
    raise ValueError(f"labels of shape {Y.shape} do not fit {what} of shape {x.shape}")
  return x.transpose(axis, -1) if x.ndim <= 2 else x.permute(0, *range(2, x.ndim), 1)


def _of_classes(logs: T, Y: T, weight: T | None, ignore_index: int | None, reduction: str, label_smoothing: float) -> T:
  """The loss of log-probabilities `(…, classes)` at class numbers `(…)`. The mean is weighted by what counts."""
  check_smoothing(label_smoothing)
  check_labels(Y, logs.shape[-1], ignore_index)
  hot = Y._hot(logs.shape[-1])
  weights = None if weight is None else hot.where(weight, 0).sum(-1)
  loss = -hot.where(logs, 0).sum(-1)
  loss = loss if weights is None else loss * weights
  if label_smoothing:
    loss = loss * (1 - label_smoothing) - (logs if weight is None else logs * weight).mean(-1) * label_smoothing
  if ignore_index is not None:
    counts = Y.ne(ignore_index)
    loss, weights = counts.where(loss, 0), counts if weights is None else counts.where(weights, 0)
  if reduction == "mean" and weights is not None:
    return loss.sum() / weights.sum()._as_dtype(loss.dtype)
  return loss._reduced(reduction)


def check_smoothing(value: float) -> None:
  """Raises ValueError outside [0, 1]."""
  if not 0.0 <= value <= 1.0:
    raise ValueError(f"label_smoothing must be between 0 and 1, got {value}")


def check_labels(labels: TensorBase, classes: sint, ignore_index: int | None) -> None:
  """Raises IndexError for a class number that is none, and not `ignore_index`.

  Only labels that lie in memory of the host are looked at, or a cast or copy of such: for that nothing is computed, and
  no device is waited for. In functions that are transformed, and while TinyJit captures, none are.
  """
  uop = labels.uop
  while uop.op in UNCHANGED:
    uop = uop.src[0]
  memory, recording = storage(uop), capturing.current()
  if tracing.active() or (recording is not None and recording.refuse_reads) or not dtypes.is_int(uop.dtype):
    return
  if (
    memory is None or memory.op is not Ops.BUFFER or not (uop is memory or run_of(uop)) or not isinstance(classes, int)
  ):
    return
  if not (only_stored(memory) or Device.opened(str(memory.device)).capabilities.host_mapped):
    return
  if not buffer_of(memory).is_written():  # `Tensor.empty`, to build a graph with
    return
  values, _ = labels._wrap(uop)._elements()
  if wrong := [n for n in set(values) if not 0 <= n < classes and n != ignore_index]:
    raise IndexError(
      f"label {wrong[0]} at position {values.index(wrong[0])} of {len(values)} is none of {classes} classes: expected "
      f"0 … {classes - 1}" + ("" if ignore_index is None else f", or {ignore_index} for what does not count")
    )
