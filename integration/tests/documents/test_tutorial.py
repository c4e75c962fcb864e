"""The tutorial of tiny-runtime's README, followed to the end: a backend by way of the C compiler passes the kit."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tiny_runtime.plugins.new import write_plugin

README = Path(__file__).parents[3] / "packages" / "tiny-runtime" / "README.md"
EVERY = "40"
"""Of the cases of each test, which of them run here. All take a minute, for a C compiler is not quick, and pass too."""
SLOW = "not several_threads and not many_programs and not threads_compile"


def followed(into: Path, steps: int = 3) -> Path:
  """The reader's package after the first files of the tutorial."""
  folder = write_plugin("cc", into)
  files = re.findall(r"```python (src/tiny_runtime_cc/\w+\.py)\n(.*?)```", README.read_text(), re.DOTALL)
  assert [Path(path).name for path, _ in files] == ["backend.py", "compiler.py", "device.py"]
  for path, text in files[:steps]:
    assert (folder / path).exists(), "each takes the place of a file that was written"
    (folder / path).write_text(text)
  return folder


@pytest.fixture
def package(tmp_path: Path) -> Path:
  """What the reader has at the end."""
  return followed(tmp_path)


def environment(package: Path, **settings: str) -> dict[str, str]:
  """That of a process in which the package is installed."""
  path = os.pathsep.join([str(package / "src"), *(p for p in sys.path if p)])
  return {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **settings}


def conformance(package: Path, *options: str) -> str:
  """The report of the kit, which passes."""
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_cc.backend:BACKEND", *options]
  done = subprocess.run(command, cwd=package, env=environment(package), capture_output=True, text=True)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  return done.stdout


def test_its_files_are_as_ruff_and_mypy_want_them(package: Path) -> None:
  env = {**os.environ, "MYPYPATH": os.pathsep.join(str(path) for path in README.parents[1].glob("*/src"))}
  types = ["mypy", "--follow-imports", "silent", "src", "tests"]
  for tool in (["ruff", "check", "."], ["ruff", "format", "--check", "."], types):
    done = subprocess.run([sys.executable, "-m", *tool], cwd=package, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH")
def test_it_conforms(package: Path) -> None:
  report = conformance(package, "--every", EVERY, "-k", SLOW)
  assert re.search(r"2 ops +[1-9]", report) and re.search(r"5 capabilities +[1-9]", report)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH")
@pytest.mark.parametrize("steps", [1, 2])
def test_every_step_passes_what_the_table_says(tmp_path: Path, steps: int) -> None:
  """A reader runs the kit after each: what is not there yet must not be asked for."""
  conformance(followed(tmp_path, steps), "--level", "0" if steps == 2 else "1", "--every", EVERY, "-k", SLOW)


def test_what_it_imports_is_declared(package: Path) -> None:
  tree = [ast.parse(path.read_text()) for path in (package / "src").rglob("*.py")]
  nodes = [node for part in tree for node in ast.walk(part)]
  names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
  names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
  found = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"tiny_runtime_cc"}
  declared = tomllib.loads((package / "pyproject.toml").read_text())["project"]["dependencies"]
  assert {name.replace("_", "-") for name in found} == {re.match(r"[\w-]+", d)[0] for d in declared}  # type: ignore[index]


USE = """
import sys, tempfile
from tiny_runtime_cc.compiler import CcCompiler, assemble
compiler = CcCompiler("any")
print(len({compiler.key, compiler.key, CcCompiler("any").key}), compiler.key)
print(assemble("int one(void) { return 1; }").hex())
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH")
def test_its_compiler_is_asked_for_little_and_gives_the_same(package: Path, tmp_path: Path) -> None:
  """The linkers of GNU and of Apple have few flags in common; a version is asked for once, not for each kernel; and
  the bytes are the same in every process."""
  real, folder, log = shutil.which("cc"), tmp_path / "bin", tmp_path / "log"
  folder.mkdir()
  script = f"""#!/bin/sh
echo "$@" >> {log}
for flag in "$@"; do case "$flag" in -Wl,*|-Xlinker|-z) echo "ld: unknown options: $flag" >&2; exit 1;; esac; done
exec {real} "$@"
"""
  (folder / "cc").write_text(script)
  (folder / "cc").chmod(0o755)
  settings = environment(package, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
  said = []
  for name in ("one", "two"):
    (tmp_path / name).mkdir()
    done = subprocess.run(
      [sys.executable, "-c", USE], env=settings | {"TMPDIR": str(tmp_path / name)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said.append(done.stdout)
  assert said[0] == said[1] and said[0].startswith("1 any ")
  assert [line for line in log.read_text().splitlines() if "version" in line] == ["--version"] * 2
