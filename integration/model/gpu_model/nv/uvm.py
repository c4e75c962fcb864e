"""Unified memory's driver, /dev/nvidia-uvm: GPUs, their address spaces and channels, and memory of RM at addresses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_model.nv.errors import Refusal, Status
from gpu_model.nv.memory import PAGE, Mapping
from gpu_model.nv.resources import EXTERNALLY_OWNED, Object
from gpu_model.nv.tables import CONSTANTS, Record

if TYPE_CHECKING:
  from gpu_model.nv.model import Gpu, Model

HIGHEST = 1 << 47
"""The first address that no GPU of the model has; of this process, too."""


@dataclass(eq=False)
class Range:
  """Addresses for memory of RM, with what is there."""

  base: int
  length: int
  mappings: list[tuple[Gpu, Mapping]] = field(default_factory=list)


@dataclass
class Registered:
  """A GPU in the address space; `vaspace`: RM's object, once it is registered; `channels` with their addresses."""

  gpu: Gpu
  vaspace: Object | None = None
  channels: dict[tuple[int, int], tuple[Object, int, int]] = field(default_factory=dict)


class Uvm:
  """The driver: an address space for each file that was initialised."""

  def __init__(self, model: Model) -> None:
    self.model = model
    self.spaces: dict[int, AddressSpace] = {}

  def request(self, name: str, given: Record, descriptor: int) -> None:
    """One of them. Raises Refusal."""
    if name == "UVM_MM_INITIALIZE":
      if descriptor in self.spaces or given["uvmFd"] not in self.spaces:
        raise Refusal(Status.INVALID_ARGUMENT, "MM_INITIALIZE of a file that has an address space, or of none")
    elif name == "UVM_INITIALIZE":
      if given["flags"] & ~3:
        raise Refusal(Status.INVALID_ARGUMENT, f"flags {given['flags']:#x} of UVM_INITIALIZE")
      if descriptor in self.spaces:
        raise Refusal(Status.INVALID_STATE, "the file is initialised already")
      self.spaces[descriptor] = AddressSpace(self.model)
    elif descriptor not in self.spaces:
      raise Refusal(Status.ILLEGAL_ACTION, f"{name} comes before UVM_INITIALIZE")
    else:
      getattr(self.spaces[descriptor], f"do_{name.removeprefix('UVM_')}")(given)

  def closed(self, descriptor: int) -> None:
    """A file is closed: with it goes its address space."""
    if descriptor in self.spaces:
      self.spaces.pop(descriptor).end()

  def forget_channel(self, channel: Object) -> None:
    """RM freed it."""
    for space in self.spaces.values():
      for found in space.gpus.values():
        for key in [key for key, row in found.channels.items() if row[0] is channel]:
          del found.channels[key]

  def left(self) -> dict[str, list[object]]:
    """What nobody gave back."""
    return {
      "external ranges": [r for space in self.spaces.values() for r in space.ranges],
      "GPUs in UVM": [g for space in self.spaces.values() for g in space.gpus],
    }


class AddressSpace:
  """What requests of a file do."""

  def __init__(self, model: Model) -> None:
    self.model = model
    self.gpus: dict[bytes, Registered] = {}
    self.ranges: dict[int, Range] = {}
    self.peers: set[frozenset[int]] = set()

  def end(self) -> None:
    """All of it goes."""
    for base in list(self.ranges):
      self._free(base)
    self.gpus.clear()

  # *** what requests name ***

  def _uuid(self, given: Record, name: str) -> bytes:
    return ctypes.string_at(given.at(name), 16)

  def _gpu(self, uuid: bytes) -> Gpu:
    found = next((gpu for gpu in self.model.gpus if gpu.uuid == uuid), None)
    if found is None:
      raise Refusal(Status.GPU_UUID_NOT_FOUND, f"no GPU is {uuid.hex()}")
    return found

  def _registered(self, uuid: bytes) -> Registered:
    self._gpu(uuid)
    if uuid not in self.gpus:
      raise Refusal(Status.INVALID_DEVICE, f"the GPU {uuid.hex()} is not registered")
    return self.gpus[uuid]

  def _object(self, given: Record, name: str, kind: str) -> Object:
    """An object of RM that is named by file, client and handle."""
    descriptor, handle = given["rmCtrlFd"], given["hClient"]
    return self.model.resources.client(handle, descriptor).find(given[name], kind)

  @staticmethod
  def _pages(base: int, length: int) -> None:
    if not base or not length or base % PAGE or length % PAGE or base + length > HIGHEST:
      raise Refusal(Status.INVALID_ADDRESS, f"{length} bytes at {base:#x} are no pages")

  def _taken(self, base: int, length: int) -> None:
    others = [(range_.base, range_.length) for range_ in self.ranges.values()]
    others += [(begin, size) for gpu in self.gpus.values() for _, begin, size in gpu.channels.values() if size]
    if any(base < begin + size and begin < base + length for begin, size in others):
      raise Refusal(Status.INVALID_ADDRESS, f"{length} bytes at {base:#x} are in use")

  # *** GPUs, spaces and channels ***

  def do_PAGEABLE_MEM_ACCESS(self, given: Record) -> None:
    given["pageableMemAccess"] = 0

  def do_REGISTER_GPU(self, given: Record) -> None:
    uuid = self._uuid(given, "gpu_uuid")
    gpu = self._gpu(uuid)
    if uuid in self.gpus:
      raise Refusal(Status.INVALID_DEVICE, "the GPU is registered already")
    if gpu.lost:
      raise Refusal(Status.GPU_IS_LOST, "the GPU fell off the bus")
    self.gpus[uuid] = Registered(gpu)
    given["numaEnabled"], given["numaNodeId"] = 0, 0xFFFFFFFF

  def do_UNREGISTER_GPU(self, given: Record) -> None:
    found = self._registered(self._uuid(given, "gpu_uuid"))
    if found.vaspace is not None or found.channels:
      raise Refusal(Status.STATE_IN_USE, "the GPU has an address space or channels")
    del self.gpus[found.gpu.uuid]

  def do_REGISTER_GPU_VASPACE(self, given: Record) -> None:
    found = self._registered(self._uuid(given, "gpuUuid"))
    space = self._object(given, "hVaSpace", "vaspace")
    if found.vaspace is not None:
      raise Refusal(Status.INVALID_STATE, "the GPU has an address space already")
    if space.gpu is not found.gpu:
      raise Refusal(Status.INVALID_DEVICE, "an address space of another GPU")
    if not space.flags & EXTERNALLY_OWNED:
      raise Refusal(Status.INVALID_FLAGS, "an address space that RM has: it wants IS_EXTERNALLY_OWNED")
    found.vaspace = space

  def do_UNREGISTER_GPU_VASPACE(self, given: Record) -> None:
    found = self._registered(self._uuid(given, "gpuUuid"))
    if found.vaspace is None:
      raise Refusal(Status.INVALID_STATE, "the GPU has no address space")
    for range_ in self.ranges.values():
      for gpu, mapping in [pair for pair in range_.mappings if pair[0] is found.gpu]:
        self._unmap(range_, gpu, mapping)
    found.vaspace = None

  def do_REGISTER_CHANNEL(self, given: Record) -> None:
    found = self._registered(self._uuid(given, "gpuUuid"))
    channel = self._object(given, "hChannel", "channel")
    if found.vaspace is None or channel.facts["vaspace"] is not found.vaspace:
      raise Refusal(Status.INVALID_CHANNEL, "a channel whose address space is not registered")
    key = given["hClient"], given["hChannel"]
    if key in found.channels:
      raise Refusal(Status.INVALID_STATE, "the channel is registered already")
    self._pages(given["base"], given["length"])
    self._taken(given["base"], given["length"])
    found.channels[key] = channel, given["base"], given["length"]
    channel.facts["registered"] = True

  def do_UNREGISTER_CHANNEL(self, given: Record) -> None:
    key = given["hClient"], given["hChannel"]
    for found in self.gpus.values():
      if key in found.channels:
        channel, _, _ = found.channels.pop(key)
        channel.facts["registered"] = False
        if channel.channel is not None:
          channel.channel.scheduled = False
        return
    raise Refusal(Status.INVALID_CHANNEL, "a channel that is not registered")

  def do_ENABLE_PEER_ACCESS(self, given: Record) -> None:
    one, other = (self._registered(self._uuid(given, name)).gpu for name in ("gpuUuidA", "gpuUuidB"))
    pair = frozenset((one.number, other.number))
    if len(pair) < 2 or pair in self.model.apart:
      raise Refusal(Status.NOT_SUPPORTED, "there is no way between the two GPUs")
    if pair in self.peers:
      raise Refusal(Status.INVALID_DEVICE, "the GPUs are peers already")
    self.peers.add(pair)

  def do_DISABLE_PEER_ACCESS(self, given: Record) -> None:
    one, other = (self._registered(self._uuid(given, name)).gpu for name in ("gpuUuidA", "gpuUuidB"))
    pair = frozenset((one.number, other.number))
    if pair not in self.peers:
      raise Refusal(Status.INVALID_DEVICE, "the GPUs are no peers")
    self.peers.discard(pair)

  # *** memory ***

  def do_CREATE_EXTERNAL_RANGE(self, given: Record) -> None:
    base, length = given["base"], given["length"]
    self._pages(base, length)
    self._taken(base, length)
    self.ranges[base] = Range(base, length)

  def do_MAP_EXTERNAL_ALLOCATION(self, given: Record) -> None:
    base, length, offset = given["base"], given["length"], given["offset"]
    self._pages(base, length)
    range_ = next((r for r in self.ranges.values() if r.base <= base and base + length <= r.base + r.length), None)
    if range_ is None:
      raise Refusal(Status.INVALID_ADDRESS, f"{length} bytes at {base:#x} are in no external range")
    memory = self._object(given, "hMemory", "memory")
    physical, count = memory.physical, given["gpuAttributesCount"]
    assert physical is not None
    if offset % physical.page or base % physical.page:
      raise Refusal(Status.INVALID_ADDRESS, f"{base:#x}, from {offset:#x}, with pages of {physical.page} bytes")
    if offset + length > physical.size or length % physical.page:
      raise Refusal(Status.INVALID_OFFSET, f"{length} bytes from {offset:#x} of {physical.size}")
    if not 0 < count <= given.fields["perGpuAttributes"][2]:
      raise Refusal(Status.INVALID_ARGUMENT, f"{count} GPUs are to have the memory")
    rows = [Record("UvmGpuMappingAttributes", given.at("perGpuAttributes", n)) for n in range(count)]
    for row in rows:
      found = self._registered(self._uuid(row, "gpuUuid"))
      if found.vaspace is None or found.vaspace.space is None:
        raise Refusal(Status.INVALID_DEVICE, "a GPU without an address space is to have memory")
      if row["gpuMappingType"] > 3 or row["gpuCachingType"] > 2:
        raise Refusal(Status.INVALID_ARGUMENT, "a type of mapping that there is not")
      if row["gpuFormatType"] or row["gpuElementBits"] or row["gpuCompressionType"]:
        raise Refusal(Status.INVALID_ARGUMENT, "the model knows no formats and no compression")
      peer = frozenset((found.gpu.number, physical.gpu))
      if physical.gpu not in (-1, found.gpu.number) and peer not in self.peers:
        raise Refusal(Status.INVALID_DEVICE, "memory of another GPU, which is no peer")
    for row in rows:
      found = self._registered(self._uuid(row, "gpuUuid"))
      assert found.vaspace is not None and found.vaspace.space is not None
      self.model.store.place(base, length, physical, offset, False)
      mapping = Mapping(base, length, physical, offset, row["gpuMappingType"] != 3, range_)
      try:
        found.vaspace.space.add(mapping)
      except Refusal:
        self.model.store.displace(base, False)
        raise
      range_.mappings.append((found.gpu, mapping))

  def _unmap(self, range_: Range, gpu: Gpu, mapping: Mapping) -> None:
    found = next(found for found in self.gpus.values() if found.gpu is gpu)
    assert found.vaspace is not None and found.vaspace.space is not None
    found.vaspace.space.remove(mapping)
    range_.mappings.remove((gpu, mapping))
    self.model.store.displace(mapping.address, False)

  def do_UNMAP_EXTERNAL(self, given: Record) -> None:
    gpu = self._registered(self._uuid(given, "gpuUuid")).gpu
    base, length = given["base"], given["length"]
    range_ = next((r for r in self.ranges.values() if r.base <= base and base + length <= r.base + r.length), None)
    if range_ is None:
      raise Refusal(Status.INVALID_ADDRESS, f"{base:#x} is in no external range")
    mine = [m for of, m in range_.mappings if of is gpu and base <= m.address and m.end <= base + length]
    for mapping in mine:
      self._unmap(range_, gpu, mapping)

  def do_FREE(self, given: Record) -> None:
    if given["base"] not in self.ranges:
      raise Refusal(Status.INVALID_ADDRESS, f"{given['base']:#x} is not where a range begins")
    self._free(given["base"])

  def _free(self, base: int) -> None:
    range_ = self.ranges[base]
    for gpu, mapping in list(range_.mappings):
      self._unmap(range_, gpu, mapping)
    del self.ranges[base]


REQUESTS = {
  number: name
  for name, number in CONSTANTS.items()
  if name in ("UVM_INITIALIZE", "UVM_MM_INITIALIZE")
  or name.startswith("UVM_")
  and hasattr(AddressSpace, f"do_{name.removeprefix('UVM_')}")
}
"""By number."""
