"""The kit's command line, as a pytest plugin: pytest reads a package's conftest.py only after the command line.

It is loaded in every pytest run where tiny-runtime is installed, so it has options and nothing else.
"""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
  """Called by pytest."""
  group = parser.getgroup("tiny-runtime conformance")
  group.addoption("--backend", help="backend to test: a device name such as CPU, or module:OBJECT")
  group.addoption("--expectations", help="TOML file with the tables unsupported and expected_failures")
  group.addoption("--report", choices=["json"], help="print the result of every case as JSON at the end")
  group.addoption("--report-file", help="write that report to a file instead")
