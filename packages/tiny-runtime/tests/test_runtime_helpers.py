"""Other processes that compile: what they get, what they leave in the cache, and when there are any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tiny_runtime import Binary, Compiler, Device, Measure, buffer_of, compile_cache, run
from tiny_runtime.execution import compile_processes as helpers
from tiny_runtime.settings import TINY_CACHE
from tiny_uop import Context, KernelInfo, Ops, UOp, dtypes
from tiny_uop.text.parse import parse_uop

F = dtypes.float32


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
  return tmp_path / "cache"


def schedule(count: int, base: float) -> tuple[UOp, list[UOp]]:
  """Kernels that each fill a buffer of its own with a constant of its own."""
  outputs = [UOp.new_buffer("REF", 4, F) for _ in range(count)]
  calls = []
  for n, output in enumerate(outputs):
    i = UOp.range(4, 0)
    store = UOp.param(0, F.ptr(4)).index(i).store(UOp.const(F, base + n)).end(i)
    calls.append(UOp(Ops.CALL, dtypes.void, (UOp.sink(store, arg=KernelInfo(f"fill{n}")), output)))
  return UOp(Ops.LINEAR, dtypes.void, tuple(calls)), outputs


def value(uop: UOp) -> float:
  return float(memoryview(buffer_of(uop).read()).cast("f")[0])


def test_helpers_leave_in_the_cache_what_is_then_found_there(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  linear, outputs = schedule(8, 100.0)
  with Context(TINY_CACHE=str(own_cache), COMPILE_PROCESSES=1):
    tasks = helpers.missing(linear.src)
    assert [parse_uop(text) for _, text, _ in tasks] == [call.src[0] for call in linear.src]
    helper = helpers.start(tasks)
    assert helper.wait(timeout=120) == 0
    assert all(Path(path).exists() for _, _, path in tasks) and helpers.missing(linear.src) == []
    monkeypatch.setattr(compile_cache, "compile_now", lambda *_: pytest.fail("it was compiled again"))
    run(linear)
  assert [value(output) for output in outputs] == [100.0 + n for n in range(8)]


def test_this_process_and_helpers_come_from_two_ends(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  started: list[list[str]] = []
  start = helpers.start

  def noted(tasks: Sequence[helpers.Task]) -> object:
    started.append([parse_uop(text).arg.name for _, text, _ in tasks])
    return start(tasks)

  monkeypatch.setattr(helpers, "start", noted)
  linear, outputs = schedule(12, 200.0)
  with Context(TINY_CACHE=str(own_cache), COMPILE_PROCESSES=3):
    run(linear)
  assert [value(output) for output in outputs] == [200.0 + n for n in range(12)]
  names = [f"fill{n}" for n in reversed(range(12))]
  assert started == [names, names[4:] + names[:4]]
  linear, _ = schedule(12, 200.0)
  run(linear)
  assert len(started) == 2, "they are loaded"


@pytest.mark.parametrize(
  ("count", "settings"),
  [(7, {}), (9, {"COMPILE_PROCESSES": 1}), (9, {"CACHELEVEL": 1}), (9, {"DEBUG": 3}), (9, {"BEAM": 1})],
)
def test_where_they_would_not_pay_there_are_none(
  own_cache: Path, monkeypatch: pytest.MonkeyPatch, count: int, settings: dict[str, int]
) -> None:
  monkeypatch.setattr(helpers, "start", lambda tasks: pytest.fail("a helper was started"))
  linear, outputs = schedule(count, 300.0 + 10 * len(settings) + sum(map(len, settings)))
  with Context(TINY_CACHE=str(own_cache), COMPILE_PROCESSES=4), Context(**settings):
    run(linear)
  assert len({value(output) for output in outputs}) == count


def test_helpers_that_fail_leave_it_to_this_process(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(helpers, "COMMAND", "raise SystemExit(3)")
  linear, outputs = schedule(8, 400.0)
  with Context(TINY_CACHE=str(own_cache), COMPILE_PROCESSES=2):
    run(linear)
  assert value(outputs[7]) == 407.0


def test_what_cannot_be_pickled_is_compiled_here(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  opened = Device.opened("REF")
  assert opened.compiler is not None
  original: Compiler = opened.compiler

  class Unpicklable:
    key = "unpicklable"

    def __reduce__(self) -> str:
      raise TypeError("this cannot be pickled")

    def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
      return original.compile(kernel)

  monkeypatch.setattr(opened, "compiler", Unpicklable())
  linear, outputs = schedule(8, 500.0)
  with Context(TINY_CACHE=str(own_cache), COMPILE_PROCESSES=2):
    run(linear)
  assert value(outputs[0]) == 500.0


def test_helpers_have_the_settings_of_now_not_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setenv("NOOPT", "1")
  code = "from tiny_uop.context import NOOPT, SPEC; raise SystemExit(10 * NOOPT.value + SPEC.value)"
  monkeypatch.setattr(helpers, "COMMAND", code)
  with Context(NOOPT=0, SPEC=1):
    assert helpers.start([]).wait(timeout=60) == 1


def test_a_program_that_python_is_a_part_of_is_not_started(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  linear, _ = schedule(8, 600.0)
  with Context(TINY_CACHE=str(own_cache)):
    assert len(helpers.missing(linear.src)) == 8
    for executable in ("/usr/bin/uwsgi", "", None):
      monkeypatch.setattr("sys.executable", executable)
      assert helpers.missing(linear.src) == []


def test_the_setting_is_no_part_of_keys() -> None:
  before = compile_cache.settings_key()
  with Context(COMPILE_PROCESSES=5, TINY_CACHE="elsewhere"):
    assert compile_cache.settings_key() == before and TINY_CACHE.value == "elsewhere"
