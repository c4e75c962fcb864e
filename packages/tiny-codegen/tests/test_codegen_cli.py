"""`python -m tiny_codegen`: what it reads, writes and refuses."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from codegen_kernels import CASES

from tiny_codegen import PASSES
from tiny_codegen.__main__ import main, parse_opt
from tiny_uop import KernelInfo, Ops, Opt, OptOps, UOp, dtypes, parse_uop, print_uop

Tool = Callable[..., tuple[int, str, str]]
MATMUL = print_uop(CASES["matmul"](4, 8, 4).kernel)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tool:
  """The command line, in this process: (exit status, standard output, standard error) of arguments and input."""

  def run(*arguments: str, text: str = MATMUL) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    status = main(arguments)
    return (status, *capsys.readouterr())

  return run


def schedule_of(*names: str) -> str:
  buffers = [UOp.new_buffer("CPU", 256, dtypes.float32) for _ in range(3)]
  calls = [UOp(Ops.CALL, dtypes.void, (CASES[n]().kernel, *buffers)) for n in names]
  return print_uop(UOp(Ops.LINEAR, dtypes.void, tuple(calls)))


# *** in and out ***


def test_targets(tool: Tool) -> None:
  status, out, _ = tool("--target", "llvm", "--opt", "VECTOR(1,4)", "--opt", "UPCAST(0,2)")
  assert status == 0 and "define void @matmul(" in out
  status, out, _ = tool("--target", "c")
  assert status == 0 and "void tiny_matmul(" in out
  status, out, _ = tool("--triple", "x86_64-linux", "--features", "+avx2,+avx", "--cpu", "haswell")
  assert status == 0 and 'target triple = "x86_64' in out


def test_cache_sizes(tool: Tool) -> None:
  product = print_uop(CASES["matmul"](96, 1024, 400).kernel)
  wide = ("--triple", "x86_64-linux", "--features", "+avx512f,+avx512vl,+fma", "--emit", "program")
  usual, same, large = (
    tool(*wide, *more, text=product) for more in ([], ["--caches", "48K,2M"], ["--caches", "256K,8M,0"])
  )
  assert usual[0] == 0 and usual == same and usual != large
  for wrong in ("48K", "48k,2M", "0,2M", "1,2,3,4"):
    status, _, error = tool("--caches", wrong)
    assert status == 2 and "--caches" in error and "48K,2M,16M" in error


def test_a_program_as_text(tool: Tool) -> None:
  status, out, _ = tool("--emit", "program")
  program = parse_uop(out)
  assert status == 0 and program.op is Ops.PROGRAM and program.src[0] is parse_uop(MATMUL)


def test_files(tool: Tool, tmp_path: Path) -> None:
  (tmp_path / "kernel.uop").write_text(MATMUL)
  assert tool(str(tmp_path / "kernel.uop"), "-o", str(tmp_path / "kernel.ll"), text="") == (0, "", "")
  assert "@matmul(" in (tmp_path / "kernel.ll").read_text()


def test_a_failure_leaves_the_output_as_it_was(tool: Tool, tmp_path: Path) -> None:
  (tmp_path / "kernel.ll").write_text("what was there")
  assert tool("-o", str(tmp_path / "kernel.ll"), "--opt", "UPCAST(0,3)")[0] == 1
  assert (tmp_path / "kernel.ll").read_text() == "what was there"


def test_kernels_of_a_schedule(tool: Tool) -> None:
  text = schedule_of("matmul", "reduce_rows")
  status, out, _ = tool(text=text)
  assert status == 0 and "@matmul(" in out and "@reduce_rows(" in out
  for wanted in ("1", "reduce_rows"):
    status, out, _ = tool("--kernel", wanted, text=text)
    assert status == 0 and "@reduce_rows(" in out and "@matmul(" not in out


def test_a_sink_without_a_name_is_a_kernel(tool: Tool) -> None:
  text = print_uop(CASES["matmul"](4, 8, 4).kernel.replace(arg=None))
  assert "@kernel(" in tool(text=text)[1]


# *** passes ***


def test_list_of_passes(tool: Tool) -> None:
  listed, _, signs = tool("--passes")[1].partition("\n\n")
  lines = listed.splitlines()
  assert [line.split()[0] for line in lines] == [p.name + "*" * p.optional for p in PASSES]
  assert all(line.endswith(".") for line in lines)
  assert signs.startswith("* optional: --skip leaves it out.\nCapitals: operations")


def test_printing(tool: Tool) -> None:
  status, out, err = tool("--print-after", "reduce", "--print-before", "reduce", "--no-opt")
  assert status == 0 and "@matmul(" in out
  _, before, after = err.split("# matmul ")
  assert before.startswith("before reduce\ntiny-uop 1\n") and after.startswith("after reduce\ntiny-uop 1\n")
  assert any(u.op is Ops.REDUCE for u in parse_uop(before.split("\n", 1)[1]).toposort)
  assert not any(u.op is Ops.REDUCE for u in parse_uop(after.split("\n", 1)[1]).toposort)
  assert tool("--print-after", "all")[2].count("# matmul after ") == len(PASSES)


@pytest.mark.parametrize("name", ["matmul", "softmax", "pad_with", "convolution"])
def test_any_two_halves_are_the_whole(name: str, tool: Tool) -> None:
  text = print_uop(CASES[name]().kernel)
  target = ("--triple", "x86_64-linux", "--features", "+avx,+avx2,+fma")
  whole = tool(*target, text=text)[1]
  for step in PASSES:
    status, half, err = tool(*target, "--stop-after", step.name, text=text)
    assert (status, err) == (0, "")
    assert tool(*target, "--start-after", step.name, text=half) == (0, whole, "")


def test_one_pass_after_the_other(tool: Tool) -> None:
  text = MATMUL
  for step in PASSES:
    status, text, _ = tool("--only", step.name, text=text)
    assert status == 0
  assert tool("--start-after", "linearise", text=text)[1] == tool()[1]


def test_optional_passes_can_be_left_out(tool: Tool) -> None:
  text = print_uop(CASES["elementwise"]().kernel)
  loops = [sum(u.op is Ops.RANGE for u in parse_uop(tool("--stop-after", "merge_loops", *skip, text=text)[1]).toposort)
           for skip in ((), ("--skip", "merge_loops"))]  # fmt: skip
  assert loops == [1, 2]


# *** errors ***

BAD = MATMUL.replace("LOAD float32", "LOAD int32", 1)


@pytest.mark.parametrize(
  ("text", "arguments", "status", "message"),
  [
    ("what is this", (), 1, "<stdin>:1:1: expected the header"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=one", (), 1, "<stdin>:2:25: unknown word"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=1", (), 1, "expected a kernel (SINK) or a schedule"),
    (BAD, (), 1, f"<stdin>:{next(i for i, t in enumerate(BAD.splitlines(), 1) if 'LOAD int32' in t)}: illegal at"),
    (MATMUL, ("--opt", "FASTER(1)"), 2, "'FASTER(1)' is no optimisation"),
    (MATMUL, ("--opt", "UPCAST(0,3)"), 1, "PADTO first"),
    (MATMUL, ("--opt", "UPCAST(0,2)", "--no-opt"), 2, "--no-opt and --opt exclude each other"),
    (MATMUL, ("--print-after", "nothing"), 2, "no pass is named nothing: expected one of "),
    (
      MATMUL,
      ("--skip", "reduce"),
      2,
      "no optional pass is named reduce: expected one of clamp_rows, cut_edges, double_buffer, merge_loops,",
    ),
    (MATMUL, ("--start-after", "prefetch"), 2, "SINK is no program"),
    (MATMUL, ("--stop-after", "peel", "--start-after", "peel"), 2, "there is no pass after peel up to peel"),
    (MATMUL, ("missing.uop",), 2, "missing.uop: No such file"),
    (schedule_of("matmul", "reduce_rows"), ("--kernel", "2"), 2, "there is no kernel 2: the schedule has 2"),
    (schedule_of("matmul", "reduce_rows"), ("--kernel", "sum"), 2, "no kernel is named sum: expected one of matmul,"),
    (schedule_of("matmul", "reduce_rows"), ("--stop-after", "peel"), 2, "choose one of the 2 kernels with --kernel"),
  ],
)
def test_errors(tool: Tool, text: str, arguments: tuple[str, ...], status: int, message: str) -> None:
  found, out, err = tool(*arguments, text=text)
  assert (found, out) == (status, "") and err.startswith("tiny_codegen: ") and message in err
  assert err.count("\n") == 1


def test_a_program_is_only_rendered(tool: Tool) -> None:
  text = tool("--stop-after", "linearise")[1]
  assert "is a program already" in tool(text=text)[2]
  assert "a PROGRAM records its kernel" in tool("--start-after", "linearise", "--emit", "program", text=text)[2]


def test_parse_opt() -> None:
  assert parse_opt("vector(1, 8)") == Opt(OptOps.VECTOR, 1, 8)
  assert parse_opt("STAGE(2,(0,3))") == Opt(OptOps.STAGE, 2, (0, 3))
  assert parse_opt("THREAD(0)") == Opt(OptOps.THREAD, 0, None)
  assert parse_opt("NOLOCALS()") == Opt(OptOps.NOLOCALS)
  assert parse_opt("STAGE(None, (3, 1))") == Opt(OptOps.STAGE, None, (3, 1)) and parse_opt("TC(2,None)") == Opt(
    OptOps.TC, 2
  )


def test_a_kernel_keeps_its_own_optimisations(tool: Tool) -> None:
  own = CASES["matmul"](4, 8, 4).kernel.replace(arg=KernelInfo("matmul", (Opt(OptOps.UPCAST, 0, 2),)))
  program = parse_uop(tool("--emit", "program", text=print_uop(own))[1])
  assert program.src[1].arg.opts == (Opt(OptOps.UPCAST, 0, 2),)
