"""What the simplifier makes of expressions. `test_uop_simplify_random` has the tests that values are kept."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_uop import Ops, UOp, dtypes, evaluate, simplify
from tiny_uop.symbolic import SYMBOLIC, simplify_gate, simplify_under

a, b, c = UOp.variable("a", 0, 15), UOp.variable("b", 0, 3), UOp.variable("c", -8, 7)
n, m = UOp.variable("n", 1, 100), UOp.variable("m", 1, 100)
i, j = UOp.range(120, 0), UOp.range(10, 1)
word = UOp.variable("word", -(2**31), 2**31 - 1, dtypes.int32)
flag, other = UOp.variable("flag", 0, 1) < 1, UOp.variable("other", 0, 1) < 1
real = UOp.param(0, dtypes.float32.ptr(8)).index(0).load()
TRUE, FALSE = UOp.const(dtypes.bool, True), UOp.const(dtypes.bool, False)


def const(value: float, dtype: Any = dtypes.index) -> UOp:
  return UOp.const(dtype, value)


@pytest.mark.parametrize(
  ("u", "expected"),
  [
    # sums and products
    (a + b - a, "b"),
    (b + a, "a + b"),
    (1 + a + 2, "a + 3"),
    (a * 2 + b + a * 3, "a*5 + b"),
    ((a + b) * 4 - b * 4, "a*4"),
    (a * 3 * 5, "a*15"),
    ((a + 1) * 3, "a*3 + 3"),
    (a * 0 + b * 1 + 0, "b"),
    (b * a, "a*b"),
    (n * m - m * n, "0"),
    ((n + 1) * m - m, "m*n"),
    (word + 1 + 2, "word + 3"),
    (word + word, "word*2"),
    (word * 3 - word * 3, "0"),
    (word * 3 * 5, "word*15"),
    # division
    ((a * 4 + 3) // 4, "a"),
    ((a * 4 + b) // 4, "a"),
    ((a * 4 + b) % 4, "b"),
    ((a * 8 + b * 4) // 4, "a*2 + b"),
    ((a * 4 + b + 8) // 4, "a + 2"),
    (a * 6 // 4, "a*3//2"),
    ((a * 6 + 3) // 4, "(a*3 + 1)//2"),
    (a * 6 % 4, "a%2*2"),
    (a // 3 // 5, "0" if a.vmax < 15 else "a//15"),
    (i // 3 // 5, "r0//15"),
    ((i // 3 + 2) // 5, "(r0 + 6)//15"),
    (i % 12 // 4, "r0//4%3"),
    (i % 12 % 4, "r0%4"),
    ((i + 24) % 12, "r0%12"),
    (i * 13 % 12, "r0%12"),
    (a // 16, "0"),
    (a % 16, "a"),
    ((a + 16) % 16, "a"),
    (c // -1, "c*-1"),
    (a // 0 + b % 0, "0"),
    (c % 1, "0"),
    (i // 12 * 12 + i % 12, "r0"),
    (i // 12 * 24 + i % 12 * 2, "r0*2"),
    (i // 12 * 12 + i // 4 % 3 * 4 + i % 4, "r0"),
    (i // 4 % 3 * 4 + i % 4, "r0%12"),
    ((i * 10 + j) // 10, "r0"),
    ((i * 10 + j) // 30, "r0//3"),
    ((i * 10 + j) % 30, "r0%3*10 + r1"),
    ((i * n + UOp.range(n, 2)) // n, "r0"),
    ((i * n + UOp.range(n, 2)) % n, "r2"),
    ((n * m) // n, "m"),
    (n // n + n % n, "1"),
    (word // 1, "word"),
    # comparisons
    (a < 16, "True"),
    (c < -8, "False"),
    (a + 3 < b + 3, "a < b"),
    (a * 4 < 8, "a < 2"),
    (a * 4 < 9, "a < 3"),
    (a * 4 + b < 8, "a < 2"),
    (a // 4 < 2, "a < 8"),
    (a > 3, "(a < 4) != True"),
    (a >= b, "(a < b) != True"),
    (a * 2 + 1, "a*2 + 1"),
    ((a * 2).eq(5), "False"),
    ((a * 2).eq(6), "a == 3"),
    ((a + b).ne(a), "b != 0"),
    (a.eq(a), "True"),
    (a.ne(20), "True"),
    ((word + 5).eq(3), "word == -2"),
    (word < word, "False"),
    # logic and bits
    (flag & flag, "flag < 1"),
    (flag & True, "flag < 1"),
    (flag & False, "False"),
    (flag | True, "True"),
    (flag & flag.logical_not(), "False"),
    (flag | flag.logical_not(), "True"),
    (flag.logical_not().logical_not(), "flag < 1"),
    (flag & other & flag, "(flag < 1) & (other < 1)"),
    (flag.ne(False), "flag < 1"),
    (a.eq(b).logical_not(), "a != b"),
    (word & 0, "0"),
    (word | 0, "word"),
    (word & -1, "word"),
    (word ^ word, "0"),
    (word ^ 5 ^ 3, "word ^ 6"),
    (a & 15, "a"),
    (word << 0, "word"),
    # selection
    (TRUE.where(a, b), "a"),
    (flag.where(a, a), "a"),
    (flag.logical_not().where(a, b), "where(flag < 1, b, a)"),
    (flag.where(flag.where(a, b), c), "where(flag < 1, a, c)"),
    (flag.where(TRUE, FALSE), "flag < 1"),
    (a.maximum(-1), "a"),
    (a.maximum(15), "15"),
    ((a < 5).where(a.minimum(5), 0), "where(a < 5, a, 0)"),
    ((a < 4).where(a % 4, 0), "where(a < 4, a, 0)"),
    ((c >= 0).where(c % 8, 0), "where(c < 0, 0, c)"),
    # conversions
    (a.cast(dtypes.int32).cast(dtypes.index), "a"),
    (a.cast(dtypes.int32).cast(dtypes.float32), "float32(a)"),
    (word.cast(dtypes.int64).cast(dtypes.int8), "int8(word)"),
    (word.cast(dtypes.int8).cast(dtypes.int64), "int64(int8(word))"),
    (flag.cast(dtypes.int32).cast(dtypes.bool), "flag < 1"),
  ],
)
def test_result(u: UOp, expected: str) -> None:
  assert simplify(u).render() == expected


@pytest.mark.parametrize(
  ("u", "expected"),
  [
    (real * 1, real), (real / 1, real), (real + -0.0, real), (real * -1 * -1, real), (real.trunc().trunc(),
    real.trunc()),
    (real.cast(dtypes.float64).cast(dtypes.float32), real), (UOp.const(dtypes.float32, 3) / 2, const(1.5,
    dtypes.float32)),
  ],
)  # fmt: skip
def test_floats_that_are_equal_bit_for_bit(u: UOp, expected: UOp) -> None:
  assert simplify(u) is expected


@pytest.mark.parametrize(
  "u",
  [
    real + 0.0, real * 0, real - real, real.eq(real), real / real, (real + 1.0) + 2.0, real * 2.0 * 3.0,
    real.cast(dtypes.float16).cast(dtypes.float32), real + real,
  ],
)  # fmt: skip
def test_floats_that_are_not(u: UOp) -> None:
  assert simplify(u) is u


def test_shapes_are_kept() -> None:
  buffer = UOp.new_buffer("CPU", 6, dtypes.int32).reshape((2, 3))
  for u in (buffer * 0, buffer ^ buffer, buffer < buffer, buffer & 0):
    assert simplify(u).shape == (2, 3)


def test_gates() -> None:
  gate = (a < 12) & (a >= 5) & (a < 14)
  address = simplify(UOp.param(0, dtypes.float32.ptr(99)).index((a - 5) % 7, gate))
  assert address.src[1].render() == "a + -5"
  assert address.src[2].render() == "(a < 12) & ((a < 5) != True)"
  assert simplify_gate((a < 3) & (a > 5)).arg is False
  assert simplify_gate((a < 3) & (a < 5)).render() == "a < 3"
  # a padded window: the sum of two loops is bounded by the gate
  x, k = UOp.range(8, 0), UOp.range(3, 1)
  inside = (x + k >= 1) & (x + k < 9)
  assert simplify(simplify_under((x + k - 1) % 8, [x + k >= 1, x + k < 9])).render() == "r0 + r1 + -1"
  assert simplify(UOp.param(0, dtypes.int8.ptr(8)).index((x + k + 7) % 8, inside)).src[1].render() == "r0 + r1 + -1"


def test_a_gate_does_not_reach_what_it_does_not_guard() -> None:
  """An inner load happens where the gate is false too, so its address keeps its own guard against going out of
  range.
  """
  table, data = UOp.param(0, dtypes.int32.ptr(8)), UOp.param(1, dtypes.float32.ptr(99))
  picked = table.index(a % 8).load().cast(dtypes.index)
  address = simplify(data.index((picked + a) % 90, a < 8))
  assert table.index(a % 8) in address.toposort
  assert table.index(a % 8) in simplify((a < 8).where(picked, 0)).toposort
  loop = UOp.range(n, 3)
  assert loop in simplify(data.index((loop * 3 + n) // 2, n < 5)).toposort


def test_loads_that_never_happen() -> None:
  pointer = UOp.param(0, dtypes.float32.ptr(8))
  never = pointer.index(a, (a < 3) & (a > 5))
  assert simplify(never.load()) is UOp.const(dtypes.float32, 0)
  assert simplify(never.load(UOp.const(dtypes.float32, 7))) is UOp.const(dtypes.float32, 7)
  assert len(simplify(pointer.index(a, a < 99)).src) == 2


def test_sums_are_ordered_by_loop() -> None:
  inner, outer = UOp.range(4, 5), UOp.range(4, 1)
  total = simplify(inner * 3 + n + outer * 8)
  assert total.render() == "n + r1*8 + r5*3"
  assert total.src[0].ranges == {outer}  # invariant in the inner loop


def _flat(places: list[UOp], shape: list[int]) -> UOp:
  total = UOp.const(dtypes.index, 0)
  for place, size in zip(places, shape, strict=True):
    total = total * size + place
  return total


@pytest.mark.parametrize("seed", range(300))
def test_a_position_in_another_shape_comes_back(seed: int) -> None:
  """An offset, shifted and stretched, as row, column, ... of another shape, and flat again: no division is left."""
  rng = Random(seed)
  sizes = [rng.choice([3, 4, 5, 6, 7, 8, 12, 16]) for _ in range(rng.choice([1, 2, 3]))]
  loops = [UOp.range(size, number) for number, size in enumerate(sizes)]
  offset = _flat(loops, sizes) * rng.choice([1, 1, 2, 3]) + rng.choice([0, 0, 1, 2, 3, 5, 7, 12, 24, 100])
  shape = [rng.choice([3, 4, 5, 6, 7, 8]) for _ in range(rng.choice([2, 2, 3, 4]))]
  places: list[UOp] = []
  stride = 1
  for axis, size in reversed(list(enumerate(shape))):
    places.insert(0, simplify(offset // stride % size if axis else offset // stride))
    stride *= size
  assert simplify(_flat(places, shape)) is simplify(offset), [p.render() for p in places]


def test_constants_keep_their_device() -> None:
  device = UOp(Ops.DEVICE, arg="CPU")
  one = UOp(Ops.CONST, dtypes.int32, (device,), 1)
  assert simplify(one + UOp.const(dtypes.int32, 2)) is UOp(Ops.CONST, dtypes.int32, (device,), 3)


def test_vectors() -> None:
  lanes = UOp.const(dtypes.index.vec(4), (0, 1, 2, 3))
  assert simplify(lanes * 4 + 1).arg == (1, 5, 9, 13)
  assert simplify(lanes.extract(2)) is const(2)
  assert simplify(lanes.extract(3, 0)).arg == (3, 0)
  assert simplify(UOp(Ops.VECTORIZE, dtypes.index.vec(2), (a, b)).extract(1)) is b
  assert simplify(UOp(Ops.VECTORIZE, dtypes.index.vec(2), (const(1), const(2)))).arg == (1, 2)
  pair = UOp.variable("c", 0, 9).broadcast(2) * const(3).broadcast(2)
  joined = UOp(Ops.VECTORIZE, dtypes.index.vec(5), (a, pair, UOp.const(dtypes.index.vec(2), (7, 8))))
  assert simplify(joined.extract(0)) is a and simplify(joined.extract(4)).arg == 8
  assert simplify(joined.extract(2)) is simplify(pair.extract(1)) and simplify(joined.extract(2, 0)).src[0] is joined


def test_long_sums_and_deep_graphs() -> None:
  u: UOp = a
  for k in range(3000):
    u = u + UOp.variable(f"v{k * 7919 % 3000}", 0, 3)
  assert simplify(u).vmax == u.vmax
  deep: UOp = real
  for _ in range(30_000):
    deep = (deep * 1).exp2()
  assert len(simplify(deep).toposort) == len(real.toposort) + 30_000


def test_every_rule_has_one_name() -> None:
  names = [r.name for r in SYMBOLIC.rules]
  assert len(names) == len(set(names)) > 60


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_constants_fold_as_they_evaluate(x: int, y: int) -> None:
  for op in (Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.XOR, Ops.CMPLT, Ops.MAX):
    u = const(x, dtypes.int64).alu(op, const(y, dtypes.int64))
    assert simplify(u).arg == evaluate(u)


def test_a_product_squared_again_and_again_stays_shared() -> None:
  x = UOp.variable("x", 0, 3)
  for _ in range(14):
    x = x * x
  assert len(simplify(x).toposort) < 64


def test_bound_values_do_not_change_the_order_of_terms() -> None:
  """A graph is the same for all values: what they are bound to is no part of the canonical form."""
  n, m, k = (UOp.variable(name, 0, 99) for name in "nmk")

  def written(a: int, b: int) -> UOp:
    x, y = n.bind(a), m.bind(b)
    form = simplify(y * x * 3 + (x + y) * k + (x // 2) * (y + 1) + y)
    return form.substitute({x: n, y: m})

  assert len({written(a, b) for a in (0, 7, 8, 30) for b in (1, 9, 55)}) == 1
  assert simplify(written(3, 4)) is written(3, 4)


def test_sizes_in_shapes_are_canonical() -> None:
  """Equal sizes are one node, and a number where there is one possible value only."""
  n, m = UOp.variable("n", 1, 4).bind(2), UOp.variable("m", 1, 4).bind(3)
  x = UOp.new_buffer("CPU", 99, dtypes.float32)
  forms = [x.shrink(((0, size),)).shape for size in (n + m, m + n, n + m + 0, (n * 2 + m * 2) // 2, m + 1 + n - 1)]
  assert all(form == forms[0] for form in forms)
  one = UOp.variable("one", 7, 7).bind(7)
  assert x.shrink(((0, one),)).shape == (7,) and x.shrink(((n, n + 5),)).shape == (5,)


def test_a_loop_whose_size_is_read_from_memory_stays_the_same_loop() -> None:
  """A kernel ends it elsewhere: simpler, what happened to the memory before it would make another loop of it."""
  memory, place = UOp.param(0, dtypes.int32.ptr(8)), UOp.variable("place", 0, 7)
  before = memory.index(place * 1 + 0).store(UOp.const(dtypes.int32, 2) + 1)
  loop = UOp.range(memory.after(before).index(0).load().cast(dtypes.index), 0)
  assert simplify(loop * 4 + place - place) is simplify(loop * 4)
  assert loop in simplify(loop * 4 + 1 * place).ranges
  # all of a kernel is simplified, its loops in all places
  store = memory.after(before).index(loop + place * 1).store(UOp.const(dtypes.int32, 0))
  kernel = simplify(UOp.sink(store.end(loop)))
  (new,) = [u for u in kernel.toposort if u.op is Ops.RANGE]
  assert new is not loop and not any(u.op is Ops.MUL for u in kernel.toposort)
