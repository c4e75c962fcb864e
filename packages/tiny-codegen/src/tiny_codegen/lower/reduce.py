"""Pass: REDUCE becomes a loop that updates an accumulator in a register.

`REDUCE(x, r)` → ALLOC; STORE the identity; in the loop STORE op(LOAD, x); END; LOAD. REDUCEs over the same loops
update their accumulators in one loop. A tensor core adds to its accumulator itself.

The sums of a register tile of which steps have been written out take these one after the other: added up first, they
would cost an addition more. In which order all of them are is for `tile_order`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.kernel.loops import in_order
from tiny_codegen.kernel.memory import next_alloc_id
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, DType, Ops, UOp, dtypes

TOGETHER, LANES_TOGETHER = 8, 64  # sums in one loop, and numbers in them: more are a register tile
REGISTERS_TOGETHER = 8  # the same where numbers fill as many registers sooner


def identity(op: Ops, dtype: DType) -> UOp:
  """The value that combining with does not change."""
  scalar = dtype.scalar()
  if op in (Ops.ADD, Ops.MUL):
    return UOp.const(dtype, op is Ops.MUL if scalar is dtypes.bool else int(op is Ops.MUL))
  if op is Ops.MAX:
    return UOp.const(dtype, dtypes.min(scalar))
  raise ValueError(f"REDUCE with {op.name}: expected ADD, MUL or MAX")


def is_tile(reduces: Sequence[UOp], target: Target) -> bool:
  """Whether sums over the same loops are a register tile: enough of them that none has to wait for itself."""
  if len(reduces) > TOGETHER or sum(u.dtype.count for u in reduces) > LANES_TOGETHER:
    return True
  registers = sum(u.dtype.count * u.dtype.scalar().bits for u in reduces) / (target.vector_bits or math.inf)
  return registers > REGISTERS_TOGETHER


def products(value: UOp) -> list[UOp]:
  """The products that are added for one iteration, several where steps have been written out; empty if it is none."""
  found = []
  while value.op is Ops.ADD and _is_product(value.src[1]):
    found.append(value.src[1])
    value = value.src[0]
  return [value, *reversed(found)] if _is_product(value) else []


def _is_product(u: UOp) -> bool:
  return u.op is Ops.MUL or (u.op is Ops.MMA and isinstance(u.arg, DotProduct))


def by_loops(root: UOp) -> dict[tuple[UOp, ...], list[UOp]]:
  """The REDUCEs of a kernel, those over the same loops together."""
  found: dict[tuple[UOp, ...], list[UOp]] = {}
  for u in root.toposort:
    if u.op is Ops.REDUCE:
      found.setdefault(u.src[1:], []).append(u)
  return found


def lower_reduce(root: UOp, target: Target) -> UOp:
  """The kernel without REDUCE."""
  return _Lowering(root, target).of(root)


class _Lowering:
  """The REDUCEs of one kernel."""

  def __init__(self, root: UOp, target: Target) -> None:
    self.fresh = next_alloc_id(root)
    self.tiles = _written_out(root, target)
    self.done: dict[UOp, UOp] = {}

  def of(self, root: UOp) -> UOp:
    """What becomes of a node."""
    for u in root.walk(lambda u: u not in self.done):
      if u not in self.done:
        self._lower(u)
    return self.done[root]

  def _lower(self, u: UOp) -> None:
    if u.op is Ops.REDUCE and u.src[1:] in self.tiles:
      return self._tile(self.tiles[u.src[1:]])
    new = u.with_src(tuple([self.done[s] for s in u.src]))
    if u.op is Ops.REDUCE and new.src[1:]:
      register, start = self._register(new)
      inside = register.after(start, *new.src[1:]).index(0)
      total, op = inside.load(dtype=new.dtype), new.arg[0]
      update = inside.store(accumulate(total, new.src[0]) if op is Ops.ADD else total.alu(op, new.src[0]))
      new = _total(register, update, new)
    elif u.op is Ops.REDUCE:
      new = new.src[0]
    elif u.op is Ops.ADD and new.src[1].op is Ops.MMA:  # a loop over tiles that has been written out
      new = accumulate(new.src[0], new.src[1])
    self.done[u] = new

  def _tile(self, reduces: list[UOp]) -> None:
    """All sums of a register tile, whose products `linearise` puts in order."""
    updates, registers = [], []
    for u in reduces:
      new = u.with_src(tuple([self.of(s) for s in u.src]))
      register, start = self._register(new)
      inside = register.after(start, *new.src[1:]).index(0)
      total = inside.load(dtype=new.dtype)
      for product in products(new.src[0]):
        total = accumulate(total, product)
      updates.append(inside.store(total))
      registers.append((register, new))
    last = UOp.group(*updates)
    for u, (register, new) in zip(reduces, registers):
      self.done[u] = _total(register, last, new)

  def _register(self, reduce: UOp) -> tuple[UOp, UOp]:
    """An accumulator, and the store of its first value."""
    register = UOp.alloc(self.fresh, reduce.dtype.ptr(1, AddrSpace.REG))
    self.fresh += 1
    # the loops around the REDUCE: without them the initial store would be taken for loop-invariant
    outside = in_order(reduce.ranges)
    return register, register.after(*outside).index(0).store(identity(reduce.arg[0], reduce.dtype))


def _total(register: UOp, update: UOp, reduce: UOp) -> UOp:
  """What is in an accumulator behind the loops of its sum."""
  return register.after(update.end(*reduce.src[1:])).index(0).load(dtype=reduce.dtype)


def _written_out(root: UOp, target: Target) -> dict[tuple[UOp, ...], list[UOp]]:
  """Register tiles whose sums add several products in an iteration, by their loops."""
  found = {}
  for loops, reduces in by_loops(root).items():
    if loops and is_tile(reduces, target) and all(u.arg[0] is Ops.ADD for u in reduces):
      steps = {len(products(u.src[0])) for u in reduces}
      if 0 not in steps and steps != {1}:  # not of as many each, where a part of a window is in padding
        found[loops] = reduces
  return found


def accumulate(total: UOp, value: UOp) -> UOp:
  """`total + value`, the addition left to the tensor-core instructions that `value` may be made of."""
  if value.op is not Ops.MMA:
    return total + value
  a, b, c = value.src
  nothing = c.op is Ops.CONST and c.arg == 0
  return value.replace(src=(a, b, total if nothing else accumulate(total, c)))
