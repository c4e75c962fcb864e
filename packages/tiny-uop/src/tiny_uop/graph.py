"""Walks over graphs: a graph rebuilt, the users of nodes, the operands of a chain, the memory below a pointer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING

from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def rebuild(root: UOp, change: Callable[[UOp, UOp], UOp | None]) -> UOp:
  """The graph with `change(node, new)` in place of each node, where `new` is the node over rebuilt sources (None: leave
  `new`)."""
  moved: dict[UOp, UOp] = {}  # most passes leave most nodes alone
  for node in root.toposort:
    new = node
    if moved:
      for s in node.src:
        if s in moved:
          new = node.with_src(tuple([moved.get(s, s) for s in node.src]))
          break
    changed = change(node, new)
    if changed is not None:
      new = changed
    if new is not node:
      moved[node] = new
  return moved.get(root, root)


def users_of(nodes: Iterable[UOp]) -> dict[UOp, list[UOp]]:
  """Which of the nodes each node is a source of, each once."""
  users: dict[UOp, list[UOp]] = {}
  for u in nodes:
    for s in dict.fromkeys(u.src):
      users.setdefault(s, []).append(u)
  return users


def operands(u: UOp, op: Ops) -> Iterator[UOp]:
  """The operands of a chain of one operation, from left to right: of ADD the terms of a sum, of AND the clauses of a
  condition. A node of another operation is its only one."""
  stack = [u]
  while stack:
    node = stack.pop()
    if node.op is op:
      stack += reversed(node.src)
    else:
      yield node


def chain(op: Ops, values: Iterable[UOp]) -> UOp:
  """One operation over all the values, from left to right: the inverse of `operands`."""
  return reduce(lambda left, right: left.alu(op, right), values)


def memory_of(pointer: UOp) -> UOp:
  """The memory that an address lies in: the PARAM or ALLOC below INDEX and AFTER."""
  while pointer.op in (Ops.INDEX, Ops.AFTER):
    pointer = pointer.src[0]
  return pointer
