"""The package that `python -m tiny_runtime new` writes: to the taste of ruff and mypy, and installed for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from releasing.packages import ROOT
from test_wheels import installed, wheels

from tiny_runtime.plugins.new import write_plugin

__all__ = ["wheels"]  # the fixture

SOURCES = os.pathsep.join(str(ROOT / "packages" / name / "src") for name in ("tiny-uop", "tiny-runtime"))


@pytest.mark.parametrize("name", ("x", "a-rather-long-name-1"))
def test_ruff_and_mypy_have_nothing_to_say(tmp_path: Path, name: str) -> None:
  package = write_plugin(name, tmp_path)
  # silent: about our own packages, which are sources here and no installed ones
  types = [["mypy", "--follow-imports", "silent", "src", "tests"]] if len(name) > 1 else []
  env = {**os.environ, "MYPYPATH": SOURCES}
  for tool in (["ruff", "check", "."], ["ruff", "format", "--check", "."], *types):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=package, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_installed_in_an_empty_environment(wheels: Path, tmp_path: Path) -> None:
  package = write_plugin("toy", tmp_path)
  build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(package)]
  built = subprocess.run(build, capture_output=True, text=True)
  assert built.returncode == 0, built.stdout + built.stderr
  environment = installed(tmp_path / "env", wheels, "tiny-runtime", "tiny-codegen")
  environment.install(f"{next(tmp_path.glob('*.whl'))}[test]")
  listed = environment.run("-m", "tiny_runtime")
  assert "✓ TOY" in listed.stdout and listed.returncode == 0, listed.stdout + listed.stderr
  done = environment.run("-m", "pytest", "-q", cwd=package)
  assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
