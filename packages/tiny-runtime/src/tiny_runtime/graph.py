"""Captured graphs: schedules recorded once, then replayed over other inputs with little Python per call."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tiny_runtime.buffer import Buffer, buffer_of
from tiny_runtime.launch import Launch, prepare
from tiny_uop import Ops, UOp

_active = threading.local()


class Capture(Sequence[UOp]):
  """The schedules that ran in a `with capture()` block, in order; and which buffers came to life in it."""

  def __init__(self) -> None:
    self._linears: list[UOp] = []
    self._created: set[UOp] = set()
    self._known: set[UOp] = set()

  def __len__(self) -> int:
    return len(self._linears)

  def __getitem__(self, index: int) -> UOp:  # type: ignore[override]  # slices are not needed
    return self._linears[index]

  @property
  def linears(self) -> Capture:
    """The schedules; this object itself."""
    return self

  @property
  def created(self) -> frozenset[UOp]:
    """The BUFFERs that were empty before the block and written in it."""
    return frozenset(self._created)

  def record(self, linear: UOp, launches: Sequence[Launch]) -> None:
    """Called by `run` before it launches."""
    self._linears.append(linear)
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
    stack.remove(made)


def recording() -> list[Capture]:
  """The captures open in this thread."""
  stack: list[Capture] | None = getattr(_active, "stack", None)
  if stack is None:
    stack = _active.stack = []
  return stack


class CapturedGraph:
  """Schedules as one list of prepared launches, with places for inputs, outputs and variables.

  What happens to a buffer at a replay:

  * `inputs`: replaced by those given to `replay`.
  * `outputs`: if it came to life in the capture, a fresh buffer at every replay, which `replay` returns. If it
    existed before (a weight
    that is updated and returned), the same buffer. If it is an input, the one given.
  * all others: owned by the graph and reused: weights are updated in place, temporaries overwritten.

  ValueError if an input or output does not occur in the schedules, for inputs given twice, and for inputs that are
  not BUFFERs.
  """

  def __init__(self, linears: Capture | Sequence[UOp], inputs: Sequence[UOp], outputs: Sequence[UOp] = ()) -> None:
    self.linears = tuple(linears)  # keeps every buffer of the graph alive
    self.inputs = tuple(inputs)
    self.outputs = tuple(outputs)
    calls = [call for linear in self.linears for call in linear.src]
    self._launches = [prepare(call) for call in calls]
    self._check_inputs(calls)
    created = linears.created if isinstance(linears, Capture) else first_written(calls, self._launches)
    self._fresh = tuple(uop for uop in dict.fromkeys(self.outputs) if uop in created and uop not in self.inputs)
    self._places = {uop: places(uop, calls, self._launches) for uop in (*self.inputs, *self._fresh)}
    written = {
      base_of(buffers_of(call)[slot]) for call, launch in zip(calls, self._launches) for slot in launch.writes()
    }
    self._written_inputs = [n for n, uop in enumerate(self.inputs) if uop in written]
    self._kept_written = written - set(self.inputs) - set(self._fresh)
    self._symbolic = [launch for launch in self._launches if launch.variables]
    binds = [uop for call in calls for uop in call.src if uop.op is Ops.BIND]
    self._values = {bind.src[0].arg[0]: int(bind) for bind in binds}
    self._variables = {bind.src[0].arg[0]: bind.src[0] for bind in binds}
    self._given: list[UOp] = list(self.inputs)

  def replay(self, inputs: Sequence[UOp], variables: Mapping[str, int] | None = None) -> tuple[UOp, ...]:
    """Run over other inputs and values of variables; what is not given keeps its last value. Gives the outputs'
    BUFFERs.

    ValueError if the inputs differ from the captured ones in number, device, dtype or size, if one that is written is
    given twice or is a
    buffer that the graph itself writes, or if there is no such variable.
    """
    self._check_given(inputs)
    self._bind(variables or {})
    for n, uop in enumerate(inputs):
      if uop is not self._given[n]:
        self._put(self.inputs[n], uop)
        self._given[n] = uop
    made = {}
    for uop in self._fresh:
      made[uop] = UOp.new_buffer(str(uop.device), uop.arg[1], uop.dtype)
      self._put(uop, made[uop])
    for launch in self._launches:
      launch.run()
    given = dict(zip(self.inputs, inputs))
    return tuple(made.get(uop, given.get(uop, uop)) for uop in self.outputs)

  def _put(self, place: UOp, uop: UOp) -> None:
    buffer = buffer_of(uop)
    for buffers, slot, view in self._places[place]:
      buffers[slot] = buffer if view is None else buffer.view(view.arg[0], view.arg[1], view.dtype)

  def _bind(self, variables: Mapping[str, int]) -> None:
    if not variables:
      return
    if unknown := [name for name in variables if name not in self._values]:
      raise ValueError(
        f"the captured graph has no variable {', '.join(unknown)}; it has {', '.join(self._values) or 'none'}"
      )
    for name, value in variables.items():
      self._variables[name].bind(value)  # checks the bounds, before anything changes
    if all(self._values[name] == value for name, value in variables.items()):
      return
    self._values |= variables
    for launch in self._symbolic:
      launch.bind(self._values)

  def _check_inputs(self, calls: Sequence[UOp]) -> None:
    used = {base_of(uop) for call in calls for uop in buffers_of(call)}
    for uop in (*self.inputs, *self.outputs):
      if uop.op is not Ops.BUFFER:
        raise ValueError(f"inputs and outputs of a captured graph are BUFFERs, got {uop!r}; realize it first")
    for uop in self.inputs:
      if uop not in used:
        raise ValueError(
          f"input {uop!r} is not used by the captured schedules, so another one could not take its place"
        )
    if len(set(self.inputs)) != len(self.inputs):
      raise ValueError("the same BUFFER is given as two inputs; give it once")

  def _check_given(self, inputs: Sequence[UOp]) -> None:
    if len(inputs) != len(self.inputs):
      raise ValueError(f"the graph was captured with {len(self.inputs)} inputs, {len(inputs)} given")
    for n, (uop, was) in enumerate(zip(inputs, self.inputs)):
      if uop.op is Ops.BUFFER and uop.src is was.src and uop.dtype is was.dtype and uop.arg[1] == was.arg[1]:
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


def places(uop: UOp, calls: Sequence[UOp], launches: Sequence[Launch]) -> list[tuple[list[Buffer], int, UOp | None]]:
  """Where a BUFFER is an argument: (argument list, position, the view through which it is used)."""
  return [
    (launch.buffers, slot, used if used is not uop else None)
    for call, launch in zip(calls, launches)
    for slot, used in enumerate(buffers_of(call))
    if base_of(used) is uop
  ]


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
