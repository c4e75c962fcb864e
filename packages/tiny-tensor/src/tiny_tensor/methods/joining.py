"""cat, stack, padding of every mode, triangles and one-hot vectors; slices of what is joined or padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from tiny_tensor.autograd.custom_gradient import Grads, derivative_of, with_gradient
from tiny_tensor.base import Operand, Scalar, TensorBase, const_uop, together
from tiny_tensor.host_constants import constant_of
from tiny_tensor.shapes import args_to_tuple, greatest, lower, normalize_axis
from tiny_uop import Ops, UOp, dtypes, same_shape, sint
from tiny_uop.records import dataclass

Pair = tuple[sint, sint]
T = TypeVar("T", bound=TensorBase)


MANY = 16
"""Tensors of which each gives one element in turn that are first written one after the other, and then transposed."""


def checked(name: str, *tensors: T) -> tuple[T, ...]:
  """The tensors, given one by one or as one list or tuple. TypeError for anything else, an axis among them too."""
  if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) and tensors[0]:
    tensors = (*tensors[0],)
  for wrong in tensors:
    if not isinstance(wrong, TensorBase):
      raise TypeError(
        f"{name} takes Tensors, and the axis by its name, got a {type(wrong).__name__}: Tensor.{name}(a, b, dim=0), or "
        f"Tensor.{name}((a, b), dim=0)"
      )
  return tensors


@dataclass(frozen=True)
class Parts:
  """The pullback of values one after the other along an axis: each gets its part of the gradient."""

  axis: int

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    (g,) = gs
    if g is None:
      return (None,) * len(inputs)
    start: sint = 0
    parts = []
    for x in inputs:
      end = start + x.shape[self.axis]
      parts.append(g.shrink([(start, end) if i == self.axis else (0, s) for i, s in enumerate(x.shape)]))
      start = end
    return tuple(parts)


def narrowed(uop: UOp, bounds: Sequence[tuple[sint, sint]]) -> UOp:
  """`uop.shrink(bounds)`; of the one piece where that is all there is."""
  whole = uop.shrink(bounds)  # which raises for bounds that are none
  if whole is uop:
    return whole
  if uop.op is Ops.CUSTOM_GRADIENT and isinstance(derivative_of(uop).pullback, Parts):
    uop = uop.src[0]
  # a join chooses a piece where a padded True is
  while uop.op is Ops.WHERE and uop.src[0].op is Ops.PAD and constant_of(uop.src[0].src[0]) is True:
    if (chosen := place_in(uop.src[0], bounds)) is None:
      return whole
    uop = uop.src[1] if chosen else uop.src[2]
  place = place_in(uop, bounds)
  return uop.src[0].shrink(place) if place else whole


def place_in(piece: UOp, bounds: Sequence[tuple[sint, sint]]) -> list[tuple[int, int]] | None:
  """Where bounds are in the source of a PAD; [] if they are beside it, None if that is not known, or in part only."""
  if piece.op is not Ops.PAD:
    return None
  arg, sizes = piece.geometry, piece.src[0].shape
  place: list[tuple[int, int]] = []
  beside = False
  for axis, ((start, stop), size) in enumerate(zip(bounds, sizes, strict=True)):
    before = arg[2 * axis]
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(before, int) and isinstance(size, int)):
      return None
    first, last = start - before, stop - before
    beside = beside or last <= 0 or first >= size
    if not beside and (first < 0 or last > size):
      return None
    place.append((first, last))
  return [] if beside else place


class JoinMixin(TensorBase):
  """Concatenation and padding."""

  __slots__ = ()

  def cat(self, *args: Self, dim: int = 0) -> Self:
    """Tensors one after the other along `dim`; other sizes must agree. Called as `a.cat(b, c)` or `Tensor.cat(a, b,
    c)`. Tensors of shape (0,) are left out among others, as in PyTorch, but their dtypes count.
    """
    tensors = checked("cat", self, *args)
    self = tensors[0]
    present = [t for t in tensors if t.shape != (0,)]
    if 0 < len(present) < len(tensors):
      dtype = dtypes.promote(*(t.dtype for t in tensors))
      return present[0]._as_dtype(dtype).cat(*present[1:], dim=dim)
    axis = normalize_axis(dim, self.ndim)
    if any(t.ndim != self.ndim or t.ndim == 0 for t in tensors) or any(
      not same_shape(t.shape[:axis] + t.shape[axis + 1 :], self.shape[:axis] + self.shape[axis + 1 :]) for t in tensors
    ):
      raise ValueError(
        f"cat along {dim} needs shapes that agree elsewhere, got {', '.join(str(t.shape) for t in tensors)}"
      )
    if axis and len(tensors) >= MANY and all(isinstance(s, int) and s == 1 for t in tensors for s in t.shape[axis:]):
      rows = [t.movedim(axis, 0) for t in tensors]
      return rows[0].cat(*rows[1:]).contiguous().movedim(0, axis)
    tensors = (*together(tensors),)
    dtype = dtypes.promote(*(t.dtype for t in tensors))
    sizes = [t.shape[axis] for t in tensors]
    total = sum(sizes[1:], sizes[0])
    start: sint = 0
    pieces: list[Self] = []
    out: UOp | None = None
    for t, size in zip(tensors, sizes, strict=True):
      # an empty piece adds nothing, but its dtype counts
      if not (isinstance(size, int) and size == 0):
        around = [(start, total - start - size) if i == axis else (0, 0) for i in range(self.ndim)]
        pieces.append(t._as_dtype(dtype))
        padded = pieces[-1].uop.pad(around)
        if out is not None:
          # chosen and not added: the sum of 0.0 and -0.0 is 0.0. What comes behind is chosen by the next ones
          rest = tuple([total - start if i == axis else s for i, s in enumerate(t.shape)])
          before = [(start, 0) if i == axis else (0, 0) for i in range(self.ndim)]
          padded = UOp.const(dtypes.bool, True, rest).pad(before).where(padded, out)
        out = padded
      start = start + size
    if out is None or len(pieces) == 1:
      return pieces[0]._apart() if pieces else self._as_dtype(dtype)
    if dtypes.is_float(dtype):
      (out,) = with_gradient((out,), [p.uop for p in pieces], Parts(axis), "cat")
    return pieces[0]._derive(out, *pieces[1:])

  def stack(self, *args: Self, dim: int = 0) -> Self:
    """Tensors of one shape along a new axis `dim`: n of `(a, b)` give `(n, a, b)`. ValueError for different shapes."""
    tensors = checked("stack", self, *args)
    if not all(same_shape(t.shape, tensors[0].shape) for t in tensors):
      raise ValueError(f"stack needs tensors of one shape, got {', '.join(str(t.shape) for t in tensors)}")
    first, *rest = [t.unsqueeze(dim) for t in tensors]
    return first.cat(*rest, dim=dim)

  # *** padding ***

  def pad(self, padding: Sequence[Any], mode: str = "constant", value: Scalar = 0.0) -> Self:
    """Put elements around, or take some off where negative.

    `padding` is (before, after) or None for each axis, or flat as in PyTorch: `(before, after)` of the last axis, then
    of the one before it, and so on. `mode`: "constant" (`value`), "reflect" (without the edge), "replicate" (the edge)
    or "circular". Reflected and replicated is the whole axis, before some is taken off; what is left goes round. Raises
    ValueError where there are not enough elements to reflect or to go round, or (but for "constant") none are left.
    """
    if mode not in ("constant", "reflect", "replicate", "circular"):
      raise ValueError(f"mode must be 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}")
    pairs = self._padding_pairs(padding)
    if mode != "constant":
      out = self
      for axis, (before, after) in enumerate(pairs):
        if before or after:
          out = out._pad_axis(axis, int(before), int(after), mode)
      return out._apart()
    known = [(b, a) for b, a in pairs]
    cut = [(-min(b, 0) if isinstance(b, int) else 0, -min(a, 0) if isinstance(a, int) else 0) for b, a in known]
    x = self.shrink([(b, s - a) for (b, a), s in zip(cut, self.shape, strict=True)]) if any(map(any, cut)) else self
    grow = [(max(b, 0) if isinstance(b, int) else b, max(a, 0) if isinstance(a, int) else a) for b, a in known]
    if value == 0 and math.copysign(1, value) == 1:
      return x._pad_zeros(grow)._apart()
    # a whole number has a place in any dtype
    whole = not math.isinf(value) and float(value).is_integer()
    dtype = self.dtype if whole else dtypes.promote(self.dtype, x._operand(value).dtype)
    inside = x.const_like(True, dtypes.bool)._pad_zeros(grow)
    return inside.where(x._as_dtype(dtype)._pad_zeros(grow), inside.const_like(value, dtype))

  def _padding_pairs(self, padding: Sequence[Any]) -> list[Pair]:
    """(before, after) of every axis, from either form of `pad`'s argument."""
    if all(p is None or isinstance(p, (tuple, list)) for p in padding):
      if len(padding) != self.ndim:
        raise ValueError(
          f"padding {tuple(padding)} must have an entry for each of the {self.ndim} axes of {self.shape}"
        )
      return [(0, 0) if p is None else (p[0], p[1]) for p in padding]
    if len(padding) % 2 or len(padding) > 2 * self.ndim:
      raise ValueError(f"flat padding {tuple(padding)} must be (before, after) pairs of at most {self.ndim} axes")
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    return [(0, 0)] * (self.ndim - len(pairs)) + pairs[::-1]

  def _pad_axis(self, axis: int, before: int, after: int, mode: str) -> Self:
    """Padding of one axis with its own elements."""
    n = self.shape[axis]
    if mode == "circular":  # what is left goes round, in the others the whole axis counts
      n = greatest(n + min(before, 0) + min(after, 0), 0)
    size = lower(n)  # of a symbolic axis, the least that it can have
    grown = (max(before, 0), max(after, 0))
    limit = {"reflect": size - 1, "circular": size, "replicate": sum(grown) if size else 0}[mode]
    if max(grown) > limit:
      raise ValueError(
        f"{mode} padding of {(before, after)} is too wide for axis {axis} of size {size}, at most {limit}"
      )
    if lower(self.shape[axis]) + before + after < (mode != "circular"):
      raise ValueError(f"{mode} padding of {(before, after)} leaves nothing of axis {axis} of size {size}")
    if min(before, after) < 0:
      out = self
      if mode != "circular":
        out = self._pad_axis(axis, *grown, mode)
      out = out._select_axis(axis, max(-before, 0), out.shape[axis] - max(-after, 0))
      return out._pad_axis(axis, *grown, mode) if mode == "circular" else out
    x = self
    if mode == "reflect":
      left = x._select_axis(axis, 1, before + 1).flip(axis)
      right = x._select_axis(axis, n - 1 - after, n - 1).flip(axis)
    elif mode == "circular":
      left, right = x._select_axis(axis, n - before, n), x._select_axis(axis, 0, after)
    else:
      left = x._select_axis(axis, 0, 1).expand([before if i == axis else -1 for i in range(x.ndim)])
      right = x._select_axis(axis, n - 1, n).expand([after if i == axis else -1 for i in range(x.ndim)])
    return left.cat(x, right, dim=axis)

  def pad_to(self, shape: Any = (), *args: Any, value: Scalar = 0) -> Self:
    """`value` behind, up to `shape`; None keeps a size."""
    wanted = args_to_tuple((shape, *args))
    if len(wanted) != self.ndim:
      raise ValueError(f"pad_to takes a size or None for each of the {self.ndim} axes, got {wanted}")
    return self.pad([(0, 0 if w is None else w - s) for w, s in zip(wanted, self.shape, strict=True)], value=value)

  # *** triangles ***

  def _upper_mask(self, diagonal: int) -> Self:
    """bool (rows, columns): column - row >= diagonal."""
    if self.ndim < 2:
      raise ValueError(f"a triangle needs at least two axes, got shape {self.shape}")
    rows, cols = self._along(self.ndim - 2).flatten(), self._along(self.ndim - 1).flatten()
    return rows.unsqueeze(-1) + diagonal <= cols

  def triu(self, diagonal: int = 0) -> Self:
    """The upper triangle of the last two axes; zeros below `diagonal`."""
    return self._upper_mask(diagonal).where(self, self.const_like(0))

  def tril(self, diagonal: int = 0) -> Self:
    """The lower triangle of the last two axes; zeros above `diagonal`."""
    return self._upper_mask(diagonal + 1).where(self.const_like(0), self)

  def one_hot(self, num_classes: int = -1) -> Self:
    """int32 `(…, num_classes)`: 1 at the position that each element names. -1 takes the largest element plus one."""
    if not dtypes.is_int(self.dtype):
      raise TypeError(f"one_hot takes integers, got {self.dtype.name}")
    n = int(self.max().item()) + 1 if num_classes == -1 else num_classes
    return self._hot(n).where(1, 0)

  def _hot(self, n: sint) -> Self:
    """bool `(…, n)`: whether an element equals 0, 1, …, n-1."""
    x = self if self.dtype.bits >= 32 else self._as_dtype(dtypes.int32)
    return x.unsqueeze(-1) == self._count_up(n, x.dtype)

  def _filled(self, shape: Sequence[sint], value: Operand, dtype: Any = None) -> Self:
    """A constant on the device of `self`."""
    assert isinstance(value, (bool, int, float))
    return self._wrap(const_uop(value, dtype or self.dtype, tuple(shape), self.device), False)
