"""The package that `python -m tiny_runtime new` writes: to the taste of ruff and mypy, and installed for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_wheels import ROOT, clean_environment, python_in

from tiny_runtime.new import write_plugin

SOURCES = ":".join(str(ROOT / "packages" / name / "src") for name in ("tiny-uop", "tiny-runtime"))


@pytest.mark.parametrize("name", ("x", "a-rather-long-name-1"))
def test_ruff_and_mypy_have_nothing_to_say(tmp_path: Path, name: str) -> None:
  package = write_plugin(name, tmp_path)
  # silent: about our own packages, which are sources here and no installed ones
  types = [["mypy", "--follow-imports", "silent", "src", "tests"]] if len(name) > 1 else []
  env = clean_environment(tmp_path) | {"MYPYPATH": SOURCES}
  for tool in (["ruff", "check", "."], ["ruff", "format", "--check", "."], *types):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=package, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_installed_in_an_empty_environment(tmp_path: Path) -> None:
  wheels = tmp_path / "wheels"
  for name in ("tiny-uop", "tiny-runtime"):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels)]
    subprocess.run([*command, str(ROOT / "packages" / name)], check=True, capture_output=True)
  package = write_plugin("toy", tmp_path)
  python = python_in(tmp_path / "env", f"{package}[test]", wheels=wheels)
  env = clean_environment(tmp_path)
  done = subprocess.run([str(python), "-m", "pytest", "-q"], cwd=package, env=env, capture_output=True, text=True)
  assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
