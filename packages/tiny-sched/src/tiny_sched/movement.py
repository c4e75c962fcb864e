"""Movement operations as index arithmetic: where an element of the result comes from. One function per operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tiny_sched.index import ZERO, Gate, Index, as_uop, both, flatten, is_empty, known, plus, unflatten
from tiny_sched.simple import remembered, simplify
from tiny_uop import Ops, Shape, UOp, dtypes

_NEVER = UOp.const(dtypes.bool, False)


@remembered
def _groups(out: Shape, source: Shape) -> tuple[tuple[slice, slice], ...]:
  """The runs of axes that a RESHAPE mixes, see `_runs`."""
  return tuple(_runs(out, source))


@remembered
def _ones(shape: Shape) -> tuple[int, ...]:
  """The axes of size 1."""
  return tuple([axis for axis, size in enumerate(shape) if known(size) == 1])


def _runs(out: Shape, source: Shape) -> Iterator[tuple[slice, slice]]:
  """The finest runs of axes of two shapes that hold the same number of elements, in order.

  RESHAPE mixes axes only within a run. From the first symbolic axis that is not simply kept on, all is one run.
  """
  i = j = 0
  while i < len(out) or j < len(source):
    start_i, start_j = i, j
    a, b = out[i] if i < len(out) else 1, source[j] if j < len(source) else 1
    i, j = min(i + 1, len(out)), min(j + 1, len(source))
    if a is b or (known(a) is not None and known(a) == known(b)):
      yield slice(start_i, i), slice(start_j, j)
      continue
    if known(a) == 1 and start_i < len(out):
      yield slice(start_i, i), slice(start_j, start_j)
      j = start_j
      continue
    if known(b) == 1 and start_j < len(source):
      yield slice(start_i, start_i), slice(start_j, j)
      i = start_i
      continue
    left, right = known(a), known(b)
    while left != right:
      if left is None or right is None or (left < right and i >= len(out)) or (left > right and j >= len(source)):
        i, j = len(out), len(source)
        break
      if left < right:
        size, i = known(out[i]), i + 1
        left = None if size is None else left * size
      else:
        size, j = known(source[j]), j + 1
        right = None if size is None else right * size
    yield slice(start_i, i), slice(start_j, j)


def _reshape(node: UOp, index: Index) -> tuple[Index, Gate]:
  out, source = node.shape, node.src[0].shape
  result: list[UOp] = []
  for here, there in _groups(out, source):
    sizes, positions = source[there], index[here]
    if len(positions) == 1 and len(sizes) == 1:
      result.append(positions[0])
    elif sizes:
      flat = flatten(positions, out[here])
      result.extend((simplify(flat),) if len(sizes) == 1 else unflatten(flat, sizes))
  return tuple(result), None


def _expand(node: UOp, index: Index) -> tuple[Index, Gate]:
  return index, None  # axes of size 1 are put to 0 for all operations alike


def _permute(node: UOp, index: Index) -> tuple[Index, Gate]:
  result = [ZERO] * len(index)
  for axis, source_axis in enumerate(node.arg):
    result[source_axis] = index[axis]
  return tuple(result), None


def _shrink(node: UOp, index: Index) -> tuple[Index, Gate]:
  starts = node.geometry[::2]
  return tuple([plus(position, start) for position, start in zip(index, starts)]), None


def _flip(node: UOp, index: Index) -> tuple[Index, Gate]:
  shape = node.shape
  flipped = [simplify(as_uop(shape[a]) - 1 - p) if a in node.arg else p for a, p in enumerate(index)]
  return tuple(flipped), None


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
  Ops.EXPAND: _expand,
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
