"""Sorting networks over many rows at once (Batcher, "Sorting networks and their applications", 1968).

A record is one array, or several that are compared one after the other and move together. A pass takes up to 16 slices
of each row and runs several layers of the network on them, so memory is read and written once for four layers. What was
the outermost digit of the position becomes the innermost one: slices are far apart when they are read, so that lanes
are adjacent, and after as many passes as there are digits everything is back in its place (as in Stockham's FFT).

Every second block has to run downwards for the next level to be bitonic. It is kept with its bits inverted instead, so
that all blocks run upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tiny_uop import UOp

DIGIT = 4  # bits of the position that one pass takes: 16 slices, which registers hold

Record = tuple[UOp, ...]
"""Arrays of one shape: (rows, size) between passes, integers, no two elements of a row equal."""

CountUp = Callable[[int], UOp]
"""n → 0, 1, …, n - 1 as int32, on the device of the records."""


def sort_records(records: Record, count_up: CountUp) -> Record:
  """The rows in ascending order. Their size is a power of two."""
  rows, size = (int(s) for s in records[0].shape)
  levels = size.bit_length() - 1
  first = min(levels, DIGIT)
  state = _every_second_inverted(records, size >> first, count_up)
  state = _pass(state, rows, size >> first, first, 0, sort_slices, count_up, levels > first)
  for level in range(first + 1, levels + 1):
    state = _merge_level(state, size >> level, level, count_up, level < levels)
  return state


def least_records(records: Record, keep: int, count_up: CountUp) -> Record:
  """The `keep` least of each row in ascending order; `keep` and the size are powers of two.

  Blocks of `keep` are sorted; of two neighbours, one upwards and one downwards, the smaller ones of each pair of
  elements are the `keep` least of both, and bitonic again.
  """
  rows, size = (int(s) for s in records[0].shape)
  level, blocks = keep.bit_length() - 1, size // keep
  state = _every_second_inverted(records, blocks, count_up)
  # each block as a row of its own
  state = sort_records(_shaped(state, (rows * blocks, keep)), count_up)
  while blocks > 1:
    state = _every_second_inverted(_shaped(state, (rows, blocks * keep)), blocks, count_up)
    blocks //= 2
    upper, lower = zip(*[slices(array, (rows, blocks, 2, keep)) for array in state])
    least = _shaped(exchanged(upper, lower)[0], (rows, blocks * keep))
    least = tuple(array.contiguous() for array in _every_second_inverted(least, blocks, count_up))
    state = _merge_level(least, blocks, level, count_up, False)
  return _shaped(state, (rows, keep))


def _changes(blocks: UOp) -> UOp:
  """Of blocks, those where every second of them being inverted and every second pair differ: 0, 1, 1, 0, and so on."""
  return ((blocks + 1) // 2) % 2


def _merge_level(state: Record, blocks: int, level: int, count_up: CountUp, invert: bool) -> Record:
  """Bitonic blocks of 2^level sorted, in as few passes as that takes."""
  rows = int(state[0].shape[0])
  passes = -(-level // DIGIT)
  for n in range(passes):
    digit = level // passes + (n < level % passes)
    last = invert and n + 1 == passes
    state = _pass(state, rows, blocks, digit, level - digit, merge_slices, count_up, last)
  return state


def _pass(
  state: Record,
  rows: int,
  blocks: int,
  digit: int,
  rest: int,
  network: Callable[[list[Record]], None],
  count_up: CountUp,
  invert: bool,
) -> Record:
  """A network over the outermost digit of blocks, which becomes the innermost one. `invert`: then the inversion is
  changed to what the next level wants."""
  width = 1 << digit
  items = list(zip(*[slices(array, (rows, blocks, width, 1 << rest)) for array in state]))
  network(items)
  joined = tuple(side_by_side([item[n] for item in items], count_up(width)) for n in range(len(state)))
  flat = _shaped(joined, (rows, blocks * width << rest))
  return tuple(array.contiguous() for array in (_inverted(flat, blocks, count_up, _changes) if invert else flat))


def slices(array: UOp, shape: tuple[int, int, int, int]) -> list[UOp]:
  """The slices of the third of four axes, without it."""
  rows, blocks, width, rest = shape
  whole = array.reshape(shape)
  bounds = [[(0, rows), (0, blocks), (n, n + 1), (0, rest)] for n in range(width)]
  return [whole.shrink(b).reshape((rows, blocks, rest)) for b in bounds]


def side_by_side(items: Sequence[UOp], place: UOp) -> UOp:
  """Slices side by side along a new last axis."""
  shape = (*items[0].shape, len(items))
  spread = [item.reshape((*item.shape, 1)).expand(shape) for item in items]
  out = spread[-1]
  for n, item in enumerate(spread[:-1]):
    here = place.eq(n).reshape((1, 1, 1, len(items))).expand(shape)
    out = here.where(item, out)
  return out


def _shaped(records: Iterable[UOp], shape: tuple[int, ...]) -> Record:
  return tuple(array.reshape(shape) for array in records)


def _every_second_inverted(records: Record, blocks: int, count_up: CountUp) -> Record:
  return records if blocks == 1 else _inverted(records, blocks, count_up, lambda b: b % 2)


def _inverted(records: Record, blocks: int, count_up: CountUp, which: Callable[[UOp], UOp]) -> Record:
  """Rows with the bits of some of their blocks inverted: where `which(number of the block)` is 1."""
  rows, size = (int(s) for s in records[0].shape)
  shape = (rows, blocks, size // blocks)
  chosen = which(count_up(blocks)).eq(1).reshape((1, blocks, 1)).expand(shape)
  parts = [array.reshape(shape) for array in records]
  return tuple((part ^ chosen.where(part.const_like(-1), part.const_like(0))).reshape((rows, size)) for part in parts)


# *** networks ***


def exchanged(first: Record, second: Record) -> tuple[Record, Record]:
  """(the lesser, the greater) of each two records."""
  less = first[-1] < second[-1]
  for a, b in reversed(list(zip(first[:-1], second[:-1]))):
    less = (a < b) | (a.eq(b) & less)
  pairs = list(zip(first, second))
  return tuple(less.where(a, b) for a, b in pairs), tuple(less.where(b, a) for a, b in pairs)


def merge_slices(items: list[Record]) -> None:
  """Sort slices that are bitonic: each half is compared with the other, then each quarter, and so on."""
  half = len(items) // 2
  while half:
    for n in range(len(items)):
      if not n & half:
        items[n], items[n + half] = exchanged(items[n], items[n + half])
    half //= 2


def sort_slices(items: list[Record]) -> None:
  """Sort slices: Batcher's odd-even mergesort, 63 comparisons for 16."""
  size, block = len(items), 1
  while block < size:
    step = block
    while step:
      for start in range(step % block, size - step, 2 * step):
        for n in range(start, min(start + step, size - step)):
          if n // (2 * block) == (n + step) // (2 * block):
            items[n], items[n + step] = exchanged(items[n], items[n + step])
      step //= 2
    block *= 2
