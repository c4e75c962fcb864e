"""The built wheels in an empty environment, away from the repository."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = "from tiny_tensor import Tensor; print((Tensor([1,2,3])+1).tolist())"


def clean_environment(home: Path) -> dict[str, str]:
  """Nothing of this process's Python in it, and caches of its own; settings of pip and the network stay."""
  kept = {
    k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "DEVICE", "DEBUG", "HATCH"))
  }
  return kept | {"XDG_CACHE_HOME": str(home)}


def python_in(path: Path, *packages: str, wheels: Path) -> Path:
  """The interpreter of a new environment with the packages, ours taken from the wheels."""
  venv.create(path, with_pip=True)
  python = path / "bin" / "python"
  command = [str(python), "-m", "pip", "install", "-q", "--find-links", str(wheels), *packages]
  done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(path), cwd=path)
  assert done.returncode == 0, done.stderr
  return python


def run_in(python: Path, code: str) -> subprocess.CompletedProcess[str]:
  home = python.parents[1]
  return subprocess.run(
    [str(python), "-c", code], capture_output=True, text=True, env=clean_environment(home), cwd=home, timeout=300
  )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
  """A folder with the wheel of every package, built from its source distribution."""
  folder = tmp_path_factory.mktemp("wheels")
  for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
  for path in folder.glob("*.tar.gz"):
    path.unlink()  # so that pip cannot fall back to it
  return folder


def test_installed_from_wheels_it_computes(wheels: Path, tmp_path: Path) -> None:
  python = python_in(tmp_path / "env", "tiny-tensor", "tiny-runtime-cpu", wheels=wheels)
  done = run_in(python, LINE)
  assert (done.stdout, done.returncode) == ("[2, 3, 4]\n", 0), done.stderr
  where = run_in(python, "import tiny_tensor, tiny_runtime_cpu; print(tiny_tensor.__file__, tiny_runtime_cpu.__file__)")
  assert str(ROOT) not in where.stdout
  assert str(tmp_path) in where.stdout


def test_a_trace_of_it_is_read(wheels: Path, tmp_path: Path) -> None:
  python = python_in(tmp_path / "env", "tiny-viz", wheels=wheels)
  work = (
    "from tiny_uop import *; from tiny_uop.observe import *\nwith tracing('t'): simplify(UOp.variable('x', 0, 7) * 1)"
  )
  assert run_in(python, work).returncode == 0
  done = subprocess.run(
    [str(python), "-m", "tiny_viz", "t", "--rule", "int_mul_one"], capture_output=True, text=True,
    env=clean_environment(tmp_path), cwd=python.parents[1],
  )  # fmt: skip
  assert done.stdout.splitlines()[0] == "1 rewrite by int_mul_one" and "x*1 → x" in done.stdout, done.stderr


def test_without_a_runtime_the_error_says_what_to_install(wheels: Path, tmp_path: Path) -> None:
  python = python_in(tmp_path / "env", "tiny-tensor", wheels=wheels)
  done = run_in(python, LINE)
  assert done.returncode != 0
  assert "pip install tiny-runtime-cpu" in done.stderr.splitlines()[-1], done.stderr


def test_wheels_carry_types_and_license(wheels: Path) -> None:
  from zipfile import ZipFile

  built = sorted(wheels.glob("*.whl"))
  assert len(built) == len(list(ROOT.glob("packages/*/pyproject.toml")))
  for wheel in built:
    names = ZipFile(wheel).namelist()
    assert any(name.endswith("/py.typed") for name in names), wheel.name
    assert not any("tests/" in name for name in names), wheel.name
