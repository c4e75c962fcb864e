"""Bounds are sound: every value that evaluation gives lies inside them. And they are tight where rules rely on it."""

import itertools
from random import Random

import pytest

from tiny_uop import DType, Ops, UOp, dtypes, evaluate

BINARY = [
  Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.AND, Ops.OR, Ops.XOR,
  Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE,
]  # fmt: skip
INTERVALS = [(-3, 2), (0, 5), (1, 4), (-6, -2), (0, 0), (-1, 1), (3, 9)]


def values(low: int, high: int) -> range:
  return range(low, high + 1)


@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.int32], ids=str)
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_binary_exhaustively(op: Ops, dtype: DType) -> None:
  for first, second in itertools.product(INTERVALS, INTERVALS):
    a, b = UOp.variable("a", *first, dtype), UOp.variable("b", *second, dtype)
    u = a.alu(op, b)
    for x, y in itertools.product(values(*first), values(*second)):
      assert u.vmin <= evaluate(u, {a: x, b: y}) <= u.vmax, (op, first, second, x, y)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("op", [*BINARY, Ops.SHL, Ops.SHR, Ops.NEG, Ops.CAST], ids=lambda op: op.name)
def test_wraps_soundly(op: Ops, dtype: DType) -> None:
  """Every second number drawn is an end of the type, or next to one or to 0."""
  low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
  rng, edges = Random(0), sorted({low, low + 1, max(low, -1), 0, 1, high // 2, high // 2 + 1, high - 1, high})
  other = dtypes.uint8 if dtype is dtypes.int8 else dtypes.int8

  def number(first: int, last: int) -> int:
    return rng.choice([e for e in edges if first <= e <= last] + [rng.randint(first, last) for _ in edges])

  for _ in range(300):
    ends = [sorted((number(low, high), number(low, high))) for _ in range(2)]
    if op in (Ops.SHL, Ops.SHR):
      ends[1] = sorted((rng.randint(0, 7), rng.randint(0, 7)))
    a, b = (UOp.variable(name, first, last, dtype) for name, (first, last) in zip("ab", ends, strict=True))
    u = a.alu(Ops.NEG) if op is Ops.NEG else a.cast(other) if op is Ops.CAST else a.alu(op, b)
    for x, y in [*itertools.product(*ends), *((number(*ends[0]), number(*ends[1])) for _ in range(4))]:
      assert u.vmin <= evaluate(u, {a: x, b: y}) <= u.vmax, (u.render(), ends, x, y)


def test_tight() -> None:
  x, y = UOp.variable("x", 0, 15), UOp.variable("y", -4, 3)
  for u, expected in [
    (x * 4 + 3, (3, 63)), (x // 4, (0, 3)), (x % 4, (0, 3)), (x % 16, (0, 15)), (y // 2, (-2, 1)), (y % 3, (0, 2)),
    (y * -1, (-3, 4)), (y * y, (0, 16)), (x.maximum(8), (8, 15)), (x < 16, (True, True)), (y < -4, (False, False)),
    (x & 7, (0, 7)), (x.eq(20), (False, False)), (x.ne(20), (True, True)), ((x < 3).where(x, 40), (0, 40)),
    (UOp.range(10, 0), (0, 9)), (UOp.range(x, 0), (0, 14)), (UOp.range(0, 0), (0, 0)), (x.cast(dtypes.int8), (0, 15)),
    (x // (y * 0 + 5), (0, 3)), (x % UOp.variable("z", 1, 4), (0, 3)),
  ]:  # fmt: skip
    assert (u.vmin, u.vmax) == expected, u.render()


def test_index_is_not_bounded_by_a_width() -> None:
  x = UOp.variable("x", 0, 2**40)
  assert (x * x * x).vmax == 2**120


def test_floats_are_unbounded_but_for_constants() -> None:
  f = UOp.param(0, dtypes.float32.ptr(4)).index(0).load()
  assert (f + 1).vmin == -float("inf") and UOp.const(dtypes.float32, 2.5).vmax == 2.5
  assert (f < f).vmin is False and UOp.const(dtypes.float32, 1.0).ne(float("nan")).vmin is True


def test_deep_graphs_need_no_stack() -> None:
  u = UOp.variable("x", 0, 1, dtypes.int64)
  for _ in range(100_000):
    u = u + 1
  assert (u.vmin, u.vmax) == (100_000, 100_001)
