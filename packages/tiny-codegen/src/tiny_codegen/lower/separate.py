"""Pass: every RANGE becomes one loop.

Two ENDs or REDUCEs may name the same RANGE. Where they can run as one loop they keep sharing it (sum and sum of
squares over one axis); where one needs the other's result (softmax: the sum needs the maximum), or they sit inside
different loops, each gets a RANGE of its own.
"""

from __future__ import annotations

from tiny_codegen.kernel.loops import CLOSERS, kind, next_loop_id
from tiny_uop import Ops, UOp
from tiny_uop.graph import rebuild

# (END or REDUCE, rank in the chain of loops that need each other, the loops outside, the path of loops down to this
# one)
Instance = tuple[Ops, int, frozenset[UOp], tuple[UOp, ...]]


def separate(root: UOp) -> UOp:
  """The kernel with each RANGE closed by ENDs and REDUCEs that can share one loop."""
  # renaming an outer loop can part two inner ones, so go on until nothing changes
  while True:
    new = _separate_once(root)
    if new is root:
      return root
    root = new


def _closers_below(root: UOp) -> dict[UOp, frozenset[UOp]]:
  """For every node the closers it needs."""
  below: dict[UOp, frozenset[UOp]] = {}
  for u in root.toposort:
    found: frozenset[UOp] = frozenset()
    for s in u.src:
      other = below[s]
      if other and other is not found and not other <= found:
        found = found | other
    below[u] = found | {u} if u.op in CLOSERS else found
  return below


def _ranks(root: UOp) -> dict[UOp, int]:
  """How many closers of a common loop each closer has to wait for."""
  below = _closers_below(root)
  ranks: dict[UOp, int] = {}
  for u in below:
    if u.op in CLOSERS:
      own = set(u.src[1:])
      waited_for = [c for c in below[u.src[0]] if not own.isdisjoint(c.src[1:])]
      ranks[u] = max([ranks[c] + 1 for c in waited_for], default=0)
  return ranks


def _separate_once(root: UOp) -> UOp:
  loops = [r for u in root.toposort if u.op in CLOSERS for r in u.src[1:]]
  if len(set(loops)) == len(loops):
    return root
  ranks = _ranks(root)
  names: dict[tuple[UOp, Instance], UOp] = {}
  taken: set[UOp] = set()
  fresh = next_loop_id(root)
  renamed: dict[UOp, dict[UOp, UOp]] = {}
  for closer, rank in ranks.items():
    for place, loop in enumerate(closer.src[1:], 2):
      instance = closer.op, rank, closer.ranges, closer.src[1:place]
      if (loop, instance) not in names:
        if loop in taken:
          names[loop, instance] = UOp.range(loop.src[0], fresh, kind(loop))
          fresh += 1
        else:
          names[loop, instance] = loop
          taken.add(loop)
      if (name := names[loop, instance]) is not loop:
        renamed.setdefault(closer, {})[loop] = name
  if not renamed:
    return root

  def change(u: UOp, new: UOp) -> UOp:
    for loop, name in renamed.get(u, {}).items():
      new = _rename(new, loop, name)
    return new

  return rebuild(root, change)


def _rename(closer: UOp, loop: UOp, name: UOp) -> UOp:
  """The closer with its RANGE renamed, but not inside closers of the same RANGE: there it is another loop."""
  done: dict[UOp, UOp] = {loop: name}
  for u in closer.src[0].walk(lambda u: loop in u.ranges):
    if u not in done:
      done[u] = u.with_src(tuple([done[s] for s in u.src])) if loop in u.ranges else u
  return closer.replace(src=tuple([done.get(s, s) for s in closer.src]))
