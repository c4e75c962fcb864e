"""Reading with `t[...]`: views for integers and slices, one-hot sums (which the scheduler turns into loads) for
tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, cast, overload

from tiny_tensor.autograd import tracing
from tiny_tensor.base import Scalar, TensorBase, together
from tiny_tensor.methods.index_parse import (
  Entry,
  NewAxis,
  Pick,
  Span,
  as_entries,
  expand_ellipsis,
  gathers_of,
  resolve,
  single_index,
)
from tiny_tensor.shapes import at_most, broadcast_shape, normalize_axis, upper
from tiny_uop import DType, dtypes, sint

SHORT = 1 << 12
"""Elements up to which a search looks at all."""


class IndexingMixin(TensorBase):
  """__getitem__, gather and masks."""

  __slots__ = ()

  def _parse_index(self, key: Any) -> list[Entry]:
    """The key as one record per axis. Lists become tensors, masks the positions where they hold."""
    entries = expand_ellipsis(
      tuple(
        self._index_tensor(e) if isinstance(e, (list, tuple, bool)) or hasattr(e, "__array_interface__") else e
        for e in map(single_index, as_entries(key))
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
    rest = [i for i in range(self.ndim) if i not in axes]
    x = self.permute(*rest, *axes)
    lead, k = len(rest), len(shape)
    x = x.reshape((*x.shape[:lead], *(1,) * k, *x.shape[lead:]))
    hot: Self | None = None
    for place, (axis, index) in enumerate(gathers):
      size = self.shape[axis]
      wide = index._as_dtype(index_dtype(index.dtype, upper(size)))
      wide = wide if dtypes.is_unsigned(index.dtype) else (wide < 0).where(wide + size, wide)
      wide = wide.broadcast_to(shape).reshape((*shape, *(1,) * len(axes)))
      here = wide == self._count_up(size, wide.dtype).reshape([size if i == place else 1 for i in range(len(axes))])
      hot = here if hot is None else hot & here
    assert hot is not None
    picked = hot.where(x, 0)
    out = picked.sum(tuple(range(lead + k, picked.ndim)), dtype=self.dtype)
    at = 0 if front else axes[0]
    order = [*range(at), *range(lead, lead + k), *range(at, lead)]
    return out.permute(*order)

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
    wide = index._as_dtype(index_dtype(index.dtype, upper(size))).transpose(axis, -1)
    wide = wide if dtypes.is_unsigned(index.dtype) else (wide < 0).where(wide + size, wide)
    return wide._hot(size).where(x.unsqueeze(-2), 0).sum(-1, dtype=self.dtype).transpose(axis, -1)

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
    columns = []
    for size in reversed([int(s) for s in self.shape]):
      columns.append(place.mod(size))
      place = place.floordiv(size)
    return columns[-1].stack(*columns[-2::-1], dim=-1)

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


def index_dtype(dtype: DType, size: int) -> DType:
  """A dtype that holds an index and the size of the axis."""
  if size >= 1 << 31:
    return dtypes.int64
  return dtype if dtype in (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64) else dtypes.int32
