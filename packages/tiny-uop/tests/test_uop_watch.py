"""What DEBUG=6 and TRACK_MATCH_STATS print, as a program's user sees it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_uop.observe import recorder

PROGRAM = """
from tiny_uop import UOp, simplify
from tiny_uop.observe import span
x, y = UOp.variable("x", 0, 15), UOp.variable("y", 0, 7)
with span("kernel", "k1"), span("pass", "gates"):
  simplify((x * 4 + 3) // 4 + 0)
  simplify(y * 1)
with span("kernel", "k2"), span("pass", "gates"):
  long = y
  for k in range(40):
    long = (long * 3 + x) * 5
  print(simplify(long + 0) is not long)
simplify(x + 0)
"""

COUNTS = re.compile(r"(\d\.\d\d) +(\d+) / (\d+) +-- +(\d+\.\d) / (\d+\.\d) +ms -- (.*)")


def printed(code: str = PROGRAM, **environment: str) -> list[str]:
  """The lines on stderr; stdout stays the program's own."""
  done = subprocess.run(
    [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
  )
  assert done.stdout == "True\n" * code.count("print(")
  return done.stderr.splitlines()


def test_5_prints_no_rewrites() -> None:
  assert printed(DEBUG="5") == []


def test_6_prints_each_rewrite() -> None:
  lines = printed(DEBUG="6")
  assert lines[:5] == [
    "--- k1: gates: rewrites",
    "rewrite  simplify       div_constant               (x*4 + 3)//4 → x",
    "rewrite  simplify       int_add_zero               x + 0 → x",
    "rewrite  simplify       int_mul_one                y*1 → y",
    "--- k2: gates: rewrites",
  ]
  assert lines[-2:] == ["--- no pass: rewrites", "rewrite  simplify       int_add_zero               x + 0 → x"]
  assert all(len(line) <= 160 for line in lines)
  assert len(lines) > 40 and all(line.startswith(("rewrite  simplify  ", "--- ")) for line in lines)


def test_a_rewrite_inside_a_rule_is_set_in() -> None:
  code = """
from tiny_uop import *
x = UOp.variable("x", 0, 15)
inner = PatternMatcher([rule("inner", UPat(Ops.VARIABLE, name="u"), lambda u: u.const_like(1))])
outer = PatternMatcher([rule("outer", UPat(Ops.MUL, name="u"), lambda u: graph_rewrite(u.src[0], inner, name="in"))])
graph_rewrite(x * 3, outer, name="out")
"""
  assert printed(code, DEBUG="6") == [
    "--- no pass: rewrites",
    "rewrite    in           inner                      x → 1",
    "rewrite  out            outer                      x*3 → 1",
  ]


def test_1_counts_per_table() -> None:
  title, heading, row, whole = printed(TRACK_MATCH_STATS="1")
  assert title == "--- match stats" and heading.startswith("share ") and heading.endswith(" table")
  assert (match := COUNTS.fullmatch(row)) and match[1] == "1.00" and match[6] == "simplify"
  assert (total := COUNTS.fullmatch(whole)) and total[6] == "all 1 tables"
  assert match.groups()[1:5] == total.groups()[1:5] and int(match[2]) < int(match[3])


def test_2_counts_per_rule() -> None:
  title, heading, *lines = printed(TRACK_MATCH_STATS="2")
  assert title == "--- match stats" and heading.endswith(" rule")
  rows = [match for line in lines if (match := COUNTS.fullmatch(line))]
  assert len(rows) == len(lines) and rows[-1][6] == f"all {len(rows) - 1} rules"
  names = {m[6].split()[0]: m for m in rows[:-1]}
  assert names["int_add_zero"][2] == "3" and names["div_constant"][2] == "1" and names["int_mul_one"][2] == "1"
  assert all(re.fullmatch(r"\w+  tiny_uop/symbolic/\w+\.py:\d+", m[6]) for m in rows[:-1])
  times = [float(m[5]) for m in rows[:-1]]
  assert times == sorted(times, reverse=True)
  assert sum(int(m[2]) for m in rows[:-1]) == int(rows[-1][2])
  assert sum(int(m[3]) for m in rows[:-1]) == int(rows[-1][3])


@pytest.mark.parametrize("level", ["0", ""])
def test_0_counts_nothing(level: str) -> None:
  assert printed(TRACK_MATCH_STATS=level) == []


def test_for_a_block_only() -> None:
  code = """
from tiny_uop import *
from tiny_uop.observe import process_stats
x = UOp.variable("x", 0, 15)
simplify(x + 0)
with Context(TRACK_MATCH_STATS=2, DEBUG=6):
  simplify(x * 1)
simplify(x + 0)
print([r.matches for r in process_stats().by_rule() if r.name == "int_mul_one"] == [1])
"""
  lines = printed(code)
  assert lines[1] == "rewrite  simplify       int_mul_one                x*1 → x"
  assert lines[2] == "--- match stats" and not any("int_add_zero" in line and " 1 / " in line for line in lines)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_counts_for_itself() -> None:
  code = """
import os
from tiny_uop import *
x = UOp.variable("x", 0, 15)
simplify(x + 0)
child = os.fork()
if not child:
  simplify(x * 1)
  simplify(x // 1)
else:
  os.waitpid(child, 0)
"""
  lines = printed(code, TRACK_MATCH_STATS="2")
  totals = [line.split(" -- ")[0] for line in lines if "all " in line and line.startswith("1.00")]
  assert [t.split()[1] for t in totals] == ["2", "1"]  # the child's, then the parent's


def test_all_at_once(tmp_path: Path) -> None:
  lines = printed(DEBUG="6", TRACK_MATCH_STATS="2", VIZ="-1", VIZ_FILE=str(tmp_path / "t.jsonl"))
  assert any(line.startswith("rewrite ") for line in lines) and any(line.startswith("share ") for line in lines)
  assert any(line.startswith("trace ") for line in lines) and (tmp_path / "t.jsonl").exists()


def test_every_kind_of_record_is_documented() -> None:
  readme = (Path(__file__).parent.parent / "README.md").read_text()
  source = Path(recorder.__file__).read_text()
  kinds = set(re.findall(r'\["(\w+)", ', source))
  assert kinds == {"node", "rule", "begin", "end", "rewrite", "truncated", "stats", "complete"}
  assert all(f'| `["{kind}", ' in readme for kind in kinds)
