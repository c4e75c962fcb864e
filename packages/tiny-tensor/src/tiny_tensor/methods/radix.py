"""Stable sorting of unsigned integers by their digits, from the least one up (Knuth, volume 3, 5.2.5).

For each digit, elements are counted by it, the counts are added up, and each element goes to the place that its count
says. A digit that is the same in all elements of a row is passed over. On a device without workgroups all of it is one
kernel, row after row; with workgroups each thread has a block of a row, and each digit three kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from tiny_tensor.base import TensorBase
from tiny_tensor.sequence import Array, Sequence, called, has_groups
from tiny_uop import AxisType, Ops, UOp, dtypes

T = TypeVar("T", bound=TensorBase)

DIGIT = 8  # bits that one pass takes of keys of one thread
FEW = 64  # elements of a row that is sorted by smaller digits: there are fewer counts to add up
SHARED_DIGIT = 4  # of keys that threads share out
BLOCK = 256  # elements of a thread
THREADS = 32
UNSIGNED = {dtype.itemsize: dtype for dtype in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)}


def order_key(x: UOp) -> UOp:
  """Unsigned integers of the same size, or of 32 bits, in the same order; equal for both zeros, the largest for NaN."""
  if x.dtype == dtypes.bool:
    return x.cast(dtypes.uint8)
  if not dtypes.is_float(x.dtype):
    kind = UNSIGNED[x.dtype.itemsize]
    return x if x.dtype == kind else x.bitcast(kind) ^ (1 << (kind.bits - 1))
  x = x if x.dtype.itemsize >= 4 else x.cast(dtypes.float32)
  kind = UNSIGNED[x.dtype.itemsize]
  sign = 1 << (kind.bits - 1)
  bits = x.eq(0).where(0.0, x).bitcast(kind)
  # floats are sign and magnitude: the greater the magnitude of a negative one, the less it is
  ordered = (bits < sign).where(bits ^ sign, ~bits)
  return x.ne(x).where(dtypes.max(kind), ordered)


def order_of(keys: T) -> T:
  """int32 `(rows, n)`: the positions of unsigned keys `(rows, n)` in ascending order of these, equal ones in theirs."""
  rows, n = (int(s) for s in keys.shape)
  if has_groups(keys.device):
    return _in_blocks(keys)
  digit = DIGIT if n > FEW else SHARED_DIGIT
  digits = keys.dtype.bits // digit
  results = (
    ((rows, n), dtypes.int32),
    ((2, n), keys.dtype),
    ((2, n), dtypes.int32),
    ((digits, 1 << digit), dtypes.int32),
  )
  return called(sorting, 0, results, keys)[0]


@cache
def sorting(arrays: tuple[Array, ...], threads: int) -> UOp:
  """(the order, two lots of keys and of positions, counts of digits) of keys."""
  s = Sequence(arrays)
  (rows, n), (digits, size) = s.shapes[0], s.shapes[3]
  bits = size.bit_length() - 1
  with s.loop(rows) as row:
    d, i = s.range(digits), s.lanes(size)
    s.store(3, (d, i), UOp.const(dtypes.int32, 0), d, i)
    with s.loop(n) as i:
      key = s.keep(s.load(4, row, i))
      s.store(1, (0, i), key)
      s.store(2, (0, i), i.cast(dtypes.int32))
      for number in range(digits):
        place = (number, _digit(key, key.const_like(number * bits), size))
        s.store(3, place, s.load(3, *place) + 1)
    here = s.variable(UOp.const(dtypes.int32, 0))
    with s.loop(digits) as d:
      side = (s.get(here) & 1).cast(dtypes.index)
      shift = d.cast(dtypes.int32) * bits
      alike = s.keep(s.load(3, d, _digit(s.load(1, side, 0), shift, size)).eq(n))
      total = s.variable(UOp.const(dtypes.int32, 0))
      with s.loop(size) as i:
        count = s.keep(s.load(3, d, i))
        s.store(3, (d, i), s.get(total))
        s.put(total, s.get(total) + count)
      with s.loop(alike.where(UOp.const(dtypes.index, 0), UOp.const(dtypes.index, n))) as i:
        key, position = s.keep(s.load(1, side, i)), s.keep(s.load(2, side, i))
        digit = _digit(key, shift, size)
        to = s.keep(s.load(3, d, digit))
        s.store(3, (d, digit), to + 1)
        other = (side * -1 + 1, to.cast(dtypes.index).maximum(0).minimum(n - 1))
        s.store(1, other, key)
        s.store(2, other, position)
      s.put(here, alike.where(s.get(here), s.get(here) * -1 + 1))
    i = s.range(n)
    s.store(0, (row, i), s.load(2, (s.get(here) & 1).cast(dtypes.index), i), i)
  return s.kernel("sort")


def _digit(key: UOp, shift: UOp, size: int) -> UOp:
  return (key.alu(Ops.SHR, shift.cast(key.dtype)) & (size - 1)).cast(dtypes.index)


# *** with threads ***


def _in_blocks(keys: T) -> T:
  rows, n = (int(s) for s in keys.shape)
  blocks, size = -(-n // (BLOCK * THREADS)) * THREADS, 1 << SHARED_DIGIT
  order = keys._count_up(n).reshape((1, n)).broadcast_to((rows, n)).contiguous()
  counts: Array = (rows, size, blocks), dtypes.int32
  for start in range(0, keys.dtype.bits, SHARED_DIGIT):
    shift = keys._filled((rows, 1), start, keys.dtype).contiguous()
    found = called(counting, 0, (counts,), keys, shift)[0].reshape((rows, size * blocks))
    first = (found.cumsum(1) - found).reshape((rows, size, blocks))
    results = (((rows, n), dtypes.int32), ((rows, n), keys.dtype), counts)
    order, keys, _ = called(moving, 0, results, keys, order, first, shift)
  return order


@contextmanager
def _blocks(s: Sequence, array: int) -> Iterator[tuple[UOp, UOp, UOp, UOp]]:
  """(row, block, the number of its first element, how many it has) for each thread."""
  rows, n = s.shapes[array]
  groups = -(-n // (BLOCK * THREADS))
  with s.loop(rows, AxisType.GLOBAL) as row, s.loop(groups, AxisType.GLOBAL) as group:
    with s.loop(THREADS, AxisType.LOCAL) as thread:
      block = group * THREADS + thread
      yield row, block, block * BLOCK, (block * -BLOCK + n).maximum(0).minimum(BLOCK)


@cache
def counting(arrays: tuple[Array, ...], threads: int) -> UOp:
  """How many elements of each block `(rows, digits, blocks)` have each digit, of keys shifted by a number."""
  s = Sequence(arrays)
  _, size, _ = s.shapes[0]
  with _blocks(s, 1) as (row, block, first, count):
    d = s.range(size)
    s.store(0, (row, d, block), UOp.const(dtypes.int32, 0), d)
    with s.loop(count) as i:
      place = (row, _digit(s.load(1, row, first + i), s.load(2, row, 0), size), block)
      s.store(0, place, s.load(0, *place) + 1)
  return s.kernel("count_digits")


@cache
def moving(arrays: tuple[Array, ...], threads: int) -> UOp:
  """(positions, keys, where each block would put its next) of keys, positions, and where each block puts its first."""
  s = Sequence(arrays)
  (_, n), (_, size, _) = s.shapes[0], s.shapes[2]
  with _blocks(s, 0) as (row, block, first, count):
    d = s.range(size)
    s.store(2, (row, d, block), s.load(5, row, d, block), d)
    with s.loop(count) as i:
      key = s.keep(s.load(3, row, first + i))
      place = (row, _digit(key, s.load(6, row, 0), size), block)
      to = s.keep(s.load(2, *place))
      s.store(2, place, to + 1)
      at = to.cast(dtypes.index).maximum(0).minimum(n - 1)
      s.store(1, (row, at), key)
      s.store(0, (row, at), s.load(4, row, first + i))
  return s.kernel("move_by_digit")
