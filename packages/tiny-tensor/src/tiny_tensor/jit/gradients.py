"""Gradients that a captured function leaves in tensors outside (weights): replays write them in place."""

import sys
import weakref
from collections.abc import Iterable
from typing import ClassVar

from tiny_tensor.capturing import JitError
from tiny_tensor.jit.graphs import buffers_below
from tiny_tensor.tensor import Tensor
from tiny_uop import UOp, dtypes


class Gradients:
  """The gradients of `owners`, which the captured run made, in the buffers that it made them in.

  A replay overwrites these buffers. To whoever else holds a gradient, or a view of one, it gives a copy first.
  """

  catches: ClassVar[str] = "a gradient that the function would add to; a tensor with a gradient that is gone"

  def __init__(self, owners: Iterable[tuple[Tensor, bool]]) -> None:
    """For each tensor with its gradient whether it had one before the run, which then has replaced it."""
    self._entries = [(weakref.ref(t), t.grad.uop, replaced) for t, replaced in owners if t.grad is not None]
    self.buffers = frozenset(buffer for _, uop, _ in self._entries for buffer in buffers_below(uop))

  def failure(self, call: None = None) -> str | None:
    """The message for the first gradient that the function would add to, or whose owner has died."""
    for reference, uop, replaced in self._entries:
      if (owner := reference()) is None:
        return (
          f"a tensor of shape {uop.shape} whose gradient the function computed when TinyJit captured it is gone: "
          "assign() to it instead of replacing it, or reset() the TinyJit"
        )
      if owner.grad is not None and not replaced:
        return (
          f"a tensor of shape {owner.shape} has a gradient, which the function would add to; it had none when TinyJit "
          "captured it: zero_grad() inside of the function"
        )
    return None

  def unshared(self) -> set[int]:
    """The ids of the gradients that only their owners hold. Raises JitError for a failure."""
    mine = set()
    for reference, uop, replaced in self._entries:
      owner = reference()
      if owner is None or (owner.grad is not None and not replaced):
        raise JitError(self.failure())
      if owner.grad is not None and sys.getrefcount(owner.grad) == _ONE and owner.grad.uop is uop:
        mine.add(id(owner.grad))
    return mine

  def give_copies(self, holders: Iterable[Tensor], unshared: set[int]) -> None:
    """Gives the contents of `buffers` to the live tensors that lie there, `holders`, but those that are not shared."""
    copies: dict[UOp, UOp] = {}
    for t in holders:
      if id(t) not in unshared:
        for buffer in buffers_below(t.uop):
          if buffer not in copies:
            copies[buffer] = Tensor._wrap(buffer).clone().realize().uop.base
        t.uop = t.uop.substitute({b: copies[b] for b in buffers_below(t.uop)})

  def after(self) -> None:
    """After a replay: owners whose gradient is another one, or gone, get what was computed."""
    for reference, uop, _ in self._entries:
      if (owner := reference()) is not None and (owner.grad is None or owner.grad.uop is not uop):
        owner.grad = Tensor._wrap(uop)


def _count_of_one() -> int:
  """The reference count of a gradient that only its owner holds; 0 where counts do not tell."""
  enabled = getattr(sys, "_is_gil_enabled", None)
  if sys.implementation.name != "cpython" or not (enabled is None or enabled()):
    return 0
  # not Tensor(0.0), which looks for the default device: importing this must not
  owner = Tensor._wrap(UOp.const(dtypes.float32, 0))
  owner.grad = Tensor._wrap(UOp.const(dtypes.float32, 1))
  return sys.getrefcount(owner.grad)


_ONE = _count_of_one()
