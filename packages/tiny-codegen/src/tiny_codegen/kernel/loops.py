"""Questions about the loops of a kernel, and the one way to replace a loop by others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from tiny_codegen.errors import opt_error
from tiny_uop import AxisType, Ops, Opt, UOp, simplify
from tiny_uop.node import kept
from tiny_uop.symbolic import simplify_substituted

CLOSERS = frozenset({Ops.REDUCE, Ops.END})
LOOP_LISTS = CLOSERS | {Ops.STAGE}
"""Nodes that name loops behind their first source."""
IN_TILE = frozenset({AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR})
"""Loops of a register tile: they are written out, or become lanes."""
THREADS = frozenset({AxisType.LOCAL, AxisType.GROUP})
"""Loops that the threads of a workgroup share."""
REPLICATED = IN_TILE | THREADS
"""Loops for each iteration of which local memory has a place."""


def loops_of(root: UOp) -> dict[int, UOp]:
  """The RANGEs of a kernel by their ids, in order of the ids."""
  found = dict.fromkeys(u for part in parts_of(root) for u in _loops_in(part))
  return {u.arg[0]: u for u in sorted(found, key=lambda u: u.arg[0])}


def _loops_in(part: UOp) -> tuple[UOp, ...]:
  return (*_loops_below(part), part) if part.op is Ops.RANGE else _loops_below(part)


@kept
def _loops_below(part: UOp) -> tuple[UOp, ...]:
  return tuple([u for u in part.toposort[:-1] if u.op is Ops.RANGE])


def parts_of(root: UOp, loop: UOp | None = None) -> Sequence[UOp]:
  """The effects of a kernel, or those that a loop is in. What is asked about each of them is known as long as it stays
  as it is: of a kernel with hundreds of effects, an Opt changes one."""
  parts = root.src if root.op is Ops.SINK else (root,)
  return parts if loop is None else [part for part in parts if loop in _loops_in(part)]


def named_loop(root: UOp, opt: Opt, *kinds: AxisType, axis: int | None = None) -> UOp:
  """The loop that an Opt is for (or another one, by its id). Raises KernelOptError where the kernel has none, or none
  of these kinds."""
  loops, wanted = loops_of(root), opt.axis if axis is None else axis
  if wanted is None or wanted not in loops:
    raise opt_error(opt, f"the kernel has no loop {wanted}; its loops are {list(loops)}")
  if kinds and kind(loops[wanted]) not in kinds:
    names = " or ".join([k.name for k in kinds])
    raise opt_error(opt, f"loop {wanted} is a {kind(loops[wanted]).name} loop, expected a {names} loop")
  return loops[wanted]


def next_loop_id(root: UOp) -> int:
  """An id above those of all RANGEs of the kernel."""
  return max((u.arg[0] for part in parts_of(root) for u in _loops_in(part)), default=-1) + 1


def kind(loop: UOp) -> AxisType:
  """What a RANGE is for."""
  found: AxisType = loop.arg[1]
  return found


def extent(loop: UOp) -> int | None:
  """The number of iterations of a RANGE, None where it is symbolic."""
  return int(loop.src[0].arg) if loop.src[0].op is Ops.CONST else None


def size_of(loop: UOp) -> int:
  """The number of iterations of a RANGE, at most."""
  size = loop.src[0]
  return int(size.arg if size.op is Ops.CONST else size.vmax)


def is_multiple(loop: UOp, of: int) -> bool:
  """Whether the number of iterations of a RANGE is known to be a multiple."""
  rest = simplify(loop.src[0] % of)
  return rest.op is Ops.CONST and rest.arg == 0


def in_order(loops: Iterable[UOp]) -> list[UOp]:
  """RANGEs sorted by id: sets have no order of their own that is the same in every process."""
  return sorted(loops, key=lambda r: (r.arg[0], r.arg[1].name))


def synchronised_loops(root: UOp) -> frozenset[UOp]:
  """The loops in which threads wait for each other or exchange values, so that all of them have to run as often."""
  synchronising = [u for u in root.toposort if u.op in (Ops.BARRIER, Ops.SHUFFLE)]
  return frozenset().union(*[u.ranges.union(s for s in u.src if s.op is Ops.RANGE) for u in synchronising])


def replace_loop(root: UOp, loop: UOp, value: UOp, loops: Iterable[UOp] = (), inside: Iterable[UOp] = ()) -> UOp:
  """The kernel with RANGE `loop` replaced by `value` in expressions, and in the loop list of each END, REDUCE and STAGE
  that names it by `loops` where it stands, and by those that are `inside` of all others."""
  changed: dict[UOp, UOp] = {loop: value}
  for node in itertools.chain.from_iterable([part.toposort for part in parts_of(root, loop)]):
    if node in changed or changed.keys().isdisjoint(node.src):
      continue
    if node.op in LOOP_LISTS and loop in node.src[1:]:
      listed = [new for r in node.src[1:] for new in (loops if r is loop else (r,))]
      changed[node] = node.replace(src=(changed.get(node.src[0], node.src[0]), *listed, *inside))
    else:
      changed[node] = dependencies_that_are_loops(node.with_src(tuple([changed.get(s, s) for s in node.src])))
  return changed[root] if root in changed else root.with_src(tuple([changed.get(s, s) for s in root.src]))


def own_loops(u: UOp) -> tuple[UOp, ...]:
  """The RANGEs that an END, REDUCE or STAGE closes."""
  return tuple([r for r in u.src[1:] if r.op is Ops.RANGE])


def substitute_simplified(root: UOp, changes: Mapping[UOp, UOp]) -> UOp:
  """Substitute values for loops, and simplify what changed."""
  return substitute_each(root, [changes])[0]


def substitute_each(root: UOp, changes: Sequence[Mapping[UOp, UOp]]) -> list[UOp]:
  """The same with several values for the same loops, one graph for each: to look what is inside them takes as long as
  to substitute one."""
  loops = frozenset(changes[0])
  # what is inside none of the loops stays as it is, and need not be looked at
  return simplify_substituted(root, changes, lambda u: not loops.isdisjoint(u.ranges), dependencies_that_are_loops)


def dependencies_that_are_loops(u: UOp) -> UOp:
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
  return math.prod([max(size_of(loop), 1) for loop in loops], start=1.0)
