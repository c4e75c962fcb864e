"""Patterns, rule tables and `graph_rewrite`: order, context, gate, fixed point, loops."""

from collections.abc import Callable

import pytest

from tiny_uop import Context, Ops, PatternMatcher, RewriteLoop, SpecError, UOp, UPat, dtypes, graph_rewrite, rule
from tiny_uop.rewrite import rewrite_once

x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
px, py, pc = UPat.var("x"), UPat.var("y"), UPat.cvar("c")


def matches(pattern: UPat, u: UOp) -> dict[str, UOp] | None:
  """The captures of a pattern on one node."""
  found: list[dict[str, UOp]] = []
  names = sorted(set(pattern.captures()))
  keep: Callable[..., None] = lambda **captures: found.append(captures)  # noqa: E731
  scope = {"keep": keep}
  replacement = eval(f"lambda {', '.join(names)}: keep({', '.join(f'{n}={n}' for n in names)})", scope)
  PatternMatcher([rule("probe", pattern, replacement)]).rewrite(u)
  return found[0] if found else None


def test_patterns() -> None:
  one = UOp.const(dtypes.index, 1)
  assert matches(px + 1, x + 1) == {"x": x}
  assert matches(px + 1, one + x) == {"x": x}  # commutative: both orders
  assert matches(px + 1, x + 2) is None and matches(px + 1, x * 1) is None
  assert matches(px // pc, x // 4) == {"x": x, "c": UOp.const(dtypes.index, 4)}
  assert matches(px // pc, UOp.const(dtypes.index, 4) // x) is None  # not commutative
  assert matches(px + px, x + x) == {"x": x} and matches(px + px, x + y) is None
  assert matches((px * pc) + py, y + x * 3) == {"x": x, "y": y, "c": UOp.const(dtypes.index, 3)}
  assert matches(UPat(Ops.ADD, dtypes.int32, name="u"), x + 1) is None
  assert matches(UPat((Ops.ADD, Ops.MUL), dtypes.index, name="u"), x * y) == {"u": x * y}
  assert matches(UPat(Ops.ADD, src=UPat(Ops.VARIABLE), name="u"), x + y) == {"u": x + y}
  assert matches(UPat(Ops.ADD, src=UPat(Ops.VARIABLE), name="u"), x + 1) is None
  assert matches(UPat(Ops.SINK, src=(px,), more=True), UOp.sink(x, y)) == {"x": x}
  assert matches(UPat(Ops.SINK, src=(px,)), UOp.sink(x, y)) is None
  assert matches(UPat(Ops.VARIABLE, arg=("x", 0, 9), name="u"), x) == {"u": x}
  assert matches(px.where(py, py), (x < 1).where(y, y)) == {"x": x < 1, "y": y}
  lanes = UOp.const(dtypes.index.vec(2), (1, 2))
  assert matches(pc, lanes) is None and matches(UPat(Ops.CONST, dtypes.index, name="u"), lanes) == {"u": lanes}


def test_rules_are_checked_when_made() -> None:
  with pytest.raises(TypeError, match=r"rule 'r': the replacement takes \['z'\]"):
    rule("r", px + 1, lambda z: z)
  with pytest.raises(ValueError, match="two rules are named 'r'"):
    PatternMatcher([rule("r", px + 1, lambda x: x), rule("r", px * 1, lambda x: x)])
  with pytest.raises(ValueError, match="two rules are named 'r'"):
    PatternMatcher([rule("r", px + 1, lambda x: x)]) + PatternMatcher([rule("r", px * 1, lambda x: x)])


def test_first_rule_that_applies_wins() -> None:
  table = PatternMatcher(
    [
      rule("declines", px + 1, lambda x: None),
      rule("first", px + 1, lambda x: x * 2),
      rule("second", px + 1, lambda x: x * 3),
    ]
  )
  assert table.rewrite(x + 1) is x * 2 and table.rewrite_named(x + 1) == ("first", x * 2)
  assert table.rewrite(x * 7) is None and table.rewrite_named(x * 7) is None


def test_concatenated_tables() -> None:
  shared = rule("one", px * 1, lambda x: x)
  first = PatternMatcher([shared])
  both = first + PatternMatcher([shared, rule("zero", px + 0, lambda x: x)])
  assert [r.name for r in both.rules] == ["one", "zero"]
  assert graph_rewrite((x * 1 + 0) * 1, both) is x


def test_only_nodes_that_a_rule_can_match_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
  tried: list[UOp] = []
  rewrite = PatternMatcher.rewrite

  def counted(self: PatternMatcher, uop: UOp, ctx: object = None) -> UOp | None:
    tried.append(uop)
    return rewrite(self, uop, ctx)

  monkeypatch.setattr(PatternMatcher, "rewrite", counted)
  value = UOp.variable("n", 0, 9, dtypes.int32)
  table = PatternMatcher([rule("halve", UPat(Ops.MUL, dtypes.int32, [px, pc]), lambda x, c: x if c.arg == 2 else None)])
  assert table.candidates(Ops.MUL, dtypes.int32.vec(4)) and not table.candidates(Ops.MUL, dtypes.index)
  assert not table.candidates(Ops.ADD, dtypes.int32)
  other, declined = UOp.sink(x * 2, value + 2), UOp.sink(x * 2, value * 3 + 2)
  assert graph_rewrite(other, table) is other and not tried
  assert graph_rewrite(declined, table) is declined and tried == [value * 3]
  assert graph_rewrite(UOp.sink(x * 2, value * 2 + value * 3), table) is UOp.sink(x * 2, value + value * 3)
  assert {Ops.SINK, Ops.ADD}.isdisjoint({u.op for u in tried})


def test_once_each_node_sees_new_sources_and_no_rule_sees_what_another_gave() -> None:
  value = UOp.variable("n", 0, 9, dtypes.int32)
  double = rule("double", UPat(Ops.ADD, dtypes.int32, [px, px]), lambda x: x * 2)
  step = rule("step", UPat(Ops.CONST, dtypes.int32, name="c"), lambda c: c.const_like(c.arg - 1))
  table = PatternMatcher([double, step])
  assert rewrite_once((value * 5) + (value * 5), table) is (value * 4) * 2
  assert rewrite_once(UOp.sink(value), table) is UOp.sink(value)


def test_fixed_point() -> None:
  count_down = PatternMatcher(
    [rule("step", UPat(Ops.CONST, dtypes.int32, name="c"), lambda c: c.const_like(c.arg - 1) if c.arg else None)]
  )
  start = UOp.const(dtypes.int32, 50)
  for bottom_up in (False, True):
    assert graph_rewrite(start + start, count_down, bottom_up=bottom_up) is UOp.const(dtypes.int32, 0) + UOp.const(
      dtypes.int32, 0
    )


def test_order() -> None:
  """Top-down sees a node before its sources are rewritten, bottom-up after."""
  met: list[UOp] = []
  table = PatternMatcher(
    [
      rule("mul", UPat(Ops.MUL, name="u"), lambda u: met.append(u)),
      rule("variable", UPat(Ops.VARIABLE, arg=("x", 0, 9), name="u"), lambda u: y),
    ]
  )
  assert graph_rewrite(x * 2, table) is y * 2
  assert met == [x * 2, y * 2]  # and again, as a source changed
  met.clear()
  assert graph_rewrite(x * 2, table, bottom_up=True) is y * 2
  assert met == [y * 2]


def test_context() -> None:
  table = PatternMatcher([rule("count", UPat(Ops.VARIABLE, name="u"), lambda ctx, u: ctx.append(u))])
  seen: list[UOp] = []
  graph_rewrite((x + y) * x, table, ctx=seen, bottom_up=True)
  assert seen == [x, y]  # each node once


def test_gate() -> None:
  table = PatternMatcher([rule("swap", UPat(Ops.VARIABLE, arg=("x", 0, 9), name="u"), lambda u: y)])
  graph = (x + 1) * (x - 3)
  for bottom_up in (False, True):
    result = graph_rewrite(graph, table, gate=lambda u: u is not x + 1, bottom_up=bottom_up)
    assert result is (x + 1) * (y - 3)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_loops_are_found_and_named(bottom_up: bool) -> None:
  table = PatternMatcher(
    [
      rule("innocent", px * 1, lambda x: x),
      rule("there", px + 1, lambda x: x + 2),
      rule("back", px + 2, lambda x: x + 1),
    ]
  )
  with pytest.raises(RewriteLoop, match="there") as caught:
    graph_rewrite((x + 1) * 7, table, name="pass", bottom_up=bottom_up)
  assert set(caught.value.rules) == {"there", "back"} and "'pass'" in str(caught.value)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_rules_that_grow_without_end(bottom_up: bool) -> None:
  table = PatternMatcher([rule("grow", UPat(Ops.CONST, name="c"), lambda c: c.const_like(c.arg + 1))])
  with pytest.raises(RewriteLoop, match="grow"):
    graph_rewrite(UOp.const(dtypes.int64, 1) + x.cast(dtypes.int64), table, bottom_up=bottom_up)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_deep_graphs(bottom_up: bool) -> None:
  table = PatternMatcher([rule("one", px * 1, lambda x: x)])
  u, expected = x, x
  for _ in range(30_000):
    u, expected = (u * 1) ^ 5, expected ^ 5
  assert graph_rewrite(u, table, bottom_up=bottom_up) is expected


def test_a_rule_that_gives_no_node() -> None:
  table = PatternMatcher([rule("wrong", px + 1, lambda x: 3)])  # type: ignore[arg-type,return-value]
  with pytest.raises(TypeError, match="rule 'wrong' gave 3 instead of a UOp"):
    table.rewrite_named(x + 1)


def test_spec_after_every_rewrite() -> None:
  table = PatternMatcher([rule("breaks", px + 1, lambda x: UOp(Ops.EXP2, dtypes.index, (x,)))])
  with Context(SPEC=2), pytest.raises(SpecError, match="after 'pass': EXP2 index"):
    graph_rewrite(x + 1, table, name="pass")
  with Context(SPEC=0):
    assert graph_rewrite(x + 1, table, name="pass").op is Ops.EXP2
