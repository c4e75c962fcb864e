"""Pass: REDUCE becomes a loop that updates an accumulator in a register.

`REDUCE(x, r)` → ALLOC; STORE the identity; in the loop STORE op(LOAD, x); END; LOAD. REDUCEs over the same loops
update their accumulators in one loop. A tensor core adds to its accumulator itself.
"""

from __future__ import annotations

from tiny_codegen.loops import in_order, next_alloc_id
from tiny_codegen.tensor_cores import accumulate
from tiny_uop import AddrSpace, DType, Ops, UOp, dtypes


def identity(op: Ops, dtype: DType) -> UOp:
  """The value that combining with does not change."""
  scalar = dtype.scalar()
  if op is Ops.ADD:
    return UOp.const(dtype, False if scalar is dtypes.bool else 0)
  if op is Ops.MUL:
    return UOp.const(dtype, True if scalar is dtypes.bool else 1)
  if op is Ops.MAX:
    return UOp.const(dtype, dtypes.min(scalar))
  raise ValueError(f"REDUCE with {op.name}: expected ADD, MUL or MAX")


def lower_reduce(root: UOp) -> UOp:
  """The kernel without REDUCE."""
  fresh = next_alloc_id(root)
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    new = u.with_src(tuple([done[s] for s in u.src]))
    if u.op is Ops.REDUCE:
      new = _accumulate(new, fresh)
      fresh += 1
    elif u.op is Ops.ADD and new.src[1].op is Ops.MMA:  # a loop over tiles that has been written out
      new = accumulate(new.src[0], new.src[1])
    done[u] = new
  return done[root]


def _accumulate(reduce: UOp, id: int) -> UOp:
  value, loops, op = reduce.src[0], reduce.src[1:], reduce.arg[0]
  if not loops:
    return value
  register = UOp.alloc(id, value.dtype.ptr(1, AddrSpace.REG))
  # the loops around the REDUCE: without them the initial store would be taken for loop-invariant
  outside = in_order(reduce.ranges)
  start = register.after(*outside).index(0).store(identity(op, value.dtype))
  inside = register.after(start, *loops).index(0)
  total = inside.load(dtype=value.dtype)
  update = inside.store(accumulate(total, value) if op is Ops.ADD else total.alu(op, value))
  return register.after(update.end(*loops)).index(0).load(dtype=value.dtype)
