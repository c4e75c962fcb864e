"""The final form of items: loops and PARAMs numbered by structure alone, so that equal kernels are one object; and the
CALLs of these kernels, over temporaries that have no memory yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_sched.index import known, memoised, simplify
from tiny_sched.kernel_loops import flatten_loops, split_loops
from tiny_sched.memory_plan import ALIGNMENT
from tiny_sched.normalise import is_temporary, temporary_buffer, temporary_number
from tiny_sched.schedule_item import BufferRegion, ScheduleItem
from tiny_uop import Accumulate, AxisType, GroupOp, KernelInfo, Ops, PtrDType, UOp, dtypes
from tiny_uop.records import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
  """What a CALL does: the body, the memory in the region of its PARAMs (without versions), its variables by name."""

  body: UOp
  regions: tuple[BufferRegion, ...]
  variables: tuple[UOp, ...]
  device: str
  nodes: tuple[UOp, ...] = ()
  """Of the graph, those that it computes."""


def copy_body(target: BufferRegion, source: BufferRegion) -> UOp:
  """COPY(PARAM 0, PARAM 1)."""
  return UOp(Ops.COPY, target.dtype, (UOp.param(0, target.pointer), UOp.param(1, source.pointer)))


def kernel_of(item: ScheduleItem) -> Kernel:
  """The CALL to be of an item whose regions are final."""
  regions = tuple([replace(p, version=None) for p in item.regions])
  if item.body is None:
    return Kernel(copy_body(regions[0], regions[1]), regions, (), item.device, item.nodes)
  if item.given:
    return Kernel(item.body, regions, item.body.variables, item.device, item.nodes)
  bases = [p.base for p in regions]
  own = tuple([p.size if i >= len(item.stores) and bases.count(p.base) == 1 else 0 for i, p in enumerate(regions)])
  start, parts = _from_first_read(item.body, own)
  regions = tuple([
    replace(p, byte_offset=p.byte_offset + parts[i][0] * p.dtype.itemsize, size=parts[i][1]) if i in parts else p
    for i, p in enumerate(regions)
  ])  # fmt: skip
  first: dict[BufferRegion, int] = {}
  body, used, variables = final(start, tuple([first.setdefault(p, i) for i, p in enumerate(regions)]))
  return Kernel(body, tuple([regions[i] for i in used]), variables, item.device, item.nodes)


@memoised
def _from_first_read(body: UOp, sizes: tuple[int, ...]) -> tuple[UOp, dict[int, tuple[int, int]]]:
  """(the body, by PARAM the first element and the number of elements of what it reads) where that begins behind the
  start of the memory, of PARAMs of these sizes; 0 says to leave one alone. So the kernels that read one row each of
  the same matrix are one kernel, over memory that begins elsewhere. It begins at a multiple of ALIGNMENT bytes, as all
  memory does.
  """
  nodes = body.toposort
  places: dict[UOp, list[UOp]] = {u: [] for u in nodes if u.op is Ops.PARAM and sizes[u.arg]}
  for u in nodes:
    if u.op is Ops.INDEX and u.src[0] in places:
      places[u.src[0]].append(u)
  parts: dict[int, tuple[int, int]] = {}
  moved: dict[UOp, tuple[UOp, int]] = {}
  for param, used in places.items():
    assert isinstance(param.dtype, PtrDType)
    first, last = min([u.src[1].vmin for u in used], default=0), max([u.src[1].vmax for u in used], default=0)
    step = ALIGNMENT // param.dtype.base.itemsize
    start, size = int(first) // step * step, sizes[param.arg]
    if start <= 0 or last >= size:
      continue  # behind the end there is something where a gate does not hold
    parts[param.arg] = start, int(last) + 1 - start
    moved[param] = param.replace(dtype=param.dtype.base.ptr(parts[param.arg][1])), start
  if not moved:
    return body, parts
  done: dict[UOp, UOp] = {}
  for u in nodes:  # an index or a gate may itself be read from memory that is moved
    src = tuple([done[s] for s in u.src])
    if u.op is Ops.INDEX and u.src[0] in moved:
      memory, start = moved[u.src[0]]
      done[u] = memory.index(simplify(src[1] - start), *src[2:])
    else:
      done[u] = u.with_src(src) if src != u.src else u
  return done[body], parts


@memoised
def final(body: UOp, memory: tuple[int, ...]) -> tuple[UOp, tuple[int, ...], tuple[UOp, ...]]:
  """(kernel, the old number of each of its PARAMs, its variables) of a body in whose PARAM i there is the memory of
  PARAM `memory[i]`. Layers of equal sizes ask for the same.
  """
  whole = flatten_loops(split_loops(body))
  nodes = whole.toposort
  slots = {0: 0}
  changes: dict[UOp, UOp] = {}
  loops: dict[AxisType, list[UOp]] = {AxisType.LOOP: [], AxisType.REDUCE: []}
  variables: list[UOp] = []
  closed = whole.src[1:] if whole.op is Ops.END else ()
  for u in nodes:
    if u.op is Ops.PARAM:
      changes[u] = u.replace(arg=slots.setdefault(memory[u.arg], len(slots)))
    elif u.op is Ops.RANGE:
      loops[u.arg[1]].append(u)
    elif u.op is Ops.VARIABLE:
      variables.append(u)
  ranges = [*closed, *loops[AxisType.REDUCE]]
  changes |= _renumbered(ranges)
  numbered = whole.substitute({old: new for old, new in changes.items() if old is not new})
  sink = UOp.sink(numbered, arg=KernelInfo(_name(nodes, closed, loops[AxisType.REDUCE])))
  return sink, tuple(slots), tuple(sorted(variables, key=lambda v: str(v.arg[0])))


def _renumbered(ranges: list[UOp]) -> dict[UOp, UOp]:
  """Loops numbered in the given order."""
  # an extent never depends on another loop, so replacing all at once is safe
  return {r: r.replace(arg=(i, r.arg[1])) for i, r in enumerate(ranges)}


def _extent(r: UOp) -> str:
  size = known(r.src[0])
  if size is not None:
    return str(size)
  return "".join(c if c.isalnum() else "_" for c in r.src[0].render())[:24]


def _name(nodes: tuple[UOp, ...], loops: tuple[UOp, ...], reduces: list[UOp]) -> str:
  """`elementwise_64x32`, `reduce_64x32_r128`, or `fill_16` for what reads nothing."""
  sizes = "x".join([_extent(r) for r in loops]) or "1"
  if any(isinstance(u.arg, Accumulate) for u in nodes):
    return f"scatter_{sizes}"
  if reduces:
    return f"reduce_{sizes}_r{'x'.join([_extent(r) for r in reduces])}"
  if not any(u.op is Ops.LOAD for u in nodes):
    return f"fill_{sizes}"
  computes = any(u.op in GroupOp.ALU and u.dtype.kind != "index" for u in nodes)
  return f"elementwise_{sizes}" if computes or any(u.op in GroupOp.Convert for u in nodes) else f"move_{sizes}"


def calls_of(kernels: Sequence[Kernel]) -> UOp:
  """The LINEAR of the kernels, in their order: each temporary is a BUFFER of its own, VARIABLEs stand for BINDs."""
  temporaries = _temporaries(kernels)

  def argument(region: BufferRegion) -> UOp:
    region = replace(region, base=temporaries.get(region.base, region.base))
    if region.is_whole:
      return region.base
    return UOp(Ops.BUFFER_VIEW, region.dtype, (region.base,), (region.byte_offset, region.size))

  calls = [UOp(Ops.CALL, dtypes.void, (k.body, *[argument(p) for p in k.regions], *k.variables)) for k in kernels]
  return UOp(Ops.LINEAR, dtypes.void, tuple(calls))


def free_number(kernels: Sequence[Kernel]) -> int:
  """The number from which on no temporary has a BUFFER yet."""
  bases = {p.base for kernel in kernels for p in kernel.regions if p.base.op is Ops.BUFFER}
  return max([temporary_number(base) + 1 for base in bases if is_temporary(base)], default=0)


def _temporaries(kernels: Sequence[Kernel]) -> dict[UOp, UOp]:
  """The BUFFER of each node that is kept in memory, on the device of its writer, large enough for all its users."""
  first: dict[UOp, tuple[BufferRegion, str]] = {}
  nbytes: dict[UOp, int] = {}
  for kernel in kernels:
    for region in kernel.regions:
      if region.base.op is not Ops.BUFFER:
        first.setdefault(region.base, (region, kernel.device))  # the writer comes first
        nbytes[region.base] = max(nbytes.get(region.base, 0), region.byte_offset + region.nbytes)
  found: dict[UOp, UOp] = {}
  for number, (base, (region, device)) in enumerate(first.items(), free_number(kernels)):
    exact = nbytes[base] == region.nbytes
    dtype, size = (region.dtype, region.size) if exact else (dtypes.uint8, nbytes[base])
    found[base] = temporary_buffer(number, device, size, dtype)
  return found
