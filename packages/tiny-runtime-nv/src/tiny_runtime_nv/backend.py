"""The backend object that the entry point names. Importing it needs no driver, and imports neither the device nor
the compiler: whoever looks for a default device does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiny_runtime import Compiler, Unavailable
from tiny_runtime_nv.arch import ARCHS, Arch
from tiny_runtime_nv.gpus import compute_capabilities, load_library
from tiny_runtime_nv.settings import TF32

if TYPE_CHECKING:
  from tiny_runtime_nv.device import CUDADevice


class CUDABackend:
  """NVIDIA's GPUs by way of the driver API."""

  api = (1, 9)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """The architecture of each GPU that can be used, or why none can."""
    found = self._usable()
    return found if isinstance(found, Unavailable) else [str(arch) for _, arch in found]

  def _usable(self) -> list[tuple[int, Arch]] | Unavailable:
    """(number among the driver's, architecture) of each GPU that can be used."""
    found = compute_capabilities(load_library())
    if isinstance(found, Unavailable):
      return found
    archs = [(number, Arch.of(*capability)) for number, capability in enumerate(found)]
    if usable := [(number, arch) for number, arch in archs if arch is not None]:
      return usable
    have = ", ".join(f"{major}.{minor}" for major, minor in found)
    return Unavailable(
      f"the GPUs of this machine are older than {ARCHS[0].name}: their compute capability is {have}",
      "Use another device",
    )

  def open(self, index: int) -> CUDADevice:
    """Raises Unavailable."""
    from tiny_runtime_nv.device import CUDADevice
    from tiny_runtime_nv.driver import Driver

    found = self._usable()
    if isinstance(found, Unavailable):
      raise found
    if not 0 <= index < len(found):
      raise Unavailable(f"there is no CUDA:{index}: {len(found)} GPUs can be used", "Use CUDA")
    return CUDADevice(Driver(load_library()), *found[index], index)

  def compiler(self, arch: str) -> Compiler:
    """A compiler for one of `ARCHS`. Needs no GPU. With TF32=1 it rounds products of float32."""
    from tiny_runtime_nv.compiler import NVCompiler

    return NVCompiler(Arch.parse(arch), bool(TF32))


CUDA = CUDABackend()
"""What the entry point `CUDA` names."""
