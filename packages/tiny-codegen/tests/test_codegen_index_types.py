"""Which integers offsets become, and that 32 bits are enough where a target has no more."""

from __future__ import annotations

import pytest
from codegen_kernels import kernel, loop, param

from tiny_codegen import PassContext, Target, run_passes
from tiny_uop import Context, Ops, UOp, dtypes, evaluate

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
