"""Reductions over axes, and where the extremes are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_onnx.ops.elementwise import greatest, lowest
from tiny_onnx.ops.shape import axes_of, axis_in
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Value, tensor_of
from tiny_tensor import Tensor, dtypes


def empty(x: Tensor, axes: list[int]) -> bool:
  return any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes)


def extreme(x: Tensor, axes: list[int], keep: bool, most: bool) -> Tensor:
  if empty(x, axes):
    value = lowest(x.dtype) if most else greatest(x.dtype)
    sizes = [1 if a in axes else s for a, s in enumerate(x.shape) if keep or a not in axes]
    return Tensor.full(tuple(sizes), value, dtype=x.dtype)
  found = x.max(tuple(axes), keep) if most else x.min(tuple(axes), keep)
  return found.cast(x.dtype)


def total(x: Tensor, axes: list[int], keep: bool) -> Tensor:
  return x.sum(tuple(axes), keep).cast(x.dtype)


def log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
  if empty(x, axes):
    return total(x, axes, keep) - math.inf
  exact = x if x.is_floating_point() else x.cast(dtypes.float32)
  top = exact.max(tuple(axes), True)
  shift = top.isfinite().where(top, 0)
  summed = ((exact - shift).exp().sum(tuple(axes), True).log() + shift).cast(x.dtype)
  return summed if keep else summed.reshape(tuple(s for a, s in enumerate(x.shape) if a not in axes))


def averaged(x: Tensor, axes: list[int], keep: bool) -> Tensor:
  if x.is_floating_point():
    return x.mean(tuple(axes), keep)
  return total(x, axes, keep).div(math.prod(x.shape[a] for a in axes), rounding_mode="trunc").cast(x.dtype)


Reduction = Callable[[Tensor, list[int], bool], Tensor]
REDUCTIONS: dict[str, tuple[Reduction, Callable[..., Any] | None]] = {
  "ReduceSum": (total, np.sum),
  "ReduceMax": (lambda x, axes, keep: extreme(x, axes, keep, True), np.max),
  "ReduceMin": (lambda x, axes, keep: extreme(x, axes, keep, False), np.min),
  "ReduceMean": (averaged, None),
  "ReduceProd": (lambda x, axes, keep: x.prod(tuple(axes), keep).cast(x.dtype), np.prod),
  "ReduceL1": (lambda x, axes, keep: total(x.abs(), axes, keep), None),
  "ReduceL2": (lambda x, axes, keep: total(x * x, axes, keep).cast(x.dtype).sqrt().cast(x.dtype), None),
  "ReduceLogSum": (lambda x, axes, keep: total(x, axes, keep).log().cast(x.dtype), None),
  "ReduceLogSumExp": (log_sum_exp, None),
  "ReduceSumSquare": (lambda x, axes, keep: total(x * x, axes, keep), None),
}


def reduction(name: str, function: Reduction, host: Callable[..., Any] | None, axes_since: int) -> None:
  """Registers a reduction: the axes are an attribute first, and an input from a version on."""

  def reduce(call: Call, x: Tensor, axes: Value) -> Tensor:
    nothing_named = axes is not None and tensor_of(axes).numel() == 0
    if nothing_named or (axes is None and call["axes"] is None):
      if call["noop_with_empty_axes"]:
        return function(x.unsqueeze(0), [0], False)
      return function(x, list(range(x.ndim)), bool(call["keepdims"]))
    return function(x, axes_of(call, axes, x.ndim), bool(call["keepdims"]))

  def on_host(call: Call, x: Any, axes: Any = None) -> Any:
    named = call["axes"] if axes is None else [int(a) for a in axes]
    if not named and call["noop_with_empty_axes"]:
      return x
    assert host is not None
    return np.asarray(host(x, axis=tuple(named) if named else None, keepdims=bool(call["keepdims"])), x.dtype)

  arrays = on_host if host else None

  @op(name, axes_since, raw=True, host=arrays, needs=(1,))
  def by_input(call: Call, x: Value, axes: Value = None) -> Tensor:
    return reduce(call, tensor_of(x), axes)

  op(name, 1, host=arrays)(lambda call, x: reduce(call, x, None))


for _name, (_function, _host) in REDUCTIONS.items():
  reduction(_name, _function, _host, 13 if _name == "ReduceSum" else 18)


def place_of_extreme(call: Call, x: Tensor, most: bool) -> Tensor:
  axis = axis_in(call["axis"], x.ndim)
  last = bool(call["select_last_index"])
  if last:
    x = x.flip(axis)
  found = (x.argmax(axis, True) if most else x.argmin(axis, True)).cast(dtypes.int64)
  if last:
    found = x.shape[axis] - 1 - found
  return found if call["keepdims"] else found.squeeze(axis)


@op("ArgMax")
def argmax(call: Call, x: Tensor) -> Tensor:
  return place_of_extreme(call, x, True)


@op("ArgMin")
def argmin(call: Call, x: Tensor) -> Tensor:
  return place_of_extreme(call, x, False)


def two_axes(x: Tensor, axis: int) -> Tensor:
  """`x` as a matrix: the axes from `axis` on in one, as softmax had it before version 13."""
  axis = axis + x.ndim if axis < 0 else axis
  return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def hard(x: Tensor, axis: int) -> Tensor:
  """1 at the first maximum along an axis, 0 elsewhere."""
  places = Tensor.arange(x.shape[axis]).reshape(*[-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
  return (places == x.argmax(axis, True)).cast(x.dtype)


SOFT: dict[str, Callable[[Tensor, int], Tensor]] = {
  "Softmax": lambda x, axis: x.softmax(axis),
  "LogSoftmax": lambda x, axis: x.log_softmax(axis),
  "Hardmax": hard,
}

for _name, _soft in SOFT.items():
  op(_name, 13)(lambda call, x, soft=_soft: soft(x, axis_in(call["axis"], x.ndim)))
  op(_name, 1)(lambda call, x, soft=_soft: soft(two_axes(x, call.get("axis", 1)), 1).reshape(x.shape))


@op("LpNormalization", 1)
def lp_normalization(call: Call, x: Tensor) -> Tensor:
  axis, p = axis_in(call["axis"], x.ndim), call["p"]
  norm = x.abs().sum(axis, True) if p == 1 else (x * x).sum(axis, True).sqrt()
  return (norm == 0).where(0, x / (norm == 0).where(1, norm))
