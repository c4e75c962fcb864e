"""The conformance kit: that it passes what is right, and fails what is wrong."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime.conformance import operations
from tiny_runtime.conformance.comparing import pattern
from tiny_runtime.conformance.expectations import Expectations, matches
from tiny_runtime.conformance.kernels import random_kernel
from tiny_runtime.conformance.target import reference
from tiny_runtime.conformance.values import differences, edge_values, ulps, unpack
from tiny_uop import DType, GroupOp, Ops, dtypes, parse_uop

# the plugins of whoever installed pytest would take half of the time
ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


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

  def run(backend: str, *arguments: str, file: str = "") -> Outcome:
    report = tmp_path / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
    command += ["--pyargs", f"tiny_runtime.conformance{file and '.test_' + file}", "--report", str(report), *arguments]
    command += ["--backend", backend] if backend else []
    path = os.pathsep.join([str(Path(__file__).parent), str(tmp_path), *(p for p in sys.path if p)])
    env = {**ENVIRONMENT, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    cases = json.loads(report.read_text())["cases"] if report.exists() else []
    return Outcome(done.returncode, done.stdout + done.stderr, {case["case"]: case for case in cases})

  return run


def test_every_nth_case(kit: Kit) -> None:
  whole, part = (kit("REF", "--every", every, file="level2_ops") for every in ("60", "120"))
  assert whole.code == part.code == 0, whole.text + part.text
  tests = [{name.partition("[")[0] for name in run.cases} for run in (whole, part)]
  assert tests[0] == tests[1] and len(part.cases) < len(whole.cases)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "least"), [(5, 150), pytest.param(1, 800, marks=pytest.mark.nightly)])
def test_the_reference_conforms(kit: Kit, every: int, least: int) -> None:
  outcome = kit("tiny_runtime.ref:BACKEND", "--every", str(every))
  assert outcome.code == 0, outcome.text[-3000:]
  assert len(outcome.cases) > least and {case["level"] for case in outcome.cases.values()} == set(range(6))
  assert "5 capabilities" in outcome.text


def test_a_wrong_operation_is_found_and_only_that(kit: Kit) -> None:
  outcome = kit("wrong_backends.compilers:MAX_NAN", "-k", "test_op and (MAX or ADD)", file="level2_ops")
  assert outcome.code == 1
  assert outcome.failed() == {"test_level2_ops.py::test_op[MAX-float32]"}
  case = outcome.cases["test_level2_ops.py::test_op[MAX-float32]"]
  assert "expected nan, for 0.0, nan" in case["reason"]
  assert parse_uop(case["kernel"]).arg.name == "max_float32" and case["source"].startswith("def kernel(")
  table, _, after = outcome.text.rpartition("next: level 2: compile, load and launch")
  assert "README of tiny-runtime, steps" in after and "begin with: -k 'test_op and MAX and float32'" in after
  assert re.search(r"2 ops +\d+ +1 +0 +0", table)


def test_levels_can_be_left_out(kit: Kit) -> None:
  outcome = kit("tiny_runtime.ref:BACKEND", "--level", "1", "-k", "not deterministic and not quiet")
  assert outcome.code == 0 and {case["level"] for case in outcome.cases.values()} == {0, 1}
  assert "2 ops" not in outcome.text


def test_level_0_needs_no_device(kit: Kit) -> None:
  arguments = ("--level", "0", "-k", "not deterministic", "--arch", "python")
  outcome = kit("wrong_backends.devices:ABSENT", *arguments, file="level0_package")
  assert outcome.code == 0 and len(outcome.cases) > 12, outcome.text
  refused = kit("wrong_backends.devices:ABSENT", "-k", "key", file="level0_package")
  assert refused.code == 1 and "Unavailable: no snake was found. Buy one" in refused.text


def test_what_a_backend_raises_is_shown_with_the_kernel(kit: Kit) -> None:
  outcome = kit("wrong_backends.devices:RAISES", "-k", "test_sizes and 15", file="level3_programs")
  assert "KeyError: 'no such queue'" in outcome.text and "for r0: p0[r0] = p1[r0]*3.0 + p2[r0]" in outcome.text
  assert "KeyError came out of the backend, where the contract has none" in outcome.text


def test_a_case_that_ends_the_process_is_named(kit: Kit) -> None:
  """By pytest-xdist, whose controller prints the table."""
  pytest.importorskip("xdist")
  arguments = ("-k", "test_constant or test_variables_in", "-p", "xdist.plugin", "-n", "1")
  outcome = kit("wrong_backends.devices:ENDS", *arguments)
  assert outcome.code == 1 and re.search(r"3 programs +4 +1 ", outcome.text), outcome.text
  (failed,) = outcome.failed()
  assert failed == "test_level3_programs.py::test_variables_in_offsets_and_values[3]"
  assert "crashed while running" in outcome.cases[failed]["reason"]


def test_other_projects_may_have_a_backend_option(tmp_path: Path) -> None:
  """The options are added to runs of the kit alone."""
  (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--backend')")
  (tmp_path / "test_it.py").write_text("def test_it(request): assert request.config.getoption('--backend') == 'x'")
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "--backend", "x"]
  env = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_expectations_are_strict(kit: Kit, tmp_path: Path) -> None:
  listed = tmp_path / "conformance.toml"
  listed.write_text(
    '[unsupported]\n"test_level2_ops.py::test_op[ADD-*]" = "no adder"\n'
    '[expected_failures]\n"*test_op[MAX-float32]" = "wired wrongly"\n"*test_op[MAX-int8]" = "so it was said"\n'
  )
  arguments = ("-k", "test_op and (MAX or ADD)", "--expectations", str(listed))
  outcome = kit("wrong_backends.compilers:MAX_NAN", *arguments, file="level2_ops")
  results = {name.rpartition("::")[2]: case for name, case in outcome.cases.items()}
  assert results["test_op[ADD-int32]"]["outcome"] == "skipped"
  assert results["test_op[ADD-int32]"]["reason"] == "unsupported: no adder"
  failing = results["test_op[MAX-float32]"]
  assert (failing["outcome"], failing["reason"]) == ("xfailed", "wired wrongly")
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
    ("tiny_runtime.ref:RefCompiler", "expected an object with api, ir, probe"),
  ),
)
def test_a_wrong_backend_is_a_usage_error(kit: Kit, backend: str, message: str) -> None:
  outcome = kit(backend, "--collect-only", file="level1_memory")
  assert outcome.code == pytest.ExitCode.USAGE_ERROR
  assert message in outcome.text and "Traceback" not in outcome.text


def test_every_operation_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
  assert operations.missing_rows() == []
  assert operations.ROWS.keys() | operations.CONVERSIONS == GroupOp.Elementwise
  monkeypatch.delitem(operations.ROWS, Ops.MAX)
  assert operations.missing_rows() == ["MAX"]


# `Ops` and `Capabilities` as they would be after an addition to tiny-uop, or to the contract. An enum has no room for a
# new member at run time, so a group gets one that the kit has no row for.
NEW_OPERATION = "from tiny_uop import GroupOp, Ops; GroupOp.Elementwise = GroupOp.Elementwise | {Ops.GROUP}"
NEW_CAPABILITY = """
from dataclasses import dataclass
from tiny_runtime import contract
@dataclass(frozen=True)
class Capabilities(contract.Capabilities):
  telepathy: bool = False
contract.Capabilities = Capabilities
"""


@pytest.mark.parametrize(
  ("source", "file", "message"),
  (
    (NEW_OPERATION, "level2_ops", "operations without a conformance case: GROUP. Add a row to operations.py for each"),
    (NEW_CAPABILITY, "level5_capabilities", "capabilities that nothing here tries: telepathy. Write a suite for each"),
  ),
  ids=("operation", "capability"),
)
def test_what_is_new_and_has_no_case_fails_the_collection(
  kit: Kit, tmp_path: Path, source: str, file: str, message: str
) -> None:
  (tmp_path / "later.py").write_text(source)
  outcome = kit("tiny_runtime.ref:BACKEND", "-p", "later", "--collect-only", file=file)
  assert outcome.code != 0 and message in outcome.text, outcome.text


def test_every_type_has_edge_values_and_cases() -> None:
  from tiny_runtime.conformance.test_level2_ops import CASES, CASTS

  assert {dtype for _, dtype in CASES} == set(dtypes.all) == {dtype for pair in CASTS for dtype in pair}


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


@pytest.mark.parametrize("seed", (334, 410, 608, 652, 700))
def test_no_zero_of_a_random_kernel_is_negative(seed: int) -> None:
  # these kernels of float32 had maxima of 0.0 and -0.0, of which either is right
  output = unpack(dtypes.float32, reference().run(*random_kernel(seed))[0])
  assert 0.0 in output and not any(math.copysign(1, value) < 0 for value in output if value == 0)


def test_what_differences_have_in_common() -> None:
  f, i = dtypes.float32, dtypes.int32

  def says(dtype: DType, got: list[float], want: list[float]) -> str:
    found = differences(dtype, got, want, signed_zeros=True)
    return pattern(dtype, found, got, [0] * len(got), want)

  nan = float("nan")
  assert says(i, [0, 0, 0], [1, 2, 3]).startswith("nothing was written at all")
  assert says(i, [1, 2, 3, 9, 9], [1, 2, 3, 4, 5]).startswith("only the last 2 differ")
  assert says(i, [9, 9, 1, 2, 3], [1, 2, 3, 4, 5]).startswith("the results are right, but 2 elements too late")
  assert says(i, [2, 3, 4, 5, 9], [1, 2, 3, 4, 5]).startswith("the results are right, but 1 elements too early")
  assert says(i, [5, 2, 3, 4, 1], [1, 2, 3, 4, 5]) == ""
  assert says(f, [1.0, nan, 1.0], [1.0, 2.0, 1.0]) == "they differ in NaN only"
  assert says(f, [0.0, 1.0], [-0.0, 1.0]) == "they differ in the sign of zero only"
  assert says(f, [0.0, 1.0], [2.0**-130, 1.0]) == "subnormal results are flushed to zero"
  assert says(f, [1.0 + 2.0**-23, 1.0], [1.0, 1.0]).startswith("they are one unit in the last place off")


def test_patterns() -> None:
  assert matches("*test_op[ADD-*]", "test_level2_ops.py::test_op[ADD-int8]")
  assert not matches("*test_op[ADD-*]", "test_level2_ops.py::test_op[SUB-int8]")
  assert not Expectations({"*x*": "r"}).reason_unsupported("y")


def test_the_kit_asks_for_no_more_than_is_specified() -> None:
  """`x·2ⁿ` is, for no n beyond twice the largest exponent: what is made of products gives something else there."""
  row = operations.ROWS[Ops.LDEXP]
  for dtype, most in ((dtypes.fp8e4m3, 16), (dtypes.fp8e5m2, 30), (dtypes.float16, 30), (dtypes.float64, 2046)):
    exponents = [n for n in row.values(dtype) if row.accept(dtype, 1.0, n)]
    assert max(exponents) <= most and min(exponents) >= -most
