"""The AQL queue of a device: its memory, its packets, and what tells how far it is."""

from __future__ import annotations

import ctypes
import errno
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiny_runtime.hcq import Block, Command, Dispatch, Kind, Ring, Signal, Transfer, Wait
from tiny_runtime_amd import aql, pm4, sdma
from tiny_runtime_amd.arch import Arch
from tiny_runtime_amd.faults import Faults, queue_error, queue_exception
from tiny_runtime_amd.gpus import Gpu, SaveArea
from tiny_runtime_amd.kernels import AMDKernel
from tiny_runtime_amd.kfd import COMPUTE_AQL, KFD, MOST_PERCENT, PRIORITY, Apertures, KFDError, SaveAreaHeader
from tiny_runtime_amd.memory import Memories
from tiny_runtime_amd.recorder import Indirect
from tiny_runtime_amd.scratch import Scratch
from tiny_runtime_amd.sdma import SDMAQueue

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


FENCES = 4096
"""Signals between this queue and a DMA engine at first. A copy takes two."""
TOGETHER = 256
"""Copies that are handed to the engine before packets of the queue that wait for them: it has room for more."""


@dataclass(slots=True)
class Mixed:
  """A submission with copies by a DMA engine: packets, the first one of each command, and its copies by the number of
  the command. Which signals they wait for is filled in each time it is submitted."""

  packets: bytearray
  places: list[int]
  transfers: dict[int, Transfer]


class Fences:
  """Signals that are used in turns: one is new again when the submission that used it is done."""

  def __init__(self, block: Block, count: int) -> None:
    self.block, self.count, self.used = block, count, 0
    self.last = [0] * count
    """The last submission that used each."""

  def take(self, number: int, wait: Callable[[int], None]) -> int:
    """The address of one for a submission."""
    place = self.used % self.count
    wait(self.last[place])
    self.last[place], self.used = number, self.used + 1
    assert self.block.view is not None
    self.block.view[place * aql.SIGNAL_BYTES : (place + 1) * aql.SIGNAL_BYTES] = aql.signal(1)
    return self.block.address + place * aql.SIGNAL_BYTES


class AQLQueue:
  """A queue whose packets the GPU's packet processor reads. Raises KFDError, OutOfMemory."""

  def __init__(self, memories: Memories, gpu: Gpu, faults: Faults) -> None:
    self.memories, self.kfd, self.gpu, self.faults = memories, memories.kfd, gpu, faults
    self.timed, self.places, self.copied = 1, list[int](), dict[int, tuple[int, int]]()
    """Packets of the last submission; if it has copies by a DMA engine, the first of each command, and where the times
    of copies are, by command."""
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
    self.engines: list[SDMAQueue] = []
    """For copies in order; and for those that need not wait, which would behind others."""
    self.count = 0
    """Submissions so far."""

  def use_engines(self, arch: Arch) -> None:
    """Have DMA engines for copies, two if Linux gives as many. Raises KFDError, OutOfMemory."""
    self.fences, self.arch = Fences(self.memories.allocate(FENCES * aql.SIGNAL_BYTES, Kind.HOST), FENCES), arch
    for _ in range(2):
      self.engines.append(SDMAQueue(self.memories, self.gpu, self._doorbell_at, self._make_room))

  def _doorbell_at(self, offset: int) -> memoryview:
    """The doorbell of another queue, which is among those of the process."""
    word = (ctypes.c_char * 8).from_address(self.doorbells + offset % DOORBELLS)
    return memoryview(word).cast("B").cast("Q")

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

  def prepare(self, commands: Sequence[Command | Indirect]) -> bytearray | Mixed:
    """Packets of a submission, one after the other. What comes after a wait sees all, as the first does; a packet has
    one signal, so where the last is another's there is one more."""
    last = len(commands) - 1
    packets, places = bytearray(), list[int]()
    for n, command in enumerate(commands):
      places.append(len(packets) // aql.PACKET)
      first = n == 0 or isinstance(commands[n - 1], Wait)
      packets += (
        self._around(command, first, n == last)
        if isinstance(command, Transfer)
        else self.encode(command, first, n == last)
      )
    if isinstance(commands[last], Signal):
      packets += self.nothing()
    transfers = {n: command for n, command in enumerate(commands) if isinstance(command, Transfer)}
    return Mixed(packets, places, transfers) if transfers else packets

  def _around(self, command: Transfer, first: bool, last: bool) -> bytes:
    """The packets of a copy by a DMA engine: one shows it what was written, and signals that, unless it need not wait;
    one waits for it."""
    after = aql.barrier(self._header(aql.BARRIER, True, last), self.structure.address + TIMELINE if last else 0)
    return after if command.ahead else aql.barrier(self._header(aql.BARRIER, first, True), 0) + after

  def replace(self, prepared: bytearray | Mixed, index: int, command: Command) -> None:
    """Change one of them. A copy stays one."""
    packets, place = prepared, index
    if isinstance(prepared, Mixed):
      packets, place = prepared.packets, prepared.places[index]
      if isinstance(command, Transfer):
        prepared.transfers[index] = command
        return
    assert isinstance(packets, bytearray)
    at = place * aql.PACKET
    packets[at : at + aql.PACKET] = self.encode(command, index == 0, at + aql.PACKET == len(packets))

  def submit(self, prepared: bytearray | Mixed, timed: bool) -> None:
    """Hand packets to the processor, and copies to the engine."""
    packets = prepared.packets if isinstance(prepared, Mixed) else prepared
    self.timed, self.copied, self.places = len(packets) // aql.PACKET, {}, []
    if timed:
      packets = self._with_clocks(packets)
    if isinstance(prepared, Mixed):
      self._submit_mixed(prepared, bytearray(packets), timed)
    else:
      self._put(memoryview(packets), timed)
    self.count += 1

  def _submit_mixed(self, prepared: Mixed, packets: bytearray, timed: bool) -> None:
    """The engine waits for packets before a copy, and packets behind it for the engine, by signals that this submission
    alone has. Some copies at a time: what either waits for is in a queue by then, so that there will be room."""
    self.places, number = prepared.places, self.count + 1
    if 2 * len(prepared.transfers) > self.fences.count:
      count = 2 * 2 * len(prepared.transfers)
      self.fences = Fences(self.memories.allocate(count * aql.SIGNAL_BYTES, Kind.HOST), count)
    items, done = list(prepared.transfers.items()), 0
    for begin in range(0, len(items), TOGETHER):
      for n, command in items[begin : begin + TOGETHER]:
        self.engines[-1 if command.ahead else 0].put(self._copy(packets, n, command, number, timed))
      more = items[begin + TOGETHER : begin + TOGETHER + 1]
      end = self.places[more[0][0]] if more else len(packets) // aql.PACKET
      self._put(memoryview(packets)[done * aql.PACKET : end * aql.PACKET], timed and not done)
      done = end

  def _copy(self, packets: bytearray, n: int, command: Transfer, number: int, timed: bool) -> list[sdma.Words]:
    """The engine's packets for a copy, and the signals in those of the queue. A timed one has its times in them."""
    ready, done = (self.fences.take(number, self._await) for _ in range(2))
    words, place = memoryview(packets).cast("Q"), self.places[n] * aql.PACKET // 8
    if not command.ahead:
      words[place + aql.SIGNAL_PLACE // 8] = ready
      place += aql.PACKET // 8
    words[place + aql.DEPENDS_PLACE // 8] = done
    self.copied[n] = done + aql.START, ready + aql.START
    copies = sdma.copies(self.arch, command.target, command.source, command.nbytes)
    begin, end = ([sdma.timestamp(at)] if timed else [] for at in self.copied[n])
    waits = [] if command.ahead else [sdma.poll(ready + aql.VALUE, 0)]
    return [*waits, *begin, *copies, *end, sdma.fence(self.arch, done + aql.VALUE, 0)]

  def _await(self, number: int) -> None:
    while self.completed() < number:
      self._make_room()

  def _put(self, source: memoryview, timed: bool) -> None:
    """Put packets into the ring, and ring. Nothing is taken before the first header, so that comes last; x86-64 shows
    stores to others in the order in which they were made."""
    done = 0
    for number, count in self.ring.pieces(len(source) // aql.PACKET):
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
    self.count = 0

  def ticks(self) -> int:
    """Of the GPU's clock, from the beginning to the end of the last submission, which was timed."""
    begins, ends = self.spans()
    return max(0, ends[-1] - begins[0])

  def spans(self) -> tuple[list[int], list[int]]:
    """When each packet of the last submission, which was timed, began and ended: ticks of the GPU's clock. Of one with
    copies by a DMA engine, each command."""
    words, count = self._bytes(self.clocks).cast("Q"), self.timed - 1
    begins, ends = (
      [*words[place // 8 :: aql.SIGNAL_BYTES // 8][:count].tolist(), self.words[(TIMELINE + place) // 8]]
      for place in (aql.START, aql.END)
    )
    if self.copied:
      begins, ends = ([times[place] for place in self.places] for times in (begins, ends))
      for n, at in self.copied.items():
        begins[n], ends[n] = (ctypes.c_uint64.from_address(place).value for place in at)
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
    first = aql.SCRATCH_BUFFER // 4
    self.halves[first : first + 4] = memoryview(array("I", scratch.words(block.address)))

  def close(self) -> None:
    """Destroy it. Its memory may be given back then."""
    for engine in self.engines:
      engine.close()
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
