"""Reading traces: what comes back is what was recorded; damaged, cut off and hostile files give clear errors."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from viz_compiler import compile_it, kernel

from tiny_uop import UOp, dtypes, simplify
from tiny_uop.observe import span, tracing
from tiny_viz import Graphs, TraceError, read_trace
from tiny_viz.__main__ import main

HEADER = '{"tiny-trace": 1, "ir": 1, "program": ["p"], "process": 1, "started": "now"}'


def written(path: Path, *records: Any, header: str = HEADER) -> Path:
  """A trace put together by hand."""
  path.write_text("\n".join([header, *[r if isinstance(r, str) else json.dumps(r) for r in records]]) + "\n")
  return path


def test_what_was_recorded_comes_back(trace_file: Path) -> None:
  trace = read_trace(trace_file)
  graphs = Graphs(trace)
  assert trace.complete and trace.truncated is None and len(trace.steps) == 2
  (root,) = trace.roots()
  assert (root.kind, root.name) == ("kernel", "copy_16")
  assert [(c.kind, c.name) for c in root.children] == [("pass", "simplify"), ("pass", "rename")]
  assert root.before is not None and graphs.uop(root.before) is kernel()
  first = root.children[0]
  assert first.after is not None and graphs.uop(first.after) is simplify(kernel())
  assert graphs.count(root.before) == len(kernel().toposort)
  assert root.seconds is not None and first.seconds is not None and 0 < first.seconds < root.seconds
  assert (
    [s.rule.name for s in root.all_steps()] == [s.rule.name for s in trace.steps] == ["int_add_zero", "div_constant"]
  )
  before, after = graphs.whole(trace.steps[1])
  assert before is graphs.whole(trace.steps[0])[1] and after is simplify(kernel())


def test_a_deep_graph(tmp_path: Path) -> None:
  deep = UOp.variable("x", 0, 15)
  for k in range(5_000):
    deep = deep + deep.const_like(k)
  with tracing(tmp_path / "deep.jsonl"), span("pass", "p", deep) as work:
    work.gives(deep + deep)
  trace = read_trace(tmp_path / "deep.jsonl")
  (root,) = trace.roots()
  assert root.before is not None and Graphs(trace).uop(root.before) is deep
  assert Graphs(trace).count(root.after) == len(deep.toposort) + 1


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.other"])
def test_compressed_or_not(tmp_path: Path, name: str) -> None:
  path = tmp_path / name
  with tracing(path):
    compile_it()
  assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
  assert len(read_trace(path).steps) == 2


def test_a_class_that_is_not_known_here(tmp_path: Path) -> None:
  path = written(
    tmp_path / "t",
    ["node", "PARAM", "ptr<float32, 4, global>", [], "0"],
    ["node", "MMA", "float32x4", [0], 'TheirCore(name="x", size=(1, 2))'],
    ["begin", None, "pass", "p", 1, 0, 1],
  )
  graph = Graphs(read_trace(path)).uop(1)
  assert graph.arg == 'TheirCore(name="x", size=(1, 2))' and graph.dtype is dtypes.float32.vec(4)


# *** files that end early ***


def test_cut_off_at_its_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  with tracing(tmp_path / "t.jsonl", limit=4000):
    for _ in range(40):
      compile_it()
  assert read_trace(tmp_path / "t.jsonl").truncated == 4000
  assert main([str(tmp_path / "t.jsonl")]) == 0
  out = capsys.readouterr().out
  assert "cut off at 0.004 MB" in out and "VIZ_LIMIT" in out and "copy_16" in out
  assert main([str(tmp_path / "t.jsonl"), "--stats"]) == 0
  assert re.search(r" 40 / 40 .* div_constant ", capsys.readouterr().out)


@pytest.mark.parametrize("packed", [False, True])
def test_every_beginning_of_a_trace(trace_file: Path, packed: bool) -> None:
  """A program that was killed leaves a part of its trace: it is read, or refused with an error that names the line."""
  data = trace_file.read_bytes()
  data = gzip.compress(data) if packed else data
  part = trace_file.with_name("part")
  steps = set()
  for end in range(0, len(data), 5):
    part.write_bytes(data[:end])
    try:
      trace = read_trace(part)
    except TraceError as error:
      assert packed or end <= data.index(b"\n")
      assert "line 1: the file is empty" in str(error)
      continue
    assert packed or not trace.complete
    steps.add(len(trace.steps))
    main([str(part)])
  assert steps <= {0, 1, 2} and (packed or steps == {0, 1, 2})


def test_a_killed_program_is_mentioned(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
  lines = trace_file.read_text().splitlines(keepends=True)
  cut = next(i for i, line in enumerate(lines) if line.startswith('["end"'))
  part = trace_file.with_name("part")
  part.write_text("".join(lines[:cut]))
  assert main([str(part)]) == 0
  out = capsys.readouterr().out
  assert "the program was ended before it could complete the trace" in out and "not over" in out
  assert main([str(part), "--stats"]) == 1 and "no statistics" in capsys.readouterr().err
  assert main([str(part), "--pass", "simplify", "--graph", "after"]) == 1
  assert "does not have both graphs" in capsys.readouterr().err


# *** hostile files ***

NODE = ["node", "CONST", "int32", [], "1"]
BEGIN = ["begin", None, "pass", "p", None, 0, 1]
RULE = ["rule", "t", "r", ""]


@pytest.mark.parametrize(
  ("records", "message"),
  [
    (["{}"], "line 2: expected a list that begins with a word, found b'{}'"),
    (["[]"], "line 2: expected a list"),
    (["[1]"], "line 2: expected a list"),
    (["nonsense"], "line 2: expected a record in JSON, found b'nonsense'"),
    (["[" * 100_000], "line 2: expected a record in JSON"),
    (["[" + "9" * 5000 + "]"], "line 2: expected a record in JSON"),
    ([["new", 1]], "line 2: unknown record 'new': expected one of node, rule"),
    ([["node"]], "line 2: a 'node' record has 3 fields, found 0"),
    ([["node", "CONST", "int32", [0]]], "line 2: node 0 is used before its record: there are 0 so far"),
    ([NODE, ["node", "ADD", "int32", [0, -1]]], "line 3: expected the number of a node, a number of at least 0"),
    ([NODE, ["node", "ADD", "int32", [0, True]]], "line 3: expected the number of a node"),
    ([NODE, ["node", "ADD", "int32", [0, 10**30]]], "line 3: node 1000000000000000000000000000000 is used before"),
    ([["node", "CONST", "int32", "x"]], "line 2: expected the sources of a node, a list"),
    ([["node", 3, "int32", []]], "line 2: expected text for operation"),
    ([["node", "CONST", "int32", [], 7]], "line 2: expected text for operation"),
    ([["begin", 0, "pass", "p", None, 0, 1]], "line 2: span 0 is used before"),
    ([["begin", None, "pass", "p", 0, 0, 1]], "line 2: node 0 is used before"),
    ([["begin", None, "pass", "p", None, "soon", 1]], "line 2: expected a time in microseconds, found 'soon'"),
    (['["begin", null, "pass", "p", null, NaN, 1]'], "line 2: expected a time"),
    (['["begin", null, "pass", "p", null, 1e999, 1]'], "line 2: expected a time"),
    ([["begin", None, ["pass"], "p", None, 0, 1]], "line 2: expected a kind, a string"),
    ([BEGIN, ["end", 0, None, 1], ["end", 0, None, 1]], "line 4: span 0 ends twice"),
    ([["end", 0, None, 1]], "line 2: span 0 is used before"),
    ([["rewrite", None, 0, 0, 0, 0, 0]], "line 2: rule 0 is used before"),
    ([RULE, ["rewrite", None, 0, 0, 0, 0, 0]], "line 3: node 0 is used before"),
    ([RULE, ["stats", 0, 1, "many", 0, 0]], "line 3: expected attempts, a number"),
    ([["truncated", None, 0]], "line 2: expected the limit, a number"),
    ([["complete"]], "line 2: a 'complete' record has 1 fields"),
  ],
)  # fmt: skip
def test_records_that_are_wrong(
  tmp_path: Path, records: list[Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
  path = written(tmp_path / "t", *records)
  with pytest.raises(TraceError) as caught:
    read_trace(path)
  assert str(caught.value).startswith(f"{path}, ") and message in str(caught.value)
  assert main([str(path)]) == 1
  printed = capsys.readouterr()
  assert printed.out == "" and printed.err.startswith("error: ") and len(printed.err) < 400


@pytest.mark.parametrize(
  ("header", "message"),
  [
    ("tiny-uop 1", "line 1: expected a record in JSON"),
    ("[1, 2]", "line 1: this is not a trace"),
    ("{}", "a trace is what a program run with VIZ=-1 saves"),
    ('{"tiny-trace": 2, "ir": 1}', "version 2 of the trace format, this tiny-viz reads version 1"),
    ('{"tiny-trace": 1, "ir": 7}', "version 7 of the IR, this tiny-viz reads version 1"),
    ('{"tiny-trace": 1}', "version None of the IR"),
  ],
)
def test_other_files_and_versions(tmp_path: Path, header: str, message: str) -> None:
  with pytest.raises(TraceError, match=re.escape(message)):
    read_trace(written(tmp_path / "t", header=header))


@pytest.mark.parametrize(
  "node",
  [
    ["node", "SYSTEM", "int32", []],
    ["node", "CONST", "int32); import os", []],
    ["node", "CONST", "int32", [], "__import__('os').system('true')"],
    ["node", "CONST", "int32", [], "1 tag=2", "3"],
    ["node", "CONST", "int32", [], "(" * 10_000],
    ["node", "CONST\n%7 = CONST", "int32", []],
  ],
)
def test_nodes_that_are_not_of_the_ir(tmp_path: Path, node: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
  """They are refused when they are looked at; of an argument that does not parse, the text is shown."""
  path = written(tmp_path / "t", node, RULE, ["rewrite", None, 0, 0, 0, 0, 0])
  assert main([str(path)]) == 0
  capsys.readouterr()
  status = main([str(path), "--graph", "0", "before"])
  out, err = capsys.readouterr()
  if status:
    assert err.startswith("error: node 0 of the trace is not of the IR: line 1, column ") and out == ""
  else:
    assert f"arg={json.dumps(node[4])}" in out


def test_rewrites_that_go_in_a_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  path = written(
    tmp_path / "t",
    NODE, ["node", "CONST", "int32", [], "2"], ["begin", None, "table", "t", 0, 0, 1], RULE,
    ["rewrite", 0, 0, 0, 1, 0, 0], ["rewrite", 0, 0, 1, 0, 0, 0],
  )  # fmt: skip
  assert main([str(path), "--step", "0", "--whole"]) == 0
  assert main([str(path), "--step", "1", "--whole"]) == 1
  assert "the rewrites of t in the trace contradict each other" in capsys.readouterr().err


def test_no_control_characters_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  evil = "\x1b[2J\r\nname\u202e"
  path = written(
    tmp_path / "t",
    ["node", "VARIABLE", "index", [], f"({json.dumps(evil)}, 0, 7)"],
    ["begin", None, "kernel", evil, 0, 0, 1],
    ["begin", 0, "pass", evil, 0, 0, 1],
    ["rule", evil, evil, evil],
    ["rewrite", 1, 0, 0, 0, 0, 0],
    ["stats", 0, 1, 1, 0, 0],
    header='{"tiny-trace": 1, "ir": 1, "program": ["\\u001b[2J"], "process": "\\u001b[2J", "started": "\\u001b[2J"}',
  )
  for arguments in ([], ["--kernel", "0"], ["--kernel", "0", "--pass", "0"], ["--step", "0"], ["--stats"]):
    main([str(path), *arguments])
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err), arguments


def test_a_small_file_with_a_long_line(tmp_path: Path) -> None:
  path = tmp_path / "bomb.jsonl.gz"
  packer = zlib.compressobj(9, wbits=31)
  block = b"[" * (1 << 20)
  data = [packer.compress(HEADER.encode() + b"\n"), *[packer.compress(block) for _ in range(64)], packer.flush()]
  path.write_bytes(b"".join(data))
  assert path.stat().st_size < 100_000
  with pytest.raises(TraceError, match="line 1: a line is longer than"):
    read_trace(path)


def test_damaged_compression(tmp_path: Path) -> None:
  path = tmp_path / "t.jsonl.gz"
  with tracing(path):
    compile_it()
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 0xFF
  path.write_bytes(data)
  with pytest.raises(TraceError, match="damaged|JSON|record"):
    read_trace(path)


_json = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
  lambda inner: st.lists(inner, max_size=4),
  max_leaves=8,
)
_kinds = st.sampled_from(["node", "rule", "begin", "end", "rewrite", "stats", "truncated", "complete", "other"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_kinds, st.lists(_json, max_size=6)), max_size=6), st.binary(max_size=20))
def test_anything_is_read_or_refused(tmp_path: Path, records: list[tuple[str, list[Any]]], end: bytes) -> None:
  path = written(tmp_path / "t", ["node", "CONST", "int32", [], "1"], RULE, BEGIN, *[[k, *v] for k, v in records])
  path.write_bytes(path.read_bytes() + end)
  try:
    trace = read_trace(path)
  except TraceError:
    return
  for number in range(len(trace.nodes)):
    try:
      Graphs(trace).uop(number)
    except TraceError:
      pass
