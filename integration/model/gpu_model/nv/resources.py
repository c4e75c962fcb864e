"""The resource manager: clients, devices, memory, channels and all that has a handle; what is asked of each."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpu_model.nv.channel import Channel
from gpu_model.nv.errors import Refusal, Status
from gpu_model.nv.gpus import OLDER, VERSIONS
from gpu_model.nv.memory import PAGE, Mapping, Physical, Space
from gpu_model.nv.tables import CONSTANTS, Record

if TYPE_CHECKING:
  from gpu_model.nv.model import Gpu, Model

ROOTS = (0x0, 0x1, 0x41)
DEVICE, SUBDEVICE, VIRTUAL, LOCAL, SYSTEM, OS_DESCRIPTOR = 0x80, 0x2080, 0x70, 0x40, 0x3E, 0x71
CONTEXT_DMA, VASPACE, GROUP, SHARE, DEBUGGER = 0x2, 0x90F1, 0xA06C, 0x9067, 0x83DE
EVENT, NO_DATA = CONSTANTS["NV01_EVENT_OS_EVENT"], CONSTANTS["NV01_EVENT_WITHOUT_EVENT_DATA"]
NOTIFIERS = CONSTANTS["NV2080_NOTIFIERS_MAXCOUNT"]
USERMODE_BYTES, DOORBELL = 0x10000, 0x90
PAGES = {0: 0, 1: PAGE, 2: 65536, 3: 2 << 20}
"""NVOS32_ATTR_PAGE_SIZE; 0: the driver chooses."""
MEMORY_FLAGS = 0x1 | 0x2 | 0x4 | 0x80 | 0x100 | 0x8000 | 0x10000
"""NVOS32_ALLOC_FLAGS_ that change nothing here: placement, alignment, MAP_NOT_REQUIRED, PERSISTENT_VIDMEM."""
GRAPHICS, COPY = CONSTANTS["NV2080_ENGINE_TYPE_GRAPHICS"], CONSTANTS["NV2080_ENGINE_TYPE_COPY0"]
EXTERNALLY_OWNED = CONSTANTS["NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED"]
PAGE_FAULTS = CONSTANTS["NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING"]


@dataclass(eq=False)
class Object:
  """What a handle stands for. `kind`: device, memory, channel …; `number`: its class."""

  handle: int
  number: int
  kind: str
  parent: Object | None
  gpu: Gpu | None = None
  children: list[Object] = field(default_factory=list)
  physical: Physical | None = None
  space: Space | None = None
  channel: Channel | None = None
  flags: int = 0
  facts: dict[str, Any] = field(default_factory=dict)

  def above(self, kind: str) -> Object | None:
    """The nearest of a kind that it belongs to."""
    found = self.parent
    while found is not None and found.kind != kind:
      found = found.parent
    return found


@dataclass(eq=False)
class Client:
  """A client's handles; `descriptor`: of the file that it was made with, which alone may use it."""

  handle: int
  descriptor: int
  root: Object
  objects: dict[int, Object] = field(default_factory=dict)

  def find(self, handle: int, *kinds: str) -> Object:
    """What a handle stands for. Raises Refusal."""
    found = self.objects.get(handle)
    if found is None:
      raise Refusal(Status.INVALID_OBJECT_HANDLE, f"{handle:#x} is no handle of this client, or it was freed")
    if kinds and found.kind not in kinds:
      raise Refusal(Status.INVALID_OBJECT, f"{handle:#x} is a {found.kind}, not a {' or a '.join(kinds)}")
    return found


class Resources:
  """What the requests of /dev/nvidiactl do."""

  def __init__(self, model: Model) -> None:
    self.model = model
    self.clients: dict[int, Client] = {}
    self.made = 0
    self.mappings: dict[int, tuple[Object, int, int]] = {}
    """What the host has mapped: object, offset and bytes, by address."""

  def client(self, handle: int, descriptor: int) -> Client:
    """A client, of the file that it was made with. Raises Refusal."""
    found = self.clients.get(handle)
    if found is None or found.descriptor != descriptor:
      raise Refusal(Status.INVALID_CLIENT, f"{handle:#x} is no client of this file")
    return found

  # *** objects ***

  def do_RM_ALLOC(self, given: Record, descriptor: int) -> None:
    number = given["hClass"]
    if number in ROOTS:
      self._root(given, descriptor)
      return
    client = self.client(given["hRoot"], descriptor)
    parent = client.find(given["hObjectParent"])
    handle = given["hObjectNew"]
    if not handle:
      self.made += 1
      handle = given["hObjectNew"] = 0xCAF00000 | self.made
    if handle in client.objects:
      raise Refusal(Status.INSERT_DUPLICATE_NAME, f"{handle:#x} is a handle already")
    kind, maker, structure, parents = self._class(number, parent)
    if parent.kind not in parents:
      raise Refusal(
        Status.INVALID_OBJECT_PARENT, f"class {number:#x} belongs to a {parents[0]}, not to a {parent.kind}"
      )
    gpu = parent.gpu
    if gpu is not None and gpu.lost:
      raise Refusal(Status.GPU_IS_LOST, "the GPU fell off the bus")
    made = Object(handle, number, kind, parent, gpu)
    place, size = given["pAllocParms"], given["paramsSize"]
    parameters = Record(structure, place) if structure and place else None
    if structure and size and parameters and size != parameters.size:
      raise Refusal(Status.INVALID_PARAM_STRUCT, f"{structure} has {parameters.size} bytes, not {size}")
    if maker is not None:
      maker(client, made, parameters)
    parent.children.append(made)
    client.objects[handle] = made

  def _root(self, given: Record, descriptor: int) -> None:
    self.made += 1
    handle = given["hObjectNew"] or 0xC1D00000 | self.made
    if handle in self.clients:
      raise Refusal(Status.INSERT_DUPLICATE_NAME, f"{handle:#x} is a client already")
    root = Object(handle, given["hClass"], "client", None)
    self.clients[handle] = Client(handle, descriptor, root, {handle: root})
    given["hObjectNew"] = handle

  def _class(self, number: int, parent: Object) -> tuple[str, Callable[..., None] | None, str, tuple[str, ...]]:
    """The kind of a class, what makes one, the structure of its parameters, and what it belongs to."""
    memory = "NV_MEMORY_ALLOCATION_PARAMS"
    known: dict[int, tuple[str, Callable[..., None] | None, str, tuple[str, ...]]] = {
      DEVICE: ("device", self._device, "NV0080_ALLOC_PARAMETERS", ("client",)),
      SUBDEVICE: ("subdevice", self._subdevice, "NV2080_ALLOC_PARAMETERS", ("device",)),
      VASPACE: ("vaspace", self._vaspace, "NV_VASPACE_ALLOCATION_PARAMETERS", ("device",)),
      VIRTUAL: ("virtual", self._virtual, "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", ("device",)),
      LOCAL: ("memory", self._memory, memory, ("device", "subdevice")),
      SYSTEM: ("memory", self._memory, memory, ("device", "subdevice")),
      CONTEXT_DMA: ("context dma", self._context_dma, "NV_CONTEXT_DMA_ALLOCATION_PARAMS", ("device", "client")),
      GROUP: ("group", self._group, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", ("device",)),
      SHARE: ("share", self._share, "NV_CTXSHARE_ALLOCATION_PARAMETERS", ("group",)),
      EVENT: ("event", self._event, "NV0005_ALLOC_PARAMETERS", ("subdevice",)),
      DEBUGGER: ("debugger", self._debugger, "NV83DE_ALLOC_PARAMETERS", ("client", "device")),
    }
    if number in known:
      return known[number]
    name, gpu = f"{number:x}", parent.gpu
    if gpu is None or name not in gpu.chip.classes:
      raise Refusal(Status.INVALID_CLASS, f"class {number:#x} is not known, or not the GPU's")
    which = gpu.chip.classes.index(name)
    return (
      ("usermode", None, "", ("subdevice",)),
      ("channel", self._channel, "NV_CHANNEL_ALLOC_PARAMS", ("group", "device")),
      ("engine", self._engine, "", ("channel",)),
      ("engine", self._engine, "NVB0B5_ALLOCATION_PARAMETERS", ("channel",)),
    )[which]

  def _device(self, client: Client, made: Object, given: Record | None) -> None:
    number = given["deviceId"] if given else 0
    if number >= len(self.model.gpus):
      raise Refusal(Status.INVALID_ARGUMENT, f"there is no device {number}")
    gpu = self.model.gpus[number]
    if not any(path == f"/dev/nvidia{number}" for path in self.model.files.values()):
      raise Refusal(Status.INVALID_STATE, f"/dev/nvidia{number} is not open, and the GPU not awake")
    made.gpu = gpu

  def _subdevice(self, client: Client, made: Object, given: Record | None) -> None:
    if given and given["subDeviceId"]:
      raise Refusal(Status.INVALID_ARGUMENT, "there is one subdevice, 0")

  def _vaspace(self, client: Client, made: Object, given: Record | None) -> None:
    made.flags, made.space = given["flags"] if given else 0, Space()
    if made.flags & ~(EXTERNALLY_OWNED | PAGE_FAULTS):
      raise Refusal(Status.INVALID_FLAGS, f"flags {made.flags:#x} of an address space")

  def _virtual(self, client: Client, made: Object, given: Record | None) -> None:
    handle = given["hVASpace"] if given else 0
    spaces = [o for o in client.objects.values() if o.kind == "vaspace" and o.gpu is made.gpu]
    made.facts["vaspace"] = client.find(handle, "vaspace") if handle else next(iter(spaces), None)

  def _memory(self, client: Client, made: Object, given: Record | None) -> None:
    if given is None:
      raise Refusal(Status.INVALID_ARGUMENT, "memory without parameters")
    size, attr = given["size"], given["attr"]
    location, page = attr >> 25 & 3, PAGES[attr >> 23 & 3]
    local = made.number == LOCAL
    if not size:
      raise Refusal(Status.INVALID_ARGUMENT, "memory of 0 bytes")
    if given["flags"] & ~MEMORY_FLAGS:
      raise Refusal(Status.INVALID_FLAGS, f"the model knows no flags {given['flags'] & ~MEMORY_FLAGS:#x} of memory")
    if (location == 0) != local:
      raise Refusal(Status.INVALID_ARGUMENT, f"class {made.number:#x} with NVOS32_ATTR_LOCATION {location}")
    page = page or (65536 if local else PAGE)
    if not local and page > PAGE and attr >> 27 & 3 != 2:
      raise Refusal(Status.INVALID_ARGUMENT, "large pages of memory of the host that is not contiguous")
    wanted = -(-size // page) * page
    gpu = made.gpu
    assert gpu is not None
    if local and gpu.used + wanted > gpu.memory:
      raise Refusal(Status.NO_MEMORY, f"{wanted} bytes, and {gpu.memory - gpu.used} of {gpu.memory} are free")
    if not local and self.model.host_used + wanted > self.model.host_memory:
      raise Refusal(Status.NO_MEMORY, f"{wanted} bytes of the host's memory")
    made.physical = self.model.store.allocate(wanted, gpu.number if local else -1, page)
    self.model.count_memory(made.physical, 1)
    given["size"], given["limit"], given["offset"] = wanted, wanted - 1, made.physical.offset

  def _context_dma(self, client: Client, made: Object, given: Record | None) -> None:
    if given is None:
      raise Refusal(Status.INVALID_ARGUMENT, "a context DMA without parameters")
    memory = client.find(given["hMemory"], "memory")
    assert memory.physical is not None
    if given["offset"] + given["limit"] >= memory.physical.size:
      raise Refusal(Status.INVALID_LIMIT, "a context DMA that ends behind its memory")
    made.facts.update(memory=memory, offset=given["offset"])

  def _group(self, client: Client, made: Object, given: Record | None) -> None:
    if given is None or not self._is_engine(made.gpu, given["engineType"]):
      raise Refusal(Status.INVALID_ARGUMENT, f"a channel group for engine {given and given['engineType']}")
    handle = given["hVASpace"]
    made.facts.update(engine=given["engineType"], vaspace=client.find(handle, "vaspace") if handle else None)
    made.facts["scheduled"] = False

  @staticmethod
  def _is_engine(gpu: Gpu | None, engine: int) -> bool:
    return engine == GRAPHICS or COPY <= engine < COPY + 8

  def _share(self, client: Client, made: Object, given: Record | None) -> None:
    handle = given["hVASpace"] if given else 0
    assert made.parent is not None
    space = client.find(handle, "vaspace") if handle else made.parent.facts["vaspace"]
    if space is None:
      raise Refusal(Status.INVALID_ARGUMENT, "a context share without an address space")
    if given and given["flags"] not in (0, 1, 2):
      raise Refusal(Status.INVALID_FLAGS, f"flags {given['flags']:#x} of a context share")
    made.facts["vaspace"] = space

  def _channel(self, client: Client, made: Object, given: Record | None) -> None:
    if given is None:
      raise Refusal(Status.INVALID_ARGUMENT, "a channel without parameters")
    parent, gpu = made.parent, made.gpu
    assert parent is not None and gpu is not None
    share, handle = given["hContextShare"], given["hVASpace"]
    if share and handle:
      raise Refusal(Status.INVALID_ARGUMENT, "a channel with a context share and an address space")
    if share:
      found = client.find(share, "share")
      if found.parent is not parent:
        raise Refusal(Status.INVALID_OBJECT_PARENT, "a context share of another channel group")
      vaspace = found.facts["vaspace"]
    else:
      vaspace = client.find(handle, "vaspace") if handle else parent.facts.get("vaspace")
    if vaspace is None:
      raise Refusal(Status.INVALID_ARGUMENT, "a channel without an address space")
    engine = parent.facts.get("engine", given["engineType"])
    if given["engineType"] not in (0, engine) or not self._is_engine(gpu, engine):
      raise Refusal(Status.INVALID_ARGUMENT, f"a channel for engine {given['engineType']} in a group for {engine}")
    entries = given["gpFifoEntries"]
    if entries < 2 or entries & entries - 1 or entries > 1 << 20 or given["gpFifoOffset"] % 8:
      raise Refusal(Status.INVALID_ARGUMENT, f"a ring of {entries} entries at {given['gpFifoOffset']:#x}")
    userd, offset = client.find(given.get("hUserdMemory"), "memory"), given.get("userdOffset")
    assert userd.physical is not None
    if offset % 512 or offset + 512 > userd.physical.size:
      raise Refusal(Status.INVALID_OFFSET, f"USERD at {offset:#x} of {userd.physical.size} bytes")
    if given["flags"]:
      raise Refusal(Status.INVALID_FLAGS, f"the model knows no flags {given['flags']:#x} of a channel")
    notifier = 0
    if handle := given["hObjectError"]:
      error = client.find(handle, "memory", "context dma")
      memory, begin = (error.facts["memory"], error.facts["offset"]) if error.kind == "context dma" else (error, 0)
      assert isinstance(memory.physical, Physical)
      notifier = self.model.store.view(memory.physical) + begin
    number = len(gpu.channels) + 1 + 7 * gpu.number
    made.channel = Channel(
      self.model, gpu, number, engine, vaspace.space, given["gpFifoOffset"], entries,
      self.model.store.view(userd.physical) + offset, notifier,
    )  # fmt: skip
    made.facts.update(vaspace=vaspace, registered=False)
    gpu.channels.append(made.channel)
    made.channel.group = parent
    given["cid"] = number

  def _engine(self, client: Client, made: Object, given: Record | None) -> None:
    assert made.parent is not None and made.parent.channel is not None and made.gpu is not None
    channel, name = made.parent.channel, f"{made.number:x}"
    if name == made.gpu.chip.classes[2] and channel.engine != GRAPHICS:
      raise Refusal(Status.INVALID_CLASS, "the compute class on a channel that is not for GR0")
    channel.classes.add(name)

  def _debugger(self, client: Client, made: Object, given: Record | None) -> None:
    if given is None or given["hAppClient"] not in self.clients:
      raise Refusal(Status.INVALID_CLIENT, "a debugger of a client that there is not")
    target = self.clients[given["hAppClient"]].find(given["hClass3dObject"], "engine")
    made.facts["channel"], made.gpu = target.parent, target.gpu

  def _event(self, client: Client, made: Object, given: Record | None) -> None:
    assert made.parent is not None
    if given is None or given["hClass"] != EVENT or given["hParentClient"] != client.handle:
      raise Refusal(Status.INVALID_ARGUMENT, "an event of another class, or of another client's")
    if given["hSrcResource"] != made.parent.handle:
      raise Refusal(Status.INVALID_OBJECT_PARENT, "an event of an object that is not its parent")
    index, flags = given["notifyIndex"] & 0xFFFF, given["notifyIndex"] & ~0xFFFF
    if index >= NOTIFIERS or flags != NO_DATA:
      raise Refusal(Status.INVALID_ARGUMENT, f"notifier {index} with flags {flags:#x}, which the model does not know")
    if self.model.of_events.get(given["data"]) != client.handle:
      raise Refusal(Status.INVALID_ARGUMENT, f"file {given['data']} is not one of the client's events")
    made.facts.update(index=index, file=given["data"], on=False)

  def told(self, gpu: Gpu, index: int) -> set[int]:
    """Files that hear of what a notifier of a GPU tells."""
    events = [e for client in self.clients.values() for e in client.objects.values() if e.kind == "event"]
    heard = [e for e in events if e.gpu is gpu and e.facts["index"] == index and e.facts["on"]]
    for event in heard:
      event.facts["on"] = event.facts["on"] != "once"
    return {event.facts["file"] for event in heard}

  def listening(self, descriptor: int) -> bool:
    """Whether an event makes a file readable."""
    objects = [o for client in self.clients.values() for o in client.objects.values()]
    return any(o.kind == "event" and o.facts["file"] == descriptor for o in objects)

  def do_RM_FREE(self, given: Record, descriptor: int) -> None:
    client = self.client(given["hRoot"], descriptor)
    found = client.find(given["hObjectOld"])
    if found.parent is not None and given["hObjectParent"] not in (0, found.parent.handle):
      raise Refusal(Status.INVALID_OBJECT_PARENT, f"{given['hObjectOld']:#x} does not belong to that parent")
    users = [o for o in client.objects.values() if o.facts.get("vaspace") is found]
    if users:
      raise Refusal(Status.STATE_IN_USE, f"an address space that a {users[0].kind} has")
    self.free(client, found)

  def free(self, client: Client, found: Object) -> None:
    """An object, and all that belongs to it, the last first."""
    for child in reversed(list(found.children)):
      self.free(client, child)
    if found.kind == "memory":
      assert found.physical is not None
      for other in client.objects.values():
        if other.space is not None:
          for mapping in [m for m in other.space.mappings if m.owner is found]:
            self.unmap_dma(other.space, mapping)
      self.model.count_memory(found.physical, -1)
      self.model.store.drop(found.physical)
    if found.channel is not None and found.gpu is not None:
      if found.channel.busy():
        self.model.misuse.append(f"channel {found.channel.number} is freed, and has work to do")
      found.gpu.channels.remove(found.channel)
      self.model.uvm.forget_channel(found)
    if found.parent is not None:
      found.parent.children.remove(found)
    del client.objects[found.handle]
    if found is client.root:
      del self.clients[client.handle]

  # *** mappings ***

  def do_RM_MAP_MEMORY(self, given: Record, descriptor: int, target: int) -> None:
    """Say what the file `target` has to be mapped."""
    client = self.client(given["hClient"], descriptor)
    client.find(given["hDevice"], "device", "subdevice")
    found = client.find(given["hMemory"], "memory", "usermode")
    path = self.model.files.get(target)
    size = USERMODE_BYTES if found.kind == "usermode" else found.physical.size if found.physical else 0
    if given["offset"] % PAGE or given["offset"] + given["length"] > size or not given["length"]:
      raise Refusal(Status.INVALID_LIMIT, f"{given['length']} bytes from {given['offset']:#x} of {size}")
    assert found.gpu is not None
    host = found.physical is not None and found.physical.gpu < 0
    wanted = "/dev/nvidiactl" if host else f"/dev/nvidia{found.gpu.number}"
    if path != wanted or target == descriptor:
      raise Refusal(Status.INVALID_ARGUMENT, f"memory of {wanted} is mapped through {path}, or the client's own file")
    if target in self.model.to_map:
      raise Refusal(Status.STATE_IN_USE, "this file has a mapping already: mmap it, or take another file")
    self.model.to_map[target] = found, given["offset"], given["length"]
    given["pLinearAddress"] = 0x1000 * target

  def do_RM_UNMAP_MEMORY(self, given: Record, descriptor: int) -> None:
    client = self.client(given["hClient"], descriptor)
    client.find(given["hMemory"], "memory", "usermode")

  def do_RM_MAP_MEMORY_DMA(self, given: Record, descriptor: int) -> None:
    client = self.client(given["hClient"], descriptor)
    virtual = client.find(given["hDma"], "virtual", "vaspace")
    vaspace = virtual.facts["vaspace"] if virtual.kind == "virtual" else virtual
    memory = client.find(given["hMemory"], "memory")
    if vaspace is None or vaspace.flags & EXTERNALLY_OWNED:
      raise Refusal(Status.NOT_SUPPORTED, "the addresses of this space are UVM's")
    assert memory.physical is not None and vaspace.space is not None
    flags, length, offset = given["flags"], given["length"], given["offset"]
    if length % PAGE or offset % PAGE or offset + length > memory.physical.size or not length:
      raise Refusal(Status.INVALID_LIMIT, f"{length} bytes from {offset:#x} of {memory.physical.size}")
    if memory.gpu is not vaspace.gpu:
      raise Refusal(Status.INVALID_DEVICE, "memory of another GPU")
    address = given["dmaOffset"] if flags >> 15 & 1 else 0
    if address % memory.physical.page:
      raise Refusal(Status.INVALID_OFFSET, f"{address:#x} with pages of {memory.physical.page} bytes")
    address = self.model.store.place(address, length, memory.physical, offset, False)
    mapping = Mapping(address, length, memory.physical, offset, flags & 3 == 0, memory)
    try:
      vaspace.space.add(mapping)
    except Refusal:
      self.model.store.displace(address, False)
      raise
    given["dmaOffset"] = address

  def do_RM_UNMAP_MEMORY_DMA(self, given: Record, descriptor: int) -> None:
    client = self.client(given["hClient"], descriptor)
    virtual = client.find(given["hDma"], "virtual", "vaspace")
    vaspace: Any = virtual.facts["vaspace"] if virtual.kind == "virtual" else virtual
    memory = client.find(given["hMemory"], "memory")
    found = vaspace.space.overlap(given["dmaOffset"], 1)
    if found is None or found.owner is not memory or found.address != given["dmaOffset"]:
      raise Refusal(Status.INVALID_OFFSET, f"nothing of that memory is at {given['dmaOffset']:#x}")
    self.unmap_dma(vaspace.space, found)

  def unmap_dma(self, space: Space, mapping: Mapping) -> None:
    """Addresses that RM gave are free."""
    space.remove(mapping)
    self.model.store.displace(mapping.address, False)

  # *** controls ***

  def do_RM_CONTROL(self, given: Record, descriptor: int) -> None:
    client = self.client(given["hClient"], descriptor)
    found, command, place, size = client.find(given["hObject"]), given["cmd"], given["params"], given["paramsSize"]
    if given["flags"]:
      raise Refusal(Status.INVALID_FLAGS, f"flags {given['flags']:#x} of a control")
    row = CONTROLS.get(command)
    if row is None:
      raise Refusal(Status.INVALID_COMMAND, f"the model knows no control {command:#x}")
    kind, structure, method = row
    if found.kind not in kind.split("|"):
      raise Refusal(Status.INVALID_COMMAND, f"{method} is asked of a {found.kind}, not of a {kind}")
    parameters = Record(structure, place)
    wanted = OLDER.get(self.model.version, {}).get(structure, parameters.size)
    if size != wanted or not place:
      raise Refusal(Status.INVALID_PARAM_STRUCT, f"{structure} has {wanted} bytes, not {size}")
    if found.gpu is not None and found.gpu.lost:
      raise Refusal(Status.GPU_IS_LOST, "the GPU fell off the bus")
    getattr(self, f"control_{method}")(found, parameters)

  def control_version(self, found: Object, given: Record) -> None:
    """GET_BUILD_VERSION_V2."""
    version = VERSIONS[self.model.version]
    given.text("driverVersionBuffer", version)
    given.text("versionBuffer", version)
    given.text("driverBranch", f"r{self.model.version}_00")
    given.text("titleBuffer", f"NVIDIA UNIX Open Kernel Module {version}")

  def control_ids(self, found: Object, given: Record) -> None:
    """GET_ATTACHED_IDS, GET_PROBED_IDS."""
    name = "gpuIds"
    for index in range(given.fields[name][2]):
      gpus = self.model.gpus
      given.put(name, gpus[index].gpu_id if index < len(gpus) else 0xFFFFFFFF, index)

  def control_id_info(self, found: Object, given: Record) -> None:
    """GET_ID_INFO_V2."""
    gpu = next((gpu for gpu in self.model.gpus if gpu.gpu_id == given["gpuId"]), None)
    if gpu is None:
      raise Refusal(Status.INVALID_ARGUMENT, f"{given['gpuId']:#x} is no GPU")
    given["deviceInstance"], given["subDeviceInstance"], given["gpuInstance"] = gpu.number, 0, gpu.number
    given["boardId"], given["numaId"] = gpu.gpu_id, 0xFFFFFFFF

  def control_attach(self, found: Object, given: Record) -> None:
    """ATTACH_IDS: all are."""

  def control_classes(self, found: Object, given: Record) -> None:
    """GET_CLASSLIST_V2."""
    numbers = self._classes(found)
    given["numClasses"] = len(numbers)
    for index, number in enumerate(numbers):
      given.put("classList", number, index)

  def control_classes_by_pointer(self, found: Object, given: Record) -> None:
    """GET_CLASSLIST."""
    numbers, place = self._classes(found), given["classList"]
    if place and given["numClasses"] < len(numbers):
      raise Refusal(Status.INVALID_PARAM_STRUCT, f"there are {len(numbers)} classes")
    given["numClasses"] = len(numbers)
    if place:
      ctypes.memmove(place, struct.pack(f"<{len(numbers)}I", *numbers), 4 * len(numbers))

  @staticmethod
  def _classes(found: Object) -> list[int]:
    assert found.gpu is not None
    own = [int(name, 16) for name in found.gpu.chip.classes]
    return sorted([DEVICE, SUBDEVICE, LOCAL, SYSTEM, VASPACE, GROUP, SHARE, VIRTUAL, DEBUGGER, CONTEXT_DMA, *own])

  def control_gid(self, found: Object, given: Record) -> None:
    """GET_GID_INFO."""
    assert found.gpu is not None
    if given["flags"] & 3 != 2 or given["index"]:
      raise Refusal(Status.INVALID_ARGUMENT, "the model gives an identifier in binary form only")
    given["length"] = 16
    ctypes.memmove(given.at("data"), found.gpu.uuid, 16)

  def control_name(self, found: Object, given: Record) -> None:
    """GET_NAME_STRING."""
    assert found.gpu is not None
    if given["gpuNameStringFlags"]:
      raise Refusal(Status.INVALID_ARGUMENT, "the model gives a name in ASCII only")
    data = f"NVIDIA {found.gpu.chip.name} (model)".encode() + b"\0"
    ctypes.memmove(given.at("gpuNameString"), data, len(data))

  def _infos(self, place: int, count: int, facts: dict[int, int]) -> None:
    for number in range(count):
      row = Record("NVXXXX_CTRL_XXX_INFO", place + 8 * number)
      if row["index"] not in facts:
        raise Refusal(Status.INVALID_ARGUMENT, f"the model knows no fact {row['index']:#x}")
      row["data"] = facts[row["index"]]

  def control_gr(self, found: Object, given: Record) -> None:
    """GR_GET_INFO."""
    assert found.gpu is not None
    chip, head = found.gpu.chip, "NV2080_CTRL_GR_INFO_INDEX_"
    major, minor = divmod(chip.sm, 10)
    facts = {
      CONSTANTS[head + "LITTER_NUM_GPCS"]: chip.shape[0], CONSTANTS[head + "LITTER_NUM_TPC_PER_GPC"]: chip.shape[1],
      CONSTANTS[head + "LITTER_NUM_SM_PER_TPC"]: chip.shape[2], CONSTANTS[head + "MAX_WARPS_PER_SM"]: chip.shape[3],
      CONSTANTS[head + "SM_VERSION"]: major << 8 | minor,
    }  # fmt: skip
    self._infos(given["grInfoList"], given["grInfoListSize"], facts)

  def _frame_buffer(self, found: Object) -> dict[int, int]:
    gpu, head = found.gpu, "NV2080_CTRL_FB_INFO_INDEX_"
    assert gpu is not None
    total, free = gpu.memory // 1024, (gpu.memory - gpu.used) // 1024
    named = {
      "HEAP_SIZE": total,
      "HEAP_FREE": free,
      "RAM_SIZE": total,
      "TOTAL_RAM_SIZE": total,
      "USABLE_RAM_SIZE": total,
    }
    return {CONSTANTS[head + name]: value for name, value in named.items()}

  def control_fb(self, found: Object, given: Record) -> None:
    """FB_GET_INFO_V2: in KiB."""
    self._infos(given.at("fbInfoList"), given["fbInfoListSize"], self._frame_buffer(found))

  def control_fb_by_pointer(self, found: Object, given: Record) -> None:
    """FB_GET_INFO."""
    self._infos(given["fbInfoList"], given["fbInfoListSize"], self._frame_buffer(found))

  def control_notification(self, found: Object, given: Record) -> None:
    """EVENT_SET_NOTIFICATION: never, the next time, each time."""
    events = [child for child in found.children if child.kind == "event" and child.facts["index"] == given["event"]]
    if not events or given["action"] > 2:
      raise Refusal(Status.INVALID_ARGUMENT, f"action {given['action']} for notifier {given['event']} without an event")
    for event in events:
      event.facts["on"] = (False, "once", True)[given["action"]]

  def control_boost(self, found: Object, given: Record) -> None:
    """PERF_BOOST: nothing is faster."""

  def control_token(self, found: Object, given: Record) -> None:
    """GPFIFO_GET_WORK_SUBMIT_TOKEN."""
    assert found.channel is not None
    given["workSubmitToken"] = found.channel.token

  def control_schedule(self, found: Object, given: Record) -> None:
    """GPFIFO_SCHEDULE, of a group or of a channel."""
    channels = [child for child in [found, *found.children] if child.channel is not None]
    if not channels:
      raise Refusal(Status.INVALID_STATE, "a group without channels is scheduled")
    for channel in channels:
      if channel.facts["vaspace"].flags & EXTERNALLY_OWNED and not channel.facts["registered"]:
        raise Refusal(
          Status.INVALID_STATE, "a channel is scheduled that is not registered with UVM, which has its space"
        )
      assert channel.channel is not None
      channel.channel.scheduled = bool(given["bEnable"])

  def control_fault(self, found: Object, given: Record) -> None:
    """GET_MMU_FAULT_INFO."""
    assert found.channel is not None
    fault = found.channel.fault
    given.clear()
    if fault is not None:
      given["addrHi"], given["addrLo"], given["faultType"] = fault[0] >> 32, fault[0] & 0xFFFFFFFF, fault[1]
      given.text("faultString", {2: "FAULT_PTE", 6: "FAULT_RO_VIOLATION"}[fault[1]])

  def control_faults(self, found: Object, given: Record) -> None:
    """DEBUG_READ_MMU_FAULT_INFO."""
    channel = found.facts["channel"].channel
    given.clear()
    if channel.fault is not None:
      entry = Record("NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY", given.at("mmuFaultInfoList"))
      entry["faultAddress"], entry["faultType"] = channel.fault
      given["count"] = 1


def _controls() -> dict[int, tuple[str, str, str]]:
  rows = (
    ("client", "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2", "", "version"),
    ("client", "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", "", "ids"),
    ("client", "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS", "", "ids"),
    ("client", "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", "", "id_info"),
    ("client", "NV0000_CTRL_CMD_GPU_ATTACH_IDS", "", "attach"),
    ("device", "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", "", "classes"),
    ("device", "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", "", "classes_by_pointer"),
    ("subdevice", "NV2080_CTRL_CMD_GPU_GET_GID_INFO", "", "gid"),
    ("subdevice", "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", "", "name"),
    ("subdevice", "NV2080_CTRL_CMD_GR_GET_INFO", "", "gr"),
    ("subdevice", "NV2080_CTRL_CMD_FB_GET_INFO_V2", "", "fb"),
    ("subdevice", "NV2080_CTRL_CMD_FB_GET_INFO", "", "fb_by_pointer"),
    ("subdevice", "NV2080_CTRL_CMD_PERF_BOOST", "", "boost"),
    ("subdevice", "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION", "", "notification"),
    ("channel", "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS",
     "token"),
    ("channel", "NV906F_CTRL_CMD_GET_MMU_FAULT_INFO", "", "fault"),
    ("channel", "NVA06F_CTRL_CMD_GPFIFO_SCHEDULE", "", "schedule"),
    ("group", "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", "schedule"),
    ("debugger", "NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO", "", "faults"),
  )  # fmt: skip
  return {
    CONSTANTS[name]: (kind, structure or name.replace("_CMD_", "_") + "_PARAMS", method)
    for kind, name, structure, method in rows
  }


CONTROLS = _controls()
"""Kind of object, structure and method of each control."""
