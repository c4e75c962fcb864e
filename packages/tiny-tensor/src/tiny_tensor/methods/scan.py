"""Running sums, products and extrema along an axis."""

from __future__ import annotations

import itertools
import math
from typing import Self

from tiny_tensor.base import DTypeLike, TensorBase, to_dtype
from tiny_tensor.methods.reduce import accumulator_dtype
from tiny_tensor.methods.sorting_network import side_by_side, slices
from tiny_tensor.methods.windows import windows
from tiny_tensor.naming import methods_known_as
from tiny_tensor.shapes import normalize_axis, upper
from tiny_uop import Ops, UOp, dtypes, sint

# Beyond this length, one vector, blocks are scanned and given what is before them. Half of it is taken where that
# divides the length.
BLOCK = 16
# Blocks are scanned by windows, which cost n² additions of n elements, or from this many elements on by slices, which
# cost n additions, and longer to compile.
MANY = 1 << 16


@methods_known_as(dim="axis")
class ScanMixin(TensorBase):
  """cumsum and its relatives."""

  __slots__ = ()

  def _scan(self, axis: int, op: Ops) -> Self:
    """Each element combined with all before it along `axis`."""
    place = normalize_axis(axis, self.ndim)
    if self.ndim == 0 or self.numel() == 0:
      return self
    x, size = self.transpose(place, -1), self.shape[place]
    signed = op is Ops.ADD and dtypes.is_float(x.dtype)
    if isinstance(size, UOp):
      whole = x._pad_identity(upper(size) - size, op, front=False)
      return whole._scan_last(op, signed)._select_axis(self.ndim - 1, 0, size).transpose(place, -1)
    return x._scan_last(op, signed).transpose(place, -1)

  def _scan_last(self, op: Ops, signed: bool = False) -> Self:
    """The running result of `op` (ADD, MUL, MAX) along the last axis; same shape. Long axes are scanned in blocks,
    whose last elements are scanned in turn. `signed`: the first of sums is itself, not its sum with 0.0, which for
    -0.0 is 0.0.
    """
    n, size = int(self.shape[-1]), self.numel()
    long = n > BLOCK and isinstance(size, int) and size >= MANY
    if n <= BLOCK:
      out = self._scan_windows(op, n)
      return self._along(self.ndim - 1).eq(0).where(self, out) if signed else out
    block = BLOCK // 2 if n % BLOCK and n % (BLOCK // 2) == 0 else BLOCK
    blocks = -(-n // block)
    x = self._pad_identity(blocks * block - n, op, front=False).reshape((*self.shape[:-1], blocks, block))
    inner, totals = x._scan_slices(op) if long else (x._scan_windows(op, block), x._reduce(op, -1, False))
    # negated totals are subtracted: 0.0 from the first block, which changes nothing, not even a zero
    turned = signed and long
    totals = (totals.neg() if turned else totals)._scan_last(op)
    before = totals._select_axis(totals.ndim - 1, 0, blocks - 1)._pad_identity(1, op, front=True)
    out = inner.alu(op, (before.neg() if turned else before).unsqueeze(-1).expand(inner.shape))
    if signed and not long:
      out = (x._along(x.ndim - 2).eq(0) & x._along(x.ndim - 1).eq(0)).where(x, out)
    return out.reshape((*self.shape[:-1], blocks * block))._select_axis(self.ndim - 1, 0, n)

  def _scan_slices(self, op: Ops) -> tuple[Self, Self]:
    """(the last axis, of a few elements, scanned; its total): by as many operations as there are elements. Each slice
    of the axis is added to the one before it, so that lanes are neighbouring blocks."""
    *lead, block = (int(s) for s in self.shape)
    parts = slices(self.uop, (1, math.prod(lead), block, 1))
    running = list(itertools.accumulate(parts, lambda a, b: a.alu(op, b)))
    scanned = side_by_side(running, self._count_up(block).uop)
    # not the last running one: a kernel that shares its terms with another one would have them in memory
    while len(parts) > 1:
      parts = [a.alu(op, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return self._derive(scanned.reshape(self.shape)), self._derive(parts[0].reshape(lead).contiguous())

  def _scan_windows(self, op: Ops, n: int) -> Self:
    """The same for an axis of size `n` as n reductions of windows: n² operations, but one kernel."""
    x = self._pad_identity(n - 1, op, front=True)
    return windows(x, (n,), (1,), (1,))._reduce(op, -1, False)

  def _pad_identity(self, count: sint, op: Ops, front: bool) -> Self:
    """`count` elements that change nothing, before or after the last axis."""
    value = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(self.dtype)}[op]
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
    values = self._scan(axis, Ops.MAX)
    return values, self._positions_of(values, axis)

  def cummin(self, axis: int = 0) -> tuple[Self, Self]:
    """Running minimum, and the int32 position of its last occurrence so far."""
    values = self._opposite()._scan(axis, Ops.MAX)._opposite()
    return values, self._positions_of(values, axis)

  def _positions_of(self, running: Self, axis: int) -> Self:
    """Where the running extremum was last met: a running maximum of the positions at which it is attained."""
    if self.ndim == 0:
      return self.const_like(0, dtypes.int32)
    here = self.detach() == running.detach()
    if dtypes.is_float(self.dtype):
      here = here | self.isnan()
    place = normalize_axis(axis, self.ndim)
    return here.where(self._along(place), 0)._scan(place, Ops.MAX)

  def logcumsumexp(self, axis: int = 0) -> Self:
    """Running `logsumexp`: every window against its own maximum."""
    x, dtype = self._with_precision()
    place = normalize_axis(axis, self.ndim)
    if self.ndim == 0 or self.numel() == 0:
      return self._as_float()
    x = x.transpose(place, -1)
    size = x.shape[-1]
    n = upper(size)
    seen = windows(x._pad_identity(n - 1, Ops.MAX, front=True)._filled_up(x.ndim - 1), (n,), (1,), (1,))
    seen = seen if isinstance(size, int) else seen._select_axis(x.ndim - 1, 0, size)
    return seen.logsumexp(-1).transpose(place, -1)._as_dtype(dtype)
