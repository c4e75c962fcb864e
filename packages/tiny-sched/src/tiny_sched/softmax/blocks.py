"""Blocks of rows and columns: how large they are, and where a kernel of blocks pays.

A sum weighted by a softmax, or what its gradients are sums of, and the memory that a device's threads share go in; out
comes the size of blocks, or that the graph's own kernels are better. The choice is by counts alone: elements of near
memory, operations that each block of rows does again, iterations past an end. Dao et al., FlashAttention, 2022, choose
blocks by the size of near memory as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tiny_sched.room import Room
from tiny_sched.softmax import candidates
from tiny_sched.softmax.weighted_sum import PairSum, WeightedSum, as_read, extent, is_read
from tiny_uop import GroupOp, Ops, UOp, dtypes
from tiny_uop.records import dataclass

ROWS = {64: 1.0, 48: 1.02, 32: 1.05}
"""Rows of a block, and how long each then takes: 64 are four vectors of most processors side by side. Fewer than the
least would leave lanes and sums side by side without work."""
COLUMNS = range(32, 97, 4)
"""Columns of a block: with their sides of a score, they stay in the first level cache."""
LEAST_TIMES = 16
"""Terms of a score, at least: cheaper ones may well be made again."""
NEAR = 1 << 17
"""Bytes of near memory: a good part of a second level cache is left for keys and values."""
SQUARE = 16
"""Masks of pairs are transposed in squares."""
CHEAP = 32
"""Operations on an element of the columns' side, or of the values, which each block of rows does again."""
LEAST_HEADS = 8
"""Rows of scores that have nothing to do with each other, from which on one kernel makes all gradients: what it adds up
over the columns it adds up one after another, so that threads share nothing but these. With fewer there are two, one
for each side of a pair, which compute scores twice and whose threads share blocks as well."""


@dataclass(frozen=True)
class Block:
  """Rows and columns that a kernel looks at together."""

  rows: int
  columns: int
  shared: bool = False
  """Whether threads of a workgroup do, for whom what columns have is filled into the memory that they share."""


WORKGROUPS = tuple([Block(n, m, True) for n, m in ((64, 64), (64, 32), (32, 32), (32, 16), (16, 16))])
"""Blocks of workgroups, the best first: of larger ones each reads less memory for its work."""


def block_of(w: WeightedSum, room: Room) -> Block | None:
  """The blocks of a kernel that is worth its while on a device with so much room: there are rows enough, near memory
  holds a block, and what each block does again is cheap. None where it is not."""
  long, wide = extent(w.lane), extent(w.j)
  if long * wide < candidates.LEAST_SCORES:
    return None
  sides = [(extent(u.src[1]), *pair) for u in w.sums() if (pair := w.sides(u)) is not None]
  values = [w.values] if w.values is not None else []
  cheap = all(_work(u) <= CHEAP for u in values) and all(_work(u) <= CHEAP for *_, u in sides)
  if not cheap or min(terms for terms, *_ in sides) < LEAST_TIMES:
    return None
  size = math.prod(map(extent, w.columns)) * len(values)
  theirs = [*[(size, u) for u in values], *[(n, u) for n, _, u in sides]]

  def near(block: Block) -> int:
    """Bytes of near memory."""

    def bytes_of(u: UOp) -> int:
      return (as_read(u) if block.shared else u).dtype.itemsize

    each = pair = w.dtype.itemsize
    if block.shared:
      pair += sum(u.dtype.itemsize for u in w.across())
      pair += sum(bytes_of(u) for u in values if w.rounded is as_read(u).dtype)
    row = (size + 3) * each + sum(n * bytes_of(u) for n, u, _ in sides) + block.columns * pair
    column = sum(n * bytes_of(u) for n, u in theirs if block.shared or not is_read(u))
    return row * block.rows + column * block.columns

  if room.local_memory:
    return _of_workgroups(long, wide, room.local_memory, near)
  if long < min(ROWS) or wide < min(COLUMNS):
    return None
  across = bool(w.across())
  if across and w.j.src[0].op is not Ops.CONST:
    return None
  rows = rows_of_block(long, math.prod(map(extent, w.rows)), room.threads)
  block = Block(rows, columns_of_block(wide, SQUARE if across else 1))
  return block if near(block) <= NEAR else None


def has_own_products(w: WeightedSum) -> bool:
  """Whether processors have instructions for its products, which want factors of 16 bits side by side: they take less
  time than a kernel of blocks, but not where gradients are taken."""
  return any(u.dtype is dtypes.bfloat16 for value in (w.score, w.values) if value is not None for u in value.toposort)


def rows_of_block(size: int, times: int = 1, threads: int = 0) -> int:
  """How many of so many rows a block has. The last one begins where it has as many, and computes some rows again. With
  so many threads, which share the blocks of so many times these rows, none should wait long for another."""

  def time(n: int) -> float:
    blocks = times * -(-size // n)
    return (-(-blocks // threads) if threads else blocks) * n * ROWS[n]

  return min((n for n in ROWS if n <= size), key=time)


def columns_of_block(size: int, multiple: int = 1) -> int:
  """How many of so many columns a block has, a multiple of that: hardly any are looked at twice."""
  fitting = [n for n in COLUMNS if n <= size and n % multiple == 0]
  return min(fitting, key=lambda n: (-(-size // n) * n, n % SQUARE != 0, abs(n - 64)))


def _work(u: UOp) -> int:
  """Operations per element."""
  return sum(node.op in GroupOp.Elementwise and node.dtype.kind == "float" for node in u.toposort) + 99 * any(
    node.op in GroupOp.Transcendental for node in u.toposort
  )


def block_of_gradients(w: WeightedSum, sums: Sequence[UOp], results: Sequence[PairSum], room: Room) -> Block | None:
  """The blocks of a kernel of gradients that is worth its while, as `block_of` has those of the forward kernel; None
  where it is not. Lanes of `w` are keys, or queries if all results are for them."""
  long, wide = extent(w.lane), extent(w.j)
  if any(r.src[0].op is not Ops.CONST for r in (*w.rows, w.lane, w.j)) or long * wide < candidates.LEAST_SCORES:
    return None
  sides = [(extent(u.src[1]), *pair) for u in sums if (pair := w.sides(u)) is not None]
  if (
    len(sides) < len(sums)
    or any(not is_read(u) for *_, u in sides)
    or any((r.values is not None and not is_read(r.values)) or r.dtype is not w.dtype for r in results)
    or any(n < LEAST_TIMES for n, *_ in sides)
  ):
    return None
  held = sum(n for n, *_ in sides) + sum(math.prod(map(extent, r.columns)) for r in results if not r.over_lanes)
  pairs = max(len(sums), len({r.coefficient for r in results}))
  if room.local_memory:
    # what results are made of, sums of pairs are made of as well
    filled = sum(n for n, *_ in sides)
    return _of_workgroups(
      long, wide, room.local_memory,
      lambda b: ((held + pairs * b.columns + 1) * b.rows + (filled + 1) * b.columns) * w.dtype.itemsize,
    )  # fmt: skip
  best, columns = rows_of_block(long), columns_of_block(wide)
  for rows in (best, *[n for n in ROWS if n < best]):
    again = sum(r.over_lanes for r in results) * (long % rows > 0)
    if ((held + (pairs + again) * columns) * rows + wide) * w.dtype.itemsize <= NEAR:
      return Block(rows, columns)
  return None


def _of_workgroups(long: int, wide: int, local_memory: int, near: Callable[[Block], int]) -> Block | None:
  """The best block of a workgroup, of which `near` is the bytes of near memory: of those that fit, one of which two
  do, if there is such."""
  fitting = [b for b in WORKGROUPS if b.rows <= long and b.columns <= wide and near(b) <= local_memory]
  return next((b for b in fitting if 2 * near(b) <= local_memory), fitting[0] if fitting else None)


def has_heads(w: WeightedSum) -> bool:
  """Whether threads have enough to do where they share nothing but heads."""
  return math.prod(map(extent, w.rows)) >= LEAST_HEADS
