"""The run's section of a trace: what is read of it, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from viz_compiler import compile_it, kernel

from tiny_uop.observe import tracing
from tiny_viz import Origin, Trace, TraceError, Wave, read_trace
from tiny_viz.answers import Answers
from tiny_viz.compare import compared

HEAD = {
  "profile": 1, "program": "train.py", "process": 7, "began": 1000, "ended": 9000, "threads": {"7": "MainThread"},
  "peaks": {"CPU": {"ops_per_s": 1e11, "bytes_per_s": 2e10}},
}  # fmt: skip
ORIGIN = {
  "origin": 0,
  "file": "/home/me/train.py",
  "line": 41,
  "function": "forward",
  "module": "m.0",
  "phase": "backward",
}
RECORD = {
  "kind": "kernel",
  "name": "k",
  "device": "CPU",
  "thread": 7,
  "start": 1100,
  "end": 1300,
  "busy": 150,
  "origins": [0],
}


def written(path: Path, *lines: Any) -> Path:
  path.write_text("".join([(line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines]))
  return path


def test_a_run_alone(tmp_path: Path) -> None:
  trace = read_trace(written(tmp_path / "t", HEAD, ORIGIN, RECORD, RECORD | {"ops": 9}, {"of another version": 1}))
  run = trace.run
  assert run is not None and (run.program, run.began, run.ended) == ("train.py", 1000, 9000)
  assert run.origins == [Origin("/home/me/train.py", 41, "forward", "m.0", "backward")]
  assert [(r.name, r.busy, r.ops, r.origins) for r in run.records] == [("k", 150, 0, (0,)), ("k", 150, 9, (0,))]
  assert run.peaks == {"CPU": {"ops_per_s": 1e11, "bytes_per_s": 2e10}} and run.threads == {7: "MainThread"}
  assert not trace.nodes and not trace.spans


def test_both_sections_in_one_file(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl"):
    compile_it()
  both = tmp_path / "both"
  both.write_text((tmp_path / "t.jsonl").read_text() + written(tmp_path / "r", HEAD, ORIGIN, RECORD).read_text())
  for lazy in (False, True):
    trace = read_trace(both, lazy)
    assert len(trace.steps) == 2 and trace.complete and trace.run is not None and len(trace.run.records) == 1
  assert list(read_trace(both, lazy=True).nodes) == list(read_trace(both).nodes)


def test_loops(tmp_path: Path) -> None:
  rows = [[0.77, "180–200", 21, 8, 0, "multiplies and adds"], [0.2, "", 0, 0, 0, "outside of loops"]]
  run = read_trace(written(tmp_path / "t", {"profile": 1, "program": "p"}, {"loops": rows, "name": "k"})).run
  assert run is not None and run.loops == {"k": [tuple(row) for row in rows]}
  with pytest.raises(TraceError, match="line 2: expected loops as lists of float, str, int, int, int, str"):
    read_trace(written(tmp_path / "t", HEAD, {"loops": [[1, "", 0, 0, 0, ""]], "name": "k"}))


def test_counters_and_waves(tmp_path: Path) -> None:
  code = {"code": 3, "instructions": [[0, "s_load_b64"], [8, "v_add_f32"]]}
  wave = {"wave": "SE0 CU3", "record": 0, "code": 3, "start": 5, "end": 90, "rows": [[5, 4, 0, 0], [9, 60, 56, 8]]}
  run = read_trace(
    written(tmp_path / "t", HEAD, ORIGIN, RECORD, {"counters": {"SQ_WAVES": 64}, "record": 0}, code, wave)
  ).run
  assert (
    run is not None
    and run.counters == {0: {"SQ_WAVES": 64.0}}
    and run.code == {3: [(0, "s_load_b64"), (8, "v_add_f32")]}
  )
  assert run.waves == [Wave("SE0 CU3", 0, 3, 5, 90, [(5, 4, 0, 0), (9, 60, 56, 8)])]


def test_kernels_are_known_by_their_keys(tmp_path: Path) -> None:
  """Two of one name in each trace: one that both have, one that changed, and another that came."""

  def traced(name: str, *kernels: tuple[str, str, int]) -> Trace:
    origins = [ORIGIN | {"origin": n, "module": f"m.{n}"} for n in range(2)]
    records = [RECORD | {"key": key, "origins": [int(of)], "busy": busy} for key, of, busy in kernels]
    return read_trace(written(tmp_path / name, HEAD, *origins, *records))

  before = traced("before", ("aa", "0", 10), ("bb", "1", 100))
  after = traced("after", ("cc", "0", 7), ("dd", "1", 300), ("aa", "0", 10))
  rows = compared(before, after)["rows"]
  found = [(row["name"], row["keys"], row["what"], row["changed"], row["busy"]) for row in rows]
  assert found == [
    ("k", ("bb", "dd"), "slower", True, [100, 300]),
    ("k", (None, "cc"), "came", False, [0, 7]),
    ("k", ("aa", "aa"), "same", False, [10, 10]),
  ]
  rows = compared(before, traced("old", ("", "0", 220)))["rows"]
  assert [(row["keys"], row["calls"], row["what"]) for row in rows] == [(("k", "k"), [2, 1], "slower")], "by name"


def test_an_interruption_is_no_change_nor_is_a_kernel_that_takes_nothing(tmp_path: Path) -> None:
  def traced(name: str, *busy: tuple[str, int]) -> Trace:
    records = [RECORD | {"name": of, "key": of, "origins": [], "busy": time} for of, time in busy]
    return read_trace(written(tmp_path / name, HEAD, *records))

  before = traced("before", *[("large", 100_000)] * 5, ("small", 100))
  after = traced("after", *[("large", 101_000)] * 4, ("large", 9_000_000), ("small", 500))
  rows = {row["name"]: (row["what"], row["mean"]) for row in compared(before, after)["rows"]}
  assert rows == {"large": ("same", [100_000, 101_000]), "small": ("same", [100, 500])}


def test_the_times_of_a_kernel_are_those_of_its_key(tmp_path: Path) -> None:
  with tracing(tmp_path / "t.jsonl"):
    compile_it()
  key = kernel().key[:8].hex()
  made = RECORD | {"name": "copy_16", "origins": []}
  both = tmp_path / "both"
  run = written(tmp_path / "r", HEAD, made | {"key": key}, made | {"key": "another", "busy": 9})
  both.write_text((tmp_path / "t.jsonl").read_text() + run.read_text())
  answers = Answers(read_trace(both))
  assert [unit.key for unit in answers.units] == [key] and answers.time_of(0) == 150


@pytest.mark.parametrize(
  ("lines", "message"),
  [
    ([HEAD | {"profile": 2}], "line 1: version 2 of the profile, this tiny-viz reads version 1"),
    ([HEAD | {"ended": 1}], "line 1: the run ends at 1, before it begins, at 1000"),
    ([HEAD | {"threads": {"a": "b"}}], "line 1: expected threads as number and name, found 'a': 'b'"),
    ([HEAD | {"peaks": {"CPU": {"ops_per_s": "many"}}}], "line 1: expected ops_per_s, a number of at least 0"),
    ([HEAD | {"peaks": {"CPU": 3}}], "line 1: expected the peaks of device 'CPU' as an object, found '3'"),
    ([HEAD, HEAD], "line 2: a second run in one file"),
    ([HEAD, RECORD], "line 2: expected numbers of origins, of which there are 0 so far, found '[0]'"),
    ([HEAD, ORIGIN | {"origin": 1}], "line 2: expected origin 0, found '1'"),
    ([HEAD, RECORD | {"origins": [], "start": -1}], "line 2: expected start, a number of at least 0, found '-1'"),
    ([HEAD, RECORD | {"origins": [], "end": 1}], "line 2: a record ends at 1, before it starts, at 1100"),
    ([HEAD, RECORD | {"origins": [], "ops": 1 << 80}], "line 2: expected ops, a number of at least 0"),
    ([HEAD, RECORD | {"origins": [], "name": ["k"]}], "line 2: expected name, a string"),
    ([HEAD, {"counters": {}, "record": 0}], "line 2: expected numbers of records, of which there are 0 so far"),
    ([HEAD, {"instructions": [[1, 2]]}], "line 2: expected instructions as lists of int, str, found '[1, 2]'"),
    ([HEAD, ["node", "CONST", "int32", [], "1"]], "line 2: a record 'node' of the compiler before its head"),
    ([HEAD, {"tiny-trace": 1, "ir": 1}, {"tiny-trace": 1, "ir": 1}], "line 3: a second compiler's trace in one file"),
    ([HEAD, "[1"], "line 2: expected a record in JSON"),
  ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, lines: list[Any], message: str) -> None:
  path = written(tmp_path / "t", *lines)
  for lazy in (False, True):
    with pytest.raises(TraceError, match=re.escape(f"{path}, {message}")):
      read_trace(path, lazy)


def test_a_node_that_is_wrong_is_refused_when_it_is_looked_at(tmp_path: Path) -> None:
  good, bad = ["node", "CONST", "int32", [], "1"], ["node", "ADD", "int32", [0, 1]]
  path = written(tmp_path / "t", {"tiny-trace": 1, "ir": 1}, good, bad, good)
  trace = read_trace(path, lazy=True)
  assert len(trace.nodes) == 3 and trace.nodes[-1].arg == "1"
  with pytest.raises(
    TraceError, match=re.escape(f"{path}, line 3: node 1 is used before its record: there are 1 so far")
  ):
    trace.nodes[1]


def test_no_control_characters(tmp_path: Path) -> None:
  evil = "\x1b[2J\u202e"
  head = HEAD | {"program": evil, "threads": {"7": evil}}
  run = read_trace(written(tmp_path / "t", head, ORIGIN | {"module": evil}, RECORD | {"name": evil})).run
  assert run is not None
  assert all(text.isprintable() for text in (run.program, run.threads[7], run.origins[0].module, run.records[0].name))


_json = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
  lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
  max_leaves=8,
)
_lines = st.sampled_from(
  [HEAD, ORIGIN, RECORD, {"counters": {}, "record": 0}, {"instructions": []}, {"wave": "w", "record": 0, "rows": []}]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_lines, st.text(max_size=3) | st.sampled_from([*HEAD, *ORIGIN, *RECORD]), _json), max_size=5))
def test_anything_is_read_or_refused(tmp_path: Path, changes: list[tuple[dict[str, Any], str, Any]]) -> None:
  path = written(tmp_path / "t", HEAD, ORIGIN, RECORD, *[line | {key: value} for line, key, value in changes])
  try:
    trace = read_trace(path)
  except TraceError as error:
    assert str(error).startswith(f"{path}, line ")
    return
  run = trace.run
  assert run is not None and all(r.start <= r.end and all(o < len(run.origins) for o in r.origins) for r in run.records)
