"""`python -m tiny_uop`: a filter on text."""

import subprocess
import sys

import pytest

from tiny_uop import KernelInfo, UOp, dtypes, parse_uop, print_uop

i = UOp.range(16, 0)
KERNEL = UOp.sink(UOp.param(0, dtypes.int32.ptr(64)).index((i * 4 + 3) // 4).store(1).end(i), arg=KernelInfo("k"))


def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run([sys.executable, "-m", "tiny_uop", *arguments], input=text, capture_output=True, text=True)


def test_print() -> None:
  result = run("# comment\n" + print_uop(KERNEL), "print")
  assert (result.returncode, result.stdout, result.stderr) == (0, print_uop(KERNEL), "")


def test_simplify() -> None:
  result = run(print_uop(KERNEL), "simplify")
  store = parse_uop(result.stdout).src[0].src[0]
  assert result.returncode == 0 and store.src[0].src[1] is i


def test_check() -> None:
  result = run(print_uop(KERNEL), "check")
  assert (result.returncode, result.stdout) == (0, f"legal at the kernel level: {len(KERNEL.toposort)} nodes\n")


@pytest.mark.parametrize(
  ("text", "arguments", "message"),
  [
    (print_uop(KERNEL), ["check", "--level", "tensor"], "error: illegal at the tensor level"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=open", ["print"], "error: line 2, column 25: unknown word 'open'"),
    ("", ["check"], "error: line 1, column 1"),
  ],
)
def test_errors(text: str, arguments: list[str], message: str) -> None:
  result = run(text, *arguments)
  assert result.returncode == 1 and result.stdout == "" and result.stderr.startswith(message)
