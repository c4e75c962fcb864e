"""Loss functions. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from typing import Self, TypeVar

from tiny_runtime import Device
from tiny_tensor import capturing
from tiny_tensor.autograd import tracing
from tiny_tensor.base import TensorBase, only_stored
from tiny_tensor.host import unpack
from tiny_tensor.realize import storage
from tiny_tensor.strides import run_of
from tiny_uop import Ops, dtypes, sint

T = TypeVar("T", bound=TensorBase)
UNCHANGED = frozenset({Ops.CAST, Ops.CONTIGUOUS, Ops.COPY, Ops.DETACH, Ops.RESHAPE})  # numbers and their order


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
    if Y.shape != self.shape[:-1]:
      raise ValueError(f"labels of shape {Y.shape} do not fit logits of shape {self.shape}, expected {self.shape[:-1]}")
    return _of_classes(self.log_softmax(-1), Y, None, ignore_index, reduction, label_smoothing)

  def cross_entropy(
    self,
    Y: Self,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    weight: Self | None = None,
    ignore_index: int | None = None,
  ) -> Self:
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
  values = list(unpack(labels._wrap(uop)._read()[0], uop.dtype))
  if wrong := [n for n in set(values) if not 0 <= n < classes and n != ignore_index]:
    raise IndexError(
      f"label {wrong[0]} at position {values.index(wrong[0])} of {len(values)} is none of {classes} classes: expected "
      f"0 … {classes - 1}" + ("" if ignore_index is None else f", or {ignore_index} for what does not count")
    )
