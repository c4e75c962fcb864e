"""Layers without weights, and losses as objects: functions of `nn.functional` with their other arguments.

They have PyTorch's names and arguments, by position too where PyTorch has no others before them. A function does as
well: `nn.Sequential(nn.Linear(4, 8), Tensor.relu)`.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any, ClassVar

from tiny_tensor.nn import functional as F
from tiny_tensor.tensor import Tensor


class Stateless:
  """A function of Tensors with arguments that are given when it is made. TypeError for those that it does not take."""

  function: ClassVar[Callable[..., Any]]
  tensors: ClassVar[int] = 1

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    try:
      signature(type(self).function).bind(*[None] * self.tensors, *args, **kwargs)
    except TypeError as error:
      raise TypeError(f"{type(self).__name__}: {error}") from None
    self.args, self.kwargs = args, kwargs

  def __call__(self, *inputs: Tensor) -> Any:
    if len(inputs) != self.tensors:
      raise TypeError(f"{type(self).__name__} takes {self.tensors} Tensors, got {len(inputs)}")
    return type(self).function(*inputs, *self.args, **self.kwargs)

  def __repr__(self) -> str:
    given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
    return f"{type(self).__name__}({', '.join(given)})"


class Loss(Stateless):
  """A loss of an input and a target; its arguments are given by name."""

  tensors = 2

  def __init__(self, **kwargs: Any) -> None:
    super().__init__(**kwargs)


def _identity(input: Tensor) -> Tensor:
  """The input."""
  return input


def _flatten(input: Tensor, start_dim: int = 1, end_dim: int = -1) -> Tensor:
  """Axes `start_dim` to `end_dim` as one."""
  return input.flatten(start_dim, end_dim)


class Identity(Stateless):
  """Gives what it gets."""

  function = staticmethod(_identity)


class Flatten(Stateless):
  """The axes from `start_dim`, by default the second, to `end_dim` as one."""

  function = staticmethod(_flatten)


class ReLU(Stateless):
  """`functional.relu`."""

  function = staticmethod(F.relu)


class LeakyReLU(Stateless):
  """`functional.leaky_relu`."""

  function = staticmethod(F.leaky_relu)


class ReLU6(Stateless):
  """`functional.relu6`."""

  function = staticmethod(F.relu6)


class ELU(Stateless):
  """`functional.elu`."""

  function = staticmethod(F.elu)


class SELU(Stateless):
  """`functional.selu`."""

  function = staticmethod(F.selu)


class CELU(Stateless):
  """`functional.celu`."""

  function = staticmethod(F.celu)


class GELU(Stateless):
  """`functional.gelu`."""

  function = staticmethod(F.gelu)


class SiLU(Stateless):
  """`functional.silu`."""

  function = staticmethod(F.silu)


class Mish(Stateless):
  """`functional.mish`."""

  function = staticmethod(F.mish)


class Sigmoid(Stateless):
  """`functional.sigmoid`."""

  function = staticmethod(F.sigmoid)


class Tanh(Stateless):
  """`functional.tanh`."""

  function = staticmethod(F.tanh)


class LogSigmoid(Stateless):
  """`functional.logsigmoid`."""

  function = staticmethod(F.logsigmoid)


class Hardsigmoid(Stateless):
  """`functional.hardsigmoid`."""

  function = staticmethod(F.hardsigmoid)


class Hardswish(Stateless):
  """`functional.hardswish`."""

  function = staticmethod(F.hardswish)


class Hardtanh(Stateless):
  """`functional.hardtanh`."""

  function = staticmethod(F.hardtanh)


class Softplus(Stateless):
  """`functional.softplus`."""

  function = staticmethod(F.softplus)


class Softsign(Stateless):
  """`functional.softsign`."""

  function = staticmethod(F.softsign)


class Softmax(Stateless):
  """`functional.softmax`."""

  function = staticmethod(F.softmax)


class LogSoftmax(Stateless):
  """`functional.log_softmax`."""

  function = staticmethod(F.log_softmax)


class GLU(Stateless):
  """`functional.glu`."""

  function = staticmethod(F.glu)


class MaxPool1d(Stateless):
  """`functional.max_pool1d`."""

  function = staticmethod(F.max_pool1d)


class MaxPool2d(Stateless):
  """`functional.max_pool2d`."""

  function = staticmethod(F.max_pool2d)


class MaxPool3d(Stateless):
  """`functional.max_pool3d`."""

  function = staticmethod(F.max_pool3d)


class AvgPool1d(Stateless):
  """`functional.avg_pool1d`."""

  function = staticmethod(F.avg_pool1d)


class AvgPool2d(Stateless):
  """`functional.avg_pool2d`."""

  function = staticmethod(F.avg_pool2d)


class AvgPool3d(Stateless):
  """`functional.avg_pool3d`."""

  function = staticmethod(F.avg_pool3d)


class AdaptiveAvgPool1d(Stateless):
  """`functional.adaptive_avg_pool1d`."""

  function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(Stateless):
  """`functional.adaptive_avg_pool2d`."""

  function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveMaxPool2d(Stateless):
  """`functional.adaptive_max_pool2d`."""

  function = staticmethod(F.adaptive_max_pool2d)


class PixelShuffle(Stateless):
  """`functional.pixel_shuffle`."""

  function = staticmethod(F.pixel_shuffle)


class Upsample(Stateless):
  """`functional.interpolate`."""

  function = staticmethod(F.interpolate)


class CosineSimilarity(Stateless):
  """`functional.cosine_similarity`."""

  function = staticmethod(F.cosine_similarity)
  tensors = 2


class L1Loss(Loss):
  """`functional.l1_loss`."""

  function = staticmethod(F.l1_loss)


class MSELoss(Loss):
  """`functional.mse_loss`."""

  function = staticmethod(F.mse_loss)


class SmoothL1Loss(Loss):
  """`functional.smooth_l1_loss`."""

  function = staticmethod(F.smooth_l1_loss)


class HuberLoss(Loss):
  """`functional.huber_loss`."""

  function = staticmethod(F.huber_loss)


class CrossEntropyLoss(Loss):
  """`functional.cross_entropy`."""

  function = staticmethod(F.cross_entropy)


class NLLLoss(Loss):
  """`functional.nll_loss`."""

  function = staticmethod(F.nll_loss)


class BCELoss(Loss):
  """`functional.binary_cross_entropy`."""

  function = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(Loss):
  """`functional.binary_cross_entropy_with_logits`."""

  function = staticmethod(F.binary_cross_entropy_with_logits)


class KLDivLoss(Loss):
  """`functional.kl_div`."""

  function = staticmethod(F.kl_div)
