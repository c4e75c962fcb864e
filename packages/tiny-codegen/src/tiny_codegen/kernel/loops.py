"""Questions about the loops of a kernel, and the one way to replace a loop by others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from tiny_uop import AddrSpace, AxisType, DType, Ops, PtrDType, UOp, dtypes, simplify
from tiny_uop.graph import chain, operands
from tiny_uop.symbolic import simplify_substituted

CLOSERS = frozenset({Ops.REDUCE, Ops.END})
IN_TILE = frozenset({AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR})
"""Loops of a register tile: they are written out, or become lanes."""
THREADS = frozenset({AxisType.LOCAL, AxisType.GROUP})
"""Loops that the threads of a workgroup share."""
REPLICATED = IN_TILE | THREADS
"""Loops for each iteration of which local memory has a place."""


def loops_of(root: UOp) -> dict[int, UOp]:
  """The RANGEs of a kernel by their ids, in order of the ids."""
  return dict(sorted((u.arg[0], u) for u in root.toposort if u.op is Ops.RANGE))


def next_loop_id(root: UOp) -> int:
  """An id above those of all RANGEs of the kernel."""
  return max((u.arg[0] for u in root.toposort if u.op is Ops.RANGE), default=-1) + 1


def next_alloc_id(root: UOp) -> int:
  """An id above those of all ALLOCs of the kernel."""
  return max((u.arg for u in root.toposort if u.op is Ops.ALLOC), default=-1) + 1


def kind(loop: UOp) -> AxisType:
  """What a RANGE is for."""
  found: AxisType = loop.arg[1]
  return found


def extent(loop: UOp) -> int | None:
  """The number of iterations of a RANGE, None where it is symbolic."""
  return int(loop.src[0].arg) if loop.src[0].op is Ops.CONST else None


def in_order(loops: Iterable[UOp]) -> list[UOp]:
  """RANGEs sorted by id: sets have no order of their own that is the same in every process."""
  return sorted(loops, key=lambda r: (r.arg[0], r.arg[1].name))


def number(value: int) -> UOp:
  """A constant offset or size."""
  return UOp.const(dtypes.index, value)


def terms(expression: UOp) -> list[UOp]:
  """The summands of a sum."""
  return list(operands(expression, Ops.ADD))


def clauses(condition: UOp) -> list[UOp]:
  """What all has to hold for a condition to hold."""
  return list(operands(condition, Ops.AND))


def all_of(conditions: Iterable[UOp]) -> UOp | None:
  """The condition that all of these hold; None for none."""
  listed = list(conditions)
  return chain(Ops.AND, listed) if listed else None


def stride(offset: UOp, loop: UOp) -> int | None:
  """By how much `offset` grows from one iteration of `loop` to the next; None where that is not a known constant."""
  total = 0
  for term in terms(offset):
    if loop not in term.ranges:
      continue
    if term is loop:
      total += 1
    elif term.op is Ops.MUL and term.src[0] is loop and term.src[1].op is Ops.CONST:
      total += int(term.src[1].arg)
    elif term.op is Ops.SHL and term.src[0] is loop and term.src[1].op is Ops.CONST:  # late, a product is a shift
      total += 1 << int(term.src[1].arg)
    else:
      return None
  return total


def pointer_type(place: UOp) -> PtrDType:
  """The type of a buffer, or of an address in one."""
  assert isinstance(place.dtype, PtrDType)
  return place.dtype


def element_of(place: UOp) -> DType:
  """The type of the elements of a buffer, or of the one at an address."""
  return pointer_type(place).base


def space_of(u: UOp) -> AddrSpace | None:
  """The memory that a node points into; None for a node that is no pointer."""
  return u.dtype.space if isinstance(u.dtype, PtrDType) else None


def nbytes_of(buffer: UOp) -> int:
  """Bytes of a PARAM or ALLOC."""
  return pointer_type(buffer).size * pointer_type(buffer).base.itemsize


def in_register(store: UOp) -> bool:
  """Whether a LOAD or STORE is of a register."""
  return space_of(store.src[0]) is AddrSpace.REG


def synchronised_loops(root: UOp) -> frozenset[UOp]:
  """The loops in which threads wait for each other or exchange values, so that all of them have to run as often."""
  synchronising = [u for u in root.toposort if u.op in (Ops.BARRIER, Ops.SHUFFLE)]
  return frozenset().union(*[u.ranges.union(s for s in u.src if s.op is Ops.RANGE) for u in synchronising])


def replace_loop(root: UOp, loop: UOp, value: UOp, places: Callable[[UOp], tuple[UOp, ...]]) -> UOp:
  """The kernel with RANGE `loop` replaced by `value` in expressions, and in the loop list of each END, REDUCE and STAGE
  that names it by `places(node)`, the node's new loop list."""
  done: dict[UOp, UOp] = {loop: value}
  for node in root.toposort:
    if node in done:
      continue
    if (node.op in CLOSERS or node.op is Ops.STAGE) and loop in node.src[1:]:
      done[node] = node.replace(src=(done[node.src[0]], *places(node)))
    else:
      done[node] = node.with_src(tuple([done[s] for s in node.src]))
  return done[root]


def own_loops(u: UOp) -> tuple[UOp, ...]:
  """The RANGEs that an END, REDUCE or STAGE closes."""
  return tuple([r for r in u.src[1:] if r.op is Ops.RANGE])


def own_memory(root: UOp, loop: UOp) -> dict[UOp, UOp]:
  """Local memory that each iteration of the loop fills and reads, with as much that is new, for a copy of an iteration.

  Memory that the loop as a whole fills is not: there an AFTER is outside the loop.
  """
  filled: dict[UOp, None] = {}
  for u in root.toposort:
    if u.op is Ops.AFTER and loop in u.ranges and u.src[0].op is Ops.ALLOC:
      filled[u.src[0]] = None
  first = next_alloc_id(root)
  return {memory: memory.replace(arg=first + place) for place, memory in enumerate(filled)}


def with_memory(body: UOp, loop: UOp, memory: dict[UOp, UOp]) -> UOp:
  """The body of a loop with other local memory in what its iterations have for themselves. What is computed once for
  all of them may use the same memory before, and stays as it is."""
  done: dict[UOp, UOp] = {}
  for u in body.toposort:
    done[u] = u.with_src(tuple([memory.get(s, done[s]) for s in u.src])) if loop in u.ranges else u
  return done[body]


def substitute_simplified(root: UOp, changes: Mapping[UOp, UOp]) -> UOp:
  """Substitute values for loops, and simplify what changed."""
  loops = frozenset(changes)
  # what is inside none of the loops stays as it is, and need not be looked at
  return simplify_substituted(root, changes, lambda u: not loops.isdisjoint(u.ranges), _dependencies_that_are_loops)


def _dependencies_that_are_loops(u: UOp) -> UOp:
  """AFTER and BARRIER name the loops they are in: a value that has taken a loop's place says which loops these are
  now.
  """
  if u.op is not Ops.AFTER and u.op is not Ops.BARRIER:
    return u
  kept = 1 if u.op is Ops.AFTER else 0
  if all(s.op is Ops.RANGE or s.dtype.kind != "index" for s in u.src[kept:]):
    return u
  dependencies: dict[UOp, None] = {}
  for s in u.src[kept:]:
    is_value = s.op is not Ops.RANGE and s.dtype.kind == "index"
    dependencies.update(dict.fromkeys(in_order(s.ranges) if is_value else [s]))
  if kept and not dependencies:
    return u.src[0]
  return u.replace(src=(*u.src[:kept], *dependencies))


def iterations(loops: Iterable[UOp]) -> float:
  """How often a loop nest runs, at most."""
  total = 1.0
  for loop in loops:
    total *= max(int(loop.src[0].vmax), 1)
  return total


def factor(offset: UOp) -> int:
  """A number that divides an integer expression whatever its loops and variables are; 0 if it is 0."""
  if offset.op is Ops.CONST:
    return abs(int(offset.arg))
  if offset.op is Ops.MUL:
    return factor(offset.src[0]) * factor(offset.src[1])
  if offset.op in (Ops.ADD, Ops.SUB):
    return math.gcd(factor(offset.src[0]), factor(offset.src[1]))
  if offset.op is Ops.MULACC:
    return math.gcd(factor(offset.src[0]) * factor(offset.src[1]), factor(offset.src[2]))
  if offset.op is Ops.FLOORMOD:
    return math.gcd(factor(offset.src[0]), factor(offset.src[1]))
  if offset.op is Ops.WHERE:
    return math.gcd(factor(offset.src[1]), factor(offset.src[2]))
  if offset.op is Ops.SHL and offset.src[1].op is Ops.CONST:
    return factor(offset.src[0]) << int(offset.src[1].arg)
  return factor(offset.src[0]) if offset.op is Ops.CAST else 1


def row_major(counters: tuple[UOp, ...], sizes: tuple[int, ...]) -> UOp:
  """The offset of a place in a box of `sizes`, last axis adjacent."""
  offset = number(0)
  for counter, size in zip(counters, sizes):
    offset = offset * size + counter
  return simplify(offset)
