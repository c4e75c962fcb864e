"""Observers: what they are told, that it changes nothing, and the counts of MatchStats."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from tiny_uop import Context, Ops, PatternMatcher, RewriteLoop, UOp, UPat, graph_rewrite, rule, simplify
from tiny_uop.observe import (
  MatchStats,
  Observer,
  Rewrite,
  Span,
  active,
  brief,
  brief_change,
  format_match_stats,
  observed,
  observing,
  span,
)  # fmt: skip
from tiny_uop.pattern import Rule

X = UOp.variable("x", 0, 15)
SUM = (X * 4 + 3) // 4 + 0

u = UPat.var("u")
TABLE = PatternMatcher([
  rule("halve", UPat(Ops.MUL, src=(u, UPat.const(None, 2))), lambda u: u + u),
  rule("never", UPat(Ops.MUL, name="u"), lambda u: None),
  rule("drop_zero", UPat(Ops.ADD, src=(u, UPat.const(None, 0))), lambda u: u),
])  # fmt: skip


class Log(Observer):
  """Keeps all it is told."""

  def __init__(self) -> None:
    self.begun: list[Span] = []
    self.ended: list[Span] = []
    self.tries: list[tuple[str, str, bool]] = []
    self.steps: list[Rewrite] = []

  def begin(self, span: Span) -> None:
    self.begun.append(span)

  def end(self, span: Span) -> None:
    self.ended.append(span)

  def tried(self, table: str, rule: Rule, seconds: float, matched: bool) -> None:
    assert seconds >= 0
    self.tries.append((table, rule.name, matched))

  def rewrote(self, step: Rewrite) -> None:
    self.steps.append(step)


def test_what_an_observer_is_told() -> None:
  x = UOp.variable("told", 0, 15)  # a node that is finished is not tried again, as long as it lives
  log = Log()
  with observing(log):
    result = graph_rewrite(x * 2 + 0, TABLE, bottom_up=True, name="small")
  assert result is x + x
  assert log.tries == [
    ("small", "halve", True), ("small", "drop_zero", False), ("small", "drop_zero", True),
  ]  # fmt: skip
  assert [(s.rule.name, s.before, s.after) for s in log.steps] == [
    ("halve", x * 2, x + x),
    ("drop_zero", x + x + 0, x + x),
  ]
  (table,) = log.begun
  assert log.ended == [table] and {s.span for s in log.steps} == {table}
  assert (table.kind, table.name, table.before, table.after, table.parent) == ("table", "small", x * 2 + 0, x + x, None)
  assert table.seconds > 0 and all(table.started <= s.started for s in log.steps)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_observed_rewriting_gives_the_same(bottom_up: bool) -> None:
  graph = UOp.sink(*[(X * k + 0) * 2 for k in range(5)])
  expected = graph_rewrite(graph, TABLE, bottom_up=bottom_up)
  log = Log()
  with observing(log):
    assert graph_rewrite(graph, TABLE, bottom_up=bottom_up) is expected
  # the rewrites, one after the other, lead from the graph to the result
  for step in log.steps:
    graph = graph.substitute({step.before: step.after})
  assert graph is expected


def test_contexts_reach_the_rules() -> None:
  table = PatternMatcher([rule("note", UPat(Ops.VARIABLE, name="u"), lambda ctx, u: ctx.append(u))])
  seen: list[UOp] = []
  with observing(Log()):
    graph_rewrite(X + 1, table, ctx=seen)
  assert seen == [X]


def test_spans_nest() -> None:
  log = Log()
  with observing(log), span("kernel", "k", SUM) as outer, span("pass", "p", SUM) as inner:
    assert inner.gives(simplify(SUM)) is X
    assert inner.parent is outer and outer.parent is None
  assert [s.name for s in log.begun] == ["k", "p", "simplify"] and [s.name for s in log.ended] == ["simplify", "p", "k"]
  assert inner.after is X and outer.after is None
  assert log.steps[0].span is log.begun[2] and log.begun[2].parent is inner


def test_a_span_that_raises_ends() -> None:
  log = Log()
  with observing(log):
    with pytest.raises(ZeroDivisionError), span("pass", "p", X):
      raise ZeroDivisionError
    with span("pass", "q") as after:
      pass
  assert [s.name for s in log.ended] == ["p", "q"] and log.ended[0].after is None and after.parent is None


def test_a_table_without_graph_rewrite() -> None:
  log = Log()
  assert observed(TABLE, "alone") is TABLE
  with observing(log), span("pass", "p") as work:
    assert observed(TABLE, "alone").rewrite(X * 2) is X + X
  assert [(s.table, s.span) for s in log.steps] == [("alone", work)]


def test_nobody_watches_by_default() -> None:
  assert not active()
  assert span("pass", "p", X) is span("kernel", "k")  # one object, which does nothing
  with span("pass", "p", X) as work:
    assert work.gives(X) is X and work.after is None
  with Context(DEBUG=5):
    assert not active()
  for settings in ({"DEBUG": 6}, {"VIZ": -1}, {"VIZ": -2}, {"TRACK_MATCH_STATS": 1}):
    with Context(**settings):
      assert active()
  log = Log()
  with observing(log):
    assert active()
  assert not active()
  simplify(SUM)
  assert log.begun == []


def test_loops_are_named_while_watched() -> None:
  table = PatternMatcher([
    rule("to_mul", UPat(Ops.ADD, src=(u, u)), lambda u: u * 2),
    rule("to_add", UPat(Ops.MUL, src=(u, UPat.const(None, 2))), lambda u: u + u),
  ])  # fmt: skip
  with observing(Log()), pytest.raises(RewriteLoop, match="to_add") as caught:
    graph_rewrite(X + X, table, bottom_up=True)
  assert set(caught.value.rules) == {"to_mul", "to_add"}


def test_each_thread_has_its_own_spans() -> None:
  log = Log()

  def work(name: str) -> None:
    with span("pass", name):
      simplify(SUM)

  with observing(log), span("pass", "main"):
    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for t in threads:
      t.start()
    for t in threads:
      t.join()
  by_name = {s.name: s for s in log.begun if s.kind == "pass"}
  assert all(by_name[f"t{i}"].parent is None for i in range(4)) and by_name["main"].parent is None
  assert {s.parent.name for s in log.begun if s.kind == "table" and s.parent} == {f"t{i}" for i in range(4)}


# *** counts ***


def test_counts() -> None:
  x = UOp.variable("counted", 0, 15)
  stats = MatchStats()
  with observing(stats):
    graph_rewrite(x * 2 + 0, TABLE, bottom_up=True, name="small")
    graph_rewrite(x * 3, TABLE, bottom_up=True, name="other")
  rows = {row.name: (row.matches, row.attempts) for row in stats.by_rule()}
  assert rows == {"halve": (1, 2), "never": (0, 1), "drop_zero": (1, 2)}
  assert {row.name: (row.matches, row.attempts) for row in stats.by_table()} == {"small": (2, 3), "other": (0, 2)}
  for row in stats.by_rule():
    assert 0 <= row.match_seconds <= row.seconds
    # a clock may not tell a short time from none
    assert row.matches < row.attempts or row.match_seconds == row.seconds
    assert row.matches or not row.match_seconds
  stats.clear()
  assert stats.by_rule() == []


def test_a_row_says_where_it_stands() -> None:
  stats = MatchStats()
  with observing(stats):
    graph_rewrite(X * 2, TABLE)
    simplify(SUM)
  lines = Path(__file__).read_text().splitlines()
  root = Path(simplify.__code__.co_filename).parents[2]
  for row in stats.by_rule():
    file, _, line = row.where.rpartition(":")
    text = lines if file.endswith(Path(__file__).name) else (root / file).read_text().splitlines()
    assert f'rule("{row.name}"' in text[int(line) - 1] or row.name in text[int(line)]


def test_time_inside_a_rule_counts_once() -> None:
  def slow(u: UOp) -> UOp:
    time.sleep(0.05)
    return u.const_like(1)

  def through_table(u: UOp) -> UOp:
    time.sleep(0.02)
    return graph_rewrite(u.src[0], inner)

  inner = PatternMatcher([rule("inner", UPat(Ops.VARIABLE, name="u"), slow)])
  outer = PatternMatcher([rule("outer", UPat(Ops.MUL, name="u"), through_table)])
  stats = MatchStats()
  start = time.perf_counter()
  with observing(stats):
    observed(outer, "out").rewrite(X * 3)
  whole = time.perf_counter() - start
  rows = {row.name: row.seconds for row in stats.by_rule()}
  assert rows["inner"] >= 0.05 and rows["outer"] >= 0.02
  assert sum(rows.values()) <= whole
  assert [row.seconds for row in stats.by_rule()] == sorted(rows.values(), reverse=True)  # the longest first


def test_the_report() -> None:
  stats = MatchStats()
  with observing(stats):
    simplify(SUM)
  heading, *lines, whole = format_match_stats(stats.by_rule(), "rule").splitlines()
  row = re.compile(r"(\d\.\d\d) +(\d+) / (\d+) +-- +\d+\.\d / \d+\.\d +ms -- (\S+)  tiny_uop/symbolic/\w+\.py:\d+")
  found = [m for line in lines if (m := row.fullmatch(line))]
  assert heading.split()[0] == "share" and len(found) == len(lines) > 3
  shares = [float(m[1]) for m in found]
  assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1, abs=0.005 * len(shares))
  assert re.match(rf"1\.00 +2 / {sum(int(m[3]) for m in found)} ", whole)
  assert whole.endswith(f"-- all {len(found)} rules")
  assert format_match_stats([], "rule").endswith("all 0 rules\n")


# *** one line for a node ***


def test_brief() -> None:
  assert brief(SUM, 40) == "(x*4 + 3)//4 + 0"
  assert brief(SUM, 15) == "add…//4 + 0"
  deep = X
  for k in range(2, 4000):
    deep = deep * k + X
  wide = UOp.sink(*[X + k for k in range(1000)])
  for node in (deep, wide, SUM):
    for limit in (5, 20, 80, 200):
      text = brief(node, limit)
      assert 0 < len(text) <= limit and "\n" not in text
  assert brief(deep, 30) == "((mul… + x)*3998 + x)*3999 + x"
  assert brief(wide, 50) == "sink(x + 0, x + 1, x + 2, x + 3, x + 4, x + 5, …)"


def test_a_change_shows() -> None:
  assert brief_change(X + 0, X, 40) == "x + 0 → x"
  same = UOp(Ops.CONST, X.dtype, (), 3), UOp(Ops.CONST, UOp.const(X.dtype, 3).dtype.vec(4), (), 3)
  left, right = brief_change(*same, 40).split(" → ")
  assert left != right
