"""ptxas, NVIDIA's assembler: finds it where the extra `ptxas` brings it, and reads what it reports."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tiny_runtime import Binary, CompileError
from tiny_runtime.conformance.compile_only import CompileOnly
from tiny_runtime_nv import CUDA, Arch
from tiny_runtime_nv.shared_memory import at_launch
from tiny_uop.updates import GPU_UPDATES


class Report(NamedTuple):
  """What a kernel takes of the hardware: registers of a thread, bytes of shared memory, bytes spilled; and why
  ptxas lets instructions wait for each other: for want of registers, say, or because accumulators are touched."""

  registers: int
  shared: int
  spilled: int
  losses: tuple[str, ...] = ()


@cache
def find_ptxas() -> str | None:
  """The assembler of the package nvidia-cuda-nvcc, or else of a CUDA that is installed; None if there is none."""
  spec = importlib.util.find_spec("nvidia")
  for folder in (spec.submodule_search_locations or []) if spec is not None else []:
    for found in sorted(Path(folder).glob("*/bin/ptxas")):
      return str(found)
  return shutil.which("ptxas")


def assemble(ptx: bytes, arch: str) -> Report:
  """What ptxas makes of PTX. Raises CompileError with its message."""
  ptxas = find_ptxas()
  assert ptxas is not None, "pip install nvidia-cuda-nvcc"
  with tempfile.TemporaryDirectory() as folder:
    source = Path(folder, "kernel.ptx")
    source.write_bytes(ptx)
    command = [ptxas, "-v", f"-arch={arch}", "-o", str(Path(folder, "kernel.cubin")), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    raise CompileError(f"ptxas refused it: {done.stderr}", ptx.decode())
  return Report(
    registers=max(map(int, re.findall(r"Used (\d+) registers", done.stderr)), default=0),
    shared=max(map(int, re.findall(r"(\d+) bytes smem", done.stderr)), default=0) + at_launch(ptx),
    spilled=sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr))),
    losses=tuple(re.findall(r"Potential Performance Loss: (.*)", done.stderr)),
  )


ARCH = os.environ.get("NV_ARCH", "sm_90a")


def _assembles(binary: Binary) -> None:
  assemble(binary.code, ARCH)


BACKEND = CompileOnly(CUDA, ARCH, _assembles, Arch.parse(ARCH).shared_memory, GPU_UPDATES)
"""For the conformance kit: every kernel is compiled and assembled, and run by REF."""
