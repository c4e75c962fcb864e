"""The backend object that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tiny_runtime import Compiler, Unavailable
from tiny_runtime_amd.arch import Arch
from tiny_runtime_amd.gpus import Gpu, Places, find_gpus

if TYPE_CHECKING:
  # imported where they are used: whoever looks for a default device imports this module
  from tiny_runtime.hcq import QueueDevice
  from tiny_runtime.hcq.system import System
  from tiny_runtime_amd.hardware import AMDHardware
  from tiny_runtime_amd.process import Process, Processes


class AMDBackend:
  """AMD's GPUs, by way of Linux's KFD alone. `system` and `places` are the machine's, unless it is a test's."""

  api = (1, 9)
  ir = (1, 1)

  def __init__(self, system: System | None = None, places: Places | None = None) -> None:
    self.places = places or Places()
    self._system = system

  @cached_property
  def processes(self) -> Processes:
    """What this process and its children know of the driver."""
    from tiny_runtime.hcq.system import Linux
    from tiny_runtime_amd.process import Processes

    return Processes(self._system or Linux(), self.places.kfd)

  def probe(self) -> Sequence[str] | Unavailable:
    """The architecture of each GPU that can be used, or why none can."""
    found = find_gpus(self.places)
    return found if isinstance(found, Unavailable) else [str(gpu.arch) for gpu in found]

  def open(self, index: int) -> QueueDevice:
    """Raises Unavailable."""
    from tiny_runtime.hcq import QueueDevice

    found = find_gpus(self.places)
    if isinstance(found, Unavailable):
      raise found
    if not 0 <= index < len(found):
      raise Unavailable(f"there is no AMD:{index}: {len(found)} GPUs can be used", "Use AMD")
    return QueueDevice(self.hardware(self.processes.get(), found[index], index))

  def hardware(self, process: Process, gpu: Gpu, index: int) -> AMDHardware:
    """What drives a GPU. Raises Unavailable."""
    from tiny_runtime_amd.hardware import AMDHardware

    assert gpu.arch is not None
    return AMDHardware(process, gpu, gpu.arch, index)

  def compiler(self, arch: str) -> Compiler:
    """A compiler for one of `ARCHS`. Needs no GPU."""
    from tiny_runtime_amd.compiler import AMDCompiler

    return AMDCompiler(Arch.parse(arch))


AMD = AMDBackend()
"""What the entry point names."""
