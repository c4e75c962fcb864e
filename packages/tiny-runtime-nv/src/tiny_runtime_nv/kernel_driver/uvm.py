"""UVM, the part of NVIDIA's driver that has the GPUs' page tables, as far as memory of the resource manager is
mapped."""

from __future__ import annotations

from typing import Any

from tiny_runtime_nv.kernel_driver.resource_manager import NOTHING_TO_DO, ResourceManager, RMError
from tiny_runtime_nv.kernel_driver.tables import constant, structure

FILE = "/dev/nvidia-uvm"


def _uuid(name: bytes) -> Any:
  return structure("NvProcessorUuid").from_buffer_copy(name)


class UVM:
  """An address space that one GPU uses. Raises OSError."""

  def __init__(self, manager: ResourceManager) -> None:
    self.manager, self.system = manager, manager.system
    self.descriptor = self.system.open(FILE)
    self.companion = -1
    """A second file, which says until when the process's memory is there."""
    self.uuid = b""
    try:
      self("INITIALIZE")
      self.companion = self.system.open(FILE)
      self("MM_INITIALIZE", self.companion, uvmFd=self.descriptor)
    except OSError:
      self.close()
      raise

  def __call__(self, name: str, descriptor: int | None = None, **fields: Any) -> Any:
    """A request; gives its structure with what the driver put in. Raises RMError."""
    argument = structure(f"UVM_{name}_PARAMS")(**fields)
    try:
      self.system.ioctl(self.descriptor if descriptor is None else descriptor, constant(f"UVM_{name}"), argument)
    except OSError as error:
      raise RMError(f"UVM_{name}", 0, error.errno or 0) from error
    if argument.rmStatus not in (0, NOTHING_TO_DO):
      raise RMError(f"UVM_{name}", argument.rmStatus)
    return argument

  def _client(self) -> dict[str, int]:
    return {"rmCtrlFd": self.manager.descriptor, "hClient": self.manager.root}

  def _uuid(self) -> Any:
    return _uuid(self.uuid)

  def register(self, uuid: bytes, space: int) -> None:
    """Let a GPU use these addresses, by an address space of the resource manager. Raises RMError."""
    self.uuid = uuid
    self("REGISTER_GPU", gpu_uuid=self._uuid(), **self._client())
    self("REGISTER_GPU_VASPACE", gpuUuid=self._uuid(), hVaSpace=space, **self._client())

  def connect(self, uuid: bytes) -> bool:
    """Let memory of another GPU be mapped here; False if there is no way to it, or the driver lets nobody go it."""
    try:
      self("REGISTER_GPU", gpu_uuid=_uuid(uuid), **self._client())
      self("ENABLE_PEER_ACCESS", gpuUuidA=self._uuid(), gpuUuidB=_uuid(uuid))
    except RMError:
      return False
    return True

  def register_channel(self, channel: int, base: int, nbytes: int) -> None:
    """Give a channel addresses for what it needs itself. Raises RMError."""
    self("REGISTER_CHANNEL", gpuUuid=self._uuid(), hChannel=channel, base=base, length=nbytes, **self._client())

  def unregister_channel(self, channel: int) -> None:
    """The channel is to run no more. Raises RMError."""
    self("UNREGISTER_CHANNEL", hClient=self.manager.root, hChannel=channel)

  def map(self, address: int, nbytes: int, memory: int) -> None:
    """Map memory of the resource manager to addresses that nothing has. Raises RMError."""
    self("CREATE_EXTERNAL_RANGE", base=address, length=nbytes)
    attributes = (structure("UvmGpuMappingAttributes") * 256)()
    attributes[0] = structure("UvmGpuMappingAttributes")(gpuUuid=self._uuid())
    try:
      self("MAP_EXTERNAL_ALLOCATION", base=address, length=nbytes, perGpuAttributes=attributes, gpuAttributesCount=1,
           hMemory=memory, **self._client())  # fmt: skip
    except OSError:
      self.unmap(address)
      raise

  def unmap(self, address: int) -> None:
    """What begins there is mapped no longer. Raises RMError."""
    if self.descriptor >= 0:  # else it went with the address space
      self("FREE", base=address)

  def close(self) -> None:
    """The end of the address space."""
    for descriptor in (self.companion, self.descriptor):
      if descriptor >= 0:
        self.system.close(descriptor)
    self.companion = self.descriptor = -1
