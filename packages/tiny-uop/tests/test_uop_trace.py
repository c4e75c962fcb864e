"""The trace file: its records, its bound, and that what stands under its name is whole."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tiny_uop import KernelInfo, UOp, live_nodes, parse_uop, simplify
from tiny_uop.observe import Recorder, observing, span, tracing

X = UOp.variable("x", 0, 15)
SUM = (X * 4 + 3) // 4 + 0

WORK = """
import os, sys
from tiny_uop import UOp, simplify
def work(n=1):
  for k in range(n):
    assert simplify((UOp.variable(f"x{k}", 0, 15) * 4 + 3) // 4).op.name == "VARIABLE"
work()
"""

Record = list[Any]


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
  """The header and the records."""
  data = path.read_bytes()
  text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
  assert text.endswith("\n")
  header, *records = [json.loads(line) for line in text.splitlines()]
  return header, records


def of_kind(records: list[Record], kind: str) -> list[Record]:
  return [r[1:] for r in records if r[0] == kind]


def graph_of(records: list[Record], number: int) -> UOp:
  """A node of a trace, by nothing but the format's documentation."""
  lines = ["tiny-uop 1"]
  for k, (op, dtype, src, *more) in enumerate(of_kind(records, "node")[: number + 1]):
    line = f"%{k} = {op} {dtype} ({', '.join(f'%{s}' for s in src)})"
    for name, value in zip(("arg", "tag"), more):
      line += f" {name}={value}" if value is not None else ""
    lines.append(line)
  return parse_uop("\n".join(lines))


def run(code: str, folder: Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
  """A program of a user, in a folder of its own."""
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
    timeout=60,
  )  # fmt: skip
  assert not check or done.returncode == 0, done.stderr
  return done


def test_the_records(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl") as recorder, span("pass", "p", SUM) as work:
    work.gives(simplify(SUM))
  header, records = read(tmp_path / "t.jsonl")
  assert header["tiny-trace"] == header["ir"] == 1
  assert header["process"] == os.getpid() and header["program"] == sys.argv
  (outer, inner), (ended_inner, ended_outer) = of_kind(records, "begin"), of_kind(records, "end")
  assert outer[:3] == [None, "pass", "p"] and inner[:3] == [0, "table", "simplify"]
  assert graph_of(records, outer[3]) is graph_of(records, inner[3]) is SUM
  assert ended_inner[0] == 1 and ended_outer[0] == 0
  assert graph_of(records, ended_outer[1]) is graph_of(records, ended_inner[1]) is X
  assert outer[4] <= inner[4] <= ended_inner[2] <= ended_outer[2]
  rules = of_kind(records, "rule")
  steps = of_kind(records, "rewrite")
  assert [rules[s[1]][:2] for s in steps] == [["simplify", "div_constant"], ["simplify", "int_add_zero"]]
  assert all(s[0] == 1 and s[5] > 0 and inner[4] <= s[4] <= ended_inner[2] for s in steps)
  assert [(graph_of(records, s[2]).render(), graph_of(records, s[3]).render()) for s in steps] == [
    ("(x*4 + 3)//4", "x"), ("x + 0", "x"),
  ]  # fmt: skip
  stats = {tuple(rules[s[0]][:2]): s[1:3] for s in of_kind(records, "stats")}
  assert stats["simplify", "div_constant"] == [1, 1] and stats["simplify", "int_add_zero"][0] == 1
  assert records[-1] == ["complete", 2] and recorder.rewrites == 2


def test_a_node_is_written_once(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl"):
    for _ in range(3):  # the nodes are dropped and made again
      simplify((UOp.variable("once", 0, 15) * 4 + 3) // 4)
  _, records = read(tmp_path / "t.jsonl")
  nodes = [json.dumps(n) for n in of_kind(records, "node")]
  assert len(nodes) == len(set(nodes)) == 6
  assert len(of_kind(records, "rewrite")) == 3


def test_any_argument_can_be_written(tmp_path: Path) -> None:
  odd = (
    UOp.sink(X, arg=KernelInfo('a "quoted"\n name\ud800')),
    X.replace(tag=("seen", 1)),
    X.replace(arg=frozenset([1])),
  )
  with tracing(tmp_path / "t.jsonl"):
    for node in odd:
      with span("pass", "p", node):
        pass
  _, records = read(tmp_path / "t.jsonl")
  first, second, third = [graph_of(records, b[3]) for b in of_kind(records, "begin")]
  assert (first, second) == odd[:2]
  assert third.arg == "frozenset({1})"  # no literal of the IR: what it looks like


def test_a_table_in_which_nothing_applies_leaves_no_record(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl"), span("pass", "p"):
    simplify(UOp.variable("nobody_has_tried_this_one", 0, 15) + 1)
  _, records = read(tmp_path / "t.jsonl")
  assert [b[1] for b in of_kind(records, "begin")] == ["pass"] and not of_kind(records, "node")
  assert of_kind(records, "stats")


def test_nothing_to_record_leaves_no_file(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl"):
    pass
  assert run("import tiny_uop", tmp_path, VIZ="-1").stderr == ""
  assert list(tmp_path.iterdir()) == []


def test_nodes_are_not_kept_alive(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl"):
    simplify(SUM)
    before = live_nodes()
    for k in range(200):
      simplify((UOp.variable(f"gone{k}", 0, 15) * 4 + 3) // 4)
    assert live_nodes() - before < 20


def test_the_bound(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl", limit=20_000) as recorder:
    for k in range(500):
      simplify((UOp.variable(f"x{k}", 0, 15) * 4 + 3) // 4)
  _, records = read(tmp_path / "t.jsonl")
  (cut,) = [i for i, r in enumerate(records) if r[0] == "truncated"]
  assert records[cut][1] == 20_000 and recorder.truncated
  kept, after = records[:cut], records[cut + 1 :]
  assert sum(len(json.dumps(r, separators=(",", ":"))) + 1 for r in kept) <= 20_000
  assert {r[0] for r in after} == {"rule", "stats", "complete"}
  assert 10 < len(of_kind(kept, "rewrite")) == records[-1][1] < 500
  rules = of_kind(records, "rule")
  (matches,) = [s[1] for s in of_kind(records, "stats") if rules[s[0]][1] == "div_constant"]
  assert matches == 500  # the counts go on


def test_threads_share_a_trace(tmp_path: Path) -> None:
  def work(name: str) -> None:
    for k in range(50):
      with span("pass", name):
        simplify((UOp.variable(f"{name}_{k}", 0, 15) * 4 + 3) // 4)

  with tracing(tmp_path / "t.jsonl"):
    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for t in threads:
      t.start()
    for t in threads:
      t.join()
  _, records = read(tmp_path / "t.jsonl")
  begun, steps = of_kind(records, "begin"), of_kind(records, "rewrite")
  assert len(steps) == 200 and len(of_kind(records, "end")) == len(begun) == 400
  for table, _, before, *_ in steps:
    owner = begun[begun[table][0]]  # the pass that the table ran in
    names = {u.arg[0] for u in graph_of(records, before).toposort if u.op.name == "VARIABLE"}
    assert all(name.startswith(owner[2]) for name in names)


def test_a_recorder_that_starts_inside_a_span(tmp_path: Path) -> None:
  with span("pass", "unseen"), tracing(tmp_path / "t.jsonl"):
    simplify(SUM)
  _, records = read(tmp_path / "t.jsonl")
  assert [b[:3] for b in of_kind(records, "begin")] == [[None, "table", "simplify"]]


def test_told_after_it_was_saved(tmp_path: Path) -> None:
  recorder = Recorder(tmp_path / "t.jsonl")
  with observing(recorder):
    simplify(SUM)
    assert recorder.save() == tmp_path / "t.jsonl"
    size = (tmp_path / "t.jsonl").stat().st_size
    simplify(SUM)
  assert recorder.save() is None and [p.stat().st_size for p in tmp_path.iterdir()] == [size]


# *** as a program's user has it: VIZ=-1 ***


def test_a_program(tmp_path: Path) -> None:
  done = run(WORK + "print(os.getpid(), os.listdir('.'))", tmp_path, VIZ="-1")
  (path,) = tmp_path.iterdir()
  process = done.stdout.split()[0]
  assert path.name == f"tiny-trace-{process}.jsonl.gz"
  assert path.name + "." in done.stdout and f"'{path.name}'" not in done.stdout  # until its end it has another name
  assert done.stderr == f"trace    1 rewrite: python -m tiny_viz {path.name}\n"
  header, records = read(path)
  assert str(header["process"]) == process and records[-1] == ["complete", 1]


def test_the_file_can_be_chosen(tmp_path: Path) -> None:
  run(WORK, tmp_path, VIZ="-1", VIZ_FILE="new/%p-of-mine.jsonl")
  (path,) = (tmp_path / "new").iterdir()
  assert path.name.removesuffix("-of-mine.jsonl").isdigit() and read(path)[1][-1] == ["complete", 1]


def test_several_in_one_program(tmp_path: Path) -> None:
  code = WORK + "from tiny_uop.observe import save_trace\nprint(save_trace())\nprint(save_trace())\nwork(3)"
  done = run(code, tmp_path, VIZ="-1", VIZ_FILE="mine.jsonl")
  assert done.stdout.split() == ["mine.jsonl", "None"]
  assert read(tmp_path / "mine.jsonl")[1][-1] == ["complete", 1]
  assert read(tmp_path / "mine-2.jsonl")[1][-1] == ["complete", 3]


def test_the_limit_can_be_chosen(tmp_path: Path) -> None:
  done = run(WORK + "work(6000)", tmp_path, VIZ="-1", VIZ_FILE="mine.jsonl", VIZ_LIMIT="1")
  assert "cut off at VIZ_LIMIT" in done.stderr
  assert 900_000 < (tmp_path / "mine.jsonl").stat().st_size < 1_100_000
  assert ["truncated", 1_000_000] in [r[:2] for r in read(tmp_path / "mine.jsonl")[1]]


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "1/0"])
def test_a_program_that_fails_leaves_its_trace(tmp_path: Path, end: str) -> None:
  done = run(WORK + end, tmp_path, check=False, VIZ="-1", VIZ_FILE="mine.jsonl")
  assert done.returncode != 0 and read(tmp_path / "mine.jsonl")[1][-1] == ["complete", 1]


def test_a_program_that_is_killed_leaves_no_half_of_one(tmp_path: Path) -> None:
  code = WORK + "work(3000)\nprint('ready', flush=True)\nimport time\ntime.sleep(60)"
  (tmp_path / "mine.jsonl").write_text("an older one\n")
  process = subprocess.Popen(
    [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "VIZ": "-1", "VIZ_FILE": "mine.jsonl"},
    stdout=subprocess.PIPE,
  )  # fmt: skip
  assert process.stdout is not None and process.stdout.readline() == b"ready\n"
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert (tmp_path / "mine.jsonl").read_text() == "an older one\n"
  (part,) = [p for p in tmp_path.iterdir() if p.suffix == ".part"]
  assert part.stat().st_size > 0  # as much as was written can be looked at


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
  (tmp_path / "file").write_text("")
  done = run(WORK + "print('goes on')", tmp_path, VIZ="-1", VIZ_FILE="file/t.jsonl")
  assert done.stdout == "goes on\n"
  assert "no trace is saved: file/t.jsonl: " in done.stderr and "set VIZ_FILE" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_a_trace_of_its_own(tmp_path: Path) -> None:
  code = (
    WORK
    + """
work(2000)
child = os.fork()
work(40 if child else 20)
if child: os.waitpid(child, 0)
"""
  )
  run(code, tmp_path, VIZ="-1", VIZ_FILE="%p.jsonl.gz")
  ends = [read(path)[1][-1][1] for path in tmp_path.iterdir()]
  assert sorted(ends) == [20, 2041]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_leaves_the_trace_of_a_block_alone(tmp_path: Path) -> None:
  code = (
    WORK
    + """
from tiny_uop.observe import tracing
with tracing("mine.jsonl"):
  work(2000)
  child = os.fork()
  work(1000)
if child: os.waitpid(child, 0)
"""
  )
  run(code, tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]
  _, records = read(tmp_path / "mine.jsonl")
  assert records[-1] == ["complete", 3000] and len(of_kind(records, "rewrite")) == 3000


def test_a_program_is_slowed_down_little(tmp_path: Path) -> None:
  """A guard against something that grows with the length of the trace: the second half takes as long as the first."""
  with tracing(tmp_path / "t.jsonl"):
    times = []
    for half in range(2):
      start = time.process_time()
      for k in range(1500):
        simplify((UOp.variable(f"x{half}_{k}", 0, 15) * 4 + 3) // 4)
      times.append(time.process_time() - start)
  assert times[1] < 3 * times[0] + 0.2


# *** shown in a browser: VIZ=1 ***

SECTION = """
from tiny_uop.observe import also_save
also_save(lambda: '{"profile":1}\\n')
"""


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_other_sections_stand_at_the_end(tmp_path: Path, name: str) -> None:
  run(WORK + SECTION, tmp_path, VIZ="-1", VIZ_FILE=name)
  _, records = read(tmp_path / name)
  assert records[-2] == ["complete", 1] and records[-1] == {"profile": 1}
  run(SECTION, tmp_path, VIZ="-1", VIZ_FILE=name)
  assert read(tmp_path / name)[1] == [["complete", 0], {"profile": 1}]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_a_copy_of_what_there_is_so_far(tmp_path: Path, name: str) -> None:
  recorder = Recorder(tmp_path / name)
  with observing(recorder):
    simplify((UOp.variable("before", 0, 15) * 4 + 3) // 4)
    recorder.copy(tmp_path / "copy.jsonl", '{"profile":1}\n')
    simplify((UOp.variable("afterwards", 0, 15) * 4 + 3) // 4)
  recorder.save()
  (head, part), (_, whole) = read(tmp_path / "copy.jsonl"), read(tmp_path / name)
  assert head["tiny-trace"] == 1 and part[-2:] == [["complete", 1], {"profile": 1}] and whole[-1] == ["complete", 2]
  length = part.index(next(r for r in part if r[0] == "stats"))
  assert part[:length] == whole[:length]


BROWSER = """
import pathlib, shutil, sys
shutil.copy(sys.argv[2], f"kept-{sys.argv[2]}")
pathlib.Path("serving").write_text(" ".join(sys.argv[1:]))
pathlib.Path("serving").rename("served")
"""


def with_browser(folder: Path) -> dict[str, Any]:
  """A package that stands for the one that shows traces."""
  (folder / "tiny_viz").mkdir()
  (folder / "tiny_viz" / "__init__.py").write_text("")
  (folder / "tiny_viz" / "__main__.py").write_text(BROWSER)
  return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]), "VIZ_FILE": "t.jsonl"}


def test_1_shows_the_trace_at_the_end(tmp_path: Path) -> None:
  run(WORK, tmp_path, VIZ="-1", **with_browser(tmp_path))
  assert not (tmp_path / "served").exists()
  run(
    WORK,
    tmp_path,
    VIZ="1",
    VIZ_FILE="t.jsonl",
    PYTHONPATH=str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""),
  )
  assert (tmp_path / "served").read_text() == "serve t.jsonl --until-closed" and (tmp_path / "t.jsonl").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1")
def test_1_shows_what_there_is_so_far(tmp_path: Path) -> None:
  code = WORK + "import time\nwhile not os.path.exists('served'): time.sleep(0.01)\nos.rename('served', 'shown')\n"
  started = subprocess.Popen(
    [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "VIZ": "1", **with_browser(tmp_path)},
    stderr=subprocess.PIPE, text=True,
  )  # fmt: skip
  assert started.stderr is not None
  assert started.stderr.readline() == f"trace    kill -USR1 {started.pid} shows what there is so far\n"
  while not list(tmp_path.glob("t.jsonl.*.part")):
    time.sleep(0.01)
  started.send_signal(signal.SIGUSR1)
  while not (tmp_path / "shown").exists() and started.poll() is None:
    time.sleep(0.01)
  assert read(tmp_path / "kept-t-so-far-1.jsonl")[1][-1][0] == "complete"
  assert started.wait(60) == 0
  assert (tmp_path / "shown").read_text() == "serve t-so-far-1.jsonl --until-closed" and (tmp_path / "t.jsonl").exists()
  assert not (tmp_path / "t-so-far-1.jsonl").exists(), "all of it is in the other"


def test_children_show_nothing(tmp_path: Path) -> None:
  code = WORK + "if os.fork() == 0:\n  work(2)\n  sys.exit()\nos.wait()\nassert not os.path.exists('served')\n"
  run(code, tmp_path, VIZ="1", **with_browser(tmp_path) | {"VIZ_FILE": "%p.jsonl"})
  assert (tmp_path / "served").exists()
