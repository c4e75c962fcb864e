"""What elementwise operations compute, against NumPy and published test vectors."""

import math
import operator
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_uop import DType, GroupOp, Ops, UOp, dtypes, evaluate, exec_alu, truncate
from tiny_uop.evaluate import evaluator, threefry

NUMPY_BINARY: dict[Ops, Callable[[Any, Any], Any]] = {
  Ops.ADD: operator.add, Ops.SUB: operator.sub, Ops.MUL: operator.mul, Ops.MAX: np.maximum, Ops.AND: operator.and_,
  Ops.OR: operator.or_, Ops.XOR: operator.xor, Ops.CMPLT: operator.lt, Ops.CMPNE: operator.ne, Ops.CMPEQ: operator.eq,
  Ops.FLOORDIV: np.floor_divide, Ops.FLOORMOD: np.mod, Ops.TRUNCMOD: np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
@pytest.mark.parametrize("op", NUMPY_BINARY, ids=lambda op: op.name)
def test_integers_as_numpy(op: Ops, dtype: DType) -> None:
  """All pairs of the ends and what is next to them, of zero, and random ones of every size."""
  low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
  edges = {low, low + 1, low // 2, high // 2, high - 1, high, *(v for v in range(-3, 4) if v >= low)}
  random = Random(0)
  pairs = [*product(sorted(edges), repeat=2)]
  pairs += [(random.randint(low, high) >> random.randrange(dtype.bits), random.randint(low, high)) for _ in range(200)]
  a, b = (np.array(column, dtype.name) for column in zip(*pairs, strict=True))
  with np.errstate(all="ignore"):
    expected = NUMPY_BINARY[op](a, b)
  result = dtypes.bool if op in GroupOp.Compare else dtype
  assert [exec_alu(op, result, pair) for pair in pairs] == expected.tolist()


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_truncating_division(a: int, b: int) -> None:
  quotient = exec_alu(Ops.TRUNCDIV, dtypes.int8, (a, b))
  rest = exec_alu(Ops.TRUNCMOD, dtypes.int8, (a, b))
  if b == 0:
    assert (quotient, rest) == (0, 0)
  else:
    assert quotient == truncate(dtypes.int8, math.trunc(a / b))  # -128 / -1 wraps
    assert rest == math.fmod(a, b)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ], ids=str)
@given(a=st.floats(width=32), b=st.floats(width=32))
def test_float32_as_numpy(op: Ops, a: float, b: float) -> None:
  functions = {**NUMPY_BINARY, Ops.FDIV: operator.truediv}
  with np.errstate(all="ignore"):
    expected = functions[op](np.float32(a), np.float32(b))
  got = exec_alu(op, dtypes.bool if op in GroupOp.Compare else dtypes.float32, (a, b))
  assert got == expected or (got != got and expected != expected)


@pytest.mark.parametrize(
  ("op", "value", "expected"),
  [
    (Ops.LOG, 0.0, -math.inf), (Ops.LOG, -1.0, math.nan), (Ops.LOG2, 0.0, -math.inf), (Ops.LOG2, 8.0, 3.0),
    (Ops.EXP, 1000.0, math.inf), (Ops.EXP, -math.inf, 0.0), (Ops.EXP2, 5000.0, math.inf), (Ops.EXP2, -3.0, 0.125),
    (Ops.SIN, math.inf, math.nan), (Ops.SQRT, -1.0, math.nan), (Ops.SQRT, 9.0, 3.0), (Ops.TRUNC, -2.7, -2.0),
    (Ops.TRUNC, math.inf, math.inf), (Ops.TRUNC, math.nan, math.nan), (Ops.NEG, 0.0, -0.0), (Ops.LOG, math.nan,
    math.nan),
  ],
)  # fmt: skip
def test_float_edges(op: Ops, value: float, expected: float) -> None:
  got = exec_alu(op, dtypes.float64, (value,))
  assert isinstance(got, float)
  assert got == expected or (math.isnan(got) and math.isnan(expected))


def test_trunc_keeps_the_sign_of_zero() -> None:
  assert math.copysign(1, float(exec_alu(Ops.TRUNC, dtypes.float32, (-0.5,)))) == -1  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
def test_results_are_rounded(dtype: DType) -> None:
  third = exec_alu(Ops.FDIV, dtype, (1.0, 3.0))
  assert third == truncate(dtype, 1 / 3) and (third != 1 / 3 or dtype is dtypes.float64)


def test_bool_arithmetic_is_logic() -> None:
  for a in (False, True):
    for b in (False, True):
      assert exec_alu(Ops.ADD, dtypes.bool, (a, b)) is (a or b)
      assert exec_alu(Ops.MUL, dtypes.bool, (a, b)) is (a and b)
      assert exec_alu(Ops.MAX, dtypes.bool, (a, b)) is (a or b)
      assert exec_alu(Ops.MULACC, dtypes.bool, (a, b, a)) is ((a and b) or a)


def test_threefry_known_answers() -> None:
  # Random123 1.14, tests/kat_vectors, threefry2x32 with 20 rounds
  assert threefry(0, 0) == 0x99BA4EFE_6B200159
  assert threefry(2**64 - 1, 2**64 - 1) == 0xBB002BE7_1CB996FC
  assert threefry(0x85A308D3_243F6A88, 0x03707344_13198A2E) == 0x483DF7A0_C4923A9C


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 31))
def test_shifts(value: int, count: int) -> None:
  word = np.int32(value)
  assert exec_alu(Ops.SHL, dtypes.int32, (value, count)) == int(word << np.int32(count))
  assert exec_alu(Ops.SHR, dtypes.int32, (value, count)) == int(word >> np.int32(count))
  assert exec_alu(Ops.SHR, dtypes.uint32, (value % 2**32, count)) == value % 2**32 >> count


def test_shift_counts_out_of_range_are_cheap() -> None:
  assert exec_alu(Ops.SHL, dtypes.int64, (1, 2**62)) == 0
  assert exec_alu(Ops.SHR, dtypes.int64, (-1, 64)) == -1


def test_casts() -> None:
  assert exec_alu(Ops.CAST, dtypes.int8, (300,)) == 44
  assert exec_alu(Ops.CAST, dtypes.int32, (-2.9,)) == -2
  assert exec_alu(Ops.CAST, dtypes.bool, (0.5,)) is True
  assert exec_alu(Ops.CAST, dtypes.float16, (1e6,)) == math.inf
  assert exec_alu(Ops.BITCAST, dtypes.int32, (1.0,), dtypes.float32) == 0x3F800000
  assert exec_alu(Ops.BITCAST, dtypes.float32, (-(2**31),), dtypes.int32) == 0
  with pytest.raises(TypeError, match="pass source="):
    exec_alu(Ops.BITCAST, dtypes.int32, (1.0,))


def test_vectors_go_lane_by_lane() -> None:
  assert exec_alu(Ops.ADD, dtypes.int8.vec(3), ((1, 2, 127), 1)) == (2, 3, -128)
  assert exec_alu(Ops.CMPLT, dtypes.bool.vec(2), ((1, 5), (3, 3))) == (True, False)


def test_not_elementwise() -> None:
  with pytest.raises(ValueError, match="Ops.LOAD is not an elementwise operation"):
    exec_alu(Ops.LOAD, dtypes.int32, (1,))


@pytest.mark.parametrize("op", sorted(GroupOp.Elementwise, key=str), ids=str)
def test_every_elementwise_operation_is_defined(op: Ops) -> None:
  count = 1 if op in GroupOp.Unary else 3 if op in GroupOp.Ternary else 2
  dtype = dtypes.float32 if op in GroupOp.Transcendental | {Ops.SQRT, Ops.TRUNC, Ops.FDIV} else dtypes.uint64
  value = 1.0 if dtype is dtypes.float32 else 1
  assert exec_alu(op, dtypes.bool if op in GroupOp.Compare else dtype, (value,) * count, dtype) is not None


class TestEvaluate:
  x = UOp.variable("x", 0, 10)

  def test_by_node_and_by_name(self) -> None:
    u = (self.x * 3 + 1) // 2
    assert evaluate(u, {self.x: 5}) == 8 and evaluate(u, {"x": 5}) == 8

  def test_bind(self) -> None:
    u = self.x.bind(4) + 1
    assert evaluate(u) == 5 and evaluate(u, {"x": 9}) == 10

  def test_loops_and_inner_nodes_can_be_given(self) -> None:
    loop = UOp.range(8, 0)
    load = UOp.param(0, dtypes.int32.ptr(8)).index(loop).load()
    assert evaluate(loop * 2, {loop: 3}) == 6
    assert evaluate(load + 1, {load: 41}) == 42

  def test_vectors(self) -> None:
    vector = UOp(Ops.VECTORIZE, dtypes.index.vec(2), (self.x, self.x + 1))
    assert evaluate(vector, {"x": 3}) == (3, 4)
    assert evaluate(vector.extract(1), {"x": 3}) == 4
    joined = UOp(Ops.VECTORIZE, dtypes.index.vec(5), (vector, self.x, UOp.const(dtypes.index.vec(2), 7)))
    assert evaluate(joined, {"x": 3}) == (3, 4, 3, 7, 7)
    assert evaluate(self.x.broadcast(4).extract(2, 0), {"x": 3}) == (3, 3)

  def test_errors(self) -> None:
    with pytest.raises(KeyError, match=r"no value for VARIABLE \('x', 0, 10\)"):
      evaluate(self.x + 1)
    with pytest.raises(ValueError, match=r"'x' is 11, outside its bounds \[0, 10\]"):
      evaluate(self.x, {"x": 11})
    with pytest.raises(ValueError, match="LOAD of dtype int32 has no Python value"):
      evaluate(UOp.param(0, dtypes.int32.ptr(8)).index(0).load() + 1)

  def test_deep_and_shared(self) -> None:
    u = UOp.variable("d", 0, 1, dtypes.int64)
    for _ in range(50_000):
      u = u + u  # a tree of 2**50000 leaves
    assert evaluate(u, {"d": 1}) == 0


_INDEX_OPS = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX)


class TestEvaluator:
  """The same as `evaluate`, for several expressions and many values."""

  x, y = UOp.variable("x", 0, 50), UOp.variable("y", -20, 20)

  @given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 50), st.integers(-20, 20)), min_size=1, max_size=3))
  def test_random_expressions_as_evaluate(self, seed: int, values: list[tuple[int, int]]) -> None:
    random = Random(seed)
    nodes = [self.x, self.y, *[UOp.const(dtypes.index, n) for n in (-3, 0, 1, 7)]]
    for _ in range(random.randrange(12)):
      a, b, c, d = (random.choice(nodes) for _ in range(4))
      nodes += [(a < b).where(c, d), UOp(random.choice(_INDEX_OPS), dtypes.index, (a, b))]
    wanted = random.choices(nodes, k=3)
    found = evaluator(wanted)
    for x, y in values:
      assert found({"x": x, "y": y, "unused": 1}) == [evaluate(u, {"x": x, "y": y}) for u in wanted]

  def test_errors(self) -> None:
    assert evaluator([UOp.const(dtypes.index, 4), self.x])({"x": 3}) == [4, 3]
    with pytest.raises(KeyError, match=r"no value for VARIABLE \('x', 0, 50\)"):
      evaluator([self.x + 1])({"y": 1})
    with pytest.raises(ValueError, match=r"'x' is 51, outside its bounds \[0, 50\]"):
      evaluator([self.x + 1])({"x": 51})
    with pytest.raises(ValueError, match="an expression of variables has no RANGE of dtype index"):
      evaluator([UOp.range(8, 0) + self.x])
