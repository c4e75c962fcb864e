"""All that is to be known of a GPU's device, in one call: see README.md. Needs nothing but Python to start.

python3 integration/device/run.py
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKED = ROOT / ".device" / "site.tar.xz"
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
WORKERS = str(min(12, os.cpu_count() or 1))
LOGS = Path(tempfile.gettempdir(), "tiny-device-logs")
PEAK = {"bf16": 989e12, "fp16": 989e12, "fp32": 67e12}
"""Operations per second of an H100 or H200 (SXM), without sparsity: NVIDIA's data sheet."""
GRACE = 5.0
"""Seconds that a part has to end, when it is asked to."""
LAST_LINES = 12
GPUS = ("CUDA", "METAL", "AMD", "NV")
"""Devices that are looked for, in this order."""
REPORT = "tiny-device-report.tar.gz"
LEVELS = (
  "0_package", "1_memory", "2_ops", "2_expressions", "3_programs", "3_accumulate", "3_workgroups", "4_order",
  "4_life_cycle", "5_graphs", "5_capabilities", "5_peers",
)  # fmt: skip
WORKLOADS = (
  "matmul bf16 8192", "matmul bf16 4096", "matmul fp16 8192", "matmul fp32 4096", "matmul tf32 4096", "add one, 1 GiB",
  "sum, 1 GiB", "softmax", "layer norm", "attention bf16", "a kernel of a graph", "a call of a small graph",
)  # fmt: skip
CHOICES = (
  "bf16 8192: wgmma 128×256", "bf16 8192: wgmma 128×128", "bf16 8192: wgmma 128×64", "bf16 8192: wgmma, turned",
  "bf16 8192: wgmma, no cp.async", "bf16 8192: mma.sync", "bf16 8192: mma.sync, no cp.async",
  "bf16 8192: mma.sync, no ldmatrix", "fp8 8192: mma.sync",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
  """A command, and the seconds that it may take."""

  name: str
  command: Sequence[str]
  limit: float


@dataclass
class Result:
  """How a part ended, and what it said. `status` is None where its time was up, or there was none left for it."""

  name: str
  status: int | None
  seconds: float
  text: str

  @property
  def last(self) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), "")

  @property
  def outcome(self) -> str:
    return "TIME IS UP" if self.status is None else "passed" if self.status == 0 else f"FAILED ({self.status})"


def parts(device: str) -> Iterator[Part]:
  """In the order of what they tell: whether it works, how fast it is, whether all of it works."""
  yield Part("machine", [sys.executable, str(HERE / "machine.py")], 30)
  yield Part("table", [sys.executable, "-m", "tiny_runtime"], 40)
  yield Part("first kernels", [sys.executable, str(HERE / "first_kernels.py")], 60)
  kit = [*PYTEST, "-p", "tiny_runtime.conformance.options", "--pyargs"]
  for level in LEVELS:
    # what fills the memory, or measures it, has the GPU to itself
    several = ["-n", WORKERS] if level[0] in "23" else []
    module = f"tiny_runtime.conformance.test_level{level}"
    yield Part(f"kit {level}", [*kit, module, "--backend", device, *several], 80 if several else 40)
  measure = [sys.executable, str(HERE / "measure.py")]
  nvidia = device.partition(":")[0] not in ("AMD", "METAL")
  if nvidia:
    yield Part("code", [sys.executable, str(HERE / "code.py"), str(LOGS / "code")], 60)
  if device.startswith("AMD"):
    yield Part("recording", [sys.executable, str(HERE / "recording.py"), str(LOGS)], 60)
  yield Part("measure torch", [*measure, "torch", *WORKLOADS], 120)
  for name in WORKLOADS:  # in processes of their own: an illegal access ends all that a process can do with a GPU
    yield Part(f"measure {name}", [*measure, "ours", name], 30)
  for name in CHOICES if nvidia else ():
    yield Part(f"measure {name}", [sys.executable, str(HERE / "choices.py"), name], 40)
  yield Part("demo", [sys.executable, str(ROOT / "integration/examples/digits.py"), "--out", "/tmp/digits"], 60)
  tests = ["-c", str(ROOT / "pyproject.toml"), "-n", WORKERS, str(ROOT / "packages/tiny-tensor/tests")]
  yield Part("frontend", [*PYTEST, *tests], 200)
  if not nvidia:
    return
  # last, since what goes wrong here may end the GPU's other programs; and first what a container lets it do
  yield Part("nv steps", [sys.executable, str(HERE / "nv_steps.py")], 60)
  for level in LEVELS[1:]:
    yield Part(f"nv kit {level}", [*kit, f"tiny_runtime.conformance.test_level{level}", "--backend", "NV", "-x"], 80)


def installed(folder: Path) -> str:
  """A path of Python's that has the packages of this tree, as if they were installed, and what was packed."""
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  try:
    if PACKED.exists():
      with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
  except (OSError, EOFError, tarfile.TarError) as error:  # what this machine has may do
    print(f"{PACKED} cannot be unpacked: {error!r}", flush=True)
    shutil.rmtree(folder)
    folder.mkdir()
  sources = []
  for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    info = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    lines = []
    for group, points in about.get("entry-points", {}).items():
      lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    sources.append(str(project.parent / "src"))
  return os.pathsep.join([str(folder), *sources, os.environ.get("PYTHONPATH", "")])


def found(variables: Mapping[str, str]) -> str:
  """The GPU's device that can be used here; empty if there is none."""
  ask = "from tiny_runtime import Device; print(*Device.get_available_devices())"
  try:
    done = subprocess.run(
      [sys.executable, "-c", ask], env=os.environ | dict(variables), capture_output=True, text=True, timeout=120
    )  # fmt: skip
  except subprocess.TimeoutExpired:
    return ""
  names = [name.partition(":")[0] for name in done.stdout.split()]
  return next((name for name in GPUS if name in names), "")


def packed(out: Path, results: Sequence[Result]) -> Path:
  """All of it in one file: the table, what each part said, and what parts left in the folder of logs."""
  (out / "table.txt").write_text(table(results) + "\n")
  (out / "results.json").write_text(json.dumps([asdict(r) | {"text": r.text[-20_000:]} for r in results]))
  with tarfile.open(out / REPORT, "w:gz") as file:
    for path, name in ((out / "table.txt", "table.txt"), (out / "results.json", "results.json"), (LOGS, "logs")):
      file.add(path, name)
  return out / REPORT


def run(part: Part, folder: Path, limit: float, variables: Mapping[str, str]) -> Result:
  """Run a part in a process group of its own, all of which ends with it; what it says goes to a file in `folder`."""
  log = folder / f"{''.join(c if c.isalnum() else '_' for c in part.name)}.log"
  start = time.monotonic()
  with log.open("w") as output:
    process = subprocess.Popen(
      part.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
      start_new_session=True, env=os.environ | dict(variables),
    )  # fmt: skip
    status: int | None = None
    try:
      status = process.wait(limit)
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGTERM)
      try:
        process.wait(GRACE)
      except subprocess.TimeoutExpired:
        pass
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
  return Result(part.name, status, time.monotonic() - start, log.read_text(errors="replace"))


def figures(results: Sequence[Result]) -> dict[str, dict[str, dict[str, Any]]]:
  """What was measured: workload → library → figures."""
  found: dict[str, dict[str, dict[str, Any]]] = {}
  lines = [line for result in results if result.name.startswith("measure ") for line in result.text.splitlines()]
  for each in (json.loads(line) for line in lines if line.startswith('{"workload"')):
    found.setdefault(each["workload"], {})[each["library"]] = each
  return found


def speed(given: Mapping[str, Any]) -> str:
  """Figures as what people compare: operations or bytes per second, or time."""
  if given["operations"]:
    return f"{given['operations'] / given['seconds'] / 1e12:.2f} TFLOPS"
  if given["nbytes"]:
    return f"{given['nbytes'] / given['seconds'] / 1e9:.0f} GB/s"
  return f"{given['seconds'] * 1e6:.2f} µs"


def table(results: Sequence[Result]) -> str:
  """Everything, a line each: what ran, or did not, then what was measured."""
  lines = [f"{'part':42} {'outcome':12} {'seconds':>7}  last line"]
  for result in results:
    if not result.name.startswith("measure ") or result.status != 0:
      lines.append(f"{result.name:42} {result.outcome:12} {result.seconds:7.1f}  {result.last[:90]}")
  known = any(f"H{n}00" in result.text for result in results if result.name == "machine" for n in (1, 2))
  lines += [
    "",
    f"{'measured':28} {'ours':>14} {'torch':>14} {'× torch':>8} {'of peak':>8} {'error':>8} {'first call':>10}",
  ]
  for name, found in figures(results).items():
    ours, torch = found.get("ours"), found.get("torch")
    texts = [speed(each) if each else "-" for each in (ours, torch)]
    ratio = f"{torch['seconds'] / ours['seconds']:.2f}" if ours and torch else "-"
    kind = next((word for word in PEAK if word in name), "")
    share = f"{ours['operations'] / ours['seconds'] / PEAK[kind]:.0%}" if ours and kind and known else "-"
    ending = f"{ours['error']:8.1e} {ours['first']:8.2f} s" if ours else f"{'-':>8} {'-':>10}"
    lines.append(f"{name:28} {texts[0]:>14} {texts[1]:>14} {ratio:>8} {share:>8} {ending}")
  return "\n".join(lines)


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "out" / "device")))
  parser.add_argument("--seconds", type=float, default=560, help="for everything; default: 560")
  parser.add_argument("--only", default="", metavar="WORD", help="the parts whose name has this word")
  parser.add_argument(
    "--device", default="",
    help=f"default: the first of {', '.join(GPUS)} that can be used; NV is without libcuda; CPU tries this script "
    "where there is no GPU",
  )  # fmt: skip
  given = parser.parse_args()
  end = time.monotonic() + given.seconds
  given.out.mkdir(parents=True, exist_ok=True)
  shutil.rmtree(LOGS, ignore_errors=True)
  LOGS.mkdir()
  path = installed(Path("/tmp/tiny-device-site"))
  variables = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "CI": "true"}
  device = given.device or found(variables)
  known = list(parts(device)) if device else list(parts("CPU"))[:2]  # the machine, and why no device can be used
  if device:
    variables["DEVICE"] = device
  results: list[Result] = []
  report = packed(given.out, results)
  for part in known:
    if given.only not in part.name:
      continue
    left = end - time.monotonic() - 2 * GRACE
    result = run(part, LOGS, min(part.limit, left), variables) if left > 1 else Result(part.name, None, 0, "")
    results.append(result)
    print(f"{result.name}: {result.outcome} ({result.seconds:.1f} s) {result.last[:100]}", flush=True)
    report = packed(given.out, results)
  for result in results:
    if result.status != 0 and result.text:
      print(f"\n--- {result.name} {result.outcome}", *result.text.splitlines()[-LAST_LINES:], sep="\n")
  print("", table(results), sep="\n")
  if not device:
    print(*(result.text for result in results if result.name == "table"), sep="\n")
    print(f"no GPU can be used here ({', '.join(GPUS)}): the lines above say why, and what to do")
  print(f"\nall of it is in {report}: that is the file to send", flush=True)
  return int(not device or any(result.status != 0 for result in results))


if __name__ == "__main__":
  sys.exit(main())
