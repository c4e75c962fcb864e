"""The conformance kit, run as a plugin author runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_conformance(tmp_path: Path) -> None:
  report = tmp_path / "report.json"
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_cpu.backend:BACKEND"]
  command += ["--report", str(report)]
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  cases = json.loads(report.read_text())["cases"]
  assert len(cases) > 800
  assert {case["level"] for case in cases} == set(range(6))
  # on a machine with little memory nothing is beyond 32 bits
  not_passed = [case for case in cases if case["outcome"] != "passed" and "beyond_31_bits" not in case["case"]]
  reasons = {case["reason"] for case in not_passed}
  assert reasons == {
    "tiny_runtime_cpu.backend:BACKEND is not installed under the name BACKEND",
    "BACKEND claims no workgroups: local_memory and max_local_size",
    "persistent is not claimed",
    "BACKEND claims no atomic MUL in GLOBAL memory",  # no processor has it, nor memory of a workgroup
    *[f"BACKEND claims no atomic {op} in LOCAL memory" for op in ("ADD", "MUL", "MAX", "AND", "OR", "XOR")],
  }
