"""The textual form is the same in every process and version of Python, and text of version 1 stays legal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from uop_every_form import every_form

import tiny_uop
from tiny_uop import IR_VERSION, Ops, UOp, dtypes, parse_uop, print_uop

HERE = Path(__file__).parent
SOURCE = str(Path(tiny_uop.__file__).parents[1])


def interpreters() -> dict[str, str]:
  """Every Python from 3.11 on that this machine has, by version: tiny-uop needs nothing else."""
  found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
  for minor in range(11, 20):
    for candidate in (shutil.which(f"python3.{minor}"), *_of_pyenv(minor)):
      if candidate is not None and f"3.{minor}" not in found and (path := _real(candidate, minor)):
        found[f"3.{minor}"] = path
  return found


def _of_pyenv(minor: int) -> list[str]:
  root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
  return [str(p) for p in sorted(root.glob(f"versions/3.{minor}.*/bin/python"))]


def _real(python: str, minor: int) -> str:
  """The path of an interpreter, which may be behind a script; empty where it is not of that version."""
  code = f"import sys; print(sys.executable if sys.version_info[:2] == (3, {minor}) else '')"
  return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


INTERPRETERS = interpreters()


def printed(python: str, seed: str) -> str:
  environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": SOURCE, "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
  command = [python, "-W", "error", str(HERE / "uop_every_form.py")]
  done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
  assert done.returncode == 0, done.stderr
  return done.stdout


def test_every_form_parses_back() -> None:
  assert parse_uop(print_uop(every_form())) is every_form()


def test_text_of_version_1_stays_legal() -> None:
  """A text from when the form was fixed, with everything that there was. It is never rewritten: what it has may not go,
  and prints as it did, while IR_VERSION is 1."""
  frozen = (HERE / "golden" / "version_1.uop").read_text()
  if frozen.startswith(f"tiny-uop {IR_VERSION}\n"):
    graph = parse_uop(frozen)
    assert print_uop(graph) == frozen and graph.op is Ops.SINK and len(graph.toposort) == frozen.count("\n") - 1


@pytest.mark.parametrize("version", INTERPRETERS)
def test_other_processes_and_versions_print_the_same(version: str) -> None:
  outputs = {printed(INTERPRETERS[version], seed) for seed in ("0", "1", "12345")}
  assert outputs == {printed(sys.executable, "random")}
  assert outputs.pop().startswith(print_uop(every_form()))


def test_the_order_of_building_does_not_matter() -> None:
  """The same graph, built in another order in another process, prints the same."""
  x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
  here = print_uop((x + y) * (y + 1) + (x + y))
  code = (
    "from tiny_uop import UOp, print_uop\n"
    "y = UOp.variable('y', 0, 9); z = y + 1; x = UOp.variable('x', 0, 9); s = x + y\n"
    "print(print_uop(s * z + s), end='')"
  )
  environment = {"PYTHONPATH": SOURCE, "PATH": ""}
  done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
  assert done.stdout == here


def test_a_newer_text_is_refused_with_the_reason() -> None:
  text = print_uop(UOp.const(dtypes.int32, 1)).replace(f"tiny-uop {IR_VERSION}", f"tiny-uop {IR_VERSION + 1}")
  with pytest.raises(ValueError, match=f"IR version {IR_VERSION + 1}, this tiny-uop reads version {IR_VERSION}"):
    parse_uop(text)
