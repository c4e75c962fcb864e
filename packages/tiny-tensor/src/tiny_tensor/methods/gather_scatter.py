"""Gather and scatter: elements read at and written to positions that tensors name, masked updates, search, runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Self, TypeVar, cast

from tiny_tensor.base import Operand, TensorBase
from tiny_tensor.methods.indexing import from_front
from tiny_tensor.naming import known_as
from tiny_tensor.shapes import at_most, broadcast_shape, normalize_axis
from tiny_uop import Ops, dtypes, prod

F = TypeVar("F", bound=Callable[..., Any])
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def along_an_axis(method: F) -> F:
  """A method that takes a tensor without axes, and such arguments, as vectors of one element."""

  @wraps(method)
  def call(self: TensorBase, *args: Any, **kwargs: Any) -> Any:
    if self.ndim:
      return method(self, *args, **kwargs)
    vectors = [a.reshape((a.numel(),)) if isinstance(a, TensorBase) else a for a in (*args, *kwargs.values())]
    named = dict(zip(kwargs, vectors[len(args) :], strict=True))
    return method(self.reshape((1,)), *vectors[: len(args)], **named).reshape(())

  return cast(F, call)


def asked(first: Any, *more: tuple[bool, Any]) -> Any:
  """A result, and with it those of others that are asked for."""
  wanted = [value for wish, value in more if wish]
  return (first, *wanted) if wanted else first


class GatherScatterMixin(TensorBase):
  """index_select, take_along_dim, scatter, index_add, index_put, searchsorted, unique and their relatives: none changes
  `self`. Positions that no index names keep the values of `self`.
  """

  __slots__ = ()

  def _index_vector(self, what: str, index: Self) -> Self:
    """`index` as a vector. Raises ValueError or TypeError where it is not one of integers."""
    if index.ndim > 1:
      raise ValueError(f"{what} takes a vector of positions, got shape {index.shape}")
    if not dtypes.is_int(index.dtype):
      raise TypeError(f"{what} needs integer positions, got {index.dtype.name}")
    return index.reshape((index.numel(),))

  def _entries(self, what: str, dim: int, index: Self, source: Self) -> tuple[int, Self]:
    """(the axis, the entries along it that the vector `index` names, as positions for `scatter`). Raises ValueError for
    a source of another shape."""
    axis = normalize_axis(dim, self.ndim)
    vector = self._index_vector(what, index)
    expected = (*self.shape[:axis], vector.shape[0], *self.shape[axis + 1 :])
    if source.shape != expected:
      raise ValueError(f"{what} along {dim} of {self.shape} needs a source of shape {expected}, got {source.shape}")
    return axis, self._lying_along(axis, vector).expand(expected)

  def _lying_along(self, axis: int, vector: Self) -> Self:
    """A vector along an axis, of size 1 along the others of `self`."""
    return vector.reshape([-1 if i == axis else 1 for i in range(self.ndim)])

  # *** gather ***

  @along_an_axis
  def index_select(self, dim: int, index: Self) -> Self:
    """The entries along `dim` that the vector `index` names: `(…, len(index), …)`. A position outside reads 0."""
    return self[(slice(None),) * normalize_axis(dim, self.ndim) + (self._index_vector("index_select", index),)]

  def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
    """`out[i][j] = self[indices[i][j]][j]` for dim 0, as `gather`, but other axes broadcast (NumPy's
    `take_along_axis`). Without `dim`, positions in the flattened tensor.
    """
    if dim is None:
      return self.flatten().gather(0, indices.flatten())
    axis = normalize_axis(dim, self.ndim)
    if indices.ndim != self.ndim:
      raise ValueError(f"take_along_dim: indices of shape {indices.shape} need as many axes as {self.shape}")
    around = broadcast_shape(
      self.shape[:axis] + (1,) + self.shape[axis + 1 :], indices.shape[:axis] + (1,) + indices.shape[axis + 1 :]
    )
    x, index = (t.broadcast_to((*around[:axis], t.shape[axis], *around[axis + 1 :])) for t in (self, indices))
    return x.gather(axis, index)

  def take(self, index: Self) -> Self:
    """Elements of the flattened tensor, in the shape of `index`. A position outside reads 0."""
    return self.ravel()._gather_axes([(0, index)], False)

  # *** scatter ***

  def _scatter_operands(self, dim: int, index: Self, src: Operand) -> tuple[Self, Self]:
    """(src, hot): `hot`, of shape (…, size, count, …) with `dim` in two, says whether position p takes element k. The
    scheduler goes from k to p then where there are many of both, and not through all pairs."""
    axis = normalize_axis(dim, self.ndim)
    values = src if isinstance(src, TensorBase) else index._filled(index.shape, src, self.dtype)
    if index.ndim != self.ndim or values.ndim != self.ndim:
      raise ValueError(
        f"scatter needs as many axes everywhere, got {self.shape}, index {index.shape}, src {values.shape}"
      )
    if not dtypes.is_int(index.dtype):
      raise TypeError(f"scatter needs an integer index, got {index.dtype.name}")
    if not all(at_most(i, s) for i, s in zip(index.shape, values.shape, strict=True)):
      raise ValueError(f"scatter: index shape {index.shape} does not fit in src shape {values.shape}")
    if not all(at_most(i, s) for k, (i, s) in enumerate(zip(index.shape, self.shape, strict=True)) if k != axis):
      raise ValueError(f"scatter: index shape {index.shape} does not fit in {self.shape} outside axis {axis}")
    if values.dtype != self.dtype:
      raise TypeError(f"scatter: src has dtype {values.dtype.name}, expected {self.dtype.name}, that of self")
    size = self.shape[axis]
    wide = from_front(index, size)
    typed = self._wrap(values.uop, values.requires_grad, values._history)
    v = typed.shrink([(0, s) for s in index.shape])
    places = self._count_up(size, wide.dtype).reshape([size if i == axis else 1 for i in range(self.ndim + 1)])
    hot = wide.unsqueeze(axis) == places
    # other axes of self may be longer than those of the index
    around = [(0, 0 if k == axis else s - i) for k, (s, i) in enumerate(zip(self.shape, v.shape, strict=True))]
    return v._pad_zeros(around), hot._pad_zeros([*around[:axis], (0, 0), *around[axis:]])

  @along_an_axis
  def scatter(self, dim: int, index: Self, src: Operand, reduce: str | None = None) -> Self:
    """A copy with `out[index[i][j]][j] = src[i][j]` (for dim 0); of several values for a position the last counts.

    `reduce` "add" or "multiply" combines them all with what was there.
    """
    if reduce not in (None, "add", "multiply"):
      raise ValueError(f"reduce must be None, 'add' or 'multiply', got {reduce!r}")
    if reduce is not None:
      return self.scatter_reduce(dim, index, src, "sum" if reduce == "add" else "prod")
    return self._write_hot(*self._scatter_operands(dim, index, src), normalize_axis(dim, self.ndim))

  def _write_hot(self, values: Self, hot: Self, axis: int = -1) -> Self:
    """`self` `(…, size, …)` with values `(…, count, …)` along `axis` written where `hot` `(…, size, count, …)` says;
    the last one counts. Axes in front may be missing from hot."""
    axis = normalize_axis(axis, self.ndim)
    along = hot.ndim - self.ndim + axis
    if hot.shape[along] == 0:
      return self._apart()
    last = hot.where(hot._along(along) + 1, 0).max(along)
    every = values.broadcast_to((*self.shape[:axis], values.shape[axis], *self.shape[axis + 1 :]))
    return (last > 0).where(every.gather(axis, (last - 1).broadcast_to(self.shape)), self)

  @along_an_axis
  def scatter_reduce(self, dim: int, index: Self, src: Operand, reduce: str, include_self: bool = True) -> Self:
    """A copy in which each position combines all values that name it (and, with `include_self`, its own).

    `reduce`: "sum", "prod", "mean", "amax" or "amin".
    """
    if reduce not in REDUCTIONS:
      raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    axis = normalize_axis(dim, self.ndim)
    v, hot = self._scatter_operands(axis, index, src)
    if hot.shape[axis + 1] == 0:
      return self._apart()
    v = v.unsqueeze(axis)
    if reduce in ("amax", "amin"):
      old, new = (self._opposite(), v._opposite()) if reduce == "amin" else (self, v)
      most = hot.where(new, dtypes.min(self.dtype)).max(axis + 1)
      combined = old.maximum(most) if include_self else most
      combined = combined._opposite() if reduce == "amin" else combined
    elif reduce == "prod":
      total = hot.where(v, 1).prod(axis + 1, dtype=self.dtype)
      combined = self * total if include_self else total
    else:
      total = hot.where(v, 0).sum(axis + 1, dtype=self.dtype)
      combined = self.alu(Ops.ADD, total) if include_self else total
      if reduce == "mean":
        count = hot.sum(axis + 1) + (1 if include_self else 0)
        count = count.eq(0).where(1, count)
        combined = combined.div(count) if dtypes.is_float(self.dtype) else combined.floordiv(count)
        combined = combined._as_dtype(self.dtype)
    # with self included, what no index names has been combined with what changes nothing
    return combined if include_self else hot.any(axis + 1).where(combined, self)

  def scatter_add(self, dim: int, index: Self, src: Operand) -> Self:
    """A copy with `out[index[i][j]][j] += src[i][j]` (for dim 0): `scatter` that adds up all values for a position."""
    return self.scatter(dim, index, src, reduce="add")

  @along_an_axis
  def index_add(self, dim: int, index: Self, source: Self, alpha: float = 1) -> Self:
    """A copy with `alpha` times the entries of `source` along `dim` added to those that the vector `index` names.

    `source` has the shape of `self`, but for `dim`, where it has as many entries as `index`: ValueError.
    """
    axis, places = self._entries("index_add", dim, index, source)
    return self.scatter_add(axis, places, source if alpha == 1 else (source * alpha)._as_dtype(self.dtype))

  @along_an_axis
  def index_copy(self, dim: int, index: Self, source: Self) -> Self:
    """A copy with the entries of `source` along `dim` at those that the vector `index` names."""
    return self.scatter(*self._entries("index_copy", dim, index, source), source)

  @along_an_axis
  def index_reduce(self, dim: int, index: Self, source: Self, reduce: str, include_self: bool = True) -> Self:
    """A copy in which the entries along `dim` that `index` names are combined with those of `source`, by "prod",
    "mean", "amax" or "amin".
    """
    return self.scatter_reduce(*self._entries("index_reduce", dim, index, source), source, reduce, include_self)

  @along_an_axis
  def index_fill(self, dim: int, index: Self, value: Operand) -> Self:
    """A copy with `value` in the entries along `dim` that the vector `index` names."""
    axis = normalize_axis(dim, self.ndim)
    vector = self._index_vector("index_fill", index)
    if not vector.numel():
      return self._apart()
    named = from_front(vector, self.shape[axis])._hot(int(self.shape[axis])).any(0)
    return self._lying_along(axis, named).where(value, self)._as_dtype(self.dtype)

  def put(self, index: Self, source: Self, accumulate: bool = False) -> Self:
    """A copy with the elements of `source` at positions of the flattened tensor, or added to them."""
    out = self.ravel().scatter(0, index.ravel(), source.ravel(), "add" if accumulate else None)
    return out.reshape(self.shape)

  def index_put(self, indices: Sequence[Self | None], values: Operand, accumulate: bool = False) -> Self:
    """A copy with `values` where `self[indices]` reads (integers, masks, None for a whole axis), or with them added."""
    target: Any = self._count_up(int(prod(self.shape))).reshape(self.shape)
    places = target[tuple(slice(None) if i is None else i for i in indices)]
    amounts = self._operand(values)._as_dtype(self.dtype).broadcast_to(places.shape)
    return self.put(places, amounts, accumulate)

  def masked_scatter(self, mask: Self, source: Self) -> Self:
    """A copy with the elements of `source`, in order, where `mask` (which broadcasts) holds."""
    if not dtypes.is_bool(mask.dtype):
      raise TypeError(f"masked_scatter takes a mask of bool, got {mask.dtype.name}")
    shape = broadcast_shape(self.shape, mask.shape)
    x, wanted = self.broadcast_to(shape), mask.broadcast_to(shape)
    if 0 in shape or source.numel() == 0:
      return x._apart()
    place = (wanted.ravel().cumsum(0) - 1).clamp(0, None).reshape(shape)
    return wanted.where(source.take(place), x)

  def fill(self, value: Operand) -> Self:
    """A tensor of this shape and dtype, filled with `value`."""
    filler = self._operand(value)
    if filler.ndim:
      raise ValueError(f"fill takes one number, got shape {filler.shape}")
    return filler._as_dtype(self.dtype).broadcast_to(self.shape)._apart()._flat_in(self)

  # *** by value ***

  def searchsorted(
    self, values: Operand, right: bool = False, side: str | None = None, sorter: Self | None = None,
    out_int32: bool = True,
  ) -> Self:  # fmt: skip
    """int32 positions (int64 unless `out_int32`) at which `values` would go into the ascending last axis of `self`, so
    that it stays sorted: before equal elements, behind them with `right` (or `side` "right"). NaN is greater than every
    number. `sorter` are positions that put `self` in order, if it is not.

    `self` is a vector, or has the shape of `values` but for the last axis: ValueError. Order is not checked.
    """
    if side not in (None, "left", "right"):
      raise ValueError(f"side must be 'left' or 'right', got {side!r}")
    if sorter is not None:
      return self.gather(-1, sorter).searchsorted(values, right, side, None, out_int32)
    wanted = self._operand(values).detach()
    if self.ndim == 0 or (self.ndim > 1 and self.shape[:-1] != wanted.shape[:-1]):
      raise ValueError(
        f"searchsorted: shapes {self.shape} and {wanted.shape} must agree but for the last axis, "
        "or what is searched must be a vector"
      )
    common = dtypes.promote(self.dtype, wanted.dtype)
    # each step of the search reads both: what is computed is computed once
    inside, wanted = (t._as_dtype(common).contiguous() for t in (self.detach(), wanted))
    size = int(self.shape[-1])
    found = self._filled(wanted.shape, 0, dtypes.int32)
    for step in (1 << bit for bit in reversed(range(size.bit_length()))):
      place = found + (step - 1)
      there = inside._gather_axes([(0, place)], False) if self.ndim == 1 else inside.gather(-1, place)
      before = there._not_after(wanted) if right or side == "right" else wanted._not_after(there).logical_not()
      found = ((place < size) & before).where(found + step, found)
    return found if out_int32 else found._as_dtype(dtypes.int64)

  def _not_after(self, other: Self) -> Self:
    """`self <= other`, where NaN is greater than every number and equal to itself."""
    below = self <= other
    return below | other.isnan() if dtypes.is_float(self.dtype) else below

  @known_as(sorted="sorted_")
  def unique(
    self, sorted_: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
  ) -> Any:
    """The different elements, ascending; with them, if asked for, the int32 position of each element of `self` among
    them (of the shape of `self`), and how often each occurs. Every NaN is different from every other, as in PyTorch.

    With `dim`, the different slices along it, in the order of their elements (as of words in a lexicon), the position
    of each slice, and how often each occurs. Computes the tensor, as the shape depends on it.
    """
    if dim is None:
      x, shape = self.flatten(), self.shape
      ordered, order = x.sort(0)
    else:
      # slices are sorted by one element after the other, the last one first
      x = self.movedim(dim, 0)
      n, shape = int(x.shape[0]), x.shape[:1]
      rows, order = x.reshape((n, x.numel() // n if n else 0)), self._count_up(n)
      for column in reversed(range(int(rows.shape[1]))):
        order = order[rows[:, column][order].argsort(0).reshape((n,))]
      ordered = x[order]
    values, number, counts = ordered._runs()
    # the order of the order: where each element went
    inverse = number[order.argsort(0)] if number.numel() else number
    values = values if dim is None else values.movedim(0, dim)
    return asked(values, (return_inverse, inverse.reshape(shape)), (return_counts, counts))

  def unique_consecutive(
    self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
  ) -> Any:
    """The first of each run of equal elements (or slices along `dim`); with them, if asked for, the int32 number of the
    run of each element, and how long the runs are. Computes the tensor.
    """
    x = self.ravel() if dim is None else self.transpose(0, dim)
    shape = self.shape if dim is None else (x.shape[0],)
    values, number, counts = x._runs()
    values = values if dim is None else values.transpose(0, dim)
    return asked(values, (return_inverse, number.reshape(shape)), (return_counts, counts))

  def _runs(self) -> tuple[Self, Self, Self]:
    """(the first slice along axis 0 of each run of equal ones, the number of the run of each slice, their lengths)."""
    n = int(self.shape[0])
    if n == 0:
      none = self._filled((0,), 0, dtypes.int32)
      return self, none, none
    changed = self._select_axis(0, 1, n).ne(self._select_axis(0, 0, n - 1))
    changed = changed.any(tuple(range(1, self.ndim))) if self.ndim > 1 else changed
    first = changed.pad([(1, 0)], value=True)
    starts = first.nonzero().squeeze(1)
    ends = starts[1:].cat(self._filled((1,), n, dtypes.int32))
    return self[starts], first.cumsum(0) - 1, ends - starts

  def unravel_index(self, shape: int | Sequence[int]) -> tuple[Self, ...]:
    """Positions in a flattened tensor of this shape as one tensor of positions for each axis."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    out: list[Self] = []
    rest = self
    for size in reversed(sizes):
      out.insert(0, rest.mod(size))
      rest = rest.floordiv(size)
    return tuple(out)

  def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
    """How often 0, 1, 2, … occur in a vector of integers, int32; or the sums of their `weights`.

    Computes the tensor: the result ends with its largest element, or has `minlength` elements if that is more. Raises
    ValueError for negative elements.
    """
    if self.ndim != 1 or not dtypes.is_int(self.dtype):
      raise ValueError(f"bincount takes a vector of integers, got {self.dtype.name} of shape {self.shape}")
    if weights is not None and weights.shape != self.shape:
      raise ValueError(f"bincount: weights have shape {weights.shape}, expected {self.shape}")
    if minlength < 0:
      raise ValueError(f"bincount: minlength must not be negative, got {minlength}")
    low, high = (0, -1) if self.shape[0] == 0 else (int(self.min().item()), int(self.max().item()))
    if low < 0:
      raise ValueError(f"bincount counts from 0 on, the tensor has an element {low}")
    amounts = self._filled(self.shape, 1, dtypes.int32) if weights is None else weights
    return amounts._filled((max(high + 1, minlength),), 0).scatter_add(0, self, amounts)
