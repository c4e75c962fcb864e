"""Matrix products, linear layers, einsum and attention."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from tiny_tensor.activations import ActivationMixin
from tiny_tensor.base import DTypeLike, TensorBase
from tiny_tensor.shapes import broadcast_shape, prod
from tiny_uop import dtypes


class MatmulMixin(ActivationMixin):
  """Contractions: a product of two tensors summed over an axis."""

  __slots__ = ()

  def dot(self, w: Self, dtype: DTypeLike | None = None) -> Self:
    """Matrix product over the last axis of `self` and the second to last of `w` (the only one of a vector).

    `(…, n, k) · (…, k, m) → (…, n, m)`; leading axes broadcast. Sums are made in at least 32 bits unless `dtype` is
    given. Raises ValueError naming both shapes when the inner sizes differ.
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
    common = dtypes.promote(self.dtype, w.dtype)
    out = (x * y).sum(-1, dtype=dtype)
    return out if dtype is not None else out.as_dtype(common)

  def matmul(self, x: Self, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
    """`self @ x`, or `x @ self` if `reverse`."""
    return x.dot(self, dtype) if reverse else self.dot(x, dtype)

  def linear(self, weight: Self, bias: Self | None = None, dtype: DTypeLike | None = None) -> Self:
    """`self @ weight + bias`; a vector `weight` multiplies element by element."""
    out = self * weight if weight.ndim == 1 else self.dot(weight, dtype)
    return out if bias is None else out + bias

  def sequential(self, layers: Sequence[Callable[[Self], Self]]) -> Self:
    """Apply functions one after the other."""
    out = self
    for layer in layers:
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
    out: Self | None = None
    for t, letters in zip(tensors, inputs, strict=True):
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
      return full
    common = out.dtype
    total = full.sum(axes, dtype=dtype)
    return total if dtype is not None else total.as_dtype(common)

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

    `attn_mask` is added, or if bool says what may be seen. With `enable_gqa` key and value heads (axis -3) are repeated
    to as many as the query has.
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
    weights = scores.softmax(-1).as_dtype(q.dtype).dropout(dropout_p)
    return weights.matmul(value)

  if TYPE_CHECKING:

    def dropout(self, p: float = 0.5) -> Self: ...  # in random.py

  def rearrange(self, formula: str, **sizes: int) -> Self:
    """einops notation: `x.rearrange("b (h d) t -> b h t d", h=8)`, with `...` and `1`. ValueError if it does not
    fit.
    """
    left, right = rearrange_sides(formula)
    if "..." in [n for group in left for n in group]:
      extra = [f"...{i}" for i in range(self.ndim - len(left) + 1)]
      at = next(i for i, g in enumerate(left) if g == ["..."])
      left = left[:at] + [[e] for e in extra] + left[at + 1 :]
      right = (
        [[e for n in g for e in (extra if n == "..." else [n])] for g in right if g != ["..."] or len(g) > 1]
        if not any(g == ["..."] for g in right)
        else [h for g in right for h in ([[e] for e in extra] if g == ["..."] else [g])]
      )
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


def rearrange_sides(formula: str) -> tuple[list[list[str]], list[list[str]]]:
  """The axis groups of both sides of an einops formula."""
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
        inside = []
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
  return out[0], out[1]


def parse_einsum(formula: str, ndims: Sequence[int]) -> tuple[list[str], str]:
  """Letters of each input and of the output; `...` becomes upper-case-free letters of its own."""
  text = formula.replace(" ", "")
  left, arrow, right = text.partition("->")
  inputs = left.split(",")
  if len(inputs) != len(ndims):
    raise ValueError(f"einsum {formula!r} has {len(inputs)} inputs, got {len(ndims)} tensors")
  spare = [c for c in string.ascii_letters if c not in text]
  width = 0
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
