"""Text in, text out: graphs golden/NAME.uop, schedules golden/NAME.out, which UPDATE_GOLDEN=1 rewrites."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_sched import schedule
from tiny_sched.__main__ import main
from tiny_uop import Context, Ops, UOp, dtypes, parse_uop, print_uop

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.uop"))


def with_numbered_arenas(linear: UOp) -> UOp:
  """Arenas get ids that do not depend on what ran before."""
  arenas = dict.fromkeys(a.src[0] for c in linear.src for a in c.src[1:] if a.op is Ops.BUFFER_VIEW)
  fresh = [a for a in arenas if a.dtype is dtypes.uint8]
  return linear.substitute({a: a.replace(arg=(900 + i, a.arg[1])) for i, a in enumerate(fresh)})


def test_there_are_cases() -> None:
  assert len(CASES) >= 6


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
  graph = parse_uop((GOLDEN / f"{name}.uop").read_text())
  with Context(SPEC=1):
    text = print_uop(with_numbered_arenas(schedule(graph)))
  expected = GOLDEN / f"{name}.out"
  if os.environ.get("UPDATE_GOLDEN") == "1":
    expected.write_text(text.rstrip("\n") + "\n")
  assert text.rstrip("\n") == expected.read_text().rstrip("\n"), f"{name}: UPDATE_GOLDEN=1 rewrites {expected.name}"
  assert parse_uop(expected.read_text()).op is Ops.LINEAR


def test_filter_in_another_process() -> None:
  graph = (GOLDEN / "softmax.uop").read_text()
  done = subprocess.run([sys.executable, "-m", "tiny_sched"], input=graph, capture_output=True, text=True, check=True)
  here, there = schedule(parse_uop(graph)), parse_uop(done.stdout)
  assert [c.src[0] for c in there.src] == [c.src[0] for c in here.src]


def test_arena_of_the_filter_is_no_buffer_of_the_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
  graph = tmp_path / "graph.uop"
  for number in range(1, 4):  # ids that a fresh process would give to an arena
    device = UOp(Ops.DEVICE, arg="CPU")
    x = UOp(Ops.BUFFER, dtypes.uint8, (device,), (number, 256))
    out = UOp(Ops.BUFFER, dtypes.uint8, (device,), (number + 50, 256))
    graph.write_text(print_uop(UOp.sink(out.assign((x + 1).contiguous().flip((0,)) + 1))))
    done = subprocess.run([sys.executable, "-m", "tiny_sched", str(graph)], capture_output=True, text=True, check=True)
    first, second = parse_uop(done.stdout).src
    assert first.src[2] is x and first.src[1].src[0] is not x and second.src[1] is out


def test_filter_reports_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(sys, "stdin", io.StringIO("tiny-uop 1\n%0 = CONST int32 () arg=1\n"))
  assert main([]) == 1 and "takes a SINK" in capsys.readouterr().err
  monkeypatch.setattr(sys, "stdin", io.StringIO("no graph\n"))
  assert main([]) == 1 and "tiny_sched:" in capsys.readouterr().err


def test_debug_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
  graph = parse_uop((GOLDEN / "softmax.uop").read_text())
  with Context(DEBUG=1):
    schedule(graph)
    schedule(graph)
  lines = capsys.readouterr().err.splitlines()
  assert lines[0].endswith("cache miss") and lines[1].endswith("cache hit") and "1 calls" in lines[0]


def test_spec_check_is_on_request() -> None:
  x = UOp.new_buffer("CPU", 4, dtypes.float32)
  bad = UOp.sink(x.assign(UOp(Ops.SHL, dtypes.float32, (x, x))))
  with Context(SPEC=1), pytest.raises(Exception, match="SHL"):
    schedule(bad)


def test_example_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
  code = (Path(__file__).parents[1] / "README.md").read_text().split("```python\n")[1].split("```")[0]
  exec(code, {})
  assert capsys.readouterr().out.strip() == code.rsplit("# ", 1)[1].strip()
