"""Attention of a token, or a few, over the cache of keys and values, in one kernel.

Scores of 16 positions are made at a time, whose keys lie side by side; then their maximum, their exponentials, and the
sum of values that these weigh. Keys and values are read once for all queries that share them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from tiny_llm.cache import Cache
from tiny_llm.quantised.packing import LANES
from tiny_llm.quantised.products import TILE, tiles
from tiny_tensor import Tensor, UOp, dtypes
from tiny_uop import AxisType, DType, KernelInfo, Ops
from tiny_uop.graph import chain
from tiny_uop.records import dataclass

__all__ = ["attend"]

SUMS = 12
"""Sums that are made at once at least, if there are so many: one takes 4 cycles, and two can begin in each."""
ROWS = 12
"""Queries with the same keys, of several tokens, that are taken together at most: as many sums are in registers."""
NEAR = 16384
"""Bytes of a head's values, and of the next head's keys, that are asked for while others are computed with. A processor
asks for what comes behind itself, but begins anew in each page, and for each head."""
LINE = 64
"""Bytes of a cache line."""


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
  kernel = _kernel(
    slots, groups, heads // groups, tokens, room, size, scales, cache.values.dtype, variables, last, window, cap
  )
  shapes = ((tokens, heads * size), (heads, tokens, room))
  made = [Tensor.empty(*shape, dtype=dtypes.float32, device=q.device) for shape in shapes]
  given = [t for t in (cache.keys, cache.values, cache.key_scales, cache.value_scales) if t is not None]
  return made[0].custom_kernel(made[1], q.contiguous(), *given, fxn=lambda *_: kernel)[0]


@dataclass(frozen=True)
class Query:
  """The query of a head for the token at position `place`: where its numbers, its scores and its result begin."""

  place: UOp
  numbers: UOp
  scores: UOp
  result: UOp


@dataclass(frozen=True)
class Heads:
  """A head of keys, and where it lies: `rows` of queries have it, it is the `head`-th of the cache, which has `room`
  positions of `size` numbers each, and `scales` of these, or 0. `place`: the last position that a row sees."""

  rows: list[Query]
  place: UOp
  head: UOp
  room: int
  size: int
  scales: int

  @property
  def base(self) -> UOp:
    """Its first number."""
    return self.head * (self.room * self.size)

  @property
  def scaled(self) -> int:
    """Numbers with one scale."""
    return self.size // max(self.scales, 1)


@lru_cache(maxsize=64)
def _kernel(
  slots: int, groups: int, shared: int, tokens: int, room: int, size: int, scales: int, dtype: DType,
  places: tuple[tuple[UOp | None, UOp], ...], last: UOp | None, window: int, cap: float,
) -> UOp:  # fmt: skip
  """The kernel over the result, scores, queries, keys, values, and the scales of these, of which a head has as many at
  a position, or 0. `shared` queries have the same keys."""
  numbers = [groups * shared * tokens * n for n in (size, room, size)]
  out, scores, q = (UOp.param(n, dtypes.float32.ptr(count)) for n, count in enumerate(numbers))
  keys, values = (UOp.param(n, dtype.ptr(slots * groups * room * size)) for n in (3, 4))
  key_scales, value_scales = (UOp.param(n, dtypes.float16.ptr(slots * groups * room * max(scales, 1))) for n in (5, 6))
  # tokens of different sequences have their own keys, so that threads may share heads and sequences alike
  together = next(n for n in (TILE, 2, 1) if n <= tokens and (n == 1 or n * shared <= ROWS))
  together = together if len(places) == 1 else 1
  number = UOp.range(groups * len(places), 0)
  group, (slot, start) = number % groups, _chosen(number // groups, places)
  count = tokens // together if last is None else tiles(last) * (TILE // together)
  alone = tokens == len(places)
  tile = number // groups if alone else UOp.range(count, 10)
  rows = []
  for token in [tile * together + n for n in range(together)]:
    for head in [group * shared + n for n in range(shared)]:
      row = head * tokens + token
      place = start if alone else start + token
      rows.append(Query(place, row * size, row * room, (token * (groups * shared) + head) * size))
  heads = Heads(rows, rows[-1].place, slot * groups + group, room, size, scales)
  scored = _scores(heads, scores, q, keys, key_scales, window, cap, values)
  after = (number + 1).minimum(groups * len(places) - 1)
  follows = (_chosen(after // groups, places)[0] * groups + after % groups) * (room * size)
  weights, shares = _weights(heads, scored, keys, follows)
  mixed = _mixed(heads, out, weights, shares, values, value_scales)
  return UOp.sink(mixed.end(number) if alone else mixed.end(number, tile), arg=KernelInfo("attend"))


def _chosen(number: UOp, places: tuple[tuple[UOp | None, UOp], ...]) -> tuple[UOp, UOp]:
  """The slot and the position of a sequence."""
  slots, starts = zip(*[(number.const_like(0) if slot is None else slot, start) for slot, start in places])
  slot, start = slots[-1], starts[-1]
  for n in range(len(places) - 2, -1, -1):
    slot, start = (number < n + 1).where(slots[n], slot), (number < n + 1).where(starts[n], start)
  return slot, start


def _asked(heads: Heads, memory: UOp, base: UOp, block: UOp) -> list[UOp]:
  """Asks for the numbers of 16 positions, which begin at `base`."""
  each, itemsize = LANES * heads.size, memory.index(base).load().dtype.itemsize
  first = base + block.minimum(max(NEAR // (each * itemsize), 1) - 1) * each
  return [memory.index(first + n).prefetch(level=2) for n in range(0, each, LINE // itemsize)]


def _scores(
  heads: Heads, scores: UOp, q: UOp, keys: UOp, key_scales: UOp, window: int, cap: float, values: UOp
) -> UOp:  # fmt: skip
  """The scores of all positions, in units of the logarithm of 2, and of those behind the last up to a multiple of 16,
  which count for nothing."""
  size, scales, rows = heads.size, heads.scales, heads.rows
  block, lane = UOp.range(heads.place // LANES + 1, 1), UOp.range(LANES, 2)
  most = -(-SUMS // len(rows) // max(scales, 1))
  parts = next(n for n in range(min(most, heads.scaled), 0, -1) if heads.scaled % n == 0)  # of each scale
  term = UOp.range(heads.scaled // parts, 3, AxisType.REDUCE)
  at = block * LANES + lane
  sums: list[list[UOp]] = [[] for _ in rows]
  for group, part in product(range(max(scales, 1)), range(parts)):
    column = group * heads.scaled + term * parts + part  # an iteration reads what lies together
    key = keys.index(heads.base + (block * size + column) * LANES + lane).load().cast(dtypes.float32)
    scale = None
    if scales:
      place_of_scale = (heads.head * (heads.room // LANES) + block) * scales + group
      scale = key_scales.index(place_of_scale * LANES + lane).load().cast(dtypes.float32)
    for row, terms in zip(rows, sums):
      found = (q.index(row.numbers + column).load() * key).reduce(Ops.ADD, term)
      terms.append(found if scale is None else found * scale)
  stores = []
  for row, terms in zip(rows, sums):
    score = chain(Ops.ADD, terms)
    if cap:
      grown = (score * (2 * math.log2(math.e) / cap)).exp2()
      score = (1.0 - (grown + 1.0).reciprocal() * 2.0) * cap
    seen = at < row.place + 1
    if window:
      seen = seen & (row.place - window < at)
    stores.append(scores.index(row.scores + at).store(seen.where(score * math.log2(math.e), -math.inf)))
  asked = _asked(heads, values, heads.base, block)
  return scores.after(UOp.group(UOp.group(*stores).end(lane), *asked).end(block))


def _weights(heads: Heads, scored: UOp, keys: UOp, follows: UOp) -> tuple[UOp, list[UOp]]:
  """The exponentials of scores, and what makes their sums 1. The keys of the next head, which begin at `follows`, are
  asked for."""
  rows, blocks = heads.rows, heads.place // LANES + 1
  every, total = (UOp.range(blocks * LANES, place, AxisType.REDUCE) for place in (4, 6))
  block, lane = UOp.range(blocks, 5), UOp.range(LANES, 11)
  peaks = [scored.index(row.scores + every).load().reduce(Ops.MAX, every) for row in rows]
  cells = [scored.index(row.scores + block * LANES + lane) for row in rows]
  made = [cell.store((cell.load() - m).exp2()) for cell, m in zip(cells, peaks)]
  asked = _asked(heads, keys, follows, block)
  weights = scored.after(UOp.group(UOp.group(*made).end(lane), *asked).end(block))
  return weights, [weights.index(row.scores + total).load().reduce(Ops.ADD, total).reciprocal() for row in rows]


def _mixed(heads: Heads, out: UOp, weights: UOp, shares: list[UOp], values: UOp, value_scales: UOp) -> UOp:
  """Stores the sums of values."""
  size, room, scales = heads.size, heads.room, heads.scales
  width = LANES if size % LANES == 0 else size
  most = min(size // width, max(1, SUMS // len(heads.rows)))
  chunks = next(n for n in range(most, 0, -1) if size // width % n == 0)
  run, inner = UOp.range(size // (width * chunks), 7), UOp.range(width, 8)
  position = UOp.range(heads.place + 1, 9, AxisType.REDUCE)
  mixed = []
  for chunk in range(chunks):
    column = (run * chunks + chunk) * width + inner
    value = values.index(heads.base + position * size + column).load().cast(dtypes.float32)
    if scales:
      place_of_scale = (heads.head * room + position) * scales + (run * chunks + chunk) * width // heads.scaled
      value = value * value_scales.index(place_of_scale).load().cast(dtypes.float32)
    for row, share in zip(heads.rows, shares):
      weight = weights.index(row.scores + position).load()
      mixed.append(out.index(row.result + column).store((weight * value).reduce(Ops.ADD, position) * share))
  return UOp.group(*mixed).end(run, inner)
