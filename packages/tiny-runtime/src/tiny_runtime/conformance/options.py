"""The kit's command line, as a pytest plugin: pytest reads a package's conftest.py only after the command line.

It is loaded in every pytest run where tiny-runtime is installed. So it is small, and adds its options only to runs of
the kit: other projects have a `--backend` of their own.
"""

from __future__ import annotations

from typing import Any

PACKAGE = "tiny_runtime.conformance"


def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> None:
  """Called by pytest, before it takes the command line apart for good."""
  if not any(argument.startswith(PACKAGE) and not argument.startswith(f"{PACKAGE}.options") for argument in args):
    return
  # the controller of pytest-xdist collects nothing, and so never sees the kit's conftest
  early_config.pluginmanager.import_plugin(f"{PACKAGE}.report")
  group = parser.getgroup("tiny-runtime conformance")
  group.addoption("--backend", help="backend to test: a device name such as CPU, or module:OBJECT")
  group.addoption("--arch", default="", help="compile for this arch, which the device runs too, or where it is absent")
  group.addoption("--level", type=int, choices=range(6), default=5, help="run the levels up to this one")
  group.addoption("--every", type=int, default=1, metavar="N", help="run every Nth case of each test, a quick look")
  group.addoption("--expectations", help="TOML file with the tables unsupported and expected_failures")
  group.addoption("--report", metavar="FILE", help="write the result of every case to a file, as JSON (-: print it)")
