"""A captured function: its kernels as one graph, what a call must look like, and what surrounds a replay."""

import weakref
from collections.abc import Collection, Sequence
from typing import Generic, NoReturn, SupportsIndex, TypeVar

from tiny_runtime import Capture, CapturedGraph, buffer_of
from tiny_tensor.capturing import JitError, Writes
from tiny_tensor.jit.gradients import Gradients
from tiny_tensor.jit.graphs import (
  argument_buffer,
  buffers_below,
  carry_out_writes,
  compute_readers,
  looked_at,
  written_slots,
)
from tiny_tensor.jit.inputs import Inputs
from tiny_tensor.jit.results import Template
from tiny_tensor.jit.run import Run
from tiny_tensor.jit.values import gradient_wish
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp

R = TypeVar("R")


class Program(Generic[R]):
  """A function's kernels, and how to make its result from their outputs. It holds buffers and graphs, no tensors."""

  def __init__(self, run: Run[R], prune: bool = False) -> None:
    """`prune` leaves out of replays what none of their inputs reaches."""
    self.trace = run.trace
    self.described = run.inputs.described
    self._inputs = run.inputs.buffers
    self._draws = run.draws
    self._variables = {str(a.src[0].arg[0]) for call in run.calls for a in call.src[1:] if a.op is Ops.BIND}
    self._results = Template(run)
    self._gradients = Gradients(run.outside_gradients)
    schedules = run.schedules
    if prune:
      outputs = [buffer for uop in self._results.computed for buffer in buffers_below(uop)]
      schedules = reached(run, {*outputs, *self._gradients.buffers})
    used = {u for linear in schedules for call in linear.src for u in map(argument_buffer, call.src[1:])}
    self._positions = [i for i, buffer in enumerate(self._inputs) if buffer in used]
    self._updated = run.updated
    self._unaffected: weakref.WeakSet[UOp] = weakref.WeakSet()
    self._outside = Outside(run, used)
    self._overwritten = self._updated | self._gradients.buffers
    self._all_inputs = len(self._positions) == len(self._inputs)
    self._state = frozenset(self._updated.difference(self._inputs))
    """What is written and is no argument."""
    self._writes_inputs = not self._updated.isdisjoint(self._inputs)
    self._only = self._results.only
    self.needs_tensors = self._results.needs_tensors
    given = [self._inputs[i] for i in self._positions]
    self._graph = CapturedGraph(schedules, given, self._results.computed, schedules.created - looked_at())

  def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
    raise TypeError(
      "a captured function cannot be pickled or copied: it is of these very tensors. Pickle or copy what the function "
      "works on, and make a TinyJit of the function there"
    )

  def free_intermediates(self) -> None:
    """Gives the memory of what only the replays themselves look at back, until the next one."""
    self._graph.free_temporaries()

  def check_like(self, inputs: Inputs) -> None:
    """Raises JitError, naming the first argument that differs from how it was at the capture."""
    if (what := inputs.difference(self.described)) is not None:
      raise JitError(f"{what} when TinyJit captured the function: use a TinyJit for each kind of call, or reset() it")
    for buffer, was in zip(inputs.buffers, self._inputs, strict=True):
      if was in self._updated and buffer in inputs.copies:
        raise JitError(
          f"the function assigns to an argument of {was.arg[1]} elements that is a view: pass all of its buffer"
        )

  def replay(self, buffers: list[UOp], variables: dict[str, int], tensors: Sequence[Tensor] = ()) -> R:
    """Replays over the buffers of other inputs, in their order, and other values of variables. `tensors` are the
    caller's, for results that are arguments."""
    outside = self._outside
    if self._state and not self._state.isdisjoint(buffers):
      shape = (next(b for b in buffers if b in self._state).arg[1],)
      raise JitError(
        f"an argument, of shape {shape}, is a tensor that the function also writes to by another name: pass a clone()"
      )
    if Writes.count != outside.seen or outside.died.raised:
      outside.look(buffers)
    if self._overwritten:
      self._before(buffers)
    for buffer, following in self._draws:
      buffer_of(buffer).write(following())
    given = buffers if self._all_inputs else [buffers[i] for i in self._positions]
    bound = {name: variables[name] for name in self._variables} if self._variables else None
    made = self._graph.replay_alone(tuple(given), bound)  # TinyJit lets one thread in at a time
    if self._gradients.buffers:
      self._gradients.after()
    if (only := self._only) is not None:
      return Tensor._wrap(made[0], only.requires_grad, only._history)  # type: ignore[return-value]  # what the function returns is a Tensor
    return self._results.make(made, buffers, variables, tensors)

  def _before(self, given: list[UOp]) -> None:
    """Computes what still has to read what the replay will overwrite, and copies gradients that others hold."""
    kept, unshared = self._gradients.buffers, self._gradients.unshared()
    if self._writes_inputs:  # another one every time: what was looked at has to be looked at again
      new = dict(zip(self._inputs, given, strict=True))
      holders = compute_readers({new.get(b, b) for b in self._overwritten}, weakref.WeakSet(), kept)
    else:
      holders = compute_readers(self._overwritten, self._unaffected, kept)
    if len(holders) != len(unshared):
      self._gradients.give_copies(holders, unshared)


def reached(run: Run[R], outputs: Collection[UOp]) -> Capture:
  """The run's calls whose results another call's arguments, variables, draws or state can change, and those that make
  `outputs`. What the others made stays as it is, and is read as weights are."""
  changing = {*run.inputs.buffers, *(buffer for buffer, _ in run.draws), *run.updated, *outputs}
  kept: set[UOp] = set()
  count = -1
  while count != len(kept):  # what is written by a call that is kept is written by all that do
    count = len(kept)
    for call in run.calls:
      arguments = [argument_buffer(a) for a in call.src[1:]]
      if any(a.op is Ops.BIND for a in arguments) or not changing.isdisjoint(arguments):
        kept.add(call)
        changing |= {arguments[slot] for slot in written_slots(call)}
  linears = [linear.with_src(tuple([call for call in linear.src if call in kept])) for linear in run.schedules]
  written = {argument_buffer(call.src[1 + slot]) for call in kept for slot in written_slots(call)}
  return Capture.part([linear for linear in linears if linear.src], run.created & written)


class Outside:
  """The buffers that a program uses besides its arguments (weights, state), and the tensors that they belong to.

  A replay goes on with these buffers, so they have to be what the function would read. Looking takes time, so it is
  done only after an assignment anywhere, and when one of the tensors has died.
  """

  def __init__(self, run: Run[R], used: set[UOp]) -> None:
    kept = run.used.intersection(used) - run.created - set(run.inputs.buffers)
    flag = self.died = _Flag()  # not self, which the references must not keep alive

    def died(_: object) -> None:
      flag.raised = True

    held = {buffer: [t for r in run.held.get(buffer, ()) if (t := r()) is not None] for buffer in kept}
    self._owners = {buffer: [weakref.ref(t, died) for t in tensors] for buffer, tensors in held.items() if tensors}
    trained = {id(t): t for tensors in held.values() for t in tensors} if run.differentiated else {}
    self._trained = [(weakref.ref(t), gradient_wish(t.requires_grad, t.dtype)) for t in trained.values()]
    self.seen = Writes.count
    """There is something to look at if this is another number now, or `died` is raised."""

  def look(self, given: Sequence[UOp]) -> None:
    """Carries out assignments to what the replay will read. Raises JitError where a tensor that the function read was
    replaced."""
    carry_out_writes({*self._owners, *given})
    for buffer, owners in self._owners.items():
      alive = (t.uop for r in owners if (t := r()) is not None)
      if not any(buffer in uop.toposort for uop in alive):
        _, size = buffer.arg
        raise JitError(
          f"a tensor of {size} {buffer.dtype.name} that the function read when TinyJit captured it is gone, or stands "
          "for something else now: assign() to it instead of replacing it, or reset() the TinyJit"
        )
    for reference, before in self._trained:
      if (owner := reference()) is None:
        continue
      if gradient_wish(owner.requires_grad, owner.dtype) is not before:
        raise JitError(
          f"requires_grad of a tensor of shape {owner.shape} is {owner.requires_grad}, it was {before} when TinyJit "
          "captured a function that looks for gradients: reset() the TinyJit"
        )
    self.died.raised, self.seen = False, Writes.count


class _Flag:
  """Raised when a tensor dies."""

  raised = False
