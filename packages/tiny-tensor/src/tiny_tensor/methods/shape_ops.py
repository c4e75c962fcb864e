"""Shape operations made of views, `cat` and `pad`: moving axes, splitting, stacking, rotating, scattering slices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self, SupportsInt

from tiny_tensor.base import TensorBase
from tiny_tensor.shapes import args_to_tuple, broadcast_shape, normalize_axis


class ShapeOpsMixin(TensorBase):
  """Splitting, stacking and rotating by PyTorch's (and NumPy's) names."""

  __slots__ = ()

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

  def ravel(self) -> Self:
    """All elements as a vector."""
    return self.reshape((self.numel(),))

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
    self._at_least(2, "fliplr")
    return self.flip(1)

  def flipud(self) -> Self:
    """Axis 0 reversed. ValueError for none."""
    self._at_least(1, "flipud")
    return self.flip(0)

  def _at_least(self, axes: int, what: str) -> None:
    """ValueError for fewer axes."""
    if self.ndim < axes:
      raise ValueError(f"{what} needs at least {axes} axes, got shape {self.shape}")

  def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
    """Turned by 90 degrees `k` times, from the first of two axes towards the second."""
    if len(dims) != 2:
      raise ValueError(f"rot90 turns in a plane of two axes, got {tuple(dims)}")
    a, b = normalize_axis(dims[0], self.ndim), normalize_axis(dims[1], self.ndim)
    if a == b:
      raise ValueError(f"rot90 needs two different axes, got {tuple(dims)}")
    turned = (self, self.flip(b).transpose(a, b), self.flip((a, b)), self.transpose(a, b).flip(b))
    return turned[k % 4]

  def atleast_1d(self) -> Self:
    """Itself, or a vector of one element."""
    return self.reshape((1,)) if self.ndim == 0 else self

  def atleast_2d(self) -> Self:
    """Itself, or with axes in front."""
    return self.atleast_1d().unsqueeze(0) if self.ndim < 2 else self

  def atleast_3d(self) -> Self:
    """Itself, or with axes: one in front of a vector, one behind both."""
    return self.atleast_2d().unsqueeze(-1) if self.ndim < 3 else self

  def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
    """Matrices in two new axes with the last axis on a diagonal."""
    self._at_least(1, "diag_embed")
    n = int(self.shape[-1])
    total = self.ndim + 1
    a, b = normalize_axis(dim1, total), normalize_axis(dim2, total)
    if a == b:
      raise ValueError(f"a diagonal needs two different axes, got {dim1} and {dim2}")
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
    tensors = [t.atleast_1d() for t in (self, *others)]
    return tensors[0].cat(*tensors[1:], dim=0 if tensors[0].ndim == 1 else 1)

  def vstack(self, *others: Self) -> Self:
    """On top of each other: along axis 0, vectors as rows."""
    tensors = [t.atleast_2d() for t in (self, *others)]
    return tensors[0].cat(*tensors[1:], dim=0)

  def dstack(self, *others: Self) -> Self:
    """Behind each other: along axis 2."""
    tensors = [t.atleast_3d() for t in (self, *others)]
    return tensors[0].cat(*tensors[1:], dim=2)

  def column_stack(self, *others: Self) -> Self:
    """Side by side along axis 1, vectors as columns."""
    tensors = [t.reshape((t.numel(), 1)) if t.ndim < 2 else t for t in (self, *others)]
    return tensors[0].cat(*tensors[1:], dim=1)

  def block_diag(self, *others: Self) -> Self:
    """Matrices (or rows, or numbers) along the diagonal of one of zeros."""
    blocks = [t.atleast_2d() for t in (self, *others)]
    if any(t.ndim > 2 for t in blocks):
      raise ValueError(f"block_diag takes at most two axes, got {', '.join(str(t.shape) for t in blocks)}")
    width = sum(int(t.shape[1]) for t in blocks)
    rows, at = [], 0
    for t in blocks:
      size = int(t.shape[1])
      rows.append(t._pad_zeros([(0, 0), (at, width - at - size)]))
      at += size
    return rows[0].cat(*rows[1:], dim=0)

  def cartesian_prod(self, *others: Self) -> Self:
    """All combinations of an element of each vector as rows; a vector if there is only one."""
    if not others:
      return self
    grids = self.meshgrid(*others)
    first, *rest = [g.ravel() for g in grids]
    return first.stack(*rest, dim=-1)

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
      return self
    spaced = src.unsqueeze(axis + 1)._pad_zeros([(0, stride - 1 if i == axis + 1 else 0) for i in range(self.ndim + 1)])
    row = spaced.flatten(axis, axis + 1)._select_axis(axis, 0, (count - 1) * stride + 1)
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
    rows, cols = int(self.shape[a]), int(self.shape[b])
    if not src.numel():
      return self
    wide = src._as_dtype(self.dtype).diag_embed(offset)
    cut = [min(rows, int(wide.shape[-2])), min(cols, int(wide.shape[-1]))]
    lead = wide.ndim - 2
    wide = wide.shrink([*[None] * lead, (0, cut[0]), (0, cut[1])])
    wide = wide._pad_zeros([*[(0, 0)] * lead, (0, rows - cut[0]), (0, cols - cut[1])]).movedim((-2, -1), (a, b))
    on = (self._along(b) - self._along(a)).eq(offset)
    return on.where(wide, self)
