"""Captured graphs: schedules recorded once, then replayed over other inputs with little Python per call."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tiny_runtime.buffer import Buffer, buffer_of
from tiny_runtime.execution.arena import Arena, move, share_memory
from tiny_runtime.execution.launch import Launch, prepare
from tiny_runtime.execution.pieces import cut
from tiny_runtime.execution.results import Place, ResultPool, Results
from tiny_uop import Ops, UOp
from tiny_uop.ops import GroupOp

_active = threading.local()


class Capture(list[UOp]):
  """The schedules that ran in a `with capture()` block, in order; and which buffers came to life in it."""

  def __init__(self, linears: Iterable[UOp] = (), created: Iterable[UOp] = ()) -> None:
    super().__init__(linears)
    self._created = set(created)
    self._known: set[UOp] = set()

  @property
  def linears(self) -> Capture:
    """The schedules; this object itself."""
    return self

  @property
  def created(self) -> frozenset[UOp]:
    """The BUFFERs that were empty before the block and written in it."""
    return frozenset(self._created)

  @classmethod
  def part(cls, linears: Sequence[UOp], created: Collection[UOp]) -> Capture:
    """What is left of a capture without some of its calls: these schedules, and the buffers that come to life there."""
    return cls(linears, created)

  def record(self, linear: UOp, launches: Sequence[Launch]) -> None:
    """Called by `run` before it launches."""
    self.append(linear)
    for call, launch in zip(linear.src, launches):
      written = launch.writes()
      for slot, uop in enumerate(buffers_of(call)):
        base = base_of(uop)
        if base in self._known:
          continue
        self._known.add(base)
        if slot in written and not buffer_of(base).is_written():
          self._created.add(base)


@contextmanager
def capture() -> Iterator[Capture]:
  """Record every schedule that this thread runs in the block; they are run as well. Blocks may be nested: each
  records."""
  made = Capture()
  stack = recording()
  stack.append(made)
  try:
    yield made
  finally:
    stack[:] = [capture for capture in stack if capture is not made]


def recording() -> list[Capture]:
  """The captures open in this thread."""
  stack: list[Capture] = _active.__dict__.setdefault("stack", [])
  return stack


class CapturedGraph:
  """Schedules as one list of prepared launches, with places for inputs, outputs and variables.

  What happens to a buffer at a replay:

  * `inputs`: replaced by those given to `replay`.
  * `outputs`, or the buffers that outputs are views of: if it came to life in the capture, a fresh buffer at every
    replay, which `replay` returns (the view of). If it existed before (a weight that is updated and returned), the same
    buffer. If it is an input, the one given.
  * `temporaries`: those among them that came to life in the capture share memory with each other, as long as they are
    not needed at the same time, and with those of other graphs that have the same `arena`. What they held is lost, and
    looking at them afterwards is an error.
  * all others: owned by the graph and reused: weights are updated in place, temporaries overwritten.

  Launches that follow each other on a device with graphs are one submission. Threads may share a graph; their replays
  happen one after the other. Profiles call a replay `name`.

  ValueError if an input does not occur in the schedules, for inputs given twice, for inputs that are not BUFFERs, and
  for outputs that are not BUFFERs or views of them.
  """

  def __init__(
    self, linears: Sequence[UOp], inputs: Sequence[UOp], outputs: Sequence[UOp] = (),
    temporaries: Collection[UOp] = (), name: str = "graph", arena: Arena | None = None,
  ) -> None:  # fmt: skip
    self.inputs = tuple(inputs)
    self.outputs = tuple(outputs)
    calls = [call for linear in linears for call in linear.src]
    used = frozenset([base_of(uop) for call in calls for uop in buffers_of(call)])
    self._launches = [prepare(call) for call in calls]
    self._check_inputs(used)
    created = linears.created if isinstance(linears, Capture) else first_written(calls, self._launches)
    bases = dict.fromkeys(buffer_below(uop) for uop in self.outputs)
    fresh = tuple(uop for uop in bases if uop in created and uop not in self.inputs)
    private = created.intersection(temporaries).difference(self.inputs, bases)
    # kept alive, as their memory is; the calls and their views are not: launches have their buffers
    self._memory = used - private
    self._arena = Arena() if arena is None else arena
    with self._arena.lock:
      self._temporaries = share_memory(self._launches, {buffer_of(uop) for uop in private}, self._arena)
    self._current: Results | None = None
    self._passed = not bases.keys().isdisjoint(self.inputs)
    self._pieces, self._last = cut(self._launches, name)
    self._pieces_by_launch = [(piece, n) for piece in self._pieces for n in range(len(piece.launches))]
    self._symbolic = [(piece, n, group.first) for piece in self._pieces for n, group in enumerate(piece.groups)]
    self._places = {uop: self._places_of(uop, calls) for uop in (*self.inputs, *fresh)}
    self._results = ResultPool({uop: self._places[uop] for uop in fresh}, self.outputs)
    arguments = zip(map(buffers_of, calls), self._launches)
    written = {base_of(buffers[slot]) for buffers, launch in arguments for slot in launch.writes()} - private
    self._written_inputs = [n for n, uop in enumerate(self.inputs) if uop in written]
    self._kept_written = written - set(self.inputs) - set(fresh)
    binds = [uop for call in calls for uop in call.src if uop.op is Ops.BIND]
    self._values = {bind.src[0].arg[0]: bind.unbind()[1] for bind in binds}
    self._variables = {bind.src[0].arg[0]: bind.src[0] for bind in binds}
    self._given: Sequence[UOp] = self.inputs

  def replay(self, inputs: Sequence[UOp], variables: Mapping[str, int] | None = None) -> tuple[UOp, ...]:
    """Run over other inputs and values of variables; what is not given keeps its last value. Gives the outputs.

    ValueError if the inputs differ from the captured ones in number, device, dtype or size, if one that is written is
    given twice or is a buffer that the graph itself writes, or if there is no such variable. RuntimeError for a signal
    handler or finaliser in the middle of a replay of the same graph: it would take the inputs of that away.
    """
    arena = self._arena
    with arena.lock:
      if arena.busy:
        raise RuntimeError("the captured graph is being replayed, in the same thread: replay it when that is done")
      arena.busy = True
      try:
        return self.replay_alone(tuple(inputs), variables)
      finally:
        arena.busy = False

  def replay_alone(self, inputs: tuple[UOp, ...], variables: Mapping[str, int] | None = None) -> tuple[UOp, ...]:
    """As `replay`, for a caller who has the lock of the arena: to take a lock is a part of what a replay costs."""
    for buffer in self._temporaries:
      if buffer._state == "freed":
        self._move()
        break
    other = inputs != self._given
    if other:
      self._check_given(inputs)
    if variables:
      self._bind(variables)
    current = self._current
    results = self._results.take(current)
    try:
      if other:
        self._replace_inputs(inputs)
      if results is not current:
        self._place(results)
      for piece in self._pieces:
        for collective in piece.waits_for:
          collective.finish()
        piece.run()
      for collective in self._last:
        collective.finish()
    except BaseException:
      for piece in self._pieces:
        piece.reset()
      raise
    if not results.placed:
      results.note_placed()
    if not self._passed:
      return results.outputs
    given = dict(zip(self.inputs, inputs))
    return tuple([uop.substitute(given) for uop in results.outputs])

  def free_temporaries(self) -> None:
    """Gives the memory of temporaries back until the next replay."""
    with self._arena.lock:
      self._arena.release()

  def _move(self) -> None:
    """Another graph needed more memory of the arena, so that this is elsewhere now."""
    self._temporaries = move(self._launches, self._temporaries, self._arena)
    for piece in self._pieces:
      piece.reset()

  def _replace_inputs(self, inputs: Sequence[UOp]) -> None:
    before, self._given = self._given, inputs
    for place, uop, old in zip(self.inputs, inputs, before):
      if uop is not old:
        self._put(place, buffer_of(uop))

  def _place(self, results: Results) -> None:
    self._current = results
    for piece, index, slot, buffer in results.places:
      piece.launches[index].buffers[slot] = buffer
      piece.replaced(index, slot)

  def _put(self, place: UOp, buffer: Buffer) -> None:
    for piece, index, slot, view in self._places[place]:
      buffers = piece.launches[index].buffers
      buffers[slot] = buffer if view is None else buffer.view(view.arg[0], view.arg[1], view.dtype)
      piece.replaced(index, slot)

  def _bind(self, variables: Mapping[str, int]) -> None:
    if unknown := [name for name in variables if name not in self._values]:
      raise ValueError(
        f"the captured graph has no variable {', '.join(unknown)}; it has {', '.join(self._values) or 'none'}"
      )
    changed = {name for name, value in variables.items() if self._values[name] != value}
    for name in changed:
      self._variables[name].bind(variables[name])  # checks the bounds, before anything changes
    if not changed:
      return
    self._values |= variables
    for piece, group, launch in self._symbolic:
      if not changed.isdisjoint(launch.variables):
        launch.bind(self._values)
        piece.bound(group)

  def _places_of(self, uop: UOp, calls: Sequence[UOp]) -> list[Place]:
    launches = zip(calls, self._pieces_by_launch)
    uses = ((place, slot, used) for call, place in launches for slot, used in enumerate(buffers_of(call)))
    return [(*place, slot, used if used is not uop else None) for place, slot, used in uses if base_of(used) is uop]

  def _check_inputs(self, used: Collection[UOp]) -> None:
    for uop in (*self.inputs, *map(buffer_below, self.outputs)):
      if uop.op is not Ops.BUFFER:
        raise ValueError(f"inputs and outputs of a captured graph are BUFFERs, got {uop!r}; realize it first")
    for uop in self.inputs:
      if uop not in used:
        raise ValueError(f"input {uop!r} is not used by the captured schedules, so another could not take its place")
    if len(set(self.inputs)) != len(self.inputs):
      raise ValueError("the same BUFFER is given as two inputs; give it once")

  def _check_given(self, inputs: Sequence[UOp]) -> None:
    if len(inputs) != len(self.inputs):
      raise ValueError(f"the graph was captured with {len(self.inputs)} inputs, {len(inputs)} given")
    for n, (uop, was) in enumerate(zip(inputs, self.inputs)):
      if uop.op is Ops.BUFFER and uop.src == was.src and uop.dtype is was.dtype and uop.arg[1] == was.arg[1]:
        continue
      if uop.op is not Ops.BUFFER:
        raise ValueError(f"input {n} is {uop!r}, expected a BUFFER; realize it first")
      now, then = (f"{u.arg[1]} × {u.dtype.name} on {u.device}" for u in (uop, was))
      if now != then:
        raise ValueError(f"input {n} is {now}, the graph was captured with {then}")
    for n in self._written_inputs:
      if inputs.count(inputs[n]) > 1:
        raise ValueError(f"input {n} is written by the graph, so it cannot be given as another input too")
    for n, uop in enumerate(inputs):
      if uop in self._kept_written:
        raise ValueError(f"input {n} is a buffer that the graph itself writes; give it a copy")


def buffers_of(call: UOp) -> list[UOp]:
  """The BUFFER and BUFFER_VIEW arguments of a CALL."""
  return [uop for uop in call.src[1:] if uop.op is not Ops.BIND]


def base_of(uop: UOp) -> UOp:
  """The BUFFER of a BUFFER or BUFFER_VIEW."""
  return uop.src[0] if uop.op is Ops.BUFFER_VIEW else uop


def buffer_below(uop: UOp) -> UOp:
  """The BUFFER that a tensor-level graph is a view of; what is below all views if that is none."""
  while uop.op in GroupOp.Movement or uop.op is Ops.DETACH:
    uop = uop.src[0]
  return uop


def first_written(calls: Sequence[UOp], launches: Sequence[Launch]) -> frozenset[UOp]:
  """The BUFFERs that are written by the first call that touches them, without being read by it."""
  known: set[UOp] = set()
  result: set[UOp] = set()
  for call, launch in zip(calls, launches):
    reads, writes = launch.reads(), launch.writes()
    used = buffers_of(call)
    for slot, uop in enumerate(used):
      base = base_of(uop)
      if base in known:
        continue
      if slot in writes and not any(base_of(used[r]) is base for r in reads):
        result.add(base)
    known |= {base_of(uop) for uop in used}
  return frozenset(result)
