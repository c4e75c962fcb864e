"""The tutorial of tiny-runtime's README, followed to the end: a backend by way of the C compiler passes the kit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_runtime.new import write_plugin

README = Path(__file__).parents[2] / "packages" / "tiny-runtime" / "README.md"
EVERY = "40"
"""Of the cases of each test, which of them run here. All take a minute, for a C compiler is not quick, and pass too."""
SLOW = "not several_threads and not many_programs and not threads_compile"


@pytest.fixture
def package(tmp_path: Path) -> Path:
  """What the reader has at the end."""
  folder = write_plugin("cc", tmp_path)
  files = re.findall(r"```python (src/tiny_runtime_cc/\w+\.py)\n(.*?)```", README.read_text(), re.DOTALL)
  assert [Path(path).name for path, _ in files] == ["backend.py", "compiler.py", "device.py"]
  for path, text in files:
    assert (folder / path).exists(), "each takes the place of a file that was written"
    (folder / path).write_text(text)
  return folder


def test_its_files_are_as_ruff_and_mypy_want_them(package: Path) -> None:
  env = {**os.environ, "MYPYPATH": os.pathsep.join(str(path) for path in README.parents[1].glob("*/src"))}
  types = ["mypy", "--follow-imports", "silent", "src", "tests"]
  for tool in (["ruff", "check", "."], ["ruff", "format", "--check", "."], types):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=package, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH")
def test_it_conforms(package: Path) -> None:
  path = os.pathsep.join([str(package / "src"), *(p for p in sys.path if p)])
  env = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_cc.backend:BACKEND"]
  command += ["--every", EVERY, "-k", SLOW]
  done = subprocess.run(command, cwd=package, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  assert re.search(r"2 ops +[1-9]", done.stdout) and re.search(r"5 capabilities +[1-9]", done.stdout)
