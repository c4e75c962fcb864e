"""What a searching compiler finds is kept for the next process, with the care that binaries get."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_runtime import Binary, Buffer
from tiny_runtime.compile_cache import compile_cached
from tiny_runtime.contract import Measure
from tiny_runtime.execution.measure import MOST_REPEATS, REPEATS, measure_on
from tiny_runtime.ref import BACKEND
from tiny_uop import Context, KernelInfo, UOp, dtypes


def kernel(amount: float) -> UOp:
  out, source = (UOp.param(n, dtypes.float32.ptr(4)) for n in range(2))
  i = UOp.range(4, 0)
  return UOp.sink(out.index(i).store(source.index(i).load() + amount).end(i), arg=KernelInfo("add"))


class Searching:
  """The reference compiler, which times two candidates unless it knows what that gave."""

  def __init__(self, key: str = "searching") -> None:
    self.key, self.searches = key, 0
    self.recalled: str | None = None
    self.inner = BACKEND.compiler("python")

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    binary = self.inner.compile(kernel, None)
    if measure is not None:
      self.recalled = measure.recall()
      if self.recalled != "the first":
        self.searches += 1
        measure.remember("the first" if measure(binary) <= measure(binary) else "the second")
    return binary


def compiled(compiler: Searching, k: UOp, **settings: int) -> int:
  """How many searches that took."""
  before, clock = compiler.searches, iter((1.0, 2.0))
  with Context(BEAM=1, **settings):
    compile_cached(k, compiler, timer=lambda binary: next(clock))
  return compiler.searches - before


def files(folder: Path, kind: str) -> list[Path]:
  return [path for path in (folder / kind).rglob("*") if path.is_file()]


def test_a_search_is_kept_beside_the_binary(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
  assert compiled(Searching(), kernel(1.0)) == 1
  assert len(files(own_cache, "searches")) == len(files(own_cache, "binaries")) == 1
  again = Searching()
  # with DEBUG=3 the compiler runs, to print what it does; it need not search
  assert compiled(again, kernel(1.0), DEBUG=3) == 0 and again.recalled == "the first"
  assert "a search of it is on disk" in capsys.readouterr().err
  assert compiled(Searching(), kernel(1.0), SPEC=1) == 1, "other settings"
  assert compiled(Searching("another target"), kernel(1.0)) == 1
  assert compiled(Searching(), kernel(2.0), DEBUG=3) == 1
  assert "no search of it is on disk" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:-1] + b"\xff"])
def test_damaged_results_are_searched_again(own_cache: Path, damage: object) -> None:
  compiled(Searching(), kernel(1.0))
  (path,) = files(own_cache, "searches")
  assert callable(damage)
  path.write_bytes(damage(path.read_bytes()))
  again = Searching()
  assert compiled(again, kernel(1.0), DEBUG=3) == 1 and again.recalled is None
  assert compiled(Searching(), kernel(1.0), DEBUG=3) == 0


def test_cachelevel_is_respected(own_cache: Path) -> None:
  for level in (0, 1):
    assert compiled(Searching(), kernel(1.0), CACHELEVEL=level) == 1
    assert not files(own_cache, "searches")
  compiled(Searching(), kernel(1.0))
  assert compiled(Searching(), kernel(1.0), CACHELEVEL=1) == 1


def test_short_launches_are_repeated_and_long_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
  opened = Buffer("REF", 4, dtypes.float32).opened
  binary = BACKEND.compiler("python").compile(kernel(1.0))
  asked: list[float] = []

  def launch(*arguments: object) -> float:
    asked.append(seconds)
    return seconds

  monkeypatch.setattr(opened, "launch", launch)
  for seconds, times in ((1e-6, MOST_REPEATS), (1e-3, 5), (0.1, REPEATS), (1.0, 1)):
    asked.clear()
    assert measure_on(opened)(binary) == seconds and len(asked) == times
