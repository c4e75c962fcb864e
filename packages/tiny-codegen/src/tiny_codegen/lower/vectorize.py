"""Pass: VECTOR loops become vectors.

The loop's counter becomes the constant vector (0, 1, …, n-1) and vector types propagate from it. A LOAD or STORE
whose lanes are adjacent becomes one wide access, one that is the same in all lanes stays scalar, any other becomes n
scalar accesses; of long vectors, a LOAD of every second element becomes two wide ones, which neighbouring taps of a
window share. A REDUCE over a VECTOR loop keeps n partial results side by side and combines them in a tree at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tiny_codegen.instructions.dot_product import PAIR, WORD
from tiny_codegen.kernel.columns import vector_of
from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.interleave import Neighbours
from tiny_codegen.kernel.loops import CLOSERS, extent, kind, substitute_each
from tiny_codegen.kernel.memory import gate_of
from tiny_uop import Accumulate, AxisType, GroupOp, Ops, UOp, dtypes, simplify
from tiny_uop.graph import chain, rebuild

WIDE = 8  # lanes from which on two vectors with every second element in them are better than as many elements
TURNED = (16, 8, 4)  # sizes of the squares that are transposed in registers


def vectorize(root: UOp) -> UOp:
  """The kernel without VECTOR loops."""
  root = _one_at_a_time(root)

  def change(u: UOp, new: UOp) -> UOp | None:
    lanes = [r for r in u.src[1:] if kind(r) is AxisType.VECTOR] if u.op in CLOSERS else []
    return _close(new, lanes[0]) if lanes else None

  return rebuild(root, change)


def _one_at_a_time(root: UOp) -> UOp:
  """A value has one vector axis: where VECTOR loops meet, all but one are unrolled instead."""
  while (two := _two_axes(root)) is not None:
    axis, closer = two
    unrolled = AxisType.UNROLL if closer is Ops.REDUCE else AxisType.UPCAST
    other = UOp.range(axis.src[0], axis.arg[0], unrolled)
    root = root.substitute({axis: other})
  return root


def _two_axes(root: UOp) -> tuple[UOp, Ops] | None:
  closed_by = {r: u.op for u in root.toposort if u.op in CLOSERS for r in u.src[1:]}
  for u in root.toposort:
    # what is closed may not depend on the loop, as a sum of equal terms
    loops = u.ranges.union(u.src[1:]) if u.op in CLOSERS else u.ranges
    axes = [r for r in loops if kind(r) is AxisType.VECTOR]
    if len(axes) > 1:
      # an output axis makes the better vector: it needs no combining at the end
      axes.sort(key=lambda r: (closed_by.get(r) is not Ops.REDUCE, -r.arg[0]))
      return axes[0], closed_by.get(axes[0], Ops.END)
  return None


def _close(closer: UOp, axis: UOp) -> UOp:
  if (transposed := _transposed(closer, axis)) is not None:
    return transposed
  count = int(axis.src[0].arg)
  others = tuple([r for r in closer.src[1:] if r is not axis])
  body = Lanes(axis, count).of(closer.src[0])
  if closer.op is Ops.END:
    return body.end(*others)
  op = closer.arg[0]
  partial = body if body.dtype.count == count else body.broadcast(count)
  return combine_lanes(partial.reduce(op, *others), op)


def _transposed(closer: UOp, axis: UOp) -> UOp | None:
  """A copy that writes along the lanes and reads along another loop, as blocks that are read in wide loads along that
  loop and transposed in registers: one load for each lane and none for each element."""
  if closer.op is not Ops.END or closer.src[0].op is not Ops.STORE or len(closer.src[0].src[0].src) > 2:
    return None
  if closer.src[0].arg is not None:
    return None
  place, value = closer.src[0].src
  count = int(axis.src[0].arg)
  loads = [u for u in value.toposort if u.op is Ops.LOAD]
  across = [stride(u.src[0].src[1], axis) for u in loads]
  if not loads or None in across or set(across) <= {0, 1} or stride(place.src[1], axis) != 1:
    return None
  if any(len(u.src[0].src) > 2 for u in loads) or any(u.op is Ops.REDUCE for u in value.toposort):
    return None
  for loop in closer.src[1:]:
    size = extent(loop)
    # a loop that is written out is one square, whose threads share the others
    divides = kind(loop) is AxisType.LOOP or (kind(loop) is AxisType.UPCAST and size == count and size in TURNED)
    if divides and size is not None and all(stride(u.src[0].src[1], loop) == 1 for u in loads):
      block = next((b for b in TURNED if size % b == 0 and count % b == 0), None)
      if block is not None:
        return _in_blocks(closer, axis, loop, block)
  return None


def _in_blocks(closer: UOp, axis: UOp, loop: UOp, block: int) -> UOp:
  place, value = closer.src[0].src
  pointer, offset = place.src
  along = UOp.range(block, loop.arg[0], AxisType.VECTOR)
  start, first = (_counter(int(r.src[0].arg) // block, r.arg[0]) for r in (loop, axis))
  places = [{axis: first * block + lane, loop: start * block + along} for lane in range(block)]
  rows = [Lanes(along, block).of(row) for row in substitute_each(value, places)]
  stores = []
  for step in range(block):
    at = simplify(offset.substitute({loop: start * block + step, axis: first * block}))
    stores.append(pointer.index(at).store(vector_of([row.extract(step) for row in rows])))
  loops = [start if r is loop else first if r is axis else r for r in closer.src[1:]]
  return UOp.group(*stores).end(*[r for r in loops if r.op is Ops.RANGE])


def _counter(count: int, number_of_loop: int) -> UOp:
  """A loop of so many iterations; 0 in place of one that has only one."""
  return UOp.range(count, number_of_loop, AxisType.LOOP) if count > 1 else number(0)


def combine_lanes(vector: UOp, op: Ops) -> UOp:
  """All lanes of a vector combined into one scalar, as a balanced tree."""
  count = vector.dtype.count
  while count > 1 and count % 2 == 0:
    count //= 2
    vector = vector.extract(*range(count)).alu(op, vector.extract(*range(count, 2 * count)))
  return chain(op, [vector.extract(lane) for lane in range(count)]) if count > 1 else vector


class Lanes:
  """Rewrites the values inside one VECTOR loop into vectors with a lane per iteration."""

  def __init__(self, axis: UOp, count: int, iterations: Sequence[int] = (), taps: Mapping[UOp, UOp] = {}) -> None:
    self.axis, self.count = axis, count
    lanes = tuple(iterations or range(count))
    """The iteration that each lane is for; of other loops in `taps`, vectors."""
    self.done: dict[UOp, UOp] = {axis: UOp.const(dtypes.index.vec(count), lanes), **taps}
    self.loops = frozenset((axis, *taps))

  def of(self, root: UOp) -> UOp:
    """A value or effect of the loop for all its iterations at once."""
    for u in root.walk(lambda u: not self.loops.isdisjoint(u.ranges)):
      if u not in self.done:
        self.done[u] = u if self.loops.isdisjoint(u.ranges) else self._node(u)
    return self.done[root]

  def _vector_of(self, u: UOp) -> UOp:
    self.of(u)
    return self._vector(u)

  def _vector(self, u: UOp) -> UOp:
    new = self.done[u]
    return new if new.dtype.count == self.count else new.broadcast(self.count)

  def _node(self, u: UOp) -> UOp:
    if u.op is Ops.OR and u.dtype in (WORD, PAIR) and (words := Neighbours.of(u, self.axis)) is not None:
      return self._words(words)
    # of MMAs, dot products: they go lane by lane
    if u.op in GroupOp.Elementwise or u.op in (Ops.MMA, Ops.SHUFFLE):
      src = tuple([self._vector(s) for s in u.src])
      return u.replace(dtype=u.dtype.scalar().vec(self.count), src=src)
    if u.op is Ops.LOAD:
      return self._load(u)
    if u.op is Ops.STORE:
      return self._store(u)
    src = tuple([self.done[s] for s in u.src])
    if u.op is Ops.REDUCE:
      return u.replace(dtype=src[0].dtype, src=src)
    return u.replace(src=src)

  def _words(self, words: Neighbours) -> UOp:
    """Words that are put together from neighbours in memory, loaded at once."""
    count = self.count * words.kind.bits // words.first.dtype.bits
    along = UOp.range(count, self.axis.arg[0], AxisType.VECTOR)
    return Lanes(along, count).of(words.along(along)).bitcast(words.kind.vec(self.count))

  def _places(self, place: UOp, pointer: UOp) -> list[UOp]:
    """The place of each lane."""
    return [pointer.index(*offset_and_gate) for offset_and_gate in zip(*map(self._each_lane, place.src[1:]))]

  def _lane(self, u: UOp, lane: int) -> UOp:
    return self._each_lane(u, (lane,))[0]

  def _each_lane(self, u: UOp, lanes: Iterable[int] | None = None) -> list[UOp]:
    lanes = range(self.count) if lanes is None else lanes
    numbers = [{self.axis: number(lane)} for lane in lanes]
    return substitute_each(u, numbers) if self.axis in u.ranges else [u] * len(numbers)

  def _adjacent(self, offset: UOp) -> UOp | None:
    """The offset of lane 0 if the lanes are next to each other in memory."""
    step = stride(offset, self.axis)
    if step is not None:
      return self._lane(offset, 0) if step == 1 else None
    first = self._lane(offset, 0)
    for lane in range(1, self.count):
      distance = simplify(self._lane(offset, lane) - first)
      if distance.op is not Ops.CONST or distance.arg != lane:
        return None
    return first

  def _gate(self, place: UOp) -> UOp | None:
    return None if (gate := gate_of(place)) is None else self.done[gate]

  def _load(self, u: UOp) -> UOp:
    place, pointer = u.src[0], self.done[u.src[0].src[0]]
    offset, alternative = place.src[1], u.src[1] if len(u.src) > 1 else None
    if self.axis in offset.ranges and (base := self._adjacent(offset)) is not None:
      alt = None if alternative is None else self._vector(alternative)
      return pointer.index(base, self._gate(place)).load(alt, u.dtype.vec(self.count))
    same = all(self.axis not in s.ranges for s in u.src[1:])
    if self.count >= WIDE and stride(offset, self.axis) == 2 and same:
      tap = next((r for r in offset.ranges if kind(r) is AxisType.UNROLL and stride(offset, r) == 1), None)
      return self._every_second(u, pointer) if tap is None or self.count % 2 else self._pairs(u, pointer, tap)
    places = self._places(place, pointer)
    others = [None] * self.count if alternative is None else self._each_lane(alternative)
    lanes = tuple([at.load(other, u.dtype) for at, other in zip(places, others)])
    return UOp(Ops.VECTORIZE, u.dtype.vec(self.count), lanes)

  def _every_second(self, u: UOp, pointer: UOp) -> UOp:
    """Lanes two elements apart: of two vectors, of which the second ends with the last lane. An element between two
    lanes is there if both are."""
    place, count = u.src[0], self.count
    first, half, vectors = self._lane(place.src[1], 0), (count + 1) // 2, []
    other = self._vector(u.src[1]) if len(u.src) > 1 else None
    for start in (0, count - 1):
      elements = range(start, start + count)
      gates = [
        Lanes(self.axis, count, [e // 2 for e in elements])._vector_of(gate)
        & Lanes(self.axis, count, [(e + 1) // 2 for e in elements])._vector_of(gate)
        for gate in place.src[2:]
      ]
      vectors.append(pointer.index(simplify(first + start), *gates).load(other, u.dtype.vec(count)))
    low, high = vectors
    lanes = [low.extract(2 * lane) for lane in range(half)]
    lanes += [high.extract(2 * lane - (count - 1)) for lane in range(half, count)]
    return UOp(Ops.VECTORIZE, u.dtype.vec(count), tuple(lanes))

  def _pairs(self, u: UOp, pointer: UOp, tap: UOp) -> UOp:
    """The same where the next element is that of the next step of `tap`, a loop that is written out: two steps share
    two vectors, of which the first takes the even elements and the second the odd ones."""
    place, count, last = u.src[0], self.count, int(tap.src[0].arg) - 1
    even = simplify(tap - tap % 2)  # the first of two steps
    first = self._lane(place.src[1], 0).substitute({tap: even})
    other = self._vector(u.src[1]) if len(u.src) > 1 else None
    vectors = []
    for start in (0, count):
      elements = range(start, start + count)
      step = even.broadcast(count) + UOp.const(dtypes.index.vec(count), tuple([e % 2 for e in elements]))
      lanes = Lanes(self.axis, count, [e // 2 for e in elements], {tap: step})
      gates = [lanes._vector_of(gate) for gate in place.src[2:]]
      if last % 2 == 0:  # the last step has no other
        gates.append(step < last + 1)
      vectors.append(pointer.index(simplify(first + start), *_all(gates)).load(other, u.dtype.vec(count)))
    pairs = (tap % 2).ne(0).broadcast(count).where(*[_every_second(vectors, odd) for odd in (1, 0)])
    return pairs if last % 2 else (tap < last).broadcast(count).where(pairs, self._every_second(u, pointer))

  def _store(self, u: UOp) -> UOp:
    place, pointer = u.src[0], self.done[u.src[0].src[0]]
    offset = place.src[1]
    apart = isinstance(u.arg, Accumulate) and u.arg.atomic  # of a vector, no target updates all lanes as one step
    if self.axis in offset.ranges and not apart and (base := self._adjacent(offset)) is not None:
      return u.replace(src=(pointer.index(base, self._gate(place)), self._vector(u.src[1])))
    value = self.done[u.src[1]]
    stores = []
    for lane, at in enumerate(self._places(place, pointer)):
      single = value.extract(lane) if value.dtype.count > 1 else value
      stores.append(u.replace(src=(at, single)))
    return UOp.group(*stores)


def _every_second(vectors: Sequence[UOp], first: int) -> UOp:
  """Every second element of some vectors, from that number on."""
  lanes = [v.extract(lane) for v in vectors for lane in range(first, v.dtype.count, 2)]
  return UOp(Ops.VECTORIZE, lanes[0].dtype.vec(len(lanes)), tuple(lanes))


def _all(gates: Sequence[UOp]) -> list[UOp]:
  """One gate that holds where all do; none where there are none."""
  return [chain(Ops.AND, list(gates))] if gates else []
