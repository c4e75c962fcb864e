"""The backend object that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime import Compiler, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime_cpu.compiler import CPUCompiler
from tiny_runtime_cpu.device import CPUDevice
from tiny_runtime_cpu.host import Arch, host_arch, unsupported_reason

DEVICES = 8
"""As many as a machine with GPUs usually has."""


class CPUBackend:
  """The processors of this machine, as several devices: each has memory of its own, and all share the threads. A
  program for several devices runs on one machine so; it is no faster than on one device."""

  api = (1, 10)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """The host's arch, for each device, unless generated code cannot run here."""
    reason = unsupported_reason()
    if reason is not None:
      return Unavailable(reason, "Use another device, or DEVICE=REF to try things out slowly")
    return (str(host_arch()),) * DEVICES

  def open(self, index: int) -> Device:
    """Open a device. Raises Unavailable for an index that `probe` does not list."""
    if (reason := unsupported_reason()) is not None:
      raise Unavailable(reason, "Use another device")
    if not 0 <= index < DEVICES:
      raise Unavailable(f"CPU:{index} does not exist: there are {DEVICES}, numbered from 0", "Use CPU")
    return CPUDevice()

  def compiler(self, arch: str) -> Compiler:
    """A compiler for `triple:cpu:features:caches`, as `probe` gives; for another machine too."""
    return CPUCompiler(Arch.parse(arch))


BACKEND = CPUBackend()
"""What the entry point names."""
