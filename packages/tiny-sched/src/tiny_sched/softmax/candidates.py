"""Where sums weighted by a softmax may be: most graphs have none, and need no more of this folder."""

from __future__ import annotations

from collections.abc import Iterator

from tiny_sched.index import known, largest
from tiny_sched.recompute_cost import MEMORY
from tiny_uop import Ops, UOp

LEAST_SCORES = 1 << 16
"""Scores of one head, from which on this pays: fewer stay in a cache between the kernels that make and read them."""
EXPONENTIALS = frozenset({Ops.EXP})
ENDS = frozenset({*MEMORY, Ops.COPY, Ops.CONTIGUOUS, Ops.BARRIER, Ops.CALL})


def may_be_weighted(u: UOp) -> bool:
  """Whether a node is a sum over one long axis, of what is made by an exponential less a maximum over as many."""
  if u.op is not Ops.REDUCE or u.arg[0] is not Ops.ADD or len(u.arg[1]) != 1 or u.dtype.kind != "float":
    return False
  if any(known(s) is None for s in u.shape):
    return False
  pairs = max(map(largest, u.shape)) * largest(u.src[0].shape[u.arg[1][0]])  # of a head, at most
  return pairs >= LEAST_SCORES and any(below.op in EXPONENTIALS for below in elementwise_below(u.src[0]))


def elementwise_below(u: UOp) -> Iterator[UOp]:
  """The nodes of an expression, down to memory and to reductions."""
  seen, stack = set[UOp](), [u]
  while stack:
    if (node := stack.pop()) in seen:
      continue
    seen.add(node)
    yield node
    if node.op not in ENDS and node.op is not Ops.REDUCE:
      stack.extend(node.src)
