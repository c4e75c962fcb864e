"""What an integer expression is worth at every assignment of its variables, with NumPy: an oracle that shares no code
with `evaluate` or the simplifier.

NumPy's integers wrap as the IR's do, and its division rounds down with `x // 0 = 0`, as the IR's. `index` is int64
here; that it never reaches the ends of that type is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiny_uop import DType, Ops, UOp

Array = np.ndarray[Any, Any]
_INDEX_LIMIT = 2**62


def _truncdiv(a: Array, b: Array) -> Array:
  down = a // b
  inexact = (down * b != a) & (b != 0)
  towards_zero: Array = down + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)
  return towards_zero


_FUNCTIONS: dict[Ops, Callable[..., Array]] = {
  Ops.ADD: lambda a, b: a + b,
  Ops.SUB: lambda a, b: a - b,
  Ops.MUL: lambda a, b: a * b,
  Ops.NEG: lambda a: -a,
  Ops.FLOORDIV: lambda a, b: a // b,
  Ops.FLOORMOD: lambda a, b: a % b,
  Ops.TRUNCDIV: _truncdiv,
  Ops.TRUNCMOD: lambda a, b: np.fmod(a, b),
  Ops.MAX: np.maximum,
  Ops.CMPLT: lambda a, b: a < b,
  Ops.CMPEQ: lambda a, b: a == b,
  Ops.CMPNE: lambda a, b: a != b,
  Ops.AND: lambda a, b: a & b,
  Ops.OR: lambda a, b: a | b,
  Ops.XOR: lambda a, b: a ^ b,
  Ops.SHL: lambda a, b: a << b,
  Ops.SHR: lambda a, b: a >> b,
  Ops.WHERE: np.where,
}  # addition, multiplication and maximum of NumPy's bools are or, and, or, as the IR's


def numpy_type(dtype: DType) -> np.dtype[Any]:
  """The NumPy type that stands for a scalar integer or bool type."""
  return np.dtype(np.int64 if dtype.kind == "index" else dtype.name)


def assignments(leaves: Sequence[UOp]) -> dict[UOp, Array]:
  """Every combination of values of VARIABLEs and of RANGEs, whose extent may be one of the VARIABLEs: an axis for each
  leaf, or one axis for all where not all combinations exist.
  """
  values = [np.array(range(u.vmin, u.vmax + 1), numpy_type(u.dtype)) for u in leaves]
  axes = {
    u: v.reshape([-1 if i == k else 1 for i in range(len(leaves))]) for k, (u, v) in enumerate(zip(leaves, values))
  }
  dependent = [u for u in leaves if u.op is Ops.RANGE and u.src[0] in axes]
  if not dependent:
    return axes
  happens = np.logical_and.reduce(
    np.broadcast_arrays(*[axes[u] < axes[u.src[0]] for u in dependent], *axes.values())[: len(dependent)]
  )
  return {u: np.broadcast_to(v, happens.shape)[happens] for u, v in axes.items()}


class Oracle:
  """Values of expressions over the same leaves; nodes that they share are computed once."""

  def __init__(self, leaves: Sequence[UOp]) -> None:
    self.values: dict[UOp, Array] = assignments(leaves)

  def __call__(self, root: UOp) -> Array:
    """The value at every assignment; a constant has one for all."""
    with np.errstate(all="ignore"):
      for u in root.toposort:
        if u not in self.values:
          self.values[u] = self.compute(u)
    return self.values[root]

  def compute(self, u: UOp) -> Array:
    if u.op is Ops.CONST:
      return np.array([u.arg], numpy_type(u.dtype))
    sources = [self.values[s] for s in u.src]
    if u.op is Ops.CAST:
      value = sources[0].astype(numpy_type(u.dtype))
      assert u.dtype.kind != "index" or sources[0].dtype != np.uint64, "may not fit the oracle's int64"
      return value
    value = _FUNCTIONS[u.op](*sources)
    if u.op is Ops.MUL and u.dtype.kind == "index":
      most = [max(abs(int(s.min())), abs(int(s.max()))) for s in sources]
      assert most[0] * most[1] < _INDEX_LIMIT, f"too large for the oracle's int64: {u.render()}"
    assert value.dtype == numpy_type(u.dtype), (u, value.dtype)
    return value
