"""Pass: algebra on addresses and gates. Loops of one iteration go; masks leave sums whose loops do not change them."""

from __future__ import annotations

from tiny_codegen.kernel.loops import LOOP_LISTS, dependencies_that_are_loops, extent
from tiny_codegen.lower.reduce import identity
from tiny_uop import Ops, UOp, simplify
from tiny_uop.graph import rebuild


def simplify_kernel(root: UOp) -> UOp:
  """The kernel after algebra, without loops of one iteration, and with masks outside of sums where they can be."""
  return hoist_masks(drop_single(simplify(root)))


def drop_single(root: UOp) -> UOp:
  """The kernel without loops of exactly one iteration."""
  singles = {u: UOp.const(u.dtype, 0) for u in root.toposort if u.op is Ops.RANGE and extent(u) == 1}
  if not singles:
    return root

  def change(u: UOp, new: UOp) -> UOp | None:
    if u.op in LOOP_LISTS:  # one of no loops is its source
      kept = [now for now, loop in zip(new.src[1:], u.src[1:]) if loop not in singles]
      return new.replace(src=(new.src[0], *kept)) if kept else new.src[0]
    # nothing is AFTER a number
    return singles[u] if u in singles else dependencies_that_are_loops(new)

  return simplify(rebuild(root, change))


def hoist_masks(root: UOp) -> UOp:
  """The kernel with masks that a loop does not change applied to its sum, not to its terms."""
  changes = {}
  for u in root.toposort:
    if u.op is Ops.REDUCE and u.src[1:] and is_masked(u) and not u.src[0].src[0].ranges & frozenset(u.src[1:]):
      condition, value, none = u.src[0].src
      changes[u] = condition.where(u.replace(src=(value, *u.src[1:])), none)
  return root.substitute(changes) if changes else root


def is_masked(total: UOp) -> bool:
  """Whether terms are a WHERE that adds nothing where its condition does not hold."""
  value = total.src[0]
  return value.op is Ops.WHERE and value.src[2] is identity(total.arg[0], value.dtype)
