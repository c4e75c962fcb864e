"""Matrix products, linear layers, einsum and attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from tiny_tensor.base import DTypeLike, TensorBase, to_dtype
from tiny_tensor.methods.einsum_notation import parse_einsum, rearrange_sides
from tiny_tensor.methods.reduce import accumulator_dtype
from tiny_tensor.shapes import broadcast_shape
from tiny_uop import dtypes, prod


class MatmulMixin(TensorBase):
  """Contractions: a product of two tensors summed over an axis."""

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
    self,
    key: Self,
    value: Self,
    attn_mask: Self | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    enable_gqa: bool = False,
  ) -> Self:
    """softmax(q·kᵀ/√d + mask)·v over `(…, length, d)` (Vaswani et al., 2017).

    `attn_mask` is added, or if bool says what may be seen. With `is_causal` a position sees itself and those before it;
    values of others are not read, or on tensor cores, which take positions together, multiplied by 0 (so infinities and
    NaNs are seen). With `enable_gqa` key and value heads (axis -3) are repeated to as many as the query has.
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
    weights = scores.softmax(-1)._as_dtype(q.dtype).dropout(dropout_p)
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
