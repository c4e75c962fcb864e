"""A rough count of what a kernel costs, to compare vector axes with: instructions per run if one axis becomes lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import CLOSERS, iterations
from tiny_codegen.lower.transpose_in_registers import transposed_loads
from tiny_codegen.lower.vectorize import WIDE
from tiny_uop import AxisType, GroupOp, Ops, UOp

# relative to an addition
WEIGHT = {**dict.fromkeys(GroupOp.Transcendental, 12.0), Ops.FDIV: 4.0, Ops.SQRT: 4.0, Ops.THREEFRY: 60.0,
          Ops.FLOORDIV: 6.0, Ops.FLOORMOD: 6.0,
          Ops.TRUNCDIV: 6.0, Ops.TRUNCMOD: 6.0}  # fmt: skip
GATHER = 2.0
TRANSPOSED = 0.4  # of a vector of lanes that are far apart, if their neighbours are read too
EVERY_SECOND = 4.0  # two loads, and the lanes of both that are needed
COMBINE = 8.0  # the lanes of a reduction, at its end


def nodes_of_body(root: UOp, loop: UOp) -> int:
  """Nodes that writing out the loop repeats, for every iteration of loops written out already."""
  nodes = root.toposort
  done = {r for r in nodes if r.op is Ops.RANGE and r.arg[1] in (AxisType.UPCAST, AxisType.UNROLL)}
  return int(sum(iterations(u.ranges & done) for u in nodes if loop in u.ranges and u.op not in CLOSERS))


class Cost:
  """Counts of one kernel's instructions."""

  def __init__(self, root: UOp) -> None:
    self.nodes = root.toposort
    self.around = _nest(self.nodes)
    self.transposed = transposed_loads(u for u in self.nodes if u.op is Ops.LOAD)
    # what is counted: (node, how often it runs without vectors, the loops it stands in)
    self.counted: list[tuple[UOp, float, frozenset[UOp]]] = []
    for u in self.nodes:
      if u.op in (Ops.LOAD, Ops.STORE, Ops.REDUCE) or (
        u.op in GroupOp.Elementwise and u.dtype.kind not in ("index", "bool")
      ):
        inside = u.src[0].ranges if u.op is Ops.REDUCE else u.ranges
        # what does not depend on a loop that it stands in runs less often too if that loop becomes lanes
        self.counted.append((u, self.runs(inside) * WEIGHT.get(u.op, 1.0), self._nest(inside)))

  def runs(self, loops: frozenset[UOp]) -> float:
    """How often something inside these loops runs: once per iteration of all loops around them."""
    return iterations(self._nest(loops))

  def _nest(self, loops: frozenset[UOp]) -> frozenset[UOp]:
    return frozenset().union(*[self.around[r] for r in loops])

  def scalar(self) -> float:
    """Without vectors."""
    return sum(cost for _, cost, _ in self.counted)

  def vector(self, axes: Mapping[UOp, float]) -> float:
    """With each of `axes`, no two of them around one value, as that many lanes."""
    total = 0.0
    for u, cost, inside in self.counted:
      for axis, lanes in axes.items():
        if axis in inside:
          cost *= _share(u, axis, lanes, u in self.transposed)
          if u.op is Ops.REDUCE and axis in u.src[1:]:
            cost += self.runs(u.ranges) * COMBINE
          break
      total += cost
    return total


def _nest(nodes: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
  """For each loop, it and all loops around it."""
  direct: dict[UOp, set[UOp]] = {}
  for u in nodes:
    if u.op is Ops.RANGE:
      direct.setdefault(u, {u})
    elif u.op in CLOSERS:
      outside = set(u.ranges)
      for loop in u.src[1:]:
        direct[loop] |= outside
        outside.add(loop)
  around: dict[UOp, frozenset[UOp]] = {}
  for loop in direct:
    found, waiting = {loop}, [loop]
    while waiting:
      new = direct[waiting.pop()] - found
      found |= new
      waiting += new
    around[loop] = frozenset(found)
  return around


def _share(u: UOp, axis: UOp, lanes: float, transposed: bool) -> float:
  """Instructions per iteration of the axis."""
  if u.op in (Ops.LOAD, Ops.STORE):
    step = stride(u.src[0].src[1], axis)
    if step == 2 and u.op is Ops.LOAD and lanes > WIDE // 2:
      return EVERY_SECOND / lanes
    if step != 1 and (step != 0 or u.op is Ops.STORE):
      return TRANSPOSED if transposed else GATHER
  return 1 / lanes
