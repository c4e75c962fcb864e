"""Where our kernels of a workload spend their time: by loop of their machine code, on one thread.

    hatch run hot-loops conv                     # groups, or parts of names, as for bench
    hatch run hot-loops --seconds 3 "matmul 512"
    hatch run hot-loops --trace loops.jsonl "matmul 512, both"   # for python -m tiny_viz serve loops.jsonl

Samples are those of Linux's `perf` by the clock, which needs no counters of the processor and works in virtual
machines; machine code is read with `objdump`. Both have to be installed (Debian: linux-perf, binutils).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from suite.hot_loops import costs, instructions, loops, shares, table
from suite.launching import kernels_of, launcher, memory_for, names_of, operations_of
from suite.roofline import Roofline

SAMPLES = 20
"""Of the roof, of which the best is shown: other work on the machine makes some of them slow."""
LEAST = 0.02
"""Of the time of a workload: kernels that take less are left out."""


def run_child(name: str, seconds: float, out: Path) -> None:
  """Launch each kernel of a workload for a while, and leave where they were and how fast."""
  from tiny_codegen.opt.beam import before_opts
  from tiny_runtime_cpu import CPUDevice, host_arch
  from tiny_runtime_cpu.compiler import CPUCompiler
  from tiny_uop.observe import tracing

  device, compiler = CPUDevice(), CPUCompiler(host_arch())
  found: list[dict[str, Any]] = []
  programs = []  # all of them stay where they are: samples are told apart by their addresses
  kernels = list(kernels_of(name))
  with tracing(out / "trace.jsonl"):
    binaries = [compiler.compile(kernel) for kernel in kernels]
  for kernel, binary in zip(kernels, binaries):
    programs.append(program := device.load(binary))
    launch = launcher(device, binary, program, memory_for(device, binary.params))
    times, end = list[float](), perf_counter() + seconds
    while perf_counter() < end or len(times) < 3:
      start = perf_counter()
      launch()
      times.append(perf_counter() - start)
    code = out / f"{len(found)}.o"
    code.write_bytes(binary.code)
    operations = operations_of(before_opts(kernel), binary)
    entry = {"name": binary.entry, "address": program.address, "code": str(code), "operations": operations}
    found.append({**entry, "seconds": float(np.median(times))})
  roof = Roofline()
  rate = max(roof.measure("fma", 0, 0.02, perf_counter) for _ in range(SAMPLES))
  (out / "kernels.json").write_text(json.dumps({"kernels": found, "roof": rate}))


def profile(name: str, seconds: float, out: Path) -> list[str]:
  """The report on one workload."""
  environment = {**os.environ, "CPU_COUNT": "1", "DEVICE": "CPU"}
  data, child = out / "perf.data", [sys.executable, __file__, "--child", str(out), "--seconds", str(seconds), name]
  command = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "5000", "-o", str(data), "--", *child]
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  if done.returncode:
    raise SystemExit(f"{name}: perf or the workload failed:\n{done.stderr}")
  script = subprocess.run(["perf", "script", "-i", str(data), "-F", "ip"], capture_output=True, text=True, check=True)
  samples = [int(line, 16) for line in script.stdout.split()]
  found = json.loads((out / "kernels.json").read_text())
  kernels, lines = found["kernels"], [name]
  told: list[dict[str, Any]] = [{"profile": 1, "program": name}]
  everything = sum(k["seconds"] for k in kernels)
  for k in kernels:
    if k["seconds"] < LEAST * everything:
      continue
    base = k["address"] - offset_of(k["name"], k["code"])
    text = subprocess.run(
      ["objdump", "-d", "--no-show-raw-insn", k["code"]], capture_output=True, text=True, check=True
    ).stdout
    code = instructions(text)
    inside = [s - base for s in samples if code[0].place <= s - base <= code[-1].place]
    rate = k["operations"] / k["seconds"]
    shown = f"{rate * 1e-9:.1f} GFLOPS, {rate / found['roof']:.0%} of {found['roof'] * 1e-9:.1f}"
    lines.append(f"{k['name']}: {k['seconds'] * 1e6:.0f} µs on one thread, {shown}; {len(inside)} samples")
    parts = shares(known := loops(code), inside)
    lines += table(known, parts)
    told.append({"loops": costs(known, parts), "name": k["name"]})
  with (out / "trace.jsonl").open("a") as trace:
    trace.writelines(json.dumps(line) + "\n" for line in told)
  return lines


def offset_of(symbol: str, path: str) -> int:
  """Where a function stands in its section."""
  listed = subprocess.run(["objdump", "-t", path], capture_output=True, text=True, check=True).stdout
  for line in listed.splitlines():
    if line.split()[-1:] == [symbol]:
      return int(line.split()[0], 16)
  raise SystemExit(f"{path} has no function {symbol}")


def main() -> None:
  """See the head of this file."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("only", nargs="+", help="groups, or parts of the names of workloads")
  parser.add_argument("--seconds", type=float, default=1.0, help="of launching each kernel (default: 1)")
  parser.add_argument("--trace", metavar="FILE", help="save code and loops of one workload for tiny_viz")
  parser.add_argument("--child", help=argparse.SUPPRESS)
  options = parser.parse_args()
  if options.child:
    return run_child(options.only[0], options.seconds, Path(options.child))
  if missing := [tool for tool in ("perf", "objdump") if shutil.which(tool) is None]:
    raise SystemExit(f"{' and '.join(missing)}: not installed. On Debian, apt-get install linux-perf binutils")
  names = names_of(options.only)
  if options.trace and len(names) != 1:
    raise SystemExit(f"--trace is of one workload, {len(names)} are named so: {', '.join(names[:8])}")
  for name in names:
    with tempfile.TemporaryDirectory() as folder:
      print(*profile(name, options.seconds, Path(folder)), sep="\n", flush=True)
      if options.trace:
        shutil.copy(Path(folder) / "trace.jsonl", options.trace)


if __name__ == "__main__":
  main()
