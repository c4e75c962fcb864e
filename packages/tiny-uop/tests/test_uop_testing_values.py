"""The evaluators and z3 terms behind `tiny_uop.testing` compute what the IR says: against `evaluate` and NumPy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import z3

from tiny_uop import DType, Ops, Samples, UOp, dtypes, evaluate, truncate
from tiny_uop.proof.z3_terms import BitVectors, Integers, Terms, leaf_name
from tiny_uop.testing.draws import Draws, floats, integers
from tiny_uop.testing.scalars import Scalars, Unspecified
from tiny_uop.testing.tensors import Tensors
from tiny_uop.truncate import FORMATS

s = Samples()
INTEGERS = (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint64, dtypes.index)
BINARY = (
  Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD,
  Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE,
)  # fmt: skip
THEORIES = pytest.mark.parametrize("theory", [Integers, BitVectors])


def solved(terms: Terms, u: UOp, values: dict[UOp, int]) -> Any:
  """The value of the term of `u` where leaves have these values."""
  term = terms.of(u)
  pairs = [(terms.of(leaf), terms.arithmetic.constant(leaf.dtype, v)) for leaf, v in values.items()]
  number = z3.simplify(z3.substitute(term, *pairs))
  return z3.is_true(number) if u.dtype is dtypes.bool else terms.arithmetic.number(number, u.dtype)


def variables(dtype: DType) -> tuple[UOp, UOp]:
  low, high = (-(2**40), 2**40) if dtype is dtypes.index else (int(dtypes.min(dtype)), int(dtypes.max(dtype)))
  return UOp.variable("x", low, high, dtype), UOp.variable("y", low, high, dtype)


@THEORIES
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", [*BINARY, Ops.SHL, Ops.SHR], ids=lambda op: op.name)
def test_terms_of_integers(op: Ops, dtype: DType, theory: type[Integers]) -> None:
  (x, y), rng = variables(dtype), random.Random(op.name)
  counts = (0, 1, dtype.bits - 1)
  for y_value in counts if op in (Ops.SHL, Ops.SHR) else (0, 1, 3, 8, 127, *(() if dtype.kind == "uint" else (-1, -8))):
    for u in (x.alu(op, x.const_like(y_value)), x.alu(op, y)):
      terms = Terms(theory())
      terms.of(u)
      if terms.opaque:  # bits of unbounded integers, where the other operand is no mask
        assert dtype is dtypes.index
        continue
      for x_value in integers(x.vmin, x.vmax, rng)[::3]:
        values = {x: int(x_value), y: y_value}
        assert solved(terms, u, values) == evaluate(u, values), (u.render(), values)


@THEORIES
@pytest.mark.parametrize("source", [*INTEGERS, dtypes.bool], ids=str)
@pytest.mark.parametrize("target", [*INTEGERS, dtypes.bool], ids=str)
def test_terms_of_conversions(source: DType, target: DType, theory: type[Integers]) -> None:
  x = UOp.variable("x", 0, 1) if source is dtypes.bool else variables(source)[0]
  u = (x < 1 if source is dtypes.bool else x).cast(target)
  terms = Terms(theory())
  for value in integers(x.vmin, x.vmax, random.Random(1))[::2]:
    assert solved(terms, u, {x: int(value)}) == evaluate(u, {x: value})


def test_terms_of_other_operations() -> None:
  x, y = variables(dtypes.uint64)
  for seed in range(5):
    rng = random.Random(seed)
    values = {x: rng.getrandbits(64), y: rng.getrandbits(64)}
    assert solved(Terms(), x.threefry(y), values) == evaluate(x.threefry(y), values)
  lanes = s.lanes(s.n, s.m) * 2 + s.lanes(1, 2).extract(1).cast(dtypes.index).broadcast(2)
  assert solved(Terms(), lanes.extract(1), {s.n: 1, s.m: 3}) == 8
  joined = UOp(Ops.VECTORIZE, dtypes.index.vec(3), (s.n, lanes))
  assert solved(Terms(), joined.extract(2), {s.n: 1, s.m: 3}) == 8
  assert solved(Terms(), (s.n < 2).where(s.m, s.n).alu(Ops.NEG), {s.n: 1, s.m: 3}) == -3


def test_terms_of_memory() -> None:
  memory = s.pointer(16, dtypes.int32)
  same = Terms()
  assert same.prove(same.equal(memory.index(s.n + 0).load(), memory.index(s.n).load())).proved
  assert not same.prove(same.equal(memory.index(s.n).load(), memory.index(s.m).load())).proved
  gated = memory.index(s.n, s.n > 3).load(s.i)
  terms = Terms()
  equal = terms.equal(gated, (s.n > 3).where(memory.index(s.n).load(), s.i))
  assert terms.prove(equal).proved
  answer = terms.prove(terms.equal(gated, memory.index(s.n).load()), show=(gated,))
  assert answer.certain and answer.counterexample[s.n] <= 3 and answer.values == (answer.counterexample[s.i],)
  assert f"n = {answer.counterexample[s.n]}" in str(answer) and leaf_name(s.i) == "param0[0]"


def test_loops_are_entered_only_inside() -> None:
  size = UOp.variable("size", 0, 9)
  loop = s.range(size)
  inside = Terms()
  assert inside.prove(inside.of(loop < size)).proved
  # once the loop is closed, it may have had no iterations
  outside = Terms()
  closed = (size > 0).where(loop.reduce(Ops.ADD, loop), 0)
  assert not outside.prove(outside.equal(closed, loop.reduce(Ops.ADD, loop))).proved


def test_unknown_functions_are_not_certain() -> None:
  terms = Terms()
  answer = terms.prove(terms.equal(s.f + s.g, s.g + s.f))
  assert not answer.proved and not answer.certain
  assert terms.prove(terms.equal((s.f + s.g).sqrt(), (s.f + s.g).sqrt())).proved


# *** evaluation ***


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint16, dtypes.float16, dtypes.float32, dtypes.bool], ids=str)
def test_scalars(dtype: DType) -> None:
  x, y = s.value(dtype, 0), s.value(dtype, 1)
  ops = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPLT, Ops.CMPEQ]
  draws = Draws(200)
  for _ in draws.trials():
    machine = Scalars(draws)
    values = {x: machine.value(x), y: machine.value(y)}
    for op in ops:
      found, expected = machine.value(x.alu(op, y)), evaluate(x.alu(op, y), values)
      assert repr(found) == repr(expected)


def test_memory_and_loops() -> None:
  machine = Scalars(Draws())
  next(machine.draws.trials())
  memory, loop = s.pointer(8, dtypes.int32), s.range(4)
  stores = memory.index(loop * 2).store(loop.cast(dtypes.int32) * 10).end(loop)
  assert {offset: v for (_, offset), v in machine.value(stores).items()} == {0: 0, 2: 10, 4: 20, 6: 30}
  after = memory.after(stores).index(6).load() + memory.after(stores).index(2).load()
  assert machine.value(after) == 40
  assert machine.value(memory.index(loop).load().reduce(Ops.ADD, loop)) == truncate(
    dtypes.int32, sum(machine.value(memory.index(i).load()) for i in range(4))
  )
  assert machine.value(s.n.reduce(Ops.MAX, s.range(0))) == dtypes.min(dtypes.index)
  never = UOp.const(dtypes.bool, False)
  assert machine.value(memory.index(1, never).store(5)) == {} and machine.value(memory.index(1, never).load()) == 0
  with pytest.raises(Unspecified):
    machine.value(UOp(Ops.CAST, dtypes.int8, (UOp.const(dtypes.float32, 1e9),)))
  with pytest.raises(Unspecified):
    machine.value(s.i << 32)
  with pytest.raises(NotImplementedError, match="LINEAR"):
    machine.value(UOp(Ops.LINEAR))


def test_draws() -> None:
  everything = Draws(300, exhaustive=True)
  seen = {
    (everything.choose("a", dtypes.int8, -2, 3), everything.choose("b", dtypes.bool)) for _ in everything.trials()
  }
  assert seen == {(a, b) for a in range(-2, 4) for b in (False, True)} and everything.complete
  too_many = Draws(300, exhaustive=True)
  for _ in too_many.trials():
    too_many.choose("a", dtypes.int32)
  assert not too_many.complete
  # which leaves there are depends on a value: nothing is said about completeness
  uneven = Draws(300, exhaustive=True)
  for _ in uneven.trials():
    if uneven.choose("a", dtypes.bool):
      uneven.choose("b", dtypes.int8)
  assert not uneven.complete


@pytest.mark.parametrize("name", FORMATS)
def test_special_floats(name: str) -> None:
  dtype = next(d for d in dtypes.floats if d.name == name)
  values = [float(v) for v in floats(dtype, random.Random(1))]
  assert all(repr(truncate(dtype, v)) == repr(v) for v in values)
  signs = {math.copysign(1.0, v) for v in values if v == 0}
  assert signs == {1.0, -1.0} and any(map(math.isnan, values)) and {1.0, -1.0} <= set(values)
  assert (math.inf in values and -math.inf in values) is not FORMATS[name].finite
  smallest = min(abs(v) for v in values if v)
  assert truncate(dtype, smallest / 2) == 0  # a subnormal: nothing is below it
  assert not any(math.isnan(v) or math.isinf(v) or v == 0 for v in floats(dtype, random.Random(1), ordinary=True))


VIEWS: list[tuple[str, Callable[[UOp], UOp], Callable[[Any], Any]]] = [
  ("reshape", lambda u: u.reshape((6, 4)), lambda a: a.reshape(6, 4)),
  ("permute", lambda u: u.permute((2, 0, 1)), lambda a: a.transpose(2, 0, 1)),
  ("pad", lambda u: u.pad(((1, 0), (0, 2), (3, 1))), lambda a: np.pad(a, ((1, 0), (0, 2), (3, 1)))),
  ("shrink", lambda u: u.shrink(((1, 2), (0, 3), (1, 3))), lambda a: a[1:2, 0:3, 1:3]),
  ("flip", lambda u: u.flip((0, 2)), lambda a: a[::-1, :, ::-1]),
  ("expand", lambda u: u.shrink(((0, 2), (1, 2), (0, 4))).expand((2, 5, 4)), lambda a: a[:, 1:2].repeat(5, 1)),
  ("sum", lambda u: u.reduce_axes(Ops.ADD, (0, 2)), lambda a: a.sum((0, 2), keepdims=True, dtype=a.dtype)),
  ("max", lambda u: u.reduce_axes(Ops.MAX, (1,)), lambda a: a.max(1, keepdims=True)),
  ("prod", lambda u: u.reduce_axes(Ops.MUL, (0,)), lambda a: a.prod(0, keepdims=True, dtype=a.dtype)),
  ("bytes", lambda u: u.bitcast(dtypes.uint8), lambda a: a.view(np.uint8)),
  ("wider", lambda u: u.bitcast(dtypes.int64), lambda a: a.view(np.int64)),
  ("elementwise", lambda u: (u * 3 + u.flip((1,))).maximum(u), lambda a: np.maximum(a * 3 + a[:, ::-1], a)),
  ("copy", lambda u: u.copy_to("CPU:1").contiguous().detach(), lambda a: a),
  ("assign", lambda u: u.src[0].assign((u + 1).reshape((24,))), lambda a: (a + 1).reshape(24)),
]


@pytest.mark.parametrize(("make", "expected"), [v[1:] for v in VIEWS], ids=[v[0] for v in VIEWS])
def test_tensors(make: Callable[[UOp], UOp], expected: Callable[[Any], Any]) -> None:
  machine = Tensors()
  u = s.buffer(2, 3, 4, dtype=dtypes.int32)
  data = np.array(machine.value(u), np.int32).reshape(2, 3, 4)
  result = np.array(expected(data))
  assert machine.shape(make(u)) == result.shape
  assert machine.value(make(u)) == result.ravel().tolist()


def test_writes_of_tensors() -> None:
  machine, u = Tensors(), s.buffer(6, dtype=dtypes.int32)
  zero = UOp.const(dtypes.int32, 0)
  part = u.shrink(((2, 5),)).flip((0,))
  writes = machine.value(part.store(UOp.const(dtypes.int32, 7, (3,))))
  assert {place: v for (_, place), v in writes.items()} == {2: 7, 3: 7, 4: 7}
  old = machine.value(u)
  assert machine.value(u.after(part.store(zero.reshape((1,)).expand((3,))))) == [*old[:2], 0, 0, 0, old[5]]
  size = UOp.variable("size", 1, 6)
  assert machine.value(u.shrink(((0, size.bind(4)),))) == old[:4]
  assert machine.value(u.shrink(((0, size),))) == old


def test_empty_reductions() -> None:
  empty = s.buffer(0, 2, dtype=dtypes.int32)
  reduced = [Tensors().value(empty.reduce_axes(op, (0,))) for op in (Ops.ADD, Ops.MUL, Ops.MAX)]
  assert reduced == [[0, 0], [1, 1], [dtypes.min(dtypes.int32)] * 2]
