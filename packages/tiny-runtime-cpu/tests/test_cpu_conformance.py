"""The conformance kit, run as a plugin author runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime.conformance.kernels import random_kernel
from tiny_runtime.llvm import compile_assembly
from tiny_runtime_cpu import CPUCompiler, host_arch
from tiny_runtime_cpu.host import Arch
from tiny_runtime_cpu.machine import PASSES
from tiny_uop import KernelInfo, UOp, dtypes

VECTORS = {256: ("avx512", "avx10"), 128: ("avx", "fma", "f16c", "vaes", "vpclmulqdq", "xop")}
"""What processors with narrower vectors lack: beginnings of x86-64's features, by bits."""
COMPILED = "level2 or level3"
"""The levels whose results depend on what kernels are compiled for."""


def narrower(bits: int) -> Arch:
  """An older processor, whose programs this one runs: vectors have `bits`."""
  host = host_arch()
  if host.family != "x86_64":
    pytest.skip(f"all processors of {host.family} have vectors of 128 bits")
  lacking = VECTORS[128] if bits == 128 else VECTORS[256]
  names = [feature[1:] for feature in host.features.split(",")]
  features = [f"-{n}" if n.startswith(lacking) or f"-{n}" in host.features.split(",") else f"+{n}" for n in names]
  return Arch(host.triple, host.cpu, ",".join(features), host.caches)


def run_kit(folder: Path, *options: str) -> list[dict[str, Any]]:
  """Cases of the kit, which pass or are skipped."""
  report = folder / "report.json"
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_cpu.backend:BACKEND"]
  command += ["--report", str(report), *options]
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  cases: list[dict[str, Any]] = json.loads(report.read_text())["cases"]
  return cases


@pytest.mark.parametrize(("every", "least"), [(3, 300), pytest.param(1, 800, marks=pytest.mark.nightly)])
def test_conformance(tmp_path: Path, every: int, least: int) -> None:
  cases = run_kit(tmp_path, "--every", str(every))
  assert len(cases) > least
  assert {case["level"] for case in cases} == set(range(6))
  # on a machine with little memory nothing is beyond 32 bits
  not_passed = [case for case in cases if case["outcome"] != "passed" and "beyond_31_bits" not in case["case"]]
  reasons = {case["reason"] for case in not_passed}
  known = {
    "tiny_runtime_cpu.backend:BACKEND is not installed under the name BACKEND",
    "BACKEND claims no workgroups: local_memory and max_local_size",
    "persistent is not claimed",
    "recordings is not claimed",
    "stream is not claimed",
    "BACKEND claims no atomic MUL in GLOBAL memory",  # no processor has it, nor memory of a workgroup
    *[f"BACKEND claims no atomic {op} in LOCAL memory" for op in ("ADD", "MUL", "MAX", "AND", "OR", "XOR")],
  }
  assert reasons == known if every == 1 else reasons <= known


@pytest.mark.parametrize("bits", VECTORS)
def test_vectors_of_other_processors(tmp_path: Path, bits: int) -> None:
  assert len(run_kit(tmp_path, "--arch", str(narrower(bits)), "-k", COMPILED, "--every", "10")) > 60


@pytest.mark.nightly
@pytest.mark.parametrize("bits", VECTORS)
def test_vectors_of_other_processors_all(tmp_path: Path, bits: int) -> None:
  assert len(run_kit(tmp_path, "--arch", str(narrower(bits)))) > 800


def test_kernels_for_many_threads(tmp_path: Path) -> None:
  arch = str(replace(host_arch(), threads=64))
  assert len(run_kit(tmp_path, "--arch", arch, "-k", COMPILED, "--every", "10")) > 60


@pytest.mark.nightly
def test_kernels_for_many_threads_all(tmp_path: Path) -> None:
  assert len(run_kit(tmp_path, "--arch", str(replace(host_arch(), threads=64)))) > 800


@pytest.mark.parametrize("seed", range(30))
def test_random_kernels_compile_for_arm(seed: int) -> None:
  CPUCompiler(Arch("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")).compile(random_kernel(seed)[0])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30, 1000))
def test_random_kernels_compile_for_arm_all(seed: int) -> None:
  test_random_kernels_compile_for_arm(seed)


@pytest.mark.parametrize(("processor", "native"), [("neoverse-n1", True), ("a64fx", True), ("cortex-a72", False)])
def test_float16_is_computed_as_it_is_where_arm_processors_can(processor: str, native: bool) -> None:
  place, halves = UOp.range(1024, 0), dtypes.float16.ptr(1024)
  a, b = (UOp.param(n, halves).index(place).load() for n in (1, 2))
  kernel = UOp.sink(UOp.param(0, halves).index(place).store(a * b).end(place), arg=KernelInfo("halves"))
  arch = Arch("aarch64-unknown-linux-gnu", processor, "+neon")
  assembly = compile_assembly(CPUCompiler(arch).compile(kernel).source, arch.processor, PASSES)
  assert bool(re.search(r"\bfmul\tv\d+\.8h", assembly)) is native and ("fcvtl" in assembly) is not native
