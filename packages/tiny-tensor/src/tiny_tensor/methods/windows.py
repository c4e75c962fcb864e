"""Windows over the last axes of a tensor as views, and their padding: what convolution, pooling and unfold share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tiny_tensor.base import TensorBase
from tiny_tensor.shapes import lower
from tiny_uop import UOp, sint

Sizes = int | Sequence[int]
Pads = list[tuple[int, int]]
M = TypeVar("M", bound=TensorBase)


def padding_of(padding: Sizes, axes: int) -> Pads:
  """(before, after) per spatial axis from one number, one per axis, or PyTorch's flat pairs (last axis first)."""
  if isinstance(padding, int):
    return [(padding, padding)] * axes
  values = [int(p) for p in padding]
  if len(values) == 2 * axes and axes != 0 and len(values) != axes:
    return [(values[i], values[i + 1]) for i in range(0, len(values), 2)][::-1]
  if len(values) != axes:
    raise ValueError(f"padding {tuple(padding)} must be a number, {axes} numbers or {2 * axes} numbers")
  return [(p, p) for p in values]


def pad_last(x: M, pads: Sequence[tuple[sint, sint]], value: float = 0.0) -> M:
  """The last axes padded, each (before, after)."""
  some = any(isinstance(p, UOp) or p != 0 for pair in pads for p in pair)
  return x.pad([(0, 0)] * (x.ndim - len(pads)) + list(pads), value=value) if some else x


def windows(x: M, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> M:
  """`(…, size…)` → `(…, out…, kernel…)`: element (o, k) of an axis is `x[o*stride + k*dilation]`.

  Only movement ops. Where windows do not overlap the axis is cut up; otherwise it is repeated and read in rows that are
  `dilation` longer than it is, so that row k starts k*dilation further right. An axis of symbolic size is cut up as if
  it had its largest. Raises ValueError when a window does not fit.
  """
  count = len(kernel)
  lead = x.ndim - count
  sizes = x.shape[lead:]
  spans = [(k - 1) * d + 1 if k else 0 for k, d in zip(kernel, dilation, strict=True)]
  if any(s <= 0 for s in (*stride, *dilation)):
    raise ValueError(f"stride and dilation must be positive, got {tuple(stride)} and {tuple(dilation)}")
  if any(span > lower(size) for span, size in zip(spans, sizes, strict=True)):
    raise ValueError(f"windows of size {tuple(kernel)} with dilation {tuple(dilation)} do not fit in {tuple(sizes)}")
  x = x._filled_up(*range(lead, x.ndim))
  for axis, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
    x = _axis_windows(x, lead + 2 * axis, k, s, d)
  # now (…, out0, kernel0, out1, kernel1, …)
  first, second = range(lead, lead + 2 * count, 2), range(lead + 1, lead + 2 * count, 2)
  x = x.permute(*range(lead), *first, *second)
  for axis, (size, span, s) in enumerate(zip(sizes, spans, stride, strict=True), start=lead):
    x = x if isinstance(size, int) else x._select_axis(axis, 0, (size - span) // s + 1)
  return x


def _axis_windows(x: M, axis: int, kernel: int, stride: int, dilation: int) -> M:
  """Axis of size n → axes (out, kernel)."""
  before, size, after = x.shape[:axis], int(x.shape[axis]), x.shape[axis + 1 :]
  out = (size - ((kernel - 1) * dilation + 1 if kernel else 0)) // stride + 1
  if kernel == 1 or (dilation == 1 and kernel <= stride):
    used = out * stride
    x = x._select_axis(axis, 0, min(used, size))
    x = _pad_end(x, axis, used - min(used, size))
    x = x.reshape((*before, out, stride, *after))
    return x._select_axis(axis + 1, 0, kernel)
  row = size + dilation
  repeats = -(-kernel * row // size)
  x = x._repeated(tuple([repeats if i == axis else 1 for i in range(x.ndim)]))._select_axis(axis, 0, kernel * row)
  x = x.reshape((*before, kernel, row, *after))
  used = out * stride
  x = x._select_axis(axis + 1, 0, min(used, row))
  x = _pad_end(x, axis + 1, used - min(used, row))
  x = x.reshape((*before, kernel, out, stride, *after))._select_axis(axis + 2, 0, 1)
  x = x.reshape((*before, kernel, out, *after))
  return x.transpose(axis, axis + 1)


def _pad_end(x: M, axis: int, count: int) -> M:
  return x._pad_zeros([(0, count if i == axis else 0) for i in range(x.ndim)]) if count > 0 else x
