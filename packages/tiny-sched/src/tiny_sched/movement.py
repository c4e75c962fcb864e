"""Movement operations as index arithmetic: where an element of the result comes from. One function per operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tiny_sched.index import (
  ZERO,
  Gate,
  Index,
  as_uop,
  both,
  flatten,
  is_empty,
  known,
  memoised,
  plus,
  simplify,
  unflatten,
)
from tiny_sched.views import is_reinterpretation
from tiny_uop import GroupOp, Ops, Shape, UOp, dtypes, prod, sint
from tiny_uop.shape import same_size

Axes: TypeAlias = frozenset[int]
_NEVER = UOp.const(dtypes.bool, False)


@memoised
def _ones(shape: Shape) -> tuple[int, ...]:
  """The axes of size 1."""
  return tuple([axis for axis, size in enumerate(shape) if known(size) == 1])


@memoised
def _runs(out: Shape, source: Shape) -> list[tuple[slice, slice]]:
  """The finest runs of axes of two shapes that hold the same number of elements, in order.

  RESHAPE mixes axes only within a run. A run ends where the axes up to there have as many elements on both sides,
  whatever the values of variables are; an axis of size 1 that the other side lacks is a run by itself.
  """
  i = j = 0
  runs: list[tuple[slice, slice]] = []
  while i < len(out) or j < len(source):
    start_i, start_j = i, j
    one_i, one_j = known(out[i]) == 1 if i < len(out) else None, known(source[j]) == 1 if j < len(source) else None
    if one_i and not one_j:
      i += 1
    elif one_j and not one_i:
      j += 1
    else:
      i, j = _next_run(out, source, i, j)
    runs.append((slice(start_i, i), slice(start_j, j)))
  return runs


def _next_run(out: Shape, source: Shape, i: int, j: int) -> tuple[int, int]:
  """Where the run ends that begins with axis `i` of one shape and axis `j` of the other: at the end of both if no axes
  before it have the same number of elements for certain.
  """
  products = [prod(source[j:stop]) for stop in range(j + 1, len(source) + 1)]
  for stop in range(i + 1, len(out) + 1):
    left = prod(out[i:stop])
    for n, right in enumerate(products, j + 1):
      if same_size(left, right):
        return stop, n
  return len(out), len(source)


def _reshape(node: UOp, index: Index) -> tuple[Index, Gate]:
  out, source = node.shape, node.src[0].shape
  result: list[UOp] = []
  for here, there in _runs(out, source):
    sizes, positions = source[there], index[here]
    if len(positions) == 1 and len(sizes) == 1:
      result.append(positions[0])
    elif sizes:
      flat = flatten(positions, out[here])
      result.extend((simplify(flat),) if len(sizes) == 1 else unflatten(flat, sizes))
  return tuple(result), None


def _permute(node: UOp, index: Index) -> tuple[Index, Gate]:
  result = [ZERO] * len(index)
  for axis, source_axis in enumerate(node.arg):
    result[source_axis] = index[axis]
  return tuple(result), None


def _shrink(node: UOp, index: Index) -> tuple[Index, Gate]:
  starts, source = node.geometry[::2], node.src[0].shape
  places = [plus(position, start) for position, start in zip(index, starts)]
  return tuple([_in_memory(p, kept, s) for p, kept, s in zip(places, node.shape, source)]), None


def _flip(node: UOp, index: Index) -> tuple[Index, Gate]:
  shape = node.shape
  turned = [simplify(as_uop(shape[a]) - 1 - p) if a in node.arg else p for a, p in enumerate(index)]
  return tuple([_in_memory(p, s, s) if a in node.arg else p for a, (p, s) in enumerate(zip(turned, shape))]), None


def _in_memory(place: UOp, count: sint, size: sint) -> UOp:
  """The place of one of `count` elements along an axis of a size. One that may not be there depends on no loop, and so
  is read before the loop that has no iterations then: its place has to be in memory all the same.
  """
  if isinstance(count, int) or count.vmin > 0 or count.vmax > 1:
    return place
  return simplify(place.minimum(as_uop(size) - 1).maximum(0))


def _pad(node: UOp, index: Index) -> tuple[Index, Gate]:
  source = node.src[0].shape
  if is_empty(source):
    return (ZERO,) * len(source), _NEVER
  geometry = node.geometry
  result: list[UOp] = []
  gate: Gate = None
  for axis, position in enumerate(index):
    before, after = geometry[2 * axis], geometry[2 * axis + 1]
    if known(before) == 0 and known(after) == 0:
      result.append(position)
      continue
    inner = simplify(position - before)
    if known(before) != 0:
      gate = both(gate, simplify((position < before).logical_not()))
    if known(after) != 0:
      gate = both(gate, simplify(inner < source[axis]))
    result.append(inner)
  return tuple(result), gate


MOVES: dict[Ops, Callable[[UOp, Index], tuple[Index, Gate]]] = {
  Ops.RESHAPE: _reshape,
  Ops.EXPAND: lambda node, index: (index, None),  # axes of size 1 are put to 0 for all operations alike
  Ops.PERMUTE: _permute,
  Ops.SHRINK: _shrink,
  Ops.FLIP: _flip,
  Ops.PAD: _pad,
}


def source_index(node: UOp, index: Index) -> tuple[Index, Gate]:
  """Which element of `node.src[0]` element `index` of the movement op `node` is, and where it is one at all (PAD)."""
  result, gate = MOVES[node.op](node, index)
  if gate is not None and gate.op is Ops.CONST and gate.arg is True:
    gate = None
  if ones := _ones(node.src[0].shape):
    result = tuple([ZERO if axis in ones else position for axis, position in enumerate(result)])
  return result, gate


def repeated_axes(u: UOp, below: Mapping[UOp, Axes]) -> Axes:
  """The axes along which all elements of a node are the same, those of one element included, given them for its
  sources. A value that is held in memory needs one element along each."""
  if u.op is Ops.CONST:
    return frozenset(range(len(u.shape)))
  if u.op in GroupOp.Elementwise and not is_reinterpretation(u):
    return frozenset.intersection(*[below[s] for s in u.src if s.shape]) if u.shape else frozenset()
  if u.op in (Ops.EXPAND, Ops.FLIP) or u.op in GroupOp.Identity:
    return below[u.src[0]]
  if u.op is Ops.REDUCE:
    return below[u.src[0]].union(u.arg[1])
  if u.op is Ops.PERMUTE:
    return frozenset([axis for axis, source_axis in enumerate(u.arg) if source_axis in below[u.src[0]]])
  if u.op is Ops.RESHAPE:
    runs = _runs(u.shape, u.src[0].shape)
    found = [here for here, there in runs if below[u.src[0]].issuperset(range(there.start, there.stop))]
    return frozenset([axis for here in found for axis in range(here.start, here.stop)])
  if u.op is Ops.SHRINK:
    return below[u.src[0]].union(_ones(u.shape))
  if u.op is Ops.PAD:
    padded = {axis // 2 for axis, size in enumerate(u.geometry) if known(size) != 0}
    return below[u.src[0]] - padded
  return frozenset(_ones(u.shape))
