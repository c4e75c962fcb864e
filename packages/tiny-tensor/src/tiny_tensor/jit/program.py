"""A captured function: its kernels as one graph, what a call must look like, and what surrounds a replay."""

from collections.abc import Collection, Sequence
from typing import Generic, NoReturn, SupportsIndex, TypeVar

from tiny_runtime import Arena, Capture, CapturedGraph, buffer_of
from tiny_tensor.capturing import Writes
from tiny_tensor.jit import graphs
from tiny_tensor.jit.gradients import Gradients
from tiny_tensor.jit.outside import Arguments, Outside
from tiny_tensor.jit.results import Template
from tiny_tensor.jit.run import Run
from tiny_tensor.jit.values import require
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp

R = TypeVar("R")


class Program(Generic[R]):
  """A function's kernels, and how to make its result from their outputs. It holds buffers and graphs, no tensors."""

  def __init__(self, run: Run[R], prune: bool, name: str, arena: Arena) -> None:
    """`prune` leaves out of replays what none of their inputs reaches. `name` is what profiles call a replay. `arena`
    has the temporaries; its lock is the caller's in replays."""
    self.trace, self.arguments = run.trace, Arguments(run)
    self._inputs = run.inputs.buffers
    self._draws = run.draws
    self._variables = graphs.variables_of(run.calls)
    self._results = Template(run)
    self._gradients = Gradients(run.outside_gradients)
    schedules = run.schedules
    if prune:
      outputs = [buffer for uop in self._results.computed for buffer in graphs.buffers_below(uop)]
      schedules = reached(run, {*outputs, *self._gradients.buffers})
    used = {u for linear in schedules for call in linear.src for u in map(graphs.argument_buffer, call.src[1:])}
    self._positions = [i for i, buffer in enumerate(self._inputs) if buffer in used]
    self._updated = run.updated
    self._outside = Outside(run, used)
    self._overwritten = self._updated | self._gradients.buffers
    self._readers = graphs.Readers(self._overwritten.difference(self._inputs), self._gradients.buffers)
    self._all_inputs = len(self._positions) == len(self._inputs)
    self._state = self._outside.written
    self._writes_inputs = not self._updated.isdisjoint(self._inputs)
    self._only = self._results.only
    self.needs_tensors = self._results.needs_tensors
    given = [self._inputs[i] for i in self._positions]
    temporaries = schedules.created - graphs.holders().keys()
    self._graph = CapturedGraph(schedules, given, self._results.computed, temporaries, name, arena)

  def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
    raise TypeError(
      "a captured function cannot be pickled or copied: it is of these very tensors. Pickle or copy what the function "
      "works on, and make a TinyJit of the function there"
    )

  def free_intermediates(self) -> None:
    """Gives the memory of what only the replays themselves look at back, all of the arena, until the next one."""
    self._graph.free_temporaries()

  def replay(self, buffers: list[UOp], variables: dict[str, int], tensors: Sequence[Tensor] = ()) -> R:
    """Replays over the buffers of other inputs, in their order, and other values of variables. `tensors` are the
    caller's, for results that are arguments."""
    outside = self._outside
    if Writes.count != outside.seen or outside.died or (self._state and not self._state.isdisjoint(buffers)):
      require(outside.failure(buffers))
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
    unshared = self._gradients.unshared()
    if self._writes_inputs:  # others every time
      graphs.compute_readers([new for old, new in zip(self._inputs, given, strict=True) if old in self._updated])
    holders = self._readers.compute()
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
      arguments = [graphs.argument_buffer(a) for a in call.src[1:]]
      if any(a.op is Ops.BIND for a in arguments) or not changing.isdisjoint(arguments):
        kept.add(call)
        changing |= {arguments[slot] for slot in graphs.written_slots(call)}
  linears = [linear.with_src(tuple([call for call in linear.src if call in kept])) for linear in run.schedules]
  written = {graphs.argument_buffer(call.src[1 + slot]) for call in kept for slot in graphs.written_slots(call)}
  return Capture.part([linear for linear in linears if linear.src], run.created & written)
