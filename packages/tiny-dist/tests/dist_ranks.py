"""Runs programs of `programs/` in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def ranks(
  count: int, program: str, *arguments: str, environment: dict[str, str] | None = None, seconds: float = 120
) -> subprocess.CompletedProcess[str]:
  """A program of `programs/` in `count` processes, started by `python -m tiny_dist run`. One thread each, as they
  share the processors of one machine."""
  command = [sys.executable, "-m", "tiny_dist", "run", "-n", str(count), str(PROGRAMS / program), *arguments]
  around = {**os.environ, "CPU_THREADS": "1", **(environment or {})}
  return subprocess.run(command, capture_output=True, text=True, env=around, timeout=seconds, check=False)


def lines(done: subprocess.CompletedProcess[str]) -> Sequence[str]:
  """What it printed, sorted; the test fails with its output if it failed."""
  assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
  return sorted(done.stdout.splitlines())
