"""The option that rewrites what golden tests expect, in all packages: see `tiny_uop.golden`."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.addoption("--update-golden", action="store_true", help="write the expectations of golden tests anew")


def pytest_configure(config: pytest.Config) -> None:
  if config.getoption("--update-golden"):
    os.environ["UPDATE_GOLDEN"] = "1"  # which workers of xdist inherit, and which works where this file is not
