"""Software prefetch of what the next register tile reads of an image that is not packed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import kind
from tiny_codegen.kernel.memory import element_of
from tiny_codegen.lower.prefetch.program import (
  GAP,
  Program,
  Read,
  counted,
  innermost_sums,
  joined,
  known_sizes,
  line_at,
  lines_of,
  plus,
  sums_at_the_end,
  times,
)
from tiny_uop import AxisType, UOp

ROW_GAP = 4 * CACHE_LINE
"""Bytes between the rows of a window that are asked for with it: the next window reads them, or lanes beside it."""
LEAST_TILE_STEP = 3 * CACHE_LINE // 4
"""Bytes by which the next tile is further on, at least, for it to be asked for."""
MOST_SCALAR_LINES = 4
"""Lines of scalars that a step of a sum asks for."""
MOST_TILE_LINES = 12
"""Lines of vectors that a step of a sum asks for, for the next tile of a window: steps are few, and long."""
MOST_SPANS = 512
"""Vectors that a tile of a window reads, at most, for what it reads to be looked at."""


def next_tiles(program: Program) -> dict[UOp, list[UOp]]:
  """By innermost loop of a sum: the PREFETCHes of each iteration, of what the same sum reads in the next tile of the
  innermost loop around the sums that moves it."""
  large = {p for p, size in program.read.items() if size > program.caches.second}
  found: dict[UOp, list[UOp]] = {}
  asked: dict[tuple[UOp, frozenset[UOp]], set[int]] = {}
  for loop, reads in innermost_sums(program) if large else ():
    own = sums_at_the_end((*loop.around, loop.counter))
    outside = loop.around[: len(loop.around) + 1 - len(own)]
    groups: dict[tuple[UOp, frozenset[UOp], bool], list[Read]] = {}
    for u in reads:
      if u.src[0].src[0] in large and u.src[0].src[1].dtype.count == 1 and (read := Read.of(u, own)) is not None:
        groups.setdefault((u.src[0].src[0], read.rest, u.dtype.count == 1), []).append(read)
    for (pointer, rest, scalars), group in groups.items():
      tile = next((r for r in reversed(outside) if any(r in term.ranges for term in rest)), None)
      # of iterations that threads share the next one may be another thread's
      step = None if tile is None or kind(tile) is not AxisType.LOOP else stride(group[0].index.src[1], tile)
      itemsize = element_of(pointer).itemsize
      same_integers = len({u.dtype for u in (*own, *rest, group[0].index.src[1])}) == 1
      # a tile a part of a line further on reads mostly the lines that this one does
      if step is None or step * itemsize < LEAST_TILE_STEP or not same_integers:
        continue
      if scalars:
        places = _same_step(group, loop.counter, step, itemsize)
      else:
        places = _spread(group, own, step, itemsize, asked.setdefault((pointer, rest), set()))
      base = reduce(plus, sorted(rest, key=lambda term: term.render()), loop.counter.const_like(0))
      found.setdefault(loop.counter, []).extend(pointer.index(plus(base, place)).prefetch() for place in places)
  return found


def _same_step(group: Sequence[Read], loop: UOp, step: int, itemsize: int) -> Iterator[UOp]:
  """Scalars of a tile's rows: each step of the sum asks for its own lines of the next tile, as they are far from those
  of other steps."""
  if abs(group[0].steps[loop]) * itemsize < CACHE_LINE:
    return
  spans = [(read.constant * itemsize, (read.constant + read.count) * itemsize) for read in group]
  lines = [byte for first, behind in joined(spans, GAP) for byte in lines_of(first, behind)]
  moved = [times(r, by) for r, by in group[0].steps.items() if by]
  if len(lines) <= MOST_SCALAR_LINES:
    for byte in lines:
      yield reduce(plus, moved, loop.const_like(step + byte // itemsize))


def _spread(group: Sequence[Read], own: tuple[UOp, ...], step: int, itemsize: int, asked: set[int]) -> Iterator[UOp]:
  """Vectors of a tile, which steps of the sum share: what all of them read in the next tile, and not in this one, a few
  lines in each step."""
  steps = known_sizes(own)
  if not 0 < steps * len(group) <= MOST_SPANS:
    return
  spans = list(itertools.chain(*[read.spans(None, itemsize) for read in group]))
  pieces = joined(spans, ROW_GAP)
  if sum(behind - first for first, behind in spans) < 2 * sum(behind - first for first, behind in joined(spans, 0)):
    return  # no window: what is read in order a processor fetches by itself
  end, step = pieces[-1][1], step * itemsize
  later = [(first + step, behind + step) for first, behind in pieces]
  later = [(max(later[0][0], end), later[0][1])] if len(later) == 1 else [piece for piece in later if piece[0] >= end]
  lines = [byte for first, behind in later for byte in range(first, behind + CACHE_LINE - 1, CACHE_LINE)]
  lines = [byte for byte in lines if byte // CACHE_LINE not in asked]
  each = -(-len(lines) // steps)
  if not 0 < each <= MOST_TILE_LINES:
    return
  columns = [plus(times(counted(own, own[-1]), each), own[-1].const_like(n)) for n in range(each)]
  start, line = lines[0] // itemsize, CACHE_LINE // itemsize
  places: list[UOp | None] = [plus(times(column, line), column.const_like(start)) for column in columns]
  if any(b - a != CACHE_LINE for a, b in itertools.pairwise(lines)):
    places = [line_at(lines, column, itemsize) for column in columns]
  if None not in places:
    asked.update(byte // CACHE_LINE for byte in lines)
    yield from (place for place in places if place is not None)
