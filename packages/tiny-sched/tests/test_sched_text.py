"""Text in, text out: every pass, and the way from graph to schedule as a whole, by the files in `golden/`, which
`UPDATE_GOLDEN=1` writes anew; and `python -m tiny_sched`.

Options of a file: `pass` (`schedule` for all of them) and `shows` (what to look at).
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tiny_sched import PASSES, schedule
from tiny_sched.__main__ import main
from tiny_uop import Context, Ops, UOp, dtypes, parse_uop, print_uop, spec
from tiny_uop.text.golden import GoldenCase, golden_cases

CASES = golden_cases(Path(__file__).parent / "golden")
Tool = Callable[..., tuple[int, str, str]]
SOFTMAX = next(case for case in CASES if str(case) == "schedule-softmax").given


def with_numbered_arenas(root: UOp) -> UOp:
  """Arenas get ids that do not depend on what ran before."""
  arenas = dict.fromkeys(u.src[0] for u in root.toposort if u.op is Ops.BUFFER_VIEW and u.src[0].dtype is dtypes.uint8)
  return root.substitute({a: a.replace(arg=(900 + i, a.arg[1])) for i, a in enumerate(arenas)})


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tool:
  """The command line, in this process: (exit status, standard output, standard error) of arguments and input."""

  def run(*arguments: str, text: str = "") -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    status = main(arguments)
    return (status, *capsys.readouterr())

  return run


# *** every pass ***


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden(case: GoldenCase, tool: Tool) -> None:
  name = case.options["pass"]
  with Context(SPEC=1):
    devices = case.options.get("local_memory", "")
    status, out, err = tool(
      *([] if name == "schedule" else ["--only", name]), "--local-memory", devices, text=case.given
    )
  assert (status, err) == (0, "")
  result = with_numbered_arenas(parse_uop(out))
  spec.check(result, "tensor" if result.op is Ops.SINK else "schedule")
  case.check(print_uop(result))


def test_every_pass_has_a_typical_case_and_another() -> None:
  counts = Counter(case.options["pass"] for case in CASES)
  assert counts.keys() == {p.name for p in PASSES} | {"schedule"}
  assert {name: count for name, count in counts.items() if count < 2} == {}


def test_cases_say_what_they_show() -> None:
  assert [case.path.name for case in CASES if not case.options.get("shows")] == []
  assert [case.path.name for case in CASES if not case.path.name.startswith(case.options["pass"] + "-")] == []


# *** the command line ***


def test_filter_in_another_process() -> None:
  done = subprocess.run([sys.executable, "-m", "tiny_sched"], input=SOFTMAX, capture_output=True, text=True, check=True)
  here, there = schedule(parse_uop(SOFTMAX)), parse_uop(done.stdout)
  assert [c.src[0] for c in there.src] == [c.src[0] for c in here.src]


@pytest.mark.parametrize("case", [c for c in CASES if c.options["pass"] == "schedule"], ids=str)
def test_any_two_halves_are_the_whole(case: GoldenCase, tool: Tool) -> None:
  whole = with_numbered_arenas(parse_uop(tool(text=case.given)[1]))
  for step in PASSES[:-1]:
    status, half, _ = tool("--stop-after", step.name, text=case.given)
    assert status == 0
    status, rest, _ = tool("--start-after", step.name, text=half)
    assert status == 0 and with_numbered_arenas(parse_uop(rest)) is whole


def test_arena_of_the_filter_is_no_buffer_of_the_graph(tmp_path: Path) -> None:
  graph = tmp_path / "graph.uop"
  for number in range(1, 4):  # ids that a fresh process would give to an arena
    device = UOp(Ops.DEVICE, arg="CPU")
    x = UOp(Ops.BUFFER, dtypes.uint8, (device,), (number, 256))
    out = UOp(Ops.BUFFER, dtypes.uint8, (device,), (number + 50, 256))
    graph.write_text(print_uop(UOp.sink(out.assign((x + 1).contiguous().flip((0,)) + 1))))
    done = subprocess.run([sys.executable, "-m", "tiny_sched", str(graph)], capture_output=True, text=True, check=True)
    first, second = parse_uop(done.stdout).src
    assert first.src[2] is x and first.src[1].src[0] is not x and second.src[1] is out


def test_files_in_and_out(tool: Tool, tmp_path: Path) -> None:
  given, made = tmp_path / "graph.uop", tmp_path / "schedule.uop"
  given.write_text(SOFTMAX)
  assert tool(str(given), "-o", str(made)) == (0, "", "")
  assert parse_uop(made.read_text()).op is Ops.LINEAR
  assert tool("-", "-o", "-", text=SOFTMAX)[1].startswith("tiny-uop 1\n")


def test_passes_are_listed_and_shown(tool: Tool) -> None:
  status, out, _ = tool("--passes")
  listed, _, signs = out.partition("\n\n")
  assert status == 0 and [line.split()[0] for line in listed.splitlines()] == [p.name for p in PASSES]
  assert signs.startswith("Capitals: operations") and "optional" not in signs
  status, out, err = tool("--print-after", "simplify", "--print-before", "memory", text=SOFTMAX)
  assert status == 0 and parse_uop(out).op is Ops.LINEAR
  _, first, second = err.split("# graph ")
  assert first.startswith("after simplify\ntiny-uop 1\n") and second.startswith("before memory\ntiny-uop 1\n")
  assert parse_uop(first.split("\n", 1)[1]).op is Ops.SINK and parse_uop(second.split("\n", 1)[1]).op is Ops.LINEAR
  assert tool("--print-after", "all", text=SOFTMAX)[2].count("# graph after") == len(PASSES)


ILLEGAL = 'tiny-uop 1\n%0 = DEVICE void () arg="CPU"\n%1 = BUFFER int32 (%0) arg=(1, 4)\n%2 = SHL int32 (%1)\n'


@pytest.mark.parametrize(
  ("text", "arguments", "status", "message"),
  [
    ("no graph\n", (), 1, "<stdin>:1:1: expected the header"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=one\n", (), 1, "<stdin>:2:25: unknown word 'one'"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=1\n", (), 1, "the pass devices takes a graph or a kernel (SINK), got CONST"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=1\n%1 = SINK void (%0)", (), 1, "has no buffer"),
    (ILLEGAL + "%3 = SINK void (%2)", (), 1, "<stdin>:4: illegal at the tensor level: SHL"),
    (SOFTMAX, ("--start-after", "kernels"), 1, "the pass memory takes a schedule or a program (LINEAR), got SINK"),
    (
      SOFTMAX,
      ("--only", "fuse"),
      2,
      "no pass is named fuse: expected one of devices, simplify, stack, blocks, kernels, memory",
    ),
    (SOFTMAX, ("--print-after", "fuse"), 2, "no pass is named fuse"),
    (SOFTMAX, ("--start-after", "memory"), 2, "there is no pass after memory"),
    (SOFTMAX, ("--only", "kernels", "--stop-after", "memory"), 2, "leave out --start-after and --stop-after"),
    ("", ("missing.uop",), 2, "missing.uop: No such file"),
    (SOFTMAX, ("-o", "/missing/directory"), 2, "/missing/directory: No such file"),
  ],
)
def test_errors(tool: Tool, text: str, arguments: tuple[str, ...], status: int, message: str) -> None:
  found, out, err = tool(*arguments, text=text)
  assert (found, out) == (status, "") and err.startswith("tiny_sched: ") and message in err


# *** the function ***


def test_debug_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
  graph = parse_uop(SOFTMAX)
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
