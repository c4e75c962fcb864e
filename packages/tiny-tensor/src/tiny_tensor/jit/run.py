"""One run of a function under `TinyJit`: what it ran, what it left behind, and whether a replay could do the same."""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tiny_runtime import capture
from tiny_tensor import capturing
from tiny_tensor.capturing import JitError
from tiny_tensor.host_constants import constant_of
from tiny_tensor.jit import graphs
from tiny_tensor.jit.inputs import Inputs
from tiny_tensor.jit.trace import trace
from tiny_tensor.pytree import rebuild
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops
from tiny_uop.origins import recording as marks

if TYPE_CHECKING:
  from tiny_tensor.jit.guards import RunGuard

R = TypeVar("R")


class Run(Generic[R]):
  """Calls the function. `guards` look at the run at its end, `after` when the caller has the result; what they find is
  raised as JitError, and the run's effects have happened then. With guards, reading a value inside is refused. What no
  tensor has any more gives its memory back as it goes, unless that is to `keep`.

  Whatever the program assigned before and did not realise is carried out first: it is no part of the function.
  With `keep`, what is computed from memory that stays as it is, is computed by calls of its own.
  """

  def __init__(
    self, fxn: Callable[..., R], inputs: Inputs, guards: "Sequence[RunGuard]" = (), after: "Sequence[RunGuard]" = (),
    keep: bool = False,
  ) -> None:  # fmt: skip
    graphs.carry_out_writes()
    self.inputs = inputs
    self.before = graphs.Alive()
    self.held = graphs.holders()
    self.gradients_before = [(t, t.grad) for t in _tensors(inputs)]
    had = {id(t) for t in graphs.all_tensors() if t.grad is not None}
    with capturing.recording(bool(guards), keep) as recorded, capture() as self.schedules, marks.on():
      if not guards:
        recorded.before = {
          u for t in graphs.all_tensors() if (u := t.uop).op is Ops.CONTIGUOUS and constant_of(u.src[0]) is not None
        }
      if keep:
        changing, schedules = {*inputs.buffers}, self.schedules
        recorded.stays = lambda buffer: buffer not in changing and buffer not in schedules.created
      self.result = fxn(*inputs.args, **inputs.kwargs)
      self._finish()
    self.refused, self.draws, self.differentiated = recorded.refused, recorded.draws, recorded.differentiated
    self.created = self.schedules.created
    self.calls = [call for linear in self.schedules for call in linear.src]
    arguments = (graphs.argument_buffer(a) for call in self.calls for a in call.src[1:])
    self.used = {u for u in arguments if u.op is Ops.BUFFER}
    self.updated = graphs.updated_by(self.calls) - self.created
    made = [t for t in graphs.all_tensors() if t.grad is not None and graphs.any_below(t.grad.uop, self.created)]
    self.gradients = {id(t.grad) for t in made}
    """The ids of the gradients that were computed in the run."""
    given = {id(t) for t in (*inputs.tensors, *_tensors(inputs))}
    self.outside_gradients = [(t, id(t) in had) for t in made if t in self.before and id(t) not in given]
    """The tensors from outside whose gradient was computed in the run, and whether they had one before."""
    self.trace = trace(self.schedules, recorded, inputs.buffers)
    self._look(guards)
    del made, self.gradients_before
    self.result, self.copies = self._given_back(self.result)
    """`copies`: what the function got in the place of the caller's tensors."""
    if after:
      inputs.args, inputs.kwargs = (), {}
    self._look(after)

  def _look(self, guards: "Sequence[RunGuard]") -> None:
    for guard in guards:
      if (what := guard.failure(self)) is not None:
        raise JitError(what) from self.refused

  def _given_back(self, result: Any) -> "tuple[R, list[weakref.ref[Tensor]]]":
    """The result with the caller's tensors in place of the copies that the function got, and these copies. Gradients of
    copies are given to the caller's tensors."""
    inputs = self.inputs
    caller = {id(t): given for t, given in zip(_tensors(inputs), inputs.tensors, strict=True)}
    copies = []
    for t in _tensors(inputs):
      if (given := caller[id(t)]) is not t:
        given.grad = t.grad
        copies.append(weakref.ref(t))
    return rebuild(result, lambda leaf: caller.get(id(leaf), leaf)), copies

  def _finish(self) -> None:
    """Realises what the function returns without having done so; and gradients that were made and not needed in the
    run: they are seen outside. That of a loss, which is 1, stays a constant."""
    graphs.realize_lazy({id(t): t for t in graphs.tensors_in(self.result)}.values())
    tensors = graphs.all_tensors()
    made = {id(t) for t in tensors if t not in self.before}
    seen = [(t, g) for t in tensors if (g := t.grad) is not None and id(g) in made]
    gradients = [g for t, g in seen if id(t) not in made or constant_of(g.uop) is None]
    if threading.active_count() > 1:  # those of what the function has not read are other threads' to compute
      calls = [call for linear in self.schedules for call in linear.src]
      read = {*self.inputs.buffers, *(graphs.argument_buffer(a) for call in calls for a in call.src[1:])}
      below = [{u for u in g.uop.toposort if u.op is Ops.BUFFER} for g in gradients]
      gradients = [g for g, buffers in zip(gradients, below) if not buffers or not buffers.isdisjoint(read)]
    graphs.realize_lazy(gradients)


def _tensors(inputs: Inputs) -> list[Tensor]:
  """The tensors that the function gets, in the order of `inputs.tensors`."""
  found = graphs.tensors_in((inputs.args, inputs.kwargs))
  return [t for t in found if id(t) in inputs.given for _ in range(len(graphs.buffers_below(t.uop)) or 1)]
