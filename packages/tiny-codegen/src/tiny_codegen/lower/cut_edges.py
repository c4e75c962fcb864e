"""Pass: the edges of a padded image are taken apart from its inside, where loads need no gates.

A window that slides over an image with padding has gates for rows and columns beyond it, which hold in all iterations
of a loop but the first and the last ones. Masks cost instructions and registers in each of them, and where a target has
none, lanes are loaded apart. So a loop goes over what is inside, without those gates, and the edges are copies of its
body, of which much is known:

    for y < 14: for x < 7: out[y, x] = window(y, x)
      →  for x < 7: out[0, x] = window(0, x)
         for y < 12: {out[1 + y, 0] = window(1 + y, 0)
                      for x < 5: out[1 + y, 1 + x] = window(1 + y, 1 + x)  # no gates
                      out[1 + y, 6] = window(1 + y, 6)}
         for x < 7: out[13, x] = window(13, x)

Memory is walked through in the same order: with both edges after the inside, a convolution of more than caches keep
took twice as long (Zen 4).

Source: M. Wolfe, High Performance Compilers for Parallel Computing (1996), index set splitting.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.loops import IN_TILE, extent, in_order, kind, next_loop_id, substitute_simplified
from tiny_codegen.kernel.memory import gates_of, nbytes_of
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp, dtypes, simplify

TRUE = UOp.const(dtypes.bool, True)
LEAST_INSIDE, WITH_MASKS = 1 / 2, 3 / 5
"""Iterations of a loop that have to be inside, as a share: else there is more code, and little of it runs without
gates. More of them where masks cost one operand of a load: with half of four rows of tiles, 5×5 windows of 8 × 96 × 56²
took 1.1 times as long with AVX-512, as edges do not prefetch for the next tile, and 0.93 with AVX2 (Zen 4)."""
LEAST_TILES = 3
"""Whole tiles of a row of results, at least, where a kernel waits for memory and AVX-512 has masks: with the edges
apart, 3×3 windows of 56² to 112² took 0.80 to 0.94 of their time, with two rows a tile; of 28² with four 1.37 times as
long, and with a step of two and one row 1.03 to 1.06 (Zen 4). Perhaps as loads are as far apart from one tile to the
next in all of an image, which processors fetch ahead of, where edges have no loads of their own."""


@dataclass(frozen=True)
class Inside:
  """Which iterations of a loop are inside: from the first on, and before the last. `gates` hold in all of them."""

  first: int
  last: int
  gates: tuple[UOp, ...]


def cut_edges(root: UOp, target: Target) -> UOp:
  """The kernel with the first and last iterations of loops apart where only they need gates of vectors."""
  if target.has_local or not target.vector_bits:
    return root
  ends = [end for part in root.src for end in _effects(part)]
  touched = sum(nbytes_of(u) for u in root.toposort if u.op is Ops.PARAM)
  if target.has_masks and touched > target.cost.in_caches and not any(map(_has_long_rows, ends)):
    return root
  least = WITH_MASKS if target.has_masks else LEAST_INSIDE
  pieces = _pieces(ends, 1, least, itertools.count(next_loop_id(root)))
  return root if len(pieces) == len(ends) else root.with_src(tuple(pieces))


def _pieces(ends: Sequence[UOp], place: int, least: float, fresh: Iterator[int]) -> list[UOp]:
  """The ENDs of a kernel, which have the loops before a place in common, with those behind it cut, where at least such
  a share of their iterations is inside. `fresh` gives numbers of new loops."""
  pieces = list[UOp]()
  for loop, shared in itertools.groupby(ends, lambda end: _loop_at(end, place)):
    run = list(shared)
    inside = None if loop is None else _inside_of_all(run, loop, least)
    if loop is None:
      pieces += run
    elif inside is None:
      pieces += _pieces(run, place + 1, least, fresh)
    else:
      free = [end.replace(src=(_without(end.src[0], inside.gates), *end.src[1:])) for end in run]
      pieces += _part(run, place, 0, inside.first, fresh)
      pieces += _pieces(_part(free, place, inside.first, inside.last, fresh), place + 1, least, fresh)
      pieces += _part(run, place, inside.last, extent(loop) or 0, fresh)
  return pieces


def _effects(part: UOp) -> list[UOp]:
  return [effect for each in part.src for effect in _effects(each)] if part.op is Ops.GROUP else [part]


def _has_long_rows(end: UOp) -> bool:
  """Whether several rows of windows are computed at a time, and rows of results are several tiles long."""
  if end.op is not Ops.END or end.src[0].op is not Ops.STORE:
    return False
  loops, place = end.src[1:], end.src[0].src[0].src[1]
  lanes = math.prod([extent(r) or 0 for r in loops if kind(r) is AxisType.VECTOR])
  along = [r for r in loops if kind(r) is AxisType.LOOP and stride(place, r) == lanes]
  return any(kind(r) is AxisType.UPCAST for r in loops) and any((extent(r) or 0) >= LEAST_TILES for r in along)


def _loop_at(end: UOp, place: int) -> UOp | None:
  """The loop at a place of an END; None where there is none, and for a nest with memory of its own."""
  nested = end.op is not Ops.END or any(u.op in (Ops.END, Ops.AFTER) for u in end.src[0].toposort)
  return None if nested or place >= len(end.src) else end.src[place]


def _without(body: UOp, gates: Sequence[UOp]) -> UOp:
  return body.substitute(dict.fromkeys(gates, TRUE))


def _part(ends: Sequence[UOp], place: int, first: int, last: int, fresh: Iterator[int]) -> list[UOp]:
  """Some iterations of the loop at a place of ENDs, with loops of their own from there on: what parts have in common
  would run as one, and memory would be walked through in another order."""
  if first == last:
    return []
  around, loop = ends[0].src[1:place], ends[0].src[place]
  inner = in_order({u for end in ends for u in end.toposort if u.op is Ops.RANGE}.difference(around, (loop,)))
  own = {r: r.replace(arg=(next(fresh), kind(r))) for r in inner}
  part = UOp.range(last - first, next(fresh), kind(loop))
  counter, loops = (number(first), ()) if last - first == 1 else (first + part, (part,))
  bodies = [substitute_simplified(end.src[0], {**own, loop: counter}) for end in ends]
  nests = [(*around, *loops, *[own[r] for r in end.src[place + 1 :]]) for end in ends]
  return [end.replace(src=(body, *nest)) if nest else body for end, body, nest in zip(ends, bodies, nests)]


def _inside_of_all(ends: Sequence[UOp], loop: UOp, least: float) -> Inside | None:
  """What of a loop is inside for all ENDs; None where it has no edges, or where less than such a share is inside."""
  size = extent(loop)
  if size is None or kind(loop) is not AxisType.LOOP:
    return None
  first, last, gates = 0, size, dict[UOp, None]()
  for end in ends:
    others = frozenset(r for r in end.src[1:] if kind(r) not in IN_TILE) - {loop}
    for clause in _vector_gates(end.src[0]):
      low, high = _holds(clause, loop, others, size)
      if low < high:
        first, last = max(first, low), min(last, high)
        gates[clause] = None
  return Inside(first, last, tuple(gates)) if gates and last - first >= least * size else None


def _vector_gates(body: UOp) -> Iterator[UOp]:
  """The clauses of gates of loads of vectors."""
  for u in body.toposort:
    if u.op is Ops.LOAD and any(kind(r) is AxisType.VECTOR for r in u.ranges):
      yield from gates_of(u)


def _holds(clause: UOp, loop: UOp, others: frozenset[UOp], size: int) -> tuple[int, int]:
  """The iterations of a loop in which a clause holds whatever the loops inside of it do: the first, and the one behind
  the last. (0, 0) for a clause that is not about a place along this loop alone."""
  negated = clause.op is Ops.CMPNE and clause.src[1] is TRUE
  compared = clause.src[0] if negated else clause
  if compared.op is not Ops.CMPLT or compared.src[0].dtype is not dtypes.index:
    return 0, 0
  position = simplify(compared.src[0] - compared.src[1])
  step = stride(position, loop)
  rest = simplify(position - loop * step) if step else None
  if step is None or rest is None or rest.ranges & (others | {loop}) or rest.variables or _is_read(rest):
    return 0, 0
  # step * n + rest < 0 for all rests; negated, -step * n - rest <= 0
  step, bound = (-step, int(rest.vmin)) if negated else (step, -1 - int(rest.vmax))
  if step > 0:
    return 0, max(0, min(size, bound // step + 1))
  return max(0, -(bound // -step)), size


def _is_read(value: UOp) -> bool:
  return any(u.op is Ops.LOAD for u in value.toposort)
