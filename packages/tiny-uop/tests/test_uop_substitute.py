"""Graphs that are simplified while values take the place of their loops; values that a node keeps."""

from __future__ import annotations

import gc
import random

import pytest

from tiny_uop import Ops, PatternMatcher, UOp, dtypes, live_nodes, simplify
from tiny_uop.node import kept
from tiny_uop.symbolic import simplify_substituted

i, j = UOp.range(12, 0), UOp.range(5, 1)
n = UOp.variable("n", 0, 40)


def expression(choose: random.Random, depth: int) -> UOp:
  """Some integer expression over the loops and the variable."""
  if depth == 0:
    return choose.choice((i, j, n, n + 3, i.const_like(choose.randrange(1, 9))))
  a, b = (expression(choose, depth - 1) for _ in range(2))
  size = choose.randrange(2, 9)
  return choose.choice((a + b, a * size, a // size, a % size, (a < b).where(a, b), a + b * size))


def inside(u: UOp) -> bool:
  return i in u.ranges


def test_as_substituted_and_then_simplified() -> None:
  choose = random.Random(0)
  for _ in range(300):
    u = expression(choose, 4)
    values = choose.sample((i.const_like(7), i.const_like(0), j * 2 + 1, UOp.range(4, 2) * 3 + j % 3, n * 0), 2)
    for whole in (u, simplify(u)):
      found = simplify_substituted(whole, [{i: value} for value in values], inside, lambda u: u)
      wanted = [simplify(whole.substitute({i: value})) for value in values]
      assert found == wanted, (whole.render(), [value.render() for value in values])


def test_what_has_new_sources_can_be_changed() -> None:
  seen: list[UOp] = []

  def change(u: UOp) -> UOp:
    seen.append(u)
    return u.src[0] if u.op is Ops.MAX else u

  (found,) = simplify_substituted((i * 2).alu(Ops.MAX, n) + j, [{i: i.const_like(3)}], inside, change)
  assert found is simplify(j + 6)
  assert [u.op for u in seen] == [Ops.MUL, Ops.MAX], "j and n are outside, and sums are not asked about"


def test_numbers_of_a_sum_are_added_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
  tried: list[UOp] = []
  rewrite = PatternMatcher.rewrite

  def counted(self: PatternMatcher, u: UOp, ctx: object = None) -> UOp | None:
    tried.append(u)
    return rewrite(self, u, ctx)

  k, outer = UOp.range(7, 2), UOp.range(9, -1)
  total = simplify(outer * 5 + i * 40 + j * 3 + k * 2 + 4)
  wanted = simplify(outer * 5 + k * 2 + 90)
  partial = total.src[0].src[0]
  monkeypatch.setattr(PatternMatcher, "rewrite", counted)
  number = i.const_like(2)
  changes = [{i: number, j: number}]
  assert simplify_substituted(total, changes, lambda u: bool({i, j} & u.ranges), lambda u: u)[0] is wanted
  sums = [u for u in tried if u.op is Ops.ADD]
  assert not any(u.src[0].op is Ops.ADD and u.src[0].src[1].op is Ops.CONST for u in sums), "numbers come last"
  # a partial sum that is replaced itself
  (found,) = simplify_substituted(total, [{partial: n}], lambda u: partial in u.toposort, lambda u: u)
  assert found is simplify(n + k * 2 + 4)


def test_kept_values() -> None:
  asked: list[UOp] = []

  @kept
  def doubled(u: UOp) -> int:
    asked.append(u)
    return 2 * int(u.vmax)

  u = UOp(Ops.ADD, dtypes.index, (n, n.const_like(1234567)))
  assert doubled(u) == doubled(u) == 2 * (40 + 1234567) and asked == [u]
  gc.collect()
  before = live_nodes()
  asked.clear()
  del u
  assert live_nodes() < before, "a node that keeps a value is freed all the same"


def test_simplified_values_are_not_tried_again_in_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
  tried: list[UOp] = []
  rewrite = PatternMatcher.rewrite

  def counted(self: PatternMatcher, u: UOp, ctx: object = None) -> UOp | None:
    tried.append(u)
    return rewrite(self, u, ctx)

  memory = dtypes.float32.ptr(1000)
  out, near = UOp.param(0, memory), UOp.param(1, memory)
  filled = near.after(near.index(j + 0).store(UOp.const(dtypes.float32, 1)).end(j))
  place = simplify(n * 3 + 17)
  read = simplify(filled.index(i + n).load() * near.index(place).load())
  assert filled in read.toposort, "what happened before is no part of a value"
  kernel = UOp.sink(out.index(i).store(read).end(i))
  monkeypatch.setattr(PatternMatcher, "rewrite", counted)
  simplified = simplify(kernel)
  assert place in simplified.toposort and filled not in simplified.toposort
  assert place not in tried and near.index(place).load() not in tried
  again = len(tried)
  assert simplify(simplified) is simplified and len(tried) == again
  # over a history that has been simplified, a value is looked at once
  monkeypatch.setattr(PatternMatcher, "rewrite", rewrite)
  done = simplify(UOp.sink(filled.src[1])).src[0]
  value = simplify(near.after(done).index(i * 5).load() * 3.0)
  monkeypatch.setattr(PatternMatcher, "rewrite", counted)
  tried.clear()
  kernel = UOp.sink(out.index(i).store(value).end(i))
  assert simplify(kernel) is kernel and value not in tried and {u.op for u in tried} <= {
    Ops.AFTER, Ops.INDEX, Ops.STORE, Ops.END, Ops.SINK
  }  # fmt: skip
