"""Losses of sequences."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

__all__ = ["ctc_loss"]

Lengths = Tensor | Sequence[int]


def ctc_loss(
  log_probs: Tensor,
  targets: Tensor,
  input_lengths: Lengths,
  target_lengths: Lengths,
  blank: int = 0,
  reduction: str = "mean",
  zero_infinity: bool = False,
) -> Tensor:
  """Negative log-likelihood of labels without an alignment: the sum over all ways to say each, once or several times in
  a row, with `blank`s between them (connectionist temporal classification; Graves et al., 2006).

  `log_probs (length, n, classes)` are logarithms of probabilities, or `(length, classes)` those of one sequence.
  `targets (n, labels)`, or all labels one after the other, `(sum of target_lengths,)`. Of sequence i the first
  `input_lengths[i]` steps and `target_lengths[i]` labels count. "mean" divides each loss by its number of labels, then
  takes the mean. What cannot be said in so few steps has an infinite loss, or none with `zero_infinity`.

  The gradient is that of this function; PyTorch's is already that of logits before a `log_softmax`, behind which both
  are the same. Lengths in a tensor are looked at where the targets are one after the other.
  """
  single = log_probs.ndim == 2
  logs = (log_probs.unsqueeze(1) if single else log_probs)._as_float()
  if logs.ndim != 3:
    raise ValueError(f"ctc_loss takes log_probs (length, n, classes) or (length, classes), got {log_probs.shape}")
  steps, n, classes = (int(s) for s in logs.shape)
  if not dtypes.is_int(targets.dtype):
    raise TypeError(f"ctc_loss: targets are numbers of classes, got {targets.dtype.name}")
  if not 0 <= blank < classes:
    raise ValueError(f"ctc_loss: blank must be one of {classes} classes, got {blank}")
  times, counts = (
    _lengths(given, n, logs, what) for given, what in ((input_lengths, "input"), (target_lengths, "target"))
  )
  labels = _padded(targets.unsqueeze(0) if single and targets.ndim == 1 else targets, target_lengths, counts, n)
  alphas = _forward(logs, labels._as_dtype(dtypes.int32), times, blank, steps)
  # the end is the last label, or the blank behind it
  place = alphas._count_up(int(alphas.shape[-1]))
  ends = (place == (counts * 2).unsqueeze(-1)) | (place == (counts * 2 - 1).unsqueeze(-1))
  loss = _log_sum(ends.where(alphas, -math.inf), last=True) * -1
  if zero_infinity:
    loss = loss.eq(math.inf).where(0.0, loss)
  if reduction == "mean":
    return (loss / counts.clamp(1, None)).mean()
  return (loss.squeeze(0) if single else loss)._reduced(reduction)


def _lengths(given: Lengths, n: int, near: Tensor, what: str) -> Tensor:
  """int32 `(n,)`. Raises ValueError for another number of them."""
  lengths = given if isinstance(given, Tensor) else Tensor(list(given), device=near.device, dtype=dtypes.int32)
  if lengths.numel() != n:
    raise ValueError(f"ctc_loss: {n} sequences need as many {what}_lengths, got {lengths.numel()}")
  return lengths.reshape((n,))._as_dtype(dtypes.int32)


def _padded(targets: Tensor, given: Lengths, counts: Tensor, n: int) -> Tensor:
  """Labels as `(n, labels)`."""
  if targets.ndim == 2 and targets.shape[0] == n:
    return targets
  if targets.ndim != 1:
    raise ValueError(f"ctc_loss: targets are (n, labels) or (all labels,) for {n} sequences, got {targets.shape}")
  total = int(targets.shape[0])
  if total == 0:
    return targets._filled((n, 0), 0)
  most = int(given.max().item()) if isinstance(given, Tensor) else max(given, default=0)
  starts = counts.cumsum(0) - counts
  return targets[(starts.unsqueeze(-1) + counts._count_up(most)).clamp(0, total - 1)]


def _log_sum(*terms: Tensor, last: bool = False) -> Tensor:
  """The logarithm of the sum of exponentials over several tensors, and over the `last` axis; -inf, without a gradient,
  where all are."""
  top = functools.reduce(Tensor.maximum, [t.detach() for t in terms])
  top = top.max(-1, keepdim=True) if last else top
  none = top.eq(-math.inf)
  top = none.where(0.0, top)
  total = sum([(t - top).exp() for t in terms[1:]], (terms[0] - top).exp())
  if last:
    total, none, top = total.sum(-1), none.squeeze(-1), top.squeeze(-1)
  return none.where(-math.inf, none.where(1.0, total).log() + top)


def _forward(logs: Tensor, labels: Tensor, times: Tensor, blank: int, steps: int) -> Tensor:
  """`(n, 2 labels + 1)`: logarithms of the probabilities of all steps, by the blank or label that they end in."""
  n, count = (int(s) for s in labels.shape)
  spaced = labels._filled((n, count, 1), blank).cat(labels.unsqueeze(-1), dim=-1).reshape((n, 2 * count))
  symbols = spaced.cat(labels._filled((n, 1), blank), dim=-1).contiguous()
  size = 2 * count + 1
  # a label may follow the one before the blank, unless it is the same
  before = labels._filled((n, 2), blank).cat(symbols, dim=-1)[:, :size]
  skips = (symbols.ne(blank) & symbols.ne(before)).contiguous()
  said = logs.gather(2, symbols.unsqueeze(0).broadcast_to((steps, n, size))).contiguous()
  place = symbols._count_up(size)
  alphas = place.eq(0).where(logs._filled((n, size), 0.0), -math.inf)  # before the first step
  for step in range(steps):
    if step == 0:  # it says a blank or the first label
      moved = (place < 2).where(said[0], -math.inf)
    else:
      one = alphas.pad((1, 0), value=-math.inf)[:, :size]
      two = skips.where(alphas.pad((2, 0), value=-math.inf)[:, :size], -math.inf)
      moved = _log_sum(alphas, one, two) + said[step]
    alphas = (times > step).unsqueeze(-1).where(moved, alphas).contiguous()
  return alphas
