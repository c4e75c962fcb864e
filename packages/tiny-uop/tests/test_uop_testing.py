"""`tiny_uop.testing` finds rules that are wrong, and says how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tiny_uop import Ops, PatternMatcher, Rule, Samples, UOp, UPat, dtypes, rule
from tiny_uop.testing import check_same_value, cost, rule_cases

s = Samples()
x, y = UPat.var("x"), UPat.var("y")
INTS = (*dtypes.ints, dtypes.index)


def check(row: Rule) -> None:
  for case in rule_cases([row]):
    case.check()


# *** wrong rules ***

WRONG: list[tuple[Rule, str]] = [
  (rule("halves", UPat(Ops.MUL, INTS, (UPat.var("x") // 2, UPat.const(None, 2))), lambda x: x,
        example=lambda s: s.n // 2 * 2, near_miss=lambda s: s.n // 3 * 2),
   r"rule 'halves', example 0: where n = -?[1357] the value -?\d became -?[1357]:\n  before: n//2\*2\n  after:  n"),
  (rule("wraps", UPat(Ops.FLOORDIV, INTS, (x * 4, UPat.const(None, 4))), lambda x: x,
        example=lambda s: (s.n * 4 // 4, s.i * 4 // 4), near_miss=lambda s: s.n * 4 // 2),
   r"rule 'wraps', example 1: where param0\[0\] = -?\d+ the value"),
  (rule("toward_zero", UPat(Ops.FLOORDIV, None, (x, y)), lambda x, y: x.alu(Ops.TRUNCDIV, y),
        example=lambda s: s.i // s.j, near_miss=lambda s: s.i % s.j), "where param0.*param1.* the value"),
  (rule("by_itself", UPat(Ops.FLOORDIV, None, (x, x)), lambda x: x.const_like(1),
        example=lambda s: s.i // s.i, near_miss=lambda s: s.i // s.j), r"where param0\[0\] = 0 the value 0 became 1"),
  (rule("narrow", UPat(Ops.CAST, dtypes.int32, (UPat(Ops.CAST, dtypes.int8, (x,)),)), lambda x: x,
        example=lambda s: s.i.cast(dtypes.int8).cast(dtypes.int32), near_miss=lambda s: s.i.cast(dtypes.int8)),
   "the value"),
  (rule("shift", UPat(Ops.SHR, None, (x, UPat.const(None, 1))), lambda x: x.alu(Ops.TRUNCDIV, x.const_like(2)),
        example=lambda s: s.i >> 1, near_miss=lambda s: s.i >> 2), "the value"),
  (rule("xor_is_or", x ^ y, lambda x, y: x | y, example=lambda s: s.n ^ s.m, near_miss=lambda s: s.n & s.m),
   r"where n = -?\d+, m = -?\d+ the value"),  # z3 has no bits of unbounded integers: every value is tried
  (rule("add_zero", x + 0.0, lambda x: x, example=lambda s: s.f + 0.0, near_miss=lambda s: s.f + 1.0),
   r"where param4\[0\] = -0\.0 the value 0\.0 became -0\.0"),
  (rule("times_zero", x * 0.0, lambda x: x.const_like(0), example=lambda s: s.f * 0.0, near_miss=lambda s: s.f * 1.0),
   "the value (nan|-0.0) became 0.0"),
  (rule("same_float", UPat(Ops.CMPEQ, None, (x, x)), lambda x: UOp.const(dtypes.bool, True),
        example=lambda s: s.f.eq(s.f), near_miss=lambda s: s.f.eq(s.g)), "= nan the value False became True"),
  (rule("reassociate", (x + 1.0) + 2.0, lambda x: x + 3.0,
        example=lambda s: s.f + 1.0 + 2.0, near_miss=lambda s: s.f + 1.0), r"where param4\[0\] = .* the value"),
  (rule("overflows", UPat(Ops.CAST, dtypes.int32, (x,)), lambda x: x.cast(dtypes.int8).cast(dtypes.int32),
        example=lambda s: s.f.cast(dtypes.int32), near_miss=lambda s: s.f.cast(dtypes.int64)),
   "the value -?\\d+ is no longer specified"),
  (rule("greater", UPat(Ops.MAX, None, (x, y)), lambda x, y: (x < y).where(y, x), grows="for the test",
        example=lambda s: s.f.maximum(s.g), near_miss=lambda s: s.f + s.g), "= nan the value nan became"),
  (rule("scaled", x * 2.0, lambda x: x * 2.5, changes="of course not by this much",
        example=lambda s: s.f * 2.0, near_miss=lambda s: s.f * 3.0), "the value"),
  (rule("no_gate", UPat(Ops.INDEX, None, (UPat.var("p"), x, y), name="u"), lambda u, p, x, y: u.with_src((p, x)),
        example=lambda s: s.pointer(9).index(s.n, s.n > 3), near_miss=lambda s: s.pointer(9).index(s.p)), "the value"),
  (rule("no_alternative", UPat(Ops.LOAD, None, (x, y), name="u"), lambda u, x, y: u.with_src((x,)),
        example=lambda s: s.pointer(9, dtypes.int32).index(s.p, s.p < 9).load(s.i),
        near_miss=lambda s: s.pointer(9, dtypes.int32).index(s.p, s.p < 9).load()), "the value"),
  (rule("other_order", UPat(Ops.GROUP, None, (x, y)), lambda x, y: UOp.group(y, x),
        example=lambda s: UOp.group(s.pointer(9).index(s.p).store(1), s.pointer(9).index(s.q).store(2)),
        near_miss=lambda s: s.pointer(9).index(0).store(1)), "where p = .*, q = .* the value"),
  (rule("one_lap", UPat(Ops.REDUCE, None, (x,), more=True, name="u"), lambda u, x: x * 7,
        example=lambda s: (s.range(8) * 0 + s.i.cast(dtypes.index)).reduce(Ops.ADD, s.range(8)),
        near_miss=lambda s: s.n), "the value"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), WRONG, ids=lambda v: v.name if isinstance(v, Rule) else "")
def test_a_wrong_rule_is_caught(row: Rule, message: str) -> None:
  with pytest.raises(AssertionError, match=message):
    check(row)


TENSORS: list[Callable[[UOp], UOp]] = [
  lambda u: u.src[0].permute((2, 0, 1)),
  lambda u: u.permute((0, 2, 1)).reshape(u.shape),
  lambda u: u.flip((1,)),
  lambda u: u * -1,
  lambda u: u.cast(dtypes.float32),
  lambda u: u.reshape((24,)),
]


@pytest.mark.parametrize("wrong", TENSORS)
def test_a_wrong_rule_on_tensors_is_caught(wrong: Callable[[UOp], UOp]) -> None:
  pattern = UPat(Ops.PERMUTE, None, (x,), name="u")
  row = rule("moved", pattern, lambda u: wrong(u), grows="it may", near_miss=lambda s: s.n,
             example=lambda s: s.buffer(2, 3, 4, dtype=dtypes.int32).permute((1, 2, 0)))  # fmt: skip
  with pytest.raises(AssertionError, match="rule 'moved', example 0: (element|shape|dtype)"):
    check(row)


# *** rules that are right ***

RIGHT = [
  rule("associate", (x + y) + 1.0, lambda x, y: x + (y + 1.0), changes="floats are added in another order",
       example=lambda s: s.f + s.g + 1.0, near_miss=lambda s: s.f + 1.0),
  rule("twice", x * 2, lambda x: x + x, example=lambda s: (s.n * 2, s.i * 2, s.f * 2.0), near_miss=lambda s: s.n * 3),
  rule("bits", x ^ y, lambda x, y: (x | y) - (x & y), grows="for the test",
       example=lambda s: (s.i ^ s.j, s.n ^ s.m), near_miss=lambda s: s.i & s.j),
  rule("floor", UPat(Ops.FLOORMOD, None, (x, y)), lambda x, y: x - x // y * y, grows="for the test",
       example=lambda s: (s.value(dtypes.int8, 7) % 7, s.value(dtypes.uint8, 7) % 6, s.n % -3, s.n % 5),
       near_miss=lambda s: s.n // 3),
  rule("where_gate_holds", UPat(Ops.WHERE, None, (UPat.var("g"), UPat(Ops.LOAD, None, (UPat.var("a"),)), y)),
       lambda g, a, y: a.src[0].index(a.src[1], g).load(y),
       example=lambda s: (s.n < 3).where(s.pointer(9).index(s.n).load(), s.f), near_miss=lambda s: s.b.where(s.n, 1)),
  rule("sum_of_equal", UPat(Ops.REDUCE, None, (x, UPat(Ops.RANGE, name="r"))), lambda x, r: x * r.src[0],
       example=lambda s: s.n.reduce(Ops.ADD, s.range(5)), near_miss=lambda s: s.n),
  rule("row_sums", UPat(Ops.REDUCE, None, (UPat(Ops.REDUCE, None, (x,), name="r"),), name="u"),
       lambda x, r, u: x.reduce_axes(Ops.ADD, (*r.arg[1], *u.arg[1])),
       example=lambda s: s.buffer(3, 4, dtype=dtypes.int32).reduce_axes(Ops.ADD, (0,)).reduce_axes(Ops.ADD, (1,)),
       near_miss=lambda s: s.buffer(3, 4).reduce_axes(Ops.ADD, (0,))),
]  # fmt: skip


@pytest.mark.parametrize("row", RIGHT, ids=lambda row: row.name)
def test_a_right_rule_passes(row: Rule) -> None:
  check(row)


def test_what_cannot_be_decided_is_an_error() -> None:
  with pytest.raises(AssertionError, match=r"z3 could not decide .* give an example with narrower leaves"):
    check_same_value(wide("k") ^ wide("l"), wide("l") ^ wide("k"))


def wide(name: str) -> UOp:
  return UOp.variable(name, 0, 2**20)


# *** tables ***


def test_a_row_without_example_or_near_miss_is_an_error() -> None:
  with pytest.raises(ValueError, match="rule 'bare' has no example: add example="):
    rule_cases([rule("bare", x + 0, lambda x: x)])
  with pytest.raises(ValueError, match="rule 'bare' has no near_miss: add near_miss="):
    rule_cases(PatternMatcher([rule("bare", x + 0, lambda x: x, example=lambda s: s.n + 0)]))


def test_names_are_unique_across_tables() -> None:
  def zero() -> Rule:
    return rule("zero", x + 0, lambda x: x, example=lambda s: s.n + 0, near_miss=lambda s: s.n + 1)

  shared = zero()
  assert [str(c) for c in rule_cases([shared], [shared])] == ["zero-example-0", "zero-near_miss-0"]
  with pytest.raises(ValueError, match="two rules are named 'zero'"):
    rule_cases([shared], [zero()])


def test_examples_are_rewritten_and_near_misses_are_not() -> None:
  with pytest.raises(AssertionError, match="rule 'r', example 0: the rule leaves it alone: n \\+ 1"):
    check(rule("r", x + 0, lambda x: x, example=lambda s: s.n + 1, near_miss=lambda s: s.n + 2))
  with pytest.raises(AssertionError, match="rule 'r', near miss 1: it is rewritten:\n  before: m \\+ 0\n  after:  m"):
    check(rule("r", x + 0, lambda x: x, example=lambda s: s.n + 0, near_miss=lambda s: (s.n + 2, s.m + 0)))


def test_the_result_is_legal_and_of_the_same_type() -> None:
  def mixed(x: UOp) -> UOp:
    return UOp(Ops.ADD, x.dtype, (x, UOp.const(dtypes.int8, 0)))

  with pytest.raises(AssertionError, match="the result is illegal .* ADD int32"):
    check(rule("mixed", x * 1, mixed, example=lambda s: s.i * 1, near_miss=lambda s: s.i))
  with pytest.raises(AssertionError, match="dtype int32 became int64"):
    check(rule("wider", x * 1, lambda x: x.cast(dtypes.int64), example=lambda s: s.i * 1, near_miss=lambda s: s.i))


def test_a_rule_that_makes_graphs_worse_says_so() -> None:
  def row(grows: str) -> Rule:
    return rule("floor", UPat(Ops.SHR, None, (x, UPat.const(None, 2))), lambda x: x // 4 + 0, grows=grows,
                example=lambda s: s.i >> 2, near_miss=lambda s: s.i >> 1)  # fmt: skip

  with pytest.raises(
    AssertionError, match="rule 'floor', example 0: cost \\d+ became \\d+; a row that makes graphs larger says"
  ):
    check(row(""))
  check(row("divisions are what other rules know"))


def test_context() -> None:
  row = rule("ctx", x + 0, lambda ctx, x: ctx[x], example=lambda s: s.n + 0, near_miss=lambda s: s.n + 1)
  for case in rule_cases([row], context=lambda: {s.n: s.n}):
    case.check()


def test_cost() -> None:
  assert cost(s.n + 1) == 1 and cost(s.n * 3) == 2 and cost(s.n * 4) == 1 and cost(s.n * -1) == 1
  assert cost(s.n // 4) < cost(s.n // 3) < cost(s.n // s.m)
  assert cost((s.n * 3) + (s.n * 3) // 2) == 2 + 1 + 2  # the product is shared
