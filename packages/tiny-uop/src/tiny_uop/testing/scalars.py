"""Values of scalar and vector graphs, effects on memory included, by the meaning that the README gives operations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tiny_uop.args import Accumulate
from tiny_uop.dtype import PtrDType, dtypes
from tiny_uop.evaluate import exec_alu, identity_of, lanes_of, packed, scalar_function
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.testing.draws import Draws
from tiny_uop.uop import UOp

Known = dict[UOp, Any]
Step = Callable[[Known], Any]


class Unspecified(Exception):
  """The IR does not say what the value is."""


class Scalars:
  """Evaluates graphs whose leaves and memory hold what `draws` chooses.

  An effect evaluates to the writes it does: {(pointer, offset): value}. A pointer behind AFTER is read with the writes
  of its dependencies. The iterations of a loop of effects do not see each other's writes.
  """

  def __init__(self, draws: Draws) -> None:
    self.draws = draws
    self.loops: dict[UOp, int] = {}
    self._steps: dict[UOp, list[tuple[UOp, Step]]] = {}

  def value(self, root: UOp) -> Any:
    """The value of a node, a tuple for a vector. Raises Unspecified, and NotImplementedError for an operation that has
    no value here."""
    return self.values(root)[root]

  def values(self, root: UOp) -> dict[UOp, Any]:
    """The same, with the values of all nodes that it has come by outside of loops."""
    if (steps := self._steps.get(root)) is None:
      closed = lambda u: u.op not in (Ops.REDUCE, Ops.END)  # noqa: E731  # these look after what is inside them
      steps = self._steps[root] = [(u, self._step(u)) for u in root.walk(closed)]
    known: Known = {}
    for u, step in steps:
      known[u] = step(known)
    return known

  def _step(self, u: UOp) -> Step:
    """How a node gets its value from those of its sources: looked up once, done for every choice of values."""
    if u.op in GroupOp.Elementwise:
      return self._elementwise(u)
    return partial(self._node, u)

  def _node(self, u: UOp, known: Known) -> Any:
    op = u.op
    if op is Ops.CONST:
      return u.arg
    if op is Ops.VARIABLE:
      return self.draws.choose(u, u.dtype, u.arg[1], u.arg[2])
    if op in (Ops.RANGE, Ops.SPECIAL):
      return self._counter(u, known[u.src[0]])
    if op in (Ops.REDUCE, Ops.END):
      return self._loops(u)
    if isinstance(u.dtype, PtrDType) or op is Ops.LOAD or op is Ops.STORE:
      return self._memory(u, known)
    if op in (Ops.SINK, Ops.GROUP, Ops.BARRIER):
      return merged([known[s] for s in u.src])
    if op is Ops.VECTORIZE:
      return tuple([lane for s in u.src for lane in lanes_of(known[s], s.dtype.count)])
    if op is Ops.EXTRACT:
      vector = lanes_of(known[u.src[0]], u.src[0].dtype.count)
      return packed([vector[lane] for lane in u.arg])
    if op in (Ops.BIND, Ops.STAGE):
      return known[u.src[0]]
    raise NotImplementedError(f"{op.name} of dtype {u.dtype} has no value that could be compared")

  def _counter(self, u: UOp, extent: int) -> Any:
    if u in self.loops:
      return self.loops[u]
    if extent <= 0:
      raise Unspecified(f"{u!r} counts to {extent}: nothing is inside")
    return self.draws.choose(u, u.dtype, 0, extent - 1)

  def _elementwise(self, u: UOp) -> Step:
    op, dtype, sources = u.op, u.dtype, u.src
    source = sources[0].dtype
    checked = op in (Ops.SHL, Ops.SHR) or (op is Ops.CAST and source.kind == "float" and dtypes.is_int(dtype))
    if checked or any(v.dtype.count > 1 for v in (u, *sources)):

      def general(known: Known) -> Any:
        args = [known[s] for s in sources]
        if checked:
          _check_specified(u, args)
        return exec_alu(op, dtype, args, source)

      return general
    function = scalar_function(op, dtype, source if op is Ops.BITCAST else None)
    return lambda known: function(*[known[s] for s in sources])

  # *** loops ***

  def _loops(self, u: UOp) -> Any:
    loops = u.src[1:]
    extents = [self.value(r.src[0]) for r in loops]
    before, results = dict(self.loops), []
    try:
      for counters in itertools.product(*map(range, extents)):
        self.loops.update(zip(loops, counters))
        results.append(self.value(u.src[0]))
    finally:
      self.loops = before
    if u.op is Ops.END:
      return merged(results)
    total: Any = identity_of(u.arg[0], u.dtype)
    for value in results:
      total = exec_alu(u.arg[0], u.dtype, (total, value))
    return total

  # *** memory ***

  def _memory(self, u: UOp, known: Known) -> Any:
    if u.op in (Ops.PARAM, Ops.ALLOC):
      return (u, {})
    if u.op is Ops.AFTER:
      pointer, written = known[u.src[0]]
      return (pointer, merged([written, *[known[s] for s in u.src[1:] if isinstance(known[s], dict)]]))
    if u.op is Ops.INDEX:
      holds = known[u.src[2]] if len(u.src) == 3 else True
      return (*known[u.src[0]], known[u.src[1]]) if holds else None
    address = known[u.src[0]]
    if u.op is Ops.STORE:
      if isinstance(u.arg, Accumulate):
        raise NotImplementedError("what a STORE accumulates depends on earlier iterations: no value can be compared")
      lanes = lanes_of(known[u.src[1]], u.src[1].dtype.count)
      return {} if address is None else {(address[0], address[2] + i): lane for i, lane in enumerate(lanes)}
    if address is None:
      return known[u.src[1]] if len(u.src) > 1 else UOp.const(u.dtype, 0).arg
    pointer, written, offset = address
    cells = [(pointer, offset + lane) for lane in range(u.dtype.count)]
    return packed([written[c] if c in written else self.draws.choose(c, u.dtype.scalar()) for c in cells])


def _check_specified(u: UOp, args: list[Any]) -> None:
  """Raises Unspecified for a number that its new type does not have, and for a shift by more bits than there are."""
  if u.op is Ops.CAST:
    scalar = u.dtype.scalar()
    for lane in lanes_of(args[0], 1):
      if not math.isfinite(lane) or not dtypes.min(scalar) <= math.trunc(lane) <= dtypes.max(scalar):
        raise Unspecified(f"{lane} does not fit {scalar}")
  else:
    limit = u.dtype.bits if u.dtype.kind != "index" else math.inf
    if not all(0 <= lane < limit for lane in lanes_of(args[1], 1)):
      raise Unspecified(f"shift of {u.dtype} by {args[1]}")


def merged(effects: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
  """The writes of several effects, one after the other."""
  return {cell: value for writes in effects for cell, value in writes.items()}
