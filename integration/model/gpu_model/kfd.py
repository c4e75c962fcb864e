"""A model of KFD, the compute part of Linux's amdgpu: the system calls that tiny-runtime-amd makes, after
linux/kfd_ioctl.h and what the driver checks in Linux 6.12.

A machine with one GPU. Memory is memory of this process at the addresses that were asked for. What is put
into a queue happens while someone waits for events, and not before, so that whoever does not wait sees that. Misuse is
an error with its own text in `Model.misuse`, which tests look at.
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
from pathlib import Path
from typing import Any

from gpu_model.kfd_objects import GPU_ID, GPUS, Buffer, Event, Misuse, Queue, Refusal, ticks
from gpu_model.kfd_packets import Processor
from tiny_runtime_amd.gpus import Places
from tiny_runtime_amd.kfd import NUMBERS, Apertures, EventData
from tiny_runtime_amd.system import Linux

MEMORY = 64 << 20
NODE, MINOR = 1, 128
PAGE = 4096
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

  def __init__(self, memory: int = MEMORY, major: int = 1, gpu: str = "gfx942") -> None:
    self.memory, self.major, self.facts = memory, major, GPUS[gpu]
    self.misuse: list[str] = []
    self.lock = threading.RLock()
    self.linux = Linux()
    self.folder = tempfile.TemporaryDirectory(prefix="kfd-model-")
    root = Path(self.folder.name)
    self.places = Places(root / "nodes", root / "kfd", root / "dri", "x86_64")
    self._write_files()
    self.files: dict[int, str] = {}
    self.acquired = 0
    """The descriptor that the GPU's address space was acquired with."""
    self.reserved: dict[int, int] = {}
    self.buffers: dict[int, Buffer] = {}
    self.doorbells: dict[int, int] = {}
    self.queues: dict[int, Queue] = {}
    self.events: dict[int, Event] = {}
    self.numbers = 0
    self.evicted = False
    """After a fault: no queue of this process runs any more."""
    self.hangs = False
    """The GPU takes packets, and does nothing."""
    self.wrong = ""
    """What the machine saw a kernel do."""
    self.processor = Processor(self)
    self.requests: deque[str] = deque(maxlen=64)

  def _write_files(self) -> None:
    """What sysfs and /dev have: a processor, and the GPU."""
    facts = {**PROPERTIES, **self.facts.properties, "gfx_target_version": self.facts.version}
    for node, properties in ((0, {"cpu_cores_count": 8, "gfx_target_version": 0}), (NODE, facts)):
      folder = self.places.nodes / str(node)
      (folder / "mem_banks" / "0").mkdir(parents=True)
      (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
      (folder / "gpu_id").write_text(f"{GPU_ID if node == NODE else 0}\n")
      heap = f"heap_type {2 if node == NODE else 0}\nsize_in_bytes {self.memory}\nflags 0\nwidth 8192\n"
      (folder / "mem_banks" / "0" / "properties").write_text(heap)
    self.places.render.mkdir()
    for path in (self.places.kfd, self.places.render / f"renderD{MINOR}"):
      path.touch()

  @property
  def used(self) -> int:
    """Bytes of the GPU's memory that are allocated."""
    return sum(buffer.size for buffer in self.buffers.values() if buffer.flags & VRAM)

  def left(self) -> list[str]:
    """What nobody gave back."""
    held: dict[str, dict[int, Any]] = {
      "buffers": self.buffers, "queues": self.queues, "events": self.events, "doorbells": self.doorbells,
    }  # fmt: skip
    return [f"{len(things)} {name}" for name, things in held.items() if things]

  def number(self) -> int:
    """A new one."""
    self.numbers += 1
    return self.numbers

  def buffer_at(self, address: int, size: int = 1) -> Buffer:
    """The buffer with these bytes, which the GPU can reach. Raises Misuse."""
    for buffer in self.buffers.values():
      if buffer.address <= address and address + size <= buffer.address + buffer.size:
        if not buffer.mapped:
          raise Misuse(f"{address:#x} is in memory that is not mapped to the GPU")
        return buffer
    raise Misuse(f"{size} bytes at {address:#x} are in no buffer")

  # *** system calls ***

  def open(self, path: str) -> int:
    """See System."""
    if path not in (str(self.places.kfd), str(self.places.render / f"renderD{MINOR}")):
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

  def reserve(self, nbytes: int) -> int:
    """See System."""
    address = self.linux.reserve(nbytes)
    self.reserved[address] = nbytes
    return address

  def map(self, descriptor: int, nbytes: int, offset: int, address: int = 0) -> int:
    """See System: a buffer's memory, which is where it is already, or doorbells."""
    if self.files.get(descriptor) == str(self.places.kfd):
      if nbytes != DOORBELLS or offset != DOORBELL_TYPE | GPU_ID << 46:
        raise OSError(errno.EINVAL, "no doorbells are there")
      place = _memory(0, nbytes)
      self.doorbells[place] = nbytes
      for queue in self.queues.values():
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

  def _gpu(self, gpu_id: int) -> None:
    if gpu_id != GPU_ID:
      raise Refusal(errno.EINVAL)

  def do_ACQUIRE_VM(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    if self.files.get(given.drm_fd) != str(self.places.render / f"renderD{MINOR}"):
      raise Misuse("a descriptor that is no render file's")
    if self.acquired not in (0, given.drm_fd):
      raise Refusal(errno.EBUSY)
    self.acquired = given.drm_fd

  def do_GET_PROCESS_APERTURES_NEW(self, given: Any) -> None:
    if given.num_of_nodes:
      found = (Apertures * given.num_of_nodes).from_address(given.kfd_process_device_apertures_ptr)
      found[0].lds_base, found[0].scratch_base, found[0].gpu_id = 1 << 48, 2 << 48, GPU_ID
      found[0].gpuvm_base, found[0].gpuvm_limit = 0x4000, (1 << 47) - 1
    given.num_of_nodes = 1

  def do_GET_CLOCK_COUNTERS(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    given.gpu_clock_counter, given.system_clock_counter = ticks(), time.monotonic_ns()
    given.cpu_clock_counter, given.system_clock_freq = time.monotonic_ns(), 10**9

  def do_ALLOC_MEMORY_OF_GPU(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    if not self.acquired:
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
    if self.used + given.size > self.memory if given.flags & VRAM else gtt + given.size > SYSTEM_LIMIT:
      raise Refusal(errno.ENOMEM)
    _memory(given.va_addr, given.size)
    if given.flags & VRAM and given.size <= 1 << 20:
      ctypes.memset(given.va_addr, 0xA5, given.size)
    given.handle = GPU_ID << 32 | self.number()
    given.mmap_offset = given.handle << 12
    self.buffers[given.handle] = Buffer(given.handle, given.va_addr, given.size, given.flags)

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
    ids = (ctypes.c_uint32 * given.n_devices).from_address(given.device_ids_array_ptr)
    if list(ids) != [GPU_ID] or given.n_success:
      raise Misuse(f"memory is mapped to the GPUs {list(ids)}, after {given.n_success}")
    buffer = self._buffer(given.handle)
    if buffer.mapped == mapped:
      raise Misuse("memory that is mapped, is mapped, or the other way round")
    if not mapped and any(buffer.address in queue.places for queue in self.queues.values()):
      raise Refusal(errno.EBUSY)
    buffer.mapped, given.n_success = mapped, 1

  def do_MAP_MEMORY_TO_GPU(self, given: Any) -> None:
    self._mapping(given, True)

  def do_UNMAP_MEMORY_FROM_GPU(self, given: Any) -> None:
    self._mapping(given, False)

  def _exactly(self, address: int, size: int, what: str) -> Buffer:
    """A buffer that is all of something, as Linux 6.12 wants it."""
    buffer = self.buffer_at(address)
    if (buffer.address, buffer.size) != (address // PAGE * PAGE, size):
      raise Misuse(f"{what} of {size} bytes is in a buffer of {buffer.size}")
    return buffer

  def do_CREATE_QUEUE(self, given: Any) -> None:
    self._gpu(given.gpu_id)
    if given.queue_type != 2 or given.queue_percentage > 100 or given.queue_priority > 15:
      raise Misuse("another kind of queue, or too much of the GPU")
    if given.ring_size < 1024 or given.ring_size & given.ring_size - 1 or given.ring_base_address % 256:
      raise Misuse(f"a ring of {given.ring_size} bytes at {given.ring_base_address:#x}")
    sizes, facts = (given.eop_buffer_size, given.ctl_stack_size, given.ctx_save_restore_size), self.facts
    if sizes != (END_OF_PIPE, facts.stack, facts.stack + facts.groups):
      raise Misuse(f"sizes {sizes} of what a queue brings")
    area = (facts.stack + facts.groups + facts.debugger) * facts.dies
    parts = [
      self._exactly(given.ring_base_address, given.ring_size, "the ring"),
      self._exactly(given.eop_buffer_address, given.eop_buffer_size, "the buffer for ends of the pipe"),
      self._exactly(given.ctx_save_restore_address, area, "the area for waves"),
      self._exactly(given.write_pointer_address, PAGE, "the write pointer's page"),
      self._exactly(given.read_pointer_address, PAGE, "the read pointer's page"),
    ]
    number = self.number()
    slot = 8 * (number % (DOORBELLS // 8))
    places = {part.address for part in parts}
    self.queues[number] = Queue(
      number, given.ring_base_address, given.ring_size, given.write_pointer_address, given.read_pointer_address, slot,
      places,
    )  # fmt: skip
    given.queue_id, given.doorbell_offset = number, DOORBELL_TYPE | GPU_ID << 46 | slot

  def do_DESTROY_QUEUE(self, given: Any) -> None:
    if given.queue_id not in self.queues:
      raise Misuse(f"{given.queue_id} is no queue")
    del self.queues[given.queue_id]

  def do_CREATE_EVENT(self, given: Any) -> None:
    if given.event_type not in (3, 8):
      raise Misuse("an event of another kind")
    given.event_id = self.number()
    self.events[given.event_id] = Event(given.event_type)

  def do_DESTROY_EVENT(self, given: Any) -> None:
    del self.events[given.event_id]

  def do_RESET_EVENT(self, given: Any) -> None:
    self.events[given.event_id].data = None

  def do_WAIT_EVENTS(self, given: Any) -> None:
    """The GPU works meanwhile."""
    before = sum(queue.taken for queue in self.queues.values())
    if not self.evicted and not self.hangs:
      self.processor.run_all()
    waited = (EventData * given.num_events).from_address(given.events_ptr)
    given.wait_result = 1
    for data in waited:
      event = self.events[data.event_id]
      if event.data is not None:
        given.wait_result = 0
        if event.kind == 8:
          ctypes.memmove(ctypes.addressof(data), event.data, len(event.data))
        else:
          ctypes.memmove(ctypes.addressof(data.hw_exception_data), event.data, len(event.data))
    if given.wait_result and before == sum(queue.taken for queue in self.queues.values()):
      time.sleep(min(given.timeout, 10) * 1e-3)

  # *** what goes wrong ***

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
