"""Fixtures for tests of the model of NVIDIA's driver: machines that end with the test, and a program on one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from nv_client import Client

from gpu_model.nv.gpus import CHIPS
from gpu_model.nv.model import Model

MACHINES: list[Model] = []


def machine(*chips: str, **changes: Any) -> Model:
  """A machine that ends with the test."""
  made = Model(chips or ("GH100",), **changes)
  MACHINES.append(made)
  return made


@pytest.fixture(autouse=True)
def machines_end() -> Iterator[None]:
  yield
  while MACHINES:
    MACHINES.pop().end()


@pytest.fixture
def client() -> Client:
  """On a Hopper; what a test did wrong it says itself."""
  return Client(machine())


@pytest.fixture(params=CHIPS)
def each(request: pytest.FixtureRequest) -> Iterator[Client]:
  """On each generation, with nothing left in the end and nothing refused."""
  client = Client(machine(request.param))
  yield client
  client.close()
  model = client.model
  assert (model.misuse, model.refused, model.xids, model.left()) == ([], [], [], [])
