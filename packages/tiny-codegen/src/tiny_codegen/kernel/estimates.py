"""How much work a program is: arithmetic operations and bytes of device memory, as UOps over its variables."""

from __future__ import annotations

import math

from tiny_codegen.instructions.dot_product import DotProduct, steps_of
from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.memory import nbytes_of, space_of
from tiny_uop import AddrSpace, GroupOp, Ops, UOp, dtypes, simplify, sint
from tiny_uop.graph import memory_of

COUNTED = GroupOp.ALU - {Ops.WHERE}


def estimate(linear: UOp) -> tuple[UOp, UOp]:
  """(operations, bytes) of one run.

  Operations are arithmetic on values, not on addresses; a MULACC is two, a tensor-core
  instruction a thread's share of its multiplications and additions. Bytes are the distinct bytes touched: what
  all accesses to a buffer move, but no more than the buffer has, reads and writes apart.
  """
  values = _values(linear)
  # Python integers wherever nothing is symbolic
  runs: sint = 1
  stack: list[sint] = [1]
  ops: sint = 0
  touched: dict[tuple[UOp, Ops], sint] = {}
  for u in linear.src:
    if u.op is Ops.RANGE or u.op is Ops.SPECIAL:
      if u.op is Ops.RANGE:
        stack.append(runs)
      runs = runs * _size(u)
    elif u.op is Ops.END:
      runs = stack.pop()
    elif u.op in COUNTED and u in values:
      ops = ops + runs * (u.dtype.count * (2 if u.op is Ops.MULACC else 1))
    elif u.op is Ops.MMA and isinstance(u.arg, DotProduct):
      ops = ops + runs * (2 * steps_of(u.arg) * u.dtype.count)
    elif u.op is Ops.MMA:
      ops = ops + runs * (2 * math.prod(u.arg.dims) // u.arg.threads)
    elif u.op in (Ops.LOAD, Ops.STORE):
      pointer = memory_of(u.src[0])
      if space_of(pointer) is AddrSpace.GLOBAL:
        moved = u.dtype.itemsize if u.op is Ops.LOAD else u.src[1].dtype.itemsize
        key = (pointer, u.op)
        touched[key] = touched.get(key, 0) + runs * moved
  return _as_uop(ops), _as_uop(_bytes(touched))


def _as_uop(work: sint) -> UOp:
  return number(work) if isinstance(work, int) else simplify(work)


def _bytes(touched: dict[tuple[UOp, Ops], sint]) -> sint:
  total: sint = 0
  for (pointer, _), moved in touched.items():
    most = nbytes_of(pointer)
    total = total + (min(moved, most) if isinstance(moved, int) else -(-simplify(moved)).maximum(number(-most)))
  return total


def _size(loop: UOp) -> sint:
  size = loop.src[0]
  if size.op is Ops.CONST:
    return int(size.arg)
  # an extent that changes from iteration to iteration or from thread to thread, or is read, counts as its upper bound
  if size.ranges or any(u.op in (Ops.SPECIAL, Ops.LOAD) for u in size.toposort):
    return int(size.vmax)
  return as_index(size)


def as_index(size: UOp) -> UOp:
  """A loop bound of a lowered program as an index expression over its variables."""
  done: dict[UOp, UOp] = {}
  for u in size.toposort:
    if u.op is Ops.CAST:
      done[u] = done[u.src[0]]
    else:
      integer = dtypes.is_int(u.dtype)
      done[u] = u.replace(dtype=dtypes.index if integer else u.dtype, src=tuple([done[s] for s in u.src]))
  return simplify(done[size])


def _values(linear: UOp) -> set[UOp]:
  """What stored values are computed from: not addresses, gates or loop bounds."""
  found: set[UOp] = set()
  stack = [u.src[1] for u in linear.src if u.op is Ops.STORE]
  while stack:
    u = stack.pop()
    if u in found:
      continue
    found.add(u)
    if u.op is Ops.LOAD:
      stack.extend(u.src[1:])
    elif u.op is not Ops.RANGE:
      stack.extend(u.src)
  return found
