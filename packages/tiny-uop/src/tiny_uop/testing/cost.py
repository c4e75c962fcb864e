"""What a graph costs, to tell whether a rewrite made it worse."""

from __future__ import annotations

import math

from tiny_uop.evaluate import lanes_of
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.uop import UOp

# In units of an addition, roughly as on a CPU. What is not listed costs 1; leaves, views and structure cost nothing.
_DIVISION, _DIVISION_BY_CONSTANT, _DIVISION_BY_POWER = 20, 6, 2
_TRANSCENDENTAL, _ROOT, _MULTIPLICATION, _MEMORY, _LOOP, _THREEFRY = 20, 10, 2, 4, 4, 60
_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.FDIV})
_FREE = frozenset({
  Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.DEVICE, Ops.BUFFER, Ops.BUFFER_VIEW, Ops.PARAM, Ops.ALLOC, Ops.RANGE,
  Ops.SPECIAL, Ops.SINK, Ops.GROUP, Ops.LINEAR, Ops.AFTER, Ops.END, Ops.BITCAST, Ops.VECTORIZE, Ops.EXTRACT,
})  # fmt: skip
_WEIGHTS: dict[Ops, int] = {
  **dict.fromkeys(_FREE, 0),
  **dict.fromkeys(GroupOp.Transcendental, _TRANSCENDENTAL),
  **dict.fromkeys((Ops.LOAD, Ops.STORE, Ops.COPY, Ops.CONTIGUOUS), _MEMORY),
  Ops.SQRT: _ROOT,
  Ops.REDUCE: _LOOP,
  Ops.MUL: _MULTIPLICATION,
  Ops.MULACC: _MULTIPLICATION,
  Ops.THREEFRY: _THREEFRY,
}


def _weight(u: UOp) -> int:
  if u.op is Ops.MUL and _power_of_two(u.src[1]):
    return 1
  if u.op not in _DIVISIONS:
    return _WEIGHTS.get(u.op, 1)
  if u.src[1].op is not Ops.CONST or u.op is Ops.FDIV:
    return _DIVISION
  return _DIVISION_BY_POWER if _power_of_two(u.src[1]) else _DIVISION_BY_CONSTANT


def _power_of_two(u: UOp) -> bool:
  """Whether all lanes of a constant are ±2**k, k >= 0."""
  if u.op is not Ops.CONST:
    return False
  return all(n == int(n) != 0 and abs(int(n)) & (abs(int(n)) - 1) == 0 for n in lanes_of(u.arg, 1) if math.isfinite(n))


def cost(root: UOp) -> int:
  """The weights of all nodes of a graph, a shared node counted once.

  1 for an addition or a comparison; 2 for a product (1 by a power of two); 2, 6 and 20 for a division by a power of
  two, a constant and anything else; 20 for a transcendental function; 4 for an access to memory or a reduction.
  """
  return sum(map(_weight, root.toposort))
