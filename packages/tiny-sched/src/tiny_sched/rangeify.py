"""From tensor graph to loops: an index is pushed from every STORE down to memory, with cuts where the policy says so.

Two passes over the nodes, no recursion: from users to sources to hand down demands (kernel, index, gate), then from
sources to users to make the values. A reduction that depends on the row loops only is thereby computed once per row:
its value mentions no other loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TypeAlias

from tiny_sched.fusion import Demand, materialise
from tiny_sched.index import ZERO, Gate, Index, as_uop, flatten, is_empty, known, largest_size, never, simplify
from tiny_sched.lowering import ElementAccess, Lowering, lower_element
from tiny_sched.memory_plan import ALIGNMENT
from tiny_sched.movement import source_index
from tiny_sched.normalise import is_temporary
from tiny_sched.recompute_cost import MEMORY, CostTable, is_alu
from tiny_sched.scatter import is_plain, scatter_of
from tiny_sched.schedule_item import BufferRegion, ScheduleItem, loop_over
from tiny_sched.versions import BufferVersions
from tiny_sched.views import View, is_reinterpretation
from tiny_uop import GroupOp, Ops, Shape, UOp, collective_of, kernel_params, written_params
from tiny_uop.records import dataclass

Key: TypeAlias = "tuple[int, Index, Gate]"
"""One use of a node: the number of the kernel, the index of the element, and where it is needed at all."""


@dataclass(eq=False)
class Context:
  """What the two passes over a graph know. Each table has a row for a node that it is about."""

  nodes: Sequence[UOp]
  """The nodes of the graph, sources before users."""
  costs: CostTable
  """What recomputing a node would cost, which nodes are runs of memory, and along which axes they repeat."""
  versions: BufferVersions
  """The STOREs of each BUFFER, and the contents that each AFTER stands for."""
  items: list[ScheduleItem] = field(default_factory=list)
  """The calls to be, by number."""
  demands: dict[UOp, dict[Key, Demand]] = field(default_factory=dict)
  """Who uses a node: each use once, with the loops around it."""
  lowerings: dict[UOp, dict[Key, Lowering]] = field(default_factory=dict)
  """For each use that computes the node: what it takes of the sources, and how the value is made of that."""
  values: dict[UOp, dict[Key, UOp]] = field(default_factory=dict)
  """For each of these the value, a scalar expression; made by the second pass."""
  homes: dict[UOp, BufferRegion] = field(default_factory=dict)
  """Where a node lies in memory: in a temporary, or where a STORE puts it anyway."""
  stored_at: dict[UOp, UOp] = field(default_factory=dict)
  """The STORE into the home of a node that has no temporary."""
  forced: set[UOp] = field(default_factory=set)
  """Nodes that get memory whatever it costs: a copy, a BITCAST or a given kernel reads them there."""
  devices: dict[UOp, str] = field(default_factory=dict)
  """Where a given kernel wants nodes that are computed from constants, and so have no device."""
  finished_at: dict[UOp, list[ScheduleItem]] = field(default_factory=dict)
  """The items whose bodies can be made once the values of a node, or of the source of a STORE, are there."""
  results: dict[tuple[UOp, ...], dict[int, UOp]] = field(default_factory=dict)
  """Of each given kernel, known by the sources of its CALLs, the CALLs by the number of the result."""


def rangeify(nodes: Sequence[UOp]) -> Context:
  """The context of a tensor graph once its items have their bodies; they are in order, sources before users."""
  c = Context(nodes, CostTable(nodes), BufferVersions(nodes))
  find_homes(c)
  for u in reversed(c.nodes):
    if u.op is Ops.STORE:
      start_store(c, u)
    elif u.op not in _NOT_VALUES:
      decide(c, u)
  for u in c.nodes:
    if lowerings := c.lowerings.get(u):
      build_values(c, u, lowerings)
    for item in c.finished_at.get(u, ()):
      if not item.is_copy:
        finish_kernel(c, item)
  note_nodes(c)
  order = {u: i for i, u in enumerate(c.nodes)}
  c.items.sort(key=lambda item: order[item.root if item.store is None else item.store])
  return c


# *** homes: values that a STORE puts in a buffer anyway are read from there by all others ***


def find_homes(c: Context) -> None:
  """Only buffers whose old contents nothing reads are homes: a read from there never waits for a reader of those."""
  for u in c.nodes:
    if u.op is Ops.CALL:
      c.results.setdefault(u.src, {})[u.arg] = u
    if u.op is not Ops.STORE or is_empty(u.src[0].shape):
      continue
    value, view = u.src[1], c.costs.views.get(u.src[0])
    owned = is_alu(value) or value.op in (Ops.REDUCE, Ops.COPY, Ops.CONTIGUOUS, Ops.CALL)
    if not owned or value in c.homes or value.dtype.kind == "index" or view is None or view.base.op is not Ops.BUFFER:
      continue
    fresh = view.base not in c.versions.read and not c.versions.before(u).stores
    if fresh and (in_temporary(view) or view.byte_offset == 0 and view.size == view.base.arg[1]):
      c.homes[value] = BufferRegion(view.base, view.byte_offset, view.size, value.dtype, c.versions.after(u))
      c.stored_at[value] = u


def in_temporary(view: View) -> bool:
  """Whether a view is a run of a temporary, which is written there as memory of its own is."""
  return is_temporary(view.base) and view.byte_offset % ALIGNMENT == 0


# *** users to sources ***


def start_store(c: Context, store: UOp) -> None:
  target, value = store.src
  if is_empty(target.shape):
    return
  base, _ = c.versions.base_of(target)
  view = c.costs.views.get(target)
  device = str(base.device)
  region = BufferRegion.whole(base)
  if value.op is Ops.CALL and c.stored_at.get(value) is store:
    return  # the given kernel writes there
  if value.op is Ops.COPY and view is not None:
    start_copy(c, value, BufferRegion(base, view.byte_offset, view.size, target.dtype), store)
    return
  reinterpreted = is_reinterpretation_between(target)
  if reinterpreted and view is None:
    raise ValueError(
      f"cannot STORE through {target!r}: a BITCAST to another item size needs a contiguous view of the buffer"
    )
  if view is not None and (reinterpreted or in_temporary(view)):
    region = BufferRegion(base, view.byte_offset, view.size, target.dtype)
  start_kernel(c, value, device, store, region)


def start_kernel(c: Context, root: UOp, device: str, store: UOp | None, region: BufferRegion) -> None:
  shape = store.src[0].shape if store is not None else held_shape(c, root)
  loops = tuple([loop_over(s, i) if known(s) != 1 else ZERO for i, s in enumerate(shape)])
  real = tuple([r for r in loops if r is not ZERO])
  item = ScheduleItem(len(c.items), root, device, store, [region], loops, next_range=len(loops))
  c.items.append(item)
  c.finished_at.setdefault(root if store is None else store, []).append(item)
  item.scatters = bool(c.costs.scattered(root))
  if store is None:
    key = key_of(c, ElementAccess(root, loops, None), item.number)
    compute_inside(c, root, key, Demand(item.number, key[1], frozenset(key[1]) - {ZERO}, real))
  else:
    add_demand(c, ElementAccess(root, loops, None), item.number, real)


def start_copy(c: Context, copy: UOp, region: BufferRegion, store: UOp | None) -> None:
  """A copy between runs of memory; a source that is none is made one."""
  item = ScheduleItem(len(c.items), copy, str(copy.device), store, [region], is_copy=True)
  c.items.append(item)
  item.regions.append(run_of_memory(c, copy.src[0]))


def start_given(c: Context, call: UOp) -> None:
  """A kernel that was made elsewhere, once for all its results. Its inputs are runs of memory."""
  kernel, device, *inputs = call.src
  found = c.results.pop(call.src, None)
  if found is None:
    return  # another result has been met before
  params = kernel_params(kernel)
  results = [found.get(n, call.replace(dtype=params[n].base, arg=n)) for n in sorted(written_params(kernel))]
  regions = [c.homes.setdefault(r, BufferRegion.temporary(r, r.shape)) for r in results]
  store, *more = [c.stored_at.get(r) for r in results]
  item = ScheduleItem(len(c.items), call, str(device.arg), store, regions, body=kernel, given=True, more=tuple(more))
  c.items.append(item)
  for s in inputs:
    item.regions.append(run_of_memory(c, s, ALIGNMENT))
    check_device(item, s, item.regions[-1])
    c.devices[item.regions[-1].base] = item.device


def check_device(item: ScheduleItem, u: UOp, region: BufferRegion) -> None:
  """Raises ValueError where a kernel would read a node in the memory of another device."""
  if region.base.device not in (None, item.device):
    where = f"a kernel on {item.device} cannot read {u!r} on {region.base.device}"
    raise ValueError(f"{where}: copy one of them with COPY first")


def run_of_memory(c: Context, u: UOp, alignment: int = 1) -> BufferRegion:
  """The run of memory that a node is, at a multiple of `alignment` bytes. One that is none gets memory; of a BITCAST to
  another item size its source does, for it is the bytes of that."""
  view = c.costs.views.get(u)
  if view is None or view.byte_offset % alignment:
    holder = u.src[0] if is_reinterpretation(u) else u
    c.forced.add(holder)
    view = View(holder, 0, largest_size(u.shape))
  if view.base.op is Ops.BUFFER:
    return BufferRegion(view.base, view.byte_offset, view.size, u.dtype, c.versions.version_of(u))
  if (home := c.homes.get(view.base)) is not None:
    return BufferRegion(home.base, view.byte_offset, view.size, u.dtype, home.version)
  c.forced.add(view.base)
  return BufferRegion(view.base, view.byte_offset, view.size, u.dtype)


def add_demand(c: Context, access: ElementAccess, kernel: int, loops: tuple[UOp, ...]) -> None:
  found = c.demands.setdefault(access.node, {})
  key = (kernel, index, _) = key_of(c, access, kernel)
  if key not in found:
    used = frozenset().union(*[i.ranges for i in index], access.gate.ranges if access.gate is not None else ())
    found[key] = Demand(kernel, index, used, loops)


def key_of(c: Context, access: ElementAccess, kernel: int) -> Key:
  """Of elements that are the same for certain, the first stands for all: it is computed, held and read once."""
  index = access.index
  if (repeated := c.costs.repeated[access.node]) and index:
    index = tuple([ZERO if axis in repeated else position for axis, position in enumerate(index)])
  return kernel, index, access.gate


def held_shape(c: Context, u: UOp) -> Shape:
  """The shape of a node in memory: that of its distinct elements in a temporary that only kernels read."""
  return u.shape if u in c.stored_at or u in c.forced else c.costs.distinct(u)


def decide(c: Context, u: UOp) -> None:
  """Decides about a node all of whose users have been visited."""
  demands = c.demands.get(u, {})
  if u.op in MEMORY:
    return
  if u.op is Ops.CALL:
    if demands or u in c.forced or u in c.homes or collective_of(u.src[0]) is not None:
      start_given(c, u)
    return
  if is_reinterpretation(u) or u.op is Ops.BARRIER:
    if demands and u.op is Ops.BARRIER:
      barrier_regions(c, u)
    elif demands:
      run_of_memory(c, u)
    return
  if not demands and u not in c.forced:
    return
  if u.op is Ops.CONTIGUOUS and (view := c.costs.views[u]) is not None and view.base is not u and u not in c.homes:
    pass  # a view of memory already
  elif u in c.homes:
    compute_at_home(c, u, demands)
    return
  elif must_materialise(c, u, demands):
    give_memory(c, u)
    return
  for key, demand in demands.items():
    compute_inside(c, u, key, demand)


def barrier_regions(c: Context, u: UOp) -> list[BufferRegion]:
  """Sees to it that the value of a BARRIER has memory. The regions of what comes before it: a kernel that reads the
  value lists them among its own, and so has to wait for them.
  """
  value, *before = u.src
  while value.op in _IN_PLACE:
    value = value.src[0]
  if value.op not in MEMORY:
    c.forced.add(u.src[0])
  # what reads nothing, or is nothing, need not be waited for
  return [run_of_memory(c, s) for s in before if c.costs.costs[s].leaves != frozenset() and not is_empty(s.shape)]


def must_materialise(c: Context, u: UOp, demands: dict[Key, Demand]) -> bool:
  """Whether a node gets memory of its own: because it has to, or since `fusion.materialise` finds it cheaper."""
  if u in c.forced or u.op in (Ops.COPY, Ops.CONTIGUOUS):
    return True
  cost = c.costs.costs[u]
  if c.costs.scattered(u):
    return not scatters_directly(c, u, list(demands.values()))
  first = next(iter(demands.values()), None)
  loops = () if first is None else tuple([r for r in c.items[first.kernel].loops if r is not ZERO])
  contracts = first is not None and c.items[first.kernel].contracts
  in_table = all(c.costs.costs[c.items[d.kernel].root].is_table for d in demands.values())
  elements = largest_size(c.costs.distinct(u))
  return materialise(u, elements, cost, demands.values(), loops, contracts, in_table)


def scatters_directly(c: Context, u: UOp, demands: list[Demand]) -> bool:
  """Whether the kernel that wants a scattered sum does nothing but put it in its place."""
  if len(demands) != 1 or not is_plain(demands[0].index):
    return False
  item = c.items[demands[0].kernel]
  node = item.root
  while node.op in _ARRANGED:
    node = node.src[0]
  item.scatters = node is u
  return item.scatters


def compute_at_home(c: Context, u: UOp, demands: dict[Key, Demand]) -> None:
  """The STORE that is the home computes the value; all others load it."""
  for key, demand in demands.items():
    store = c.items[demand.kernel].store
    if store is not None and c.homes[u].version is c.versions.after(store) and store.src[1] is u:
      compute_inside(c, u, key, demand)


def give_memory(c: Context, u: UOp) -> None:
  if is_empty(u.shape):
    return
  if u.dtype.kind == "index":
    raise ValueError(f"{u!r} of dtype index cannot be kept in memory: cast it to an integer type first")
  region = c.homes[u] = BufferRegion.temporary(u, held_shape(c, u))
  if u.op is Ops.COPY:
    start_copy(c, u, region, None)
    return
  device = u.device or c.devices.get(u)
  if device is None and u in c.demands:
    device = c.items[next(iter(c.demands[u].values())).kernel].device
  if not isinstance(device, str):
    raise ValueError(f"no device for {u!r}, which has to be computed before it is copied: give its constants a DEVICE")
  start_kernel(c, u, device, None, region)


def compute_inside(c: Context, u: UOp, key: Key, demand: Demand) -> None:
  """Computes `u` in the kernel: hands the demand on to its sources."""
  kernel, index, gate = key
  c.items[kernel].contracts |= u.op is Ops.REDUCE and c.costs.costs[u].contraction
  lowering = lower_element(u, index, gate, c.items[kernel].new_range)
  c.lowerings.setdefault(u, {})[key] = lowering
  inner = (*demand.placed, *lowering.ranges) if lowering.ranges else demand.loops
  if (axes := c.costs.scattered(u)) and c.items[kernel].scatters:
    # what is scattered is computed for each term, not for each place
    places = {index[a] for a in axes}
    inner = tuple([r for r in inner if r not in places])
  for access in lowering.accesses:
    add_demand(c, access, kernel, inner)


# *** sources to users ***


def build_values(c: Context, u: UOp, lowerings: dict[Key, Lowering]) -> None:
  values = c.values.setdefault(u, {})
  for key, lowering in lowerings.items():
    values[key] = lowering.build([value_of(c, key[0], access) for access in lowering.accesses])


def value_of(c: Context, kernel: int, access: ElementAccess) -> UOp:
  key = key_of(c, access, kernel)
  access = ElementAccess(access.node, key[1], access.gate)
  found = c.values.get(access.node, {}).get(key)
  return found if found is not None else load_of(c, c.items[kernel], access)


def load_of(c: Context, item: ScheduleItem, access: ElementAccess) -> UOp:
  """The load of an element of a node that is in memory."""
  u = access.node
  if is_empty(u.shape):
    return UOp.const(u.dtype, 0)
  if u.op is Ops.BARRIER:
    for region in barrier_regions(c, u):
      item.pointer(region)
    return load_of(c, item, ElementAccess(u.src[0], access.index, access.gate))
  if u in c.homes:
    region, offset = c.homes[u], flatten(access.index, held_shape(c, u))
  elif is_reinterpretation(u):
    region, offset = run_of_memory(c, u), flatten(access.index, u.shape)
  else:
    base, version = c.versions.base_of(u)
    region, offset = BufferRegion.whole(base, version), offset_in(c, u, access.index)
  check_device(item, u, region)
  offset = simplify(offset)
  if never(access.gate):
    return UOp.const(u.dtype, 0)
  return item.pointer(region).index(offset, access.gate).load()


def offset_in(c: Context, u: UOp, index: Index) -> UOp:
  """The offset of an element of views over a BUFFER."""
  view = c.costs.views.get(u)
  if view is not None and view.base.op is Ops.BUFFER and u.dtype is view.base.dtype:
    return flatten(index, u.shape) + view.byte_offset // u.dtype.itemsize
  while u.op is not Ops.BUFFER:
    if u.op in GroupOp.Movement:
      if u.op is Ops.PAD or (u.op is Ops.EXPAND and repeats(u, index)):
        raise ValueError(
          f"cannot write through {u!r}: PAD and EXPAND have elements that are not in the buffer, or are there once"
        )
      index, _ = source_index(u, index)
      u = u.src[0]
    elif u.op is Ops.AFTER:
      u = c.versions.under(u)
    else:
      raise ValueError(f"cannot write through {u!r}: a STORE needs movement operations over a BUFFER")
  return index[0] if index else ZERO


def finish_kernel(c: Context, item: ScheduleItem) -> None:
  """The body of a kernel: a STORE of the root's value inside the output loops."""
  value = value_of(c, item.number, ElementAccess(item.root, item.loops, None))
  region = item.regions[0]
  if item.store is not None and region.is_whole:
    offset = offset_in(c, item.store.src[0], item.loops)
  else:
    offset = flatten(item.loops, item.root.shape if item.store is not None else held_shape(c, item.root))
  pointer, offset = UOp.param(0, region.pointer), simplify(offset)
  loops = [r for r in item.loops if r is not ZERO]
  if not item.scatters or (scatter := scatter_of(value, loops)) is None:
    item.body = pointer.index(offset).store(value).end(*loops)
    return
  # two kernels: one fills the memory, the item itself accumulates there, and so reads it as well
  filled, item.body = scatter.bodies(pointer, offset, loops)
  item.first = ScheduleItem(len(c.items), item.root, item.device, None, [region], item.loops, body=filled)
  c.items.append(item.first)
  version = None if item.store is None else c.versions.after(item.store)
  item.regions.append(replace(region, version=version))


def note_nodes(c: Context) -> None:
  """Tells items what they compute."""
  computed: dict[int, list[UOp]] = {}
  for u, lowerings in c.lowerings.items():
    for number in dict.fromkeys([key[0] for key in lowerings]):
      computed.setdefault(number, []).append(u)
  for number, item in enumerate(c.items):
    item.nodes = tuple(computed.get(number, (item.root,)))


def repeats(expand: UOp, index: Index) -> bool:
  """Whether an element of an EXPAND may be one that stands elsewhere too: not so at position 0 of the axes that repeat,
  which is all that a strided view reaches of an axis put before itself."""
  axes = [i for i, old, new in zip(index, expand.src[0].shape, expand.shape, strict=True) if old != new]
  return any(simplify(as_uop(i)) is not ZERO for i in axes)


def is_reinterpretation_between(target: UOp) -> bool:
  """Whether a BITCAST stands in a chain of views."""
  u = target
  while u.op in GroupOp.Movement or u.op in (Ops.BITCAST, Ops.AFTER):
    if u.op is Ops.BITCAST:
      return True
    u = u.src[0]
  return False


_ARRANGED = frozenset({Ops.RESHAPE, Ops.PERMUTE, *GroupOp.Identity})
_IN_PLACE = GroupOp.Movement - {Ops.PAD, Ops.EXPAND}
_NOT_VALUES = frozenset({Ops.SINK, Ops.DEVICE, Ops.STORE})
