"""The backend object that the entry point `NV` names. Importing it needs no driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tiny_runtime import Compiler, Unavailable
from tiny_runtime_nv.arch import Arch
from tiny_runtime_nv.settings import TF32

if TYPE_CHECKING:
  # imported where they are used: whoever looks for a default device imports this module
  from tiny_runtime.hcq import QueueDevice
  from tiny_runtime_nv.kernel_driver.process import Processes
  from tiny_runtime_nv.kernel_driver.system import NVSystem

ASSEMBLER = "Install NVIDIA's assembler: `pip install 'tiny-runtime-nv[ptxas]'`, or a CUDA of NVIDIA's"


class NVBackend:
  """NVIDIA's GPUs through the kernel driver alone. `system` is the machine's, and `assembler` is ptxas, unless they
  are a test's: PTX and the name of an architecture → a cubin."""

  api = (1, 9)
  ir = (1, 1)

  def __init__(self, system: NVSystem | None = None, assembler: Callable[[str, str], bytes] | None = None) -> None:
    self._system, self.assembler = system, assembler

  @cached_property
  def processes(self) -> Processes:
    """What this process and its children know of the driver."""
    from tiny_runtime_nv.kernel_driver.process import Processes
    from tiny_runtime_nv.kernel_driver.system import NVLinux

    return Processes(self._system or NVLinux())

  def probe(self) -> Sequence[str] | Unavailable:
    """The architecture of each GPU that can be used, or why none can."""
    from tiny_runtime_nv.ptxas import find_ptxas

    try:
      found = self.processes.get().usable()
    except Unavailable as error:
      return error
    if isinstance(found, Unavailable):
      return found
    if self.assembler is None and find_ptxas() is None:
      return Unavailable("there are GPUs, but no ptxas, which makes machine code for them", ASSEMBLER)
    return [str(gpu.arch) for gpu in found]

  def open(self, index: int) -> QueueDevice:
    """Raises Unavailable."""
    from tiny_runtime.hcq import QueueDevice
    from tiny_runtime_nv.kernel_driver.hardware import NVHardware

    process = self.processes.get()
    found = process.usable()
    if isinstance(found, Unavailable):
      raise found
    if not 0 <= index < len(found):
      raise Unavailable(f"there is no NV:{index}: {len(found)} GPUs can be used", "Use NV")
    return QueueDevice(NVHardware(process, found[index], index))

  def compiler(self, arch: str) -> Compiler:
    """A compiler for one of `ARCHS`. Needs no GPU, but ptxas. With TF32=1 it rounds products of float32."""
    from tiny_runtime_nv.kernel_driver.compiler import CubinCompiler

    made = CubinCompiler(Arch.parse(arch), bool(TF32))
    return made if self.assembler is None else CubinCompiler(made.arch, made.tf32, self.assembler)


NV = NVBackend()
"""What the entry point `NV` names."""
