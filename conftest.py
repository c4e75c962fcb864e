"""Options for tests in all packages: one rewrites what golden tests expect, one draws more examples. No property test
fails for taking long: a busy machine is no counter-example."""

import gc
import os
from importlib.util import find_spec
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.addoption("--update-golden", action="store_true", help="write the expectations of golden tests anew")
  parser.addoption(
    "--examples", type=int, metavar="N", help="property tests only, with N times as many examples, others each time"
  )


def pytest_configure(config: pytest.Config) -> None:
  gc.disable()  # until tests are there: nothing that is imported and collected is garbage
  if find_spec("hypothesis"):  # not in every environment
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
  if config.getoption("--update-golden"):
    os.environ["UPDATE_GOLDEN"] = "1"  # which workers of xdist inherit, and which works where this file is not


def pytest_collection_finish() -> None:
  gc.enable()
  gc.freeze()  # nor is it looked through for garbage of tests


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
  if (times := config.getoption("--examples")) is None:
    return
  from hypothesis import is_hypothesis_test, settings

  kept: list[pytest.Item] = []
  functions: set[Any] = set()
  for item in items:
    function: Any = getattr(item, "function", None)
    if is_hypothesis_test(function):
      kept.append(item)
      functions.add(function)
  for function in functions:
    own: Any = function._hypothesis_internal_use_settings or settings.default  # where `@settings` puts them
    more = settings(own, max_examples=own.max_examples * times, derandomize=False)
    function._hypothesis_internal_use_settings = more
  config.hook.pytest_deselected(items=[item for item in items if item not in kept])
  items[:] = kept
