"""Pickles and copies of tensors: the values, in memory of their own.

A pickle names a tensor's BUFFERs, each once, and the movement operations that show them. So what was one tensor is one
again, and tensors that show all elements of the same memory (`x`, `x.T`, `x.detach()`) share it again. A tensor of some
elements of a larger one brings only these.
"""

from __future__ import annotations

import copy
from typing import Any, Self, SupportsIndex, TypeVar
from weakref import WeakValueDictionary

from tiny_runtime import Unavailable, buffer_of
from tiny_tensor import capturing
from tiny_tensor.autograd import tracing
from tiny_tensor.base import ALIASES, TensorBase, const_uop, is_const, only_stored
from tiny_tensor.placement import data_buffer
from tiny_tensor.realize import buffer_for, is_realized, storage, stored
from tiny_tensor.shapes import value_of
from tiny_uop import Devices, DType, Ops, Shape, UOp, prod
from tiny_uop.shape import all_known

T = TypeVar("T", bound=TensorBase)
Step = tuple[str, DType, Any]
"""Name, dtype and argument of an operation on what comes before it."""


class Contents:
  """A BUFFER for a pickler, which writes an object once, however often it comes: so one BUFFER has one of these."""

  __slots__ = ("__weakref__", "uop")

  def __init__(self, uop: UOp) -> None:
    self.uop = uop

  def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[Any, ...]:
    buffer = buffer_of(self.uop)
    data: Any = None
    if buffer.is_written() and not buffer.opened.capabilities.persistent:
      data = buffer.copy_out(buffer.nbytes)
      from pickle import PickleBuffer  # late: who pickles has it already

      data = PickleBuffer(data) if protocol.__index__() >= 5 else bytes(data)
    return load_buffer, (self.uop.device, self.uop.dtype, buffer.size, data)


_contents: WeakValueDictionary[UOp, Contents] = WeakValueDictionary()


def load_buffer(device: str, dtype: DType, size: int, data: Any) -> UOp:
  """A new BUFFER of a device; without `data` an empty one, or what a file has. Raises Unavailable if there is no such
  device."""
  uop = UOp.new_buffer(device, size, dtype)
  if data is not None:
    try:
      buffer_of(uop).write(data)
    except Unavailable as error:
      what = f"loading a tensor that was on {device}: {error}"
      raise Unavailable(what, "Where it comes from, pickle t.to('CPU') or of another device that is here") from error
  return uop


def packed(uop: UOp) -> tuple[Any, tuple[Step, ...]]:
  """A view of BUFFERs for a pickle: what it is a view of, and how. That is a `Contents`, or for a MULTI its axis and
  pieces."""
  steps: list[Step] = []
  while uop.op not in (Ops.BUFFER, Ops.MULTI):
    if uop.op is not Ops.DETACH:
      steps.append((uop.op.name, uop.dtype, uop.arg))
    uop = uop.src[0]
  if uop.op is Ops.MULTI:
    return (uop.arg, tuple(map(packed, uop.src))), tuple(reversed(steps))
  return _contents.setdefault(uop, Contents(uop)), tuple(reversed(steps))


def unpacked(base: Any, steps: tuple[Step, ...]) -> UOp:
  """What `packed` packed."""
  if isinstance(base, UOp):
    uop = base
  else:
    axis, packs = base
    pieces = tuple([unpacked(*pack) for pack in packs])
    uop = UOp(Ops.MULTI, pieces[0].dtype, pieces, axis)
  for name, dtype, arg in steps:
    uop = UOp(Ops[name], dtype, (uop,), arg)
  return uop


def load_tensor(cls: type[T], pack: tuple[Any, tuple[Step, ...]], contents: object, requires_grad: bool | None) -> T:
  """What a tensor's pickle calls. `contents` is one object for views of the same memory."""
  made = cls._wrap(unpacked(*pack), requires_grad)
  made._contents = contents
  return made


def load_empty(cls: type[T], dtype: DType, shape: Shape, device: Devices, requires_grad: bool | None) -> T:
  """A tensor without elements."""
  return cls._wrap(const_uop(0, dtype, shape, device), requires_grad)


def shows_all(uop: UOp) -> bool:
  """Whether a view of storage, in numbers, shows all elements: a part is copied instead."""
  shape, base = uop.shape, storage(uop)
  while base is not None and uop is not base:
    if len(uop.src) > 1:
      return False
    uop = uop.src[0]
  return base is not None and all_known((*shape, *base.shape)) and int(prod(shape)) >= int(prod(base.shape))


def is_mapped(uop: UOp) -> bool:
  """Whether a graph shows memory of a device that only stores: it cannot be copied there, and is carried as it is."""
  if not only_stored(uop):
    return False
  while uop.op in ALIASES or uop.op is Ops.BITCAST:
    if len(uop.src) > 1:
      return False
    uop = uop.src[0]
  return uop.op is Ops.BUFFER


class PickleMixin(TensorBase):
  """`pickle`, `copy` and what builds on them, `multiprocessing` for one."""

  __slots__ = ()

  def _check_without_history(self) -> None:
    """Raises RuntimeError for a tensor that was computed from others which require gradients."""
    if self._history:
      raise RuntimeError(
        f"{self!r} was computed from tensors that require gradients, which a pickle or deep copy of it would not know: "
        "pickle or copy t.detach()"
      )

  def _in_memory(self) -> UOp:
    """This tensor, computed, as a view of all of its BUFFERs; a copy where it is a part, or a constant."""
    capturing.check_readable("pickling a Tensor")
    tracing.check_known(self.uop.walk())
    if is_mapped(self.uop):
      return self.uop
    if not (is_realized(self.uop) or is_const(self.uop) or tracing.active()):
      self.realize()
    if is_realized(self.uop) and shows_all(self.uop):
      return self.uop
    if any(not isinstance(s, int) for s in self.shape):
      data, shape = self.detach()._read_copy()
      flat = data_buffer(data, self.dtype, self.device)
      return self._wrap(flat if flat.device == self.device else flat.copy_to(self.device)).realize().uop.reshape(shape)
    return self._wrap(self.uop.detach().contiguous(), False).realize().uop

  def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[Any, ...]:
    self._check_without_history()
    attributes = getattr(self, "__dict__", None) or None  # of a subclass
    if 0 in self.shape:
      shape = tuple([value_of(s) for s in self.shape])
      return load_empty, (type(self), self.dtype, shape, self.device, self.requires_grad), attributes
    uop = self._in_memory()
    contents = self._contents if storage(uop) is storage(self.uop) else object()
    return load_tensor, (type(self), packed(uop), contents, self.requires_grad), attributes

  def __copy__(self) -> Self:
    """`copy.copy`: another tensor over the same memory, with a gradient of its own."""
    leaf = self.requires_grad and not self._history
    made = self._wrap(self.uop.detach() if leaf else self.uop, self.requires_grad, self._history)
    made._contents = self._contents
    return self._with_attributes(made, getattr(self, "__dict__", None))

  def __deepcopy__(self, memo: dict[Any, Any]) -> Self:
    """`copy.deepcopy`: the same values, and gradient, in memory of its own, on the same device."""
    self._check_without_history()
    if is_mapped(self.uop) or 0 in self.shape:
      load, arguments, _ = self.__reduce_ex__(5)
      made: Self = load(*copy.deepcopy(arguments, memo))
    elif shows_all(self.uop):
      base = storage(self.uop)
      assert base is not None
      if base not in memo:  # lazy, as any copy; views of the same memory have it in common
        buffer, view = buffer_for(base)
        memo[base] = view.substitute({buffer: stored(buffer, view, base)})
      made = self._wrap(self.uop.substitute({base: memo[base]}), self.requires_grad)
      made._contents = memo.setdefault(self._contents, made._contents)
    else:
      made = self.detach().clone().requires_grad_(self.requires_grad)
    made.grad = copy.deepcopy(self.grad, memo)
    return self._with_attributes(made, copy.deepcopy(getattr(self, "__dict__", None), memo))

  @staticmethod
  def _with_attributes(made: T, attributes: dict[str, Any] | None) -> T:
    if attributes:
      vars(made).update(attributes)
    return made
