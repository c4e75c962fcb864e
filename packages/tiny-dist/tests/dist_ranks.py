"""Runs programs of `programs/` in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def ranks(
  count: int, program: str, *arguments: str, environment: dict[str, str] | None = None, seconds: float = 120,
  options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:  # fmt: skip
  """A program of `programs/` in `count` processes, started by `python -m tiny_dist run`, `options` for mpiexec. One
  thread each, as they share the processors of one machine."""
  start = [sys.executable, "-m", "tiny_dist", "run", "-n", str(count), *[f"--mpi={o}" for o in options]]
  command = [*start, str(PROGRAMS / program), *arguments]
  around = {**os.environ, "CPU_THREADS": "1", **(environment or {})}
  return subprocess.run(command, capture_output=True, text=True, env=around, timeout=seconds, check=False)


def lines(done: subprocess.CompletedProcess[str]) -> Sequence[str]:
  """What it printed, sorted; the test fails with its output if it failed."""
  assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
  return sorted(done.stdout.splitlines())
