"""Lowering of one element of a node to scalars: which elements of its sources it takes, and what it makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from tiny_sched.collapse import reduce_over
from tiny_sched.index import ZERO, Gate, Index, both, known, never
from tiny_sched.movement import source_index
from tiny_sched.value_rules import tidy
from tiny_uop import GroupOp, Ops, UOp, dtypes, sint
from tiny_uop.records import dataclass

NewRange = Callable[[sint], UOp]
Build = Callable[[Sequence[UOp]], UOp]


@dataclass(frozen=True, slots=True)
class ElementAccess:
  """The value of a node at `index`; where `gate` does not hold, any value, but no access out of bounds."""

  node: UOp
  index: Index
  gate: Gate


@dataclass(frozen=True, slots=True)
class Lowering:
  """`build` makes the value of the values of `accesses`; `ranges` are the loops opened for a REDUCE."""

  accesses: tuple[ElementAccess, ...]
  build: Build
  ranges: tuple[UOp, ...] = ()


_only: Build = itemgetter(0)


def alu(op: UOp, values: Sequence[UOp]) -> UOp:
  """The elementwise node `op` over scalar values, with constants folded."""
  return tidy(UOp(op.op, op.dtype, tuple(values), op.arg))


def _elementwise(node: UOp, index: Index, gate: Gate, new_range: NewRange) -> Lowering:
  accesses = tuple([ElementAccess(s, index if s.shape else (), gate) for s in node.src])
  return Lowering(accesses, lambda values: alu(node, values))


def _movement(node: UOp, index: Index, gate: Gate, new_range: NewRange) -> Lowering:
  inner, valid = source_index(node, index)
  if valid is None:
    return Lowering((ElementAccess(node.src[0], inner, gate),), _only)
  zero = UOp.const(node.dtype, 0)
  if never(valid):
    return Lowering((), lambda values: zero)
  held = both(gate, valid)

  def build(values: Sequence[UOp]) -> UOp:
    (value,) = values
    if value.op is Ops.LOAD and len(value.src) == 1 and len(value.src[0].src) == 3:
      return value  # its gate is `held` and what came on the way: where that fails a load gives 0 already
    if value.op is Ops.WHERE and value.src[2] is zero:
      return tidy(_both_hold(valid, value.src[0]).where(value.src[1], zero))
    return tidy(valid.where(value, zero))

  return Lowering((ElementAccess(node.src[0], inner, held),), build)


def _both_hold(outer: UOp, inner: UOp) -> UOp:
  gate = both(outer, inner)
  return UOp.const(dtypes.bool, True) if gate is None else gate


def _reduce(node: UOp, index: Index, gate: Gate, new_range: NewRange) -> Lowering:
  op, axes = node.arg
  source = node.src[0]
  inner = list(index)
  for axis in axes:
    inner[axis] = new_range(source.shape[axis]) if known(source.shape[axis]) != 1 else ZERO
  opened = tuple([inner[axis] for axis in axes if inner[axis] is not ZERO])
  access = ElementAccess(source, tuple(inner), gate)
  return Lowering((access,), lambda values: reduce_over(op, values[0], opened), opened)


def _identity(node: UOp, index: Index, gate: Gate, new_range: NewRange) -> Lowering:
  return Lowering((ElementAccess(node.src[0], index, gate),), _only)


def _leaf(node: UOp, index: Index, gate: Gate, new_range: NewRange) -> Lowering:
  value = node.replace(src=()) if node.op is Ops.CONST else node
  return Lowering((), lambda values: value)


LOWERINGS: dict[Ops, Callable[[UOp, Index, Gate, NewRange], Lowering]] = {
  Ops.CONST: _leaf,
  Ops.VARIABLE: _leaf,
  Ops.REDUCE: _reduce,
  Ops.COPY: _identity,  # the demand on a COPY's own kernel: the source, wherever it is
  **dict.fromkeys(GroupOp.Identity, _identity),
  **dict.fromkeys(GroupOp.Movement, _movement),
  **dict.fromkeys(GroupOp.Elementwise, _elementwise),
}


def lower_element(node: UOp, index: Index, gate: Gate, new_range: NewRange) -> Lowering:
  """The lowering of element `index` of `node`. Raises ValueError for a node that has no value at tensor level."""
  if (make := LOWERINGS.get(node.op)) is None:
    raise ValueError(
      f"{node!r} cannot stand in a tensor graph as a value: expected the tensor-level operations of tiny-uop's README"
    )
  return make(node, index, gate, new_range)
