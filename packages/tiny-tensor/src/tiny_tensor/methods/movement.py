"""Views: operations that move elements and compute nothing."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self

from tiny_tensor.base import Bound, TensorBase, is_whole
from tiny_tensor.methods.narrowing import narrowed
from tiny_tensor.methods.windows import windows
from tiny_tensor.naming import known_as
from tiny_tensor.placement import DeviceLike
from tiny_tensor.shapes import (
  Shape,
  args_to_tuple,
  broadcast_shape,
  normalize_axes,
  normalize_axis,
  number,
  shape_of,
  upper,
)
from tiny_tensor.strides import is_in_order
from tiny_uop import UOp, prod, sint


class MovementMixin(TensorBase):
  """reshape, expand, permute, pad with zeros, shrink, flip, and what is made of them alone."""

  __slots__ = ()

  def reshape(self, shape: Any = (), *args: Any) -> Self:
    """The same elements in the same order. One size may be -1 (whatever is left), None keeps a size."""
    given = args_to_tuple((shape, *args))
    sizes = [self.shape[i] if s is None and i < self.ndim else s for i, s in enumerate(given)]
    if any(isinstance(s, int) and s == -1 for s in sizes):
      if sum(1 for s in sizes if isinstance(s, int) and s == -1) > 1:
        raise ValueError(f"only one size can be inferred, got {given}")
      rest = prod(s for s in sizes if not (isinstance(s, int) and s == -1))
      total = self.numel()
      known = isinstance(rest, int) and isinstance(total, int)
      if known and (rest == 0 or total % rest):
        raise ValueError(f"cannot reshape {self.shape} to {given}: {total} elements are not a multiple of {rest}")
      sizes = [total // rest if isinstance(s, int) and s == -1 else s for s in sizes]
    new = shape_of((tuple(sizes),))
    return self if new == self.shape else self._derive(self.uop.reshape(new))

  @known_as(size="shape")
  def view(self, shape: Any = (), *args: Any) -> Self:
    """`reshape`."""
    return self.reshape(shape, *args)

  @known_as(size="shape")
  def expand(self, shape: Any = (), *args: Any) -> Self:
    """Repeat axes of size 1; -1 or None keeps a size; axes may be added in front."""
    given = args_to_tuple((shape, *args))
    front = len(given) - self.ndim
    if front < 0:
      raise ValueError(f"cannot expand shape {self.shape} to {given}, which has fewer axes")
    old: Shape = (1,) * front + self.shape
    keep = [s is None or (isinstance(s, int) and s == -1) for s in given]
    return self.broadcast_to(shape_of((tuple(o if k else s for o, s, k in zip(old, given, keep, strict=True)),)))

  @known_as(dims="order")
  def permute(self, order: Any = (), *args: Any) -> Self:
    """Reorder the axes: axis i of the result is axis `order[i]`. ValueError unless each axis is named once."""
    given = args_to_tuple((order, *args))
    axes = tuple(normalize_axis(a, self.ndim) for a in given) if self.ndim else ()
    if sorted(axes) != list(range(self.ndim)):
      raise ValueError(f"permutation {given} does not name each of the {self.ndim} axes of {self.shape} once")
    return self._derive(self.uop.permute(axes))

  def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
    """Swap two axes, the first two unless others are given. IndexError for one that there is not."""
    order = list(range(self.ndim))
    a, b = normalize_axis(dim0, self.ndim), normalize_axis(dim1, self.ndim)
    if self.ndim:
      order[a], order[b] = order[b], order[a]
    return self.permute(tuple(order))

  @property
  def T(self) -> Self:
    """The last two axes swapped."""
    return self.transpose(-2, -1) if self.ndim >= 2 else self

  @known_as(dims="axis")
  def flip(self, axis: Any = (), *args: Any) -> Self:
    """Reverse axes, given one by one or as a tuple."""
    axes = normalize_axes(args_to_tuple((axis, *args)), self.ndim)
    return self._derive(self.uop.flip(axes)) if axes else self

  def shrink(self, arg: Sequence[Bound]) -> Self:
    """Keep [start, stop) of each axis; None keeps all of one."""
    if len(arg) != self.ndim:
      raise ValueError(f"shrink takes a (start, stop) or None for each of the {self.ndim} axes, got {arg}")
    return self._derive(narrowed(self.uop, [(0, s) if a is None else a for a, s in zip(arg, self.shape, strict=True)]))

  def shrink_to(self, shape: Any = (), *args: Any) -> Self:
    """Keep the first `shape` elements along each axis; None keeps all."""
    return self.shrink([None if s is None else (0, s) for s in args_to_tuple((shape, *args))])

  def _pad_zeros(self, padding: Sequence[tuple[sint, sint]]) -> Self:
    """Zeros around: (before, after) per axis, none negative."""
    return self._derive(self.uop.pad(padding))

  def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
    """Drop axis `dim`, or several, if the size is 1; all such axes without `dim`."""
    if dim is None:
      return self.reshape(tuple(s for s in self.shape if s != 1))
    if isinstance(dim, (tuple, list)):
      axes = normalize_axes(tuple(dim), self.ndim)
      return self.reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes or s != 1))
    assert isinstance(dim, int)
    axis = normalize_axis(dim, self.ndim)
    if not self.ndim or self.shape[axis] != 1:
      return self
    return self.reshape(self.shape[:axis] + self.shape[axis + 1 :])

  def unsqueeze(self, dim: int) -> Self:
    """Insert an axis of size 1."""
    axis = normalize_axis(dim, self.ndim, extra=1 if self.ndim else 0)
    return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

  def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
    """Join axes `start_dim` to `end_dim` into one."""
    start, end = normalize_axis(start_dim, self.ndim), normalize_axis(end_dim, self.ndim)
    return self.reshape((*self.shape[:start], prod(self.shape[start : end + 1]), *self.shape[end + 1 :]))

  def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
    """Split one axis into several; one size may be -1."""
    axis = normalize_axis(dim, self.ndim)
    known = prod(s for s in sizes if s != -1)
    filled = [self.shape[axis] // known if s == -1 else s for s in sizes] if known != 0 else list(sizes)
    return self.reshape((*self.shape[:axis], *filled, *self.shape[axis + 1 :]))

  def repeat(self, repeats: Any = (), *args: Any) -> Self:
    """Tile the tensor: how often along each axis, counted from the last."""
    times = args_to_tuple((repeats, *args))
    base = (1,) * (len(times) - self.ndim) + self.shape
    counts = (1,) * (len(base) - len(times)) + times
    spread = self.reshape([x for s in base for x in (1, s)]).expand(
      [x for r, s in zip(counts, base, strict=True) for x in (r, s)]
    )
    return spread.reshape([r * s for r, s in zip(counts, base, strict=True)])

  def repeat_interleave(
    self, repeats: sint | Self | Sequence[int], dim: int | None = None, output_size: int | None = None
  ) -> Self:
    """Repeat each element `repeats` times in a row; of the flattened tensor without `dim`. A tensor of counts, one for
    each entry, is computed: the shape depends on it. `output_size` is not needed.
    """
    x, axis = (self.reshape((self.numel(),)), 0) if dim is None else (self, normalize_axis(dim, self.ndim))
    if not isinstance(repeats, (int, UOp)):
      counts = [int(c) for c in (repeats.tolist() if isinstance(repeats, TensorBase) else repeats)]  # type: ignore[attr-defined]
      if len(counts) == 1:
        return x.repeat_interleave(counts[0], axis)
      if len(counts) != x.shape[axis] or min(counts, default=0) < 0:
        raise ValueError(f"repeats {counts} must be {x.shape[axis]} counts, one for each entry of axis {axis}")
      places = [i for i, count in enumerate(counts) for _ in range(count)]
      key = (slice(None),) * axis + (places,)
      return x[key] if places else x._select_axis(axis, 0, 0)
    shape = x.shape
    spread = x.reshape((*shape[: axis + 1], 1, *shape[axis + 1 :])).expand(
      (*shape[: axis + 1], repeats, *shape[axis + 1 :])
    )
    return spread.reshape((*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))

  def contiguous(self) -> Self:
    """The same values, in order in a buffer once realised; itself if that is so already, for a slice of a buffer too
    (`clone` copies)."""
    if not is_whole(self.uop):
      if not is_in_order(self.uop):
        return self._derive(self.uop.contiguous())
    return self

  def contiguous_backward(self) -> Self:
    """Itself; its gradient is materialised."""
    return self._derive(self.uop.contiguous_backward())

  def clone(self, device: DeviceLike = None) -> Self:
    """A copy in a buffer of its own, on the same device or another: writes to one are not seen by the other."""
    copy = self._derive((self if device is None else self.to(device)).uop.contiguous())
    copy._contents = object()
    return copy

  def _filled_up(self, *axes: int) -> Self:
    """Zeros behind axes of symbolic size, up to the largest that they can have: for what needs numbers as sizes, and
    gives elements of which those behind the size can be cut off again.
    """
    return self._pad_zeros(
      [(0, upper(s) - s) if isinstance(s, UOp) and i in axes else (0, 0) for i, s in enumerate(self.shape)]
    )

  def _select_axis(self, axis: int, start: sint, stop: sint) -> Self:
    """Keep [start, stop) of one axis."""
    return self.shrink([(start, stop) if i == axis else None for i in range(self.ndim)])

  def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
    """Pieces along `dim`: of one size (the last may be shorter) or of the sizes given, which must add up."""
    axis = normalize_axis(dim, self.ndim)
    total = int(self.shape[axis])
    if isinstance(sizes, int):
      if sizes <= 0:
        raise ValueError(f"split size must be positive, got {sizes}")
      sizes = [min(sizes, total - start) for start in range(0, max(total, 1), sizes)]
    if sum(sizes) != total:
      raise ValueError(f"split sizes {tuple(sizes)} add up to {sum(sizes)}, expected {total} of shape {self.shape}")
    stops = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return tuple(self._select_axis(axis, stop - size, stop) for size, stop in zip(sizes, stops, strict=True))

  def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
    """At most `chunks` pieces of equal size along `dim`; the last may be smaller."""
    if chunks <= 0:
      raise ValueError(f"chunks must be positive, got {chunks}")
    size = int(self.shape[normalize_axis(dim, self.ndim)])
    return list(self.split(-(-size // chunks), dim)) if size else [self] * chunks

  def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
    """The diagonal of two axes, moved to the end."""
    a, b = normalize_axis(dim1, self.ndim), normalize_axis(dim2, self.ndim)
    if a == b:
      raise ValueError(f"a diagonal needs two different axes, got {dim1} and {dim2}")
    x = self.permute(*[i for i in range(self.ndim) if i not in (a, b)], a, b)
    lead, rows, cols = (
      x.shape[:-2],
      number(x.shape[-2], "axes of a diagonal"),
      number(x.shape[-1], "axes of a diagonal"),
    )
    top, left = max(-offset, 0), max(offset, 0)
    n = max(min(rows - top, cols - left), 0)
    if n == 0:
      return x.reshape((*lead, rows * cols))._select_axis(len(lead), 0, 0)
    x = x.shrink([None] * len(lead) + [(top, top + n), (left, left + n)]).reshape((*lead, n * n))
    # element i of the diagonal is at i*(n+1): rows of n+1 after padding, then their first column
    x = x._pad_zeros([(0, 0)] * len(lead) + [(0, n)]).reshape((*lead, n, n + 1))
    return x._select_axis(len(lead) + 1, 0, 1).reshape((*lead, n))

  def diag(self, diagonal: int = 0) -> Self:
    """The square matrix with this vector on a diagonal; of a matrix, that diagonal."""
    if self.ndim == 2:
      return self.diagonal(diagonal)
    if self.ndim != 1:
      raise ValueError(f"diag takes a vector or a matrix, got shape {self.shape}")
    n = number(self.shape[0], "sizes of diagonal matrices")
    size = n + abs(diagonal)
    # rows of size + 1 elements, of which the first is ours, are a diagonal
    before = max(diagonal, 0) + max(-diagonal, 0) * size
    flat = (
      self.unsqueeze(-1)._pad_zeros([(0, 0), (0, size)]).reshape((n * (size + 1),))._pad_zeros([(before, size * size)])
    )
    return flat._select_axis(0, 0, size * size).reshape((size, size))

  def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
    """Shift elements along axes; what leaves at one end enters at the other. Without `dims`, of the flattened
    tensor.
    """
    if dims is None:
      return self.flatten().roll(shifts, 0).reshape(self.shape)
    steps = [operator.index(s) for s in (shifts if isinstance(shifts, (tuple, list)) else (shifts,))]
    axes = tuple(normalize_axis(d, self.ndim) for d in (dims if isinstance(dims, (tuple, list)) else (dims,)))
    if len(steps) != len(axes):
      raise ValueError(f"roll needs a shift per axis, got shifts {steps} and dims {axes}")
    out = self
    for step, axis in zip(steps, axes, strict=True):
      size = self.shape[axis]
      if isinstance(size, UOp) or (size and step % size):
        start = -step % size
        doubled = out.repeat(*[2 if i == axis else 1 for i in range(self.ndim)])
        out = doubled._select_axis(axis, start, start + size)
    return out

  def meshgrid(self, *others: Self, indexing: str = "ij") -> tuple[Self, ...]:
    """Coordinate grids from vectors, with matrix ("ij") or Cartesian ("xy") indexing."""
    if indexing not in ("ij", "xy"):
      raise ValueError(f"indexing must be 'ij' or 'xy', got {indexing!r}")
    tensors = (self, *others)
    if len(tensors) == 1:
      return (self.reshape((-1,)),)
    axes = tuple(range(len(tensors)))
    if indexing == "xy":
      axes = (1, 0, *axes[2:])
    views = [t.reshape((-1,) + (1,) * (len(axes) - 1 - i)) for i, t in zip(axes, tensors, strict=True)]
    shape = broadcast_shape(*(v.shape for v in views))
    return tuple(v.broadcast_to(shape) for v in views)

  def unfold(self, dim: int, size: sint, step: int) -> Self:
    """All windows of `size` along `dim`, `step` apart, as a new last axis."""
    if not self.ndim and size == 1:
      return self.reshape((1,))
    axis = normalize_axis(dim, self.ndim)
    if not isinstance(size, UOp) and (size < 0 or size > self.shape[axis]):
      raise ValueError(f"window size {size} must be between 0 and {self.shape[axis]}, the size of axis {dim}")
    order = [i for i in range(self.ndim) if i != axis]
    x = windows(self.permute(*order, axis), (int(size),), (step,), (1,))
    back = list(range(self.ndim - 1))
    back.insert(axis, self.ndim - 1)
    return x.permute(*back, self.ndim)
