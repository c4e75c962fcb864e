"""A model of KFD, the compute part of Linux's amdgpu: the system calls that tiny-runtime-amd makes, after
linux/kfd_ioctl.h and what the driver checks in Linux 6.12.

A machine with one GPU or several. Memory is memory of this process at the addresses that were asked for. What is put
into a queue happens while someone waits for events, and not before, so that whoever does not wait sees that; which of
several queues is first is different each time. Misuse is an error with its own text in `Model.misuse`, which tests
look at.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gpu_model.kfd_objects import GPU_ID, GPUS, Buffer, Event, Misuse, Queue, Refusal, ticks
from gpu_model.kfd_packets import Processor
from tiny_runtime.hcq.system import Linux
from tiny_runtime_amd.gpus import Places
from tiny_runtime_amd.kfd import NUMBERS, Apertures, EventData, SaveAreaHeader

MEMORY = 64 << 20
NODE, MINOR = 1, 128
PAGE = 4096
EVENT_PAGE = 4096 * 8
END_OF_PIPE = PAGE
VRAM, GTT, SYSTEM_LIMIT = 1, 2, 1 << 30
KNOWN_FLAGS = VRAM | GTT | 0x1F << 25 | 3 << 30
DOORBELLS, DOORBELL_TYPE = 8192, 3 << 62
PROPERTIES = {
  "cpu_cores_count": 0, "mem_banks_count": 1, "lds_size_in_kb": 64, "max_slots_scratch_cu": 32,
  "drm_render_minor": MINOR,
}  # fmt: skip


class Model:
  """The machine; a `System` of tiny-runtime-amd."""

  def __init__(
    self, memory: int = MEMORY, major: int = 1, gpu: str = "gfx942", gpus: int = 1,
    apart: Collection[tuple[int, int]] = (), linked: str = "io_links", machine_code: bool = False,
    engines: int = 8,
  ) -> None:  # fmt: skip
    """`machine_code`: kernels are run from their bytes, not from the IR that these were made of; `apart`:
    pairs of GPUs that no way connects; `linked`: where sysfs lists the ways; `engines`: how many queues DMA engines
    may have."""
    self.memory, self.major, self.chip, self.facts, self.machine_code = memory, major, gpu, GPUS[gpu], machine_code
    self.gpus = [GPU_ID + n for n in range(gpus)]
    self.apart, self.linked = {pair for a, b in apart for pair in ((a, b), (b, a))}, linked
    self.misuse: list[str] = []
    self.lock = threading.RLock()
    self.linux = Linux()
    self.folder = tempfile.TemporaryDirectory(prefix="kfd-model-")
    root = Path(self.folder.name)
    self.places = Places(root / "nodes", root / "kfd", root / "dri", "x86_64")
    self._write_files()
    self.files: dict[int, str] = {}
    self.acquired: dict[int, int] = {}
    """The descriptor that each GPU's address space was acquired with."""
    self.reserved: dict[int, int] = {}
    self.buffers: dict[int, Buffer] = {}
    self.doorbells: dict[int, int] = {}
    """Where the doorbells of GPUs are mapped, and how many bytes."""
    self.pages: dict[int, int] = {}
    """Where those of each GPU are, mapped last."""
    self.engines = engines
    self.queues: dict[int, Queue] = {}
    self.events: dict[int, Event] = {}
    self.numbers = 0
    self.evicted: set[int] = set()
    """GPUs that had a fault: no queue of this process runs there any more."""
    self.hangs = False
    """The GPU takes packets, and does nothing."""
    self.event_page = 0
    """The handle of the memory where GPUs tell of events; -1: KFD's own."""
    self.interrupts, self.interrupted = True, 0
    """Whether this Linux takes such memory, and how often a GPU interrupted."""
    self.runtime, self.runtime_enabled = True, False
    """Whether this Linux tells a process of its queues' errors, and whether it asked for that."""
    self.raises = 0
    """The exception that the next kernel ends with, after kfd_dbg_trap_exception_code; 0: none."""
    self.wrong = ""
    """What the machine saw a kernel do."""
    self.processor = Processor(self)
    self.requests: deque[str] = deque(maxlen=256)

  def _write_files(self) -> None:
    """What sysfs and /dev have: a processor, and the GPUs."""
    self.places.render.mkdir()
    self.places.kfd.touch()
    facts = {**PROPERTIES, **self.facts.properties, "gfx_target_version": self.facts.version}
    self._write_node(0, {"cpu_cores_count": 8, "gfx_target_version": 0}, 0)
    for n, gpu_id in enumerate(self.gpus):
      self._write_node(NODE + n, {**facts, "drm_render_minor": MINOR + n}, gpu_id)
      self._render(gpu_id).touch()

  def _write_node(self, node: int, properties: dict[str, int], gpu_id: int) -> None:
    folder = self.places.nodes / str(node)
    (folder / "mem_banks" / "0").mkdir(parents=True)
    (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    (folder / "gpu_id").write_text(f"{gpu_id}\n")
    heap = f"heap_type {2 if gpu_id else 0}\nsize_in_bytes {self.memory}\nflags 0\nwidth 8192\n"
    (folder / "mem_banks" / "0" / "properties").write_text(heap)
    others = [NODE + n for n, _ in enumerate(self.gpus) if n != node - NODE and (node - NODE, n) not in self.apart]
    for kind, nodes in (("io_links", [0]), (self.linked, others)) if gpu_id else ():
      for other in nodes:
        link = folder / kind / str(other)
        link.mkdir(parents=True)
        (link / "properties").write_text(f"type {11 if other else 2}\nnode_from {node}\nnode_to {other}\n")

  def _render(self, gpu_id: int) -> Path:
    return self.places.render / f"renderD{MINOR + gpu_id - GPU_ID}"

  @property
  def used(self) -> int:
    """Bytes of the first GPU's memory that are allocated."""
    return self.used_of(GPU_ID)

  def used_of(self, gpu_id: int) -> int:
    """Bytes of a GPU's memory that are allocated."""
    return sum(buffer.size for buffer in self.buffers.values() if buffer.flags & VRAM and buffer.gpu_id == gpu_id)

  def left(self) -> list[str]:
    """What nobody gave back."""
    buffers = {handle: buffer for handle, buffer in self.buffers.items() if handle != self.event_page}
    held: dict[str, dict[int, Any]] = {
      "buffers": buffers, "queues": self.queues, "events": self.events, "doorbells": self.doorbells,
    }  # fmt: skip
    return [f"{len(things)} {name}" for name, things in held.items() if things]

  def number(self) -> int:
    """A new one."""
    self.numbers += 1
    return self.numbers

  def buffer_at(self, gpu_id: int, address: int, size: int = 1) -> Buffer:
    """The buffer with these bytes, which a GPU can reach. Raises Misuse."""
    for buffer in self.buffers.values():
      if buffer.address <= address and address + size <= buffer.address + buffer.size:
        if gpu_id not in buffer.mapped:
          raise Misuse(f"{address:#x} is in memory that is not mapped to the GPU")
        return buffer
    raise Misuse(f"{size} bytes at {address:#x} are in no buffer")

  # *** system calls ***

  def open(self, path: str) -> int:
    """See System."""
    if path not in (str(self.places.kfd), *(str(self._render(gpu_id)) for gpu_id in self.gpus)):
      raise FileNotFoundError(errno.ENOENT, "no such file", path)
    descriptor = 1000 + self.number()
    self.files[descriptor] = path
    return descriptor

  def close(self, descriptor: int) -> None:
    """See System."""
    del self.files[descriptor]

  def ioctl(self, descriptor: int, request: int, argument: ctypes.Structure) -> None:
    """See System."""
    with self.lock:
      if self.files.get(descriptor) != str(self.places.kfd):
        raise OSError(errno.ENOTTY, "not KFD")
      name = next(name for name, number in NUMBERS.items() if number == request)
      self.requests.append(name)
      try:
        getattr(self, f"do_{name}")(argument)
      except Refusal as refusal:
        raise OSError(refusal.number, os.strerror(refusal.number)) from None
      except BaseException as error:
        self.misuse.append(f"{name}: {traceback.format_exc(limit=-3)}")
        raise OSError(errno.EINVAL, f"misuse: {error}") from None

  def reserve(self, nbytes: int, address: int = 0) -> int:
    """See System."""
    address = self.linux.reserve(nbytes, address)
    self.reserved[address] = nbytes
    return address

  def map(self, descriptor: int, nbytes: int, offset: int, address: int = 0) -> int:
    """See System: a buffer's memory, which is where it is already, or doorbells."""
    if self.files.get(descriptor) == str(self.places.kfd):
      gpu_id = (offset & ~DOORBELL_TYPE) >> 46
      if nbytes != DOORBELLS or offset != DOORBELL_TYPE | gpu_id << 46 or gpu_id not in self.gpus:
        raise OSError(errno.EINVAL, "no doorbells are there")
      place = _memory(0, nbytes)
      self.doorbells[place] = nbytes
      self.pages[gpu_id] = place
      for queue in self.queues.values():
        if queue.gpu_id == gpu_id:
          queue.doorbell = queue.doorbell or place + queue.slot
      return place
    buffer = self.buffers.get(offset >> 12)
    if buffer is None or buffer.address != address or buffer.size != nbytes or not buffer.flags & GTT:
      raise OSError(errno.EINVAL, "no such memory, or none that the host can see")
    buffer.seen = True
    return address

  def unmap(self, address: int, nbytes: int) -> None:
    """See System."""
    if address in self.doorbells:
      del self.doorbells[address]
    elif self.reserved.pop(address, 0) != nbytes:
      self.misuse.append(f"{nbytes} bytes at {address:#x} are unmapped, and were not reserved as such")
    elif any(address <= buffer.address < address + nbytes for buffer in self.buffers.values()):
      self.misuse.append(f"{nbytes} bytes at {address:#x} are unmapped, and are a buffer's")
    self.linux.unmap(address, nbytes)

  # *** requests ***

  def do_GET_VERSION(self, given: Any) -> None:
    given.major_version, given.minor_version = self.major, 14

  def do_RUNTIME_ENABLE(self, given: Any) -> None:
    if not self.runtime:
      raise Refusal(errno.EINVAL)
    if given.r_debug or given.mode_mask != 1:
      raise Misuse(f"mode {given.mode_mask:#x} of a debugger's")
    if self.runtime_enabled:
      raise Refusal(errno.EBUSY)
    self.runtime_enabled = True

  def _gpu(self, gpu_id: int) -> None:
    if gpu_id not in self.gpus:
      raise Refusal(errno.EINVAL)

  def do_ACQUIRE_VM(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    if self.files.get(given.drm_fd) != str(self._render(given.gpu_id)):
      raise Misuse("a descriptor that is not of the GPU's render file")
    if self.acquired.get(given.gpu_id, given.drm_fd) != given.drm_fd:
      raise Refusal(errno.EBUSY)
    self.acquired[given.gpu_id] = given.drm_fd

  def do_GET_PROCESS_APERTURES_NEW(self, given: Any) -> None:
    if given.num_of_nodes:
      found = (Apertures * given.num_of_nodes).from_address(given.kfd_process_device_apertures_ptr)
      for place, gpu_id in zip(found, self.gpus):
        place.lds_base, place.scratch_base, place.gpu_id = 1 << 48, 2 << 48, gpu_id
        place.gpuvm_base, place.gpuvm_limit = 0x4000, (1 << 47) - 1
    given.num_of_nodes = len(self.gpus)

  def do_GET_CLOCK_COUNTERS(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    given.gpu_clock_counter, given.system_clock_counter = ticks(), time.monotonic_ns()
    given.cpu_clock_counter, given.system_clock_freq = time.monotonic_ns(), 10**9

  def do_ALLOC_MEMORY_OF_GPU(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    if given.gpu_id not in self.acquired:
      raise Refusal(errno.ENODEV)
    if given.va_addr % PAGE or given.size % PAGE or not given.size:
      raise Misuse(f"{given.size} bytes at {given.va_addr:#x}, which are no pages")
    if given.flags & ~KNOWN_FLAGS or (given.flags & (VRAM | GTT)).bit_count() != 1:
      raise Misuse(f"flags {given.flags:#x}")
    end = given.va_addr + given.size
    if not any(begin <= given.va_addr and end <= begin + size for begin, size in self.reserved.items()):
      raise Misuse("addresses that were not reserved")
    if any(given.va_addr < other.address + other.size and other.address < end for other in self.buffers.values()):
      raise Misuse("addresses of another buffer")
    gtt = sum(buffer.size for buffer in self.buffers.values() if buffer.flags & GTT)
    if self.used_of(given.gpu_id) + given.size > self.memory if given.flags & VRAM else gtt + given.size > SYSTEM_LIMIT:
      raise Refusal(errno.ENOMEM)
    _memory(given.va_addr, given.size)
    if given.flags & VRAM and given.size <= 1 << 20:
      ctypes.memset(given.va_addr, 0xA5, given.size)
    if given.flags & GTT and given.size <= 16 << 20:  # which Linux holds in memory from the beginning
      ctypes.memset(given.va_addr, 0, given.size)
    given.handle = given.gpu_id << 32 | self.number()
    given.mmap_offset = given.handle << 12
    self.buffers[given.handle] = Buffer(given.handle, given.gpu_id, given.va_addr, given.size, given.flags)

  def _buffer(self, handle: int) -> Buffer:
    if handle not in self.buffers:
      raise Misuse(f"{handle:#x} is no buffer, or it was freed")
    return self.buffers[handle]

  def do_FREE_MEMORY_OF_GPU(self, given: Any) -> None:
    buffer = self._buffer(given.handle)
    if buffer.mapped:
      raise Refusal(errno.EBUSY)
    del self.buffers[given.handle]
    _memory(buffer.address, buffer.size, 0)

  def _mapping(self, given: Any, mapped: bool) -> None:
    ids = list((ctypes.c_uint32 * given.n_devices).from_address(given.device_ids_array_ptr))
    if not ids or len({*ids}) != len(ids) or given.n_success:
      raise Misuse(f"memory is mapped to the GPUs {ids}, after {given.n_success}")
    buffer = self._buffer(given.handle)
    for gpu_id in ids:
      self._gpu(gpu_id)
      if gpu_id not in self.acquired:
        raise Refusal(errno.ENODEV)
      if (gpu_id in buffer.mapped) == mapped:
        raise Misuse("memory that is mapped, is mapped, or the other way round")
      if mapped and buffer.flags & VRAM and (gpu_id - GPU_ID, buffer.gpu_id - GPU_ID) in self.apart:
        raise Refusal(errno.EINVAL)
    if not mapped and any(buffer.address in queue.places for queue in self.queues.values() if queue.gpu_id in ids):
      raise Refusal(errno.EBUSY)
    buffer.mapped, given.n_success = buffer.mapped | {*ids} if mapped else buffer.mapped - {*ids}, len(ids)

  def do_MAP_MEMORY_TO_GPU(self, given: Any) -> None:
    self._mapping(given, True)

  def do_UNMAP_MEMORY_FROM_GPU(self, given: Any) -> None:
    self._mapping(given, False)

  def _exactly(self, gpu_id: int, address: int, size: int, what: str) -> Buffer:
    """A buffer that is all of something, as Linux 6.12 wants it."""
    buffer = self.buffer_at(gpu_id, address)
    if (buffer.address, buffer.size) != (address // PAGE * PAGE, size):
      raise Misuse(f"{what} of {size} bytes is in a buffer of {buffer.size}")
    return buffer

  def do_CREATE_QUEUE(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    if given.queue_type not in (1, 2) or given.queue_percentage > 100 or given.queue_priority > 15:
      raise Misuse("another kind of queue, or too much of the GPU")
    if given.ring_size < 1024 or given.ring_size & given.ring_size - 1 or given.ring_base_address % 256:
      raise Misuse(f"a ring of {given.ring_size} bytes at {given.ring_base_address:#x}")
    if given.queue_type == 1:
      self._create_copying(given)
      return
    sizes, facts = (given.eop_buffer_size, given.ctl_stack_size, given.ctx_save_restore_size), self.facts
    if sizes != (END_OF_PIPE, facts.stack, facts.stack + facts.groups):
      raise Misuse(f"sizes {sizes} of what a queue brings")
    area = (facts.stack + facts.groups + facts.debugger) * facts.dies
    parts = [
      self._exactly(given.gpu_id, given.ring_base_address, given.ring_size, "the ring"),
      self._exactly(given.gpu_id, given.eop_buffer_address, given.eop_buffer_size, "the buffer for ends of the pipe"),
      self._exactly(given.gpu_id, given.ctx_save_restore_address, area, "the area for waves"),
      self._exactly(given.gpu_id, given.write_pointer_address, PAGE, "the write pointer's page"),
      self._exactly(given.gpu_id, given.read_pointer_address, PAGE, "the read pointer's page"),
    ]
    number = self.number()
    slot = 8 * (number % (DOORBELLS // 8))
    places = {part.address for part in parts}
    self.queues[number] = Queue(
      number, given.gpu_id, given.ring_base_address, given.ring_size, given.write_pointer_address,
      given.read_pointer_address, slot, places, given.ctx_save_restore_address,
    )  # fmt: skip
    given.queue_id, given.doorbell_offset = number, DOORBELL_TYPE | given.gpu_id << 46 | slot

  def _create_copying(self, given: Any) -> None:
    """A queue of a DMA engine: a ring and two pointers."""
    if sum(queue.copies for queue in self.queues.values()) >= self.engines:
      raise Refusal(errno.ENOMEM)
    if given.eop_buffer_size or given.ctx_save_restore_size or given.ctl_stack_size:
      raise Misuse("a queue of an engine has no waves")
    if given.write_pointer_address % 8 or given.read_pointer_address % 8:
      raise Misuse(f"pointers at {given.write_pointer_address:#x} and {given.read_pointer_address:#x}")
    parts = [
      self._exactly(given.gpu_id, given.ring_base_address, given.ring_size, "the ring"),
      self._exactly(given.gpu_id, given.write_pointer_address, PAGE, "the write pointer's page"),
      self._exactly(given.gpu_id, given.read_pointer_address, PAGE, "the read pointer's page"),
    ]
    number = self.number()
    slot = 8 * (number % (DOORBELLS // 8))
    self.queues[number] = queue = Queue(
      number, given.gpu_id, given.ring_base_address, given.ring_size, given.write_pointer_address,
      given.read_pointer_address, slot, {part.address for part in parts}, copies=True,
    )  # fmt: skip
    if page := self.pages.get(given.gpu_id, 0):
      queue.doorbell = page + slot
    given.queue_id, given.doorbell_offset = number, DOORBELL_TYPE | given.gpu_id << 46 | slot

  def do_DESTROY_QUEUE(self, given: Any) -> None:
    if given.queue_id not in self.queues:
      raise Misuse(f"{given.queue_id} is no queue")
    del self.queues[given.queue_id]

  def do_CREATE_EVENT(self, given: Any) -> None:
    """A GPU's memory for events is given with the first event, or else KFD has memory of its own, which no GPU sees."""
    if given.event_type not in (0, 3, 8):
      raise Misuse("an event of another kind")
    if given.event_page_offset:
      if self.event_page or not self.interrupts:
        raise Refusal(errno.EINVAL)
      page = self._buffer(given.event_page_offset)
      if page.size != EVENT_PAGE or not page.flags & GTT:
        raise Misuse(f"{page.size} bytes, of flags {page.flags:#x}, for events")
      self.event_page = page.handle
    given.event_id = number = self.number()
    if given.event_type == 0:
      self.event_page = self.event_page or -1
      given.event_slot_index, given.event_trigger_data = number, number
    self.events[number] = Event(given.event_type, auto_reset=bool(given.auto_reset))

  def interrupt(self, gpu_id: int, mailbox: int, number: int) -> None:
    """A signal with a mailbox changed: the GPU writes there, and KFD sets the event."""
    page = self.buffers.get(self.event_page)
    if page is None or mailbox != page.address + 8 * number or number not in self.events:
      raise Misuse(f"{mailbox:#x} is no place for event {number}")
    self.buffer_at(gpu_id, mailbox, 8)
    ctypes.c_uint64.from_address(mailbox).value = number
    self.events[number].data = b""
    self.interrupted += 1

  def do_DESTROY_EVENT(self, given: Any) -> None:
    del self.events[given.event_id]

  def do_RESET_EVENT(self, given: Any) -> None:
    self.events[given.event_id].data = None

  def do_WAIT_EVENTS(self, given: Any) -> None:
    """The GPU works meanwhile."""
    before = sum(queue.taken for queue in self.queues.values())
    if not self.hangs:
      self.processor.run_all()
    waited = (EventData * given.num_events).from_address(given.events_ptr)
    given.wait_result = 1
    for data in waited:
      event = self.events[data.event_id]
      if event.data is not None:
        given.wait_result = 0
        if event.auto_reset:
          event.data = None
          continue
        if event.kind == 8:
          ctypes.memmove(ctypes.addressof(data), event.data, len(event.data))
        elif event.kind == 3:
          ctypes.memmove(ctypes.addressof(data.hw_exception_data), event.data, len(event.data))
    if given.wait_result and before == sum(queue.taken for queue in self.queues.values()):
      time.sleep(min(given.timeout, 10) * 1e-3)

  # *** what goes wrong ***

  def raise_exception(self, queue: Queue, exception: int) -> None:
    """Tell of an error of a queue, if this process asked for that: the mask goes where the first die's area for waves
    says, and the event is set."""
    if not self.runtime_enabled:
      return
    size = self.facts.stack + self.facts.groups
    headers = [SaveAreaHeader.from_address(queue.saved + die * size) for die in range(self.facts.dies)]
    for die, header in enumerate(headers):
      debug = (self.facts.dies - die) * size, self.facts.debugger * self.facts.dies
      if (header.debug_offset, header.debug_size) != debug:
        raise Misuse(f"the part for a debugger is {header.debug_offset, header.debug_size}, not {debug}")
      if (header.err_payload_addr, header.err_event_id) != (headers[0].err_payload_addr, headers[0].err_event_id):
        raise Misuse("the dies' errors go to several places")
    if headers[0].err_payload_addr and headers[0].err_event_id:
      self.buffer_at(queue.gpu_id, headers[0].err_payload_addr, 8)
      ctypes.c_uint64.from_address(headers[0].err_payload_addr).value = 1 << (exception - 1)
      self.events[headers[0].err_event_id].data = b""

  def raise_event(self, kind: int, data: bytes) -> None:
    """Tell all that wait for such."""
    for event in self.events.values():
      if event.kind == kind:
        event.data = data


def _memory(address: int, nbytes: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE) -> int:
  """Fresh memory there, or anywhere."""
  library = ctypes.CDLL(None, use_errno=True)
  size, pointer, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
  library.mmap.restype, library.mmap.argtypes = pointer, [pointer, size, number, number, number, ctypes.c_long]
  flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000 | (0x10 if address else 0)
  found = library.mmap(address, nbytes, protection, flags, -1, 0)
  if not found or found == ctypes.c_void_p(-1).value:
    raise OSError(ctypes.get_errno(), "mmap")
  return int(found)
