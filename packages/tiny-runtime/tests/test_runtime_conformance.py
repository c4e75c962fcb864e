"""The conformance kit: that it passes what is right, and fails what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime.conformance import operations
from tiny_runtime.conformance.expectations import Expectations, matches
from tiny_runtime.conformance.random_kernels import random_kernel
from tiny_runtime.conformance.values import differences, edge_values, ulps
from tiny_uop import GroupOp, Ops, dtypes

WRONG = '''
"""Backends with one mistake each."""
from tiny_runtime.ref import RefCompiler, RefDevice
from tiny_runtime.ref.backend import RefBackend
from tiny_uop import Ops, dtypes

class WrongMax(RefCompiler):
  def compile(self, kernel, measure=None):
    wrong = {u: u.src[0] for u in kernel.toposort if u.op is Ops.MAX and u.dtype is dtypes.int32}
    return super().compile(kernel.substitute(wrong), measure)

class WrongMaxBackend(RefBackend):
  def compiler(self, arch): return WrongMax()

class LeakyDevice(RefDevice):
  def free(self, memory): pass

class LeakyBackend(RefBackend):
  def open(self, index): return super().open(index) if index else LeakyDevice()

class OldBackend(RefBackend):
  api = (0, 3)
  ir = (1, 1)
'''


@dataclass
class Outcome:
  """How a run of the kit ended."""

  code: int
  text: str
  cases: dict[str, dict[str, Any]]

  def failed(self) -> set[str]:
    return {name for name, case in self.cases.items() if case["outcome"] in ("failed", "error")}


Kit = Callable[..., Outcome]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
  """Runs the kit in a process of its own."""
  (tmp_path / "wrong_backends.py").write_text(WRONG)

  def run(backend: str, *arguments: str) -> Outcome:
    report = tmp_path / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
    command += ["--pyargs", "tiny_runtime.conformance", "--report-file", str(report), *arguments]
    command += ["--backend", backend] if backend else []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    cases = json.loads(report.read_text())["cases"] if report.exists() else []
    return Outcome(done.returncode, done.stdout + done.stderr, {case["case"]: case for case in cases})

  return run


@pytest.mark.slow
def test_the_reference_conforms(kit: Kit) -> None:
  outcome = kit("tiny_runtime.ref:BACKEND")
  assert outcome.code == 0, outcome.text[-3000:]
  assert len(outcome.cases) > 800 and {case["level"] for case in outcome.cases.values()} == set(range(6))
  assert "5 capabilities" in outcome.text


def test_a_wrong_operation_is_found_and_only_that(kit: Kit) -> None:
  outcome = kit("wrong_backends:WrongMaxBackend", "-k", "test_op and (MAX or ADD)")
  assert outcome.code == 1
  assert outcome.failed() == {"test_level2_ops.py::test_op[MAX-int32]"}
  reason = outcome.cases["test_level2_ops.py::test_op[MAX-int32]"]["reason"]
  assert "153 of 324 differ" in reason and "expected -2147483647, for (-2147483648, -2147483647)" in reason


def test_a_leak_is_found(kit: Kit) -> None:
  failed = kit("wrong_backends:LeakyBackend", "-k", "level4").failed()
  assert "test_level4_life_cycle.py::test_memory_can_be_filled_again_and_again" in failed


def test_another_version_of_the_contract_is_found(kit: Kit) -> None:
  assert kit("wrong_backends:OldBackend", "-k", "api_version").failed() == {"test_level0_package.py::test_api_version"}


def test_expectations_are_strict(kit: Kit, tmp_path: Path) -> None:
  listed = tmp_path / "conformance.toml"
  listed.write_text(
    '[unsupported]\n"test_level2_ops.py::test_op[ADD-*]" = "no adder"\n'
    '[expected_failures]\n"*test_op[MAX-int32]" = "wired wrongly"\n"*test_op[MAX-int8]" = "so it was said"\n'
  )
  arguments = ("-k", "test_op and (MAX or ADD)", "--expectations", str(listed))
  outcome = kit("wrong_backends:WrongMaxBackend", *arguments)
  results = {name.rpartition("::")[2]: case for name, case in outcome.cases.items()}
  assert results["test_op[ADD-int32]"]["outcome"] == "skipped"
  assert results["test_op[ADD-int32]"]["reason"] == "unsupported: no adder"
  assert (results["test_op[MAX-int32]"]["outcome"], results["test_op[MAX-int32]"]["reason"]) == (
    "xfailed",
    "wired wrongly",
  )
  assert outcome.failed() == {"test_level2_ops.py::test_op[MAX-int8]"}, "an expected failure that passes is a failure"


@pytest.mark.parametrize(
  ("text", "message"),
  (
    ('[unsupported]\n"*no_such_case*" = "why"\n', "match no case: \\*no_such_case\\*"),
    ('[unsupported]\n"*ADD*" = ""\n', "needs a reason"),
    ('[skip]\n"*ADD*" = "x"\n', "unknown table skip"),
    ("[unsupported\n", "conformance.toml"),
  ),
)
def test_bad_expectations_are_usage_errors(kit: Kit, tmp_path: Path, text: str, message: str) -> None:
  import re

  listed = tmp_path / "conformance.toml"
  listed.write_text(text)
  outcome = kit("tiny_runtime.ref:BACKEND", "--expectations", str(listed), "--collect-only")
  assert outcome.code == pytest.ExitCode.USAGE_ERROR
  assert re.search(message, outcome.text), outcome.text[-2000:]


@pytest.mark.parametrize(
  ("backend", "message"),
  (
    ("", "--backend CPU"),
    ("NOSUCH", "no installed package provides"),
    ("no_such_module:BACKEND", "No module named"),
    ("tiny_runtime.ref:RefCompiler", "expected an object with api"),
  ),
)
def test_a_wrong_backend_is_a_usage_error(kit: Kit, backend: str, message: str) -> None:
  outcome = kit(backend, "--collect-only")
  assert outcome.code == pytest.ExitCode.USAGE_ERROR
  assert message in outcome.text and "Traceback" not in outcome.text


def test_every_operation_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
  assert operations.missing_rows() == []
  assert operations.ROWS.keys() | operations.CONVERSIONS == GroupOp.Elementwise
  monkeypatch.delitem(operations.ROWS, Ops.MAX)
  assert operations.missing_rows() == ["MAX"]


def test_values() -> None:
  assert all(len(edge_values(dtype)) >= 2 for dtype in dtypes.all)
  f = dtypes.float32
  assert ulps(f, 1.0, 1.0 + 2.0**-23) == 1 and ulps(f, 0.0, -0.0) == 0 and ulps(f, 2.0**-149, -(2.0**-149)) == 2
  nan, inf = float("nan"), float("inf")
  assert ulps(f, nan, nan) == 0 and ulps(f, nan, 1.0) == inf
  assert differences(f, [1.0, nan], [1.0, 2.0], 1000) and not differences(f, [1.0 + 2.0**-22], [1.0], 2)
  assert differences(dtypes.int8, [1], [2], 5), "integers have no tolerance"


def test_random_kernels_are_the_same_everywhere() -> None:
  for seed in range(20):
    (first, data, _), (second, again, _) = random_kernel(seed), random_kernel(seed)
    assert first is second and data == again
  assert len({random_kernel(seed)[0] for seed in range(20)}) == 20


def test_patterns() -> None:
  assert matches("*test_op[ADD-*]", "test_level2_ops.py::test_op[ADD-int8]")
  assert not matches("*test_op[ADD-*]", "test_level2_ops.py::test_op[SUB-int8]")
  assert not Expectations({"*x*": "r"}).reason_unsupported("y")
