"""Makes the modules that several tests share importable. What these tests schedule and compile is printed and parsed
back on the side.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_tensor import Tensor
from tiny_uop.text.golden import round_trips_checked

# pytest's importlib mode puts no test directory on the path
ROOMS = [path for path in sorted(Path(__file__).parent.iterdir()) if path.is_dir() and any(path.glob("*.py"))]
sys.path[:0] = map(str, [Path(__file__).parent, *ROOMS])
sys.path.insert(0, str(Path(__file__).parents[1] / "release"))
sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.append(str(Path(__file__).parents[2] / "packages" / "tiny-codegen" / "tests"))


def pytest_configure() -> None:
  """The models' emulators and kernels are compiled once for all processes of a run, which get the folder's name."""
  from gpu_model.toolchain import folder

  folder()


@pytest.fixture(autouse=True, scope="session")
def graphs_round_trip() -> Iterator[None]:
  with round_trips_checked():
    yield


@pytest.fixture(autouse=True)
def trees_are_not_collected(request: pytest.FixtureRequest) -> Iterator[None]:
  """Rules of the house are looked up in trees of all sources, millions of nodes that are in no cycle: looking for
  garbage among them again and again takes longer than making them."""
  trees = request.path.parent.name == "house"
  if trees:
    gc.disable()
  yield
  if trees:
    gc.enable()


@pytest.fixture(autouse=True)
def seeded() -> None:
  """Random tensors are the same in each run of a test, whichever tests ran before."""
  Tensor.manual_seed(0)
