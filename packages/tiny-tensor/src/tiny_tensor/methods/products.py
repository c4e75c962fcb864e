"""Products of vectors, matrices and tensors other than the matrix product, and distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from tiny_tensor.base import TensorBase
from tiny_tensor.shapes import broadcast_shape, normalize_axis
from tiny_uop import prod


class ProductMixin(TensorBase):
  """outer, cross, kron, tensordot, trace, cdist and as_strided."""

  __slots__ = ()

  def outer(self, other: Self) -> Self:
    """All products of the elements of two vectors, `(n, m)`."""
    if self.ndim != 1 or other.ndim != 1:
      raise ValueError(f"outer takes two vectors, got shapes {self.shape} and {other.shape}")
    return self.unsqueeze(-1) * other

  def cross(self, other: Self, dim: int = -1) -> Self:
    """The vector product along `dim`, of size 3 in both: ValueError. Other axes broadcast."""
    a, b = self._broadcasted(other)
    axis = normalize_axis(dim, a.ndim)
    if self.ndim != other.ndim or a.ndim == 0 or (self.shape[axis], other.shape[axis]) != (3, 3):
      raise ValueError(f"cross takes vectors of 3 along axis {dim}, got shapes {self.shape} and {other.shape}")
    return a.roll(-1, axis) * b.roll(-2, axis) - a.roll(-2, axis) * b.roll(-1, axis)

  def kron(self, other: Self) -> Self:
    """The Kronecker product: each element of `self` replaced by its product with `other`. Axes are counted from the
    last; sizes multiply.
    """
    ndim = max(self.ndim, other.ndim)
    mine, its = ((1,) * (ndim - t.ndim) + t.shape for t in (self, other))
    a = self.reshape([s for size in mine for s in (size, 1)])
    b = other.reshape([s for size in its for s in (1, size)])
    return (a * b).reshape([m * i for m, i in zip(mine, its, strict=True)])

  def trace(self) -> Self:
    """The sum of the diagonal of a matrix; dtypes as for `sum`."""
    if self.ndim != 2:
      raise ValueError(f"trace takes a matrix, got shape {self.shape}")
    return self.diagonal().sum()

  def tensordot(self, other: Self, dims: int | tuple[Sequence[int], Sequence[int]] = 2) -> Self:
    """Products summed over pairs of axes: the last `dims` of `self` and the first of `other` in order, or those that
    two lists name. The other axes of both stay, those of `self` first. ValueError where sizes differ.
    """
    if isinstance(dims, int):
      if not 0 <= dims <= min(self.ndim, other.ndim):
        raise ValueError(f"tensordot: dims={dims} axes are not in both shapes {self.shape} and {other.shape}")
      dims = (range(self.ndim - dims, self.ndim), range(dims))
    mine, its = ([normalize_axis(d, t.ndim) for d in axes] for t, axes in zip((self, other), dims, strict=True))
    if [self.shape[a] for a in mine] != [other.shape[a] for a in its]:
      if len(mine) != len(its) or any(
        self.shape[a] != other.shape[b] and 1 not in (self.shape[a], other.shape[b]) for a, b in zip(mine, its)
      ):
        raise ValueError(f"tensordot: axes {mine} of {self.shape} and {its} of {other.shape} differ in size")
      # an axis of size 1 broadcasts
      small, little = (
        [i for i, j in pairs if t.shape[i] != u.shape[j] and u.shape[j] == 1]
        for t, u, pairs in ((self, other, list(zip(mine, its))), (other, self, list(zip(its, mine))))
      )
      return self.sum(tuple(small), keepdim=True).tensordot(other.sum(tuple(little), keepdim=True), (mine, its))
    kept, others = ([i for i in range(t.ndim) if i not in axes] for t, axes in ((self, mine), (other, its)))
    inner = prod(self.shape[a] for a in mine)
    left, right = tuple(self.shape[i] for i in kept), tuple(other.shape[i] for i in others)
    a = self.permute(*kept, *mine).reshape((prod(left), inner))
    b = other.permute(*its, *others).reshape((inner, prod(right)))
    return a.dot(b).reshape((*left, *right))

  def cdist(self, other: Self, p: float = 2.0, compute_mode: str | None = None) -> Self:
    """The p-norms of the differences of all rows: `(…, n, k)` and `(…, m, k)` → `(…, n, m)`. `p` is 0 (how many
    elements differ), infinity (the greatest difference) or any positive number. The gradient of distance 0 is 0.
    `compute_mode`, which says in PyTorch how to compute it, changes nothing.
    """
    if p < 0:
      raise ValueError(f"cdist: p must not be negative, got {p}")
    if self.ndim < 2 or other.ndim < 2 or self.shape[-1] != other.shape[-1]:
      raise ValueError(f"cdist takes rows of one size, got shapes {self.shape} and {other.shape}")
    broadcast_shape(self.shape[:-2], other.shape[:-2])
    x, dtype = self._as_float().unsqueeze(-2).sub(other.unsqueeze(-3))._with_precision()
    if p == 0:
      return x.ne(0).sum(-1)._as_dtype(dtype)
    if math.isinf(p) and x.shape[-1] != 0:
      return x.abs().max(-1)._as_dtype(dtype)
    if p == 1 or math.isinf(p):
      return x.abs().sum(-1)._as_dtype(dtype)
    same = x.eq(0)
    total = (x.square() if p == 2 else same.where(0.0, same.where(1.0, x.abs()).pow(p))).sum(-1)
    zero = total.eq(0)
    return zero.where(0.0, zero.where(1.0, total).pow(1 / p))._as_dtype(dtype)

  def as_strided(self, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0) -> Self:
    """A copy of the elements at `storage_offset + Σ index·stride` of this tensor, flattened in its own order (as if it
    were contiguous): for reading, not a view to write through. ValueError for places outside of it.
    """
    sizes, strides = tuple(size), tuple(stride)
    if len(sizes) != len(strides) or any(s < 0 for s in sizes):
      raise ValueError(f"as_strided takes a stride for each size, and no negative size, got {sizes} and {strides}")
    ends = [(n - 1) * step for n, step in zip(sizes, strides, strict=True)]
    low, high = (storage_offset + sum(pick(0, end) for end in ends) for pick in (min, max))
    if 0 not in sizes and not (low >= 0 and high < int(self.numel())):
      raise ValueError(
        f"as_strided: size {sizes}, stride {strides} and offset {storage_offset} reach from {low} to {high}, "
        f"the tensor has {self.numel()} elements"
      )
    place = self._filled((1,) * len(sizes), storage_offset, self._count_up(1).dtype)
    for axis, (n, step) in enumerate(zip(sizes, strides, strict=True)):
      place = place + self._count_up(n).reshape([n if i == axis else 1 for i in range(len(sizes))]) * step
    return self.flatten()._gather_axes([(0, place)], False)

  # *** sums with products, by PyTorch's names ***

  def mm(self, mat2: Self) -> Self:
    """The product of two matrices."""
    return self._checked("mm", 2, mat2, 2).matmul(mat2)

  def mv(self, vec: Self) -> Self:
    """A matrix times a vector."""
    return self._checked("mv", 2, vec, 1).matmul(vec)

  def bmm(self, mat2: Self) -> Self:
    """Products of as many matrices: `(b, n, k) · (b, k, m)`."""
    return self._checked("bmm", 3, mat2, 3).matmul(mat2)

  def _checked(self, what: str, axes: int, other: Self, its: int) -> Self:
    """Itself. Raises ValueError where the numbers of axes are others."""
    if self.ndim != axes or other.ndim != its:
      raise ValueError(f"{what} takes tensors of {axes} and {its} axes, got shapes {self.shape} and {other.shape}")
    return self

  def inner(self, other: Self) -> Self:
    """Products summed over the last axis of both; numbers multiply."""
    if self.ndim == 0 or other.ndim == 0:
      return self * other
    return self.tensordot(other, ([-1], [-1]))

  def vdot(self, other: Self) -> Self:
    """The product of two vectors."""
    return self._checked("vdot", 1, other, 1).dot(other)

  def vecdot(self, other: Self, dim: int = -1) -> Self:
    """Products summed along `dim`."""
    a, b = self._broadcasted(other)
    return a._sum_of_products(b, dim)

  def _added_to(self, product: Self, beta: float, alpha: float) -> Self:
    """`beta * self + alpha * product`; with beta 0 without self, whatever it holds."""
    scaled = product if alpha == 1 else (product * alpha)._as_dtype(product.dtype)
    if beta == 0:
      return scaled
    return ((self if beta == 1 else self * beta) + scaled)._as_dtype(product.dtype)

  def addmm(self, mat1: Self, mat2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
    """`beta * self + alpha * mat1 @ mat2`."""
    return self._added_to(mat1.mm(mat2), beta, alpha)

  def addmv(self, mat: Self, vec: Self, *, beta: float = 1, alpha: float = 1) -> Self:
    """`beta * self + alpha * mat @ vec`."""
    return self._added_to(mat.mv(vec), beta, alpha)

  def addr(self, vec1: Self, vec2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
    """`beta * self + alpha * vec1 ⊗ vec2`."""
    return self._added_to(vec1.outer(vec2), beta, alpha)

  def baddbmm(self, batch1: Self, batch2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
    """`beta * self + alpha * batch1 @ batch2`, for batches of matrices."""
    return self._added_to(batch1.bmm(batch2), beta, alpha)

  def addbmm(self, batch1: Self, batch2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
    """`beta * self + alpha * Σ batch1 @ batch2`, summed over the batch."""
    batch1._checked("addbmm", 3, batch2, 3)
    total = batch1.transpose(0, 1).flatten(1).matmul(batch2.flatten(0, 1))
    return self._added_to(total, beta, alpha)
