"""From tensor graph to loops: an index is pushed from every STORE down to memory, with cuts where the policy says so.

Two passes over the nodes, no recursion: from users to sources to hand down demands (kernel, index, gate), then from
sources to users to make the values. A reduction that depends on the row loops only is thereby computed once per row:
its value mentions no other loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from tiny_sched.cut import Demand, materialise
from tiny_sched.facts import MEMORY, FactTable, is_alu, is_reinterpretation
from tiny_sched.history import Histories, Version
from tiny_sched.index import ZERO, Gate, Index, as_uop, flatten, is_empty, known, largest_size, never
from tiny_sched.memory import ALIGNMENT
from tiny_sched.movement import source_index
from tiny_sched.scatter import is_plain, scatter_of
from tiny_sched.simple import simplify
from tiny_sched.steps import Need, Step, step
from tiny_sched.units import Place, Unit, loop_over
from tiny_sched.views import View
from tiny_uop import GroupOp, Ops, UOp, kernel_params, written_params

Key: TypeAlias = "tuple[int, Index, Gate]"


class Rangeify:
  """The units of one tensor graph, in topological order of their roots."""

  def __init__(self, nodes: Sequence[UOp]) -> None:
    self.nodes = nodes
    self.table = FactTable(nodes)
    self.histories = Histories(nodes)
    self.units: list[Unit] = []
    self.demands: dict[UOp, dict[Key, Demand]] = {}
    self.steps: dict[UOp, dict[Key, Step]] = {}
    self.values: dict[UOp, dict[Key, UOp]] = {}
    self.home: dict[UOp, Place] = {}
    self.forced: set[UOp] = set()
    self.roots: dict[UOp, list[Unit]] = {}
    self.stored_at: dict[UOp, UOp] = {}  # by value: the STORE into its home
    self.results: dict[tuple[UOp, ...], dict[int, UOp]] = {}  # of given kernels, by sources and number

  def run(self) -> list[Unit]:
    """All units, sources before users, with their bodies built."""
    self.find_homes()
    for u in reversed(self.nodes):
      if u.op is Ops.STORE:
        self.start_store(u)
      elif u.op not in _NOT_VALUES:
        self.visit(u)
    for u in self.nodes:
      if steps := self.steps.get(u):
        self.build_values(u, steps)
      for unit in self.roots.get(u, ()):
        if not unit.is_copy:
          self.finish(unit)
    order = {u: i for i, u in enumerate(self.nodes)}
    return sorted(self.units, key=lambda unit: order[unit.root if unit.store is None else unit.store])

  # *** homes: values that a STORE puts in a buffer anyway are read from there by all others ***

  def find_homes(self) -> None:
    """Only buffers whose old contents nothing reads are homes: a read from there never waits for a reader of those."""
    for u in self.nodes:
      if u.op is Ops.CALL:
        self.results.setdefault(u.src, {})[u.arg] = u
      if u.op is not Ops.STORE or is_empty(u.src[0].shape):
        continue
      value, view = u.src[1], self.table.views.get(u.src[0])
      owned = is_alu(value) or value.op in (Ops.REDUCE, Ops.COPY, Ops.CONTIGUOUS, Ops.CALL)
      fresh = view is not None and view.base not in self.histories.read and not self.histories.before(u).stores
      if owned and fresh and value not in self.home and view is not None:
        place = self.place_of_view(view, value, self.histories.after(u))
        if place is not None and place.byte_offset == 0 and place.size == place.base.arg[1]:
          self.home[value], self.stored_at[value] = place, u

  def place_of_view(self, view: View, like: UOp, version: Version | None) -> Place | None:
    if view.base.op is not Ops.BUFFER or like.dtype.kind == "index":
      return None
    return Place(view.base, view.byte_offset, view.size, like.dtype, version)

  def temporary(self, u: UOp) -> Place:
    """The temporary that holds a node."""
    return Place(u, 0, largest_size(u.shape), u.dtype)

  # *** users to sources ***

  def start_store(self, store: UOp) -> None:
    target, value = store.src
    if is_empty(target.shape):
      return
    base, _ = self.histories.base_of(target)
    view = self.table.views.get(target)
    device = str(base.device)
    place = Place(base, 0, base.arg[1], base.dtype)
    if value.op is Ops.CALL and self.stored_at.get(value) is store:
      return  # the given kernel writes there
    if value.op is Ops.COPY and view is not None:
      self.start_copy(value, Place(base, view.byte_offset, view.size, target.dtype), store)
      return
    if is_reinterpretation_between(target):
      if view is None:
        raise ValueError(
          f"cannot STORE through {target!r}: a BITCAST to another item size needs a contiguous view of the buffer"
        )
      place = Place(base, view.byte_offset, view.size, target.dtype)
    self.start_kernel(value, device, store, place)

  def start_kernel(self, root: UOp, device: str, store: UOp | None, place: Place) -> None:
    shape = store.src[0].shape if store is not None else root.shape
    loops = tuple([loop_over(s, i) if known(s) != 1 else ZERO for i, s in enumerate(shape)])
    real = tuple([r for r in loops if r is not ZERO])
    unit = Unit(len(self.units), root, device, store, [place], loops, next_range=len(loops))
    self.units.append(unit)
    self.roots.setdefault(root if store is None else store, []).append(unit)
    unit.scatters = bool(self.table.scattered(root))
    if store is None:
      self.expand(root, (unit.number, loops, None), Demand(unit.number, loops, frozenset(real), real))
    else:
      self.demand(Need(root, loops, None), unit.number, real)

  def start_copy(self, copy: UOp, place: Place, store: UOp | None) -> None:
    """A copy between runs of memory; a source that is none is made one."""
    source = copy.src[0]
    unit = Unit(len(self.units), copy, str(copy.device), store, [place], is_copy=True)
    self.units.append(unit)
    view = self.table.views.get(source)
    if view is None:
      self.forced.add(source)
      view = View(source, 0, largest_size(source.shape))
    unit.places.append(self.place_at(view, source))

  def start_given(self, call: UOp) -> None:
    """A kernel that was made elsewhere, once for all its results. Its inputs are runs of memory."""
    kernel, device, *inputs = call.src
    found = self.results.pop(call.src, None)
    if found is None:
      return  # another result has been met before
    params = kernel_params(kernel)
    results = [found.get(n, call.replace(dtype=params[n].base, arg=n)) for n in sorted(written_params(kernel))]
    places = [self.home.setdefault(r, self.temporary(r)) for r in results]
    store, *more = [self.stored_at.get(r) for r in results]
    unit = Unit(len(self.units), call, str(device.arg), store, places, body=kernel, given=True, more=tuple(more))
    self.units.append(unit)
    for s in inputs:
      view = self.table.views[s]
      if view is None or view.byte_offset % ALIGNMENT:
        self.forced.add(s)
        view = View(s, 0, largest_size(s.shape))
      unit.places.append(self.place_at(view, s))
      place = unit.places[-1].base.device
      if place is not None and place != unit.device:
        raise ValueError(f"a kernel on {unit.device} cannot read {s!r} on {place}: copy one of them with COPY first")

  def place_at(self, view: View, u: UOp) -> Place:
    """The place of a view: of a buffer, or of a node that has or gets one."""
    if view.base.op is Ops.BUFFER:
      return Place(view.base, view.byte_offset, view.size, u.dtype, self.histories.version_of(u))
    if (home := self.home.get(view.base)) is not None:
      return Place(home.base, view.byte_offset, view.size, u.dtype, home.version)
    self.forced.add(view.base)
    return Place(view.base, view.byte_offset, view.size, u.dtype)

  def demand(self, need: Need, kernel: int, loops: tuple[UOp, ...]) -> None:
    found = self.demands.setdefault(need.node, {})
    key = (kernel, need.index, need.gate)
    if key not in found:
      used = frozenset().union(*[i.ranges for i in need.index], need.gate.ranges if need.gate is not None else ())
      found[key] = Demand(kernel, need.index, used, loops)

  def visit(self, u: UOp) -> None:
    """Decides about a node all of whose users have been visited."""
    demands = self.demands.get(u)
    if u.op in MEMORY:
      return
    if u.op is Ops.CALL:
      if demands or u in self.forced or u in self.home:
        self.start_given(u)
      return
    if is_reinterpretation(u) or u.op is Ops.BARRIER:
      if demands and u.op is Ops.BARRIER:
        self.barrier(u)
      elif demands:
        self.reinterpreted(u)
      return
    if not demands and u not in self.forced:
      return
    if (
      u.op is Ops.CONTIGUOUS and (view := self.table.views[u]) is not None and view.base is not u and u not in self.home
    ):
      pass  # a view of memory already
    elif u in self.home:
      self.split_home(u, demands or {})
      return
    elif self.must_materialise(u, demands or {}):
      self.give_memory(u)
      return
    for key, demand in (demands or {}).items():
      self.expand(u, key, demand)

  def reinterpreted(self, u: UOp) -> Place:
    """The memory of a BITCAST to another item size: the bytes of its source, which have to exist."""
    view = self.table.views[u]
    if view is None:
      self.forced.add(u.src[0])
      view = View(u.src[0], 0, largest_size(u.shape))
    return self.place_at(view, u)

  def barrier(self, u: UOp) -> list[Place]:
    """Sees to it that the value of a BARRIER has memory. The places of what comes before it: a kernel that reads the
    value lists them among its own, and so has to wait for them.
    """
    value, *before = u.src
    while value.op in _IN_PLACE:
      value = value.src[0]
    if value.op not in MEMORY:
      self.forced.add(u.src[0])
    places = []
    for s in before:
      if self.table.facts[s].leaves == frozenset() or is_empty(s.shape):
        continue  # there is nothing to wait for
      if (view := self.table.views[s]) is None:
        self.forced.add(s)
        view = View(s, 0, largest_size(s.shape))
      places.append(self.place_at(view, s))
    return places

  def must_materialise(self, u: UOp, demands: dict[Key, Demand]) -> bool:
    if u in self.forced or u.op in (Ops.COPY, Ops.CONTIGUOUS):
      return True
    facts = self.table.facts[u]
    if self.table.scattered(u):
      return not self.scatters_directly(u, list(demands.values()))
    first = next(iter(demands.values()), None)
    loops = () if first is None else tuple([r for r in self.units[first.kernel].loops if r is not ZERO])
    contracts = first is not None and self.units[first.kernel].contracts
    in_table = all(self.table.facts[self.units[d.kernel].root].is_table for d in demands.values())
    return materialise(u, facts, demands.values(), loops, contracts, in_table)

  def scatters_directly(self, u: UOp, demands: list[Demand]) -> bool:
    """Whether the kernel that wants a scattered sum does nothing but put it in its place."""
    if len(demands) != 1 or not is_plain(demands[0].index):
      return False
    unit, node = self.units[demands[0].kernel], self.units[demands[0].kernel].root
    while node.op in _ARRANGED:
      node = node.src[0]
    unit.scatters = node is u
    return unit.scatters

  def split_home(self, u: UOp, demands: dict[Key, Demand]) -> None:
    """The STORE that is the home computes the value; all others load it."""
    for key, demand in demands.items():
      store = self.units[demand.kernel].store
      if store is not None and self.home[u].version is self.histories.after(store) and store.src[1] is u:
        self.expand(u, key, demand)

  def give_memory(self, u: UOp) -> None:
    if is_empty(u.shape):
      return
    if u.dtype.kind == "index":
      raise ValueError(f"{u!r} of dtype index cannot be kept in memory: cast it to an integer type first")
    place = self.home[u] = self.temporary(u)
    if u.op is Ops.COPY:
      self.start_copy(u, place, None)
      return
    device = u.device
    if device is None and u in self.demands:
      device = self.units[next(iter(self.demands[u].values())).kernel].device
    if not isinstance(device, str):
      raise ValueError(
        f"no device for {u!r}, which has to be computed before it is copied: give its constants a DEVICE"
      )
    self.start_kernel(u, device, None, place)

  def expand(self, u: UOp, key: Key, demand: Demand) -> None:
    """Computes `u` in the kernel: hands the demand on to its sources."""
    kernel, index, gate = key
    self.units[kernel].contracts |= u.op is Ops.REDUCE and self.table.facts[u].contraction
    done = step(u, index, gate, self.units[kernel].new_range)
    self.steps.setdefault(u, {})[key] = done
    inner = (*demand.placed, *done.ranges) if done.ranges else demand.loops
    if (axes := self.table.scattered(u)) and self.units[kernel].scatters:
      # what is scattered is computed for each term, not for each place
      places = {index[a] for a in axes}
      inner = tuple([r for r in inner if r not in places])
    for need in done.needs:
      self.demand(need, kernel, inner)

  # *** sources to users ***

  def build_values(self, u: UOp, steps: dict[Key, Step]) -> None:
    values = self.values.setdefault(u, {})
    for key, todo in steps.items():
      values[key] = todo.build([self.value(key[0], need) for need in todo.needs])

  def value(self, kernel: int, need: Need) -> UOp:
    key = (kernel, need.index, need.gate)
    found = self.values.get(need.node, _EMPTY).get(key)
    return found if found is not None else self.load(self.units[kernel], need)

  def load(self, unit: Unit, need: Need) -> UOp:
    """The load of an element of a node that is in memory."""
    u = need.node
    if is_empty(u.shape):
      return UOp.const(u.dtype, 0)
    if u.op is Ops.BARRIER:
      for place in self.barrier(u):
        unit.pointer(place)
      return self.load(unit, Need(u.src[0], need.index, need.gate))
    if u in self.home:
      place, offset = self.home[u], flatten(need.index, u.shape)
    elif is_reinterpretation(u):
      place, offset = self.reinterpreted(u), flatten(need.index, u.shape)
    else:
      base, version = self.histories.base_of(u)
      place, offset = Place(base, 0, base.arg[1], base.dtype, version), self.offset_in(u, need.index)
    device = place.base.device
    if device is not None and device != unit.device:
      raise ValueError(f"a kernel on {unit.device} cannot read {u!r} on {device}: copy one of them with COPY first")
    offset = simplify(offset)
    if never(need.gate):
      return UOp.const(u.dtype, 0)
    return unit.pointer(place).index(offset, need.gate).load()

  def offset_in(self, u: UOp, index: Index) -> UOp:
    """The offset of an element of views over a BUFFER."""
    view = self.table.views.get(u)
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
        u = self.histories.under(u)
      else:
        raise ValueError(f"cannot write through {u!r}: a STORE needs movement operations over a BUFFER")
    return index[0] if index else ZERO

  def finish(self, unit: Unit) -> None:
    """The body of a kernel: a STORE of the root's value inside the output loops."""
    value = self.value(unit.number, Need(unit.root, unit.loops, None))
    place = unit.places[0]
    if (
      unit.store is None or place.byte_offset or place.dtype is not place.base.dtype or place.size != place.base.arg[1]
    ):
      offset = flatten(unit.loops, unit.root.shape)
    else:
      offset = self.offset_in(unit.store.src[0], unit.loops)
    pointer = UOp.param(0, place.pointer)
    loops = [r for r in unit.loops if r is not ZERO]
    if unit.scatters and (scatter := scatter_of(value, loops)) is not None:
      self.scatter(unit, scatter.bodies(pointer, simplify(as_uop(offset)), loops))
      return
    unit.body = pointer.index(simplify(as_uop(offset))).store(value).end(*loops)

  def scatter(self, unit: Unit, bodies: tuple[UOp, UOp]) -> None:
    """Two kernels for a unit: one fills the memory, the unit itself accumulates there, and so reads it as well."""
    place = unit.places[0]
    fill = Unit(len(self.units), unit.root, unit.device, None, [place], unit.loops, body=bodies[0])
    self.units.append(fill)
    unit.first, unit.body = fill, bodies[1]
    version = None if unit.store is None else self.histories.after(unit.store)
    unit.places.append(replace(place, version=version))


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
_EMPTY: dict[Key, UOp] = {}
