"""Guards of a call that is to be replayed: its arguments, and the tensors outside the function (weights, state)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

from tiny_tensor.capturing import Writes
from tiny_tensor.jit.graphs import carry_out_writes
from tiny_tensor.jit.inputs import Inputs
from tiny_tensor.jit.run import Run
from tiny_tensor.jit.values import gradient_wish
from tiny_uop import UOp


class Arguments:
  """Whether the arguments are like those of the capture. Most calls only take the quick way, `call.QuickCall`."""

  catches: ClassVar[str] = (
    "an argument of another shape, dtype, device, `requires_grad` (of floats) or structure; another plain value (0.0 "
    "is not −0.0) or object; one buffer as two arguments; a view where the function assigns to its argument; "
    "`Tensor.training`, `DEVICE` and default dtypes that change"
  )

  def __init__(self, run: Run[Any]) -> None:
    self._described, self._buffers, self._updated = run.inputs.described, run.inputs.buffers, run.updated

  def failure(self, call: Inputs) -> str | None:
    """Names the first argument that differs."""
    if (what := call.difference(self._described)) is not None:
      return f"{what} when TinyJit captured the function: use a TinyJit for each kind of call, or reset() it"
    for buffer, was in zip(call.buffers, self._buffers, strict=True):
      if was in self._updated and buffer in call.copies:
        return f"the function assigns to an argument of {was.arg[1]} elements that is a view: pass all of its buffer"
    return None


class Outside:
  """The buffers that a program uses besides its arguments (weights, state), and the tensors that they belong to.

  A replay goes on with these buffers, so they have to be what the function would read. Looking takes time, so it is
  done only after an assignment anywhere, and when one of the tensors has died.
  """

  catches: ClassVar[str] = (
    "state that the function writes, given as an argument as well; weights that other tensors replace, when the old "
    "one is gone; weights whose `requires_grad` changes under a `backward()`"
  )

  def __init__(self, run: Run[Any], used: set[UOp]) -> None:
    kept = run.used.intersection(used) - run.created - set(run.inputs.buffers)
    self.died: list[object] = []
    """References to tensors that have died. What is called then must not keep the program alive."""
    died = self.died.append
    held = {buffer: [t for r in run.held.get(buffer, ()) if (t := r()) is not None] for buffer in kept}
    self._owners = {buffer: [weakref.ref(t, died) for t in tensors] for buffer, tensors in held.items() if tensors}
    trained = {id(t): t for tensors in held.values() for t in tensors} if run.differentiated else {}
    self._trained = [(weakref.ref(t), gradient_wish(t.requires_grad, t.dtype)) for t in trained.values()]
    self.seen = Writes.count
    """There is something to look at if this is another number now, or if there is something in `died`."""
    self.written = frozenset(run.updated.difference(run.inputs.buffers))
    """The buffers that are written and are no arguments: a call whose arguments lie there is a failure."""

  def failure(self, call: Sequence[UOp]) -> str | None:
    """Carries out assignments to what a replay over the buffers `call` will read, and looks at all tensors."""
    if twice := self.written.intersection(call):
      shape = (next(b for b in call if b in twice).arg[1],)
      return (
        f"an argument, of shape {shape}, is a tensor that the function also writes to by another name: pass a clone()"
      )
    carry_out_writes({*self._owners, *call})
    for buffer, owners in self._owners.items():
      alive = (t.uop for r in owners if (t := r()) is not None)
      if not any(buffer in uop.toposort for uop in alive):
        _, size = buffer.arg
        return (
          f"a tensor of {size} {buffer.dtype.name} that the function read when TinyJit captured it is gone, or stands "
          "for something else now: assign() to it instead of replacing it, or reset() the TinyJit"
        )
    for reference, before in self._trained:
      owner = reference()
      if owner is not None and gradient_wish(owner.requires_grad, owner.dtype) is not before:
        return (
          f"requires_grad of a tensor of shape {owner.shape} is {owner.requires_grad}, it was {before} when TinyJit "
          "captured a function that looks for gradients: reset() the TinyJit"
        )
    self.died.clear()
    self.seen = Writes.count
    return None
