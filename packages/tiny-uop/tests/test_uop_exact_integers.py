"""Expressions over fixed-width integers as exact ones: equal values at every assignment, and one form for what late
passes write in several ways.
"""

from random import Random

import numpy as np
import pytest
from uop_expressions import draw
from uop_oracle import Oracle

from tiny_uop import AddrSpace, Ops, UOp, dtypes, evaluate
from tiny_uop.proof.exact_integers import Exact

i32, u8 = dtypes.int32, dtypes.uint8
n, m = UOp.variable("n", 0, 100, i32), UOp.variable("m", -50, 50, i32)
exact_n, exact_m = UOp.variable("n", 0, 100), UOp.variable("m", -50, 50)


def exact(u: UOp) -> UOp:
  (only,) = Exact().of(u)
  return only


def test_values_are_kept() -> None:
  unknown = 0
  for seed in range(1500):
    case = draw(Random(seed))
    oracle = Oracle(case.leaves)
    expected = oracle(case.expression)
    made = exact(case.expression)
    assert all(u.dtype in (dtypes.index, dtypes.bool) for u in made.toposort)
    names = {str(u.arg[0]) for u in made.variables}
    if not names <= {str(u.arg[0]) for u in case.expression.variables}:
      unknown += 1
      continue
    *columns, wanted = [
      grid.ravel() for grid in np.broadcast_arrays(*[oracle.values[leaf] for leaf in case.leaves], expected)
    ]
    for place in Random(seed).sample(range(len(wanted)), min(len(wanted), 12)):
      values = {leaf: int(column[place]) for leaf, column in zip(case.leaves, columns)}
      env = {exact(leaf): value for leaf, value in values.items()}
      assert int(evaluate(made, env)) == int(wanted[place]), (seed, values)  # type: ignore[arg-type]
  assert unknown < 200


@pytest.mark.parametrize(
  ("late", "early"),
  [
    (n >> 2, exact_n // 4),
    (n & 7, exact_n % 8),
    (n << 3, exact_n * 8),
    (n.alu(Ops.TRUNCDIV, n.const_like(3)), exact_n // 3),
    (n.alu(Ops.TRUNCMOD, n.const_like(3)), exact_n % 3),
    (n.alu(Ops.MULACC, n.const_like(3), m), exact_n * 3 + exact_m),
    (n.alu(Ops.SUB, m), exact_n + exact_m * -1),
    (n.alu(Ops.NEG), exact_n * -1),
    (n.cast(dtypes.int64) + 1, exact_n + 1),
    (n.cast(dtypes.index) + 1, exact_n + 1),
    (UOp.range(UOp.const(i32, 5), 3, dtype=i32) + 1, UOp.range(5, 3) + 1),
    (n < m, exact_n < exact_m),
    ((n < m).cast(i32), (exact_n < exact_m).where(UOp.const(dtypes.index, 1), 0)),
  ],
)
def test_late_forms_become_what_they_were(late: UOp, early: UOp) -> None:
  assert exact(late) is early


def test_what_may_wrap_is_wrapped() -> None:
  byte = UOp.variable("b", 0, 200, u8)
  assert exact(byte + 55) is UOp.variable("b", 0, 200) + 55
  assert (exact(byte + 56).vmin, exact(byte + 56).vmax) == (0, 255)
  assert [evaluate(exact(byte + 56), {"b": b}) for b in (199, 200)] == [255, 0]
  assert [evaluate(exact(byte.cast(dtypes.int8)), {"b": b}) for b in (127, 128)] == [127, -128]


def test_a_sign_inverts() -> None:
  flipped = exact(m ^ (m >> 31))
  assert [evaluate(flipped, {"m": v}) for v in (-50, -1, 0, 49)] == [49, 0, 0, 49]
  assert evaluate(exact((m >> 31) ^ m), {"m": -50}) == 49


def test_what_is_not_known_is_a_variable_with_its_bounds() -> None:
  table = UOp.param(2, i32.ptr(8))
  loaded = table.index(UOp.range(8, 0)).load()
  assert exact(loaded) is UOp.variable("PARAM 2[r0]", -(2**31), 2**31 - 1)
  assert exact(loaded.cast(dtypes.index) * 2).render() == "PARAM 2[r0]*2"
  assert exact(n | 5).vmax == 127
  flag = UOp.param(3, dtypes.bool.ptr(8)).index(0).load()
  assert exact(flag).render() == "PARAM 3[0] != 0"
  assert exact(UOp.param(4, dtypes.float32.ptr(8)).index(0).load() < 1.0).render() == "cmplt != 0"


def test_two_reads_of_one_place_need_not_agree() -> None:
  memory = UOp.param(2, i32.ptr(8))
  before = memory.index(0).load()
  after = memory.after(memory.index(0).store(1)).index(0).load()
  first, second = exact(before + after).variables
  assert (first.arg[0], second.arg[0]) == ("PARAM 2[0]", "PARAM 2[0]#2")
  assert len(exact(before + before).variables) == 1


def test_names_are_not_mixed_up() -> None:
  table = UOp.param(2, i32.ptr(8))
  impostor = UOp.variable("PARAM 2[0]", 0, 3, i32)
  assert len(exact(table.index(0).load() + impostor).variables) == 2
  assert len(exact(impostor + table.index(0).load()).variables) == 2


def test_lanes() -> None:
  lanes = UOp.const(i32.vec(4), (0, 1, 2, 3))
  vector = (n.broadcast(4) * 4 + lanes) < m.broadcast(4)
  assert [u.render() for u in Exact().of(vector)] == ["n*4 + 0 < m", "n*4 + 1 < m", "n*4 + 2 < m", "n*4 + 3 < m"]
  assert [u.render() for u in Exact().of((n.broadcast(4) * 4 + lanes).extract(2, 1))] == ["n*4 + 2", "n*4 + 1"]
  joined = UOp(Ops.VECTORIZE, i32.vec(3), (m, n.broadcast(2) + UOp.const(i32.vec(2), (0, 1))))
  assert [u.render() for u in Exact().of(joined.extract(2, 0))] == ["n + 1", "m"]
  wide = UOp.param(2, i32.ptr(8)).index(0).load(dtype=i32.vec(2))
  assert [u.render() for u in Exact().of(wide < 1)] == ["PARAM 2[0].0 < 1", "PARAM 2[0].1 < 1"]


def test_near_memory_holds_what_is_stored_there() -> None:
  register = UOp.alloc(0, i32.ptr(1, AddrSpace.REG))
  k = UOp.range(8, 0)
  start = register.index(0).store(-(2**31))
  held = register.after(start, k).index(0)
  update = held.store(held.load().maximum(UOp.param(2, i32.ptr(8)).index(k).load() % 5))
  result = register.after(update.end(k)).index(0).load()
  stores = [u for u in result.toposort if u.op is Ops.STORE]
  (bounded,), (free,) = Exact(stores).of(result), Exact().of(result)
  assert (bounded.vmin, bounded.vmax) == (-(2**31), 4)
  assert (free.vmin, free.vmax) == (-(2**31), 2**31 - 1)
  # a sum grows with what it held
  grown = held.store(held.load() + 1)
  (after,) = Exact([start, grown]).of(register.after(grown.end(k)).index(0).load())
  assert (after.vmin, after.vmax) == (-(2**31), 2**31 - 1)
  # a gated load may give its alternative instead
  gated = register.after(start).index(0, k < 3)
  assert [Exact([start]).of(gated.load(alt))[0].vmax for alt in (None, UOp.const(i32, 7))] == [0, 7]


def test_memories_that_are_filled_from_each_other() -> None:
  first, second = (UOp.alloc(place, i32.ptr(4, AddrSpace.LOCAL)) for place in range(2))
  into_first = first.index(0).store(second.index(0).load().maximum(3))
  into_second = second.index(0).store(first.index(0).load().maximum(5))
  (value,) = Exact([into_first, into_second]).of(first.index(1).load())
  assert (value.vmin, value.vmax) == (-(2**31), 2**31 - 1)  # what it starts from is not known
