"""Attention of one token over the cache of keys and values, in one kernel.

Scores of 16 positions are made at a time, whose keys lie side by side; then their maximum, their exponentials, and the
sum of values that these weigh. Keys and values are read once for all queries that share them.
"""

from __future__ import annotations

import math
from functools import lru_cache

from tiny_llm.cache import Cache
from tiny_llm.quantised.packing import LANES
from tiny_tensor import Tensor, UOp, dtypes
from tiny_uop import AxisType, DType, KernelInfo, Ops
from tiny_uop.graph import chain
from tiny_uop.records import dataclass

__all__ = ["attend"]

SUMS = 12
"""Sums that are made at once at least, if there are so many: one takes 4 cycles, and two can begin in each."""


def attend(q: Tensor, cache: Cache, slot: UOp, start: UOp, window: int, cap: float) -> Tensor:
  """What a token at position `start` of a slot looks up, float32 `(heads, head_dim)`. `q` `(heads, head_dim)` are its
  queries, scaled. The cache has keys and values of positions up to `start`, of which the last `window` are seen, or all
  if it is 0. Scores are capped as `cap * tanh(score / cap)` if `cap` is not 0. `slot` and `start` are bound in the same
  graph, by what writes keys."""
  slots, groups, room, size = (int(n) for n in cache.values.shape)
  heads = int(q.shape[0])
  place, first = start.src[0], slot.src[0] if slots > 1 else None  # of one slot there is no variable
  scales = 0 if cache.value_scales is None else cache.groups
  kernel = _kernel(slots, groups, heads // groups, room, size, scales, cache.values.dtype, first, place, window, cap)
  made = [Tensor.empty(*shape, dtype=dtypes.float32, device=q.device) for shape in ((heads, size), (heads, room))]
  given = [t for t in (cache.keys, cache.values, cache.key_scales, cache.value_scales) if t is not None]
  return made[0].custom_kernel(made[1], q, *given, fxn=lambda *_: kernel)[0]


@dataclass(frozen=True)
class Heads:
  """A head of keys, and where it lies: `rows` of queries have it, it is the `head`-th of the cache, which has `room`
  positions of `size` numbers each, and `scales` of these, or 0."""

  rows: list[UOp]
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
  slots: int, groups: int, shared: int, room: int, size: int, scales: int, dtype: DType, slot: UOp | None, place: UOp,
  window: int, cap: float,
) -> UOp:  # fmt: skip
  """The kernel over the result, scores, queries, keys, values, and the scales of these, of which a head has as many at
  a position, or 0. `shared` queries have the same keys."""
  numbers = [groups * shared * n for n in (size, room, size)]
  out, scores, q = (UOp.param(n, dtypes.float32.ptr(count)) for n, count in enumerate(numbers))
  keys, values = (UOp.param(n, dtype.ptr(slots * groups * room * size)) for n in (3, 4))
  key_scales, value_scales = (UOp.param(n, dtypes.float16.ptr(slots * groups * room * max(scales, 1))) for n in (5, 6))
  group = UOp.range(groups, 0)
  rows = [group * shared + n for n in range(shared)]
  heads = Heads(rows, group if slot is None else slot * groups + group, room, size, scales)
  scored = _scores(heads, scores, q, keys, key_scales, place, window, cap)
  weights, shares = _weights(heads, scored, place)
  return UOp.sink(_mixed(heads, out, weights, shares, values, value_scales, place).end(group), arg=KernelInfo("attend"))


def _scores(heads: Heads, scores: UOp, q: UOp, keys: UOp, key_scales: UOp, place: UOp, window: int, cap: float) -> UOp:
  """The scores of all positions, in units of the logarithm of 2, and of those behind the last up to a multiple of 16,
  which count for nothing."""
  size, scales, rows = heads.size, heads.scales, heads.rows
  block, lane = UOp.range(place // LANES + 1, 1), UOp.range(LANES, 2)
  most = max(min(size, -(-SUMS // len(rows))), scales)
  parts = next(n for n in range(most, 0, -1) if size % n == 0 and heads.scaled % (size // n) == 0)
  term = UOp.range(size // parts, 3, AxisType.REDUCE)
  at = block * LANES + lane
  seen = at < place + 1
  if window:
    seen = seen & (place - window < at)
  sums: list[list[UOp]] = [[] for _ in rows]
  for part in range(parts):
    column = term + part * (size // parts)
    key = keys.index(heads.base + (block * size + column) * LANES + lane).load().cast(dtypes.float32)
    scale = None
    if scales:
      place_of_scale = (heads.head * (heads.room // LANES) + block) * scales + part * (size // parts) // heads.scaled
      scale = key_scales.index(place_of_scale * LANES + lane).load().cast(dtypes.float32)
    for row, terms in zip(rows, sums):
      found = (q.index(row * size + column).load() * key).reduce(Ops.ADD, term)
      terms.append(found if scale is None else found * scale)
  stores = []
  for row, terms in zip(rows, sums):
    score = chain(Ops.ADD, terms)
    if cap:
      grown = (score * (2 * math.log2(math.e) / cap)).exp2()
      score = (1.0 - (grown + 1.0).reciprocal() * 2.0) * cap
    stores.append(scores.index(row * heads.room + at).store(seen.where(score * math.log2(math.e), -math.inf)))
  return scores.after(UOp.group(*stores).end(block, lane))


def _weights(heads: Heads, scored: UOp, place: UOp) -> tuple[UOp, list[UOp]]:
  """The exponentials of scores, and what makes their sums 1."""
  rows, room, count = heads.rows, heads.room, (place // LANES + 1) * LANES
  every, again, total = UOp.range(count, 4, AxisType.REDUCE), UOp.range(count, 5), UOp.range(count, 6, AxisType.REDUCE)
  peaks = [scored.index(row * room + every).load().reduce(Ops.MAX, every) for row in rows]
  cells = [scored.index(row * room + again) for row in rows]
  made = [cell.store((cell.load() - m).exp2()) for cell, m in zip(cells, peaks)]
  weights = scored.after(UOp.group(*made).end(again))
  return weights, [weights.index(row * room + total).load().reduce(Ops.ADD, total).reciprocal() for row in rows]


def _mixed(heads: Heads, out: UOp, weights: UOp, shares: list[UOp], values: UOp, value_scales: UOp, place: UOp) -> UOp:
  """Stores the sums of values."""
  size, room, scales = heads.size, heads.room, heads.scales
  width = LANES if size % LANES == 0 else size
  most = min(size // width, max(1, SUMS // len(heads.rows)))
  chunks = next(n for n in range(most, 0, -1) if size // width % n == 0)
  run, inner = UOp.range(size // (width * chunks), 7), UOp.range(width, 8)
  position = UOp.range(place + 1, 9, AxisType.REDUCE)
  mixed = []
  for chunk in range(chunks):
    column = (run * chunks + chunk) * width + inner
    value = values.index(heads.base + position * size + column).load().cast(dtypes.float32)
    if scales:
      place_of_scale = (heads.head * room + position) * scales + (run * chunks + chunk) * width // heads.scaled
      value = value * value_scales.index(place_of_scale).load().cast(dtypes.float32)
    for row, share in zip(heads.rows, shares):
      weight = weights.index(row * room + position).load()
      mixed.append(out.index(row * size + column).store((weight * value).reduce(Ops.ADD, position) * share))
  return UOp.group(*mixed).end(run, inner)
