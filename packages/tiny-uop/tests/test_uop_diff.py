"""Diffs of graphs: they are patches, they are empty only for the same graph, and a small change gives a small diff."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uop_graphs import edited, graphs

from tiny_uop import KernelInfo, Ops, UOp, diff_graphs, dtypes, parse_uop, print_uop
from tiny_uop.text.diff import summarise

x, y = UOp.variable("x", 0, 15), UOp.variable("y", 0, 15)


def copy_kernel(offset: UOp, loop: UOp) -> UOp:
  out = UOp.param(0, dtypes.int32.ptr(64))
  return UOp.sink(out.index(offset).store(1).end(loop), arg=KernelInfo("k"))


def patched(a: UOp, diff: list[str]) -> UOp:
  """`a` with the lines of a diff applied to its text."""
  lines = dict.fromkeys(print_uop(a).splitlines()[1:])
  for line in diff:
    if line[0] == "+":
      assert line[1:] not in lines
      lines[line[1:]] = None
    elif line[0] == "-":
      del lines[line[1:]]
    else:
      assert line[1:] in lines
  placed: list[str] = ["tiny-uop 1"]
  defined: set[str] = set()
  waiting = list(lines)
  while waiting:
    ready = [line for line in waiting if set(_sources(line)) <= defined]
    assert ready, "a patched graph has every node it names"
    placed += ready
    defined |= {line.split(" ", 1)[0] for line in ready}
    waiting = [line for line in waiting if line not in set(ready)]
  used = {s for line in lines for s in _sources(line)}
  (root,) = [line for line in placed[1:] if line.split(" ", 1)[0] not in used]
  placed.remove(root)
  return parse_uop("\n".join([*placed, root]))


def _sources(line: str) -> list[str]:
  inner = line.split("(", 1)[1].split(")", 1)[0]
  if "ptr<" in line.split("(", 1)[0]:
    inner = line.split("> (", 1)[1].split(")", 1)[0]
  return [s.strip() for s in inner.split(",") if s.strip()]


@settings(max_examples=60)
@given(st.data())
def test_a_diff_is_a_patch(data: st.DataObject) -> None:
  a = data.draw(graphs(20))
  b = data.draw(edited(a))
  diff = [str(line) for line in diff_graphs(a, b)]
  assert bool(diff) == (a is not b)
  assert patched(a, diff) is b


@settings(max_examples=60)
@given(graphs(), graphs())
def test_a_diff_of_unrelated_graphs_is_a_patch(a: UOp, b: UOp) -> None:
  assert patched(a, [str(line) for line in diff_graphs(a, b)]) is b


def test_the_same_graph_has_no_diff() -> None:
  assert diff_graphs(x * 4 + 3, x * 4 + 3) == []


@pytest.mark.parametrize(
  ("a", "b", "expected"),
  [
    (  # a changed argument: nothing above it
      (x * 4 + y) * 2, (x * 8 + y) * 2,
      ["-%1 = CONST index () arg=4", "+%1 = CONST index () arg=8"],
    ),
    (  # a node that went: its user names another
      UOp(Ops.ADD, dtypes.index, (x, UOp.const(dtypes.index, 0))) * y, x * y,
      [
        ' %0 = VARIABLE index () arg=("x", 0, 15)', "-%1 = CONST index () arg=0", "-%2 = ADD index (%0, %1)",
        ' %3 = VARIABLE index () arg=("y", 0, 15)', "-%4 = MUL index (%2, %3)", "+%4 = MUL index (%0, %3)",
      ],
    ),
    (  # a node that came, with a number of its own
      x * y, (x + 1) * y,
      [
        ' %0 = VARIABLE index () arg=("x", 0, 15)', "+%3 = CONST index () arg=1", "+%4 = ADD index (%0, %3)",
        ' %1 = VARIABLE index () arg=("y", 0, 15)', "-%2 = MUL index (%0, %1)", "+%2 = MUL index (%4, %1)",
      ],
    ),
    (x + y, x, [' %0 = VARIABLE index () arg=("x", 0, 15)', '-%1 = VARIABLE index () arg=("y", 0, 15)',
                "-%2 = ADD index (%0, %1)"]),
    (  # a layer between two kept ones, all of them over something that changed as well
      copy_kernel(UOp.range(16, 0), UOp.range(16, 0)), copy_kernel(UOp.range(8, 0) // 2, UOp.range(8, 0)),
      [
        " %0 = PARAM ptr<int32, 64, global> () arg=0", "-%1 = CONST index () arg=16", "+%1 = CONST index () arg=8",
        " %2 = RANGE index (%1) arg=(0, AxisType.LOOP)", "+%8 = CONST index () arg=2",
        "+%9 = FLOORDIV index (%2, %8)", "-%3 = INDEX ptr<int32, 64, global> (%0, %2)",
        "+%3 = INDEX ptr<int32, 64, global> (%0, %9)",
      ],
    ),
  ],
  ids=["changed", "removed", "added", "root", "layer"],
)  # fmt: skip
def test_small_changes_give_small_diffs(a: UOp, b: UOp, expected: list[str]) -> None:
  assert [str(line) for line in diff_graphs(a, b)] == expected
  assert patched(a, expected) is b


def test_lines_know_their_nodes() -> None:
  removed, added = diff_graphs(x * 4, x * 8)
  assert (removed.kind, removed.node.arg, added.kind, added.node.arg) == ("-", 4, "+", 8)
  assert removed.changed and added.changed
  assert summarise([removed, added]) == "0 removed, 0 added, 1 changed"
  assert summarise(diff_graphs(x * y, (x + 1) * y)) == "0 removed, 2 added, 1 changed"


def test_time_is_linear() -> None:
  a = b = x
  for i in range(10_000):
    a, b = (a * 3) + (i % 7), (b * 3) + (i % 7 if i != 100 else 8)
  wide_a = UOp.sink(*[x + n for n in range(8_000)], a)
  wide_b = UOp.sink(*[x + n for n in range(1, 8_001)], b)
  start = time.process_time()
  assert len(diff_graphs(wide_a, wide_b)) > 100
  assert time.process_time() - start < 20  # about a second; a quadratic diff takes minutes
