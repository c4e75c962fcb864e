"""Attention of a token, or a few, over the cache of keys and values.

Scores of 16 positions are made at a time, whose keys lie side by side; then their maximum, their exponentials, and the
sum of values that these weigh. Keys and values are read once for all queries that share them. Where there are
many threads, positions are shared out among them as well as heads, and what is found in each part is put together by
the parts' maxima and sums (Dao et al., Flash-Decoding, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from tiny_llm.cache import Cache
from tiny_llm.quantised.packing import LANES
from tiny_llm.quantised.products import TILE, tiles
from tiny_tensor import Device, Tensor, UOp, dtypes
from tiny_uop import AxisType, DType, KernelInfo, Ops
from tiny_uop.graph import chain
from tiny_uop.records import dataclass

__all__ = ["attend", "has_workgroups"]

SUMS = 12
"""Sums that are made at once at least, if there are so many: one takes 4 cycles, and two can begin in each."""
ROWS = 12
"""Queries with the same keys, of several tokens, that are taken together at most: as many sums are in registers."""
NEAR = 16384
"""Bytes of a head's values, and of the next head's keys, that are asked for while others are computed with. A processor
asks for what comes behind itself, but begins anew in each page, and for each head."""
LINE = 64
"""Bytes of a cache line."""
LEAST = 128
"""Positions of a full cache in each part of it at least."""
LOWEST = -1e30
"""Less than any score, and no infinity: what is taken off the scores of a part in which nothing is seen."""


def attend(
  q: Tensor, cache: Cache, places: Sequence[tuple[UOp, UOp]], window: int, cap: float, last: UOp | None = None
) -> Tensor:  # fmt: skip
  """What tokens look up, float32 `(tokens, heads * head_dim)`. `q` `(heads, tokens, head_dim)` are their queries,
  scaled. `places`: the slot and the position of the first token, if all are of one sequence; or of each, which are of
  different slots. The cache has keys and values of positions up to theirs, of which the last `window` are seen, or all
  if it is 0. Scores are capped as `cap * tanh(score / cap)` if `cap` is not 0. With a variable `last`, only tiles of
  tokens up to that one look up something. `places` and `last` are bound in the same graph, by what writes keys."""
  slots, groups, room, size = (int(n) for n in cache.values.shape)
  heads, tokens = int(q.shape[0]), int(q.shape[1])
  # of one slot there is no variable
  variables = tuple([(slot.src[0] if slots > 1 else None, start.src[0]) for slot, start in places])
  scales = 0 if cache.value_scales is None else cache.groups
  parts = _parts(Device.opened(_device(q)).capabilities.threads, groups * len(places), room)
  shape = Shape(slots, groups, heads // groups, tokens, room, size, scales, cache.values.dtype, parts, window, cap)
  kernel = _kernel(shape, variables, last)
  sizes = [(parts, tokens, heads, size), (heads, tokens, room), *([(2, parts, tokens, heads)] if parts > 1 else [])]
  made = [Tensor.empty(*each, dtype=dtypes.float32, device=q.device) for each in sizes]
  given = [t for t in (cache.keys, cache.values, cache.key_scales, cache.value_scales) if t is not None]
  mixed, _, *sums = made[0].custom_kernel(*made[1:], q.contiguous(), *given, fxn=lambda *_: kernel)[: len(made)]
  if sums:
    peaks, totals = sums[0][0], sums[0][1]
    weights = (peaks - peaks.max(0)).exp2()
    mixed = (mixed * (weights / (weights * totals).sum(0)).unsqueeze(-1)).sum(0)
  return mixed.reshape(tokens, heads * size)


def has_workgroups(t: Tensor) -> bool:
  """Whether threads of the device of a tensor share memory: then many of them share a head, which this kernel has one
  thread for."""
  return Device.opened(_device(t)).capabilities.local_memory > 0


def _device(t: Tensor) -> str:
  return t.device if isinstance(t.device, str) else t.device[0]


def _parts(threads: int, heads: int, room: int) -> int:
  """Into how many parts the positions of `heads` heads of keys are divided, so that many threads have equally many. Few
  threads, for which 0 stands, wait for memory, which two that have two heads and one read as fast."""
  return min(threads // math.gcd(threads, heads), max(room // LEAST, 1)) if threads else 1


@dataclass(frozen=True)
class Shape:
  """Of a cache: `slots` of `groups` heads of keys, whose `room` positions have `size` numbers of a dtype, and `scales`
  of these, or 0. Of what is looked up: `shared` queries have the same keys, of `tokens`, in so many `parts` of the
  positions, of which the last `window` are seen, or all if it is 0; scores are capped, or not if `cap` is 0."""

  slots: int
  groups: int
  shared: int
  tokens: int
  room: int
  size: int
  scales: int
  dtype: DType
  parts: int
  window: int
  cap: float


@dataclass(frozen=True)
class Query:
  """The query of a head for the token at position `place`: where its numbers and its scores begin, and the place of
  its result among all, `size` numbers each, and of its maximum and its sum."""

  place: UOp
  numbers: UOp
  scores: UOp
  result: UOp


@dataclass(frozen=True)
class Heads:
  """A head of keys, and where it lies: `rows` of queries have it, it is the `head`-th of the cache. Their part of the
  positions are `blocks` of 16 from the `first` one on, as far as `place`, the last position that a row sees."""

  shape: Shape
  rows: list[Query]
  place: UOp
  head: UOp
  first: UOp
  blocks: UOp

  @property
  def base(self) -> UOp:
    """Its first number."""
    return self.head * (self.shape.room * self.shape.size)

  @property
  def start(self) -> UOp:
    """The first position."""
    return self.first * LANES

  @property
  def scaled(self) -> int:
    """Numbers with one scale."""
    return self.shape.size // max(self.shape.scales, 1)


@lru_cache(maxsize=64)
def _kernel(s: Shape, places: tuple[tuple[UOp | None, UOp], ...], last: UOp | None) -> UOp:
  """The kernel over the result, scores, maxima and sums if there are several parts, queries, keys, values, and the
  scales of these."""
  heads, rows = s.groups * s.shared, s.groups * s.shared * s.tokens
  counts = [s.parts * rows * s.size, rows * s.room, *([2 * s.parts * rows] if s.parts > 1 else []), rows * s.size]
  memory = [UOp.param(n, dtypes.float32.ptr(count)) for n, count in enumerate(counts)]
  kept, scales = s.slots * s.groups * s.room * s.size, s.slots * s.groups * s.room * max(s.scales, 1)
  keys, values = (UOp.param(len(memory) + n, s.dtype.ptr(kept)) for n in range(2))
  key_scales, value_scales = (UOp.param(len(memory) + n, dtypes.float16.ptr(scales)) for n in (2, 3))
  out, scores, q = memory[0], memory[1], memory[-1]
  # tokens of different sequences have their own keys, so that threads may share heads and sequences alike
  together = next(n for n in (TILE, 2, 1) if n <= s.tokens and (n == 1 or n * s.shared <= ROWS))
  together = together if len(places) == 1 else 1
  alone, units = s.tokens == len(places), s.groups * len(places) * s.parts
  number = UOp.range(units, 0)
  count = s.tokens // together if last is None else tiles(last) * (TILE // together)
  tile = number // (s.groups * s.parts) if alone else UOp.range(count, 10)

  def of(number: UOp) -> Heads:
    part, group, sequence = number % s.parts, number // s.parts % s.groups, number // (s.groups * s.parts)
    slot, start = _chosen(sequence, places)
    queries = []
    for token in [tile * together + n for n in range(together)]:
      for head in [group * s.shared + n for n in range(s.shared)]:
        row, place = head * s.tokens + token, start if alone else start + token
        result = (part * s.tokens + token) * heads + head
        queries.append(Query(place, row * s.size, row * s.room, result))
    place = queries[-1].place
    first = (queries[0].place - (s.window - 1)).maximum(0) // LANES if s.window else number.const_like(0)
    blocks = place // LANES + 1 - first
    if s.parts > 1:
      each = (blocks + (s.parts - 1)) // s.parts
      first, blocks = first + part * each, (blocks - part * each).minimum(each).maximum(0)
    return Heads(s, queries, place, slot * s.groups + group, first, blocks)

  now, following = of(number), of((number + 1).minimum(units - 1))
  scored = _scores(now, scores, q, keys, key_scales, values)
  weights, peaks, totals = _weights(now, scored, keys, following.base + following.start * s.size)
  shares = [total.reciprocal() if s.parts == 1 else total.const_like(1) for total in totals]
  effects = [_mixed(now, out, weights, shares, values, value_scales)]
  if s.parts > 1:
    for row, *found in zip(now.rows, peaks, totals):
      effects += [memory[2].index(row.result + n * (s.parts * rows)).store(value) for n, value in enumerate(found)]
  every = UOp.group(*effects)
  return UOp.sink(every.end(number) if alone else every.end(number, tile), arg=KernelInfo("attend"))


def _chosen(number: UOp, places: tuple[tuple[UOp | None, UOp], ...]) -> tuple[UOp, UOp]:
  """The slot and the position of a sequence."""
  slots, starts = zip(*[(number.const_like(0) if slot is None else slot, start) for slot, start in places])
  slot, start = slots[-1], starts[-1]
  for n in range(len(places) - 2, -1, -1):
    slot, start = (number < n + 1).where(slots[n], slot), (number < n + 1).where(starts[n], start)
  return slot, start


def _asked(heads: Heads, memory: UOp, base: UOp, block: UOp) -> list[UOp]:
  """Asks for the numbers of 16 positions, which begin at `base`."""
  each, itemsize = LANES * heads.shape.size, memory.index(base).load().dtype.itemsize
  first = base + block.minimum(max(NEAR // (each * itemsize), 1) - 1) * each
  return [memory.index(first + n).prefetch(level=2) for n in range(0, each, LINE // itemsize)]


def _scores(heads: Heads, scores: UOp, q: UOp, keys: UOp, key_scales: UOp, values: UOp) -> UOp:
  """The scores of positions, in units of the logarithm of 2, and of those behind the last up to a multiple of 16, which
  count for nothing."""
  s, rows = heads.shape, heads.rows
  step, lane = UOp.range(heads.blocks, 1), UOp.range(LANES, 2)
  block, scales = heads.first + step, max(s.scales, 1)
  most = -(-SUMS // len(rows) // scales)
  parts = next(n for n in range(min(most, heads.scaled), 0, -1) if heads.scaled % n == 0)  # of each scale
  term = UOp.range(heads.scaled // parts, 3, AxisType.REDUCE)
  at = block * LANES + lane
  sums: list[list[UOp]] = [[] for _ in rows]
  for group, part in product(range(scales), range(parts)):
    column = group * heads.scaled + term * parts + part  # an iteration reads what lies together
    key = keys.index(heads.base + (block * s.size + column) * LANES + lane).load().cast(dtypes.float32)
    scale = None
    if s.scales:
      place_of_scale = (heads.head * (s.room // LANES) + block) * scales + group
      scale = key_scales.index(place_of_scale * LANES + lane).load().cast(dtypes.float32)
    for row, terms in zip(rows, sums):
      found = (q.index(row.numbers + column).load() * key).reduce(Ops.ADD, term)
      terms.append(found if scale is None else found * scale)
  stores = []
  for row, terms in zip(rows, sums):
    score = chain(Ops.ADD, terms)
    if s.cap:
      grown = (score * (2 * math.log2(math.e) / s.cap)).exp2()
      score = (1.0 - (grown + 1.0).reciprocal() * 2.0) * s.cap
    seen = at < row.place + 1
    if s.window:
      seen = seen & (row.place - s.window < at)
    stores.append(scores.index(row.scores + at).store(seen.where(score * math.log2(math.e), -math.inf)))
  asked = _asked(heads, values, heads.base + heads.start * s.size, step)
  return scores.after(UOp.group(UOp.group(*stores).end(lane), *asked).end(step))


def _weights(heads: Heads, scored: UOp, keys: UOp, follows: UOp) -> tuple[UOp, list[UOp], list[UOp]]:
  """The exponentials of scores, the maxima that were taken off them, and the sums of all. The keys that follow, from
  `follows` on, are asked for."""
  rows, blocks = heads.rows, heads.blocks
  every, total = (UOp.range(blocks * LANES, place, AxisType.REDUCE) for place in (4, 6))
  block, lane = UOp.range(blocks, 5), UOp.range(LANES, 11)
  scores = [row.scores + heads.start for row in rows]
  peaks = [scored.index(at + every).load().reduce(Ops.MAX, every) for at in scores]
  if heads.shape.parts > 1:
    peaks = [peak.maximum(LOWEST) for peak in peaks]
  cells = [scored.index(at + block * LANES + lane) for at in scores]
  made = [cell.store((cell.load() - m).exp2()) for cell, m in zip(cells, peaks)]
  asked = _asked(heads, keys, follows, block)
  weights = scored.after(UOp.group(UOp.group(*made).end(lane), *asked).end(block))
  return weights, peaks, [weights.index(at + total).load().reduce(Ops.ADD, total) for at in scores]


def _mixed(heads: Heads, out: UOp, weights: UOp, shares: list[UOp], values: UOp, value_scales: UOp) -> UOp:
  """Stores the sums of values."""
  s = heads.shape
  width = LANES if s.size % LANES == 0 else s.size
  most = min(s.size // width, max(1, SUMS // len(heads.rows)))
  chunks = next(n for n in range(most, 0, -1) if s.size // width % n == 0)
  run, inner = UOp.range(s.size // (width * chunks), 7), UOp.range(width, 8)
  count = heads.place + 1 - heads.start
  if s.parts > 1:
    count = count.minimum(heads.blocks * LANES)
  term = UOp.range(count, 9, AxisType.REDUCE)
  position = heads.start + term
  mixed = []
  for chunk in range(chunks):
    column = (run * chunks + chunk) * width + inner
    value = values.index(heads.base + position * s.size + column).load().cast(dtypes.float32)
    if s.scales:
      place_of_scale = (heads.head * s.room + position) * s.scales + (run * chunks + chunk) * width // heads.scaled
      value = value * value_scales.index(place_of_scale).load().cast(dtypes.float32)
    for row, share in zip(heads.rows, shares):
      weight = weights.index(row.scores + position).load()
      mixed.append(out.index(row.result * s.size + column).store((weight * value).reduce(Ops.ADD, term) * share))
  return UOp.group(*mixed).end(run, inner)
