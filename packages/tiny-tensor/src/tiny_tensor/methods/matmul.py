"""Products of vectors, matrices and tensors, summed over axes: matmul, einsum, attention, distances; rearrange."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from tiny_tensor.base import DTypeLike, TensorBase, to_dtype
from tiny_tensor.methods.reduce import accumulator_dtype
from tiny_tensor.shapes import broadcast_shape, normalize_axis
from tiny_uop import dtypes, prod


def spelled_out(groups: list[list[str]], extra: list[str]) -> list[list[str]]:
  """Groups with the axes that `...` stands for in its place: groups of their own, or part of the group it is in."""
  out: list[list[str]] = []
  for group in groups:
    if group == ["..."]:
      out += [[e] for e in extra]
    else:
      out.append([n for name in group for n in (extra if name == "..." else [name])])
  return out


def rearrange_sides(formula: str, ndim: int) -> tuple[list[list[str]], list[list[str]]]:
  """The axis groups of both sides of an einops formula, for a tensor of `ndim` axes."""
  sides = formula.split("->")
  if len(sides) != 2:
    raise ValueError(f"rearrange {formula!r} needs one '->'")
  out: list[list[list[str]]] = []
  for side in sides:
    groups: list[list[str]] = []
    inside: list[str] | None = None
    for token in side.replace("(", " ( ").replace(")", " ) ").split():
      if token == "(":
        if inside is not None:
          raise ValueError(f"rearrange {formula!r}: parentheses do not nest")
        inside = ["1"]  # which changes nothing, and tells (...) from ...
      elif token == ")":
        if inside is None:
          raise ValueError(f"rearrange {formula!r}: unbalanced parentheses")
        groups.append(inside)
        inside = None
      elif token not in ("...", "1") and not token.isidentifier():
        raise ValueError(f"rearrange {formula!r}: {token!r} is not the name of an axis")
      elif inside is None:
        groups.append([token] if token != "1" else ["1"])
      else:
        inside.append(token)
    if inside is not None:
      raise ValueError(f"rearrange {formula!r}: unbalanced parentheses")
    out.append(groups)
  left, right = out
  if any("..." in group and len(group) > 1 for group in left):
    raise ValueError(f"rearrange {formula!r}: '...' cannot be part of a group on the left")
  extra = [f"...{i}" for i in range(ndim - len(left) + 1)] if ["..."] in left else []
  return spelled_out(left, extra), spelled_out(right, extra)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def parse_einsum(formula: str, ndims: Sequence[int]) -> tuple[list[str], str]:
  """Letters of each input and of the output; `...` becomes upper-case-free letters of its own."""
  text = formula.replace(" ", "")
  left, arrow, right = text.partition("->")
  inputs = left.split(",")
  if len(inputs) != len(ndims):
    raise ValueError(f"einsum {formula!r} has {len(inputs)} inputs, got {len(ndims)} tensors")
  spare = [c for c in LETTERS if c not in text]
  width = 0
  for side in (*inputs, right):
    if side.count("...") > 1:
      raise ValueError(f"einsum {formula!r}: {side!r} has more than one '...', the axes without a letter")
  for letters, ndim in zip(inputs, ndims, strict=True):
    named = len(letters.replace("...", ""))
    if named > ndim or ("..." not in letters and named != ndim):
      raise ValueError(f"einsum {formula!r}: {letters!r} names {named} axes, the tensor has {ndim}")
    width = max(width, ndim - named if "..." in letters else 0)
  dots = "".join(spare[:width])
  full = []
  for letters, ndim in zip(inputs, ndims, strict=True):
    missing = ndim - len(letters.replace("...", ""))
    full.append(letters.replace("...", dots[width - missing :] if missing else ""))
  everything = "".join(full)
  if not arrow:
    right = dots + "".join(sorted(c for c in set(everything) - set(dots) if everything.count(c) == 1))
  right = right.replace("...", dots)
  if any(not c.isalpha() for c in everything + right):
    raise ValueError(f"einsum {formula!r}: axes are named by letters")
  if len(set(right)) != len(right) or not set(right) <= set(everything):
    raise ValueError(f"einsum {formula!r}: the output {right!r} must name axes of the inputs, once each")
  return full, right


class MatmulMixin(TensorBase):
  """Contractions, products by PyTorch's names, and the notations of einsum and einops."""

  __slots__ = ()

  def dot(self, w: Self, dtype: DTypeLike | None = None) -> Self:
    """Matrix product over the last axis of `self` and the second to last of `w` (the only one of a vector).

    `(…, n, k) · (…, k, m) → (…, n, m)`; leading axes broadcast. Products and sums are made in at least 32 bits,
    or in `dtype`. Raises ValueError naming both shapes when the inner sizes differ.
    """
    if not isinstance(w, TensorBase):
      raise TypeError(f"a matrix product needs a Tensor, got {type(w).__name__}")
    if self.ndim == 0 or w.ndim == 0:
      raise ValueError(f"a matrix product needs at least one axis on both sides, got shapes {self.shape} and {w.shape}")
    inner = w.shape[-min(w.ndim, 2)]
    if self.shape[-1] != inner:
      raise ValueError(
        f"cannot multiply shapes {self.shape} and {w.shape}: inner sizes {self.shape[-1]} and {inner} differ"
      )
    broadcast_shape(self.shape[:-2], w.shape[:-2])
    one = min(self.ndim - 1, w.ndim - 1, 1)
    x = self.reshape((*self.shape[:-1], *(1,) * one, self.shape[-1]))
    y = w.reshape((*w.shape[:-2], *(1,) * one, *w.shape[-min(w.ndim, 2) :])).transpose(-1, -min(w.ndim, 2))
    return x._sum_of_products(y, -1, dtype)

  def matmul(self, x: Self, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
    """`self @ x`, or `x @ self` if `reverse`: `dot`, which says how axes pair up."""
    other = self._operand(x) if hasattr(x, "__array_interface__") else x
    if reverse and not isinstance(other, TensorBase):
      raise TypeError(f"a matrix product needs a Tensor, got {type(x).__name__}")
    return other.dot(self, dtype) if reverse else self.dot(other, dtype)

  def linear(self, weight: Self, bias: Self | None = None, dtype: DTypeLike | None = None) -> Self:
    """`self @ weight + bias`; a vector `weight` multiplies element by element. With `dtype` all of it is in that."""
    if dtype is not None:
      kind = to_dtype(dtype)
      bias = None if bias is None else bias._as_dtype(kind)
      out = self._as_dtype(kind) * weight._as_dtype(kind) if weight.ndim == 1 else self.dot(weight, kind)
    else:
      out = self * weight if weight.ndim == 1 else self.dot(weight)
    return out if bias is None else out + bias

  def sequential(self, ll: Sequence[Callable[[Self], Self]]) -> Self:
    """Apply functions one after the other."""
    out = self
    for layer in ll:
      out = layer(out)
    return out

  @classmethod
  def einsum(cls, formula: str, *operands: Any, dtype: DTypeLike | None = None) -> Self:
    """Einstein summation: `Tensor.einsum("bij,bjk->bik", a, b)`, with `...` for axes that broadcast.

    Raises ValueError for a malformed formula or sizes that disagree.
    """
    tensors: list[Self] = (
      list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else list(operands)
    )
    inputs, output = parse_einsum(formula, [t.ndim for t in tensors])
    sizes: dict[str, Any] = {}
    for t, letters in zip(tensors, inputs, strict=True):
      for letter, size in zip(letters, t.shape, strict=True):
        if sizes.setdefault(letter, size) != size:
          if sizes[letter] == 1:
            sizes[letter] = size
          elif size != 1:
            raise ValueError(f"einsum {formula!r}: axis {letter!r} has sizes {sizes[letter]} and {size}")
    summed = sorted(set("".join(inputs)) - set(output))
    order = [*output, *summed]
    common = dtypes.promote(*[t.dtype for t in tensors])
    wide = (
      common if not summed else dtypes.promote(common, accumulator_dtype(common) if dtype is None else to_dtype(dtype))
    )
    out: Self | None = None
    for t, letters in zip(tensors, inputs, strict=True):
      t = t._as_dtype(wide)
      while len(set(letters)) != len(letters):
        twice = next(c for c in letters if letters.count(c) > 1)
        i, j = letters.index(twice), letters.rindex(twice)
        t = t.diagonal(dim1=i, dim2=j)
        letters = "".join(c for k, c in enumerate(letters) if k not in (i, j)) + twice
      t = t.permute(*[letters.index(c) for c in order if c in letters])
      t = t.reshape([t.shape[[c for c in order if c in letters].index(c)] if c in letters else 1 for c in order])
      out = t if out is None else out * t
    assert out is not None
    full = out.broadcast_to(tuple(sizes[c] for c in order))
    axes = tuple(range(len(output), len(order)))
    if not axes:
      return full if dtype is None else full.cast(dtype)
    total = full.sum(axes, dtype=dtype)
    return total if dtype is not None else total._as_dtype(common)

  def scaled_dot_product_attention(
    self, key: Self, value: Self, attn_mask: Self | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    enable_gqa: bool = False,
  ) -> Self:  # fmt: skip
    """softmax(q·kᵀ/√d + mask)·v over `(…, length, d)` (Vaswani et al., 2017).

    `attn_mask` is added, or if bool says what may be seen; a position of which all scores are -inf gets 0, and so do
    its gradients. With `is_causal` a position sees itself and those before it; values of others are not read, or on
    tensor cores, which take positions together, multiplied by 0 (so infinities and NaNs are seen). With `enable_gqa`
    key and value heads (axis -3) are repeated to as many as the query has.
    """
    q = self
    if enable_gqa:
      times = int(q.shape[-3]) // int(key.shape[-3])
      key, value = key.repeat_interleave(times, dim=-3), value.repeat_interleave(times, dim=-3)
    wide = dtypes.promote(q.dtype, key.dtype, dtypes.float32)
    scores = q.matmul(key.transpose(-2, -1), dtype=wide) / math.sqrt(int(q.shape[-1]))
    if is_causal:
      if attn_mask is not None:
        raise ValueError("give attn_mask or is_causal, not both")
      attn_mask = scores.const_like(True, dtypes.bool).tril()
    if attn_mask is not None:
      scores = attn_mask.where(scores, -math.inf) if dtypes.is_bool(attn_mask.dtype) else scores + attn_mask
    weights = scores._softmax_or_zeros()._as_dtype(q.dtype)._dropout(dropout_p, kept=False)
    if not is_causal:
      return weights.matmul(value)
    # the mask once more, where it says how far each sum goes
    seen = scores.const_like(True, dtypes.bool).tril().unsqueeze(-2)
    return weights.unsqueeze(-2)._sum_of_products(value.transpose(-1, -2).unsqueeze(-3), -1, mask=seen)

  def rearrange(self, formula: str, **sizes: int) -> Self:
    """einops notation: `x.rearrange("b (h d) t -> b h t d", h=8)`, with `...` and `1`. ValueError if it does not
    fit.
    """
    left, right = rearrange_sides(formula, self.ndim)
    if len(left) != self.ndim:
      raise ValueError(f"rearrange {formula!r} names {len(left)} axes, the tensor has shape {self.shape}")
    known: dict[str, Any] = dict(sizes)
    flat: list[str] = []
    for group, size in zip(left, self.shape, strict=True):
      free = [n for n in group if n not in known and n != "1"]
      if len(free) > 1:
        raise ValueError(f"rearrange {formula!r}: give all but one of the sizes of {free}")
      rest = prod(known.get(n, 1) for n in group if n not in free)
      if free:
        known[free[0]] = size // rest
      if prod(known.get(n, 1) for n in group) != size:
        raise ValueError(f"rearrange {formula!r}: {group} does not make up an axis of size {size}")
      flat += [n for n in group if n != "1"]
    target = [n for group in right for n in group if n != "1"]
    if sorted(flat) != sorted(target):
      raise ValueError(f"rearrange {formula!r}: both sides must name the same axes, got {flat} and {target}")
    x = self.reshape([known[n] for n in flat]).permute(*[flat.index(n) for n in target])
    return x.reshape([prod(known.get(n, 1) for n in group) for group in right])

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
    x, n, size = self._as_float(), self.shape[-2], self.shape[-1]
    p = 1 if math.isinf(p) and size == 0 else p  # of no differences there is no greatest, and the sum is 0
    if self.requires_grad or other.requires_grad or not (isinstance(n, int) and isinstance(size, int) and n >= size):
      return (x.unsqueeze(-2) - other.unsqueeze(-3)).vector_norm(p, -1)
    # many results side by side, and no sum across a vector: pays for itself if each column is read often enough
    columns = other.transpose(-1, -2).contiguous()
    return (x.unsqueeze(-1) - columns.unsqueeze(-3)).vector_norm(p, -2)

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
