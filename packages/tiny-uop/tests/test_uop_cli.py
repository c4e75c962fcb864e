"""`python -m tiny_uop`: what it reads, writes and refuses."""

from __future__ import annotations

import io
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tiny_uop import KernelInfo, Ops, PatternMatcher, UOp, dtypes, parse_uop, print_uop, symbolic
from tiny_uop.__main__ import main
from tiny_uop.symbolic.simplify import TABLES

Tool = Callable[..., tuple[int, str, str]]
i = UOp.range(16, 0)
x = UOp.variable("x", 0, 15)
KERNEL = UOp.sink(UOp.param(0, dtypes.int32.ptr(64)).index((i * 4 + 3) // 4).store(1).end(i), arg=KernelInfo("k"))
OTHER = UOp.sink(UOp.param(0, dtypes.int32.ptr(64)).index(i).store(2).end(i), arg=KernelInfo("other"))
BUFFER = UOp.new_buffer("CPU", 64, dtypes.int32)
SCHEDULE = UOp(Ops.LINEAR, src=tuple(UOp(Ops.CALL, src=(k, BUFFER)) for k in (KERNEL, OTHER, KERNEL)))


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tool:
  """The command line, in this process: (exit status, standard output, standard error) of arguments and input."""

  def run(*arguments: str, text: str | bytes | UOp = KERNEL) -> tuple[int, str, str]:
    if isinstance(text, UOp):
      text = print_uop(text)
    data = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status = main(arguments)
    return (status, *capsys.readouterr())

  return run


def test_a_filter_in_another_process(tmp_path: Path) -> None:
  command = [sys.executable, "-m", "tiny_uop", "print"]
  done = subprocess.run(command, input="# comment\n" + print_uop(KERNEL), capture_output=True, text=True)
  assert (done.returncode, done.stdout, done.stderr) == (0, print_uop(KERNEL), "")


def test_a_reader_that_stops_early_is_no_error() -> None:
  long = print_uop(UOp.sink(*[x + n for n in range(20_000)]))
  with subprocess.Popen(
    [sys.executable, "-m", "tiny_uop", "print"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
  ) as process:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(long.encode())
    process.stdin.close()
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""


def test_check(tool: Tool) -> None:
  assert tool("check") == (0, f"legal at the kernel level: {len(KERNEL.toposort)} nodes\n", "")
  assert tool("check", text=SCHEDULE)[1].startswith("legal at the schedule level")
  assert tool("check", text=x)[1].startswith("legal at the tensor level")


def test_print_for_people(tool: Tool) -> None:
  status, out, _ = tool("print", "--render")
  assert status == 0 and out == (
    "kernel k\n  p0: ptr<int32, 64, global>\n  r0 < 16 (loop)\n  for r0: p0[(r0*4 + 3)//4] = 1\n"
  )


def test_files(tool: Tool, tmp_path: Path) -> None:
  (tmp_path / "in.uop").write_text(print_uop(KERNEL))
  assert tool("print", str(tmp_path / "in.uop"), "-o", str(tmp_path / "out.uop"), text="") == (0, "", "")
  assert parse_uop((tmp_path / "out.uop").read_text()) is KERNEL


# *** simplify ***


def test_simplify(tool: Tool) -> None:
  status, out, _ = tool("simplify")
  assert status == 0 and parse_uop(out).src[0].src[0].src[0].src[1] is i


def test_simplify_with_one_table_or_rule(tool: Tool) -> None:
  u = UOp(Ops.ADD, dtypes.index, (x * 4 // 4, UOp.const(dtypes.index, 0)))
  assert parse_uop(tool("simplify", text=u)[1]) is x
  assert parse_uop(tool("simplify", "--table", "sums", text=u)[1]) is x * 4 // 4
  assert parse_uop(tool("simplify", "--rule", "int_add_zero", text=u)[1]) is x * 4 // 4
  assert parse_uop(tool("simplify", "--table", "divmod", "--rule", "div_constant", text=u)[1]) is u.replace(
    src=(x, u.src[1])
  )
  assert parse_uop(tool("simplify", "--table", "divmod", "--table", "sums", "--top-down", text=u)[1]) is x


def test_tables_of_other_modules(tool: Tool) -> None:
  status, out, _ = tool("simplify", "--table", "tiny_uop.symbolic.divmod:RULES", "--list-rules")
  assert status == 0 and out.splitlines() == [rule.name for rule in TABLES["divmod"].rules]


def test_lists(tool: Tool) -> None:
  assert [line.split()[0] for line in tool("simplify", "--list-tables")[1].splitlines()] == list(TABLES)
  assert "int_add_zero" in tool("simplify", "--list-rules")[1].splitlines()


def test_every_table_of_the_simplifier_has_a_name() -> None:
  modules = [import_module(f"{symbolic.__name__}.{m.name}") for m in pkgutil.iter_modules(symbolic.__path__)]
  tables = {id(t): f"{m.__name__}.{n}" for m in modules for n, t in vars(m).items() if isinstance(t, PatternMatcher)}
  assert {tables[key] for key in tables.keys() - {id(t) for t in TABLES.values()}} == set()


# *** diff ***


def test_diff(tool: Tool, tmp_path: Path) -> None:
  a, b = tmp_path / "a.uop", tmp_path / "b.uop"
  a.write_text(print_uop(x * 4 + 1))
  b.write_text(print_uop(x * 8 + 1))
  assert tool("diff", str(a), str(a)) == (0, "", "")
  status, out, err = tool("diff", str(a), str(b))
  assert (status, err) == (1, "") and out == (
    f"--- {a}\n+++ {b}\n@@ 5 nodes, 5 nodes: 0 removed, 0 added, 1 changed @@\n"
    "-%1 = CONST index () arg=4\n+%1 = CONST index () arg=8\n"
  )
  assert tool("diff", "-", str(b), text=x * 4 + 1)[0] == 1
  b.write_text("tiny-uop 1\n%0 = FOO\n")
  status, out, err = tool("diff", str(a), str(b))
  assert (status, out) == (2, "") and f"{b}:2:6: unknown operation FOO" in err


# *** kernels ***


def test_kernels_of_a_schedule(tool: Tool) -> None:
  status, out, _ = tool("kernels", text=SCHEDULE)
  assert status == 0 and [line.split()[:2] for line in out.splitlines()] == [["0", "k"], ["1", "other"]]
  assert "called 2×" in out.splitlines()[0]
  for wanted in ("1", "other"):
    assert parse_uop(tool("kernels", "--take", wanted, text=SCHEDULE)[1]) is OTHER


# *** errors ***


@pytest.mark.parametrize(
  ("text", "arguments", "status", "message"),
  [
    (KERNEL, ["check", "--level", "tensor"], 1, "<stdin>:2: illegal at the tensor level"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=open", ["print"], 1, "<stdin>:2:25: unknown word 'open'"),
    ("", ["check"], 1, "<stdin>:1:1: the text has no nodes"),
    (b"tiny-uop 1\n# \xc3\xa9 \xff\n", ["check"], 1, "<stdin>:2:5: byte 0xff is not UTF-8"),
    ("tiny-uop 1\n%0 = ADD int32 ()", ["simplify"], 1, "<stdin>:2: illegal at the any level: ADD"),
    (KERNEL, ["simplify", "--table", "magic"], 2, "no table is named magic: expected one of simplify, plain"),
    (KERNEL, ["simplify", "--table", "tiny_uop.nothing:RULES"], 2, "no table tiny_uop.nothing:RULES"),
    (KERNEL, ["simplify", "--table", "tiny_uop.text.print:HEADER"], 2, "is a str, expected a PatternMatcher"),
    (KERNEL, ["simplify", "--rule", "int_add_nothing"], 2, "no rule is named int_add_nothing: expected one of int_add"),
    (KERNEL, ["kernels"], 2, "expected a schedule (LINEAR of CALLs), got SINK"),
    (SCHEDULE, ["kernels", "--take", "2"], 2, "no kernel is named 2: expected one of 0, 1, k, other"),
    (KERNEL, ["print", "missing.uop"], 2, "missing.uop: No such file"),
  ],
)  # fmt: skip
def test_errors(tool: Tool, text: str | bytes | UOp, arguments: list[str], status: int, message: str) -> None:
  found, out, err = tool(*arguments, text=text)
  assert (found, out) == (status, "") and err.startswith("tiny_uop: ") and message in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["explain"], ["check", "--level", "machine"], ["diff", "one"]])
def test_command_lines_that_say_nothing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
  with pytest.raises(SystemExit) as caught:
    main(arguments)
  assert caught.value.code == 2 and "usage: python -m tiny_uop" in capsys.readouterr().err


def test_bounds(tool: Tool) -> None:
  nodes = len(KERNEL.toposort)
  assert tool("check", "--bounds") == (
    0,
    f"legal at the kernel level: {nodes} nodes, all accesses to memory in bounds\n",
    "",
  )
  assert tool("check", "--bounds", text=SCHEDULE)[1].endswith("nodes, all accesses to memory in bounds\n")
  wrong = KERNEL.substitute({i: UOp.range(65, 0)})
  status, out, err = tool("check", "--bounds", text=wrong)
  assert (status, out) == (1, "") and tool("check", text=wrong)[0] == 0
  line = 2 + wrong.toposort.index(next(u for u in wrong.toposort if u.op is Ops.STORE))
  assert (
    err.splitlines()[0] == f"tiny_uop: <stdin>:{line}: kernel 'k': STORE at PARAM 0[(r0*4 + 3)//4] is out of bounds"
  )
  assert "  counter-example: r0 = 64: element 64" in err
  status, _, err = tool("check", "--bounds", text=x + 1)
  assert status == 2 and "--bounds is about kernels, schedules and programs" in err
