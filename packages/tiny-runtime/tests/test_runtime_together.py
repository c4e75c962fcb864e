"""The kernels of a schedule are compiled several at once, and it shows nowhere but in the time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tiny_runtime import Binary, CompileError, run
from tiny_runtime.ref import RefCompiler
from tiny_uop import Context, UOp


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
  """(kernel, thread) of each compilation. Kernels called `slow…` wait until there are two of them; `bad…` fail."""
  seen: list[tuple[str, str]] = []
  both, inner = threading.Barrier(2), RefCompiler.compile

  def compile(self: RefCompiler, kernel: UOp, measure: Any = None) -> Binary:
    name = kernel.arg.name
    seen.append((name, threading.current_thread().name))
    if name.startswith("slow"):
      both.wait(20)
    if name.startswith("bad"):
      raise CompileError(f"{name} cannot be compiled", "source")
    return inner(self, kernel, measure)

  monkeypatch.setattr(RefCompiler, "compile", compile)
  return seen


def test_two_kernels_at_once(kernels: Any, compiling: list[tuple[str, str]]) -> None:
  x, y, z = kernels.buffer([1.0]), kernels.buffer(size=1), kernels.buffer(size=1)
  run(kernels.linear(kernels.add(y, x, 1.0, "slow1"), kernels.add(z, y, 2.0, "slow2")))  # one by one it would not end
  assert kernels.values(z) == [4.0] and len({thread for _, thread in compiling}) == 2
  run(kernels.linear(kernels.add(z, x, 1.0, "slow1"), kernels.add(y, z, 2.0, "slow2")))
  assert len(compiling) == 2 and kernels.values(y) == [4.0]


def test_one_kernel_is_compiled_here(kernels: Any, compiling: list[tuple[str, str]]) -> None:
  x, y = kernels.buffer([1.0]), kernels.buffer(size=1)
  run(kernels.linear(kernels.add(y, x, 1.0, "one"), kernels.add(x, y, 1.0, "one")))
  assert compiling == [("one", threading.current_thread().name)]


@pytest.mark.parametrize("setting", ["DEBUG", "BEAM"])
def test_who_watches_or_measures_gets_one_after_the_other(
  kernels: Any, compiling: list[tuple[str, str]], setting: str
) -> None:
  x, y, z = kernels.buffer([1.0]), kernels.buffer(size=1), kernels.buffer(size=1)
  with Context(**{setting: 1}):
    run(kernels.linear(kernels.add(y, x, 1.0, f"{setting}1"), kernels.add(z, y, 2.0, f"{setting}2")))
  assert compiling == [(f"{setting}{n}", threading.current_thread().name) for n in (1, 2)]


def test_the_first_error_is_raised_and_nothing_runs(kernels: Any, compiling: list[tuple[str, str]]) -> None:
  x, y = kernels.buffer([1.0]), kernels.buffer(size=1)
  linear = kernels.linear(
    kernels.increment(x, "good"), kernels.add(y, x, 1.0, "bad1"), kernels.add(y, x, 2.0, "bad2"), kernels.increment(y)
  )
  for _ in range(2):
    with pytest.raises(CompileError, match="^kernel bad1: bad1 cannot be compiled$"):
      run(linear)
  assert kernels.values(x) == [1.0]
