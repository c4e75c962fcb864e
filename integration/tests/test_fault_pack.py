"""Plugins that are broken in every way we know, as real wheels in one environment with good ones.

The core is imported, devices are listed, the CPU computes, and each broken plugin is refused by a message that names
its distribution, the object that the entry point names, the cause, and what to do. What each message says for more
kinds of mistakes is tested in tiny-runtime, by plugins without wheels.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from releasing.distributions import build
from releasing.environment import Environment
from releasing.packages import load, siblings

GOOD = """
from tiny_runtime.ref import BACKEND as REF
class Backend:
  api, ir = (1, 0), (1, 1)
  def probe(self): {probe}
  def open(self, index): return REF.open(0)
  def compiler(self, arch): return REF.compiler("python")
BACKEND = Backend()
"""
NO_CARD = "from tiny_runtime import Unavailable; return Unavailable('there is no card', 'Buy one')"


@dataclass(frozen=True)
class Fault:
  """A wheel whose plugin has one mistake, and what the refusal says."""

  device: str
  source: str | None
  cause: str
  remedy: str
  group: str = "tiny_runtime.backends.v1"
  needs: str = ""
  distribution: str = ""

  @property
  def name(self) -> str:
    return self.distribution or f"tiny-fault-{self.device.lower()}"

  @property
  def module(self) -> str:
    return self.name.replace("-", "_")


REPORT = "Report it to the authors of "
FAULTS = (
  Fault("MISSING", None, "its module 'tiny_fault_missing' is missing", "pip install --force-reinstall"),
  Fault("RAISES", "raise ValueError('oh no')", "loading it raised ValueError: oh no", REPORT),
  Fault("NEEDS", "import no_such_library", "it needs the module 'no_such_library'", "install 'no_such_library'",
        needs="no-such-library>=1"),
  Fault("TYPE", "BACKEND = 7", "it is of type int, not a Backend", REPORT),
  Fault("EXITS", "import sys\nsys.exit(3)", "loading it raised SystemExit: 3", REPORT),
  Fault("OLD", "raise AssertionError('ran')", "written for version 0 of the plugin contract", "pip install --upgrade ",
        group="tiny_runtime.backends.v0"),
  Fault("NEWER", GOOD.replace("(1, 0)", "(1, 99)").format(probe="return ['x']"), "written for version 1.99 of",
        "pip install --upgrade tiny-runtime"),
  Fault("TWICE", GOOD.format(probe="return ['x']"), "several packages claim the name", "pip uninstall "),
  Fault("TWICE", GOOD.format(probe="return ['x']"), "several packages claim the name", "pip uninstall ",
        distribution="tiny-fault-again"),
  Fault("AMD", "1 / 0", "loading it raised ZeroDivisionError", REPORT),  # one that would be the default
)  # fmt: skip
NATIVE = (  # only another process can tell: what programs meet is in test_runtime_trial.py
  Fault("HANGS", GOOD.format(probe="import time; time.sleep(600)"), "its probe did not finish in time", REPORT),
  Fault("CRASHES", GOOD.format(probe="import ctypes; ctypes.string_at(0)"), "was ended by SIGSEGV", REPORT),
)
FINE = (
  Fault("GOOD", GOOD.format(probe="return ['one']"), "", ""),
  Fault("CUDA", GOOD.format(probe=NO_CARD), "there is no card", "Buy one"),
)

PROGRAM = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as seen:
  warnings.simplefilter("always")
  from tiny_tensor import Device, Tensor
  values = (Tensor([1, 2, 3]) + 1).tolist()
result = {"default": Device.DEFAULT, "values": values, "warnings": [str(w.message) for w in seen]}
result["imported"] = [name for name in sys.modules if name.startswith("tiny_fault")]
result["errors"] = {}
for name in sys.argv[1:]:
  try:
    Tensor([1.0], device=name).realize()
  except Exception as error:
    result["errors"][name] = [type(error).__name__, str(error)]
result["good"] = (Tensor([1.0, 2.0], device="GOOD") + 1).tolist()
result["again"] = (Tensor([1, 2, 3]) * 2).tolist()
print(json.dumps(result))
"""


def wheel(fault: Fault, folder: Path) -> Path:
  """A wheel with one module, or none, and one entry point."""
  info = f"{fault.module}-1.2.3.dist-info"
  needs = f"Requires-Dist: {fault.needs}\n" if fault.needs else ""
  files = {
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {fault.name}\nVersion: 1.2.3\n{needs}",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": f"[{fault.group}]\n{fault.device} = {fault.module}:BACKEND\n",
  }
  if fault.source is not None:
    files[f"{fault.module}.py"] = fault.source
  digests = {n: base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b"=") for n, t in files.items()}
  record = "".join(f"{name},sha256={digests[name].decode()},{len(text)}\n" for name, text in files.items())
  path = folder / f"{fault.module}-1.2.3-py3-none-any.whl"
  with ZipFile(path, "w") as archive:
    for name, text in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
      archive.writestr(name, text)
  return path


@dataclass(frozen=True)
class Observed:
  """What happened in the environment with all of them."""

  table: str
  status: int
  program: dict[str, Any]

  def row(self, device: str) -> str:
    """The row of a device in the table, and the lines under it, as one line."""
    lines = self.table.splitlines()
    start = next(n for n, line in enumerate(lines) if line[2:].startswith(device + " "))
    end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith("      ")), len(lines))
    return " ".join(" ".join(lines[start:end]).split())


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
  folder, packages = tmp_path_factory.mktemp("faults"), load()
  needed = siblings(["tiny-tensor", "tiny-runtime-cpu"], packages)
  checked = os.environ.get("TINY_WHEELS")
  ours = [
    next(Path(checked).glob(f"{packages[name].module}-*.whl")) if checked else build(packages[name], folder).wheel
    for name in needed
  ]
  environment = Environment(folder / "env")
  environment.install(*map(str, ours))
  environment.install("--no-deps", *(str(wheel(fault, folder)) for fault in (*FAULTS, *NATIVE, *FINE)))
  environment.variables = {k: v for k, v in environment.variables.items() if k not in ("DEVICE", "DEBUG")}
  table = environment.run("-m", "tiny_runtime", "--timeout", "15")
  program = environment.run("-c", PROGRAM, *dict.fromkeys(fault.device for fault in FAULTS))
  assert program.returncode == 0, program.stderr
  return Observed(table.stdout, table.returncode, json.loads(program.stdout))


def test_the_core_and_the_good_ones_work(observed: Observed) -> None:
  program = observed.program
  assert (program["default"], program["values"]) == ("CPU", [2, 3, 4])
  assert (program["good"], program["again"]) == ([2.0, 3.0], [2, 4, 6]), "after every broken one was asked for"
  assert program["imported"] == ["tiny_fault_cuda"], "what was not asked for did not run, and AMD failed"
  (warning,) = program["warnings"]
  assert "tiny-fault-amd 1.2.3" in warning and "ZeroDivisionError" in warning and "Using CPU instead" in warning


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.name))
def test_each_is_refused_by_name(observed: Observed, fault: Fault) -> None:
  kind, message = observed.program["errors"][fault.device]
  assert kind == ("Incompatible" if fault.device in ("OLD", "NEWER") else "Broken")
  for text in (f"{fault.name} 1.2.3", f"{fault.module}:BACKEND", fault.cause, fault.remedy):
    assert text in message, message


@pytest.mark.parametrize("fault", [*FAULTS, *NATIVE], ids=lambda fault: str(fault.name))
def test_the_table_has_a_row_for_each(observed: Observed, fault: Fault) -> None:
  row = observed.row(fault.device)
  assert row.startswith(f"✗ {fault.device} ")
  for text in (f"{fault.name} 1.2.3", f"{fault.module}:BACKEND", fault.cause, fault.remedy):
    assert text in row, row


def test_the_table_lists_the_good_ones(observed: Observed) -> None:
  assert observed.status == 0 and "default device: CPU" in observed.table
  for device in ("CPU", "REF", "GOOD"):
    assert observed.row(device).startswith(f"✓ {device} ready")
  assert observed.row("CUDA").endswith("why there is no card do Buy one")
