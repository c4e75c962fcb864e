"""The script for machines with GPUs, as far as it can be tried without one: its time limits, its table, its checks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

DEVICE = Path(__file__).parents[2] / "device"
sys.path.insert(0, str(DEVICE))

import choices  # noqa: E402
import measure  # noqa: E402
import metal_sources  # noqa: E402
from measure import WORKLOADS, Ours, Workload, measured, product  # noqa: E402
from run import CHOICES, LEVELS, Part, Result, packed, parts, run, table  # noqa: E402
from run import WORKLOADS as NAMES  # noqa: E402

from tiny_runtime import GlobalCounters, conformance  # noqa: E402
from tiny_runtime.conformance.standard import STANDARD  # noqa: E402
from tiny_runtime_metal.arch import FAMILIES  # noqa: E402
from tiny_uop import dtypes  # noqa: E402
from tiny_uop.truncate import from_bits  # noqa: E402

FIGURES = {
  "workload": "matmul bf16 8192",
  "library": "ours",
  "seconds": 2e-3,
  "error": 1e-3,
  "first": 3.0,
  "operations": 2.0 * 8192**3,
  "nbytes": 0.0,
}


def python(text: str, limit: float = 60) -> Part:
  return Part("a part", [sys.executable, "-u", "-c", text], limit)


def test_a_part_ends_with_its_children_when_its_time_is_up(tmp_path: Path) -> None:
  alive = tmp_path / "alive"
  child = f"import time\nwhile True: open({str(alive)!r}, 'a').write('x'); time.sleep(0.02)"
  start_child = f"subprocess.Popen([sys.executable, '-c', {child!r}])"
  text = f"import subprocess, sys, time\n{start_child}\nprint('so far')\ntime.sleep(99)"
  start = time.monotonic()
  result = run(python(text), tmp_path, 3, {})
  assert result.status is None and result.outcome == "TIME IS UP" and result.last == "so far"
  assert time.monotonic() - start < 60
  size = alive.stat().st_size
  time.sleep(0.3)
  assert alive.stat().st_size == size > 0


def test_a_part_that_fails_is_told_from_one_that_passes(tmp_path: Path) -> None:
  failed = run(python("import os; print(os.environ['WORD']); raise SystemExit(3)"), tmp_path, 60, {"WORD": "why"})
  assert (failed.status, failed.outcome, failed.last) == (3, "FAILED (3)", "why")
  assert run(python("print('it is')"), tmp_path, 60, {}).outcome == "passed"


def test_the_table() -> None:
  def result(name: str, status: int | None, text: str) -> Result:
    return Result(name, status, 1.5, text)

  lines = table([
    result("machine", 0, "NVIDIA H100 80GB HBM3"),
    result("kit 2_ops", 1, "3 failed, 700 passed"),
    result("measure torch", None, json.dumps(FIGURES | {"library": "torch", "seconds": 1.5e-3}) + "\nthen it hung"),
    result("measure matmul bf16 8192", 0, json.dumps(FIGURES)),
    result("measure softmax", 1, "Traceback"),
  ]).splitlines()  # fmt: skip
  assert any(line.startswith("kit 2_ops") and "FAILED (1)" in line and line.endswith("700 passed") for line in lines)
  assert any("measure torch" in line and "TIME IS UP" in line for line in lines)
  assert any("measure softmax" in line and "FAILED (1)" in line for line in lines)
  (row,) = (line for line in lines if line.startswith("matmul bf16 8192"))
  assert row.split()[3:] == ["549.76", "TFLOPS", "733.01", "TFLOPS", "0.75", "56%", "1.0e-03", "3.00", "s"]


def test_parts_are_there_and_have_time_within_the_lease() -> None:
  assert tuple(WORKLOADS) == NAMES and tuple(choices.CHOICES) == CHOICES
  folder = Path(str(conformance.__file__)).parent
  assert sorted(f"test_level{level}" for level in LEVELS) == sorted(path.stem for path in folder.glob("test_level*.py"))
  for part in parts("CUDA"):
    for word in part.command:
      assert not word.endswith(".py") or Path(word).exists()


@pytest.mark.parametrize(("device", "there", "missing"), [
  ("AMD", ["recording", "kit 5_graphs", "measure softmax"], ["code", "nv steps", "measure fp8 8192: mma.sync"]),
  ("METAL", ["kit 2_ops", "measure torch", "frontend"], ["recording", "code", "nv kit 1_memory"]),
  ("CUDA", ["code", "nv steps", "measure bf16 8192: wgmma 128×256"], ["recording"]),
])  # fmt: skip
def test_each_vendors_card_has_its_parts(device: str, there: list[str], missing: list[str]) -> None:
  names = [part.name for part in parts(device)]
  assert [name for name in there if name not in names] == [name for name in missing if name in names] == []


def test_one_file_has_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  logs = tmp_path / "logs"
  logs.mkdir()
  monkeypatch.setattr("run.LOGS", logs)
  result = run(python("print('it is there')"), logs, 60, {})
  with tarfile.open(packed(tmp_path, [result])) as file:
    assert {"table.txt", "results.json", "logs/a_part.log"} <= set(file.getnames())
    read = file.extractfile("table.txt")
    assert read is not None and b"it is there" in read.read()


def test_where_no_gpu_is_it_says_why(tmp_path: Path) -> None:
  """One command, with no options but where to write to: here there is no GPU."""
  command = [sys.executable, str(DEVICE / "run.py"), "--out", str(tmp_path)]
  done = subprocess.run(command, capture_output=True, text=True, timeout=300)
  assert done.returncode == 1 and "no GPU can be used here (CUDA, METAL, AMD, NV)" in done.stdout
  assert "load the module amdgpu" in done.stdout and "libcuda" in done.stdout
  assert f"all of it is in {tmp_path / 'tiny-device-report.tar.gz'}: that is the file to send" in done.stdout


def test_metal_sources_are_compiled_by_a_mac_only(capsys: pytest.CaptureFixture[str]) -> None:
  found = dict(islice(metal_sources.sources(), 3))
  assert [*found] == [f"{next(iter(FAMILIES))} {name}" for name in [*STANDARD][:3]]
  assert all("#include <metal_stdlib>" in source and "kernel void" in source for source in found.values())
  if shutil.which("xcrun") is None:
    assert metal_sources.main() == 1
    assert "this needs a Mac with Xcode" in capsys.readouterr().out


def test_a_chain_is_as_many_kernels_as_it_has_links() -> None:
  ours = Ours()
  before = GlobalCounters.kernel_count
  assert ours.array(ours.chain(ours.tensor(np.zeros(4, np.float32), "float32"), 7)).tolist() == [7.0] * 4
  assert GlobalCounters.kernel_count - before >= 7


def test_what_is_measured_is_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("measure.SLICE", 1e-3)
  found = measured(Ours(), product(64, "float32", 1e-5))
  assert 0 < found["seconds"] < 1 and found["error"] < 1e-5 and found["operations"] == 2 * 64**3
  wrong = Workload("float32", ((8,),), lambda _, x: x + 1, lambda r, x: (r, x + 2.0), 1e-5)
  with pytest.raises(ValueError, match="the result is wrong: its error is"):
    measured(Ours(), wrong)


def test_a_workload_that_fails_leaves_the_others(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
  monkeypatch.setattr("measure.SLICE", 1e-3)
  wrong = Workload("float32", ((8,),), lambda _, x: x + 1, lambda r, x: (r, x + 2.0), 1e-5)
  monkeypatch.setattr("measure.WORKLOADS", {"wrong": wrong, "right": product(8, "float32", 1e-5)})
  monkeypatch.setattr("sys.argv", ["measure.py", "ours", "wrong", "right"])
  assert measure.main() == 1
  first, *_, last = capsys.readouterr().out.splitlines()
  assert first == "wrong failed" and json.loads(last)["workload"] == "right" and json.loads(last)["library"] == "ours"


def test_choices_have_the_instructions_that_they_are_named_for() -> None:
  for name, (words, others) in {
    "bf16 8192: wgmma 128×64": (("m64n64k16", "cp.async.cg"), ("mma.sync", "m64n128k16")),
    "bf16 8192: wgmma, no cp.async": (("m64n256k16",), ("cp.async",)),
    "bf16 8192: mma.sync, no ldmatrix": (("mma.sync", "cp.async.cg"), ("wgmma", "ldmatrix")),
    "fp8 8192: mma.sync": (("e4m3", "ldmatrix"), ("wgmma",)),
  }.items():
    text = choices.compiled(name, "sm_90a", 4096).code.decode()
    assert [word for word in words if word not in text] == [word for word in others if word in text] == [], name


def test_numbers_of_8_bits_are_what_their_bits_say() -> None:
  bits, numbers = choices.operand(8, dtypes.fp8e4m3, 0)
  assert [from_bits(dtypes.fp8e4m3, int(b)) for b in bits.ravel()] == numbers.ravel().tolist()
