"""Constants of a graph that runs again and again: what depends on nothing else is computed once.

Whoever replays a graph (a captured function) knows which memory stays as it is: weights. Rules bring constants together
where that saves work in each replay, as a batch norm's factor and the weights of the convolution before it; what they
are computed to is then taken out of the graph (`constants_first`). Floats are rounded elsewhere than in the graph as it
was written, which is why nobody else uses these rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tiny_sched.index import known
from tiny_uop import GroupOp, Ops, PatternMatcher, Samples, UOp, UPat, dtypes, rule
from tiny_uop.graph import rebuild, users_of
from tiny_uop.origins import keep_mark

_VALUES = frozenset({*GroupOp.Movement, *GroupOp.Identity, *GroupOp.Elementwise, Ops.REDUCE, Ops.COPY})
_SAME_ELEMENTS = frozenset({Ops.RESHAPE, Ops.PERMUTE})

FEWEST_ROWS, FEW_ROWS, MOST_ROWS = 8, 16, 256
"""Rows of a product whose weights are laid out anew: of fewer rows a kernel reads weights once, as they are; more rows
pay for packing them. Few rows want panels: a panel is read from its begin to its end."""

MOST_PLACES = 64
"""Places of a window whose weights are laid out, in panels: more pay for packing them."""

PANEL, WINDOW_PANEL = 64, 32
"""Results whose weights are next to each other in a panel: the vectors of a register tile; of a window, as many as
leave registers for the places of a row."""


class Constants:
  """What is known of nodes: whether they are constant, and along which axes they vary.

  `stays` says of a BUFFER whether its contents stay as they are. `shared` are nodes with several users.
  """

  def __init__(self, stays: Callable[[UOp], bool], shared: set[UOp] | None = None) -> None:
    self.stays, self.shared = stays, set() if shared is None else shared
    self._memory: dict[UOp, frozenset[UOp] | None] = {}
    self._axes: dict[UOp, frozenset[int]] = {}

  def memory(self, u: UOp) -> frozenset[UOp] | None:
    """The BUFFERs that a constant is computed from, none of a number; None for what is not constant."""
    found: frozenset[UOp] | None = self._found(u, self._memory, self._memory_of)
    return found

  def varies(self, u: UOp) -> frozenset[int]:
    """The axes along which elements of a constant may differ. Its sizes are numbers."""
    found: frozenset[int] = self._found(u, self._axes, self._axes_of)
    return found

  def _found(self, u: UOp, known: dict[UOp, Any], make: Callable[[UOp], Any]) -> Any:
    if u not in known:
      for node in u.walk(lambda n: n not in known):
        if node not in known:
          known[node] = make(node)
    return known[u]

  def _memory_of(self, u: UOp) -> frozenset[UOp] | None:
    if u.op is Ops.BUFFER:
      return frozenset({u}) if self.stays(u) else None
    if u.op is Ops.CONST and not u.src:
      return frozenset()
    if u.op not in _VALUES or not all(isinstance(s, int) for s in u.shape):
      return None
    if u.op is Ops.COPY:  # from the host, say: a table that operators have made
      return None if isinstance(u.device, tuple) else self._memory[u.src[0]]
    found = [self._memory[s] for s in u.src]
    return None if any(m is None for m in found) else frozenset().union(*[m for m in found if m is not None])

  def _axes_of(self, u: UOp) -> frozenset[int]:
    if u.op not in _VALUES:
      return frozenset({0}) if u.op is Ops.BUFFER and u.arg[1] != 1 else frozenset()
    below = self._axes[u.src[0]]
    if u.op is Ops.RESHAPE:
      return frozenset(_reshaped(u.src[0].shape, u.shape, below))
    if u.op is Ops.PERMUTE:
      return frozenset(i for i, axis in enumerate(u.arg) if axis in below)
    if u.op is Ops.PAD:
      padded = {i for i in range(len(u.shape)) if (u.geometry[2 * i], u.geometry[2 * i + 1]) != (0, 0)}
      return below | padded
    if u.op in (Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.REDUCE, Ops.COPY) or u.op in GroupOp.Identity:
      return frozenset(i for i in below if u.src[0].shape[i] != 1 and u.shape[i] != 1)
    return frozenset().union(*[self._axes[s] for s in u.src])

  def compact(self, u: UOp) -> UOp:
    """A constant, cut to one element along axes along which it does not vary."""
    axes = self.varies(u)
    return u.shrink([(0, s if i in axes else 1) for i, s in enumerate(u.shape)])


def _reshaped(old: Any, new: Any, axes: frozenset[int]) -> Iterator[int]:
  """The axes of a new shape whose elements come from `axes` of the old one."""
  i = j = 0
  while j < len(new):
    first, before, left, right = j, i, 1, 1
    while True:  # the shortest groups of axes of both shapes with as many elements
      if left <= right and i < len(old) and (left < right or i == before):
        left, i = left * old[i], i + 1
      elif j < len(new) and (right < left or j == first):
        right, j = right * new[j], j + 1
      else:
        break
    if any(axis in axes for axis in range(before, i)):
      yield from (axis for axis in range(first, j) if new[axis] != 1)


def _is_float(u: UOp) -> bool:
  return u.dtype.kind == "float"


def _scaled(ctx: Constants, y: UOp, c: UOp) -> UOp | None:
  """`y * c` for a constant c, as a sum of products with other weights; None where y is no such sum."""
  if y in ctx.shared:
    return None
  if y.op in _SAME_ELEMENTS:
    inside = c.reshape(y.src[0].shape) if y.op is Ops.RESHAPE else c.permute(_inverse(y.arg))
    made = _scaled(ctx, y.src[0], inside)
    return None if made is None else y.with_src((made, *y.src[1:]))
  if y.op in (Ops.ADD, Ops.SUB):
    for place in (0, 1):
      shift = y.src[1 - place]
      if ctx.memory(shift) and (made := _scaled(ctx, y.src[place], c)) is not None:
        return made.alu(y.op, shift * c) if place == 0 else (shift * c).alu(y.op, made)
    return None
  if y.op is Ops.REDUCE and y.arg[0] is Ops.ADD and y.src[0].op is Ops.MUL:
    for a, w in (y.src[0].src, y.src[0].src[::-1]):
      if ctx.memory(w) and ctx.memory(a) is None and ctx.varies(c) <= ctx.varies(w):
        return y.with_src((a * (w * c.expand(w.shape)), *y.src[1:]))
  return None


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
  return tuple(order.index(i) for i in range(len(order)))


def _scale_of_product(u: UOp, ctx: Constants) -> UOp | None:
  if not _is_float(u) or ctx.memory(u) is not None:
    return None
  for y, c in (u.src, u.src[::-1]):
    if ctx.memory(c) and (made := _scaled(ctx, y, c)) is not None:
      return made
  return None


def _sum_of_shifts(u: UOp, ctx: Constants) -> UOp | None:
  """`(x ± b) ± c` as `x + (±b ± c)` where b and c are weights. Numbers stay: `(x + 2²³) - 2²³` rounds."""
  terms = _terms(u)
  constant = [(t, sign) for t, sign in terms if ctx.memory(t)]
  others = [(t, sign) for t, sign in terms if not ctx.memory(t)]
  if not _is_float(u) or len(constant) < 2 or len(others) != 1 or not others[0][1]:
    return None
  total: UOp | None = None
  for term, sign in sorted(constant, key=lambda t: not t[1]):
    part = term if sign or total is not None else -term
    total = part if total is None else total + part if sign else total - part
  assert total is not None
  return others[0][0] + total


def _terms(u: UOp) -> list[tuple[UOp, bool]]:
  """The terms of two sums or differences in each other, True for those that are added."""
  if u.op not in (Ops.ADD, Ops.SUB):
    return [(u, True)]
  found = []
  for place, s in enumerate(u.src):
    positive = place == 0 or u.op is Ops.ADD
    inner = s.src if s.op in (Ops.ADD, Ops.SUB) else (s,)
    found += [(t, positive == (n == 0 or s.op is Ops.ADD or len(inner) == 1)) for n, t in enumerate(inner)]
  return found


def _in_panels(u: UOp, ctx: Constants) -> UOp | None:
  """A product with weights of which those that a step of the sum needs are next to each other in memory. The sum of a
  window is taken in the order of memory, with the loop over channels inside of those over taps, but for one of these:
  these are short, and of a length that padding decides."""
  if u.arg[0] is not Ops.ADD or u.src[0].op is not Ops.MUL or u.dtype is not dtypes.float32:
    return None
  shape, summed = u.src[0].shape, u.arg[1]
  for x, w in (u.src[0].src, u.src[0].src[::-1]):
    if not ctx.memory(w) or x.op is not Ops.EXPAND or ctx.memory(x) is not None:
      continue
    axes = ctx.varies(w)
    own, along = [a for a in axes if a not in summed], sorted(a for a in axes if a in summed)
    if len(own) != 1 or not along or x.src[0].shape[own[0]] != 1 or _is_widened(_stored(w)):
      continue
    rows, window = math.prod([int(s) for a, s in enumerate(shape) if a not in axes]), len(along) > 1
    panel = WINDOW_PANEL if window else PANEL
    panels = rows <= (MOST_PLACES if window else FEW_ROWS) and int(shape[own[0]]) % panel == 0
    whole = not window and rows > FEW_ROWS and not _is_innermost(w, own[0])
    if FEWEST_ROWS <= rows <= MOST_ROWS and (panels or whole):
      order = _longest_last_but_one(along, shape)
      product = x * _laid_out(ctx.compact(w), own[0], order, panel if panels else 0).expand(shape)
      places = dict(zip(along, order))
      return u.with_src((product.permute(tuple([places.get(a, a) for a in range(len(shape))])),))
  return None


def _longest_last_but_one(axes: list[int], shape: Any) -> list[int]:
  longest = max(axes, key=lambda a: int(shape[a]))
  others = [a for a in axes if a != longest]
  return [*others[:-1], longest, *others[-1:]]


def _laid_out(w: UOp, own: int, along: list[int], panel: int) -> UOp:
  """Weights in memory of their own, in order of `along`, then `own`: of all results, or of so many at a time."""
  order = (*along, own, *[a for a in range(len(w.shape)) if a not in along and a != own])
  stored = w.permute(order)
  steps, results = math.prod([int(w.shape[a]) for a in along]), w.shape[own]
  kept = flat = stored.reshape((steps, results))
  if panel:
    kept = flat.reshape((steps, results // panel, panel)).permute((1, 0, 2))
  kept = kept.contiguous()
  if panel:
    kept = kept.permute((1, 0, 2)).reshape((steps, results))
  return kept.reshape(stored.shape).permute(_inverse(order))


def _is_innermost(u: UOp, axis: int) -> bool:
  """Whether elements along an axis are next to each other where the value is stored."""
  while u.op in (*_SAME_ELEMENTS, Ops.EXPAND):
    below = u.src[0].shape
    if u.op is Ops.PERMUTE:
      axis = u.arg[axis]
    elif u.op is Ops.RESHAPE:
      parts = {i: [*_reshaped(below, u.shape, frozenset({i}))] for i, s in enumerate(below) if s != 1}
      came = [i for i, part in parts.items() if axis in part]
      if len(came) != 1 or parts[came[0]][-1] != axis:
        return False
      axis = came[0]
    u = u.src[0]
  return all(s == 1 for s in u.shape[axis + 1 :])


def _stored(u: UOp) -> UOp:
  """What is under views."""
  while u.op in GroupOp.Movement:
    u = u.src[0]
  return u


def _weights(s: Samples) -> UOp:
  """Of 4 results and 3 terms each, as a product with 5 rows has them: constant memory is all but slot 0."""
  return s.buffer(4, 3, slot=1).reshape((1, 4, 3)).expand((5, 4, 3))


def _product(s: Samples, w: UOp) -> UOp:
  x = s.buffer(5, 3).reshape((5, 1, 3)).expand((5, 4, 3))
  return (x * w).reduce_axes(Ops.ADD, (2,)).reshape((5, 4))


def _each(s: Samples, slot: int, *shape: int) -> UOp:
  """Constant numbers, one for each result."""
  return s.buffer(*shape, slot=slot).expand((5, 4))


def _rows(s: Samples, count: int, w: UOp) -> UOp:
  """So many rows times weights (1, results, 8)."""
  shape = (count, w.shape[1], 8)
  return (s.buffer(count, 8).reshape((count, 1, 8)).expand(shape) * w.expand(shape)).reduce_axes(Ops.ADD, (2,))


def _places(s: Samples, count: int, w: UOp) -> UOp:
  """So many places of a window of 2 × 3 of 2 channels."""
  shape = (count, w.shape[0], 2, 2, 3)
  x = s.buffer(count, 12).reshape((count, 1, 2, 2, 3)).expand(shape)
  return (x * w.reshape((1, *shape[1:])).expand(shape)).reduce_axes(Ops.ADD, (2, 3, 4))


CONSTANT_RULES = PatternMatcher([
  rule("scale_of_product", UPat(Ops.MUL, name="u"), _scale_of_product,
       changes="floats are rounded before they are summed, not after", grows="by work that is done once",
       example=(lambda s: _product(s, _weights(s)) * _each(s, 2, 1, 4),
                lambda s: (_product(s, _weights(s)) - _each(s, 3, 1, 4)) * _each(s, 2, 1, 4),
                lambda s: _product(s, _weights(s)).permute((1, 0)) * s.buffer(4, 1, slot=2).expand((4, 5))),
       near_miss=(lambda s: _product(s, _weights(s)) * _each(s, 2, 5, 1),
                  lambda s: (_product(s, _weights(s)) + 8388608.0) * _each(s, 2, 1, 4),
                  lambda s: _product(s, _weights(s)) * s.buffer(1, 4).expand((5, 4)),
                  lambda s: s.buffer(5, 4) * _each(s, 2, 1, 4))),
  rule("sum_of_shifts", UPat((Ops.ADD, Ops.SUB), name="u"), _sum_of_shifts,
       changes="floats are added in another order", grows="by work that is done once",
       example=(lambda s: (s.buffer(5, 4) + _each(s, 1, 1, 4)) + _each(s, 2, 1, 4),
                lambda s: (s.buffer(5, 4) - _each(s, 1, 1, 4)) - _each(s, 2, 1, 4),
                lambda s: _each(s, 1, 1, 4) + (s.buffer(5, 4) - _each(s, 2, 1, 4))),
       near_miss=(lambda s: (s.buffer(5, 4) + 8388608.0) - 8388608.0,
                  lambda s: (s.buffer(5, 4) + s.buffer(5, 4).exp()) + _each(s, 2, 1, 4),
                  lambda s: _each(s, 1, 1, 4) - (s.buffer(5, 4) + _each(s, 2, 1, 4)))),
])  # fmt: skip

LAYOUT_RULES = PatternMatcher([
  rule("weights_in_panels", UPat(Ops.REDUCE, name="u"), _in_panels,
       grows="by a copy of the weights that is made once",
       example=(lambda s: _rows(s, 24, s.buffer(32, 8, slot=1).reshape((1, 32, 8))),
                lambda s: _rows(s, 8, s.buffer(64, 8, slot=1).reshape((1, 64, 8))),
                lambda s: _rows(s, 8, s.buffer(8, 64, slot=1).permute((1, 0)).reshape((1, 64, 8))),
                lambda s: _places(s, 8, s.buffer(32, 12, slot=1))),
       near_miss=(lambda s: _rows(s, 4, s.buffer(64, 8, slot=1).reshape((1, 64, 8))),
                  lambda s: _rows(s, 8, s.buffer(32, 8, slot=1).reshape((1, 32, 8))),
                  lambda s: _rows(s, 24, s.buffer(8, 32, slot=1).reshape((1, 8, 32)).permute((0, 2, 1))),
                  lambda s: _rows(s, 257, s.buffer(32, 8, slot=1).reshape((1, 32, 8))),
                  lambda s: _places(s, 65, s.buffer(32, 12, slot=1)),
                  lambda s: _rows(s, 24, s.buffer(32, 8).reshape((1, 32, 8))),
                  lambda s: _rows(s, 24, s.buffer(32, 8, slot=1, dtype=dtypes.float16).cast(dtypes.float32)
                                  .reshape((1, 32, 8))),
                  lambda s: (s.buffer(24, 32, 8) * s.buffer(32, 8, slot=1).reshape((1, 32, 8)).expand((24, 32, 8)))
                  .reduce_axes(Ops.ADD, (2,)))),
])  # fmt: skip
"""For constants as they are after the other rules."""


def constants_first(sink: UOp, stays: Callable[[UOp], bool]) -> tuple[UOp, list[UOp]]:
  """(the graph after the rules, the constants in it that are worth computing once: CONTIGUOUS nodes).

  Worth it is what something is computed for, unless it takes more memory than what it is computed from, as weights do
  that are unpacked.
  """
  nodes = sink.toposort
  written = {n.src[0].base for n in nodes if n.op is Ops.AFTER}
  users = users_of(nodes)
  context = Constants(lambda b: b not in written and stays(b), {u for u, own in users.items() if len(own) > 1})

  def simplified(old: UOp, u: UOp) -> UOp:
    while u.op in (Ops.MUL, Ops.ADD, Ops.SUB) and (made := CONSTANT_RULES.rewrite(u, context)) is not None:
      u = made
    if old in context.shared:
      context.shared.add(u)
    keep_mark(old, u)
    return u

  def laid_out(old: UOp, u: UOp) -> UOp:
    if u.op is Ops.REDUCE and (made := LAYOUT_RULES.rewrite(u, context)) is not None:
      u = made
    keep_mark(old, u)
    return u

  sink = rebuild(rebuild(sink, simplified), laid_out)
  once: dict[UOp, UOp] = {}
  for u in sink.toposort:
    if context.memory(u) is None:
      for s in u.src:
        value = _computed(s)
        if value not in once and _is_worth_it(value, context):
          once[value] = value if value.op is Ops.CONTIGUOUS else context.compact(value).contiguous()
  return replaced(sink, {value: kept.expand(value.shape) for value, kept in once.items()}), list(once.values())


def replaced(sink: UOp, changes: Mapping[UOp, UOp]) -> UOp:
  """The graph with other nodes in the place of some; all come from where they did."""

  def change(old: UOp, new: UOp) -> UOp:
    new = changes.get(old, new)
    keep_mark(old, new)
    return new

  return rebuild(sink, change) if changes else sink


def _computed(u: UOp) -> UOp:
  """What is computed for a value: not its views, nor that it is widened, which is done again rather than kept."""
  while u.op in GroupOp.Movement or u.op in (Ops.DETACH, Ops.CONTIGUOUS_BACKWARD) or _is_widened(u):
    u = u.src[0]
  return u


def _is_widened(u: UOp) -> bool:
  return u.op is Ops.CAST and u.dtype.itemsize > u.src[0].dtype.itemsize


def _is_worth_it(u: UOp, context: Constants) -> bool:
  made = u.op in GroupOp.Elementwise or u.op in (Ops.REDUCE, Ops.COPY, Ops.CONTIGUOUS)
  if not made or not (memory := context.memory(u)):
    return False
  sizes = [known(s) for s in context.compact(u).shape]
  nbytes = math.prod([s for s in sizes if s is not None]) * u.dtype.itemsize
  return 0 < nbytes <= sum(b.arg[1] * b.dtype.itemsize for b in memory) and u.dtype is not dtypes.index
