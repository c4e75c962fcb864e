"""Which integers offsets become, and that 32 bits are enough where a target has no more."""

from __future__ import annotations

import pytest
from codegen_kernels import kernel, loop, param

from tiny_codegen import PassContext, Target, run_passes
from tiny_uop import Context, Ops, Opt, OptOps, UOp, dtypes, evaluate

TYPES = frozenset({dtypes.bool, dtypes.int32, dtypes.uint32, dtypes.float32})
ROWS, COLUMNS = 6, 1000
I = loop(ROWS, 0)  # noqa: E741  # as in the formula
PICKED = param(2, ROWS, dtypes.int32).index(I).load()


def rows_and_picked_columns() -> UOp:
  """One element of each row, which a number from memory names; the offset may leave int32 where the gate is false."""
  column = PICKED.cast(dtypes.index) * 3 - 7
  gate = (column >= 0) & (column < COLUMNS)
  return kernel(param(0, ROWS).index(I).store(param(1, ROWS * COLUMNS).index(I * COLUMNS + column, gate).load()).end(I))


def offset_of_the_gather(types: frozenset[object]) -> UOp:
  """The offset into PARAM 1 in the program for a target with these types."""
  native = frozenset({Ops.ADD, Ops.MUL, Ops.AND, Ops.CMPLT, Ops.CMPNE, Ops.WHERE})
  with Context(SPEC=2):  # the proof is for all numbers that memory may hold
    linear = run_passes(rows_and_picked_columns(), PassContext(Target(types, native), ()))  # type: ignore[arg-type]
  (place,) = [u.src[0] for u in linear.src if u.op is Ops.LOAD and u.src[0].src[0].arg == 1]
  return place.src[1]


@pytest.mark.parametrize("types", [TYPES, TYPES | {dtypes.int64, dtypes.uint64}], ids=["32 bits", "64 bits"])
def test_offsets_are_right_wherever_they_are_used(types: frozenset[object]) -> None:
  offset = offset_of_the_gather(types)
  load = next(u for u in offset.toposort if u.op is Ops.LOAD)
  row = next(u for u in offset.toposort if u.op is Ops.RANGE)
  for r in range(ROWS):
    for picked in (3, 4, 300, 335):
      assert evaluate(offset, {row: r, load: picked}) == r * COLUMNS + picked * 3 - 7


def test_a_target_without_int64_has_offsets_of_32_bits() -> None:
  narrow, wide = offset_of_the_gather(TYPES), offset_of_the_gather(TYPES | {dtypes.int64, dtypes.uint64})
  assert narrow.dtype is dtypes.int32 and wide.dtype is dtypes.int64
  assert all(u.dtype.scalar() in TYPES or u.op is Ops.PARAM for u in narrow.toposort if u.op is not Ops.INDEX)


def test_where_offsets_are_as_wide_as_addresses_lanes_and_quotients_are_not() -> None:
  """Scalars are int64; lanes and quotients int32, if they fit."""
  rows, lanes = loop(40, 0), loop(8, 1)
  offset = rows // 3 * 8 + lanes
  gate = rows * 8 + lanes < 300
  value = (rows + lanes).cast(dtypes.float32) + param(1, 320).index(offset, gate).load(UOp.const(dtypes.float32, 0.0))
  small = kernel(param(0, 320).index(rows * 8 + lanes).store(value).end(rows, lanes))
  native = frozenset({Ops.ADD, Ops.MUL, Ops.AND, Ops.CMPLT, Ops.CMPNE, Ops.WHERE, Ops.TRUNCDIV, Ops.CAST})
  types = TYPES | {dtypes.int64, dtypes.uint64}
  target = Target(types, native, vector_bits=256, max_vector_lanes=8, wide_offsets=True)
  linear = run_passes(small, PassContext(target, (Opt(OptOps.VECTOR, 1, 8),)))
  integers = [u for u in linear.src if u.dtype.kind == "int" and u.op is not Ops.CAST]
  for u in integers:
    narrow = u.dtype.count > 1 or u.op is Ops.TRUNCDIV or all(user.op is Ops.TRUNCDIV for user in users(linear, u))
    assert u.dtype.scalar() is (dtypes.int32 if narrow else dtypes.int64), u
  assert {u.op for u in integers if u.dtype is dtypes.int64} >= {Ops.RANGE, Ops.MUL}
  assert any(u.op is Ops.TRUNCDIV for u in integers) and any(u.dtype.count > 1 for u in integers)


def users(linear: UOp, u: UOp) -> list[UOp]:
  """The instructions that a node is an operand of; a node that none has is not itself one."""
  return [user for user in linear.src if u in user.src] or [linear]
