"""Views, which move elements and compute nothing; splitting, stacking and rotating by PyTorch's and NumPy's names."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, Self, SupportsInt

from tiny_tensor.base import Bound, TensorBase, is_whole
from tiny_tensor.methods.joining import narrowed
from tiny_tensor.methods.windows import windows
from tiny_tensor.naming import known_as, unary
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


def two_axes(what: str, axes: Sequence[int], ndim: int) -> tuple[int, int]:
  """Two axes, counted from the front. ValueError if they are one."""
  a, b = [normalize_axis(axis, ndim) for axis in axes]
  if a == b:
    raise ValueError(f"{what} needs two different axes, got {axes[0]} and {axes[1]}")
  return a, b


class MovementMixin(TensorBase):
  """reshape, permute, shrink, flip, what is made of them, and of `cat` and `pad`."""

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
    axes = range(self.ndim) if dim is None else normalize_axes(dim, self.ndim)
    return self.reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes or s != 1))

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
    return self._repeated(args_to_tuple((repeats, *args)))._apart()

  def _repeated(self, times: tuple[sint, ...]) -> Self:
    """`repeat`, as a view."""
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
    spread = x.unsqueeze(axis + 1).expand([repeats if i == axis + 1 else -1 for i in range(x.ndim + 1)])
    return spread.flatten(axis, axis + 1)._apart()

  def contiguous(self) -> Self:
    """The same values, in order in a buffer once realised; itself if that is so already, for a slice of a buffer too
    (`clone` copies)."""
    return self if is_whole(self.uop) or is_in_order(self.uop) else self._derive(self.uop.contiguous())

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
    """The diagonal of two axes, moved to the end: a view, in which writes are seen."""
    a, b = two_axes("a diagonal", (dim1, dim2), self.ndim)
    x = self.permute(*[i for i in range(self.ndim) if i not in (a, b)], a, b)
    lead = x.shape[:-2]
    rows, cols = (number(s, "axes of a diagonal") for s in x.shape[-2:])
    top, left = max(-offset, 0), max(offset, 0)
    start, step = top * cols + left, cols + 1
    stop = start + step * max(min(rows - top, cols - left), 0)
    return x.reshape((*lead, rows * cols))[..., start:stop:step]

  def diag(self, diagonal: int = 0) -> Self:
    """The square matrix with this vector on a diagonal; of a matrix, that diagonal."""
    if self.ndim == 2:
      return self.diagonal(diagonal)._apart()
    if self.ndim != 1:
      raise ValueError(f"diag takes a vector or a matrix, got shape {self.shape}")
    number(self.shape[0], "sizes of diagonal matrices")
    return self.diag_embed(diagonal)

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
        doubled = out._repeated(tuple([2 if i == axis else 1 for i in range(self.ndim)]))
        out = doubled._select_axis(axis, start, start + size)
    return out._apart()

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
    return windows(self.movedim(axis, -1), (int(size),), (step,), (1,)).movedim(-2, axis)

  # *** views ***

  @property
  def H(self) -> Self:
    """The transposed matrix (conjugate, if there were complex numbers). ValueError for other than two axes."""
    return self.t() if self.ndim == 2 else self.mT

  @property
  def mT(self) -> Self:
    """The last two axes swapped. ValueError for fewer."""
    if self.ndim < 2:
      raise ValueError(f"mT needs at least two axes, got shape {self.shape}")
    return self.transpose(-2, -1)

  @property
  def mH(self) -> Self:
    """`mT`."""
    return self.mT

  def t(self) -> Self:
    """The transposed matrix; itself for fewer than two axes. ValueError for more."""
    if self.ndim > 2:
      raise ValueError(f"t takes at most two axes, got shape {self.shape}: use .transpose or .mT")
    return self.transpose(0, 1) if self.ndim == 2 else self

  def swapaxes(self, axis0: int, axis1: int) -> Self:
    """`transpose`."""
    return self.transpose(axis0, axis1)

  def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
    """Axes moved to other places; the rest keep their order."""
    old, new = (
      [normalize_axis(a, self.ndim) for a in ((v,) if isinstance(v, int) else tuple(v))] for v in (source, destination)
    )
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
      raise ValueError(f"movedim needs as many different destinations as sources, got {source} and {destination}")
    if not self.ndim:
      return self
    order = [a for a in range(self.ndim) if a not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
      order.insert(place, axis)
    return self.permute(*order)

  ravel = unary("All elements as a vector.", lambda x: x.reshape((x.numel(),)))

  def narrow(self, dim: int, start: SupportsInt, length: int) -> Self:
    """`length` elements along `dim` from `start`. IndexError out of range."""
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis])
    start = int(start)
    begin = start + size if start < 0 else start
    if not 0 <= begin <= begin + length <= size:
      raise IndexError(f"narrow: {start} and {length} more are not within axis {dim} of size {size}")
    return self._select_axis(axis, begin, begin + length)

  def select(self, dim: int, index: int) -> Self:
    """The slice at `index` along `dim`, without that axis. IndexError out of range."""
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis]) if self.ndim else 0
    if not -size <= index < size:
      raise IndexError(f"select: index {index} is out of range for axis {dim} of size {size}")
    return self._select_axis(axis, index % size, index % size + 1).squeeze(axis)

  def unbind(self, dim: int = 0) -> tuple[Self, ...]:
    """All slices along `dim`."""
    axis = normalize_axis(dim, self.ndim)
    return tuple(self.select(axis, i) for i in range(int(self.shape[axis])))

  def expand_as(self, other: Self) -> Self:
    """`expand` to the shape of `other`."""
    return self.expand(other.shape)

  def reshape_as(self, other: Self) -> Self:
    """`reshape` to the shape of `other`."""
    return self.reshape(other.shape)

  def view_as(self, other: Self) -> Self:
    """`view` with the shape of `other`."""
    return self.view(other.shape)

  def broadcast_tensors(self, *others: Self) -> tuple[Self, ...]:
    """All with their common shape; dtypes stay."""
    shape = broadcast_shape(self.shape, *(t.shape for t in others))
    return tuple(t.broadcast_to(shape) for t in (self, *others))

  def tile(self, *dims: Any) -> Self:
    """`repeat`, where missing counts in front are 1."""
    times = args_to_tuple(dims)
    return self.repeat((1,) * (self.ndim - len(times)) + times)

  def fliplr(self) -> Self:
    """Axis 1 reversed. ValueError for fewer axes."""
    return self._at_least(2, "fliplr").flip(1)

  def flipud(self) -> Self:
    """Axis 0 reversed. ValueError for none."""
    return self._at_least(1, "flipud").flip(0)

  def _at_least(self, axes: int, what: str) -> Self:
    """Itself. ValueError for fewer axes."""
    if self.ndim < axes:
      raise ValueError(f"{what} needs at least {axes} axes, got shape {self.shape}")
    return self

  def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
    """Turned by 90 degrees `k` times, from the first of two axes towards the second."""
    if len(dims) != 2:
      raise ValueError(f"rot90 turns in a plane of two axes, got {tuple(dims)}")
    a, b = two_axes("rot90", dims, self.ndim)
    turned = (self, self.flip(b).transpose(a, b), self.flip((a, b)), self.transpose(a, b).flip(b))
    return turned[k % 4]

  atleast_1d = unary("Itself, or a vector of one element.", lambda x: x.reshape((1,)) if x.ndim == 0 else x)
  atleast_2d = unary("Itself, or with axes in front.", lambda x: x.atleast_1d().unsqueeze(0) if x.ndim < 2 else x)
  atleast_3d = unary(
    "Itself, or with axes: one in front of a vector, one behind both.",
    lambda x: x.atleast_2d().unsqueeze(-1) if x.ndim < 3 else x,
  )

  def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
    """Matrices in two new axes with the last axis on a diagonal."""
    self._at_least(1, "diag_embed")
    n = int(self.shape[-1])
    a, b = two_axes("a diagonal", (dim1, dim2), self.ndim + 1)
    size = n + abs(offset)
    lead = self.shape[:-1]
    # rows of size + 1 elements with one of ours in front are a diagonal
    rows = self.unsqueeze(-1)._pad_zeros([*[(0, 0)] * self.ndim, (0, size)]).reshape((*lead, n * (size + 1)))
    before = max(offset, 0) + max(-offset, 0) * size
    flat = rows._pad_zeros([*[(0, 0)] * len(lead), (before, size * size)])
    x = flat._select_axis(len(lead), 0, size * size).reshape((*lead, size, size))
    return x.movedim((-2, -1), (a, b))

  def diagflat(self, offset: int = 0) -> Self:
    """The matrix with all elements on a diagonal."""
    return self.ravel().diag_embed(offset)

  # *** splitting ***

  def tensor_split(self, indices_or_sections: int | Sequence[int] | Self, dim: int = 0) -> tuple[Self, ...]:
    """As many pieces of (almost) equal size, or those between the positions given, which are cut like slices."""
    self._at_least(1, "tensor_split")
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis])
    if isinstance(indices_or_sections, TensorBase):
      return self.tensor_split(indices_or_sections.tolist(), dim)  # type: ignore[attr-defined]
    if isinstance(indices_or_sections, int):
      n = indices_or_sections
      if n <= 0:
        raise ValueError(f"tensor_split: the number of pieces must be positive, got {n}")
      small, more = divmod(size, n)
      return self.split([small + 1] * more + [small] * (n - more), axis)
    stops = [slice(i).indices(size)[1] for i in indices_or_sections] + [size]
    starts = [0, *[slice(i, None).indices(size)[0] for i in indices_or_sections]]
    return tuple(self._select_axis(axis, a, max(a, b)) for a, b in zip(starts, stops, strict=True))

  def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
    """tensor_split along axis 1, of a vector along 0; a number must divide the size: ValueError."""
    return self._even_split(indices_or_sections, 0 if self.ndim == 1 else 1, 1)

  def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
    """tensor_split along axis 0 of two axes or more; a number must divide the size: ValueError."""
    return self._even_split(indices_or_sections, 0, 2)

  def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
    """tensor_split along axis 2; a number must divide the size: ValueError."""
    return self._even_split(indices_or_sections, 2, 3)

  def _even_split(self, pieces: int | Sequence[int], axis: int, axes: int) -> tuple[Self, ...]:
    """tensor_split of at least `axes` axes, into equal pieces."""
    self._at_least(axes, "split")
    if isinstance(pieces, int) and (pieces <= 0 or int(self.shape[axis]) % pieces):
      raise ValueError(f"{pieces} pieces of axis {axis} of shape {self.shape} are not equal")
    return self.tensor_split(pieces, axis)

  # *** stacking: called as `a.hstack(b, c)` or `Tensor.hstack(a, b, c)` ***

  def hstack(self, *others: Self) -> Self:
    """Side by side: along axis 1, vectors along 0."""
    return type(self).cat(*[t.atleast_1d() for t in (self, *others)], dim=int(self.ndim > 1))

  def vstack(self, *others: Self) -> Self:
    """On top of each other: along axis 0, vectors as rows."""
    return type(self).cat(*[t.atleast_2d() for t in (self, *others)], dim=0)

  def dstack(self, *others: Self) -> Self:
    """Behind each other: along axis 2."""
    return type(self).cat(*[t.atleast_3d() for t in (self, *others)], dim=2)

  def column_stack(self, *others: Self) -> Self:
    """Side by side along axis 1, vectors as columns."""
    return type(self).cat(*[t.reshape((t.numel(), 1)) if t.ndim < 2 else t for t in (self, *others)], dim=1)

  def block_diag(self, *others: Self) -> Self:
    """Matrices (or rows, or numbers) along the diagonal of one of zeros."""
    blocks = [t.atleast_2d() for t in (self, *others)]
    if any(t.ndim > 2 for t in blocks):
      raise ValueError(f"block_diag takes at most two axes, got {', '.join(str(t.shape) for t in blocks)}")
    ends = list(itertools.accumulate(int(t.shape[1]) for t in blocks))
    sides = [(end - int(t.shape[1]), ends[-1] - end) for t, end in zip(blocks, ends, strict=True)]
    return type(self).cat(*[t._pad_zeros([(0, 0), side]) for t, side in zip(blocks, sides, strict=True)], dim=0)

  def cartesian_prod(self, *others: Self) -> Self:
    """All combinations of an element of each vector as rows; a vector if there is only one."""
    if not others:
      return self
    return type(self).stack(*[g.ravel() for g in self.meshgrid(*others)], dim=-1)

  def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
    """All choices of `r` elements of a vector, in order, as rows."""
    if self.ndim != 1:
      raise ValueError(f"combinations takes a vector, got shape {self.shape}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(choose(range(int(self.shape[0])), r))
    if not places or r == 0:
      return self._select_axis(0, 0, 0).reshape((0,) if r == 0 else (0, r))
    return self[places]

  # *** copies with a part of other values ***

  def slice_scatter(
    self, src: Self, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
  ) -> Self:
    """A copy with `src` in the slice start:end:step along `dim`."""
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis])
    first, stop, stride = slice(start, end, step).indices(size)
    count = len(range(first, stop, stride))
    expected = (*self.shape[:axis], count, *self.shape[axis + 1 :])
    if src.shape != expected:
      raise ValueError(f"slice_scatter: src has shape {src.shape}, expected {expected}")
    if not count:
      return self._apart()
    row = src._spaced(axis, stride)
    around = [(first, size - first - int(row.shape[axis])) if i == axis else (0, 0) for i in range(self.ndim)]
    place = self._along(axis)
    here = (place >= first) & (place < stop) & (place - first).mod(stride).eq(0)
    return here.where(row._pad_zeros(around)._as_dtype(self.dtype), self)

  def select_scatter(self, src: Self, dim: int, index: int) -> Self:
    """A copy with `src` in the place of the slice at `index` along `dim`."""
    axis = normalize_axis(dim, self.ndim)
    size = int(self.shape[axis])
    if not -size <= index < size or src.shape != self.shape[:axis] + self.shape[axis + 1 :]:
      raise ValueError(f"select_scatter of {src.shape} at {index} along {dim} does not fit shape {self.shape}")
    return self._along(axis).eq(index % size).where(src.unsqueeze(axis)._as_dtype(self.dtype), self)

  def diagonal_scatter(self, src: Self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
    """A copy with `src` on a diagonal of two axes."""
    a, b = normalize_axis(dim1, self.ndim), normalize_axis(dim2, self.ndim)
    if src.shape != self.diagonal(offset, a, b).shape:
      raise ValueError(f"diagonal_scatter: src has shape {src.shape}, expected {self.diagonal(offset, a, b).shape}")
    if not src.numel():
      return self._apart()
    before = max(-offset, 0)
    after = int(self.shape[a]) - int(src.shape[-1]) - before
    rows = src._as_dtype(self.dtype)._pad_zeros([*[(0, 0)] * (src.ndim - 1), (before, after)])
    on = (self._along(b) - self._along(a)).eq(offset)
    return on.where(rows.unsqueeze(-1).movedim((-2, -1), (a, b)), self)
