"""The AQL queue of a device: its memory, its packets, and what tells how far it is."""

from __future__ import annotations

import ctypes
import errno
from array import array
from collections.abc import Sequence

from tiny_runtime.hcq import Block, Command, Dispatch, Kind, Ring, Signal, Wait
from tiny_runtime_amd import aql, pm4
from tiny_runtime_amd.faults import Faults, queue_error, queue_exception
from tiny_runtime_amd.gpus import Gpu, SaveArea
from tiny_runtime_amd.kernels import AMDKernel
from tiny_runtime_amd.kfd import COMPUTE_AQL, KFD, MOST_PERCENT, PRIORITY, Apertures, KFDError, SaveAreaHeader
from tiny_runtime_amd.memory import Memories
from tiny_runtime_amd.recorder import Indirect
from tiny_runtime_amd.scratch import Scratch

PACKETS = 1 << 14
DOORBELLS = 8192
"""Bytes of the doorbells that a process has; the queue's is somewhere in them."""
TIMELINE, ERRORS, EXCEPTIONS = (aql.QUEUE_BYTES + n * aql.SIGNAL_BYTES for n in range(3))
"""Beside the queue's own structure: signals of submissions and of errors; and where KFD writes the mask of
exceptions."""
CLOCKS = 256
"""Packets of a timed submission that have signals of their own at first."""
MANY = 1 << 62
"""A signal begins with that, and loses one each time."""


class AQLQueue:
  """A queue whose packets the GPU's packet processor reads. Raises KFDError, OutOfMemory."""

  def __init__(self, memories: Memories, gpu: Gpu, faults: Faults) -> None:
    self.memories, self.kfd, self.gpu, self.faults = memories, memories.kfd, gpu, faults
    self.timed = 1
    """Packets of the last submission."""
    # KFD wants each of these to be an allocation of its own, of this very size
    self.structure = memories.allocate(4096, Kind.HOST)
    self.packets = memories.allocate(PACKETS * aql.PACKET, Kind.HOST)
    self.end_of_pipe = memories.allocate(gpu.end_of_pipe, Kind.DEVICE)
    area = gpu.save_area
    self.saved = memories.allocate((area.nbytes + area.debugger) * gpu.dies, Kind.HOST)
    self._make_clocks(CLOCKS)
    self._describe()
    self._name_errors(area)
    faults.look = self.check
    self.ring = Ring(self._bytes(self.packets), aql.PACKET, lambda: self.words[aql.READ // 8], self._make_room)
    made = self.kfd(
      "CREATE_QUEUE", ring_base_address=self.packets.address, ring_size=self.packets.nbytes, gpu_id=gpu.gpu_id,
      write_pointer_address=self.structure.address + aql.WRITTEN, queue_type=COMPUTE_AQL,
      read_pointer_address=self.structure.address + aql.READ, queue_percentage=MOST_PERCENT, queue_priority=PRIORITY,
      eop_buffer_address=self.end_of_pipe.address, eop_buffer_size=self.end_of_pipe.nbytes,
      ctx_save_restore_address=self.saved.address, ctx_save_restore_size=area.nbytes, ctl_stack_size=area.stack,
    )  # fmt: skip
    self.number = made.queue_id
    within = made.doorbell_offset % DOORBELLS
    try:
      self.doorbells = self.kfd.system.map(self.kfd.descriptor, DOORBELLS, made.doorbell_offset - within)
    except OSError as error:
      self.kfd("DESTROY_QUEUE", queue_id=self.number)
      raise KFDError(error.errno, f"KFD gives no doorbell: {error.strerror}") from error
    doorbell = (ctypes.c_char * 8).from_address(self.doorbells + within)
    self.doorbell = memoryview(doorbell).cast("B").cast("Q")
    self.words[aql.DOORBELL // 8] = self.doorbells + within

  @staticmethod
  def _bytes(block: Block) -> memoryview:
    assert block.view is not None
    return block.view

  def _describe(self) -> None:
    """Fill in what the packet processor reads of the queue."""
    view = self._bytes(self.structure)
    self.words, self.halves = view.cast("Q"), view.cast("I")
    words, halves = self.words, self.halves
    words[aql.BASE_ADDRESS // 8] = self.packets.address
    halves[aql.SIZE // 4] = PACKETS
    apertures = apertures_of(self.kfd, self.gpu)
    halves[aql.LOCAL_HIGH // 4] = apertures.lds_base >> 32
    halves[aql.PRIVATE_HIGH // 4] = apertures.scratch_base >> 32
    halves[aql.LAST_UNIT // 4] = self.gpu.units - 1
    halves[aql.LAST_WAVE // 4] = self.gpu.waves - 1
    halves[aql.READ_PLACE // 4] = aql.READ
    halves[aql.PROPERTIES // 4] = aql.POINTERS_64 | aql.PROFILED
    words[aql.INACTIVE // 8] = self.structure.address + ERRORS
    for signal, value in ((TIMELINE, MANY), (ERRORS, 0)):
      words[(signal + aql.KIND) // 8] = aql.USER
      words[(signal + aql.VALUE) // 8] = value
    words[(TIMELINE + aql.MAILBOX) // 8] = self.faults.mailbox
    halves[(TIMELINE + aql.EVENT) // 4] = self.faults.finished
    words[EXCEPTIONS // 8] = 0
    packets = self._bytes(self.packets).cast("I")
    for place in range(0, len(packets), aql.PACKET // 4):
      packets[place] = aql.INVALID

  def _make_clocks(self, count: int) -> None:
    """A signal for each packet of a timed submission but the last. The memory of those before goes with the queue."""
    self.clocks = self.memories.allocate(count * aql.SIGNAL_BYTES, Kind.HOST)
    self._bytes(self.clocks)[: count * aql.SIGNAL_BYTES] = aql.signal(MANY) * count

  def _name_errors(self, area: SaveArea) -> None:
    """Say in the area for saved waves, of each compute die, where KFD is to tell of errors. The parts for debuggers
    come behind those of all dies."""
    view, dies = self._bytes(self.saved), self.gpu.dies
    for die in range(dies):
      header = SaveAreaHeader(
        debug_offset=(dies - die) * area.nbytes, debug_size=area.debugger * dies,
        err_payload_addr=self.structure.address + EXCEPTIONS, err_event_id=self.faults.of_queue,
      )  # fmt: skip
      view[die * area.nbytes : die * area.nbytes + ctypes.sizeof(header)] = bytes(header)

  # *** packets ***

  def encode(self, command: Command | Indirect, first: bool, last: bool) -> bytes:
    """The packet of a command. The first of a submission sees what the host wrote, the last shows the host all and
    signals; between them the GPU's own caches will do, but where another GPU is waited for, or waits."""
    if isinstance(command, Signal):
      return aql.barrier(self._header(aql.BARRIER, first, True), command.fence)
    if isinstance(command, Wait):
      timeline = self.structure.address + TIMELINE if last else 0
      return aql.barrier(self._header(aql.BARRIER, True, last), timeline, command.fence)
    if isinstance(command, Indirect):
      timeline = self.structure.address + TIMELINE if last else 0
      named = pm4.indirect(command.address, command.words)
      return aql.indirect(self._header(aql.VENDOR, first, last), named, timeline)
    assert isinstance(command, Dispatch) and isinstance(command.kernel, AMDKernel)
    kernel = command.kernel
    kernel.check(command.global_size, command.local_size)
    descriptor = kernel.descriptor
    return aql.dispatch(
      self._header(aql.DISPATCH, first, last), kernel.address + descriptor.place, command.arguments,
      command.global_size, command.local_size, descriptor.private_bytes, descriptor.local_bytes,
      self.structure.address + TIMELINE if last else 0,
    )  # fmt: skip

  @staticmethod
  def _header(kind: int, first: bool, last: bool) -> int:
    return aql.header(kind, aql.SYSTEM if first else aql.AGENT, aql.SYSTEM if last else aql.AGENT)

  def nothing(self) -> bytearray:
    """A submission that does nothing, and is done."""
    return bytearray(aql.barrier(self._header(aql.BARRIER, True, True), self.structure.address + TIMELINE))

  def prepare(self, commands: Sequence[Command | Indirect]) -> bytearray:
    """Packets of a submission, one after the other. What comes after a wait sees all, as the first does; a packet has
    one signal, so where the last is another's there is one more."""
    last = len(commands) - 1
    packets = [
      self.encode(command, n == 0 or isinstance(commands[n - 1], Wait), n == last) for n, command in enumerate(commands)
    ]
    return bytearray().join([*packets, self.nothing()] if isinstance(commands[last], Signal) else packets)

  def replace(self, prepared: bytearray, index: int, command: Command) -> None:
    """Change one of them."""
    place = index * aql.PACKET
    packet = self.encode(command, index == 0, place + aql.PACKET == len(prepared))
    prepared[place : place + aql.PACKET] = packet

  def submit(self, prepared: bytearray, timed: bool) -> None:
    """Put packets into the ring, and ring. Nothing is taken before the first header, so that comes last; x86-64 shows
    stores to others in the order in which they were made."""
    self.timed = len(prepared) // aql.PACKET
    source, done = memoryview(self._with_clocks(prepared) if timed else prepared), 0
    for number, count in self.ring.pieces(len(prepared) // aql.PACKET):
      place, slots = done * aql.PACKET, self.ring.at(number, count)
      slots[4:] = source[place + 4 : place + count * aql.PACKET]
      first = int.from_bytes(source[place : place + 4], "little")
      if timed:  # it may follow one that signals, and so ends a submission for all that the processor knows
        first = first & ~aql.ACQUIRES | aql.SYSTEM << 9
      self.words[aql.WRITTEN // 8] = number + count
      slots[:4].cast("I")[0] = first
      self.doorbell[0] = number + count - 1
      done += count

  def _with_clocks(self, prepared: bytearray) -> bytearray:
    """The same packets, each with a signal, of which the packet processor writes begin and end."""
    count = len(prepared) // aql.PACKET - 1
    if count < 1:
      return prepared
    if count * aql.SIGNAL_BYTES > self.clocks.nbytes:
      self._make_clocks(2 * count)
    timed = bytearray(prepared)
    first, size = self.clocks.address, aql.SIGNAL_BYTES
    signals, headers = (
      memoryview(timed).cast("Q")[aql.SIGNAL_PLACE // 8 :: aql.PACKET // 8],
      memoryview(timed).cast("H"),
    )
    signals[:count] = memoryview(array("Q", range(first, first + count * size, size)))
    for place in range(0, count * aql.PACKET // 2, aql.PACKET // 2):
      headers[place] = headers[place] & ~aql.RELEASES | aql.SYSTEM << 11  # as every packet that signals
    return timed

  def _make_room(self) -> None:
    self.check()
    self.faults.pause(1e-4)

  # *** how far it is ***

  def completed(self) -> int:
    """Submissions that are done."""
    return MANY - self.words[(TIMELINE + aql.VALUE) // 8]

  def count_anew(self) -> None:
    """From 0, when all submissions so far are done."""
    self.words[(TIMELINE + aql.VALUE) // 8] = MANY

  def ticks(self) -> int:
    """Of the GPU's clock, from the beginning to the end of the last submission, which was timed."""
    begins, ends = self.spans()
    return max(0, ends[-1] - begins[0])

  def spans(self) -> tuple[list[int], list[int]]:
    """When each packet of the last submission, which was timed, began and ended: ticks of the GPU's clock."""
    words, count = self._bytes(self.clocks).cast("Q"), self.timed - 1
    begins, ends = (
      [*words[place // 8 :: aql.SIGNAL_BYTES // 8][:count].tolist(), self.words[(TIMELINE + place) // 8]]
      for place in (aql.START, aql.END)
    )
    return begins, ends

  def check(self) -> None:
    """Raises DeviceLost if the packet processor stopped for an error, or KFD tells of one."""
    if mask := self.words[EXCEPTIONS // 8]:
      raise queue_exception(mask)
    if code := self.words[(ERRORS + aql.VALUE) // 8]:
      raise queue_error(code & 0xFFFFFFFF)

  def use_scratch(self, block: Block, scratch: Scratch) -> None:
    """Have kernels use private memory. Nothing is under way."""
    self.words[aql.SCRATCH_PLACE // 8] = block.address
    self.words[aql.SCRATCH_BYTES // 8] = scratch.die_bytes
    self.halves[aql.SCRATCH_LANE // 4] = scratch.lane_bytes
    self.halves[aql.SCRATCH_SIZE // 4] = scratch.register

  def close(self) -> None:
    """Destroy it. Its memory may be given back then."""
    try:
      self.kfd("DESTROY_QUEUE", queue_id=self.number)
    except KFDError:
      pass  # as after a fault, when it is gone with all that the process had
    self.kfd.system.unmap(self.doorbells, DOORBELLS)


def apertures_of(kfd: KFD, gpu: Gpu) -> Apertures:
  """Where a GPU's kinds of memory are in the addresses of this process. Raises KFDError."""
  count = kfd("GET_PROCESS_APERTURES_NEW").num_of_nodes  # how many there are
  found = (Apertures * max(1, count))()
  kfd("GET_PROCESS_APERTURES_NEW", kfd_process_device_apertures_ptr=ctypes.addressof(found), num_of_nodes=count)
  apertures: Apertures
  for apertures in found:
    if apertures.gpu_id == gpu.gpu_id:
      return apertures
  raise KFDError(errno.ENODEV, f"KFD lists {count} GPUs of this process, none of them {gpu.gpu_id}")
