"""A rough count of what a kernel costs, to compare vector axes with: instructions per run if one axis becomes lanes."""

from __future__ import annotations

from collections.abc import Mapping

from tiny_codegen.loops import stride
from tiny_uop import GroupOp, Ops, UOp, dtypes

# relative to an addition
WEIGHT = {**dict.fromkeys(GroupOp.Transcendental, 12.0), Ops.FDIV: 4.0, Ops.SQRT: 4.0, Ops.THREEFRY: 60.0, Ops.FLOORDIV: 6.0, Ops.FLOORMOD: 6.0,
          Ops.TRUNCDIV: 6.0, Ops.TRUNCMOD: 6.0}  # fmt: skip
GATHER = 2.0


def iterations(loops: frozenset[UOp] | tuple[UOp, ...]) -> float:
  """How often a loop nest runs, at most."""
  total = 1.0
  for loop in loops:
    total *= max(int(loop.src[0].vmax), 1)
  return total


def work(nodes: tuple[UOp, ...], address: frozenset[UOp]) -> float:
  """Instructions of a kernel without vectors."""
  return sum(_runs(u) * WEIGHT.get(u.op, 1.0) for u in nodes if _counts(u, address))


def _runs(u: UOp) -> float:
  return iterations(u.src[0].ranges if u.op is Ops.REDUCE else u.ranges)


def _counts(u: UOp, address: frozenset[UOp]) -> bool:
  return u.op in (Ops.LOAD, Ops.STORE, Ops.REDUCE) or (u.op in GroupOp.Elementwise and u not in address)


def addresses(nodes: tuple[UOp, ...]) -> frozenset[UOp]:
  """The arithmetic on addresses and gates, which mostly leaves the loop or folds into accesses."""
  return frozenset(u for u in nodes if u.dtype.scalar() in (dtypes.index, dtypes.void))


def vector_cost(nodes: tuple[UOp, ...], address: frozenset[UOp], axes: Mapping[UOp, float]) -> float:
  """Instructions of a kernel in which each of `axes`, no two of them around one value, becomes that many lanes."""
  total = 0.0
  for u in nodes:
    if not _counts(u, address):
      continue
    cost = _runs(u) * WEIGHT.get(u.op, 1.0)
    inside = u.src[0].ranges if u.op is Ops.REDUCE else u.ranges
    for axis, lanes in axes.items():
      if axis in inside:
        cost *= _share(u, axis, lanes)
        if u.op is Ops.REDUCE and axis in u.src[1:]:
          cost += iterations(u.ranges) * 8  # lanes are combined at the end
        break
    total += cost
  return total


def _share(u: UOp, axis: UOp, lanes: float) -> float:
  """Instructions per iteration of the axis."""
  if u.op in (Ops.LOAD, Ops.STORE):
    step = stride(u.src[0].src[1], axis)
    if step != 1 and (step != 0 or u.op is Ops.STORE):
      return GATHER
  return 1 / lanes
