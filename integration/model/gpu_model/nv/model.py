"""The machine: files of NVIDIA's driver, its requests, and GPUs that work while someone waits.

It is the `System` of a program: `open`, `ioctl`, `map`, `unmap`, `close` and `reserve` are calls of Linux, `ring`
writes a doorbell, and `pause` is what a program does between two looks at memory. GPUs work in `pause`, and not before,
so that whoever does not wait sees that; which of several channels is first is different each time.

What the driver refuses ends with its status, and is in `Model.refused` with the reason. What it cannot see, or what the
model does not know, is an error in `Model.misuse`. What ends a channel is in `Model.xids`.
"""

from __future__ import annotations

import ctypes
import errno
import threading
import time
import traceback
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gpu_model.machine import Options
from gpu_model.nv.channel import Channel
from gpu_model.nv.compute import Compute
from gpu_model.nv.copies import Copies
from gpu_model.nv.engine import Engine
from gpu_model.nv.errors import ChannelError, Misuse, Refusal, Status, Xid
from gpu_model.nv.gpus import CHIPS, VERSIONS, Chip
from gpu_model.nv.memory import PAGE, READ_WRITE, Physical, Store, _mmap, _munmap
from gpu_model.nv.resources import DOORBELL, USERMODE_BYTES, Object, Resources
from gpu_model.nv.tables import CONSTANTS, SIZES, Record
from gpu_model.nv.uvm import REQUESTS, Uvm

MEMORY = 64 << 20
CONTROL, UVM = "/dev/nvidiactl", "/dev/nvidia-uvm"
ESCAPES = {
  "RM_ALLOC": ("NVOS21_PARAMETERS", "NVOS64_PARAMETERS"), "RM_CONTROL": ("NVOS54_PARAMETERS",),
  "RM_FREE": ("NVOS00_PARAMETERS",), "RM_MAP_MEMORY": ("nv_ioctl_nvos33_parameters_with_fd",),
  "RM_UNMAP_MEMORY": ("NVOS34_PARAMETERS",), "RM_MAP_MEMORY_DMA": ("NVOS46_PARAMETERS",),
  "RM_UNMAP_MEMORY_DMA": ("NVOS47_PARAMETERS",), "REGISTER_FD": ("nv_ioctl_register_fd_t",),
  "CHECK_VERSION_STR": ("nv_ioctl_rm_api_version_t",), "CARD_INFO": ("nv_ioctl_card_info_t",),
  "ALLOC_OS_EVENT": ("nv_ioctl_alloc_os_event_t",), "FREE_OS_EVENT": ("nv_ioctl_free_os_event_t",),
}  # fmt: skip
HEARS = CONSTANTS["NV2080_NOTIFIERS_GR0"], CONSTANTS["NV2080_NOTIFIERS_FIFO_EVENT_MTHD"]
BY_NUMBER = {CONSTANTS[f"NV_ESC_{name}"]: name for name in ESCAPES}


@dataclass(eq=False)
class Gpu:
  """One of the machine's."""

  number: int
  chip: Chip
  memory: int
  used: int = 0
  lost: bool = False
  interrupts: int = 0
  channels: list[Channel] = field(default_factory=list)
  code: dict[int, bytes] = field(default_factory=dict)
  """What its cache of instructions has."""
  constants: dict[int, bytes] = field(default_factory=dict)
  """What its cache of constants has."""
  data_cached: bool = False
  """A kernel ran since the caches of SMs were invalidated."""
  launched: deque[str] = field(default_factory=lambda: deque(maxlen=64))

  @property
  def gpu_id(self) -> int:
    """The driver's number of it."""
    return 0x100 * (self.number + 1)

  @property
  def uuid(self) -> bytes:
    """The identifier that UVM knows it by."""
    return bytes([0x47, self.number, *self.chip.name.encode().ljust(14, b"\x5a")])

  def engine(self, channel: Channel, name: str) -> Engine:
    """An engine of one of its classes."""
    return (Compute if name == self.chip.classes[2] else Copies)(channel, name)


class Model:
  """See the module."""

  def __init__(
    self, gpus: Sequence[str] = ("GH100",), version: str = "580", memory: int = MEMORY, host_memory: int = 1 << 30,
    apart: Collection[tuple[int, int]] = (), guarded: bool = True, options: Options | None = None,
  ) -> None:  # fmt: skip
    """`gpus`: chips, by name; `version`: the driver's first number; `apart`: pairs of GPUs with no way between them;
    `guarded`: memory that the host has not mapped cannot be touched by it."""
    if version not in VERSIONS:
      raise ValueError(f"the model is of the drivers {', '.join(VERSIONS)}, not of {version}")
    self.version, self.options, self.host_memory, self.host_used = version, options, host_memory, 0
    self.gpus = [Gpu(number, CHIPS[name], memory) for number, name in enumerate(gpus)]
    self.apart = {frozenset(pair) for pair in apart}
    self.store = Store(guarded)
    self.lock = threading.RLock()
    self.random = Random(0)
    self.files: dict[int, str] = {}
    self.descriptors = 1000
    self.registered: dict[int, int] = {}
    """The file of the control device that each file of a GPU belongs to."""
    self.of_events: dict[int, int] = {}
    """The client of each file that events can make readable."""
    self.readable: set[int] = set()
    """Files that an event has made readable since somebody looked."""
    self.to_map: dict[int, tuple[Object, int, int]] = {}
    """What files are about to map."""
    self.mapped: dict[int, tuple[Object | None, int]] = {}
    """What the host has mapped, by address, with its bytes."""
    self.resources, self.uvm = Resources(self), Uvm(self)
    self.requests: deque[str] = deque(maxlen=256)
    self.refused: list[str] = []
    self.misuse: list[str] = []
    self.xids: list[tuple[Xid, str]] = []
    self.wrong = ""
    """What ended the last channel that ended."""
    self.fails: dict[str, Status | int] = {}
    """Requests that are to fail, by name: with this status, or an errno below 0."""
    self.deaf = False
    """Interrupts never come."""
    self.hangs = False
    """GPUs fetch nothing."""
    self.flip_payload = 0
    """Semaphores get a payload with these bits the other way round."""

  # *** what is left, and what is used ***

  def left(self) -> list[str]:
    """What nobody gave back."""
    held: dict[str, Any] = {
      "files": self.files, "files of events": self.of_events, "clients": self.resources.clients,
      "mappings of the host": self.mapped, "reserved ranges": self.store.reserved, "places": self.store.places,
      **self.uvm.left(),
    }  # fmt: skip
    return [f"{len(things)} {name}" for name, things in held.items() if things]

  def count_memory(self, physical: Physical, sign: int) -> None:
    """Memory is allocated, or free again."""
    if physical.gpu < 0:
      self.host_used += sign * physical.size
    else:
      self.gpus[physical.gpu].used += sign * physical.size

  def end(self) -> None:
    """The process that used it ends: its addresses are free."""
    for address, (found, nbytes) in self.mapped.items():
      if found is not None and found.kind == "usermode":
        _munmap(address, nbytes)
    self.mapped = {}
    self.store.close()

  # *** calls of Linux ***

  def open(self, path: str) -> int:
    """A file of the driver. Raises FileNotFoundError."""
    if path not in (CONTROL, UVM, *(f"/dev/nvidia{gpu.number}" for gpu in self.gpus)):
      raise FileNotFoundError(errno.ENOENT, "no such file", path)
    if (failure := self.fails.get(f"open {path}")) is not None:
      raise OSError(-failure, "it is to fail", path)
    with self.lock:
      self.descriptors += 1
      self.files[self.descriptors] = path
      return self.descriptors

  def close(self, descriptor: int) -> None:
    """See System: clients of the file go with it."""
    with self.lock:
      path = self.files.pop(descriptor)
      self.to_map.pop(descriptor, None)
      self.registered.pop(descriptor, None)
      if self.of_events.pop(descriptor, None) is not None:
        self.misuse.append(f"file {descriptor} is closed, and events make it readable still: FREE_OS_EVENT")
      if path == UVM:
        self.uvm.closed(descriptor)
      for client in [c for c in self.resources.clients.values() if c.descriptor == descriptor]:
        self.resources.free(client, client.root)

  def ioctl(self, descriptor: int, request: int, argument: Any) -> None:
    """See System."""
    with self.lock:
      path = self.files.get(descriptor)
      if path is None:
        raise OSError(errno.EBADF, "no such descriptor")
      place = ctypes.addressof(argument)
      if path == UVM:
        self._uvm(descriptor, request, place, ctypes.sizeof(argument))
      else:
        self._escape(path, descriptor, request, place, ctypes.sizeof(argument))

  def _failure(self, name: str) -> None:
    """Raise what was asked for."""
    failure = self.fails.get(name)
    if failure is None:
      return
    if not isinstance(failure, Status):
      raise OSError(-failure, f"{name} is to fail")
    raise Refusal(failure, f"{name} is to fail")

  def _guard(self, name: str, given: Record, status: str, work: Any) -> None:
    """Do a request, with its status where the structure has it."""
    self.requests.append(name)
    try:
      self._failure(name)
      work()
      given[status] = Status.OK
    except Refusal as refusal:
      self.refused.append(f"{name}: {refusal}")
      given[status] = refusal.status
    except OSError:
      raise
    except BaseException as error:
      self.misuse.append(f"{name}: {traceback.format_exc(limit=-3)}")
      raise OSError(errno.EINVAL, f"misuse: {error}") from None

  def _uvm(self, descriptor: int, request: int, place: int, size: int) -> None:
    name = REQUESTS.get(request)
    if name is None:
      self.refused.append(f"UVM: the model knows no request {request:#x}")
      raise OSError(errno.EINVAL, f"the model knows no request {request:#x} of UVM")
    given = Record(f"{name}_PARAMS", place)
    if size != given.size:
      raise OSError(errno.EINVAL, f"{name} wants {given.size} bytes, not {size}")
    self._guard(name, given, "rmStatus", lambda: self.uvm.request(name, given, descriptor))

  def _escape(self, path: str, descriptor: int, request: int, place: int, size: int) -> None:
    number, kind, way, told = request & 0xFF, request >> 8 & 0xFF, request >> 30, request >> 16 & 0x3FFF
    name = BY_NUMBER.get(number)
    if kind != ord("F") or way != 3 or name is None:
      self.refused.append(f"the driver has no request {request:#x}")
      raise OSError(errno.EINVAL, f"the driver has no request {request:#x}")
    structures = ESCAPES[name]
    structure = next((s for s in structures if SIZES[s] == told), None)
    if name == "CARD_INFO" and told % SIZES[structures[0]] == 0 and told >= SIZES[structures[0]] * len(self.gpus):
      structure = structures[0]
    if structure is None or told != size:
      self.refused.append(f"{name}: a request with {told} bytes, and a structure of {size}")
      raise OSError(errno.EINVAL, f"{name} with {told} bytes")
    given = Record(structure, place)
    if name.startswith("RM_") and path != CONTROL:
      self.refused.append(f"{name} of {path}")
      raise OSError(errno.EINVAL, f"{name} is a request of {CONTROL}")
    if not name.startswith("RM_"):
      self.requests.append(name)
      if (failure := self.fails.get(name)) is not None:
        raise OSError(-int(failure), f"{name} is to fail")
      getattr(self, f"_{name.lower()}")(descriptor, path, given, told)
      return
    if name == "RM_MAP_MEMORY":
      inner = Record("NVOS33_PARAMETERS", given.at("params"))
      target = given["fd"]
      self._guard(name, inner, "status", lambda: self.resources.do_RM_MAP_MEMORY(inner, descriptor, target))
      return
    self._guard(name, given, "status", lambda: getattr(self.resources, f"do_{name}")(given, descriptor))

  def _card_info(self, descriptor: int, path: str, given: Record, size: int) -> None:
    ctypes.memset(given.address, 0, size)
    for gpu in self.gpus:
      row = Record(given.name, given.address + gpu.number * given.size)
      row["valid"], row["gpu_id"], row["minor_number"] = 1, gpu.gpu_id, gpu.number
      row["fb_size"], row["reg_size"] = gpu.memory, 16 << 20
      pci = Record("nv_pci_info_t", row.at("pci_info"))
      pci["bus"], pci["vendor_id"], pci["device_id"] = gpu.number + 1, 0x10DE, gpu.chip.device_id

  def _register_fd(self, descriptor: int, path: str, given: Record, size: int) -> None:
    control = given["ctl_fd"]
    if path == CONTROL or self.files.get(control) != CONTROL or descriptor in self.registered:
      self.refused.append("REGISTER_FD: not a GPU's file with one of the control device, or twice")
      raise OSError(errno.EINVAL, "REGISTER_FD")
    self.registered[descriptor] = control

  def _alloc_os_event(self, descriptor: int, path: str, given: Record, size: int) -> None:
    client = self.resources.clients.get(given["hClient"])
    wrong = self._event_wrong(descriptor, path, given)
    if not wrong and (client is None or client.descriptor != self.registered.get(descriptor)):
      wrong = "a client that is not of the file's control device"
    if not wrong and descriptor in self.of_events:
      wrong = "a file that is one of events already"
    given["Status"] = Status.INVALID_ARGUMENT if wrong else Status.OK
    if wrong:
      self.refused.append(f"ALLOC_OS_EVENT: {wrong}")
    else:
      self.of_events[descriptor] = given["hClient"]

  def _event_wrong(self, descriptor: int, path: str, given: Record) -> str:
    if path == CONTROL or descriptor not in self.registered:
      return "not a GPU's file that is registered"
    return "" if given["fd"] == descriptor else f"fd {given['fd']} asked of file {descriptor}"

  def _free_os_event(self, descriptor: int, path: str, given: Record, size: int) -> None:
    wrong = self._event_wrong(descriptor, path, given)
    if not wrong and self.of_events.get(descriptor) != given["hClient"]:
      wrong = "a file that is none of this client's events"
    if not wrong and self.resources.listening(descriptor):
      wrong = "events of the subdevice still name the file"
    given["Status"] = Status.INVALID_ARGUMENT if wrong else Status.OK
    if wrong:
      self.refused.append(f"FREE_OS_EVENT: {wrong}")
    else:
      del self.of_events[descriptor]
      self.readable.discard(descriptor)

  def _check_version_str(self, descriptor: int, path: str, given: Record, size: int) -> None:
    wanted, found = VERSIONS[self.version], ctypes.string_at(given.at("versionString")).decode()
    same = found == wanted
    given["reply"] = int(same)
    given.text("versionString", wanted)
    if given["cmd"] == 0 and not same:
      self.refused.append(f"CHECK_VERSION_STR: this is {wanted}, not {found}")
      raise OSError(errno.EINVAL, f"this is {wanted}, not {found}")

  def reserve(self, nbytes: int, address: int = 0) -> int:
    """See System."""
    with self.lock:
      return self.store.reserve(nbytes, address)

  def map(self, descriptor: int, nbytes: int, offset: int, address: int = 0) -> int:
    """See System: what RM_MAP_MEMORY said that this file maps."""
    with self.lock:
      if descriptor not in self.to_map:
        raise OSError(errno.EINVAL, "nothing is to be mapped through this file: RM_MAP_MEMORY comes before")
      found, begin, size = self.to_map[descriptor]
      if offset or not size <= nbytes <= -(-size // PAGE) * PAGE:
        raise OSError(errno.EINVAL, f"{nbytes} bytes from {offset}, and {size} from 0 are to be mapped")
      del self.to_map[descriptor]
      if found.kind == "usermode":
        place = _mmap(0, nbytes, READ_WRITE, 0x22)
      else:
        assert found.physical is not None
        try:
          place = self.store.place(address, nbytes, found.physical, begin, True)
        except Refusal as refusal:
          self.refused.append(f"mmap: {refusal}")
          raise OSError(errno.EINVAL, str(refusal)) from None
      self.mapped[place] = found, nbytes
      return place

  def unmap(self, address: int, nbytes: int) -> None:
    """See System."""
    with self.lock:
      if address in self.mapped and self.mapped[address][1] == nbytes:
        found, _ = self.mapped.pop(address)
        if found is not None and found.kind == "usermode":
          _munmap(address, nbytes)
        else:
          self.store.unreserve(address, nbytes)
          self.store.displace(address, True)
        return
      if self.store.reserved.get(address) != nbytes:
        self.misuse.append(f"{nbytes} bytes at {address:#x} are unmapped, and were neither mapped nor reserved as such")
        raise OSError(errno.EINVAL, "no such mapping")
      if any(address <= place < address + nbytes for place in self.store.places):
        self.misuse.append(f"{nbytes} bytes at {address:#x} are unmapped, and memory is there")
      self.store.release(address, nbytes)

  # *** work ***

  def ring(self, address: int, token: int) -> None:
    """The doorbell: a store of 32 bits."""
    with self.lock:
      base = next((place for place in self.mapped if place <= address < place + self.mapped[place][1]), None)
      found = self.mapped[base][0] if base is not None else None
      try:
        if base is None or found is None or found.kind != "usermode" or address - base != DOORBELL:
          raise Misuse(
            f"a doorbell is rung at {address:#x}, which is none: it is at {DOORBELL:#x} of the usermode object"
          )
        gpu = found.gpu
        assert gpu is not None and base + USERMODE_BYTES > address
        if gpu.lost:
          return
        channel = next((channel for channel in gpu.channels if channel.token == token), None)
        if channel is None:
          raise Misuse(f"the doorbell is rung with {token:#x}, the token of no channel")
        channel.rung()
      except Misuse as misuse:
        self.misuse.append(str(misuse))
        raise OSError(errno.EINVAL, f"misuse: {misuse}") from None

  def interrupted(self, gpu: Gpu) -> None:
    """A channel interrupts the host. Which of two notifiers hears of it the headers leave open: it is either."""
    gpu.interrupts += 1
    if not self.deaf:
      self.readable |= self.resources.told(gpu, self.random.choice(HEARS))

  def pause(self, seconds: float = 0.0, descriptor: int = -1) -> bool:
    """The GPUs work, as far as they come. With a descriptor it is poll(): whether an event has made it readable, which
    it is no longer then."""
    with self.lock:
      if descriptor >= 0 and descriptor not in self.of_events:
        self.misuse.append(f"file {descriptor} is waited for, and no event can make it readable")
      channels = [channel for gpu in self.gpus if not gpu.lost for channel in gpu.channels if channel.busy()]
      if self.hangs or not channels:
        waits = True
      else:
        waits = not self._work(channels)
      found = descriptor in self.readable
      self.readable.discard(descriptor)
    if waits and not found:
      time.sleep(min(seconds, 1e-3) or 1e-4)
    return found

  def _work(self, channels: list[Channel]) -> bool:
    """Run them until none comes any further; whether one did anything."""
    self.random.shuffle(channels)
    done = False
    with self.store.working():
      going = True
      while going:
        going = False
        for channel in channels:
          try:
            going = channel.run() or going
          except Misuse as misuse:
            self._misused(channel, misuse)
        done = done or going
        if not going:
          for channel in channels:
            try:
              going = (not channel.dead and channel.advance()) or going
            except Misuse as misuse:
              self._misused(channel, misuse)
    return done

  def _misused(self, channel: Channel, misuse: BaseException) -> None:
    """Say so, and end the channel, so that nobody waits for it."""
    self.misuse.append(str(misuse))
    channel.fail(ChannelError(Xid.GRAPHICS_EXCEPTION, str(misuse)))

  # *** what goes wrong ***

  def lose(self, number: int) -> None:
    """The GPU fell off the bus: nothing of it answers any more."""
    gpu = self.gpus[number]
    gpu.lost = True
    self.xids.append((Xid.FALLEN_OFF_THE_BUS, f"GPU {number}"))
    for channel in gpu.channels:
      channel.end(Xid.FALLEN_OFF_THE_BUS)
