"""The quick way into a replay: calls that differ from the captured one in buffers and values of variables only.

Each argument is compared with what it was at the capture; nothing is described or rebuilt. What this does not recognise
(containers, views, constants, lazy tensors, and all that is wrong) goes the long way of `jit.Inputs`, which decides.
"""

from __future__ import annotations

from typing import Any

from tiny_tensor.jit.inputs import settings
from tiny_tensor.jit.values import gradient_wish, same_value
from tiny_tensor.pytree import parts
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.context import DEVICE


class _TensorArgument:
  """All of a buffer, reshaped or not. `last` is what was seen at the last call: often it is the same again."""

  __slots__ = ("dtype", "last", "place", "requires_grad", "shape", "size")

  def __init__(self, uop: UOp, requires_grad: bool | None) -> None:
    buffer = uop.src[0] if uop.op is Ops.RESHAPE else uop
    self.shape = uop.arg if uop.op is Ops.RESHAPE else None
    self.dtype, self.place, self.size = buffer.dtype, buffer.src, buffer.arg[1]
    self.requires_grad = gradient_wish(requires_grad, buffer.dtype)
    self.last = (uop, buffer)

  def buffer(self, argument: Any) -> UOp | None:
    """The argument's BUFFER, if it is a tensor like the captured one."""
    if type(argument) is not Tensor:
      return None
    if argument.requires_grad is not self.requires_grad and dtypes.is_float(self.dtype):
      return None
    if argument.requires_grad and argument.grad is not None:
      return None
    uop = argument.uop
    last, buffer = self.last
    if uop is last:
      return buffer
    buffer = uop
    if self.shape is not None:
      if uop.op is not Ops.RESHAPE or uop.arg != self.shape:
        return None
      buffer = uop.src[0]
    if buffer.op is not Ops.BUFFER or buffer.dtype is not self.dtype or buffer.src != self.place:
      return None
    if buffer.arg[1] != self.size:
      return None
    self.last = (uop, buffer)
    return buffer


class QuickCall:
  """The arguments of the captured call, as the next calls are compared with them. Made by `quick_call`."""

  def __init__(self, arguments: list[Any], names: tuple[str, ...]) -> None:
    self._names, self._settings = names, settings()
    self._count = len(arguments)
    self._tensors = [
      (n, _TensorArgument(a.uop, a.requires_grad)) for n, a in enumerate(arguments) if isinstance(a, Tensor)
    ]
    self._variables = [(n, a.src[0], str(a.src[0].arg[0])) for n, a in enumerate(arguments) if isinstance(a, UOp)]
    self._others = [(n, a) for n, a in enumerate(arguments) if not isinstance(a, (Tensor, UOp))]
    self._last: list[tuple[int, UOp, bool | None]] | None = None
    """The tensors of the last call that matched: argument, graph, `requires_grad`. Most calls give the same again."""
    self._buffers: list[UOp] = []
    """Their BUFFERs."""

  def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[UOp], dict[str, int]] | None:
    """The BUFFERs of the tensors and the values of the variables; None for a call that is not known to be alike."""
    if kwargs:
      if tuple(kwargs) != self._names:
        return None
      args = (*args, *kwargs.values())
    elif self._names:
      return None
    if len(args) != self._count:
      return None
    training, default_float, default_int, device = self._settings
    if Tensor.training is not training or DEVICE.value != device:
      return None
    if dtypes.default_float is not default_float or dtypes.default_int is not default_int:
      return None
    for n, other in self._others:
      if args[n] is not other and not same_value(args[n], other):
        return None
    buffers = self._buffers if self._same(args) else self._buffers_of(args)
    if buffers is None:
      return None
    values = {}
    for n, variable, name in self._variables:
      bind = args[n]
      if not isinstance(bind, UOp) or bind.op is not Ops.BIND or bind.src[0] is not variable:
        return None
      values[name] = int(bind.src[1].arg)
    return buffers, values

  def _same(self, args: tuple[Any, ...]) -> bool:
    """Whether the tensors are those of the last call, and none requires a gradient."""
    if self._last is None:
      return False
    for n, uop, wish in self._last:
      argument = args[n]
      if type(argument) is not Tensor or argument.uop is not uop or argument.requires_grad is not wish or wish:
        return False
    return True

  def _buffers_of(self, args: tuple[Any, ...]) -> list[UOp] | None:
    """The BUFFERs of the tensors, which are different ones; None if they are no such tensors as at the capture."""
    buffers = []
    for n, tensor in self._tensors:
      if (buffer := tensor.buffer(args[n])) is None:
        return None
      buffers.append(buffer)
    if len(buffers) > 1 and len(set(buffers)) != len(buffers):
      return None
    self._buffers, self._last = buffers, [(n, args[n].uop, args[n].requires_grad) for n, _ in self._tensors]
    return buffers

  def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors of a call that matches."""
    every = (*args, *kwargs.values())
    return [every[n] for n, _ in self._tensors]


def quick_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> QuickCall | None:
  """For the arguments of a call that was captured; None if there are some that only the long way understands."""
  arguments = [*args, *kwargs.values()]
  variables = [a.src[0].arg[0] for a in arguments if isinstance(a, UOp) and a.op is Ops.BIND]
  if len(set(variables)) != len(variables) or not all(map(_is_simple, arguments)):
    return None
  return QuickCall(arguments, tuple(kwargs))


def _is_simple(argument: Any) -> bool:
  if isinstance(argument, Tensor):
    uop = argument.uop
    if type(argument) is Tensor and uop.op is Ops.RESHAPE and len(uop.src) == 1:
      uop = uop.src[0]
    return type(argument) is Tensor and uop.op is Ops.BUFFER and 0 not in argument.shape
  if isinstance(argument, UOp):
    return argument.op is Ops.BIND
  mutable = isinstance(argument, (bytearray, memoryview)) or hasattr(argument, "__array_interface__")
  return not mutable and parts(argument) is None
