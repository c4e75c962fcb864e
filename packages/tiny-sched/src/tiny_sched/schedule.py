"""`schedule`: tensor graph → LINEAR of CALLs, cached by the structure of the graph."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from tiny_sched import simple
from tiny_sched.graph_rules import GRAPH_RULES
from tiny_sched.kernels import Kernel, kernel_of
from tiny_sched.memory import Lifetime, plan
from tiny_sched.normalise import Normal, normalise, slot_of
from tiny_sched.order import ordered
from tiny_sched.rangeify import Place, Rangeify
from tiny_uop import DType, Ops, UOp, dtypes, graph_rewrite, spec
from tiny_uop.context import DEBUG
from tiny_uop.observe import span

CACHE_SIZE = 512


@dataclass(frozen=True, slots=True)
class Argument:
  """What takes the place of a PARAM: a slot of the graph, or the arena of a device, from a byte offset on."""

  slot: int | None
  device: str
  byte_offset: int
  size: int
  dtype: DType
  whole: bool = False


@dataclass(frozen=True, slots=True)
class Call:
  """A CALL without its buffers."""

  body: UOp
  arguments: tuple[Argument, ...]
  variables: tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Template:
  """A schedule without its buffers and values: what the cache keeps."""

  calls: tuple[Call, ...]
  arenas: tuple[tuple[str, int], ...]


class CacheInfo(NamedTuple):
  """Counters of the schedule cache."""

  hits: int
  misses: int
  size: int


_cache: OrderedDict[UOp, Template] = OrderedDict()
_counts = {"hits": 0, "misses": 0}
_lock = Lock()


def schedule_cache_info() -> CacheInfo:
  """How often `schedule` found a graph's structure in its cache, how often not, and how many entries there are."""
  with _lock:
    return CacheInfo(_counts["hits"], _counts["misses"], len(_cache))


def schedule_cache_clear() -> None:
  """Empties the schedule cache and sets its counters to 0."""
  with _lock:
    _cache.clear()
    _counts.update(hits=0, misses=0)


def schedule(sink: UOp) -> UOp:
  """The calls that compute a tensor graph: SINK of AFTERs and STOREs → LINEAR of CALLs.

  Temporaries are views of one new arena BUFFER per device. Equal graphs over other buffers, or with other values bound
  to their variables, are found in a cache. Raises ValueError for graphs that are not legal at tensor level, or that mix
  devices without COPY.
  """
  _check_roots(sink)
  start = time.perf_counter()
  normal = normalise(sink)
  with _lock:
    template = _cache.get(normal.sink)
    _counts["hits" if template is not None else "misses"] += 1
    if template is not None:
      _cache.move_to_end(normal.sink)
  if hit := template is not None:
    found = template
  else:
    found = build(normal.sink)
    with _lock:
      _cache[normal.sink] = found
      while len(_cache) > CACHE_SIZE:
        _cache.popitem(last=False)
  linear = instantiate(found, normal)
  if DEBUG >= 1 and found.calls:
    took = (time.perf_counter() - start) * 1e3
    print(f"schedule {len(found.calls):4d} calls in {took:8.2f} ms, cache {'hit' if hit else 'miss'}", file=sys.stderr)
  return linear


def _check_roots(sink: UOp) -> None:
  if sink.op is not Ops.SINK:
    raise ValueError(f"schedule takes a SINK of AFTER and STORE nodes, got {sink!r}")
  for root in sink.src:
    if root.op not in (Ops.AFTER, Ops.STORE):
      raise ValueError(
        f"root {root!r} of the graph has no buffer: expected AFTER(buffer, STORE(buffer, value)) or a STORE"
      )


def build(sink: UOp) -> Template:
  """The template of a normalised graph."""
  spec.check_stage(sink, "tensor")
  with span("schedule", "schedule", sink) as whole:
    try:
      with span("pass", "simplify", sink) as work:
        graph = work.gives(graph_rewrite(sink, GRAPH_RULES, name="tensor graph"))
      with span("pass", "kernels", graph) as work:
        cut = Rangeify(graph.toposort)
        kernels = [kernel_of(unit) for unit in ordered(cut.run(), cut.histories)]
        whole.gives(work.gives(UOp(Ops.LINEAR, src=tuple([k.body for k in kernels]))))
    finally:
      simple.forget()
  for kernel in kernels:
    if kernel.body.op is Ops.SINK:
      spec.check_stage(kernel.body, "kernel", "schedule")
  return _with_memory(kernels)


def _with_memory(kernels: list[Kernel]) -> Template:
  """Plans the temporaries of each device."""
  lives: dict[str, dict[UOp, Lifetime]] = {}
  home: dict[UOp, str] = {}
  for number, kernel in enumerate(kernels):
    for place in kernel.places:
      if place.base.op is Ops.BUFFER:
        continue
      device = home.setdefault(place.base, kernel.device)  # the writer comes first
      known = lives.setdefault(device, {}).get(place.base, Lifetime(0, number, number))
      lives[device][place.base] = Lifetime(max(known.nbytes, place.byte_offset + place.nbytes), known.first, number)
  offsets: dict[UOp, int] = {}
  arenas: list[tuple[str, int]] = []
  for device, lifetimes in lives.items():
    planned, total = plan(lifetimes)
    offsets |= planned
    arenas.append((device, total))

  def argument(place: Place) -> Argument:
    if place.base.op is Ops.BUFFER:
      whole = place.size == place.base.arg[1] and place.dtype is place.base.dtype
      return Argument(slot_of(place.base), str(place.base.device), place.byte_offset, place.size, place.dtype, whole)
    return Argument(None, home[place.base], offsets[place.base] + place.byte_offset, place.size, place.dtype)

  calls = tuple([Call(k.body, tuple([argument(p) for p in k.places]), k.variables) for k in kernels])
  return Template(calls, tuple(arenas))


def _new_arena(device: str, nbytes: int, taken: set[int]) -> UOp:
  """A BUFFER with an id that no one has: a graph that came as text brought ids of another process."""
  arena = UOp.new_buffer(device, nbytes, dtypes.uint8)
  while arena.arg[0] in taken:
    arena = UOp.new_buffer(device, nbytes, dtypes.uint8)
  return arena


def instantiate(template: Template, normal: Normal) -> UOp:
  """The schedule of a template over the buffers and values of a graph, with new arenas."""
  taken = {b.arg[0] for b in normal.buffers}
  arenas = {device: _new_arena(device, nbytes, taken) for device, nbytes in template.arenas}
  views: dict[Argument, UOp] = {}

  def buffer(a: Argument) -> UOp:
    base = arenas[a.device] if a.slot is None else normal.buffers[a.slot]
    return base if a.whole else UOp(Ops.BUFFER_VIEW, a.dtype, (base,), (a.byte_offset, a.size))

  calls: list[UOp] = []
  for call in template.calls:
    for a in call.arguments:
      if a not in views:
        views[a] = buffer(a)
    if missing := [v for v in call.variables if v not in normal.binds]:
      raise ValueError(
        f"variable {missing[0].arg[0]!r} has no value: bind it with .bind(value) before the graph is scheduled"
      )
    binds = [normal.binds[v] for v in call.variables]
    calls.append(UOp(Ops.CALL, dtypes.void, (call.body, *[views[a] for a in call.arguments], *binds)))
  return UOp(Ops.LINEAR, dtypes.void, tuple(calls))
