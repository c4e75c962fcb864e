"""The built wheels of several packages in an empty environment, away from the repository."""

import os
from pathlib import Path

import pytest
from releasing.distributions import build
from releasing.environment import Environment
from releasing.packages import load, siblings

LINE = "from tiny_tensor import Tensor; print((Tensor([1,2,3])+1).tolist())"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
  """A folder with the wheel of every package: those that `hatch run test` has just checked, else built now."""
  if folder := os.environ.get("TINY_WHEELS"):
    return Path(folder)
  made = tmp_path_factory.mktemp("wheels")
  for package in load().values():
    build(package, made)
  return made


def installed(folder: Path, wheels: Path, *names: str) -> Environment:
  """An environment with these packages and what they need; settings of this process's devices do not count."""
  environment = Environment(folder)
  packages = load()
  environment.install(*(str(next(wheels.glob(f"{packages[n].module}-*.whl"))) for n in siblings(names, packages)))
  for name in ("DEVICE", "DEBUG"):
    environment.variables.pop(name, None)
  return environment


def test_installed_from_wheels_it_computes(wheels: Path, tmp_path: Path) -> None:
  environment = installed(tmp_path / "env", wheels, "tiny-tensor", "tiny-runtime-cpu")
  done = environment.run("-c", f"{LINE}; import tiny_runtime_cpu; print(tiny_runtime_cpu.__file__)")
  result, where = done.stdout.splitlines()
  assert result == "[2, 3, 4]" and Path(where).is_relative_to(tmp_path), done.stderr


def test_a_trace_of_it_is_read(wheels: Path, tmp_path: Path) -> None:
  environment = installed(tmp_path / "env", wheels, "tiny-viz")
  work = (
    "from tiny_uop import *; from tiny_uop.observe import *\nwith tracing('t'): simplify(UOp.variable('x', 0, 7) * 1)"
  )
  assert environment.run("-c", work).returncode == 0
  done = environment.run("-m", "tiny_viz", "t", "--rule", "int_mul_one")
  assert done.stdout.splitlines()[0] == "1 rewrite by int_mul_one" and "x*1 → x" in done.stdout, done.stderr
  assert (
    environment.run("-m", "tiny_viz", "serve", "t", "--html", "out.html").returncode == 0
  )  # the page is in the wheel


def test_without_a_runtime_the_error_says_what_to_install(wheels: Path, tmp_path: Path) -> None:
  environment = installed(tmp_path / "env", wheels, "tiny-tensor")
  done = environment.run("-c", LINE)
  assert done.returncode != 0
  assert "pip install tiny-runtime-cpu" in done.stderr.splitlines()[-1], done.stderr
