"""`python -m tiny_dist run -n 4 script.py`: calls the installed mpiexec, with what that needs to hear."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def mpiexec() -> str:
  """The mpiexec of this environment, else the first on the PATH. Raises FileNotFoundError."""
  own = Path(sys.executable).with_name("mpiexec")
  found = str(own) if own.exists() else shutil.which("mpiexec")
  if found is None:
    raise FileNotFoundError("no mpiexec beside this Python or on the PATH: pip install mpich, or load a module")
  return found


def version(found: str) -> str:
  """What an mpiexec says it is. Raises subprocess.TimeoutExpired where it says nothing in a minute."""
  said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False, timeout=60)
  return said.stdout + said.stderr


def command(count: int, program: Sequence[str], options: Sequence[str] = ()) -> list[str]:
  """The command that runs `program`, arguments of this Python, in `count` processes."""
  found = mpiexec()
  said = version(found)
  ours = ["--oversubscribe"] if "Open MPI" in said or "prte" in said.lower() else []
  return [found, *ours, *options, "-n", str(count), sys.executable, *program]


def environment() -> dict[str, str]:
  """The environment for it: Open MPI refuses to run as root, as in a container, unless it is told twice."""
  allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
  return {**os.environ, **allowed}


def run(count: int, program: Sequence[str], options: Sequence[str] = ()) -> int:
  """Runs it, and gives the exit code."""
  return subprocess.run(command(count, program, options), env=environment(), check=False).returncode
