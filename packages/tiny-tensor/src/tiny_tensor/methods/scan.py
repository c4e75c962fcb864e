"""Running sums, products and extrema along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Self

from tiny_runtime import Device
from tiny_tensor import sequence
from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import DTypeLike, TensorBase, to_dtype
from tiny_tensor.methods.radix import UNSIGNED, order_key
from tiny_tensor.methods.reduce import accumulator_dtype
from tiny_tensor.methods.windows import windows
from tiny_tensor.naming import methods_known_as
from tiny_tensor.shapes import normalize_axis, upper
from tiny_uop import AddrSpace, AxisType, Devices, DType, Ops, Sharding, UOp, dtypes, prod, sint
from tiny_uop.records import dataclass

WINDOWS = 16  # up to this length all sums are made of their terms, inside of whatever kernel wants them
BLOCK = 512  # elements that are added one after the other where there are not enough rows to do so side by side
SIDE_BY_SIDE = 8
THREADS = 32
LOOKED_AT = 16  # elements of a line of which the largest is compared with the extremum so far
_FIRST = UOp.const(dtypes.index, 0)


IDENTITIES: dict[Ops, Callable[[DType], Any]] = {
  Ops.ADD: lambda dtype: -0.0 if dtypes.is_float(dtype) else 0,
  Ops.MUL: lambda dtype: 1,
  Ops.MAX: dtypes.min,
  Ops.MULACC: lambda dtype: 0,
}
"""What changes nothing where it is combined with something."""


def _widest(dtype: DType, place: Devices) -> DType:
  """The type in which a device adds up values."""
  known = Device.opened(place if isinstance(place, str) else Sharding(place).homes[0]).capabilities.dtypes
  return dtypes.float64 if dtype == dtypes.float32 and "float64" in known else dtype


@cache
def scanning(arrays: tuple[sequence.Array, ...], threads: int, op: Ops) -> UOp:
  """Running results along the middle axis of `(outer, n, inner)`, from first values `(outer, inner)` on: of ADD, MUL or
  MAX, or with MULACC of y = a y + b, which has two inputs."""
  s = sequence.Sequence(arrays)
  outer, n, inner = s.shapes[0]
  *inputs, first = range(1, len(arrays))
  wide = arrays[first][1]

  def follow(row: UOp, column: UOp, number: int, *loops: UOp, together: int = 1) -> None:
    lane = loops[0] if loops else UOp.const(dtypes.index, 0)
    register = UOp.alloc(s.kept, wide.ptr(number, AddrSpace.REG))
    s.kept += 1

    def now() -> UOp:
      return register.after(*s.before).index(lane)

    def steps(start: UOp, count: int) -> None:
      running, stores = now().load(), []
      for i in [start + step for step in range(count)]:
        values = [s.load(number, row, i, column).cast(wide) for number in inputs]
        running = values[0] * running + values[1] if op is Ops.MULACC else running.alu(op, values[0])
        stores.append(s.at(0, row, i, column).store(running.cast(arrays[0][1])))
      s.step(UOp.group(*stores, now().store(running)), *loops)

    s.step(now().store(s.load(first, row, column)), *loops)
    whole = n // together
    with s.loop(whole) as block:
      steps(block * together, together)
    with s.loop(n - whole * together) as rest:
      steps(rest + whole * together, 1)

  if threads:
    size = outer * inner
    with s.loop(-(-size // threads), AxisType.GLOBAL) as group, s.loop(threads, AxisType.LOCAL) as thread:
      line = (group * threads + thread).minimum(size - 1)
      follow(line // inner, line % inner, 1)
    return s.kernel("scan")
  along_rows = inner < SIDE_BY_SIDE
  size, width = (outer, SIDE_BY_SIDE) if along_rows else (inner, 4 * SIDE_BY_SIDE)
  with s.loop(inner if along_rows else outer) as other:
    for start, count, number in ((0, size // width, width), (size // width * width, size % width, 1)):
      with s.loop(count) as block:
        lanes = [s.range(number, AxisType.VECTOR)] if number > 1 else []
        place = block * number + start + (lanes[0] if lanes else 0)
        together = SIDE_BY_SIDE if along_rows and inner == 1 and lanes else 1
        follow(*(place, other) if along_rows else (other, place), number, *lanes, together=together)
  return s.kernel("scan")


class _Lines:
  """`width` neighbouring lines, of which `extrema` keeps in registers: the bits of the largest element so far, its
  place, its key; and the keys of the next LOOKED_AT elements of a line alone."""

  def __init__(self, s: sequence.Sequence, dtype: DType, row: UOp, column: UOp, width: int) -> None:
    self.s, self.dtype, self.row, self.column, self.width = s, dtype, row, column, width
    self.bits = UNSIGNED[dtype.itemsize] if dtypes.is_float(dtype) else dtype
    key = order_key(UOp.const(dtype, 0)).dtype
    self.kinds = ((self.bits, width), (dtypes.int32, width), (key, width), (key, LOOKED_AT))
    self.registers = [UOp.alloc(s.kept + i, kind.ptr(size, AddrSpace.REG)) for i, (kind, size) in enumerate(self.kinds)]
    s.kept += len(self.registers)
    for which in range(3):
      self.step(partial(self._empty, which))

  def _empty(self, which: int, lane: UOp) -> UOp:
    return self.register(which, lane).store(UOp.const(self.kinds[which][0], 0))  # of all keys the least

  def register(self, which: int, lane: UOp) -> UOp:
    return self.registers[which].after(*self.s.before).index(lane)

  def step(self, effect: Callable[[UOp], UOp], size: int | None = None) -> None:
    """An effect for each of `size` lanes: one for each line where that is not given."""
    size = self.width if size is None else size
    lanes = (self.s.lanes(size),) if size > 1 else ()
    self.s.step(effect(lanes[0] if lanes else _FIRST), *lanes)

  def largest(self, lane: UOp) -> UOp:
    found = self.register(0, lane).load()
    return found if self.bits == self.dtype else found.bitcast(self.dtype)

  def compare(self, i: UOp, known: UOp | None = None) -> None:
    """With element `i` of each line, of which the key may be known already; and stores what is the largest then."""
    s, row = self.s, self.row

    def choose(lane: UOp) -> UOp:
      x, old = s.load(2, row, i, self.column + lane), [self.register(which, lane).load() for which in range(3)]
      own = order_key(x) if known is None else self.register(3, known).load()
      new = (x if self.bits == self.dtype else x.bitcast(self.bits), i.cast(dtypes.int32), own)
      less = own < old[2]
      return UOp.group(*[self.register(k, lane).store(less.where(*pair)) for k, pair in enumerate(zip(old, new))])

    self.step(choose)
    self.step(lambda lane: s.at(0, row, i, self.column + lane).store(self.largest(lane)))
    self.step(lambda lane: s.at(1, row, i, self.column + lane).store(self.register(1, lane).load()))

  def compare_together(self, start: UOp) -> None:
    """With LOOKED_AT elements of a line alone, not its first: one by one only where some but not all are new maxima."""
    s, row, column = self.s, self.row, self.column
    self.step(lambda lane: self.register(3, lane).store(order_key(s.load(2, row, start + lane, column))), LOOKED_AT)
    lane = s.all_lanes(LOOKED_AT)
    less = s.keep(self.register(3, lane).load().reduce(Ops.MAX, lane) < self.register(2, _FIRST).load())
    with s.where(less):
      self.step(lambda lane: s.at(0, row, start + lane, column).store(self.largest(_FIRST)), LOOKED_AT)
      self.step(lambda lane: s.at(1, row, start + lane, column).store(self.register(1, _FIRST).load()), LOOKED_AT)
    with s.where(less.logical_not()):
      rises = s.keep(self._rises(start))
      with s.where(rises):
        self._take_all(start)
      with s.where(rises.logical_not()), s.loop(LOOKED_AT) as i:
        self.compare(start + i, i)

  def _rises(self, start: UOp) -> UOp:
    """Whether each of LOOKED_AT elements is a new maximum: none less than that before it, nor the first than all."""
    s, lane = self.s, self.s.all_lanes(LOOKED_AT)
    before = order_key(s.load(2, self.row, start + lane - 1, self.column))
    falls = (self.register(3, lane).load() < before).where(UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, 0))
    first = self.register(3, _FIRST).load() < self.register(2, _FIRST).load()
    return (falls.reduce(Ops.MAX, lane) < 1) & first.logical_not()

  def _take_all(self, start: UOp) -> None:
    """Each of LOOKED_AT elements is the largest when it comes."""
    s, row, column, last = self.s, self.row, self.column, UOp.const(dtypes.index, LOOKED_AT - 1)
    self.step(lambda lane: s.at(0, row, start + lane, column).store(s.load(2, row, start + lane, column)), LOOKED_AT)
    self.step(lambda lane: s.at(1, row, start + lane, column).store((start + lane).cast(dtypes.int32)), LOOKED_AT)
    x = s.load(2, row, start + last, column)
    new = (x if self.bits == self.dtype else x.bitcast(self.bits), (start + last).cast(dtypes.int32))
    values = (*new, self.register(3, last).load())
    s.step(UOp.group(*[self.register(which, _FIRST).store(value) for which, value in enumerate(values)]))


@cache
def extrema(arrays: tuple[sequence.Array, ...], threads: int) -> UOp:
  """(running maxima, int32 positions of their last occurrences so far) along the middle axis of `(outer, n, inner)`.

  Lines side by side are the lanes of a vector. A line alone is read in vectors: where none of their elements is a new
  maximum, as in nearly all vectors of values in no order, they are one comparison and two stores; where all are, as in
  ascending order, two comparisons and two stores.
  """
  s = sequence.Sequence(arrays)
  (outer, n, inner), dtype = arrays[0]
  blocks, width = max(n // LOOKED_AT - 1, 0) if inner == 1 else 0, 4 * SIDE_BY_SIDE
  alone = LOOKED_AT if blocks else n  # those at the start, so that vectors begin with cache lines
  with s.loop(outer) as row:
    for first, count, number in ((0, inner // width, width), (inner // width * width, inner % width, 1)):
      with s.loop(count) as strip:
        lines = _Lines(s, dtype, row, strip * number + first, number)
        with s.loop(alone) as i:
          lines.compare(i)
        with s.loop(blocks) as block:
          lines.compare_together(block * LOOKED_AT + alone)
        done = alone + blocks * LOOKED_AT
        with s.loop(n - done) as i:
          lines.compare(i + done)
  return s.kernel("extrema")


@dataclass(frozen=True)
class OfScan:
  """The derivatives of running sums, of products, and of y[i] = a[i] y[i-1] + b[i], along an axis: with R the gradient
  of what comes after each element, R[i] = g[i] + a[i+1] R[i+1]."""

  wrap: Callable[[UOp], Any]
  op: Ops
  axis: int

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    g, y, a = (self.wrap(u) for u in (gs[0], results[0], inputs[0]))
    g = g.flip(self.axis)
    if self.op is Ops.ADD:
      return (g._scan(self.axis, Ops.ADD).flip(self.axis).uop,)
    after = a.flip(self.axis)._shifted(self.axis, 0.0)
    later = after._scan(self.axis, Ops.MULACC, g).flip(self.axis)
    if self.op is Ops.MUL:
      return ((later * y._shifted(self.axis, 1.0)).uop,)
    return (later * y._shifted(self.axis, 0.0)).uop, later.uop


@dataclass(frozen=True)
class OfExtrema:
  """The derivatives of running extrema: each has that of the element that it is."""

  wrap: Callable[[UOp], Any]
  axis: int

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "positions have no gradient"
    g = self.wrap(gs[0])
    return (g.zeros_like().scatter_add(self.axis, self.wrap(results[1]), g).uop,)


@methods_known_as(dim="axis")
class ScanMixin(TensorBase):
  """cumsum and its relatives."""

  __slots__ = ()

  def _scan(self, axis: int, op: Ops, *more: Self) -> Self:
    """Each element combined with all before it along `axis`: by ADD, MUL or MAX; or by MULACC, which is
    y[i] = self[i] y[i-1] + more[i] from 0 on. The first of sums is itself: -0.0 where it is that."""
    place = normalize_axis(axis, self.ndim)
    if self.ndim == 0 or self.numel() == 0:
      return self._apart()
    size = self.shape[place]
    if isinstance(size, UOp):
      room = [(0, upper(size) - size) if i == place else (0, 0) for i in range(self.ndim)]
      whole = [t.pad(room, value=IDENTITIES[op](t.dtype)) for t in (self, *more)]
      return whole[0]._scan(place, op, *whole[1:])._select_axis(place, 0, size)
    if size <= WINDOWS and not more:
      x = self.transpose(place, -1)
      out = x._scan_windows(op, size)
      out = out if op is not Ops.ADD else x._along(x.ndim - 1).eq(0).where(x, out)
      return out.transpose(place, -1)
    inputs = (self, *more)
    filled = [t.detach()._filled_up(*range(t.ndim)) for t in inputs]
    shape = tuple([int(s) for s in filled[0].shape])
    flat = [t.reshape((prod(shape[:place]), size, prod(shape[place + 1 :]))) for t in filled]
    out = flat[0]._scan_flat(op, *flat[1:]).reshape(shape).shrink_to(self.shape)
    if op is Ops.MAX or not dtypes.is_float(self.dtype):
      return self._wrap(out.uop, False)
    own = with_gradient((out.uop,), [t.uop for t in inputs], OfScan(self._wrap, op, place), f"scan_{op.name.lower()}")
    return self._derive(own[0], *more)

  def _scan_flat(self, op: Ops, *more: Self, first: Self | None = None) -> Self:
    """`_scan` along the middle axis of `(outer, n, inner)`, from `first` `(outer, inner)` on. Floats are added up in
    float64 where the device has that. Where there are few rows, blocks are given what is before them."""
    outer, n, inner = (int(s) for s in self.shape)
    threads = THREADS if sequence.has_groups(self.device) else 0
    wide = _widest(self.dtype, self.device)
    block = 2 * THREADS if threads else BLOCK
    if n > 2 * block and op is not Ops.MULACC and (threads or outer * inner < SIDE_BY_SIDE):
      block = next((size for size in range(2 * block, block // 4, -1) if n % size == 0), block)
      blocks = -(-n // block)
      x = self.pad(((0, 0), (0, blocks * block - n), (0, 0)), value=IDENTITIES[op](self.dtype))
      x = x.reshape((outer, blocks, block, inner))
      totals = x._as_dtype(wide)._reduce(op, 2, False).contiguous()._scan_flat(op)
      before = totals._shifted(1, IDENTITIES[op](wide)).reshape((outer * blocks, inner))
      out = x.reshape((outer * blocks, block, inner))._scan_flat(op, first=before)
      return out.reshape((outer, blocks * block, inner))._select_axis(1, 0, n)
    first = self._filled((outer, inner), IDENTITIES[op](wide), wide).contiguous() if first is None else first
    make = partial(scanning, op=op)
    return sequence.called(make, threads, (((outer, n, inner), self.dtype),), self, *more, first)[0]

  def _shifted(self, axis: int, value: float) -> Self:
    """The elements before each along an axis, `value` before the first."""
    ends = [(1, 0) if i == axis else (0, 0) for i in range(self.ndim)]
    return self._select_axis(axis, 0, self.shape[axis] - 1).pad(ends, value=value)

  def _scan_windows(self, op: Ops, n: int) -> Self:
    """The running result along the last axis, of size `n`, as n reductions of windows: n² operations, but one
    kernel."""
    x = self._pad_identity(n - 1, op, front=True)
    return windows(x, (n,), (1,), (1,))._reduce(op, -1, False)

  def _pad_identity(self, count: sint, op: Ops, front: bool) -> Self:
    """`count` elements that change nothing, before or after the last axis."""
    value = IDENTITIES[op](self.dtype)
    return self.pad([None] * (self.ndim - 1) + [(count, 0) if front else (0, count)], value=value)

  def cumsum(self, axis: int = 0, dtype: DTypeLike | None = None) -> Self:
    """Running sum along `axis`: element i is the sum of those up to i. Same shape; dtypes as for `sum`."""
    return self._accumulated(Ops.ADD, axis, dtype)

  def cumprod(self, axis: int = 0, dtype: DTypeLike | None = None) -> Self:
    """Running product; dtypes as for `prod`."""
    return self._accumulated(Ops.MUL, axis, dtype)

  def _accumulated(self, op: Ops, axis: int, dtype: DTypeLike | None) -> Self:
    """A running sum or product in at least 32 bits, or in `dtype`."""
    if dtype is not None:
      return self._as_dtype(to_dtype(dtype))._scan(axis, op)
    out = self._as_dtype(accumulator_dtype(self.dtype))._scan(axis, op)
    return out._as_dtype(self.dtype) if dtypes.is_float(self.dtype) else out

  def cummax(self, axis: int = 0) -> tuple[Self, Self]:
    """Running maximum, and the int32 position of its last occurrence so far."""
    return self._extrema(self, axis)

  def cummin(self, axis: int = 0) -> tuple[Self, Self]:
    """Running minimum, and the int32 position of its last occurrence so far."""
    return self._extrema(self._opposite(), axis)

  def _extrema(self, x: Self, axis: int) -> tuple[Self, Self]:
    """The elements at which `x`, of the order of `self` or the opposite, has its running maximum, and their positions.
    Where threads share a line out, it is three kernels: the maxima, a running maximum of the positions at which these
    are attained, and the elements there."""
    if self.ndim == 0 or self.numel() == 0:
      return self._apart(), self.const_like(0, dtypes.int32)
    flipped, x, place = x is not self, x.detach(), normalize_axis(axis, self.ndim)
    size = self.shape[place]
    if not (isinstance(size, UOp) or size <= WINDOWS or sequence.has_groups(self.device)):
      return self._extrema_by_lines(x, place, flipped)
    here = x == x._scan(place, Ops.MAX)
    here = here | x.isnan() if dtypes.is_float(x.dtype) else here
    positions = here.where(self._along(place), 0)._scan(place, Ops.MAX)
    return self.gather(place, positions), positions

  def _extrema_by_lines(self, x: Self, axis: int, flipped: bool) -> tuple[Self, Self]:
    """`_extrema` in one kernel."""
    x = x._filled_up(*range(x.ndim))
    shape = tuple([int(s) for s in x.shape])
    if 1 < (inner := prod(shape[axis + 1 :])) < SIDE_BY_SIDE:
      found = self.transpose(axis, -1)._extrema_by_lines(x.transpose(axis, -1), self.ndim - 1, flipped)
      return found[0].transpose(axis, -1), found[1].transpose(axis, -1)
    flat = (int(prod(shape[:axis])), shape[axis], int(inner))
    made = sequence.called(extrema, 0, ((flat, self.dtype), (flat, dtypes.int32)), x.reshape(flat))
    values, positions = (t.reshape(shape).shrink_to(self.shape) for t in made)
    values = values._opposite() if flipped else values
    if not dtypes.is_float(self.dtype):
      return values, positions
    own = with_gradient((values.uop, positions.uop), (self.uop,), OfExtrema(self._wrap, axis), "extrema")
    return self._derive(own[0]), positions

  def logcumsumexp(self, axis: int = 0) -> Self:
    """Running `logsumexp`: sums of exponentials against the running maximum, by which they shrink where it grows."""
    x, dtype = self._with_precision()
    place = normalize_axis(axis, self.ndim)
    if self.ndim == 0 or self.numel() == 0:
      return self._as_float()._apart()
    most = x.detach()._scan(place, Ops.MAX)

    def against_most(t: Self) -> Self:
      return ((t == most) & t.isinf()).where(0.0, t - most).exp()  # infinity less infinity is NaN

    shrinks = against_most(most._shifted(place, -math.inf))
    return (most + shrinks._scan(place, Ops.MULACC, against_most(x)).log())._as_dtype(dtype)
