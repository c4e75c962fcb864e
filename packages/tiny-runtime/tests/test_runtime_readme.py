"""The README's code runs, and its plugin is a plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import Device, OutOfMemory, buffer_of, run
from tiny_runtime.compile_cache import TINY_CACHE
from tiny_runtime.contract import Backend, Compiler
from tiny_runtime.contract import Device as DeviceProtocol
from tiny_uop import UOp, dtypes

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(kind: str) -> list[str]:
  return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_examples_print_what_they_say() -> None:
  code = "\n".join(blocks("python"))
  expected = re.findall(r"print\(.*# (.*)", code)
  result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
  assert result.stdout.splitlines() == expected == ["[1.5, 2.5, 3.5]", "[2.0, 3.0, 4.0]"]


def test_plugin_of_the_tutorial(make_plugin: Callable[..., Path], kernels_on: Any) -> None:
  (source,) = blocks("python tiny_runtime_toy")
  make_plugin("tiny-runtime-toy", "TOY", source)
  kernels = kernels_on("TOY:1")
  a, b = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  run(kernels.linear(kernels.add(b, a)))
  assert kernels.values(b) == [2.0, 3.0]
  with pytest.raises(OutOfMemory, match="bytes asked for"):
    buffer_of(UOp.new_buffer("TOY:1", 1 << 20, dtypes.float32)).allocate()
  import tiny_runtime_toy  # type: ignore[import-not-found]

  assert isinstance(tiny_runtime_toy.BACKEND, Backend) and isinstance(tiny_runtime_toy.ToyCompiler(), Compiler)
  assert isinstance(Device["TOY:1"], DeviceProtocol)


def test_settings_are_documented() -> None:
  var = TINY_CACHE
  assert f"| `{var.name}` | {var.type.__name__} | {var.default!r} | {var.doc} |" in README


def test_public_names_are_documented() -> None:
  import tiny_runtime

  contract = {"Compiler", "Backend", "Memory", "Program", "Measure", "API", "BackendError", "Capture", "DeviceInfo"}
  assert all(name in README for name in set(tiny_runtime.__all__) - contract)
