"""Pass: scalars of a register tile that are next to each other in memory are loaded as one vector.

Arm's multiply-adds and dot products take one factor from a lane of a register for all lanes of the other (`FMLA v0.4s,
v1.4s, v2.s[3]`; Arm Architecture Reference Manual, "by element"), so a scalar that is spread over a vector needs no
instruction of its own. Four of a register need one load instead of four:

    MULACC(VECTORIZE(a[i] × 4), …), MULACC(VECTORIZE(a[i + 1] × 4), …), … of a[i + 2] and a[i + 3]
    →  v = LOAD float32x4 a[i]: MULACC(EXTRACT(v, (0, 0, 0, 0)), …), MULACC(EXTRACT(v, (1, 1, 1, 1)), …), …

They are neighbouring rows of a tile, or neighbouring steps of a row. In the second case every row has a register for
all steps that are written out: where accumulators leave no room, the tile stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.kernel.expressions import split_constant
from tiny_codegen.kernel.memory import gate_of, in_register
from tiny_codegen.lower.tile_order import factors, steps_of_sum
from tiny_codegen.target import Target
from tiny_uop import DType, Ops, UOp
from tiny_uop.graph import rebuild


def multiply_by_lane(root: UOp, target: Target) -> UOp:
  """The kernel with lanes of vectors for the scalars of its tiles, where the target multiplies by those."""
  tiles: dict[tuple[UOp, ...], list[list[UOp]]] = {}  # the sums in the same loops
  for end in root.toposort if target.multiplies_by_lane else ():
    if end.op is Ops.END:
      stores = end.src[0].src if end.src[0].op is Ops.GROUP else end.src[:1]
      sums = [steps_of_sum(s) for s in stores if s.op is Ops.STORE and in_register(s)]
      tiles.setdefault(end.src[1:], []).extend(sums)
  lanes: dict[UOp, UOp] = {}
  for sums in tiles.values():
    lanes |= _lanes(sums, target)

  def change(old: UOp, new: UOp) -> UOp | None:
    if old.op is Ops.MMA and old.src[0] in lanes and old.arg.dtype_a is old.arg.dtype_b:
      return new.replace(src=(new.src[1], new.src[0], new.src[2]))  # the second factor is what has lanes
    return lanes.get(old)

  return rebuild(root, change) if lanes else root


def _lanes(sums: Sequence[Sequence[UOp]], target: Target) -> dict[UOp, UOp]:
  """What stands for the scalars of a tile that are spread over vectors; nothing where registers do not suffice."""
  spread = [
    (level, factor)
    for steps in sums
    for level, step in enumerate(steps)
    if _multiplied(step) in target.multiplies_by_lane
    for factor in factors(step)
    if _is_spread(factor)
  ]
  vectors = _vectors({factor.src[0] for _, factor in spread}, target)
  read: dict[UOp, list[int]] = {}
  for level, factor in spread:
    if factor.src[0] in vectors:
      read.setdefault(vectors[factor.src[0]][0], []).append(level)
  levels = range(max(map(len, sums), default=0))
  live = max((sum(min(at) <= level <= max(at) for at in read.values()) for level in levels), default=0)
  accumulators = sum(-(-steps[0].dtype.count // target.lanes(steps[0].dtype.scalar())) for steps in sums if steps)
  if accumulators + live >= target.vector_registers:  # the other factor has one, too
    return {}
  found = {}
  for _, factor in spread:
    if factor.src[0] in vectors:
      vector, lane = vectors[factor.src[0]]
      found[factor] = vector.extract(*[lane] * factor.dtype.count)
  return found


def _multiplied(step: UOp) -> DType:
  """The type of the numbers that a step of a sum multiplies."""
  return step.arg.dtype_a if isinstance(step.arg, DotProduct) else step.dtype.scalar()


def _is_spread(factor: UOp) -> bool:
  """Whether all lanes are the same scalar, which is read from memory in any case."""
  load = factor.src[0] if factor.op is Ops.VECTORIZE and all(s is factor.src[0] for s in factor.src) else factor
  return load.op is Ops.LOAD and load is not factor and len(load.src) == 1 and gate_of(load) is None


def _vectors(scalars: set[UOp], target: Target) -> dict[UOp, tuple[UOp, int]]:
  """By LOAD of a scalar, the LOAD of the vector register that has it and its neighbours, and its lane there."""
  pieces: dict[tuple[UOp, UOp | None, DType], dict[int, UOp]] = {}
  for load in scalars:
    varies, constant = split_constant(load.src[0].src[1])
    pieces.setdefault((load.src[0].src[0], varies, load.dtype), {})[constant] = load
  found: dict[UOp, tuple[UOp, int]] = {}
  for (_, _, dtype), places in pieces.items():
    count = target.lanes(dtype)
    for first in sorted(places):
      run = [places.get(first + lane) for lane in range(count)]
      if count > 1 and all(load is not None and load not in found for load in run):
        vector = places[first].replace(dtype=dtype.vec(count))
        found |= {load: (vector, lane) for lane, load in enumerate(run) if load is not None}
  return found
