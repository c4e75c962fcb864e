"""From graphs to buffers: what `realize` hands to the scheduler, and what changes in live tensors afterwards.

Every output gets a BUFFER and becomes `AFTER(buf, STORE(buf, value))`; so does every CONTIGUOUS in its graph.
Assignments are AFTERs already. A live tensor that was computed from the old contents of a buffer which is about to be
overwritten, and is not computed yet, becomes an output too. Once the schedule has run, finished nodes are replaced by
their buffers in all live tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING

from tiny_runtime import Device
from tiny_tensor import capturing
from tiny_tensor.autograd import tracing
from tiny_tensor.base import ALIASES, TensorBase, only_stored
from tiny_tensor.capturing import record_run
from tiny_tensor.host_constants import can_fill, constant_of, fill
from tiny_tensor.live import nodes_above, tensors_above, tensors_at
from tiny_tensor.shapes import Shape, upper
from tiny_uop import Devices, DType, GroupOp, Ops, UOp, dtypes, prod, value_nodes
from tiny_uop.locks import uncollected, undivided
from tiny_uop.origins import keep_mark
from tiny_uop.sharding import is_local

if TYPE_CHECKING:
  from tiny_sched import Room

AFTER, CONTIGUOUS = Ops.AFTER, Ops.CONTIGUOUS
HOLDERS = frozenset({Ops.BUFFER, AFTER})
EMPTIABLE = frozenset({Ops.REDUCE, Ops.PAD})  # what has elements over a source that may have none


def storage(uop: UOp, across: bool = False) -> UOp | None:
  """The BUFFER, the MULTI of several, or the AFTER over one of these, that a tensor is a view of and shares its
  contents with; None for a computed value. `across`: also of a view that moves elements between devices, which have to
  be copied.
  """
  while uop.op in ALIASES or (uop.op is Ops.BITCAST and only_stored(uop)):  # where no kernel makes the bits anew
    if not across and moves_between_devices(uop):
      return None
    uop = uop.src[0]
  return uop if is_holder(uop) else None


def is_holder(u: UOp) -> bool:
  """Whether a node is memory, on one device or on several."""
  return u.op in HOLDERS or (u.op is Ops.MULTI and all(is_memory(piece) for piece in u.src))


def is_memory(piece: UOp) -> bool:
  """Whether a piece of a MULTI is the beginning of a BUFFER."""
  while piece.op in (Ops.RESHAPE, Ops.SHRINK):
    piece = piece.src[0]
  return piece.op is Ops.BUFFER


def pieces_of(u: UOp) -> tuple[UOp, ...]:
  """What a value consists of: that on each device, or itself."""
  return u.src if u.op is Ops.MULTI else (u,)


def memory_of(holder: UOp) -> list[UOp]:
  """The BUFFERs of a holder."""
  return [piece.base for piece in pieces_of(holder)]


def moves_between_devices(u: UOp) -> bool:
  """Whether a movement op changes on which devices elements are."""
  return type(u.device) is tuple and u.op in GroupOp.Movement and not is_local(u)


def is_realized(uop: UOp) -> bool:
  """Whether there is nothing to compute: a view of a BUFFER, or no elements at all."""
  base = storage(uop)
  return (base is not None and base.op is not AFTER) or 0 in uop.shape


def buffer_under(holder: UOp) -> UOp:
  """The BUFFER under a chain of AFTERs."""
  while holder.op is Ops.AFTER:
    holder = holder.src[0].base
  return holder


def shaped(holder: UOp, shape: Shape) -> UOp:
  """The first elements of a BUFFER, or of an AFTER over one, in a shape; all of a MULTI, which has it."""
  if holder.device is not None and type(holder.device) is tuple:
    return holder
  total = prod(shape)
  part = holder if isinstance(total, int) else holder.shrink([(0, total)])
  return part.reshape(shape)


def buffer_for(uop: UOp) -> tuple[UOp, UOp]:
  """A new BUFFER for a value, and the view of it that has the value's shape. On several devices it is a MULTI of
  BUFFERs.

  A symbolic size gets room for its largest value. The elements are the first ones of the buffer, one after the other:
  a row is as long as what its variables are bound to, not as it could be. Nothing else has to know: whoever reads or
  writes does it through this view (`shaped`), and since a graph binds a variable to one value, all mean the same rows.
  """
  if (s := uop.sharding) is not None:
    made = [buffer_on(d, s.part_shape(i, uop.shape), uop.dtype)[1] for i, d in zip(s.here, s.homes)]
    whole = UOp.multi(s, made)
    return whole, whole
  return buffer_on(uop.device or Device.DEFAULT, uop.shape, uop.dtype)


def buffer_on(device: Devices, shape: Shape, dtype: DType) -> tuple[UOp, UOp]:
  """A new BUFFER, and the view of it that has a shape."""
  size = math.prod(map(upper, shape))
  buffer = UOp.new_buffer(device, size, dtype)
  return buffer, shaped(buffer, shape)


def stored(buffer: UOp, view: UOp, value: UOp) -> UOp:
  """The contents of `buffer` once `value` has been written through `view`: `writer` says by which thread."""
  made = UOp(Ops.AFTER, buffer.dtype, (buffer, UOp(Ops.STORE, dtypes.void, (view, value))))
  made.__dict__["writer"] = get_ident()
  return made


def writer(after: UOp) -> int | None:
  """The thread that made what `stored` gave; None if nobody knows."""
  found: int | None = after.__dict__.get("writer")
  return found


def root_of(uop: UOp) -> UOp:
  """What has to be computed for a tensor: its storage, or itself under reshapes, which change nothing in memory."""
  return base if (base := storage(uop)) is not None else unshaped(uop)


def unshaped(uop: UOp) -> UOp:
  """The value under reshapes to known sizes."""
  while uop.op is Ops.RESHAPE and len(uop.src) == 1:
    uop = uop.src[0]
  return uop


def writes_all(after: UOp) -> bool:
  """Whether an AFTER is one store to all of a BUFFER, or of several."""
  memory, *stores = after.src
  known = memory.op is not AFTER and is_holder(memory) and len(stores) == 1 and stores[0].op is Ops.STORE
  return known and unshaped(stores[0].src[0]) is memory


class Plan:
  """What a realize does: effects for the scheduler, and the replacement of each finished node.

  With `by_host` constants are no effects but `fills`: new memory that gets them before anything runs.
  """

  def __init__(self, uops: Iterable[UOp], by_host: bool = False) -> None:
    recording = capturing.current()
    self.by_host = by_host and not tracing.active()
    self.only = None if recording is None else recording.before
    self.fills: dict[UOp, UOp] = {}
    # in order everywhere: the same step has to give the same graph again, for the schedule cache to know it
    outputs = dict.fromkeys(u for u in uops if not is_realized(u))
    while True:
      *nodes, _ = value_nodes(UOp.sink(*outputs))
      tracing.check_known(nodes)
      self.assignments = dict.fromkeys(u for u in nodes if u.op is AFTER).keys()
      if not (late := stale_readers(self.assignments, outputs.keys())):
        break
      outputs.update(dict.fromkeys(late))
    self.outputs = outputs.keys()
    contiguous = [u for u in nodes if u.op is CONTIGUOUS]
    self.contiguous = {v: u for u in contiguous if storage(v := unshaped(u.src[0])) is None}
    roots = dict.fromkeys(root_of(u) for u in outputs)
    # the gradient that an optimiser made contiguous need not be computed a second time for the tensor that holds it
    self.roots = dict.fromkeys(root for root in roots if root not in self.contiguous)
    self.finished: dict[UOp, UOp] = {a: buffer_under(a) for a in self.assignments}
    self.copies: dict[object, dict[UOp, UOp]] = {}
    self.rebuilt = self.rebuild(nodes, {*self.roots, *contiguous} - self.assignments)
    # what is on several devices is finished on all of them, where the outputs may need that on one only
    spread = [u for u in (*contiguous, *self.assignments) if type(u.device) is tuple and 0 not in u.shape]
    effects = dict.fromkeys(self.rebuilt.get(root, root).base for root in (*self.roots, *spread))
    self.effects = {effect: None for effect in effects if effect not in self.fills}
    for root in [root for root in roots if root not in self.roots]:
      self.finished[root] = self.finished[self.contiguous[root]].reshape(root.shape)

  def rebuild(self, nodes: Sequence[UOp], kept: set[UOp]) -> dict[UOp, UOp]:
    """What becomes of every node that changes: those to be `kept` are buffers that are stored to, and tensors without
    elements are not read.
    """
    changed: dict[UOp, UOp] = {}
    for u in nodes:
      if u.op is Ops.CUSTOM_GRADIENT:  # what its gradient is made of does not matter for its value
        new = changed.get(u.src[0], u)
      else:
        new = u if changed.keys().isdisjoint(u.src) else u.with_src(tuple([changed.get(s, s) for s in u.src]))
        if new is not u:
          keep_mark(u, new)
      if u in kept and 0 not in u.shape:
        buffer, self.finished[u] = buffer_for(u)
        keep_mark(u, buffer)
        value = new.src[0] if u.op is CONTIGUOUS else new
        new = shaped(self.stored(u, buffer, self.finished[u], value), u.shape)
      elif u.op is AFTER and writes_all(new):
        new = self.stored(u, new.src[0], *new.src[1].src)
      elif u.op in EMPTIABLE:
        new = without_empty(new)
      if new is not u:
        changed[u] = new
    return changed

  def stored(self, u: UOp, buffer: UOp, view: UOp, value: UOp) -> UOp:
    """The contents of new memory after a store through a view of all of it, for the node `u`; the memory itself if the
    host fills it."""
    held = storage(value)
    value = value if held is None else self.fills.get(held, value)
    ours = self.by_host and (self.only is None or u in self.only or held in self.fills)
    if ours and buffer not in self.fills and constant_of(value) is not None and can_fill(memory_of(buffer)):
      self.fills[buffer] = value
      return buffer
    return stored(buffer, view, value)

  def fill(self) -> None:
    """Carries out `fills`."""
    for holder, value in self.fills.items():
      number = constant_of(value)
      assert number is not None
      fill(memory_of(holder), number)

  def keep_written(self, linear: UOp) -> None:
    """What nothing reads in the end (`x == x`, an empty slice) is not computed by a schedule, and not finished."""
    used = {buffer.base for call in linear.src for buffer in call.src[1:]}

    def is_written(view: UOp) -> bool:
      return view.base in self.fills or all(piece.base in used for piece in pieces_of(view.base))

    self.finished = {u: view for u, view in self.finished.items() if u in self.assignments or is_written(view)}

  def separate(self, tensors: Sequence[TensorBase]) -> None:
    """Give independent tensors that happen to stand for one graph a buffer each: they may be written to later."""
    owners: dict[UOp, object] = {}
    for t in tensors:
      root = root_of(t.uop)
      if is_realized(t.uop) or is_holder(root) or owners.setdefault(root, t._contents) is t._contents:
        continue
      if t._contents not in self.copies:
        buffer, view = buffer_for(root)
        first = self.rebuilt[root if root in self.roots else self.contiguous[root]].reshape(view.shape)
        if (effect := self.stored(root, buffer, view, first)) not in self.fills:
          self.effects[effect] = None
        self.copies[t._contents] = {root: view}

  def sink(self) -> UOp:
    """All effects as one graph."""
    return UOp.sink(*self.effects)


def without_gradients(sink: UOp) -> UOp:
  """The graph with values in place of CUSTOM_GRADIENTs: all that the scheduler looks at."""
  done: dict[UOp, UOp] = {}
  for u in value_nodes(sink, kernels=True):
    done[u] = done[u.src[0]] if u.op is Ops.CUSTOM_GRADIENT else u.with_src(tuple([done[s] for s in u.src]))
    keep_mark(u, done[u])
  return done[sink]


def without_empty(u: UOp) -> UOp:
  """What a REDUCE or PAD of no elements is: the neutral element of the reduction, the zeros of the padding."""
  if 0 in u.src[0].shape and 0 not in u.shape:
    value: float | bool = 0
    if u.op is Ops.REDUCE:
      value = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(u.dtype)}[u.arg[0]]
    return u.const_like(value)
  return u


def stale_readers(assignments: Collection[UOp], outputs: Collection[UOp]) -> list[UOp]:
  """Graphs of live tensors that read contents which `assignments` overwrite, and are not computed yet."""
  overwritten = {a.src[0].base for a in assignments}
  if not overwritten:
    return []

  def reads_stale(reader: UOp, node: UOp) -> bool:
    if reader.op is AFTER:
      # it goes on from its buffer's contents, whichever they are by then; what counts is what it stores, and what an
      # AFTER before it does
      return reader not in assignments and (node in reader.src[1:] or node.base.op is AFTER)
    return reader.op is not Ops.STORE or node is reader.src[1]

  graphs = dict.fromkeys(t.uop for t in tensors_at(nodes_above(overwritten, reads_stale)))
  # what has no elements reads none; a view of the buffer shares its contents: it is to see the new ones
  return [u for u in graphs if u not in outputs and 0 not in u.shape and storage(u, True) not in overwritten]


class Substitution:
  """Replaces nodes in many graphs, which share what they have in common."""

  def __init__(self, changes: dict[UOp, UOp]) -> None:
    self.done = dict(changes)

  def __call__(self, root: UOp) -> UOp:
    done = self.done
    if root not in done:
      for u in root.walk(lambda n: n not in done):
        if u not in done:
          new = done[u] = u.with_src(tuple([done[s] for s in u.src]))
          keep_mark(u, new)
    return done[root]


def apply(plan: Plan) -> None:
  """Replace finished nodes by buffers in every live tensor.

  A tensor that is not realised itself and has a gradient to pass keeps the way back to the tensors that require it.
  """
  if not plan.finished:
    return
  changing = {*plan.finished, *(root for copies in plan.copies.values() for root in copies)}
  every = Substitution(plan.finished)
  safe: Substitution | None = None
  arguments = tracing.running_arguments()
  new = []
  for t in tensors_at(nodes_above(changing)):
    uop = t.uop
    if (copies := plan.copies.get(t._contents)) is not None:
      uop = uop.substitute(copies)
    follows = t._history and uop not in plan.outputs
    if follows or (arguments and any(u in arguments for u in uop.walk(lambda u: u.op is not Ops.DETACH))):
      if safe is None:
        kept = way_back(plan.finished, arguments)
        safe = Substitution({u: b for u, b in plan.finished.items() if u not in kept})
      new.append((t, safe(uop)))
    else:
      new.append((t, every(uop)))
  for t, uop in new:
    t.uop = uop


def way_back(finished: Iterable[UOp], arguments: set[UOp]) -> set[UOp]:
  """Those of `finished` through which a gradient has to pass to reach a leaf or one of `arguments`."""
  nodes = list(UOp.sink(*finished).walk(lambda u: u.op is not Ops.DETACH))
  leaves = {t.uop for t in tensors_at(nodes) if t.requires_grad is True and not t._history}
  leading: set[UOp] = leaves | arguments
  for u in nodes:
    if u.op is not Ops.DETACH and not leading.isdisjoint(u.src):
      leading.add(u)
  return {u for u in finished if u in leading and u not in leaves and u.op is not AFTER}


def graph_plan(tensors: Sequence[TensorBase], by_host: bool = False) -> Plan:
  """The plan for `tensors`; changes none of them."""
  plan = Plan([t.uop for t in tensors], by_host)
  plan.separate(tensors)
  return plan


@uncollected()
def plan_tensors(tensors: Sequence[TensorBase], by_host: bool = False) -> tuple[UOp, Plan]:
  """(schedule, plan) of what has to run for `tensors`; `by_host` says that the plan's fills will be carried out."""
  plan = graph_plan(tensors, by_host)
  if not plan.effects:
    return UOp(Ops.LINEAR, dtypes.void), plan
  with undivided:
    from tiny_sched import schedule  # at the first use: a third of the time that importing tiny_tensor would take

    active = capturing.current()
    if active is not None and active.stays is not None:
      linear = schedule_with_constants(plan.sink(), active.stays)
    else:
      linear = schedule(plan.sink(), room)
  plan.keep_written(linear)
  return linear, plan


def schedule_with_constants(sink: UOp, stays: Callable[[UOp], bool]) -> UOp:
  """The schedule of a graph, with that of its constants before it: `TinyJit` leaves those calls out of replays."""
  from tiny_sched import constants_first, replaced, schedule

  sink, constants = constants_first(without_gradients(sink), stays)
  if not constants:
    return schedule(sink, room)
  memory = {c: buffer_for(c) for c in constants}
  first = UOp.sink(*[stored(buffer, view, c.src[0]) for c, (buffer, view) in memory.items()])
  before = schedule(first, room)
  after = schedule(replaced(sink, {c: view for c, (_, view) in memory.items()}), room)
  return after.with_src((*before.src, *after.src))


def room(device: str) -> Room:
  """What a device has for a kernel."""
  from tiny_sched import Room

  capabilities = Device.opened(device).capabilities
  return Room(capabilities.local_memory, capabilities.threads)


def separate(tensors: Sequence[TensorBase]) -> None:
  """Give each of those tensors that stand for the same value, but are not views of each other, a buffer of its own."""
  owners: dict[UOp, object] = {}
  for t in tensors:
    if storage(t.uop) is None and owners.setdefault(root_of(t.uop), t._contents) is not t._contents:
      buffer, view = buffer_for(t.uop)
      t.uop = view.substitute({buffer: stored(buffer, view, t.uop)})


def realize_tensors(tensors: Sequence[TensorBase], do_update_stats: bool = True) -> None:
  """Compute tensors. If scheduling or compiling fails, all tensors have the values that they had."""
  with undivided:
    separate(tensors)
    linear, plan = plan_tensors(tensors, by_host=True)
    plan.fill()
    if linear.src:
      run_schedule(linear, lambda: apply(plan), do_update_stats)
    else:
      apply(plan)


def run_schedule(linear: UOp, then: Callable[[], None] | None = None, do_update_stats: bool = True) -> None:
  """Runs a schedule, for a recording too if there is one, and does what comes `then`. What it made and no tensor has
  gives its memory back."""
  from tiny_runtime import buffer_of, run

  recorded = capturing.current()
  record_run(linear)
  made: list[UOp] = []
  if recorded is not None and not recorded.keep:
    used = dict.fromkeys(u.src[0] if u.op is Ops.BUFFER_VIEW else u for call in linear.src for u in call.src[1:])
    made = [u for u in used if u.op is Ops.BUFFER and not buffer_of(u).is_written()]
  run(linear, do_update_stats=do_update_stats)
  if then is not None:
    then()
  if recorded is not None and not recorded.keep:
    release_unseen(recorded.made, made)


def release_unseen(known: dict[UOp, None], made: Iterable[UOp]) -> None:
  """Gives back the memory of BUFFERs that no live tensor has: temporaries of schedules, and what functions computed on
  the way. Who records the schedules keeps them all, and without this all of them would have memory at once. `known`
  are those that have memory still, `made` are new."""
  from tiny_runtime import buffer_of

  known.update(dict.fromkeys(made))
  for buffer in [buffer for buffer in known if not tensors_above([buffer])]:
    buffer_of(buffer).release()
    del known[buffer]
