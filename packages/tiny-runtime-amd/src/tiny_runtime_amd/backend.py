"""The backend object that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime import Compiler, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime_amd.arch import ARCHS, Arch
from tiny_runtime_amd.compiler import AMDCompiler
from tiny_runtime_amd.gpus import gpu_versions


class AMDBackend:
  """AMD's GPUs. This version compiles for them, and does not run on them yet."""

  api = (1, 2)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """Why none can be used."""
    found = gpu_versions()
    if isinstance(found, Unavailable):
      return found
    known = {arch.version: arch.name for arch in ARCHS}
    names = ", ".join(known.get(version, f"gfx_target_version {version}") for version in found)
    return Unavailable(
      f"there are GPUs ({names}), which this version of tiny-runtime-amd compiles for but does not run on yet",
      "Use another device",
    )

  def open(self, index: int) -> Device:
    """Raises Unavailable."""
    found = self.probe()
    assert isinstance(found, Unavailable)
    raise found

  def compiler(self, arch: str) -> Compiler:
    """A compiler for one of `ARCHS`. Needs no GPU."""
    return AMDCompiler(Arch.parse(arch))


AMD = AMDBackend()
"""What the entry point names."""
