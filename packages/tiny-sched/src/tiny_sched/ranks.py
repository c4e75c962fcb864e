"""Values on devices of several processes (ranks): what each rank has to send and receive, as CALLs of COLLECTIVEs.

Every rank has the same graph but for its own pieces, and so makes the same collectives in the same order: the graph is
cut into levels by how many of them lie below, and those of a kind and level go together in buckets, in the order in
which they are ready. Sums are made by kernels, of partial results in the order of the ranks: every rank has the same
bits, and always the same. Large ones are scattered first, each rank adds its part, and the parts are gathered: each
rank sends 2·(n−1)/n of the bytes (Rabenseifner, "Optimization of collective reduction operations", 2004).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tiny_sched.index import known
from tiny_sched.regions import Region, joined
from tiny_uop import (
  Collective,
  DType,
  KernelInfo,
  Ops,
  Sharding,
  UOp,
  collective_of,
  dtypes,
  even_bounds,
  prod,
  sint,
  value_nodes,
)
from tiny_uop.context import ContextVar
from tiny_uop.graph import chain
from tiny_uop.locks import shared_lock

BUCKET_BYTES = ContextVar(
  "BUCKET_BYTES",
  26214400,
  "bytes of gradients, and of other sums over ranks, that travel together at most, where ranks are several processes",
)
DIRECTLY = 1 << 16
"""Bytes up to which every rank gets the partial results of all others and adds them itself."""
_GRAPHS = 64


# *** pieces on ranks ***


def for_ranks(x: UOp, regions: Sequence[Region]) -> UOp:
  """The part of a value on several ranks that this rank needs. `regions[i]` is what the rank at position i takes; all
  ranks call it with the same."""
  s = x.sharding
  assert s is not None
  (me,) = s.here
  if s.axis is None:
    return x.src[0].shrink(regions[me])
  sizes = [_numbers(r) for r in regions]
  if all(r == sizes[0] for r in sizes):
    return _gathered(x, s, s.axis, sizes[0], me)
  return _exchanged(x, s, s.axis, sizes, me)


Numbers = list[tuple[int, int]]


def _numbers(region: Region) -> Numbers:
  found = [(known(a), known(b)) for a, b in region]
  if any(a is None or b is None for a, b in found):
    raise ValueError(f"a part of symbolic size {list(region)} cannot move between ranks: give it a size in numbers")
  return [(a, b) for a, b in found if a is not None and b is not None]


def _overlap(s: Sharding, axis: int, region: Numbers, position: int) -> Numbers:
  """What the rank at a position has of a region; in the coordinates of its piece."""
  begin, end = s.bounds[position : position + 2]
  start, stop = region[axis]
  low, high = max(start, begin), min(stop, end)
  return [(low - begin, max(low, high) - begin) if i == axis else r for i, r in enumerate(region)]


def _elements(region: Numbers) -> int:
  return prod(b - a for a, b in region)  # type: ignore[return-value]  # numbers have a number as product


def _part(piece: UOp, region: Numbers) -> UOp:
  """A part of a piece as one row; of one that has no elements, something that is not sent."""
  if not _elements(region):
    return piece.shrink([(0, 1)] * len(piece.shape)).reshape((1,))
  return piece.shrink(region).reshape((_elements(region),))


def _gathered(x: UOp, s: Sharding, axis: int, region: Numbers, me: int) -> UOp:
  """All ranks get the same part: each sends what it has of it to all."""
  overlaps = [_overlap(s, axis, region, i) for i in range(len(s.devices))]
  counts = tuple([_elements(o) for o in overlaps])
  arg = Collective("all_gather", s.ranks, (counts,), (counts,), me)
  flat = carried_out(arg, [_part(x.src[0], overlaps[me])], [sum(counts)], s.homes[0])[0]
  return _side_by_side(flat, [o[axis][1] - o[axis][0] for o in overlaps], region, axis)


def _exchanged(x: UOp, s: Sharding, axis: int, regions: Sequence[Numbers], me: int) -> UOp:
  """Each rank gets another part."""
  to = [_overlap(s, axis, region, me) for region in regions]
  of = [_overlap(s, axis, regions[me], i) for i in range(len(s.devices))]
  sent, received = tuple([_elements(o) for o in to]), tuple([_elements(o) for o in of])
  parts = [_part(x.src[0], o) for o, n in zip(to, sent) if n]
  row = joined(parts, 0) if len(parts) > 1 else parts[0] if parts else _part(x.src[0], [(0, 0)])
  total = sum(received)
  arg = Collective("all_to_all", s.ranks, (sent,), (received,), me)
  flat = carried_out(arg, [row], [max(total, 1)], s.homes[0])[0]
  if not total:  # it takes part for the others
    return flat.shrink([(0, 0)]).reshape([b - a for a, b in regions[me]])
  return _side_by_side(flat, [o[axis][1] - o[axis][0] for o in of], regions[me], axis)


def _side_by_side(flat: UOp, lengths: Sequence[int], region: Numbers, axis: int) -> UOp:
  """Parts that came one after the other, each a row, put together along an axis."""
  shape = [b - a for a, b in region]
  before, after = shape[:axis], shape[axis + 1 :]
  used = [n for n in lengths if n]
  if prod(before) == 1 or len(used) == 1:
    return flat.reshape(shape)
  if len(set(used)) == 1:
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
    return flat.reshape((len(used), *before, used[0], *after)).permute(order).reshape(shape)
  parts, end = [], 0
  for n in used:
    own = [*before, n, *after]
    size = int(prod(own))
    parts.append(flat.shrink([(end, end + size)]).reshape(own))
    end += size
  return joined(parts, axis)


# *** sums ***


def summed(op: Ops, partial: UOp, s: Sharding) -> UOp:
  """The partial results of all ranks combined, on each of them."""
  size = _size(partial)
  arg = Collective("all_reduce", s.ranks, position=s.here[0], op=op)
  return carried_out(arg, [partial.reshape((size,))], [size], s.homes[0])[0].reshape(partial.shape)


def scattered(x: UOp, s: Sharding) -> UOp | None:
  """The piece that this rank has, as `s` says, of a value that is computed from one sum over all ranks and is on each
  of them: of a gradient whose state is in pieces. The sum is made where its terms are needed, then. None where it would
  have to be whole all the same.
  """
  (me,) = s.here
  if s.axis is None or not all(isinstance(n, int) for n in x.shape):
    return None
  if (call := _sum_under(x)) is not None:
    body = call.src[0].src[0]
    order = (s.axis, *[i for i in range(len(x.shape)) if i != s.axis])
    first = x.substitute({call: call.src[2]}).permute(order)
    inner = _size(first) // int(x.shape[s.axis])
    counts = tuple([(b - a) * inner for a, b in zip(s.bounds, s.bounds[1:])])
    arg = replace(body.arg, kind="reduce_scatter", sent=(counts,), received=((counts[me],) * len(counts),))
    flat = carried_out(arg, [first.reshape((_size(first),))], [counts[me]], s.homes[0])[0]
    back = tuple([order.index(i) for i in range(len(order))])
    return flat.reshape((s.bounds[me + 1] - s.bounds[me], *first.shape[1:])).permute(back)
  if x.op in _ELEMENT_BY_ELEMENT and x.shape:
    sources = []
    for source in x.src:
      piece = source if not source.shape else scattered(source, s)
      sources.append(piece if piece is not None else source.shrink(s.region(me, x.shape)))
    return x.with_src(tuple(sources)) if _sums_below(x) else None
  return None


_ELEMENT_BY_ELEMENT = frozenset({Ops.ADD, Ops.MUL, Ops.CAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.FDIV, Ops.NEG})


def _sum_under(x: UOp) -> UOp | None:
  """The sum over all ranks that a value is, in another order of the same elements; None if it is none."""
  while x.op in (Ops.RESHAPE, Ops.PERMUTE):
    x = x.src[0]
  body = collective_of(x.src[0]) if x.op is Ops.CALL else None
  return x if body is not None and body.arg.kind == "all_reduce" else None


def _sums_below(x: UOp) -> bool:
  """Whether a few operations of one value each lie between it and a sum."""
  return any(_sum_under(s) is not None or (s.op in _ELEMENT_BY_ELEMENT and _sums_below(s)) for s in x.src)


# *** all collectives of a graph ***


def collectives_in_order(sink: UOp, graph: str) -> UOp:
  """The graph with its collectives in buckets, made of those that only move bytes, numbered; all of them are roots.

  A rank carries out all of them, whether it needs their results or not: others do.
  """
  nodes = value_nodes(sink)
  levels: dict[UOp, int] = {}
  depths: dict[UOp, int] = {}
  found: dict[int, dict[tuple[object, ...], list[UOp]]] = {}
  for u in nodes:
    level = max([levels[s] for s in u.src if s in levels], default=0)
    depths[u] = max([depths[s] for s in u.src if s in depths], default=0) + (u.op is Ops.REDUCE)
    if u.op is Ops.CALL and (body := collective_of(u.src[0])) is not None:
      level += 1
      key = (body.arg.kind, body.arg.op, body.arg.ranks, u.src[1])
      found.setdefault(level, {}).setdefault(key, []).append(u)
    levels[u] = level
  if not found:
    return sink
  made = _Made(graph)
  for level in sorted(found):
    for same in found[level].values():
      # What is ready first travels first: of gradients, those of the last layer. All ranks have the same reductions
      # below a value, whatever each has to do to its own pieces.
      for bucket in _buckets(sorted(same, key=depths.__getitem__)):
        made.add(bucket)
  return made.rebuilt(sink).with_src((*made.rebuilt(sink).src, *made.calls))


def _buckets(calls: Iterable[UOp]) -> list[list[UOp]]:
  """Calls in order, in groups of as many bytes as travel together."""
  groups: list[list[UOp]] = [[]]
  total = 0
  for call in calls:
    nbytes = _size(call.src[2]) * call.dtype.itemsize
    if groups[-1] and total + nbytes > BUCKET_BYTES.value:
      groups.append([])
      total = 0
    groups[-1].append(call)
    total += nbytes
  return groups


class _Made:
  """What the collectives of a graph have become."""

  def __init__(self, graph: str) -> None:
    self.graph = graph
    self.calls: list[UOp] = []
    """One CALL of each, in order."""
    self._done: dict[UOp, UOp] = {}

  def rebuilt(self, root: UOp) -> UOp:
    """A node over what its collectives have become."""
    done = self._done
    if root not in done:
      for u in root.walk(lambda n: n not in done):
        if u not in done:
          done[u] = u.with_src(tuple([done.get(s, s) for s in u.src]))
    return done[root]

  def add(self, bucket: Sequence[UOp]) -> None:
    """Carries out some that go together."""
    device, arg = str(bucket[0].src[1].arg), bucket[0].src[0].src[0].arg
    inputs = [self.rebuilt(call.src[2]) for call in bucket]
    args = [call.src[0].src[0].arg for call in bucket]
    if arg.kind == "reduce_scatter":
      results = self._added(args[0], inputs, [a.sent[0] for a in args], device)
    elif arg.kind == "all_reduce":
      results = self._all_added(arg, inputs, device)
    else:
      sent, received = tuple([a.sent[0] for a in args]), tuple([a.received[0] for a in args])
      sizes = [max(1, sum(r)) for r in received]
      results = self._move(replace(arg, sent=sent, received=received), inputs, sizes, device)
    self._done |= dict(zip(bucket, results, strict=True))

  def _move(self, arg: Collective, inputs: Sequence[UOp], sizes: Sequence[int], device: str) -> list[UOp]:
    results = carried_out(replace(arg, number=len(self.calls), graph=self.graph), inputs, sizes, device)
    self.calls.append(results[0])
    return results

  def _all_added(self, arg: Collective, inputs: Sequence[UOp], device: str) -> list[UOp]:
    count, op = len(arg.ranks), _op_of(arg)
    small = [n for n, x in enumerate(inputs) if _size(x) < count or _size(x) * x.dtype.itemsize * count <= DIRECTLY]
    large = [n for n in range(len(inputs)) if n not in set(small)]
    results: dict[int, UOp] = {}
    if small:
      counts = tuple([(_size(inputs[n]),) * count for n in small])
      all_of = replace(arg, kind="all_gather", op=None, sent=counts, received=counts)
      sizes = [sum(c) for c in counts]
      partials = self._move(all_of, [inputs[n] for n in small], sizes, device)
      results |= {n: _as(p.dtype, _sum_of_rows(op, p, count)) for n, p in zip(small, partials)}
    if large:
      chunks = [_chunks(_size(inputs[n]), count) for n in large]
      own = self._added(arg, [inputs[n] for n in large], chunks, device)
      all_of = replace(arg, kind="all_gather", op=None, sent=tuple(chunks), received=tuple(chunks))
      whole = self._move(all_of, own, [sum(c) for c in chunks], device)
      results |= dict(zip(large, whole))
    return [results[n] for n in range(len(inputs))]

  def _added(
    self, arg: Collective, inputs: Sequence[UOp], chunks: Sequence[tuple[int, ...]], device: str
  ) -> list[UOp]:  # fmt: skip
    """Of each input the chunk of this rank, added over all ranks. Its own term is in its place already."""
    mine, count, op = arg.position, len(arg.ranks), _op_of(arg)
    received = tuple([tuple([0 if p == mine else c[mine] for p in range(count)]) for c in chunks])
    sizes = [(count - 1) * c[mine] for c in chunks]
    moved = replace(arg, kind="all_to_all", op=None, sent=tuple(chunks), received=received)
    found = []
    for others, own, c in zip(self._move(moved, inputs, sizes, device), inputs, chunks, strict=True):
      start = sum(c[:mine])
      parts = [others.shrink([(0, mine * c[mine])]), own.shrink([(start, start + c[mine])])]
      parts.append(others.shrink([(mine * c[mine], (count - 1) * c[mine])]))
      sums = [_sum_of_rows(op, p, _size(p) // c[mine]) for p in parts if _size(p)]
      found.append(_as(own.dtype, chain(op, sums)))
    return found


def _op_of(arg: Collective) -> Ops:
  assert arg.op is not None, f"{arg.kind} combines"
  return arg.op


def _chunks(size: int, count: int) -> tuple[int, ...]:
  bounds = even_bounds(size, count)
  return tuple([b - a for a, b in zip(bounds, bounds[1:])])


def _sum_of_rows(op: Ops, flat: UOp, count: int) -> UOp:
  """What ranks have, one after the other, combined in this order; sums of halves in float32."""
  size = _size(flat) // count
  rows = flat.reshape((count, size))
  wide = rows.cast(_wide(flat.dtype)) if _wide(flat.dtype) is not flat.dtype else rows
  return wide.reduce_axes(op, (0,)).reshape((size,))


def _as(dtype: DType, x: UOp) -> UOp:
  return x if x.dtype is dtype else x.cast(dtype)


def _wide(dtype: DType) -> DType:
  return dtypes.float32 if dtype.kind == "float" and dtype.itemsize < 4 else dtype


def _size(x: UOp) -> int:
  size: sint = prod(x.shape)
  if not isinstance(size, int):
    raise ValueError(f"{x!r} of shape {x.shape} cannot be added over ranks: its size is symbolic")
  return size


def carried_out(arg: Collective, inputs: Sequence[UOp], sizes: Sequence[int], device: str) -> list[UOp]:
  """The results of a collective, each a row of `sizes` elements: of one array for each of the inputs. Ranks that take
  part in one without a graph on all of them give it a digest of their own, by `noted`."""
  written = [UOp.param(n, x.dtype.ptr(size)) for n, (x, size) in enumerate(zip(inputs, sizes, strict=True))]
  read = [UOp.param(n, x.dtype.ptr(_size(x))) for n, x in enumerate(inputs, len(inputs))]
  kernel = UOp.sink(UOp(Ops.COLLECTIVE, dtypes.void, (*written, *read), arg), arg=KernelInfo(arg.kind))
  place = UOp(Ops.DEVICE, arg=device)
  return [UOp(Ops.CALL, x.dtype, (kernel, place, *inputs), n) for n, x in enumerate(inputs)]


# *** what ranks compare ***

_graphs: OrderedDict[str, tuple[str, ...]] = OrderedDict()
_lock = shared_lock()


def graph_lines(digest: str) -> tuple[str, ...]:
  """The nodes of a graph that was scheduled, by its digest, one a line; nothing if that is long ago."""
  return _graphs.get(digest, ())


def _spans(root: UOp) -> bool:
  """Whether a STORE, or an AFTER, is to memory on several ranks."""
  device = root.device if root.op is not Ops.STORE else root.src[0].device
  return isinstance(device, tuple) and "@" in device[0]


def _has_pieces(u: UOp) -> bool:
  return u.op is Ops.MULTI and isinstance(u.arg, Sharding)


_NOT_COMPARED = frozenset({Ops.CUSTOM_GRADIENT, Ops.BIND})
"""Their numbers are of one process, and their values of one call."""


def digest_of(sink: UOp) -> str:
  """A digest of what the ranks' graphs have to agree in: the part that is on several ranks, without what each has of
  it."""
  nodes = value_nodes(UOp.sink(*[r for r in sink.src if _spans(r)]))
  compared = {nodes[-1]}
  for u in reversed(nodes):
    if u in compared and not _has_pieces(u):
      compared.update(u.src[:1] if u.op in _NOT_COMPARED else u.src)
  lines: list[str] = []
  places: dict[UOp, int] = {}
  for u in [u for u in nodes if u in compared]:
    if u.op in _NOT_COMPARED:
      places[u] = places[u.src[0]]
      continue
    if _has_pieces(u):
      text = f"{u.shape}, {'whole' if u.arg.axis is None else f'in pieces of axis {u.arg.axis} at {u.arg.bounds}'}, "
      text += f"on {' '.join(u.arg.devices)}"
    else:
      arg = u.arg[1] if u.op is Ops.BUFFER else u.arg
      sources = " ".join([f"%{places[s]}" for s in u.src if s in places])
      text = f"({sources})" + ("" if arg is None else f" {arg}")
    places[u] = len(lines)
    lines.append(f"{u.op.name} {u.dtype.name} {text}".replace("@=", "@"))
  return noted(lines)


def noted(lines: Sequence[str]) -> str:
  """A digest of lines, which `graph_lines` gives back."""
  digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
  with _lock:
    _graphs[digest] = tuple(lines)
    while len(_graphs) > _GRAPHS:
      _graphs.popitem(last=False)
  return digest
