"""The backend object that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime import Compiler, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime_cpu.compiler import CPUCompiler
from tiny_runtime_cpu.device import CPUDevice
from tiny_runtime_cpu.host import Arch, host_arch, unsupported_reason


class CPUBackend:
  """The processors of this machine: one device, always index 0."""

  api = (1, 3)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """The host's arch, unless generated code cannot run here."""
    reason = unsupported_reason()
    if reason is not None:
      return Unavailable(reason, "Use another device, or DEVICE=REF to try things out slowly")
    return (str(host_arch()),)

  def open(self, index: int) -> Device:
    """Open the device. Raises Unavailable for an index other than 0."""
    if (reason := unsupported_reason()) is not None:
      raise Unavailable(reason, "Use another device")
    if index != 0:
      raise Unavailable(f"CPU:{index} does not exist: all processors together are the one device CPU", "Use CPU")
    return CPUDevice()

  def compiler(self, arch: str) -> Compiler:
    """A compiler for `triple:cpu:features:caches`, as `probe` gives; for another machine too."""
    return CPUCompiler(Arch.parse(arch))


BACKEND = CPUBackend()
"""What the entry point names."""
