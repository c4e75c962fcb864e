"""What these tests schedule and compile is printed and parsed back on the side. Of devices they see only what the
plugin contract has (`--devices whole`: all of them): nothing else can be used by the frontend or on its way down.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tiny_runtime.conformance.only_contract import only_contract
from tiny_tensor import Tensor
from tiny_uop.text.golden import round_trips_checked

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers that tests share

DEVICES = "--devices"


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.addoption(DEVICES, choices=("contract", "whole"), help="what the tests of tiny-tensor see of a device")


@pytest.fixture(autouse=True, scope="session")
def graphs_round_trip() -> Iterator[None]:
  with round_trips_checked():
    yield


@pytest.fixture(autouse=True, scope="module")
def nothing_old_is_collected() -> Iterator[None]:
  """What tests of other modules have left (compiled kernels, tables) is not looked at by `gc.collect`, which would take
  a third of a second each time; what this module makes is."""
  gc.freeze()
  yield
  gc.unfreeze()


# not for the session: tests of other packages may run between
@pytest.fixture(autouse=True, scope="module")
def seen_of_devices(request: pytest.FixtureRequest) -> Iterator[None]:
  whole = request.config.getoption(DEVICES, None) == "whole"
  with nullcontext() if whole else only_contract():
    yield


@pytest.fixture(autouse=True)
def seeded() -> None:
  """Random tensors are the same in each run of a test, whichever tests ran before."""
  Tensor.manual_seed(0)
