"""Every rule of the tables by name: it fires on its example, leaves the near miss alone, keeps the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_sched.graph_rules import GRAPH_RULES
from tiny_sched.value_rules import VALUE_RULES
from tiny_uop import Ops, PatternMatcher, UOp, dtypes

A = UOp.new_buffer("CPU", 12, dtypes.int32).reshape((3, 4))
ONE = UOp.new_buffer("CPU", 4, dtypes.int32).reshape((1, 4))
EMPTY = UOp.new_buffer("CPU", 0, dtypes.int32).reshape((0, 4))
BOOL = UOp.new_buffer("CPU", 12, dtypes.bool).reshape((3, 4))
FLOAT = UOp.new_buffer("CPU", 12, dtypes.float32).reshape((3, 4))
LONG = UOp.new_buffer("CPU", 1 << 17, dtypes.int32)
DISK = UOp.new_buffer("DISK:/x", 12, dtypes.int32).reshape((3, 4))
OUT = UOp.new_buffer("CPU", 12, dtypes.int32)
C = UOp(Ops.CONST, dtypes.int32, (UOp(Ops.DEVICE, arg="CPU"),), 3).reshape((1,)).expand((12,))
SUM = A.reduce_axes(Ops.ADD, (1,))


def raw(op: Ops, x: UOp, arg: Any) -> UOp:
  """A movement op as it comes from text, without the shortcuts of the constructors."""
  return UOp(op, x.dtype, (x,), arg)


def uop(op: Ops, *src: UOp, dtype: Any = None) -> UOp:
  return UOp(op, dtype or src[0].dtype, src)


# rule → (example, near miss or None)
GRAPH: dict[str, tuple[UOp, UOp | None]] = {
  "detach": (A.detach(), None),
  "contiguous_backward": (A.contiguous_backward(), None),
  "contiguous_twice": (uop(Ops.CONTIGUOUS, A.flip((0,)).contiguous()), A.flip((0,)).contiguous()),
  "merge_reshape": (A.reshape((2, 6)).reshape((12,)), A.permute((1, 0)).reshape((12,))),
  "merge_permute": (A.reshape((3, 2, 2)).permute((1, 0, 2)).permute((2, 0, 1)), A.flip((0,)).permute((1, 0))),
  "reshape_to_same": (raw(Ops.RESHAPE, A.flip((0,)), (3, 4)), A.flip((0,)).reshape((4, 3))),
  "expand_to_same": (raw(Ops.EXPAND, A, (3, 4)), ONE.expand((3, 4))),
  "permute_to_same": (raw(Ops.PERMUTE, A, (0, 1)), A.permute((1, 0))),
  "flip_twice": (A.flip((0,)).flip((0,)), A.flip((0,)).flip((1,))),
  "pad_by_nothing": (raw(Ops.PAD, A, (0, 0, 0, 0)), A.pad(((0, 1), (0, 0)))),
  "shrink_to_all": (raw(Ops.SHRINK, A, (0, 3, 0, 4)), A.shrink(((0, 2), (0, 4)))),
  "reduce_empty_axis": (EMPTY.reduce_axes(Ops.MAX, (0,)), EMPTY.reduce_axes(Ops.MAX, (1,))),
  "reduce_axis_of_one": (ONE.reduce_axes(Ops.ADD, (0, 1)), SUM),
  "merge_reduce": (SUM.reduce_axes(Ops.ADD, (0,)), SUM.reduce_axes(Ops.MAX, (0,))),
  "split_long_reduce": (LONG.reduce_axes(Ops.ADD, (0,)), LONG.reshape((1 << 8, 1 << 9)).reduce_axes(Ops.ADD, (0,))),
  "fold_elementwise": (A.const_like(3) + A.const_like(4), A + A.const_like(4)),
  "store_copied_const": (DISK.base.store(C.copy_to("DISK:/x")), DISK.store(A.copy_to("DISK:/x"))),
  "store_reshaped": (OUT.store((A + 1).reshape((12,))), OUT.flip((0,)).store((A + 1).reshape((12,)))),
  "copy_to_same_device": (A.copy_to("CPU"), DISK.copy_to("CPU")),
  "copy_of_movement": (DISK.permute((1, 0)).copy_to("CPU"), DISK.shrink(((1, 2), (0, 4))).copy_to("CPU")),
  "copy_of_bitcast": (
    DISK.permute((1, 0)).bitcast(dtypes.uint32).copy_to("CPU"), DISK.bitcast(dtypes.uint32).copy_to("CPU"),
  ),
}  # fmt: skip

VALUE: dict[str, tuple[UOp, UOp | None]] = {
  "value_cast_same": (uop(Ops.CAST, A), A.cast(dtypes.int64)),
  "value_bitcast_same": (uop(Ops.BITCAST, A), A.bitcast(dtypes.uint32)),
  "value_cast_const": (
    uop(Ops.CAST, UOp.const(dtypes.float32, 2.5), dtype=dtypes.int32),
    uop(Ops.CAST, UOp.const(dtypes.float32, 1e30), dtype=dtypes.int32),  # unspecified: left to the target
  ),
  "value_fold_constants": (UOp.const(dtypes.int32, 2) + UOp.const(dtypes.int32, 3), A + A),
  "value_add_zero": (A + UOp.const(dtypes.int32, 0), FLOAT + UOp.const(dtypes.float32, 0.0)),  # -0.0 + 0.0 is 0.0
  "value_mul_one": (FLOAT * UOp.const(dtypes.float32, 1.0), FLOAT * UOp.const(dtypes.float32, 2.0)),
  "value_mul_zero": (A * UOp.const(dtypes.int32, 0), FLOAT * UOp.const(dtypes.float32, 0.0)),  # NaN and infinity
  "value_div_one": (FLOAT / UOp.const(dtypes.float32, 1.0), UOp.const(dtypes.float32, 1.0) / FLOAT),
  "value_and_true": (BOOL & UOp.const(dtypes.bool, True), A & UOp.const(dtypes.int32, 1)),
  "value_and_false": (BOOL & UOp.const(dtypes.bool, False), None),
  "value_or_false": (BOOL | UOp.const(dtypes.bool, False), None),
  "value_or_true": (BOOL | UOp.const(dtypes.bool, True), A | UOp.const(dtypes.int32, 1)),
  "value_where_const": (UOp.const(dtypes.bool, True).where(A, A + 1), BOOL.where(A, A + 1)),
  "value_where_same": (BOOL.where(A, A), None),
  "value_not_not": (BOOL.ne(UOp.const(dtypes.bool, True)).ne(UOp.const(dtypes.bool, True)), BOOL.logical_not()),
  "value_max_same": (A.maximum(A), A.maximum(A + 1)),
}
CASES = [(GRAPH_RULES, n, *e) for n, e in GRAPH.items()] + [(VALUE_RULES, n, *e) for n, e in VALUE.items()]


def test_every_rule_has_an_example() -> None:
  assert list(GRAPH) and set(GRAPH) == {r.name for r in GRAPH_RULES.rules}
  assert set(VALUE) == {r.name for r in VALUE_RULES.rules}


def only(table: PatternMatcher, name: str) -> PatternMatcher:
  return PatternMatcher([r for r in table.rules if r.name == name])


@pytest.mark.parametrize(("table", "name", "example", "near"), CASES, ids=[c[1] for c in CASES])
def test_rule(table: PatternMatcher, name: str, example: UOp, near: UOp | None, evaluate: Callable[..., Any]) -> None:
  new = only(table, name).rewrite(example)
  assert new is not None, "the rule does not apply to its example"
  assert near is None or only(table, name).rewrite(near) is None
  if example.op is Ops.STORE:  # an effect: compare what it writes
    target = example.src[0].base
    example, new = target.after(example), target.after(new)
  assert new.dtype is example.dtype
  random = np.random.default_rng(0)
  nodes = (*example.toposort, *new.toposort)
  memory = {u: random.integers(0, 2, u.arg[1]).astype(u.dtype.name) for u in nodes if u.op is Ops.BUFFER}
  want, got = evaluate(example, memory), evaluate(new, memory)
  np.testing.assert_array_equal(np.broadcast_to(got, want.shape), want)


def test_a_pattern_with_a_typo_would_be_noticed() -> None:
  # the harness itself: a table without the rule does not pass
  assert PatternMatcher([]).rewrite(A.detach()) is None
