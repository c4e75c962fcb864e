"""Stable sorting of unsigned integers by their digits, from the least one up (Knuth, volume 3, 5.2.5).

For each digit, elements are counted by it, the counts are added up, and each element goes to the place that its count
says. A digit that is the same in all elements of a row is passed over. On a device without workgroups all of it is one
kernel, whose threads share groups of rows out; with workgroups each thread has a block of a row, and each digit three
kernels.

The k-th least is found from the highest digit down, one kernel for all of it: with some bits of it known, elements
below each value of the next bits are counted in vectors, which says what these are. That reads a row as often as there
are such digits, whatever is in it. For devices without workgroups.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

from tiny_tensor.base import TensorBase
from tiny_tensor.sequence import Array, Sequence, called, has_groups
from tiny_uop import AddrSpace, AxisType, Ops, UOp, dtypes

T = TypeVar("T", bound=TensorBase)

DIGIT = 8  # bits that one pass takes of keys of one thread
FEW = 64  # elements of a row that is sorted by smaller digits: there are fewer counts to add up
GROUPS = 16  # of rows, at most, that threads share out: each has memory of its own for the rows' keys
SHARED_DIGIT = 4  # of keys that threads share out
BLOCK = 256  # elements of a thread
THREADS = 32
FOUND = 2  # bits that one pass of a selection finds
LANES = 16  # elements that are compared at once
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
  digits, groups = keys.dtype.bits // digit, min(rows, GROUPS)
  results = (
    ((rows, n), dtypes.int32),
    ((groups, 2, n), keys.dtype),
    ((groups, 2, n), dtypes.int32),
    ((groups, digits, 1 << digit), dtypes.int32),
  )
  return called(sorting, 0, results, keys)[0]


@cache
def sorting(arrays: tuple[Array, ...], threads: int) -> UOp:
  """(the order; of each group of rows two lots of keys and of positions, counts of digits) of keys."""
  s = Sequence(arrays)
  (rows, _), (groups, *_) = s.shapes[0], s.shapes[3]
  each = -(-rows // groups)
  with s.loop(groups, AxisType.THREAD) as group, s.loop((group * -each + rows).maximum(0).minimum(each)) as r:
    _sort_row(s, group, group * each + r)
  return s.kernel("sort")


def _sort_row(s: Sequence, group: UOp, row: UOp) -> None:
  """Steps that put a row in order, in the memory of a group."""
  (_, n), (_, digits, size) = s.shapes[0], s.shapes[3]
  bits = size.bit_length() - 1
  d, i = s.range(digits), s.lanes(size)
  s.store(3, (group, d, i), UOp.const(dtypes.int32, 0), d, i)
  with s.loop(n) as i:
    key = s.keep(s.load(4, row, i))
    s.store(1, (group, 0, i), key)
    s.store(2, (group, 0, i), i.cast(dtypes.int32))
    for number in range(digits):
      place = (group, number, _digit(key, key.const_like(number * bits), size))
      s.store(3, place, s.load(3, *place) + 1)
  here = s.variable(UOp.const(dtypes.int32, 0))
  with s.loop(digits) as d:
    side = (s.get(here) & 1).cast(dtypes.index)
    shift = d.cast(dtypes.int32) * bits
    alike = s.keep(s.load(3, group, d, _digit(s.load(1, group, side, 0), shift, size)).eq(n))
    total = s.variable(UOp.const(dtypes.int32, 0))
    with s.loop(size) as i:
      count = s.keep(s.load(3, group, d, i))
      s.store(3, (group, d, i), s.get(total))
      s.put(total, s.get(total) + count)
    with s.loop(alike.where(UOp.const(dtypes.index, 0), UOp.const(dtypes.index, n))) as i:
      key, position = s.keep(s.load(1, group, side, i)), s.keep(s.load(2, group, side, i))
      digit = _digit(key, shift, size)
      to = s.keep(s.load(3, group, d, digit))
      s.store(3, (group, d, digit), to + 1)
      other = (group, side * -1 + 1, to.cast(dtypes.index).maximum(0).minimum(n - 1))
      s.store(1, other, key)
      s.store(2, other, position)
    s.put(here, alike.where(s.get(here), s.get(here) * -1 + 1))
  i = s.range(n)
  s.store(0, (row, i), s.load(2, group, (s.get(here) & 1).cast(dtypes.index), i), i)


def _digit(key: UOp, shift: UOp, size: int) -> UOp:
  return (key.alu(Ops.SHR, shift.cast(key.dtype)) & (size - 1)).cast(dtypes.index)


# *** selection ***


def place_of(keys: T, k: int, maximum_first: bool) -> T:
  """int32 `(rows, 1)`: the position of the k-th least of unsigned keys `(rows, n)`, of equal ones the earlier ones
  first. With `maximum_first`, that of the first key that is the largest of its type, where there is one."""
  rows, n = (int(s) for s in keys.shape)
  padded = keys.pad(((0, 0), (0, -n % LANES)), value=dtypes.max(keys.dtype))
  make = partial(selecting, n=n, k=k, maximum_first=maximum_first)
  return called(make, 0, (((rows, 1), dtypes.int32),), padded)[0]


@cache
def selecting(arrays: tuple[Array, ...], threads: int, n: int, k: int, maximum_first: bool) -> UOp:
  """(the position) of keys, of which those from `n` on are padding."""
  s = Sequence(arrays)
  (rows, room), dtype = arrays[1]
  blocks, zero = room // LANES, UOp.const(dtypes.int32, 0)
  counters = [UOp.alloc(s.kept + d, dtypes.int32.ptr(LANES, AddrSpace.REG)) for d in range(1 << FOUND)]
  s.kept += len(counters)

  def counter(d: int, lane: UOp) -> UOp:
    return counters[d].after(*s.before).index(lane)

  def below(row: UOp, bounds: list[UOp]) -> list[UOp]:
    """How many keys of a row are less than each bound."""
    lane = s.lanes(LANES)
    s.step(UOp.group(*[counter(d, lane).store(zero) for d in range(len(bounds))]), lane)
    with s.loop(blocks) as block:
      lane = s.lanes(LANES)
      key = s.load(1, row, block * LANES + lane)
      more = [(key < bound).cast(dtypes.int32) for bound in bounds]
      s.step(UOp.group(*[counter(d, lane).store(counter(d, lane).load() + m) for d, m in enumerate(more)]), lane)
    lanes = [s.all_lanes(LANES) for _ in bounds]
    return [s.keep(counter(d, lane).load().reduce(Ops.ADD, lane)) for d, lane in enumerate(lanes)]

  with s.loop(rows, AxisType.THREAD) as row:
    found = s.variable(UOp.const(dtype, 0))
    less = s.variable(zero)  # how many are below what is found
    with s.loop(dtype.bits // FOUND) as place:
      shift = (place * -FOUND + (dtype.bits - FOUND)).cast(dtype)
      base = s.keep(s.get(found))
      bounds = [s.keep(base + UOp.const(dtype, d).alu(Ops.SHL, shift)) for d in range(1, 1 << FOUND)]
      for bound, count in zip(bounds, below(row, bounds)):
        s.put(found, (count < k).where(bound, s.get(found)))
        s.put(less, (count < k).where(count, s.get(less)))
    if maximum_first:
      (numbers,) = below(row, [UOp.const(dtype, dtypes.max(dtype))])
      s.put(found, (numbers < n).where(dtypes.max(dtype), s.get(found)))
      s.put(less, (numbers < n).where(k - 1, s.get(less)))
    wanted, left = s.keep(s.get(found)), s.variable(s.get(less) * -1 + k)  # the first, second, … that is equal
    with s.loop(blocks) as block:
      lane = s.all_lanes(LANES)
      same = s.load(1, row, block * LANES + lane).eq(wanted).cast(dtypes.int32)
      count, before = s.keep(same.reduce(Ops.ADD, lane)), s.keep(s.get(left))
      here = (before > 0) & (count < before).logical_not()
      with s.where(here), s.loop(LANES) as i:
        s.put(left, s.get(left) - s.load(1, row, block * LANES + i).eq(wanted).cast(dtypes.int32))
        last = s.get(left).eq(0) & s.load(1, row, block * LANES + i).eq(wanted)
        with s.where(last):
          s.store(0, (row, 0), (block * LANES + i).cast(dtypes.int32))
      s.put(left, here.where(0, s.get(left) - count))
  return s.kernel("select")


# *** sorting with threads ***


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
