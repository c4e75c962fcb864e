"""A script of tiny-dist that torchrun starts: the same losses as under mpiexec and in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
PROGRAMS = Path(__file__).parents[2] / "packages" / "tiny-dist" / "tests" / "programs"


def test_torchrun_and_mpiexec_give_the_same_bits() -> None:
  script = [str(PROGRAMS / "training.py"), "conv", "data", "2"]
  torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
  mpiexec = [sys.executable, "-m", "tiny_dist", "run", "-n", "2", *script]
  around = {**os.environ, "CPU_THREADS": "1"}
  found = []
  for command in (torchrun, mpiexec):
    done = subprocess.run(command, capture_output=True, text=True, env=around, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found.append(done.stdout.splitlines())
  assert len(found[0]) == 2 and len({*found[0], *found[1]}) == 1, found
