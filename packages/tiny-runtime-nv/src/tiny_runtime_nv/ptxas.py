"""ptxas, NVIDIA's assembler: PTX → a cubin. It comes with the extra `ptxas`, or with a CUDA that is installed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tiny_runtime import CompileError

MINUTES = 10
"""So long it may take."""


@cache
def find_ptxas() -> str | None:
  """The assembler of the package nvidia-cuda-nvcc, or of a CUDA on the PATH or in /usr/local; None if there is none."""
  spec = importlib.util.find_spec("nvidia")
  for folder in (spec.submodule_search_locations or []) if spec is not None else []:
    for found in sorted(Path(folder).glob("*/bin/ptxas")):
      return str(found)
  return shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")


@cache
def version() -> str:
  """What it says of its version; "" where there is none."""
  ptxas = find_ptxas()
  if ptxas is None:
    return ""
  done = subprocess.run([ptxas, "--version"], capture_output=True, text=True, timeout=60)
  return next((line for line in done.stdout.splitlines() if "release" in line), "")


def assemble(ptx: bytes, arch: str, report: bool = False) -> tuple[bytes, str]:
  """A cubin, and what ptxas says of it (with `report`, of its registers and of what waits). Raises CompileError."""
  ptxas = find_ptxas()
  if ptxas is None:
    raise CompileError("there is no ptxas: `pip install 'tiny-runtime-nv[ptxas]'`, or install CUDA", ptx.decode())
  with tempfile.TemporaryDirectory(prefix="tiny-nv-") as folder:
    source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
    source.write_bytes(ptx)
    command = [ptxas, *(["-v"] if report else []), f"-arch={arch}", "-o", str(cubin), str(source)]
    try:
      done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired as error:
      raise CompileError(f"ptxas took longer than {MINUTES} minutes", ptx.decode()) from error
    if done.returncode:
      raise CompileError(f"ptxas refused it: {done.stderr}", ptx.decode())
    return cubin.read_bytes(), done.stderr


def cubin_of(ptx: str, arch: str) -> bytes:
  """A cubin of PTX, as a compiler wants it. Raises CompileError."""
  return assemble(ptx.encode(), arch)[0]
