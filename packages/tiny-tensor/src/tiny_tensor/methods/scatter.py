"""scatter: values written to positions that a tensor names, as a new tensor."""

from __future__ import annotations

from typing import Self

from tiny_tensor.base import Operand, Scalar, TensorBase
from tiny_tensor.methods.indexing import index_dtype
from tiny_tensor.shapes import at_most, normalize_axis, upper
from tiny_uop import Ops, dtypes

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


class ScatterMixin(TensorBase):
  """scatter and scatter_reduce. Positions that no index names keep the values of `self`."""

  __slots__ = ()

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
    wide = index._as_dtype(index_dtype(index.dtype, upper(size)))
    wide = wide if dtypes.is_unsigned(index.dtype) else (wide < 0).where(wide + size, wide)
    typed = self._wrap(values.uop, values.requires_grad, values._history)
    v = typed.shrink([(0, s) for s in index.shape])
    places = self._count_up(size, wide.dtype).reshape([size if i == axis else 1 for i in range(self.ndim + 1)])
    hot = wide.unsqueeze(axis) == places
    # other axes of self may be longer than those of the index
    around = [(0, 0 if k == axis else s - i) for k, (s, i) in enumerate(zip(self.shape, v.shape, strict=True))]
    return v._pad_zeros(around), hot._pad_zeros([*around[:axis], (0, 0), *around[axis:]])

  def scatter(self, dim: int, index: Self, src: Operand, reduce: str | None = None) -> Self:
    """A copy with `out[index[i][j]][j] = src[i][j]` (for dim 0); of several values for a position the last counts.

    `reduce` "add" or "multiply" combines them all with what was there.
    """
    if reduce not in (None, "add", "multiply"):
      raise ValueError(f"reduce must be None, 'add' or 'multiply', got {reduce!r}")
    if not self.ndim:
      values = src.reshape((src.numel(),)) if isinstance(src, TensorBase) else src
      return self.reshape((1,)).scatter(dim, index.reshape((index.numel(),)), values, reduce).reshape(())
    if reduce is not None:
      values = src if isinstance(src, TensorBase) else index._filled(index.shape, src, self.dtype)
      typed = self._wrap(values.uop, values.requires_grad, values._history)
      return self.scatter_reduce(dim, index, typed, "sum" if reduce == "add" else "prod")
    return self._write_hot(*self._scatter_operands(dim, index, src), normalize_axis(dim, self.ndim))

  def _write_hot(self, values: Self, hot: Self, axis: int = -1) -> Self:
    """`self` `(…, size, …)` with values `(…, count, …)` along `axis` written where `hot` `(…, size, count, …)` says;
    the last one counts. Axes in front may be missing from hot."""
    axis = normalize_axis(axis, self.ndim)
    along = hot.ndim - self.ndim + axis
    if hot.shape[along] == 0:
      return self
    last = hot.where(hot._along(along) + 1, 0).max(along)
    every = values.broadcast_to((*self.shape[:axis], values.shape[axis], *self.shape[axis + 1 :]))
    return (last > 0).where(every.gather(axis, (last - 1).broadcast_to(self.shape)), self)

  def scatter_reduce(self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True) -> Self:
    """A copy in which each position combines all values that name it (and, with `include_self`, its own).

    `reduce`: "sum", "prod", "mean", "amax" or "amin".
    """
    if reduce not in REDUCTIONS:
      raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    if not self.ndim:
      place, values = (t.reshape((t.numel(),)) for t in (index, src))
      return self.reshape((1,)).scatter_reduce(dim, place, values, reduce, include_self).reshape(())
    axis = normalize_axis(dim, self.ndim)
    v, hot = self._scatter_operands(axis, index, src)
    if hot.shape[axis + 1] == 0:
      return self
    v = v.unsqueeze(axis)
    if reduce in ("amax", "amin"):
      flip = reduce == "amin"
      x_, v_ = (self._opposite(), v._opposite()) if flip else (self, v)
      most = hot.where(v_, dtypes.min(self.dtype)).max(axis + 1)
      combined = x_.maximum(most) if include_self else most
      combined = combined._opposite() if flip else combined
    elif reduce == "prod":
      total = hot.where(v, one_of(self)).prod(axis + 1, dtype=self.dtype)
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


def one_of(x: TensorBase) -> Scalar:
  """The neutral element of multiplication."""
  return True if dtypes.is_bool(x.dtype) else 1
