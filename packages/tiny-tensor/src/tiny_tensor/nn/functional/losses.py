"""Losses with PyTorch's arguments. `reduction` is "mean", "sum" or "none"; targets have no gradients where PyTorch's
have none.
"""

import math
from collections.abc import Callable

from tiny_tensor.nn.functional.distances import pairwise_distance
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

__all__ = [
  "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
  "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
  "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss",
  "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
  """Absolute differences."""
  return _weighted((input - target).abs(), weight, reduction)


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
  """Squared differences."""
  return _weighted((input - target).square(), weight, reduction)


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
  """The loss with weights, whose mean is divided by the sum of them."""
  if weight is None:
    return loss._reduced(reduction)
  loss = loss * weight
  return loss.sum() / weight.broadcast_to(loss.shape).sum() if reduction == "mean" else loss._reduced(reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
  """Squared differences over 2·beta below `beta`, absolute ones less beta/2 above (Girshick, 2015)."""
  if beta < 0:
    raise ValueError(f"smooth_l1_loss: beta must not be negative, got {beta}")
  if beta == 0:
    return l1_loss(input, target, reduction)
  size = (input - target).abs()
  return (size < beta).where(size.square() * (0.5 / beta), size - 0.5 * beta)._reduced(reduction)


def huber_loss(
  input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
  """Half of squared differences up to `delta`, `delta` times absolute ones less delta/2 above (Huber, 1964)."""
  if delta <= 0:
    raise ValueError(f"huber_loss: delta must be positive, got {delta}")
  size = (input - target).abs()
  return _weighted((size <= delta).where(size.square() * 0.5, (size - 0.5 * delta) * delta), weight, reduction)


def binary_cross_entropy(
  input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
  """Cross-entropy of probabilities; logarithms are at least -100."""
  loss = input.binary_crossentropy(target, "none")
  return (loss if weight is None else loss * weight)._reduced(reduction)


def binary_cross_entropy_with_logits(
  input: Tensor,
  target: Tensor,
  weight: Tensor | None = None,
  reduction: str = "mean",
  pos_weight: Tensor | None = None,
) -> Tensor:
  """Binary cross-entropy of `sigmoid(input)`, without overflow."""
  loss = input.binary_crossentropy_logits(target, "none", pos_weight)
  return (loss if weight is None else loss * weight)._reduced(reduction)


def nll_loss(
  input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
  """Negative log-likelihood of log-probabilities `(n, classes, …)` at class numbers `(n, …)`."""
  return input.nll_loss(target, weight, ignore_index, reduction)


def cross_entropy(
  input: Tensor,
  target: Tensor,
  weight: Tensor | None = None,
  ignore_index: int = -100,
  reduction: str = "mean",
  label_smoothing: float = 0.0,
) -> Tensor:
  """Cross-entropy of logits `(n, classes, …)` against class numbers `(n, …)` or probabilities of the same shape.

  `weight (classes,)`; the mean over class numbers is weighted and leaves out those equal to `ignore_index`.
  """
  return input.cross_entropy(target, reduction, label_smoothing, weight, ignore_index)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
  """Kullback–Leibler divergence of log-probabilities `input` from `target` (or its logarithm, if `log_target`);
  "batchmean" divides the sum by the size of the first axis.
  """
  loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
  return loss.sum() / input.shape[0] if reduction == "batchmean" else loss._reduced(reduction)


def poisson_nll_loss(
  input: Tensor,
  target: Tensor,
  log_input: bool = True,
  full: bool = False,
  eps: float = 1e-8,
  reduction: str = "mean",
) -> Tensor:
  """Negative log-likelihood of counts under a Poisson distribution; `full` adds Stirling's term for counts above 1."""
  loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
  if full:
    stirling = target * target.log() - target + (target * (2 * math.pi)).log() * 0.5
    loss = loss + (target > 1).where(stirling, 0)
  return loss._reduced(reduction)


def gaussian_nll_loss(
  input: Tensor,
  target: Tensor,
  var: Tensor | float,
  full: bool = False,
  eps: float = 1e-6,
  reduction: str = "mean",
) -> Tensor:
  """Negative log-likelihood under normal distributions of variance `var`, at least `eps`, which stops no gradient."""
  wide = var if isinstance(var, Tensor) else input._filled((), var)
  if wide.ndim == input.ndim - 1 and wide.shape == input.shape[:-1]:
    wide = wide.unsqueeze(-1)
  wide = wide + ((wide < eps).where(eps, wide) - wide).detach()
  loss = (wide.log() + (input - target).square() / wide) * 0.5
  return (loss + 0.5 * math.log(2 * math.pi) if full else loss)._reduced(reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
  """x where the target is 1, `max(0, margin - x)` where it is -1."""
  far = (input * -1 + margin).clamp(0, None)
  loss = target.eq(1).where(0, far) + target.eq(-1).where(0, input)
  return loss._reduced(reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
  """`log(1 + exp(-target x))`, targets 1 or -1."""
  return (target * input * -1).softplus()._reduced(reduction)


def margin_ranking_loss(
  input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
  """`max(0, -target (x1 - x2) + margin)`."""
  return (target * -1 * (input1 - input2) + margin).clamp(0, None)._reduced(reduction)


def cosine_embedding_loss(
  input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
  """`1 - cos` of the angle between vectors where the target is 1, `max(0, cos - margin)` where it is -1."""
  eps = 1e-12  # PyTorch adds it to the squared lengths
  lengths = ((input1.square().sum(-1) + eps) * (input2.square().sum(-1) + eps)).sqrt()
  cos = (input1 * input2).sum(-1) / lengths
  loss = target.eq(1).where(cos * -1 + 1, 0) + target.eq(-1).where((cos - margin).clamp(0, None), 0)
  return loss._reduced(reduction)


def multilabel_soft_margin_loss(
  input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
  """Mean over classes (the last axis) of binary cross-entropies of logits."""
  loss = input.binary_crossentropy_logits(target, "none")
  return (loss if weight is None else loss * weight).mean(-1)._reduced(reduction)


def multi_margin_loss(
  input: Tensor,
  target: Tensor,
  p: int = 1,
  margin: float = 1.0,
  weight: Tensor | None = None,
  reduction: str = "mean",
) -> Tensor:
  """Over the other classes, the mean of `max(0, margin - x[target] + x[i])^p`. `(n, classes)` against `(n,)`."""
  rows, labels = (input, target) if input.ndim == 2 else (input.reshape((1, -1)), target.reshape((1,)))
  if not dtypes.is_int(labels.dtype) or labels.shape != rows.shape[:1]:
    raise ValueError(f"multi_margin_loss: {labels.dtype.name} of shape {target.shape} are no labels of {input.shape}")
  hot = labels._hot(int(rows.shape[-1]))
  chosen = hot.where(rows, 0).sum(-1, keepdim=True)
  loss = (rows - chosen + margin).clamp(0, None).pow(p)
  loss = loss if weight is None else loss * hot.where(weight, 0).sum(-1, keepdim=True)
  loss = hot.where(0, loss).mean(-1)
  return (loss if input.ndim == 2 else loss.squeeze(0))._reduced(reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
  """`max(0, 1 - (x[j] - x[i]))` for labels j and other classes i, over the number of classes. Labels of a row end at
  the first -1.
  """
  rows, labels = (input, target) if input.ndim == 2 else (input.reshape((1, -1)), target.reshape((1, -1)))
  if not dtypes.is_int(labels.dtype) or labels.shape != rows.shape:
    raise ValueError(
      f"multilabel_margin_loss: {labels.dtype.name} of shape {target.shape} are no labels of {input.shape}"
    )
  classes = int(rows.shape[-1])
  valid = (labels < 0).cumsum(-1).eq(0)
  hot = labels._hot(classes) & valid.unsqueeze(-1)  # (n, labels, classes)
  chosen = hot.where(rows.unsqueeze(-2), 0).sum(-1)
  others = hot.any(-2).logical_not().unsqueeze(-2) & valid.unsqueeze(-1)
  gaps = (rows.unsqueeze(-2) - chosen.unsqueeze(-1) + 1).clamp(0, None)
  loss = others.where(gaps, 0).sum((-2, -1)) / classes
  return (loss if input.ndim == 2 else loss.squeeze(0))._reduced(reduction)


def triplet_margin_loss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  margin: float = 1.0,
  p: float = 2.0,
  eps: float = 1e-6,
  swap: bool = False,
  reduction: str = "mean",
) -> Tensor:
  """`max(0, |a - p| - |a - n| + margin)` with p-norms; `swap` takes |p - n| where that is less than |a - n|."""

  def distance(a: Tensor, b: Tensor) -> Tensor:
    return pairwise_distance(a, b, p, eps)

  return triplet_margin_with_distance_loss(
    anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
  )


def triplet_margin_with_distance_loss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  *,
  distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
  margin: float = 1.0,
  swap: bool = False,
  reduction: str = "mean",
) -> Tensor:
  """triplet_margin_loss with any distance of two tensors."""
  if margin <= 0:
    raise ValueError(f"margin must be positive, got {margin}")
  distance = distance_function or pairwise_distance
  near, far = distance(anchor, positive), distance(anchor, negative)
  far = far.minimum(distance(positive, negative)) if swap else far
  return (near - far + margin).clamp(0, None)._reduced(reduction)
