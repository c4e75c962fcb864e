"""`schedule`: tensor graph → LINEAR of CALLs, cached by the structure of the graph."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

from tiny_sched.devices.rules import on_several_devices
from tiny_sched.normalise import Given, Structure, is_arena, is_slot, nodes_of, normalise, slot_of, structure
from tiny_sched.passes import passes_for
from tiny_sched.room import RoomOf, unknown
from tiny_sched.versions import BufferVersions
from tiny_sched.work import Schedule, tracker
from tiny_uop import Ops, UOp, new_buffer_id, spec, value_nodes
from tiny_uop.context import DEBUG, SPEC
from tiny_uop.locks import shared_lock
from tiny_uop.observe import span
from tiny_uop.origins import recording
from tiny_uop.passes import run_passes

CACHE_SIZE = 512


class CacheInfo(NamedTuple):
  """Counters of the schedule cache."""

  hits: int
  misses: int
  size: int


class Template(NamedTuple):
  """What the cache keeps: a schedule over slots and arenas, and what its calls compute, if somebody asked for it."""

  linear: UOp
  work: Schedule | None


_cache: OrderedDict[tuple[object, ...], Template] = OrderedDict()
_counts = {"hits": 0, "misses": 0}
_lock = shared_lock()


def schedule_cache_info() -> CacheInfo:
  """How often `schedule` found a graph's structure in its cache, how often not, and how many entries there are."""
  with _lock:
    return CacheInfo(_counts["hits"], _counts["misses"], len(_cache))


def schedule_cache_clear() -> None:
  """Empties the schedule cache and sets its counters to 0."""
  with _lock:
    _cache.clear()
    _counts.update(hits=0, misses=0)


def schedule(sink: UOp, room_of: RoomOf = unknown) -> UOp:
  """The calls that compute a tensor graph: SINK of AFTERs and STOREs → LINEAR of CALLs.

  `room_of` says what a device has for a kernel. Where it knows the memory that threads of a workgroup share, sums
  weighted by a softmax become kernels of blocks that fit (`softmax/`); where many threads share a kernel, long sums of
  products with few results become two kernels (`products/split.py`). Such a function answers alike as long as it lives.
  Temporaries are views of one new arena BUFFER per device. Equal graphs over other buffers, or with other values bound
  to their variables, are found in a cache. Raises ValueError for graphs that are not legal at tensor level, or that mix
  devices without COPY.
  """
  check_roots(sink)
  start = time.perf_counter()
  wanted = recording.wanted > 0
  given = structure(sink)
  with _lock:
    template = _cache.get((given.key, room_of))
    if template is not None and wanted and template.work is None:
      template = None  # it was made when nobody asked what its calls compute
    _counts["hits" if template is not None else "misses"] += 1
    if template is not None:
      with suppress(KeyError):  # a signal handler, or a finaliser, may have filled the cache since
        _cache.move_to_end((given.key, room_of))
  if hit := template is not None:
    found = template
  else:
    found = make(sink, given, wanted, room_of)
    with _lock:
      _cache[given.key, room_of] = found
      with suppress(KeyError):
        while len(_cache) > CACHE_SIZE:
          _cache.popitem(last=False)
  linear = instantiate(found.linear, given)
  if wanted and found.work is not None:
    found.work.tell(linear.src, given.nodes)
  if DEBUG >= 1 and linear.src:
    took = (time.perf_counter() - start) * 1e3
    print(f"schedule {len(linear.src):4d} calls in {took:8.2f} ms, cache {'hit' if hit else 'miss'}", file=sys.stderr)
  return linear


def check_roots(sink: UOp) -> None:
  """Raises ValueError for a graph that says nothing about where its results go."""
  if sink.op is not Ops.SINK:
    raise ValueError(f"schedule takes a SINK of AFTER and STORE nodes, got {sink!r}")
  for root in sink.src:
    if root.op not in (Ops.AFTER, Ops.STORE):
      wanted = "AFTER(buffer, STORE(buffer, value)) or a STORE"
      raise ValueError(f"root {root!r} of the graph has no buffer: expected {wanted}")


def make(sink: UOp, given: Structure, wanted: bool, room_of: RoomOf) -> Template:
  """The template for a graph."""
  normal = normalise(sink).sink
  if not wanted:
    return Template(build(normal, room_of), None)
  try:
    tracker.begin(nodes_of(normal))
    linear = build(normal, room_of)
    return Template(linear, Schedule(given.nodes, tracker.calls))
  finally:
    tracker.end()


def build(sink: UOp, room_of: RoomOf = unknown) -> UOp:
  """The schedule of a normalised graph, over slots and arenas: what the cache keeps."""
  if SPEC:
    # says what is wrong with a STORE in other words than the spec does, and so comes first
    nodes = value_nodes(sink)
    if not on_several_devices(nodes):
      BufferVersions(nodes)
  spec.check_stage(sink, "tensor")
  with span("schedule", "schedule", sink) as whole:
    return whole.gives(run_passes(sink, passes_for(room_of)))


def _new_arena(arena: UOp, taken: set[int]) -> UOp:
  """A BUFFER with an id that no one has: a graph that came as text brought ids of another process."""
  number = new_buffer_id()
  while number in taken:
    number = new_buffer_id()
  return arena.replace(arg=(number, arena.arg[1]))


class _Arguments(dict[UOp, UOp]):
  """What stands in a schedule for each argument of its template. No closures that know each other: such a cycle would
  keep the buffers until the garbage collector runs."""

  def __init__(self, given: Given) -> None:
    super().__init__()
    self.given = given
    self.taken = {b.arg[0] for b in given.buffers}

  def __missing__(self, argument: UOp) -> UOp:
    found = self[argument] = self._make(argument)
    return found

  def _make(self, argument: UOp) -> UOp:
    if argument.op is Ops.BUFFER_VIEW:
      return argument.with_src((self[argument.src[0]],))
    if argument.op is Ops.VARIABLE:
      return bound(argument, self.given)
    if is_slot(argument):
      return self.given.buffers[slot_of(argument)]
    return _new_arena(argument, self.taken) if is_arena(argument) else argument


def instantiate(template: UOp, given: Given) -> UOp:
  """The schedule over the buffers and values of a graph, with new arenas."""
  real = _Arguments(given)
  calls = [call.with_src((call.src[0], *[real[argument] for argument in call.src[1:]])) for call in template.src]
  return template.with_src(tuple(calls))


def bound(variable: UOp, given: Given) -> UOp:
  """The BIND of a VARIABLE of a normalised graph. Raises ValueError where it has none."""
  if variable not in given.binds:
    name = variable.arg[0]
    raise ValueError(f"variable {name!r} has no value: bind it with .bind(value) before the graph is scheduled")
  return given.binds[variable]
