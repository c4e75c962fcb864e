"""The command line, as its users have it: a process that is given a trace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from viz_compiler import compile_it, kernel

from tiny_uop import parse_uop, simplify
from tiny_uop.observe import tracing


def viz(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
  command = [sys.executable, "-m", "tiny_viz", *map(str, arguments)]
  return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


def shown(*arguments: object) -> list[str]:
  done = viz(*arguments)
  assert done.returncode == 0 and done.stderr == "", done.stderr
  return done.stdout.splitlines()


def words(lines: list[str], first: str) -> list[str]:
  """The cells of the row that begins with a word."""
  (line,) = [line for line in lines if line.split()[:1] == [first]]
  return line.split()


def refused(*arguments: object) -> str:
  done = viz(*arguments)
  assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("error: "), done
  assert "Traceback" not in done.stderr
  return done.stderr


def test_overview(trace_file: Path) -> None:
  lines = shown(trace_file)
  assert "0 schedules, 1 kernel, 2 rewrites" in lines[0]
  row = words(lines, "0")
  assert row[1:3] == ["kernel", "copy_16"] and row[-2:] == ["2", "2"]  # passes, rewrites


@pytest.mark.parametrize("name", ["copy_16", "0"])
def test_passes_of_a_kernel(trace_file: Path, name: str) -> None:
  lines = shown(trace_file, "--kernel", name)
  nodes = f"{len(kernel().toposort)} → {len(simplify(kernel()).toposort)}"
  assert nodes in lines[0] or nodes in " ".join(lines)
  assert words(lines, "0")[1] == "simplify" and words(lines, "0")[4] == "2"
  assert words(lines, "1")[1] == "rename" and words(lines, "1")[4] == "0"
  assert nodes.split() == words(lines, "0")[-3:]


def test_rewrites_of_a_pass(trace_file: Path) -> None:
  lines = shown(trace_file, "--pass", "simplify")
  assert lines[0] == "2 rewrites"
  assert words(lines, "0")[:3] == ["0", "simplify", "int_add_zero"] and lines[3].endswith("i + 0 → i")
  assert words(lines, "1")[2] == "div_constant" and lines[4].endswith("(i*4 + 2)//4 → i")
  assert shown(trace_file, "--pass", "rename") == ["0 rewrites"]
  assert shown(trace_file, "--rule", "div_constant")[0] == "1 rewrite by div_constant"


def test_one_step(trace_file: Path) -> None:
  lines = shown(trace_file, "--step", 0)
  assert re.fullmatch(r"rewrite 0 of 2: int_add_zero  tiny_uop/symbolic/\w+\.py:\d+", lines[0])
  assert lines[1].startswith("in kernel copy_16, pass simplify, table simplify; ")
  assert "  before  i + 0" in lines and "  after   i" in lines
  assert "-%1 = CONST index () arg=0" in lines and "-%2 = ADD index (%0, %1)" in lines
  assert lines[-1] == "2 removed, 0 added, 0 changed"
  whole = shown(trace_file, "--step", 0, "--whole")
  assert any(line.startswith("+") and "INDEX" in line for line in whole)


def test_the_difference_of_a_pass(trace_file: Path) -> None:
  lines = shown(trace_file, "--pass", "rename", "--diff")
  assert [line[0] for line in lines if "SINK" in line] == ["-", "+"]
  assert lines[-1] == "0 removed, 0 added, 1 changed"


def test_graphs_go_to_other_tools(trace_file: Path) -> None:
  before = viz(trace_file, "--graph", 1, "before").stdout
  assert parse_uop(before).render() == "(i*4 + 2)//4"
  done = subprocess.run([sys.executable, "-m", "tiny_uop", "simplify"], input=before, capture_output=True, text=True)
  assert done.stdout == viz(trace_file, "--graph", 1, "after").stdout
  assert parse_uop(viz(trace_file, "--graph", 0, "before", "--whole").stdout) is kernel()
  assert parse_uop(viz(trace_file, "--graph", 1, "after", "--whole").stdout) is simplify(kernel())
  assert parse_uop(viz(trace_file, "--pass", "simplify", "--graph", "after").stdout) is simplify(kernel())


def test_statistics(trace_file: Path) -> None:
  lines = shown(trace_file, "--stats")
  assert lines[0].startswith("share")
  row = re.compile(r"\d\.\d\d +(\d+) / (\d+) +-- +\d+\.\d / \d+\.\d +ms -- (\S+)  tiny_uop/\S+\.py:\d+")
  found = {m[3]: (int(m[1]), int(m[2])) for line in lines[1:-1] if (m := row.fullmatch(line))}
  assert len(found) == len(lines) - 2
  assert found["int_add_zero"][0] == found["div_constant"][0] == 1
  assert all(matches <= attempts for matches, attempts in found.values())
  assert sum(matches for matches, _ in found.values()) == 2
  (table,) = shown(trace_file, "--stats", "table")[1:-1]
  assert table.startswith("1.00 ") and table.endswith("-- simplify")


def test_times_of_passes(tmp_path: Path) -> None:
  path = tmp_path / "two.jsonl"
  with tracing(path):
    compile_it()
    compile_it()
  heading, *rows = shown(path, "--stats", "pass")
  assert heading.split() == ["share", "time", "runs", "rewrites", "of", "pass"]
  cells = {row.split()[-1]: row.split() for row in rows}
  assert cells["simplify"][-4:] == ["2", "4", "kernel", "simplify"] and cells["rename"][-4:-2] == ["2", "0"]
  assert sum(float(row.split()[0]) for row in rows) == pytest.approx(1, abs=0.02)
  assert rows[0].endswith("simplify")  # it takes longer


def test_colours_are_for_terminals(trace_file: Path) -> None:
  assert "\x1b" not in viz(trace_file, "--step", 0).stdout
  assert "\x1b[31m-%1" in viz(trace_file, "--step", 0, "--color", "always").stdout


def test_on_a_terminal(trace_file: Path) -> None:
  pty = pytest.importorskip("pty")

  def screen(**environment: str) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tiny_viz", str(trace_file), "--step", "0"]
    subprocess.run(command, stdout=theirs, env={**os.environ, **environment}, check=True)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
      return file.read1(65536).decode()

  assert "\x1b[31m" in screen(NO_COLOR="")
  assert "\x1b" not in screen(NO_COLOR="1")


def test_a_reader_that_has_seen_enough(trace_file: Path) -> None:
  command = [sys.executable, "-m", "tiny_viz", str(trace_file), "--stats"]
  process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  assert process.stdout is not None and process.stderr is not None
  process.stdout.close()
  assert process.stderr.read() == "" and process.wait() == 0
  process.stderr.close()


def test_two_kernels_with_one_name(tmp_path: Path) -> None:
  path = tmp_path / "two.jsonl.gz"
  with tracing(path):
    compile_it()
    compile_it()
  assert "2 kernels, 4 rewrites" in shown(path)[0]
  assert shown(path, "--pass", "simplify")[0] == "4 rewrites"
  assert shown(path, "--pass", "simplify", "--kernel", 1)[0] == "2 rewrites"
  assert "choose one with --kernel, of 0 (copy_16), 1 (copy_16)" in refused(path, "--pass", "rename", "--diff")


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("--kernel", "other"), "no kernel or schedule is called 'other' or has that number; there is: copy_16"),
    (("--pass", "other"), "no pass is called 'other' or has that number; there is: simplify, rename"),
    (("--step", "2"), "there is no rewrite 2 in this trace; there is: 0 to 1"),
    (("--graph", "0", "between"), "`before` or `after`"),
    (("--graph", "before"), "name the pass"),
    (("--diff",), "name the pass"),
  ],
)
def test_what_is_not_there(trace_file: Path, arguments: tuple[str, ...], message: str) -> None:
  assert message in refused(trace_file, *arguments)


def test_the_settings_are_for_the_program_that_is_looked_at(trace_file: Path) -> None:
  done = viz(trace_file, "--step", 1, "--whole", VIZ="-1", VIZ_FILE=str(trace_file), DEBUG="6", TRACK_MATCH_STATS="2")
  assert done.returncode == 0 and done.stderr == ""
  assert "2 rewrites" in shown(trace_file)[0]


def test_no_such_file(tmp_path: Path) -> None:
  assert "No such file" in refused(tmp_path / "none")


def test_a_server_ends_with_who_started_it(trace_file: Path) -> None:
  command = [sys.executable, "-m", "tiny_viz", "serve", str(trace_file), "--until-closed"]
  with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
    assert process.stdin is not None and process.stderr is not None
    assert "http://127.0.0.1:" in process.stderr.readline() and process.poll() is None
    process.stdin.close()  # as the system does when that program ends, however it ends
    assert process.wait(60) == 0
