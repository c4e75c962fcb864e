"""Layers without weights, and losses as objects: functions of `nn.functional` with their other arguments.

They have PyTorch's names and arguments, by position too where PyTorch has no others before them. A function does as
well: `nn.Sequential(nn.Linear(4, 8), Tensor.relu)`.
"""

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any, ClassVar

from tiny_tensor.nn import functional as F
from tiny_tensor.nn.module import Module
from tiny_tensor.tensor import Tensor


class _Signature:
  """The signature of a layer: the arguments of its function that follow the Tensors. Those of a loss go by name."""

  def __get__(self, layer: object, kind: "type[Stateless]") -> Signature:
    if layer is not None:
      raise AttributeError("__signature__ is that of the class; a layer is called with Tensors")
    found = list(signature(kind.function).parameters.values())[kind.tensors :]
    return Signature([p.replace(kind=p.KEYWORD_ONLY) for p in found] if kind.by_name else found)


class Stateless(Module):
  """A function of Tensors with arguments that are given when it is made. TypeError for those that it does not take.

  The class statement of a layer names its function: `class ReLU(Stateless, function=F.relu)`.
  """

  function: ClassVar[Callable[..., Any]]
  tensors: ClassVar[int] = 1
  by_name: ClassVar[bool] = False
  __signature__ = _Signature()

  def __init_subclass__(cls, function: Callable[..., Any] | None = None, tensors: int | None = None) -> None:
    cls.tensors = cls.tensors if tensors is None else tensors
    if function is not None:
      cls.function = staticmethod(function)
      cls.__doc__ = cls.__doc__ or f"`functional.{function.__name__}`: {function.__doc__}"

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    try:
      type(self).__signature__.bind(*args, **kwargs)
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


class Loss(Stateless, tensors=2):
  """A loss of an input and a target; its arguments are given by name."""

  by_name = True

  def __init__(self, **kwargs: Any) -> None:
    super().__init__(**kwargs)


def _identity(input: Tensor) -> Tensor:
  """The input."""
  return input


def _flatten(input: Tensor, start_dim: int = 1, end_dim: int = -1) -> Tensor:
  """Axes `start_dim` to `end_dim` as one."""
  return input.flatten(start_dim, end_dim)


class Identity(Stateless, function=_identity):
  """Gives what it gets."""


class Flatten(Stateless, function=_flatten):
  """The axes from `start_dim`, by default the second, to `end_dim` as one."""


class ReLU(Stateless, function=F.relu): ...


class LeakyReLU(Stateless, function=F.leaky_relu): ...


class ReLU6(Stateless, function=F.relu6): ...


class ELU(Stateless, function=F.elu): ...


class SELU(Stateless, function=F.selu): ...


class CELU(Stateless, function=F.celu): ...


class GELU(Stateless, function=F.gelu): ...


class SiLU(Stateless, function=F.silu): ...


class Mish(Stateless, function=F.mish): ...


class Sigmoid(Stateless, function=F.sigmoid): ...


class Tanh(Stateless, function=F.tanh): ...


class LogSigmoid(Stateless, function=F.logsigmoid): ...


class Hardsigmoid(Stateless, function=F.hardsigmoid): ...


class Hardswish(Stateless, function=F.hardswish): ...


class Hardtanh(Stateless, function=F.hardtanh): ...


class Softplus(Stateless, function=F.softplus): ...


class Softsign(Stateless, function=F.softsign): ...


class Softmax(Stateless, function=F.softmax): ...


class LogSoftmax(Stateless, function=F.log_softmax): ...


class GLU(Stateless, function=F.glu): ...


class MaxPool1d(Stateless, function=F.max_pool1d): ...


class MaxPool2d(Stateless, function=F.max_pool2d): ...


class MaxPool3d(Stateless, function=F.max_pool3d): ...


class AvgPool1d(Stateless, function=F.avg_pool1d): ...


class AvgPool2d(Stateless, function=F.avg_pool2d): ...


class AvgPool3d(Stateless, function=F.avg_pool3d): ...


class AdaptiveAvgPool1d(Stateless, function=F.adaptive_avg_pool1d): ...


class AdaptiveAvgPool2d(Stateless, function=F.adaptive_avg_pool2d): ...


class AdaptiveMaxPool2d(Stateless, function=F.adaptive_max_pool2d): ...


class PixelShuffle(Stateless, function=F.pixel_shuffle): ...


class Upsample(Stateless, function=F.interpolate): ...


class CosineSimilarity(Stateless, function=F.cosine_similarity, tensors=2): ...


class L1Loss(Loss, function=F.l1_loss): ...


class MSELoss(Loss, function=F.mse_loss): ...


class SmoothL1Loss(Loss, function=F.smooth_l1_loss): ...


class HuberLoss(Loss, function=F.huber_loss): ...


class CrossEntropyLoss(Loss, function=F.cross_entropy): ...


class NLLLoss(Loss, function=F.nll_loss): ...


class BCELoss(Loss, function=F.binary_cross_entropy): ...


class BCEWithLogitsLoss(Loss, function=F.binary_cross_entropy_with_logits): ...


class KLDivLoss(Loss, function=F.kl_div): ...
