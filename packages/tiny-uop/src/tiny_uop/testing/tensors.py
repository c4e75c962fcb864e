"""Values of tensor-level graphs on seeded data, in plain Python: a value is a flat list, last axis fastest."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from tiny_uop.dtype import DType, dtypes
from tiny_uop.evaluate import evaluate, exec_alu, identity_of
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.shape import pairs, sint
from tiny_uop.testing.draws import floats, integers
from tiny_uop.testing.scalars import merged
from tiny_uop.truncate import Number, from_bits, to_bits, truncate
from tiny_uop.uop import UOp

Flat = list[Any]
_SAME = GroupOp.Identity | {Ops.COPY, Ops.RESHAPE, Ops.CUSTOM_GRADIENT, Ops.BARRIER}


class Tensors:
  """Evaluates graphs over buffers with seeded contents; `ordinary` keeps special floats out of them.

  An effect evaluates to the writes it does: {(buffer, position): value}. A VARIABLE has its largest value, or what it
  is bound to.
  """

  def __init__(self, ordinary: bool = False) -> None:
    self.ordinary = ordinary
    self.buffers: dict[UOp, Flat] = {}
    self.given: dict[UOp, Flat] = {}
    """Values of nodes that are not to be evaluated here: those of kernels written by hand."""

  def size(self, value: sint) -> int:
    """A size as a number."""
    if isinstance(value, int):
      return value
    bound = {u.src[0]: u.src[1].arg for u in value.toposort if u.op is Ops.BIND}
    return int(evaluate(value, {v: bound.get(v, v.arg[2]) for v in value.variables}))  # type: ignore[arg-type]

  def shape(self, u: UOp) -> tuple[int, ...]:
    """The shape of a node, with numbers for symbolic sizes."""
    return tuple(self.size(s) for s in u.shape)

  def value(self, root: UOp) -> Any:
    """The elements of a value, or the writes of an effect. Raises NotImplementedError for what has neither."""
    known: dict[UOp, Any] = {}
    for u in root.walk(lambda u: u not in self.given):
      known[u] = self.given[u] if u in self.given else self._node(u, known)
    return known[root]

  def _node(self, u: UOp, known: dict[UOp, Any]) -> Any:
    op, sources = u.op, [known[s] for s in u.src]
    if op in (Ops.DEVICE, Ops.VARIABLE, Ops.BIND):
      return [self.size(u)] if op is not Ops.DEVICE else None
    if op is Ops.CONST:
      return [u.arg]
    if op is Ops.BUFFER:
      return self.buffers.setdefault(u, self._contents(u))
    if op is Ops.STORE:
      return dict(zip(self._places(u.src[0]), self._spread(sources[1], self.shape(u.src[0]))))
    if op is Ops.GROUP:
      return merged(sources)
    if op is Ops.SINK:
      roots = [s if isinstance(s, dict) else dict(enumerate(s)) for s in sources]
      return {(number, place): v for number, root in enumerate(roots) for place, v in root.items()}
    if op is Ops.AFTER:
      written = merged(sources[1:])
      return [written.get(place, old) for place, old in zip(self._places(u.src[0]), sources[0])]
    if op is Ops.MULTI:
      return self._joined(u, sources)
    if op in _SAME:
      return sources[0]
    if op is Ops.REDUCE:
      return self._reduce(u, sources[0])
    if op in GroupOp.Movement:
      return self._moved(u, sources[0], truncate(u.dtype, 0))
    if op is Ops.BITCAST:
      return _bitcast(sources[0], u.src[0].dtype, u.dtype)
    if op in GroupOp.Elementwise:
      return self._elementwise(u, sources)
    raise NotImplementedError(f"{op.name} of dtype {u.dtype} has no value that could be compared")

  def _joined(self, u: UOp, pieces: list[Flat]) -> Flat:
    """A value on several devices: its pieces side by side."""
    shape, s = self.shape(u), u.sharding
    assert s is not None
    out: Flat = [None] * math.prod(shape)
    for i, piece in zip(s.here, pieces, strict=True):
      steps = [
        [n * step for n in range(self.size(a), self.size(b))]
        for (a, b), step in zip(s.region(i, shape), _strides(shape))
      ]
      for place, value in zip(map(sum, itertools.product(*steps)), piece, strict=True):
        out[place] = value
    return out

  def _contents(self, u: UOp) -> Flat:
    number, size = u.arg
    rng = random.Random(number)
    return rng.choices(_values(u.dtype, rng, self.ordinary), k=size)

  def _spread(self, values: Flat, shape: Sequence[int]) -> Flat:
    count = math.prod(shape)
    return values * count if len(values) == 1 and count != 1 else values

  def _elementwise(self, u: UOp, sources: list[Flat]) -> Flat:
    shape, source = self.shape(u), u.src[0].dtype
    columns = [self._spread(s, shape) if x.shape == () else s for x, s in zip(u.src, sources)]
    return [exec_alu(u.op, u.dtype, row, source) for row in zip(*columns, strict=True)]

  # *** movement ***

  def _moved(self, u: UOp, values: Flat, fill: Any) -> Flat:
    """The elements of a movement op over `values`, `fill` where it pads."""
    if u.op is Ops.RESHAPE:
      return values
    old, new = self.shape(u.src[0]), self.shape(u)
    strides = [_strides(old)[axis] for axis in (u.arg if u.op is Ops.PERMUTE else range(len(old)))]
    places = [self._axis(u, axis, size) for axis, size in enumerate(new)]
    picked = itertools.product(*([None if i is None else i * s for i in p] for p, s in zip(places, strides)))
    return [fill if None in place else values[sum(place)] for place in picked]  # type: ignore[arg-type]

  def _axis(self, u: UOp, axis: int, size: int) -> list[int | None]:
    """For each position along an axis of the result the one it comes from; None where it is padding."""
    old = self.size(u.src[0].shape[axis])
    if u.op is Ops.PERMUTE:
      return list(range(size))
    if u.op is Ops.EXPAND:
      return [0 if old == 1 else i for i in range(size)]
    if u.op is Ops.FLIP:
      return [old - 1 - i if axis in u.arg else i for i in range(size)]
    first = self.size(pairs(u.geometry)[axis][0])
    if u.op is Ops.SHRINK:
      return [i + first for i in range(size)]
    return [i - first if 0 <= i - first < old else None for i in range(size)]

  def _places(self, view: UOp) -> list[tuple[UOp, int]]:
    """For each element of a view of a buffer, the place in memory that it is."""
    if view.op is Ops.BUFFER:
      return [(view, i) for i in range(view.arg[1])]
    if view.op in GroupOp.Movement:
      return self._moved(view, self._places(view.src[0]), None)
    if view.op is Ops.AFTER:
      return self._places(view.src[0])
    if view.op is Ops.MULTI:
      return self._joined(view, [self._places(s) for s in view.src])
    raise NotImplementedError(f"memory through {view!r} cannot be compared; expected movement over a BUFFER or AFTER")

  # *** reductions ***

  def _reduce(self, u: UOp, values: Flat) -> Flat:
    op, axes = u.arg
    old, new = self.shape(u.src[0]), self.shape(u)
    totals: Flat = [identity_of(op, u.dtype)] * math.prod(new)
    strides = [0 if axis in axes else stride for axis, stride in enumerate(_strides(new))]
    targets = itertools.product(*([i * s for i in range(n)] for n, s in zip(old, strides)))
    for place, value in zip(map(sum, targets), values):
      totals[place] = exec_alu(op, u.dtype, (totals[place], value))
    return totals


def _values(dtype: DType, rng: random.Random, ordinary: bool) -> list[Number]:
  if dtype.kind == "float":
    return floats(dtype, rng, ordinary)
  return [False, True] if dtype.kind == "bool" else integers(int(dtypes.min(dtype)), int(dtypes.max(dtype)), rng)


def _strides(shape: Sequence[int]) -> list[int]:
  return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _bitcast(values: Flat, source: DType, target: DType) -> Flat:
  """Elements reinterpreted, little-endian where the item sizes differ."""
  old, new = source.itemsize, target.itemsize
  data = b"".join(to_bits(source, v).to_bytes(old, "little") for v in values)
  read: Callable[[int], Number] = lambda i: from_bits(target, int.from_bytes(data[i : i + new], "little"))  # noqa: E731
  return [read(i) for i in range(0, len(data), new)]
