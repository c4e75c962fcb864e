"""The README's code runs, and its plugin is a plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import API, Device, OutOfMemory, buffer_of, run
from tiny_runtime.contract import Backend, Compiler
from tiny_runtime.contract import Device as DeviceProtocol
from tiny_uop import IR_VERSION, UOp, dtypes

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(kind: str) -> list[str]:
  return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_plugin_of_the_tutorial(make_plugin: Callable[..., Path], kernels_on: Any) -> None:
  (source,) = blocks("python tiny_runtime_toy")
  make_plugin("tiny-runtime-toy", "TOY", source)
  kernels = kernels_on("TOY:1")
  a, b = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  run(kernels.linear(kernels.add(b, a)))
  assert kernels.values(b) == [2.0, 3.0]
  with pytest.raises(OutOfMemory, match="bytes asked for"):
    buffer_of(UOp.new_buffer("TOY:1", 1 << 25, dtypes.float32)).allocate()
  import tiny_runtime_toy  # type: ignore[import-not-found]

  assert isinstance(tiny_runtime_toy.BACKEND, Backend) and isinstance(tiny_runtime_toy.ToyCompiler(), Compiler)
  assert isinstance(Device["TOY:1"], DeviceProtocol)


def test_plugin_of_the_tutorial_conforms(make_plugin: Callable[..., Path], tmp_path: Path) -> None:
  (source,) = blocks("python tiny_runtime_toy")
  make_plugin("tiny-runtime-toy", "TOY", source)
  files = ("0_package", "1_memory", "4_order", "5_capabilities")
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", *(f"tiny_runtime.conformance.test_level{file}" for file in files), "--backend", "TOY"]
  env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
  assert done.returncode == 0, done.stdout


def test_the_steps_are_those_of_the_written_package() -> None:
  """And those that the kit's report points to."""
  from tiny_runtime.conformance.report import NEXT
  from tiny_runtime.plugins.new import TEMPLATE

  steps = set(re.findall(r"^\| ([1-9]) \|", README, re.MULTILINE))
  marked = {n for path in TEMPLATE.rglob("*.py.txt") for n in re.findall(r"STEP ([0-9])", path.read_text())}
  pointed = {n for text in NEXT for n in re.findall(r"[0-9]", text.partition("README of tiny-runtime")[2])}
  listed = set(re.findall(r"^\| ([1-9]) \|", (TEMPLATE / "README.md.txt").read_text(), re.MULTILINE))
  assert steps == listed == pointed == set("1234567") and marked <= steps


def test_its_plugins_are_of_the_versions_that_the_template_writes() -> None:
  """Who copies one and who writes one with `new` has the same numbers: those of this tiny-runtime."""
  from tiny_runtime.plugins.new import Names

  written = Names.of("any").replace_in("api = @api@, ir = @ir@")
  assert written == f"api = {API}, ir = {(IR_VERSION, IR_VERSION)}"
  for name in ("api", "ir"):
    found = re.findall(rf"^  {name} = (\(\d+, \d+\))", README, re.MULTILINE)
    assert len(found) == 2 and all(f"{name} = {numbers}" in written for numbers in found)


def test_public_names_are_documented() -> None:
  import tiny_runtime

  contract = {"Compiler", "Backend", "Memory", "Program", "Measure", "API", "BackendError", "Capture", "DeviceInfo"}
  assert all(name in README for name in set(tiny_runtime.__all__) - contract)
