"""Values on devices of several processes (ranks): what each rank has to send and receive, as CALLs of COLLECTIVEs.

Every rank has the same graph but for its own pieces, and so makes the same collectives in the same order: the graph is
cut into levels by how many of them lie below, and those of a kind and level go together in buckets, in the order in
which they are ready. Sums are made by kernels, of partial results in the order of the ranks: every rank has the same
bits, and always the same. Large ones are scattered first, each rank adds its part, and the parts are gathered: each
rank sends 2·(n−1)/n of the bytes (Rabenseifner, "Optimization of collective reduction operations", 2004).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from tiny_sched.devices.regions import Region, joined, put_together, sent
from tiny_sched.index import known
from tiny_uop import (
  Collective,
  DType,
  KernelInfo,
  Ops,
  Shape,
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
from tiny_uop.system import sha256

BUCKET_BYTES = ContextVar(
  "BUCKET_BYTES",
  26214400,
  "bytes of gradients, and of other sums over ranks, that travel together at most, where ranks are several processes",
)
DIRECTLY = 1 << 16
"""Bytes up to which every rank gets the partial results of all others and adds them itself."""
_GRAPHS = 64


# *** pieces on ranks ***


def for_ranks(x: UOp, regions: Sequence[Region]) -> list[UOp]:
  """The parts of a value on several ranks that the devices of this process need. `regions[i]` is what the device of
  number i takes; all ranks call it with the same.

  What a device has is not sent to it. Along axes of the grid where each has what it takes, nothing is: the devices of a
  row along the others exchange what they have, while those of other rows do the same.
  """
  s = x.sharding
  assert s is not None
  moved = [cut for cut in s.cuts if any(not _has(s.span(cut, i), r[cut.axis]) for i, r in enumerate(regions))]
  if not moved:
    return [piece.shrink(_inside(s, i, regions[i])) for i, piece in zip(s.here, x.src, strict=True)]
  numbers = [_numbers(r) for r in regions]
  along = [a for cut in moved for a in cut.along]
  rows = s.rows(along)
  move = _Move(x, s, numbers, all(numbers[j] == numbers[row[0]] for row in rows for j in row))
  ranks, here = s.ranks, set(s.here)
  within = all(len({ranks[j] for j in row}) == 1 for row in rows)
  made: dict[int, UOp] = {}
  for row in rows:
    if here & set(row):
      made |= move.within(row) if within else move.across(row, len(moved) == 1)
  return [made[i] for i in s.here]


def _has(span: tuple[int, int], wanted: tuple[sint, sint]) -> bool:
  start, stop = wanted
  return isinstance(start, int) and isinstance(stop, int) and (start >= stop or span[0] <= start <= stop <= span[1])


def _inside(s: Sharding, device: int, region: Region) -> list[tuple[sint, sint]]:
  """A region that a device has, in the coordinates of its piece."""
  found = list(region)
  for cut in s.cuts:
    (start, stop), first = found[cut.axis], s.span(cut, device)[0]
    found[cut.axis] = (start - first, stop - first) if _has(s.span(cut, device), (start, stop)) else (0, 0)
  return found


Numbers = list[tuple[int, int]]


def _numbers(region: Region) -> Numbers:
  found = [(known(a), known(b)) for a, b in region]
  if any(a is None or b is None for a, b in found):
    raise ValueError(f"a part of symbolic size {list(region)} cannot move between ranks: give it a size in numbers")
  return [(a, b) for a, b in found if a is not None and b is not None]


def _elements(region: Numbers) -> int:
  return prod(b - a for a, b in region)  # type: ignore[return-value]  # numbers have a number as product


def _sizes(region: Numbers) -> tuple[int, ...]:
  return tuple([b - a for a, b in region])


class _Move:
  """What moves between the devices that a value is on: `regions[i]` of it to the device of number i."""

  def __init__(self, x: UOp, s: Sharding, regions: Sequence[Numbers], same: bool) -> None:
    self._s, self._regions, self._same = s, regions, same
    self._pieces, self._homes = dict(zip(s.here, x.src)), dict(zip(s.here, s.homes))
    self._ranks = s.ranks
    sizes = [_elements(_numbers(s.region(i, x.shape))) for i in range(len(s.devices))]
    self._extent = min(sizes), max(sizes)
    words = f"{s} {regions}".replace("@=", "@")
    self._token = sha256(words.encode()).hexdigest()[:16]

  def within(self, row: Sequence[int]) -> dict[int, UOp]:
    """What the devices of a row get, all of which are of this process: by copies."""
    return {i: self._copied(row, i) for i in row}

  def _copied(self, row: Sequence[int], i: int) -> UOp:
    region = self._regions[i]
    if 0 in _sizes(region):
      return self._pieces[i].shrink([(0, 0)] * len(region)).reshape(_sizes(region))
    homes = self._homes
    return put_together(
      self._s, row, region, lambda j, own: sent(self._pieces[j], own, homes[j], homes[i])
    )  # fmt: skip

  def across(self, row: Sequence[int], one_axis: bool) -> dict[int, UOp]:
    """What those of this process in a row get, by a collective of the ranks in it: the first of them for the others."""
    members: dict[int, list[int]] = {}
    for j in row:
      members.setdefault(self._ranks[j], []).append(j)
    ranks, mine = tuple(members), [j for j in row if j in self._homes]
    me, home = ranks.index(self._ranks[mine[0]]), self._homes[mine[0]]
    takers = {rank: members[rank][:1] if self._same else members[rank] for rank in ranks}
    here = [(j, i) for j in mine for i in takers[ranks[me]]]
    if self._same:
      parts = here
      counts = tuple([sum(self._count(j, row[0]) for j in members[rank]) for rank in ranks])
      alone = sum(n > 0 for n in counts) == 1
      arg = Collective("broadcast" if alone else "all_gather", ranks, (counts,), (counts,), me)
    else:
      parts = [(j, i) for rank in ranks for i in takers[rank] for j in mine]
      to = tuple([sum(self._count(j, i) for i in takers[rank] for j in mine) for rank in ranks])
      of = tuple([sum(self._count(j, i) for i in takers[ranks[me]] for j in members[rank]) for rank in ranks])
      arg = Collective("all_to_all", ranks, (to,), (of,), me)
    arrived = [(j, i) for rank in ranks for i in takers[ranks[me]] for j in members[rank]]
    given = [self._part(j, i, home) for j, i in parts if self._count(j, i)]
    data = joined(given, 0) if given else self._pieces[mine[0]].shrink([(0, 1)] * len(self._regions[0])).reshape((1,))
    total = sum(self._count(j, i) for j, i in arrived)
    arg = replace(arg, graph=self._token, extent=self._extent)
    (flat,) = carried_out(arg, [data], [max(1, total)], home)
    ends = list(accumulate([self._count(j, i) for j, i in arrived], initial=0))
    places = {pair: (start, end) for pair, start, end in zip(arrived, ends, ends[1:])}
    made: dict[int, UOp] = {}
    for i in takers[ranks[me]]:
      got = self._assembled(flat, row, i, places, one_axis and len(mine) == 1)
      made |= {j: got if self._homes[j] == home else got.copy_to(self._homes[j]) for j in (mine if self._same else [i])}
    return made

  def _overlap(self, j: int, i: int) -> Numbers:
    """What device j has of what device i takes; in the coordinates of its piece."""
    found = list(self._regions[i])
    for cut in self._s.cuts:
      (begin, end), (start, stop) = self._s.span(cut, j), found[cut.axis]
      low, high = max(start, begin), min(stop, end)
      found[cut.axis] = (low - begin, max(low, high) - begin)
    return found

  def _count(self, j: int, i: int) -> int:
    return _elements(self._overlap(j, i))

  def _part(self, j: int, i: int, home: str) -> UOp:
    """That part on a device of this process, as one row."""
    own = self._overlap(j, i)
    return sent(self._pieces[j], own, self._homes[j], home).reshape((_elements(own),))

  def _assembled(
    self, flat: UOp, row: Sequence[int], i: int, places: Mapping[tuple[int, int], tuple[int, int]], one_axis: bool
  ) -> UOp:  # fmt: skip
    """What device i takes, of the rows that have come."""
    region = self._regions[i]
    if 0 in _sizes(region):  # it takes part for the others
      return flat.shrink([(0, 0)]).reshape(_sizes(region))
    if one_axis:
      axis = next(c.axis for c in self._s.cuts if any(self._s.place(c, j) != self._s.place(c, row[0]) for j in row))
      return _side_by_side(flat, [_sizes(self._overlap(j, i))[axis] for j in row], region, axis)
    return put_together(
      self._s, row, region, lambda j, own: flat.shrink([places[j, i]]).reshape(_sizes(_numbers(own)))
    )  # fmt: skip


def _side_by_side(flat: UOp, lengths: Sequence[int], region: Numbers, axis: int) -> UOp:
  """Parts that came one after the other, each a row, put together along an axis."""
  shape = list(_sizes(region))
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


def summed(
  op: Ops, partials: Sequence[UOp], s: Sharding, along: Sequence[int], after: Sharding, shape: Shape
) -> list[UOp]:  # fmt: skip
  """The partial results of all devices of each row along axes of the grid combined, on each of those of this process:
  first of those of a rank, then of the ranks. The result lies as `after` says, and has a shape."""
  sizes = [_elements(_numbers(after.region(i, shape))) for i in range(len(s.devices))]
  terms, homes, made = dict(zip(s.here, partials)), dict(zip(s.here, s.homes)), dict[int, UOp]()
  numbers = s.ranks
  for row in s.rows(along):
    mine, ranks = [j for j in row if j in terms], tuple(dict.fromkeys([numbers[j] for j in row]))
    if not mine:
      continue
    home, me = homes[mine[0]], ranks.index(numbers[mine[0]])
    total = chain(op, [terms[j] if homes[j] == home else terms[j].copy_to(home) for j in mine])
    if len(ranks) > 1:
      arg = Collective("all_reduce", ranks, position=me, op=op, extent=(min(sizes), max(sizes)))
      size = _size(total)
      total = carried_out(arg, [total.reshape((size,))], [size], home)[0].reshape(total.shape)
    made |= {j: total if homes[j] == home else total.copy_to(homes[j]) for j in mine}
  return [made[i] for i in s.here]


def scattered(x: UOp, s: Sharding) -> list[UOp] | None:
  """The pieces that this process has, as `s` says, of a value that lies so but for one axis, and is computed from a sum
  over the ranks that have the pieces of that: of a gradient whose state is in pieces. The sum is made where its terms
  are needed, then. None where it would have to be whole all the same.
  """
  before = x.sharding
  before = None if before is None else before.in_grid(s.grid)
  if before is None or not all(isinstance(n, int) for n in x.shape):
    return None
  more = [cut for cut in s.cuts if cut not in before.cuts]
  if len(more) != 1 or len(before.cuts) + 1 != len(s.cuts):
    return None
  found, ranks = [], s.ranks
  for i, piece in zip(s.here, x.src, strict=True):
    row = s.row(i, more[0].along)
    alone = len({ranks[j] for j in row}) == len(row)
    one_axis = Sharding.of(tuple([s.devices[j] for j in row]), more[0].axis, more[0].bounds)
    if not alone or (own := _scattered(piece, one_axis)) is None:
      return None
    found.append(own)
  return found


def _scattered(x: UOp, s: Sharding) -> UOp | None:
  """The piece that this rank has, of a value that each rank of a row has."""
  (me,) = s.here
  assert s.axis is not None
  if (call := _sum_under(x)) is not None:
    body = call.src[0].src[0]
    if body.arg.ranks != s.ranks:
      return None
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
      piece = source if not source.shape else _scattered(source, s)
      sources.append(piece if piece is not None else source.shrink(s.region(me, x.shape)))
    return x.with_src(tuple(sources)) if _sums_below(x, s.ranks) else None
  return None


_ELEMENT_BY_ELEMENT = frozenset({Ops.ADD, Ops.MUL, Ops.CAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.FDIV, Ops.NEG})


def _sum_under(x: UOp) -> UOp | None:
  """The sum over all ranks that a value is, in another order of the same elements; None if it is none."""
  while x.op in (Ops.RESHAPE, Ops.PERMUTE):
    x = x.src[0]
  body = collective_of(x.src[0]) if x.op is Ops.CALL else None
  return x if body is not None and body.arg.kind == "all_reduce" else None


def _sums_below(x: UOp, ranks: tuple[int, ...]) -> bool:
  """Whether a few operations of one value each lie between it and a sum over these ranks."""
  for s in x.src:
    call = _sum_under(s)
    if (
      call.src[0].src[0].arg.ranks == ranks
      if call is not None
      else s.op in _ELEMENT_BY_ELEMENT and _sums_below(s, ranks)
    ):
      return True
  return False


# *** all collectives of a graph ***


def collectives_in_order(sink: UOp, graph: str, among: tuple[int, ...]) -> UOp:
  """The graph with its collectives in buckets, made of those that only move bytes, numbered; all of them are roots.
  `graph` is its digest, and `among` are the ranks that have it.

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
      first = [n > 0 for n in body.arg.sent[0]] if body.arg.kind == "broadcast" else None  # who has it
      key = (body.arg.kind, body.arg.op, body.arg.ranks, u.src[1], first and tuple(first))
      found.setdefault(level, {}).setdefault(key, []).append(u)
    levels[u] = level
  if not found:
    return sink
  made = _Made(graph, among)
  for level in sorted(found):
    begun: list[Callable[[], None]] = []
    for same in found[level].values():
      # What is ready first travels first: of gradients, those of the last layer. All ranks have the same reductions
      # below a value, whatever each has to do to its own pieces.
      # The parts of large sums are gathered after the next such bucket has been sent: what has to arrive first does so
      # while the values of that bucket are computed.
      for bucket in _buckets(sorted(same, key=depths.__getitem__)):
        if (end := made.add(bucket)) is not None:
          begun.append(end)
          if len(begun) > 1:
            begun.pop(0)()
    for end in begun:
      end()
  return made.rebuilt(sink).with_src((*made.rebuilt(sink).src, *made.calls))


def _buckets(calls: Iterable[UOp]) -> list[list[UOp]]:
  """Calls in order, in groups of as many bytes as travel together."""
  groups: list[list[UOp]] = [[]]
  total = 0
  for call in calls:
    nbytes = call.src[0].src[0].arg.extent[1] * call.dtype.itemsize
    if groups[-1] and total + nbytes > BUCKET_BYTES.value:
      groups.append([])
      total = 0
    groups[-1].append(call)
    total += nbytes
  return groups


class _Made:
  """What the collectives of a graph have become."""

  def __init__(self, graph: str, among: tuple[int, ...]) -> None:
    self.graph, self.among = graph, among
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

  def add(self, bucket: Sequence[UOp]) -> Callable[[], None] | None:
    """Begins some that go together. Gives what ends them, if that is not now."""
    device, arg = str(bucket[0].src[1].arg), bucket[0].src[0].src[0].arg
    inputs = [self.rebuilt(call.src[2]) for call in bucket]
    args = [call.src[0].src[0].arg for call in bucket]
    if arg.kind == "all_reduce":
      end, waits = self._all_added(args, inputs, device)

      def ended() -> None:
        self._done.update(zip(bucket, end(), strict=True))

      if waits:
        return ended
      ended()
      return None
    if arg.kind == "reduce_scatter":
      results = self._added(args[0], inputs, [a.sent[0] for a in args], device)
    else:
      sent, received = tuple([a.sent[0] for a in args]), tuple([a.received[0] for a in args])
      sizes = [max(1, sum(r)) for r in received]
      results = self._move(replace(arg, sent=sent, received=received), inputs, sizes, device)
    self._done |= dict(zip(bucket, results, strict=True))
    return None

  def _move(self, arg: Collective, inputs: Sequence[UOp], sizes: Sequence[int], device: str) -> list[UOp]:
    arg = replace(arg, number=len(self.calls), graph=self.graph, among=self.among, extent=(0, 0))
    results = carried_out(arg, inputs, sizes, device)
    self.calls.append(results[0])
    return results

  def _all_added(
    self, args: Sequence[Collective], inputs: Sequence[UOp], device: str
  ) -> tuple[Callable[[], list[UOp]], bool]:  # fmt: skip
    """What gives the results, and whether it has still to gather parts of large sums."""
    arg, count, op = args[0], len(args[0].ranks), _op_of(args[0])
    sizes = [(least, most * x.dtype.itemsize * count) for (least, most), x in zip([a.extent for a in args], inputs)]
    small = [n for n, (least, nbytes) in enumerate(sizes) if least < count or nbytes <= DIRECTLY]
    large = [n for n in range(len(inputs)) if n not in set(small)]
    results: dict[int, UOp] = {}
    if small:
      counts = tuple([(_size(inputs[n]),) * count for n in small])
      all_of = replace(arg, kind="all_gather", op=None, sent=counts, received=counts)
      partials = self._move(all_of, [inputs[n] for n in small], [sum(c) for c in counts], device)
      results |= {n: _as(p.dtype, _sum_of_rows(op, p, count)) for n, p in zip(small, partials)}
    chunks = [_chunks(_size(inputs[n]), count) for n in large]
    own = self._added(arg, [inputs[n] for n in large], chunks, device) if large else []

    def end() -> list[UOp]:
      if large:
        all_of = replace(arg, kind="all_gather", op=None, sent=tuple(chunks), received=tuple(chunks))
        results.update(zip(large, self._move(all_of, own, [sum(c) for c in chunks], device)))
      return [results[n] for n in range(len(inputs))]

    return end, bool(large)

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


def ranks_of(sink: UOp) -> tuple[int, ...]:
  """The ranks that have the part of a graph that is on several."""
  found: set[int] = set()
  for u in value_nodes(UOp.sink(*[r for r in sink.src if _spans(r)])):
    if isinstance(u.device, tuple) and "@" in u.device[0]:
      found.update(Sharding(u.device).ranks)
  return tuple(sorted(found))


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
      pieces = [f"axis {cut.axis} at {cut.bounds} along {cut.along} of {u.arg.grid}" for cut in u.arg.cuts]
      text = f"{u.shape}, {', '.join(pieces) or 'whole'}, on {' '.join(u.arg.devices)}"
    else:
      arg = u.arg[1] if u.op is Ops.BUFFER else u.arg
      sources = " ".join([f"%{places[s]}" for s in u.src if s in places])
      text = f"({sources})" + ("" if arg is None else f" {arg}")
    places[u] = len(lines)
    lines.append(f"{u.op.name} {u.dtype.name} {text}".replace("@=", "@"))
  return noted(lines)


def noted(lines: Sequence[str]) -> str:
  """A digest of lines, which `graph_lines` gives back."""
  digest = sha256("\n".join(lines).encode()).hexdigest()[:16]
  with _lock:
    _graphs[digest] = tuple(lines)
    while len(_graphs) > _GRAPHS:
      _graphs.popitem(last=False)
  return digest
