"""The difference of two graphs, as lines of the textual form: what a rewrite did, or how two kernels differ.

Nodes are aligned before they are compared, so that a change shows where it is made and not in everything above it:

     %0 = VARIABLE index () arg=("x", 0, 15)
    -%1 = CONST index () arg=4
    +%1 = CONST index () arg=8

A node that only the second graph has gets a number that the first does not use, so the lines are a patch: the lines of
the first graph without those marked `-`, together with those marked `+`, are the second one (in some other order).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any, Literal

from tiny_uop.ops import Ops
from tiny_uop.records import dataclass
from tiny_uop.text.print import print_literal, print_node
from tiny_uop.uop import UOp


@dataclass(frozen=True, slots=True)
class DiffLine:
  """A line of a diff. `kind`: "-" for a node (or the old form of one) of the first graph, "+" of the second, " " for an
  unchanged one that the others name. `changed`: the node is in both graphs, in different forms: a "-" and a "+" line.
  """

  kind: Literal[" ", "-", "+"]
  text: str
  node: UOp
  changed: bool = False

  def __str__(self) -> str:
    return self.kind + self.text


def diff_graphs(a: UOp, b: UOp) -> list[DiffLine]:
  """How graph `b` differs from graph `a`; empty if and only if they are the same graph. Sources before users.

  Numbers of nodes are those of `print_uop(a)`; nodes that only `b` has are numbered on from there.
  """
  if a is b:
    return []
  old, new = a.toposort, b.toposort
  partner = _align(old, new)
  numbers_a = {node: i for i, node in enumerate(old)}
  following = count(len(old))
  numbers_b = {node: numbers_a[partner[node]] if node in partner else next(following) for node in new}
  lines = list(_compare(partner, numbers_a, numbers_b))
  shown = {s for line in lines if line.kind != " " for s in line.node.src}
  return [line for line in lines if line.kind != " " or line.node in shown or partner[line.node] in shown]


def summarise(lines: Iterable[DiffLine]) -> str:
  """`2 removed, 1 added, 1 changed`."""
  of = Counter((line.kind, line.changed) for line in lines)
  return f"{of['-', False]} removed, {of['+', False]} added, {of['+', True]} changed"


def _compare(partner: dict[UOp, UOp], numbers_a: dict[UOp, int], numbers_b: dict[UOp, int]) -> Iterator[DiffLine]:
  """Every node of both graphs, in the order of the second; removed ones before what followed them in the first."""
  kept = set(partner.values())
  removed = deque(DiffLine("-", print_node(node, numbers_a), node) for node in numbers_a if node not in kept)
  for node in numbers_b:
    after, mine = print_node(node, numbers_b), partner.get(node)
    if mine is None:
      yield DiffLine("+", after, node)
      continue
    while removed and numbers_a[removed[0].node] < numbers_a[mine]:
      yield removed.popleft()
    before = print_node(mine, numbers_a)
    if before == after:
      yield DiffLine(" ", after, node)
    else:
      yield DiffLine("-", before, mine, changed=True)
      yield DiffLine("+", after, node, changed=True)
  yield from removed


# *** which node of the first graph corresponds to which of the second ***


def _align(old: tuple[UOp, ...], new: tuple[UOp, ...]) -> dict[UOp, UOp]:
  """Node of `new` → its counterpart in `old`, one to one: a graph of one line differences is what we look for, but any
  such map gives a correct diff. Linear in the size of the graphs.
  """
  common = set(old).intersection(new)
  partner = {node: node for node in common}
  rest_a, rest_b = [n for n in old if n not in common], [n for n in new if n not in common]
  pairing = _Pairing(partner, {n: _head(n) for n in (*rest_a, *rest_b)})
  pairing.anchor(rest_a, rest_b)
  pairing.descend(old[-1], new[-1])
  pairing.climb(rest_a, rest_b)
  return partner


_LAYER = 64  # how many nodes are looked at below a place: wide nodes that many share would cost their product


def _op(node: UOp) -> Ops:
  return node.op


def _head(node: UOp) -> tuple[Any, ...]:
  return (node.op, node.dtype, print_literal(node.arg), print_literal(node.tag))


class _Pairing:
  """Pairs the nodes that the graphs do not share."""

  def __init__(self, partner: dict[UOp, UOp], heads: dict[UOp, tuple[Any, ...]]) -> None:
    self.partner, self.heads = partner, heads
    self.taken = set(partner.values())

  def pair(self, a: UOp, b: UOp) -> None:
    self.partner[b] = a
    self.taken.add(a)

  def anchor(self, rest_a: list[UOp], rest_b: list[UOp]) -> None:
    """Nodes whose argument names them: the only one in each graph with this operation, type and argument."""
    counts = [Counter(self.heads[node] for node in nodes if node.arg is not None) for nodes in (rest_a, rest_b)]
    alone = {head for head, count in counts[0].items() if count == counts[1][head] == 1}
    left, right = ([n for n in nodes if self.heads[n] in alone] for nodes in (rest_a, rest_b))
    self.match(left, right, self.heads.__getitem__)

  def descend(self, a: UOp, b: UOp) -> None:
    """From the roots down: what stands at the same place is paired, the most alike first."""
    work = deque((mine, node) for node, mine in self.partner.items() if mine is not node)
    work.extendleft(self.pair_at((a,), (b,)))
    while work:
      a, b = work.popleft()
      work.extend(self.pair_at(a.src, b.src))

  def pair_at(self, sources_a: tuple[UOp, ...], sources_b: tuple[UOp, ...]) -> list[tuple[UOp, UOp]]:
    """New pairs among nodes at the same place: of the same form; of the same operation; of the same operation where
    one graph has a layer more; or of the same type.
    """
    left = [s for s in dict.fromkeys(sources_a) if s not in self.taken]
    right = [s for s in dict.fromkeys(sources_b) if s not in self.partner]
    if not left or not right:
      return []
    below_left = list(islice((s for node in left for s in node.src), _LAYER))
    below_right = list(islice((s for node in right for s in node.src), _LAYER))
    found = self.match(left, right, self.heads.__getitem__)
    found += self.match(left, right, _op)
    found += self.match(below_left, right, _op)
    found += self.match(left, below_right, _op)
    return found + self.match(left, right, lambda node: node.dtype)

  def match(
    self, left: list[UOp], right: list[UOp], alike: Callable[[UOp], Any], of_right: Callable[[UOp], Any] | None = None
  ) -> list[tuple[UOp, UOp]]:
    """Pairs those for which `alike` (`of_right` on the right side, if given) is the same, in order."""
    waiting: dict[Any, deque[UOp]] = defaultdict(deque)
    for node in dict.fromkeys(left):
      if node not in self.taken:
        waiting[alike(node)].append(node)
    found: list[tuple[UOp, UOp]] = []
    for node in dict.fromkeys(right):
      if node not in self.partner and (queue := waiting.get((of_right or alike)(node))):
        found.append((queue.popleft(), node))
        self.pair(*found[-1])
    return found

  def climb(self, rest_a: list[UOp], rest_b: list[UOp]) -> None:
    """From the leaves up: what is left is paired where operation, type, argument and sources are the same."""
    heads, partner = self.heads, self.partner
    mine: Callable[[UOp], Any] = lambda node: (heads[node], tuple([partner.get(s) for s in node.src]))  # noqa: E731
    self.match(rest_a, rest_b, lambda node: (heads[node], node.src), mine)
