"""One run of a function under `TinyJit`: what it ran, what it left behind, and whether a replay could do the same."""

import gc
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tiny_runtime import capture
from tiny_tensor import capturing
from tiny_tensor.capturing import JitError
from tiny_tensor.jit.graphs import (
  Alive,
  all_tensors,
  any_below,
  argument_buffer,
  buffers_below,
  carry_out_writes,
  holders,
  updated_by,
  waiting,
  written_slots,
)
from tiny_tensor.jit.inputs import Inputs
from tiny_tensor.jit.trace import trace
from tiny_tensor.pytree import leaves, rebuild
from tiny_tensor.realize import is_realized, realize_tensors
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp

R = TypeVar("R")


class Run(Generic[R]):
  """Calls the function. `strict`: raises JitError for what a replay could not do; its effects have happened then.

  Whatever the program assigned before and did not realise is carried out first: it is no part of the function.
  """

  def __init__(self, fxn: Callable[..., R], inputs: Inputs, strict: bool) -> None:
    carry_out_writes()
    self.inputs = inputs
    self.before = Alive()
    self.held = holders()
    grads = [t.grad for t in _tensors(inputs)]
    had = {id(t) for t in all_tensors() if t.grad is not None}
    with capturing.recording(refuse_reads=strict) as recorded, capture() as self.schedules:
      results = [fxn(*inputs.args, **inputs.kwargs)]
      self._finish_results(results[0])
      self._finish_gradients()
    if recorded.refused is not None:
      raise recorded.refused
    self.draws, self.differentiated = recorded.draws, recorded.differentiated
    self.created = self.schedules.created
    self.calls = [call for linear in self.schedules for call in linear.src]
    arguments = (argument_buffer(a) for call in self.calls for a in call.src[1:])
    self.used = {u for u in arguments if u.op is Ops.BUFFER}
    self.updated = updated_by(self.calls) - self.created
    gradients = self._gradients()
    given = {id(t) for t in (*inputs.tensors, *_tensors(inputs))}
    outside = [t for t in gradients if t in self.before and id(t) not in given]
    self.outside_gradients = [(t, id(t) in had) for t in outside]
    """The tensors from outside whose gradient was computed in the run, and whether they had one before."""
    self.trace = trace(self.schedules, recorded, inputs.buffers)
    if strict:
      self._check(results[0], grads, {id(t.grad) for t in gradients})
    del gradients
    self.result: R
    self.result, copies = self._given_back(results.pop())
    if strict:
      inputs.args, inputs.kwargs = (), {}
      _check_given_back(copies)

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

  def _new(self) -> list[Tensor]:
    """The live tensors that were made in the run."""
    return [t for t in all_tensors() if t not in self.before]

  def _finish_results(self, result: Any) -> None:
    """Realises what the function returns without having done so."""
    tensors = {id(leaf): leaf for _, leaf in leaves(result, "the result") if isinstance(leaf, Tensor)}
    lazy = [t for t in tensors.values() if not is_realized(t.uop)]
    if lazy:
      realize_tensors(lazy)

  def _finish_gradients(self) -> None:
    """Realises gradients that were made and not needed in the run: they are seen outside."""
    made = {id(t) for t in self._new()}
    lazy = [g for t in all_tensors() if (g := t.grad) is not None and id(g) in made and not is_realized(g.uop)]
    if lazy:
      realize_tensors(lazy)

  def _gradients(self) -> list[Tensor]:
    """The tensors whose gradient was computed in the run."""
    return [t for t in all_tensors() if t.grad is not None and any_below(t.grad.uop, self.created)]

  def _check(self, result: Any, grads: list[Tensor | None], made: set[int]) -> None:
    for path, leaf in leaves(result, "the result"):
      _check_output(path, leaf)
    if not self.calls:
      raise JitError("the function ran no kernel, so there is nothing to capture: realize() what it computes")
    if left := waiting():
      raise JitError(
        f"the function assigns to a tensor of {left[0].numel()} elements that nothing realises: "
        "call realize() on it, or give it to the optimiser whose step() does"
      )
    self._check_kept({id(leaf) for _, leaf in leaves(result, "") if isinstance(leaf, Tensor)} | made)
    _check_copies(self.calls, self.inputs.copies)
    self._check_variables()
    self._check_replaced(grads)

  def _check_kept(self, allowed: set[int]) -> None:
    """Raises JitError if a tensor made in the function lives on without being returned: replays would not update it."""
    # what the arguments hold at the next replay, and what the function draws, is another value every time
    passing = self.created | {buffer for buffer, _ in self.draws}

    def kept() -> list[Tensor]:
      made = [t for t in self._new() if id(t) not in allowed]
      changed = passing | set(self.inputs.buffers)
      found = [t for t in made if any(u in changed for u in t.uop.toposort)]
      return found + [t for t in all_tensors() if t in self.before and any_below(t.uop, self.created)]

    if kept():
      gc.collect()  # it may only wait for the collector
    if found := kept():
      raise JitError(
        f"a tensor of shape {found[0].shape} that the function made is kept outside of it, where replays would not "
        "update it: return it, or assign() to a tensor that exists before"
      )

  def _check_variables(self) -> None:
    bound = {str(a.src[0].arg[0]) for call in self.calls for a in call.src[1:] if a.op is Ops.BIND}
    if hidden := bound - self.inputs.variables.keys():
      raise JitError(
        f"variable {', '.join(sorted(hidden))} is bound inside the function or around it: pass it as an argument, "
        "or replays would use this call's value"
      )

  def _check_replaced(self, grads: list[Tensor | None]) -> None:
    """Raises JitError if the function reads a tensor and puts another in its place: replays would read the first."""
    now, arguments = holders(), set(self.inputs.buffers)
    gone = [b for b in self.used if b in self.held and b not in now and b not in arguments]
    for t, before in zip(_tensors(self.inputs), grads, strict=True):
      below = buffers_below(before.uop) if before is not None and t.grad is not before else ()
      gone += [buffer for buffer in below if buffer in self.used]
    if gone:
      raise JitError(
        f"the function reads a tensor of {gone[0].arg[1]} elements from outside and puts another one in its "
        "place, so that replays would read the old one again: assign() to it. If it is a gradient that backward() "
        "adds to, zero_grad() inside"
      )


def _tensors(inputs: Inputs) -> list[Tensor]:
  """The tensors that the function gets, in the order of `inputs.tensors`."""
  found = [leaf for _, leaf in leaves((inputs.args, inputs.kwargs), "") if isinstance(leaf, Tensor)]
  return [t for t in found if id(t) in inputs.given for _ in range(len(buffers_below(t.uop)) or 1)]


def _check_given_back(copies: "list[weakref.ref[Tensor]]") -> None:
  """Raises JitError if the function keeps one of the copies that it got."""
  if any(r() is not None for r in copies):
    gc.collect()
  kept = [t for r in copies if (t := r()) is not None]
  if kept:
    raise JitError(
      f"the function keeps an argument of shape {kept[0].shape} after it returns; replays would not replace it: keep a "
      "tensor that exists before, and assign() to it"
    )


def _check_output(path: str, leaf: Any) -> None:
  """Raises JitError for a result that a replay could not make."""
  if leaf is None or (isinstance(leaf, Tensor) and 0 in leaf.shape):
    return
  if not isinstance(leaf, Tensor):
    raise JitError(
      f"{path} is the {type(leaf).__name__} {leaf!r}, which a replay would not compute again: return Tensors"
    )
  if not buffers_below(leaf.uop):
    raise JitError(f"{path}, of shape {leaf.shape}, has no buffer after it was realised: {leaf.uop!r}")


def _check_copies(calls: list[UOp], copies: list[UOp]) -> None:
  """Raises JitError if an argument that was copied is written: the caller would not see it."""
  for call in calls:
    arguments = call.src[1:]
    slots = written_slots(call) if copies else ()
    if written := [arguments[slot] for slot in slots if argument_buffer(arguments[slot]) in copies]:
      raise JitError(
        f"the function assigns to an argument of {written[0].size} elements that is a view: pass all of its buffer"
      )
