"""What recomputing a node would cost: facts that the fusion policy asks for, found once, from sources to users."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import count

from tiny_sched.index import known, largest, largest_size
from tiny_sched.lowering import ElementAccess, Lowering, lower_element
from tiny_sched.movement import Axes, repeated_axes
from tiny_sched.scatter import pays, scatter_of
from tiny_sched.views import View, is_reinterpretation, view_of
from tiny_uop import AxisType, GroupOp, Ops, Shape, UOp, dtypes
from tiny_uop.records import dataclass

CHEAP_LOADS = 3  # what a kernel may well compute again instead of reading the result
CHEAP_ALU = 16
TABLE_ALU = 512  # operations per element of a table of which no part gets memory of its own
REUSE = 16  # uses of an element from which on it pays to arrange loops for them
MANY = 8  # more leaves than this are not told apart
_ALU_CAP = 1000
_TRIAL_NODES = 300
HEAVY = frozenset({*GroupOp.Transcendental, Ops.SQRT, Ops.THREEFRY})
MEMORY = frozenset({Ops.BUFFER, Ops.AFTER})
NO_VALUE = frozenset({Ops.STORE, Ops.SINK, Ops.DEVICE})


class Below(IntEnum):
  """Whether a value contains a reduction: none; one per row, broadcast since; or one per element."""

  NONE = 0
  ROW = 1
  FULL = 2


@dataclass(frozen=True, slots=True)
class RecomputeCost:
  """The expression from a node down to memory, to values that surely get memory, and to reductions."""

  leaves: frozenset[UOp] | None
  """What it reads; None for more than MANY nodes."""
  alu: int = 0
  """Operations per element."""
  heavy: bool = False
  """Expensive operations are among them."""
  below: Below = Below.NONE
  """Whether it contains a reduction."""
  positional: bool = False
  """An element's value depends on its position by more than what is read, as in `arange`."""
  closed: bool = False
  """A REDUCE that needs no loop."""
  contraction: bool = False
  """A REDUCE that uses each element it reads many times over, as a matrix product does."""
  scattered: tuple[int, ...] = ()
  """The axes along which each term of a REDUCE goes to one element, where that pays."""
  continues: bool = False
  """A REDUCE whose values another REDUCE, by the same operation, takes as they are."""

  @property
  def loads(self) -> int:
    """How many different things are read, MANY + 1 for more than MANY."""
    return MANY + 1 if self.leaves is None else len(self.leaves)

  @property
  def is_dear(self) -> bool:
    """Whether several kernels that want the value had better read it than each compute it."""
    return self.heavy or self.loads > CHEAP_LOADS or self.alu > CHEAP_ALU

  @property
  def is_table(self) -> bool:
    """Whether it is computed from the position alone, as masks and tables of sines are."""
    return self.leaves is not None and not self.leaves and self.alu <= TABLE_ALU

  @property
  def is_choice(self) -> bool:
    """Whether it may be the condition by which a sum picks one element: a comparison of a position with what is read.

    In memory it would hide that, and the sum would keep its loop.
    """
    return self.positional and self.below is Below.NONE and not self.heavy and self.loads <= CHEAP_LOADS


_NOTHING = RecomputeCost(frozenset())


def is_alu(u: UOp) -> bool:
  """Whether the node computes element by element (BITCAST to another item size does not)."""
  return u.op in GroupOp.Elementwise and not is_reinterpretation(u)


def is_contraction(reduce: UOp, below: RecomputeCost) -> bool:
  """Whether a sum has far more terms than there are elements in the memory that these are made of."""
  if reduce.arg[0] is not Ops.ADD or below.leaves is None:
    return False
  product = reduce.src[0]
  while product.op in GroupOp.Movement:
    product = product.src[0]
  if not is_alu(product):
    return False  # windows over one thing
  read = sum(largest_size(leaf.shape) for leaf in below.leaves)
  return largest_size(reduce.src[0].shape) >= REUSE * max(read, 1)


def lowered(
  u: UOp,
  ends: Callable[[UOp], bool],
  value_at: Callable[[ElementAccess, int], UOp] | None = None,
  most: int = _TRIAL_NODES,
) -> tuple[UOp, tuple[UOp, ...], Lowering] | None:
  """(value, position, first lowering) of an element of a REDUCE, its expression lowered down to `ends`; None where that
  takes more than so many steps. What an element of these is `value_at` says, which is told how many values there have
  been; without it, nobody."""
  ids = count()

  def new_range(size: int | UOp) -> UOp:
    return UOp.range(size, next(ids), AxisType.REDUCE)

  index = tuple([new_range(s) if known(s) != 1 else UOp.const(dtypes.index, 0) for s in u.shape])
  root = ElementAccess(u, index, None)
  lowerings: dict[ElementAccess, Lowering | None] = {}
  values: dict[ElementAccess, UOp] = {}
  stack = [root]
  while stack:
    access = stack[-1]
    if access in values:
      stack.pop()
      continue
    if access not in lowerings:
      if len(lowerings) > most:
        return None
      at_end = access.node is not u and ends(access.node)
      lowerings[access] = None if at_end else lower_element(access.node, access.index, access.gate, new_range)
    todo = lowerings[access]
    if todo is None:
      values[access] = (value_at or _placeholder)(access, len(values))
    elif missing := [n for n in todo.accesses if n not in values]:
      stack.extend(missing)
      continue
    else:
      values[access] = todo.build([values[n] for n in todo.accesses])
    stack.pop()
  opened = lowerings[root]
  return None if opened is None else (values[root], index, opened)


def is_closed_form(value: UOp, opened: Lowering) -> bool:
  """Whether the loops of a sum have vanished."""
  return set(value.toposort).isdisjoint(opened.ranges)


def scattered_axes(u: UOp, value: UOp, index: tuple[UOp, ...]) -> tuple[int, ...]:
  """The axes along which each term of a REDUCE goes to one element; none where that does not pay."""
  found = scatter_of(value, [i for i in index if i.op is Ops.RANGE])
  if found is None:
    return ()
  axes = tuple([axis for axis, i in enumerate(index) if i in found.places])
  terms = math.prod([int(r.src[0].vmax) for r in found.terms])
  return axes if pays([largest(u.shape[a]) for a in axes], u.shape, terms) else ()


def _placeholder(access: ElementAccess, slot: int) -> UOp:
  """A value that depends on the position and is otherwise unknown."""
  place = UOp.const(dtypes.index, 0)
  for axis, position in enumerate(access.index):
    place = place + position * (axis + 1)
  dtype = dtypes.int64 if access.node.dtype.kind == "index" else access.node.dtype
  value = UOp.param(slot, dtype.ptr(1)).index(place, access.gate).load()
  return value.cast(access.node.dtype) if dtype is not access.node.dtype else value


def _continued(reduce: UOp) -> UOp | None:
  """The REDUCE of which a REDUCE by the same operation takes all elements, in another order or shape."""
  inner = reduce.src[0]
  while inner.op in (Ops.RESHAPE, Ops.PERMUTE):
    inner = inner.src[0]
  return inner if inner.op is Ops.REDUCE and inner.arg[0] is reduce.arg[0] else None


def _joined(nodes: Sequence[UOp]) -> set[UOp]:
  """The nodes all of whose users are parts of one elementwise expression, as an activation uses its input several
  times: what gets memory, if anything does, is that expression."""
  ends: dict[UOp, set[UOp]] = {}  # of each node, the last nodes of the expressions that use it
  for u in reversed(nodes):
    own = ends.setdefault(u, set())
    end = next(iter(own)) if is_alu(u) and len(own) == 1 else u
    for s in u.src:
      ends.setdefault(s, set()).add(end)
  return {u for u, own in ends.items() if len(own) == 1}


class CostTable:
  """RecomputeCost, memory views and repeated axes of every node of a graph in topological order."""

  def __init__(self, nodes: Sequence[UOp]) -> None:
    self.costs: dict[UOp, RecomputeCost] = {}
    self.seen: dict[UOp, RecomputeCost] = {}  # what users see: of a node that gets memory, most likely, a read of it
    self.views: dict[UOp, View | None] = {}
    self.repeated: dict[UOp, Axes] = {}
    self.ends: set[UOp] = set()
    # a reduction that is only broadcast stays one per row
    users = Counter([s for u in nodes if u.op is not Ops.EXPAND for s in u.src])
    joined = _joined(nodes)
    continued = {_continued(u) for u in nodes if u.op is Ops.REDUCE}
    # places that a sum picks elements by are read from memory; other tables are computed where they are wanted
    places = {s for u in nodes if u.op in GroupOp.Compare for s in u.src}
    for u in nodes:
      if u.op in NO_VALUE:
        continue
      self.views[u] = view_of(u, self.views.get(u.src[0]) if u.src else None)
      self.repeated[u] = repeated_axes(u, self.repeated)
      cost = self.compute(u)
      cost = self.costs[u] = replace(cost, continues=True) if u in continued else cost
      dear = is_alu(u) and cost.is_dear and (u in places or not cost.is_table)
      shared = users[u] > 1 and (cost.below is not Below.FULL or u not in joined)
      likely = shared and (cost.below is Below.FULL or dear)
      self.seen[u] = self.end(u) if likely else cost

  def end(self, u: UOp, below: Below = Below.NONE) -> RecomputeCost:
    self.ends.add(u)
    return RecomputeCost(frozenset({u}), below=below)

  def compute(self, u: UOp) -> RecomputeCost:
    """The cost of a node whose sources have theirs."""
    if u.op in MEMORY or u.op in (Ops.COPY, Ops.CONTIGUOUS, Ops.BARRIER, Ops.CALL) or is_reinterpretation(u):
      return self.end(u)
    if u.op in (Ops.CONST, Ops.VARIABLE, Ops.BIND):
      return _NOTHING
    below = self.seen[u.src[0]]
    if u.op is Ops.REDUCE:
      trial = lowered(u, self.ends.__contains__) if below.positional else None
      if trial is not None and u.arg[0] is Ops.ADD and is_closed_form(trial[0], trial[2]):
        return RecomputeCost(below.leaves, min(below.alu + 8, _ALU_CAP), below.heavy, below.below, True, True)
      axes = () if trial is None else scattered_axes(u, trial[0], trial[1])
      contracts = not axes and is_contraction(u, below)
      return RecomputeCost(self.end(u).leaves, below=Below.FULL, contraction=contracts, scattered=axes)
    if u.op is Ops.EXPAND:
      if below.below is not Below.FULL:
        return below
      return RecomputeCost(below.leaves, below.alu, below.heavy, Below.ROW, below.positional)
    if u.op is Ops.PAD and below.below is Below.FULL:
      return self.end(u.src[0])  # what is padded gets memory rather than what it is padded to
    if u.op is Ops.PAD:
      constant = below.leaves is not None and not below.leaves
      return RecomputeCost(below.leaves, below.alu + 1, below.heavy, below.below, below.positional or constant)
    if u.op in GroupOp.Movement or u.op in GroupOp.Identity:
      return below
    return self.combine(u)

  def distinct(self, u: UOp) -> Shape:
    """The shape of a node with 1 for each axis along which all its elements are the same."""
    repeated = self.repeated[u]
    return tuple([1 if axis in repeated else size for axis, size in enumerate(u.shape)]) if repeated else u.shape

  def scattered(self, u: UOp) -> tuple[int, ...]:
    """The axes along which each term of a REDUCE goes to one element; none of any other node."""
    return self.costs[u].scattered if u.op is Ops.REDUCE else ()

  def combine(self, u: UOp) -> RecomputeCost:
    """RecomputeCost of an elementwise node."""
    sources = [self.seen[s] for s in u.src]
    leaves: frozenset[UOp] | None = frozenset()
    for s in sources:
      leaves = None if leaves is None or s.leaves is None else leaves | s.leaves
    return RecomputeCost(
      None if leaves is None or len(leaves) > MANY else leaves,
      min(1 + sum(s.alu for s in sources), _ALU_CAP),
      u.op in HEAVY or any(s.heavy for s in sources),
      max(s.below for s in sources),
      any(s.positional for s in sources),
    )
