"""Settings: values from the environment, overriding them for a block, and the table in the README."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_uop import Context, ContextVar, getenv
from tiny_uop.context import DEBUG, DEVICE, JIT, table

README = Path(__file__).parent.parent / "README.md"


def test_readme_has_the_table() -> None:
  assert table() in README.read_text()


def test_the_documented_settings_exist() -> None:
  names = "DEVICE DEBUG NOOPT BEAM SPEC VIZ TRACK_MATCH_STATS JIT CACHELEVEL".split()
  assert set(names) <= set(ContextVar.registry)
  assert all(ContextVar.registry[name].doc for name in names)


def test_context_sets_and_restores() -> None:
  before = DEBUG.value
  with Context(DEBUG=5, DEVICE="REF"):
    assert (
      DEBUG.value == 5 and DEBUG >= 5 and DEBUG > 4 and DEBUG < 6 and DEBUG <= 5 and int(DEBUG) == 5 and bool(DEBUG)
    )
    assert str(DEVICE) == "REF"
    with Context(DEBUG=0):
      assert not DEBUG and DEVICE.value == "REF"
    assert DEBUG.value == 5
  assert DEBUG.value == before


def test_context_restores_after_an_error() -> None:
  before = JIT.value
  with pytest.raises(ZeroDivisionError), Context(JIT=7):
    raise ZeroDivisionError
  assert JIT.value == before


def test_context_as_decorator_and_reentered() -> None:
  setting = Context(DEBUG=3)

  @setting
  def depth(n: int) -> int:
    assert DEBUG.value == 3
    return 0 if n == 0 else depth(n - 1)

  before = DEBUG.value
  depth(3)
  assert DEBUG.value == before


def test_errors_name_the_setting() -> None:
  with pytest.raises(KeyError, match="'DEBUGG' is not a setting.*DEBUG"):
    Context(DEBUGG=1)
  with pytest.raises(TypeError, match="setting DEBUG takes int, got str '2'"):
    Context(DEBUG="2")
  with pytest.raises(ValueError, match="'DEBUG' exists already"):
    ContextVar("DEBUG", 0, "another")


def test_getenv(monkeypatch: pytest.MonkeyPatch) -> None:
  assert getenv("TINY_UOP_TEST", 3) == 3
  monkeypatch.setenv("TINY_UOP_TEST", "12")
  assert getenv("TINY_UOP_TEST", 3) == 12 and getenv("TINY_UOP_TEST", "x") == "12"
  monkeypatch.setenv("TINY_UOP_TEST", "")
  assert getenv("TINY_UOP_TEST", 3) == 3
  monkeypatch.setenv("TINY_UOP_TEST", "many")
  with pytest.raises(ValueError, match="environment variable TINY_UOP_TEST='many' is not an int"):
    getenv("TINY_UOP_TEST", 3)


def test_values_come_from_the_environment() -> None:
  code = "from tiny_uop.context import DEBUG, DEVICE; print(DEBUG.value, DEVICE.value)"
  environment = {**os.environ, "DEBUG": "4", "DEVICE": "REF:1"}
  result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
  assert result.stdout.split() == ["4", "REF:1"]
