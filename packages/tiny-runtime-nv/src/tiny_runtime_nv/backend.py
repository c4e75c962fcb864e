"""The backend objects that the entry points name. Importing them needs neither a driver nor llvmlite's LLVM."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime import Compiler, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime_nv.arch import ARCHS, Arch
from tiny_runtime_nv.compiler import NVCompiler
from tiny_runtime_nv.gpus import compute_capabilities, load_library


class CUDABackend:
  """NVIDIA's GPUs by way of the driver API."""

  api = (1, 2)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """The architecture of each GPU, or why none can be used."""
    found = compute_capabilities(load_library())
    if isinstance(found, Unavailable):
      return found
    archs = [Arch.of(*capability) for capability in found]
    names = ", ".join("older than " + ARCHS[0].name if arch is None else arch.name for arch in archs)
    return Unavailable(
      f"there are GPUs ({names}), which this version of tiny-runtime-nv compiles for but does not run on yet",
      "Use another device",
    )

  def open(self, index: int) -> Device:
    """Raises Unavailable."""
    found = self.probe()
    assert isinstance(found, Unavailable)
    raise found

  def compiler(self, arch: str) -> Compiler:
    """A compiler for one of `ARCHS`. Needs no GPU."""
    return NVCompiler(Arch.parse(arch))


class NVBackend(CUDABackend):
  """NVIDIA's GPUs by way of their hardware queues, without NVIDIA's library. Its compiler is that of CUDA."""

  def probe(self) -> Sequence[str] | Unavailable:
    """Why it cannot be used."""
    return Unavailable(
      "this version of tiny-runtime-nv has no driver of its own for NVIDIA's GPUs, only a compiler",
      "Use DEVICE=CUDA, which goes through NVIDIA's library",
    )


CUDA = CUDABackend()
"""What the entry point `CUDA` names."""
NV = NVBackend()
"""What the entry point `NV` names."""
