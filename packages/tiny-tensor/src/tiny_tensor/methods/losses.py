"""Loss functions. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from typing import Self

from tiny_tensor.base import TensorBase


class LossMixin(TensorBase):
  """Cross-entropies and the negative log-likelihood."""

  __slots__ = ()

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
    check_smoothing(label_smoothing)
    if Y.shape != self.shape[:-1]:
      raise ValueError(f"labels of shape {Y.shape} do not fit logits of shape {self.shape}, expected {self.shape[:-1]}")
    logs = self.log_softmax(-1)
    counts = Y.ne(ignore_index)
    chosen = Y._hot(self.shape[-1]).where(logs, 0).sum(-1)
    smooth = logs.mean(-1) * label_smoothing if label_smoothing else None
    loss = chosen if smooth is None else chosen * (1 - label_smoothing) + smooth
    loss = counts.where(-loss, 0)
    return loss.sum() / counts.sum()._as_dtype(loss.dtype) if reduction == "mean" else loss._reduced(reduction)

  def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
    """Cross-entropy of logits `(n, classes, …)` against class numbers `(n, …)` or probabilities of the same shape."""
    check_smoothing(label_smoothing)
    axis = 0 if self.ndim == 1 else 1
    classes = self.shape[axis]
    if Y.shape != self.shape and Y.shape != self.shape[:axis] + self.shape[axis + 1 :]:
      raise ValueError(f"labels of shape {Y.shape} do not fit logits of shape {self.shape}")
    target = Y
    if Y.ndim != self.ndim:
      hot = Y._hot(classes).where(1.0, 0.0)
      target = hot.permute(*range(axis), Y.ndim, *range(axis, Y.ndim))
    target = target._as_dtype(self._as_float().dtype)
    if label_smoothing:
      target = target * (1 - label_smoothing) + target.const_like(label_smoothing) / classes
    loss = -(self.log_softmax(axis) * target).sum(axis)
    return loss._reduced(reduction)

  def nll_loss(
    self, Y: Self, weight: Self | None = None, ignore_index: int | None = None, reduction: str = "mean"
  ) -> Self:
    """Negative log-likelihood of log-probabilities `(n, classes, …)` at class numbers `(n, …)`; "mean" is weighted."""
    axis = 0 if self.ndim == 1 else 1
    if Y.shape != self.shape[:axis] + self.shape[axis + 1 :]:
      raise ValueError(f"labels of shape {Y.shape} do not fit log-probabilities of shape {self.shape}")
    hot = Y._hot(self.shape[axis])
    each = hot.where(self.transpose(axis, -1) if self.ndim <= 2 else self.permute(0, *range(2, self.ndim), 1), 0).sum(
      -1
    )
    w = Y.const_like(1, self.dtype) if weight is None else hot.where(weight, 0).sum(-1)
    if ignore_index is not None:
      w = Y.ne(ignore_index).where(w, 0)
    loss = -each * w
    return loss.sum() / w.sum() if reduction == "mean" else loss._reduced(reduction)


def check_smoothing(value: float) -> None:
  """Raises ValueError outside [0, 1]."""
  if not 0.0 <= value <= 1.0:
    raise ValueError(f"label_smoothing must be between 0 and 1, got {value}")
