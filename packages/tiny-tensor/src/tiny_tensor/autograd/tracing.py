"""The state of a call under a transform (`vmap`, `grad`, `jvp`, `checkpoint`, …): placeholders and arguments.

Two things stand for arguments. A *placeholder* is a BUFFER without memory: `vmap` calls its function with one example's
shape, and nothing can be computed from it. An *argument* is the caller's value under a node of its own, so that the
function may look at values, and derivatives in it are told from those in the same value used elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from tiny_runtime import Device
from tiny_tensor.autograd.custom_gradient import new_argument
from tiny_tensor.base import TensorBase
from tiny_tensor.capturing import Busy
from tiny_tensor.placement import DeviceLike
from tiny_tensor.pytree import leaves
from tiny_tensor.shapes import upper
from tiny_uop import Devices, DType, Ops, Shape, UOp, new_buffer_id, prod


class TransformError(RuntimeError):
  """A function that is transformed does something that has no meaning there, such as looking at a value inside vmap."""


_placeholders: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()
_local = threading.local()


class Frame:
  """One call of a transformed function. `pure`: it may not write to tensors from outside."""

  def __init__(self, name: str, pure: bool = False) -> None:
    self.name, self.pure = name, pure
    self.first_buffer = new_buffer_id()  # what the function makes has later ones
    self.arguments: set[UOp] = set()
    self.draw: Callable[[type[Any], tuple[int, ...], DeviceLike], Any] | None = None

  def argument(self, uop: UOp) -> UOp:
    """The value as an argument of the function."""
    node = new_argument(uop, f"argument of {self.name}")
    self.arguments.add(node)
    return node


def _frames() -> list[Frame]:
  found: list[Frame] = _local.__dict__.setdefault("frames", [])
  return found


def active() -> bool:
  """Whether a transformed function runs in this thread."""
  return bool(_frames())


@contextmanager
def running(frame: Frame) -> Iterator[Frame]:
  """For the block, the innermost call of a transformed function."""
  frames = _frames()
  Busy.change(1)
  frames.append(frame)
  try:
    yield frame
  finally:
    frames.remove(frame)
    Busy.change(-1)


@contextmanager
def outside(frame: Frame) -> Iterator[None]:
  """For the block, `frame` and what runs inside of it is not seen."""
  frames = _frames()
  kept = list(frames)
  del frames[frames.index(frame) :]
  try:
    yield
  finally:
    frames[:] = kept


def name_of(f: Callable[..., Any]) -> str:
  """What a function is called in messages."""
  return str(getattr(f, "__name__", type(f).__name__))


def returned(result: Any, name: str) -> list[Any]:
  """The Tensors that a function gave, in containers. Raises TypeError for anything else, naming where it stands."""
  found = list(leaves(result, "the result"))
  for path, leaf in found:
    if not isinstance(leaf, TensorBase):
      raise TypeError(f"{path} of {name} is the {type(leaf).__name__} {leaf!r:.40}: return Tensors")
  return [leaf for _, leaf in found]


# *** placeholders ***


def placeholder(shape: Shape, dtype: DType, device: Devices | None, name: str) -> UOp:
  """A value of a shape that is not known; `name` says in errors what it is."""
  buffer = UOp.new_buffer(device or Device.DEFAULT, math.prod(map(upper, shape)), dtype)
  _placeholders[buffer] = name
  total = prod(shape)
  return (buffer if isinstance(total, int) else buffer.shrink([(0, total)])).reshape(shape)


def is_placeholder(u: UOp) -> bool:
  """Whether a BUFFER is one that has no memory."""
  return u in _placeholders


def _unknown_in(nodes: Iterable[UOp]) -> str | None:
  """What the first placeholder among nodes is."""
  if not _placeholders:
    return None
  return next((_placeholders[u] for u in nodes if u.op is Ops.BUFFER and u in _placeholders), None)


def check_known(nodes: Iterable[UOp]) -> None:
  """Raises TransformError where a graph that is to be computed has a placeholder in it."""
  if (what := _unknown_in(nodes)) is not None:
    raise TransformError(
      "a value was asked for (by realize, item, numpy, tolist, a mask as an index, or a branch) that depends on "
      f"{what}: there it stands for every example at once. Use where() for the branch; return the Tensor and look at "
      "it outside"
    )


def check_count(root: UOp) -> None:
  """Raises TransformError where a graph whose true elements are to be counted, for a shape, is not known."""
  if (what := _unknown_in(root.walk())) is not None:
    raise TransformError(
      f"how many elements a mask picks depends on {what}: each example would have another shape. Choose with "
      "mask.where(values, other), which keeps the shape; t[mask] = number is possible, too"
    )


def depends_on_placeholder(root: UOp) -> bool:
  """Whether a graph is not known."""
  return _unknown_in(root.walk()) is not None


def depends_on(root: UOp, leaf: UOp) -> bool:
  """Whether a graph has a placeholder in it."""
  buffer = leaf.base
  return any(u is buffer for u in root.walk())


def check_write(buffer: UOp, value: UOp) -> None:
  """Raises TransformError for a write of a transformed function that cannot be done for every example, or again."""
  if is_placeholder(buffer):
    raise TransformError(
      f"{_placeholders[buffer]} is written to: it stands for every example at once. Write to a copy (clone()), or make "
      "a new Tensor with where() or scatter()"
    )
  for frame in _frames():
    if buffer.arg[0] < frame.first_buffer and (frame.pure or depends_on_placeholder(value)):
      raise TransformError(
        f"{frame.name} writes to a tensor of {buffer.arg[1]} elements that was made outside of it: return the value, "
        "and assign it there"
      )


# *** arguments ***


def running_arguments() -> set[UOp]:
  """The arguments of all functions that run: their graphs have to be kept."""
  return {a for frame in _frames() for a in frame.arguments}


def is_followed(root: UOp) -> bool:
  """Whether a graph depends on an argument of a function that runs."""
  return bool(_frames()) and bool(wanted := running_arguments()) and any(u in wanted for u in root.walk())


# *** random numbers ***


def drawn(kind: type[TensorBase], shape: tuple[int, ...], device: DeviceLike) -> Any:
  """Random words where a function that runs has its own idea of them; None to draw as ever."""
  for frame in reversed(_frames()):
    if frame.draw is not None and (words := frame.draw(kind, shape, device)) is not None:
      return words
  return None
