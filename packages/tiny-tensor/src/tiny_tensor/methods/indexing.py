"""Reading with `t[...]`: an index as one record per axis; views for integers and slices, one-hot sums (which the
scheduler turns into loads) for tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Literal, Self, TypeVar, cast, overload

from tiny_tensor.autograd import tracing
from tiny_tensor.base import Scalar, TensorBase, python_number, together
from tiny_tensor.shapes import Shape, at_most, broadcast_shape, greatest, least, lower, normalize_axis, upper
from tiny_uop import UOp, dtypes, sint
from tiny_uop.records import dataclass
from tiny_uop.shape import simple_size

T = TypeVar("T", bound=TensorBase)
SHORT = 1 << 12
"""Elements up to which a search looks at all."""


@dataclass(frozen=True)
class Pick:
  """An integer: the axis goes."""

  start: sint


@dataclass(frozen=True)
class Span:
  """A slice: `count` elements from `start`, `step` apart (negative: backwards). With symbolic bounds `stop` is the
  end, and `count` how many elements are before it; with a negative step they are looked at from the end.
  """

  start: sint
  count: sint
  step: int
  stop: sint | None = None


@dataclass(frozen=True)
class NewAxis:
  """An axis that was not there: of size 1 for None and True, of size 0 for False."""

  count: int = 1


@dataclass(frozen=True, eq=False)
class Gather:
  """A tensor of integers: its shape takes the place of the axis."""

  index: TensorBase


Entry = Pick | Span | NewAxis | Gather


def single_index(entry: Any) -> Any:
  """A NumPy scalar, or an array of integers without axes, as the Python number; anything else as it is."""
  if hasattr(entry, "__array_interface__") and entry.shape == () and entry.dtype.kind in "iu":
    return int(entry)
  return python_number(entry)


def expand_ellipsis(entries: tuple[Any, ...], ndim: int, shape: Shape) -> tuple[Any, ...]:
  """Full slices in the place of `...` and behind. Raises IndexError when there are too many indices."""
  dots = [i for i, e in enumerate(entries) if e is Ellipsis]
  if len(dots) > 1:
    raise IndexError("an index can hold only one ellipsis (...)")
  masks = [e.ndim for e in entries if isinstance(e, TensorBase) and dtypes.is_bool(e.dtype)]
  used = len(entries) - len(dots) - sum(e is None for e in entries) + sum(masks) - len(masks)
  if used > ndim:
    raise IndexError(f"too many indices: {used} for a tensor of shape {shape} with {ndim} axes")
  fill = (slice(None),) * (ndim - used)
  at = dots[0] if dots else len(entries)
  return entries[:at] + fill + entries[at + len(dots) :]


def span_of(entry: slice, size: sint, axis: int) -> Span:
  """A slice against an axis. Symbolic bounds must be in range for all values of their variables; numbers are cut off at
  the ends of the axis, as in Python."""
  if any(isinstance(v, UOp) for v in (entry.start, entry.stop, size)):
    return symbolic_span(entry, size, axis)
  for value in (entry.start, entry.stop, entry.step):
    if value is not None and not hasattr(value, "__index__"):
      raise TypeError(f"slice bounds are integers or None, got {entry} for axis {axis}")
  if entry.step is not None and entry.step.__index__() == 0:
    raise ValueError(f"slice step cannot be zero: {entry} for axis {axis}")
  start, stop, step = entry.indices(int(size))
  return Span(start, len(range(start, stop, step)), step)


def symbolic_span(entry: slice, size: sint, axis: int) -> Span:
  """`span_of` with a bound or a size that is an expression."""
  step = 1 if entry.step is None else entry.step.__index__()
  if step == 0 or (step < 0 and (entry.start is not None or entry.stop is not None)):
    raise IndexError(f"{entry} for axis {axis}: a slice with symbolic bounds must have a positive step, or only a step")
  first = 0 if entry.start is None else end_of(entry.start, size, axis)
  last = size if entry.stop is None else end_of(entry.stop, size, axis)
  # what comes of a number is in range, which could not be proved of the smaller of two sizes
  low = first if isinstance(entry.start, UOp) else 0
  check_symbolic(low, last if isinstance(entry.stop, UOp) or isinstance(last, int) else low, size, axis)
  if entry.start is not None and entry.stop is not None:
    last = greatest(first, last)
  return Span(first, simple_size(last - first), step, last)


def end_of(end: Any, size: sint, axis: int) -> sint:
  """An end of a slice: an expression, or a number, counted from the end of the axis if it is negative, and never beyond
  its ends."""
  if isinstance(end, UOp):
    return end
  if not hasattr(end, "__index__"):
    raise TypeError(f"slice bounds are integers or None, got {end!r} for axis {axis}")
  number = end.__index__()
  return greatest(0, number + size) if number < 0 else least(number, size)


def check_symbolic(start: sint, stop: sint, size: sint, axis: int) -> None:
  """Raises IndexError where [start, stop) can leave an axis: nothing checks it when a kernel runs."""
  # every axis has a beginning, also one whose size is not seen to be 0 at least
  if not all(
    at_most(0, end) and at_most(end, size) for end in (start, stop) if not (isinstance(end, int) and end == 0)
  ):
    shown = [end.render() if isinstance(end, UOp) else str(end) for end in (start, stop, size)]
    what = shown[0] if start is stop else f"{shown[0]} to {shown[1]}"
    low, high = lower(simple_size(start)), upper(simple_size(stop))
    raise IndexError(
      f"{what} can reach from {low} to {high}, which is out of range for axis {axis} of size {shown[2]}: "
      "give the variables bounds with which it cannot"
    )


def pick_of(entry: Any, size: sint, axis: int, shape: Shape) -> Pick:
  """An integer against an axis. Raises IndexError naming index, axis and size."""
  place = entry if isinstance(entry, UOp) else entry.__index__()
  if not isinstance(entry, UOp) and place < 0:
    place = place + size
  if isinstance(place, UOp) or isinstance(size, UOp):
    check_symbolic(place, place + 1, size, axis)
  elif not 0 <= place < size:
    raise IndexError(f"index {entry} is out of range for axis {axis} of size {size} in shape {shape}")
  return Pick(place)


def resolve(entries: Sequence[Any], shape: Shape) -> list[Entry]:
  """Entries with tensors, ints, slices and None against a shape. Tensors here hold integers."""
  out: list[Entry] = []
  axis = 0
  for entry in entries:
    if entry is None or isinstance(entry, NewAxis):
      out.append(entry or NewAxis())
      continue
    if isinstance(entry, slice):
      out.append(span_of(entry, shape[axis], axis))
    elif isinstance(entry, TensorBase):
      if not dtypes.is_int(entry.dtype):
        raise IndexError(f"a tensor used as an index must hold integers or bool, got {entry.dtype.name}")
      out.append(Gather(entry))
    elif isinstance(entry, UOp) or (hasattr(entry, "__index__") and not isinstance(entry, bool)):
      out.append(pick_of(entry, shape[axis], axis, shape))
    else:
      raise IndexError(f"{entry!r} cannot index axis {axis}: use an integer, slice, None, ... or an integer tensor")
    axis += 1
  return out


def gathers_of(entries: Sequence[Entry]) -> tuple[list[tuple[int, Any]], bool]:
  """The axis in the view and the tensor of each index that is one; and whether their axes go to the front, as they do
  where other axes are between them (NumPy, PyTorch)."""
  in_view = [e for e in entries if not isinstance(e, Pick)]
  found = [(axis, e.index) for axis, e in enumerate(in_view) if isinstance(e, Gather)]
  return found, any(b != a + 1 for (a, _), (b, _) in zip(found, found[1:]))


def from_front(index: T, size: sint) -> T:
  """Positions counted from the front, in a dtype that holds them and the size of the axis."""
  kind = index.dtype if index.dtype in (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64) else dtypes.int32
  wide = index._as_dtype(dtypes.int64 if upper(size) >= 1 << 31 else kind)
  return wide if dtypes.is_unsigned(index.dtype) else (wide < 0).where(wide + size, wide)


class IndexingMixin(TensorBase):
  """__getitem__, gather and masks."""

  __slots__ = ()

  def _parse_index(self, key: Any) -> list[Entry]:
    """The key as one record per axis. Lists become tensors, masks the positions where they hold."""
    entries = expand_ellipsis(
      tuple(
        self._index_tensor(e) if isinstance(e, (list, tuple, bool)) or hasattr(e, "__array_interface__") else e
        for e in map(single_index, key if isinstance(key, tuple) else (key,))
      ),
      self.ndim,
      self.shape,
    )
    plain: list[Any] = []
    for entry in entries:
      if isinstance(entry, TensorBase) and dtypes.is_bool(entry.dtype):
        mask = cast(Self, entry)
        axis = sum(1 for p in plain if not (p is None or isinstance(p, NewAxis)))
        if mask.shape != self.shape[axis : axis + mask.ndim]:
          raise IndexError(f"a mask of shape {mask.shape} does not fit axes {axis}… of shape {self.shape}")
        positions = mask.nonzero()
        plain += [] if mask.ndim else [NewAxis(int(positions.shape[0]))]
        plain += [positions._select_axis(1, i, i + 1).squeeze(1) for i in range(mask.ndim)]
      else:
        plain.append(entry)
    if any(isinstance(p, NewAxis) for p in plain) and any(isinstance(p, TensorBase) for p in plain):
      raise IndexError("a bool scalar cannot stand next to index tensors")
    return resolve(plain, self.shape)

  def _index_tensor(self, entry: Any) -> Self:
    """A list or tuple, of tensors too, or a NumPy array as an index."""
    if isinstance(entry, TensorBase):
      return cast(Self, entry)
    if isinstance(entry, (list, tuple)):
      if any(isinstance(e, (TensorBase, list, tuple)) for e in entry):
        parts = [self._index_tensor(e) for e in entry]
        return parts[0].stack(*parts[1:])
      kind = None if entry else dtypes.default_int
      return type(self)(list(entry), dtype=kind, device=self.device)  # type: ignore[call-arg]
    return type(self)(entry, device=self.device)  # type: ignore[call-arg]

  def __getitem__(self, key: Any) -> Self:
    """Elements by integers, slices, None, `...`, integer tensors and masks, as in NumPy. Raises IndexError out of
    range. A bool is a mask without axes: the result has an axis of size 1 or 0 in its place.

    Values of an index tensor are not checked: a position outside reads 0.
    """
    entries = self._parse_index(key)
    view = self._view_of(entries)
    gathers, front = gathers_of(entries)
    if not gathers:
      return view
    tensors: list[Self] = [view, *[g for _, g in gathers]]
    view, *indices = together(tensors)
    gathers = [(axis, index) for (axis, _), index in zip(gathers, indices, strict=True)]
    return view._gather_axes(gathers, front)

  def __iter__(self) -> Iterator[Self]:
    """The tensors along the first axis. Raises TypeError for a 0-d tensor."""
    if not self.ndim:
      raise TypeError("a 0-d tensor cannot be iterated over")
    for i in range(len(self)):
      yield self[i] if isinstance(self.shape[0], int) else self._select_axis(0, i, i + 1).reshape(self.shape[1:])

  def _view_of(self, entries: list[Entry]) -> Self:
    """The part of the index that is movement: integers, slices, new axes. Axes with a tensor stay whole."""
    x = self
    axis = 0
    shape: list[sint] = []
    empty: list[int] = []
    for entry in entries:
      if isinstance(entry, NewAxis):
        empty += [] if entry.count else [len(shape)]
        shape.append(1)
        continue
      size = self.shape[axis]
      if isinstance(entry, Pick):
        x = x._select_axis(axis, entry.start, entry.start + 1)
      elif isinstance(entry, Span):
        x = x._span(axis, entry)
        shape.append(x.shape[axis])
      else:
        shape.append(size)
      axis += 1
    x = x.reshape(tuple(shape))
    for place in empty:
      x = x._select_axis(place, 0, 0)
    return x

  def _span(self, axis: int, entry: Span) -> Self:
    """A slice of one axis."""
    start, count, step = entry.start, entry.count, entry.step
    if entry.stop is not None:
      return self._select_axis(axis, start, entry.stop)._steps(axis, step)
    if isinstance(count, int) and count == 0:
      return self._select_axis(axis, 0, 0)
    if step == 1:
      return self._select_axis(axis, start, start + count)
    assert isinstance(start, int) and isinstance(count, int)
    x, size, stride = self, int(self.shape[axis]), abs(step)
    if step < 0:
      x, start = x.flip(axis), size - 1 - start
    if stride == 1 or count == 1:
      return x._select_axis(axis, start, start + count)
    # rows of `stride` elements, of which the first counts; where the axis ends too early for the last row, it begins
    # anew: that is still a view, in which writes are seen
    x = x._twice(axis) if start + count * stride > size else x
    return x._select_axis(axis, start, start + count * stride)._rows(axis, count, stride)

  def _steps(self, axis: int, step: int) -> Self:
    """Every so many elements of an axis of symbolic size, from the end if `step` is negative."""
    x, stride = self if step > 0 else self.flip(axis), abs(step)
    if stride == 1:
      return x
    count = (x.shape[axis] + stride - 1) // stride
    behind = [(0, count * stride - s) if i == axis else (0, 0) for i, s in enumerate(x.shape)]
    return x._pad_zeros(behind)._rows(axis, count, stride)

  def _twice(self, axis: int) -> Self:
    """An axis followed by itself."""
    before, size, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
    return self.reshape((*before, 1, size, *after)).expand((*before, 2, size, *after)).flatten(axis, axis + 1)

  def _rows(self, axis: int, count: sint, stride: int) -> Self:
    """Every `stride`-th of `count * stride` elements."""
    shape = self.shape
    x = self.reshape((*shape[:axis], count, stride, *shape[axis + 1 :]))._select_axis(axis + 1, 0, 1)
    return x.reshape((*shape[:axis], count, *shape[axis + 1 :]))

  # *** tensors as indices ***

  def _gather_axes(self, gathers: Sequence[tuple[int, Self]], front: bool) -> Self:
    """Index axes by tensors of one (broadcast) shape, which takes the place of the first of them, or goes to the
    front.
    """
    shape = broadcast_shape(*(g.shape for _, g in gathers))
    axes = [axis for axis, _ in gathers]
    lead, k = self.ndim - len(axes), len(shape)
    x = self.movedim(axes, range(lead, self.ndim))
    x = x.reshape((*x.shape[:lead], *(1,) * k, *x.shape[lead:]))
    here: list[Self] = []
    for place, (axis, index) in enumerate(gathers):
      size = self.shape[axis]
      wide = from_front(index, size).broadcast_to(shape).reshape((*shape, *(1,) * len(axes)))
      along = [size if i == place else 1 for i in range(len(axes))]
      here.append(wide == self._count_up(size, wide.dtype).reshape(along))
    picked = reduce(operator.and_, here).where(x, 0)
    out = picked.sum(tuple(range(lead + k, picked.ndim)), dtype=self.dtype)
    at = 0 if front else axes[0]
    return out.movedim(range(lead, lead + k), range(at, at + k))

  def gather(self, dim: int, index: Self) -> Self:
    """`out[i][j] = self[index[i][j]][j]` for dim 0: values along `dim` picked by `index`, of as many axes."""
    axis = normalize_axis(dim, self.ndim)
    if not self.ndim and index.ndim <= 1:
      return self.reshape((1,)).gather(0, index.reshape((index.numel(),))).reshape(index.shape)
    if index.ndim != self.ndim or any(
      not at_most(i, s) for k, (i, s) in enumerate(zip(index.shape, self.shape, strict=True)) if k != axis
    ):
      raise ValueError(f"gather: index shape {index.shape} does not fit in {self.shape} outside axis {axis}")
    if not dtypes.is_int(index.dtype):
      raise TypeError(f"gather needs an integer index, got {index.dtype.name}")
    size = self.shape[axis]
    x = self.shrink([None if k == axis else (0, i) for k, i in enumerate(index.shape)]).transpose(axis, -1)
    return (
      from_front(index.transpose(axis, -1), size)
      ._hot(size)
      .where(x.unsqueeze(-2), 0)
      .sum(-1, dtype=self.dtype)
      .transpose(axis, -1)
    )

  @overload
  def nonzero(self, size: int | None = None, fill_value: Scalar = 0, as_tuple: Literal[False] = False) -> Self: ...

  @overload
  def nonzero(
    self, size: int | None = None, fill_value: Scalar = 0, *, as_tuple: Literal[True]
  ) -> tuple[Self, ...]: ...

  def nonzero(self, size: int | None = None, fill_value: Scalar = 0, as_tuple: bool = False) -> Self | tuple[Self, ...]:
    """int32 `(count, ndim)`: positions of the elements that are not zero, in order; with `as_tuple` a vector for each
    axis. Computes the tensor, as the shape depends on it; unless `size` says how many there shall be: the first ones,
    and rows of `fill_value` behind them where there are fewer.
    """
    if as_tuple:
      found = (self.reshape((1,)) if self.ndim == 0 else self).nonzero(size, fill_value)
      return tuple(found._select_axis(1, i, i + 1).squeeze(1) for i in range(int(found.shape[1])))
    # looked at twice, and by sums that look at each element several times
    flat = self._as_bool().flatten().detach().contiguous()
    if size is not None:
      return self._first_nonzero(flat, operator.index(size), fill_value)
    tracing.check_count(self.uop)
    count = int(flat.sum().item()) if flat.numel() != 0 else 0
    if self.ndim == 0:
      return self._count_up(0).reshape((count, 0)) if count == 0 else self._filled((count, 0), 0, dtypes.int32)
    if count == 0:
      return self._filled((0, self.ndim), 0, dtypes.int32)
    # before the k-th that holds are all those up to which there are fewer than k
    return self._positions(flat.cumsum(0).contiguous()._count_below(self._count_up(count) + 1))

  def argwhere(self) -> Self:
    """`nonzero`."""
    return self.nonzero()

  def _first_nonzero(self, flat: Self, size: int, fill_value: Scalar) -> Self:
    """The first `size` positions of this tensor where the flattened mask holds, and behind them `fill_value`."""
    if size < 0:
      raise ValueError(f"size must not be negative, got {size}")
    if 0 in (size, self.ndim, flat.numel()):
      return self._filled((size, self.ndim), fill_value, dtypes.int32)
    running = flat.cumsum(0).contiguous()
    total = running._select_axis(0, int(running.shape[0]) - 1, int(running.shape[0]))
    wanted = self._count_up(size) + 1
    found = self._positions(running._count_below(wanted.minimum(total)))
    return (wanted <= total).unsqueeze(-1).where(found, found.const_like(fill_value))

  def _positions(self, place: Self) -> Self:
    """Places in the flattened tensor as rows of indices, one for each axis."""
    columns = place.unravel_index([int(s) for s in self.shape])
    return columns[0].stack(*columns[1:], dim=-1)

  def _count_below(self, limits: Self) -> Self:
    """int32: how many elements of an ascending vector are less than each of a vector of limits, at most its last
    element. Of a long one, whole blocks are counted first, so that each limit takes 2·√n comparisons."""
    n, limits = int(self.shape[0]), limits.unsqueeze(-1)
    if n <= SHORT:
      return (self < limits).sum(-1)
    block = 1 << (n.bit_length() // 2)
    rows = self.pad([(0, -n % block)], value=dtypes.max(self.dtype)).reshape((-1, block))
    row = (rows._select_axis(1, block - 1, block).squeeze(1) < limits).sum(-1).contiguous()
    return row * block + (rows._gather_axes([(0, row)], False) < limits).sum(-1)

  def masked_select(self, mask: Self, size: int | None = None, fill_value: Scalar = 0) -> Self:
    """The elements where `mask` (which broadcasts) holds, as a vector. Computes the mask, as the shape depends on it;
    unless `size` says how many there shall be: the first ones, and `fill_value` behind them where there are fewer.
    """
    shape = broadcast_shape(self.shape, mask.shape)
    x, m = self.broadcast_to(shape).flatten(), mask.broadcast_to(shape).flatten()
    if size is None:
      return x[m.nonzero().squeeze(1)]
    places = m.nonzero(size, -1).squeeze(1)
    return (places < 0).where(fill_value, x[places]) if x.numel() else self._filled((size,), fill_value, self.dtype)
