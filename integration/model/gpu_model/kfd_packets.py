"""The packet processor of the model: reads an AQL queue as the HSA specification says, checks all that it must not find
there, and runs kernels.

"HSA Platform System Architecture Specification" 1.2, 2.8 and 2.9; `amd_queue_t` and `amd_signal_t` after AMD's headers.
It shares no code with the plugin, except what takes code objects apart.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from gpu_model.kfd_objects import Blocked, Misuse, Queue, ticks
from gpu_model.kfd_sdma import Engine
from gpu_model.llvm_source import LLVMSource
from gpu_model.machine import Buffer, Options, Sizes, Wrong, launch
from tiny_runtime_amd.code_object import CodeObject

if TYPE_CHECKING:
  import numpy as np
  from numpy.typing import NDArray

  from gpu_model.amd_code.emulator import PrivateMemory
  from gpu_model.amd_traces import Run
  from gpu_model.kfd import Model
  from gpu_model.kfd_recording import Recorder

PACKET = 64
VENDOR, INVALID, DISPATCH, BARRIER = 0, 1, 2, 3
SYSTEM = 2
INSUFFICIENT_SCRATCH, INVALID_CODE = 1, 8
KernelPacket = struct.Struct("<HHHHHHIIIIIQQQQ")
BarrierPacket = struct.Struct("<HHI5QQQ")
IndirectPacket = struct.Struct("<HH4II8IQ")
Descriptor = struct.Struct("<IIIIq")
MEMORY_EVENT = struct.Struct("<IIIIQII")


class Stop(Exception):
  """The queue takes no more packets. `code`: the error that is told to its signal."""


class Processor:
  """Runs what queues have. `known`: the IR of kernels, by the bytes of their descriptors and code."""

  def __init__(self, model: Model) -> None:
    self.model = model
    self.random = Random(0)
    self.engine = Engine(model)
    self.known: dict[bytes, list[tuple[bytes, int, LLVMSource]]] = {}
    self.launched: deque[str] = deque(maxlen=64)
    self.private = 0
    """The most bytes of private memory that a launch had."""
    self.steps: list[Run] = []
    """The waves of the last launch that was recorded."""
    self.recorders: dict[int, Recorder] = {}
    """By GPU; of those that recorded something."""
    self.instructions = 0
    """Of waves, that machine code was run for."""

  def learn(self, code: bytes, entry: str, source: LLVMSource) -> None:
    """The IR that code was made of: it is run when a packet names that code."""
    image = CodeObject.parse(code)
    place = image.kernels[entry].place
    same = self.known.setdefault(image.image[place : place + 64], [])
    if not any(other == image.image for other, _, _ in same):
      same.append((image.image, place, source))

  def waiting(self, queue: Queue) -> bool:
    """Whether there is something that it was told of and did not take."""
    if not queue.doorbell or queue.stopped or queue.gpu_id in self.model.evicted:
      return False
    if queue.copies:
      return self.engine.waiting(queue)
    # a doorbell is 0 before it is rung, and after it was rung for the first packet
    return word(queue.doorbell) + 1 > queue.taken and (word(queue.doorbell) > 0 or word(queue.write_pointer) > 0)

  def run_all(self) -> None:
    """Take all packets that doorbells were rung for, and that need not wait for what nobody does."""
    queues = list(self.model.queues.values())
    self.random.shuffle(queues)
    before = -1
    while before != (before := sum(queue.taken for queue in queues)):
      for queue in queues:
        self._take_some(queue)

  def _take_some(self, queue: Queue) -> None:
    if not self.waiting(queue):
      return
    try:
      if queue.copies:
        self.engine.take(queue)
      else:
        self._take(queue, word(queue.doorbell) + 1)
    except Blocked:
      pass
    except Stop as stop:
      queue.stopped = True
      if stop.args:
        self._signal_error(queue, stop.args[0])
    except BaseException:
      queue.stopped = True  # and nobody need wait for it
      self.model.raise_event(3, struct.pack("<IIII", 0, 0, 1, queue.gpu_id))
      raise

  def _take(self, queue: Queue, end: int) -> None:
    """The packets up to this number. Those that need not wait for the ones before are taken in another order."""
    written, packets = word(queue.write_pointer), queue.ring_bytes // PACKET
    if written != end:
      raise Misuse(f"the doorbell was rung for packet {end - 1}, and {written} packets are written")
    if not 0 < end - queue.taken <= packets:
      raise Misuse(f"{end - queue.taken} packets are in a ring of {packets}")
    self._check_structure(queue)
    first, together = True, list[int]()
    for number in range(queue.taken, end):
      place = queue.ring + number % packets * PACKET
      if half(place) & 255 == INVALID:
        raise Misuse(f"the doorbell was rung for packet {end - 1}, but packet {number} is invalid")
      if first and queue.ended and half(place) >> 9 & 3 != SYSTEM:
        raise Misuse(f"packet {number} comes first, and does not see what the host wrote: header {half(place):#x}")
      if half(place) >> 8 & 1:
        self._run(queue, together)
        together = []
      first = False
      together.append(place)
    self._run(queue, together)

  def _run(self, queue: Queue, places: list[int]) -> None:
    for place in reversed(places):
      kind = half(place) & 255
      if kind == DISPATCH:
        self._dispatch(queue, place)
      elif kind == BARRIER:
        self._barrier(queue, place)
      elif kind == VENDOR:
        self._indirect(queue, place)
      else:
        raise Misuse(f"a packet of type {kind}")
      ctypes.c_uint16.from_address(place).value = INVALID
      queue.taken += 1
      ctypes.c_uint64.from_address(queue.read_pointer).value = queue.taken

  def _check_structure(self, queue: Queue) -> None:
    """`amd_queue_t`, which is where the read pointer says."""
    begin = queue.read_pointer - ctypes.c_uint32.from_address(queue.read_pointer + 8).value
    if begin % 64 or begin != queue.write_pointer - 0x38:
      raise Misuse(f"the queue's structure is at {begin:#x}, its write pointer at {queue.write_pointer:#x}")
    facts = {
      "base address": (word(begin + 8), queue.ring),
      "size": (word(begin + 0x18) & 0xFFFFFFFF, queue.ring_bytes // PACKET),
      "upper halves of apertures": (word(begin + 0x40), 2 << 16 << 32 | 1 << 16),
      "last unit and wave": (word(begin + 0x48), self.model.facts.last_wave << 32 | self.model.facts.last_unit),
      "properties": (word(begin + 0xB4 - 4) >> 32, 0b1010),
    }
    if wrong := [f"{name} is {got:#x}, not {wanted:#x}" for name, (got, wanted) in facts.items() if got != wanted]:
      raise Misuse("; ".join(wrong))

  def _barrier(self, queue: Queue, place: int) -> None:
    self.model.buffer_at(queue.gpu_id, place, PACKET)
    header, reserved, reserved2, *depends, reserved3, signal = BarrierPacket.unpack(read(place, PACKET))
    if reserved or reserved2 or reserved3 or any(depends[1:]) or header >> 13:
      raise Misuse("a barrier packet with reserved fields, or that waits for several signals")
    if depends[0]:
      self.model.buffer_at(queue.gpu_id, depends[0], 64)
      if depends[0] % 64 or word(depends[0]) != 1 or header >> 9 & 3 != SYSTEM:
        raise Misuse(f"{depends[0]:#x} is no signal, or what was written before it would not be seen: {header:#x}")
      if word(depends[0] + 8):
        raise Blocked
    self._complete(queue, header, signal, ticks())

  def _indirect(self, queue: Queue, place: int) -> None:
    """A packet of AMD's own, after ROCm's runtime: others of the kind PM4, by their address."""
    header, kind, jump, low, high, size, behind, *reserved, signal = IndirectPacket.unpack(read(place, PACKET))
    if header >> 13 or not header >> 8 & 1 or kind != 1 or behind != 10 or any(reserved):
      raise Misuse(f"a packet of AMD's own, header {header:#x}, kind {kind}, {behind} words behind it")
    if jump != 0xC0023F00 or low & 3 or size >> 20 != 8 or not size & 0xFFFFF:
      raise Misuse(f"a jump to packets of {jump:#x}, {low:#x}, {size:#x}")
    self.recorder(queue.gpu_id).execute(high << 32 | low, size & 0xFFFFF)
    self._complete(queue, header, signal, ticks())

  def recorder(self, gpu_id: int) -> Recorder:
    """What records launches of a GPU."""
    from gpu_model.kfd_recording import Recorder  # which needs tiny-asm-amd

    if gpu_id not in self.recorders:
      self.recorders[gpu_id] = Recorder(self.model, gpu_id)
    return self.recorders[gpu_id]

  def _dispatch(self, queue: Queue, place: int) -> None:
    header, setup, *rest = KernelPacket.unpack(read(place, PACKET))
    x, y, z, reserved, grid_x, grid_y, grid_z, private, local, code, arguments, reserved2, signal = rest
    threads, grid = (x, y, z), (grid_x, grid_y, grid_z)
    if setup != 3 or reserved or reserved2 or header >> 13:
      raise Misuse(f"a kernel packet with setup {setup}, or with reserved fields")
    if 0 in threads or x * y * z > 1024 or any(size % group or not size for size, group in zip(grid, threads)):
      raise Misuse(f"a grid of {grid} threads in workgroups of {threads}")
    image = self.model.buffer_at(queue.gpu_id, code, 64)
    if code % 64 or not image.executable:
      raise Misuse(f"code at {code:#x}, which is not aligned, or not executable")
    needs_local, needs_private, argument_bytes, _, _ = Descriptor.unpack(read(code, Descriptor.size))
    if local < needs_local or private < needs_private:
      raise Misuse(f"{local} bytes of shared memory and {private} of private, for {needs_local} and {needs_private}")
    if argument_bytes and (arguments % 16 or not self.model.buffer_at(queue.gpu_id, arguments, argument_bytes)):
      raise Misuse(f"arguments at {arguments:#x}")
    self.private = max(self.private, private)
    if private > self._scratch(queue):
      raise Stop(INSUFFICIENT_SCRATCH)
    source = None if self.model.machine_code else self._source(queue, code)
    if source is None and not self.model.machine_code:
      raise Stop(INVALID_CODE)
    if exception := self.model.raises:
      self.model.raises = 0
      self.model.raise_exception(queue, exception)
      raise Stop
    if (recorder := self.recorders.get(queue.gpu_id)) is not None:
      recorder.check_launch()
    begin = ticks()
    gx, gy, gz = (size // group for size, group in zip(grid, threads))
    if source is None:
      self._emulate(queue, code, arguments, local, private, (gx, gy, gz), threads)
    else:
      self._execute(queue, source, arguments, (gx, gy, gz), threads)
    self._complete(queue, header, signal, begin)

  def _scratch(self, queue: Queue) -> int:
    """Bytes of private memory that a thread can have."""
    begin = queue.read_pointer - 0x80
    register = ctypes.c_uint32.from_address(begin + 0x8C).value
    lane, size = ctypes.c_uint32.from_address(begin + 0xB0).value, word(begin + 0xA8)
    if lane:
      unit, engines, of_engine = self.model.facts.scratch
      counted, wave_bytes = register & 4095, (register >> 12) * unit
      waves = counted * engines if of_engine else counted
      if not waves or waves % engines:
        raise Misuse(f"{waves} waves with private memory, for {engines} shader engines")
      if wave_bytes < 64 * lane or waves * wave_bytes > size:
        raise Misuse(f"{waves} waves of a die with {wave_bytes} bytes each, in {size} bytes of private memory")
      # the size is a die's: the packet processors of the dies have places one after the other
      self.model.buffer_at(queue.gpu_id, word(begin + 0xA0), size * self.model.facts.dies)
      if waves * wave_bytes != size:
        raise Misuse(f"{size} bytes of private memory a die, of which its waves use {waves * wave_bytes}")
      if self.model.chip == "gfx90a":
        self._check_private_buffer(queue)
    return lane

  def _private(self, queue: Queue) -> PrivateMemory:
    """Private memory as the queue's structure says, for kernels that ask where it is (before gfx940)."""
    from gpu_model.amd_code.emulator import PrivateMemory

    words = struct.unpack("<8I", read(queue.read_pointer - 0x80 + 0x90, 32))
    register = ctypes.c_uint32.from_address(queue.read_pointer - 0x80 + 0x8C).value
    return PrivateMemory(words[:4], words[5] << 32 | words[4], (register >> 12) * 1024, max(1, register & 4095))

  def _check_private_buffer(self, queue: Queue) -> None:
    """A buffer's descriptor, after the MI200 manual's "Buffer Resource Descriptor": swizzled, 64 lanes that add their
    number, no stride; what else it can say has no meaning here."""
    found = self._private(queue)
    low, high, records, last = found.buffer
    if high << 32 | low != found.address | 1 << 63 or last != 3 << 21 | 1 << 23:
      raise Misuse(f"a buffer of private memory with words {low:#x}, {high:#x}, {last:#x}, at {found.address:#x}")
    if records != (used := found.wave_bytes * found.waves):
      raise Misuse(f"a buffer of private memory of {records} bytes, of which waves use {used}")

  def _source(self, queue: Queue, code: int) -> LLVMSource | None:
    """The IR of the code that is there now, every byte of it."""
    buffer = self.model.buffer_at(queue.gpu_id, code, 64)
    end = buffer.address + buffer.size
    for image, place, source in self.known.get(read(code, 64), ()):
      fits = buffer.address <= code - place and code - place + len(image) <= end
      if fits and read(code - place, len(image)) == image:
        return source
    return None

  def _execute(self, queue: Queue, source: LLVMSource, arguments: int, groups: Any, threads: Any) -> None:
    given, reachable = [], dict[int, Buffer]()
    for number, kind in enumerate(source.parameters):
      place = arguments + 8 * number
      if kind != "ptr":
        given.append(Buffer(place, 8, f"argument {number}", False))
        continue
      given.append(Buffer(word(place), 0, f"argument {number}", False))
      for buffer in self.model.buffers.values():
        if queue.gpu_id in buffer.mapped and buffer.address <= word(place) < buffer.address + buffer.size:
          reachable[buffer.address] = Buffer(buffer.address, buffer.size, f"memory {buffer.address:#x}")
    self.launched.append(source.name)
    # the machine of this model finds races by kernels of the other, gpu_model.amd, which are these
    options = Options(checking=False)
    try:
      launch(source.call, given, groups, threads, options, self.model.facts.wave, list(reachable.values()))
    except Wrong as error:
      self.model.wrong = str(error)
      self._fault(queue, word(arguments) // 4096 * 4096)

  def _emulate(
    self, queue: Queue, code: int, arguments: int, local: int, private: int, groups: Sizes, threads: Sizes
  ) -> None:
    """Run the bytes of a kernel, whose descriptor is at `code`."""
    from gpu_model.amd_code import emulator  # which needs tiny-asm-amd

    regions = [(b.address, b.address + b.size) for b in self.model.buffers.values() if queue.gpu_id in b.mapped]
    descriptor = read(code, PACKET)
    _, _, argument_bytes, _, distance = Descriptor.unpack_from(descriptor)
    self.launched.append(f"code at {code:#x}")
    given = emulator.Launch(
      self.model.chip, code + distance, arguments, argument_bytes, descriptor, local, private, groups, threads, regions,
      private=self._private(queue),
    )  # fmt: skip
    recorder = self.recorders.get(queue.gpu_id)
    steps: list[NDArray[np.uint64]] | None = [] if recorder is not None and recorder.recording else None
    try:
      self.instructions += emulator.run(given, steps=steps)
      if steps and recorder is not None:
        self._record(recorder, steps[0], code + distance, threads, emulator.lanes_of(self.model.chip, descriptor))
    except emulator.Unknown as error:
      raise Misuse(f"the emulator cannot run this code: {error}") from error
    except emulator.Fault as error:
      self.model.wrong = str(error)
      self._fault(queue, word(arguments) // 4096 * 4096)

  def _record(self, recorder: Recorder, steps: NDArray[np.uint64], entry: int, threads: Sizes, lanes: int) -> None:
    from gpu_model.amd_traces import Code, record, runs_of

    waves = -(-threads[0] * threads[1] * threads[2] // lanes)
    self.steps = runs_of(steps, waves)
    code = Code(lambda byte: read(entry + byte, 20), self.model.chip)
    recorder.launched(record(self.steps, code, recorder.shape, recorder.traced, 100))

  def _fault(self, queue: Queue, address: int) -> None:
    """What happens where a kernel goes astray: all queues of the process stop, and it is told."""
    self.model.evicted.add(queue.gpu_id)
    self.model.raise_event(8, MEMORY_EVENT.pack(1, 0, 0, 1, address, queue.gpu_id, 0))
    raise Stop

  def _complete(self, queue: Queue, header: int, signal: int, begin: int) -> None:
    queue.ended = bool(signal)
    if not signal:
      return
    self.model.buffer_at(queue.gpu_id, signal, 64)
    if signal % 64 or word(signal) != 1:
      raise Misuse(f"{signal:#x} is no signal")
    if header >> 11 & 3 != SYSTEM:
      raise Misuse(f"who waits for the signal would not see what was written: header {header:#x}")
    ctypes.c_uint64.from_address(signal + 0x20).value = begin
    ctypes.c_uint64.from_address(signal + 0x28).value = ticks()
    ctypes.c_int64.from_address(signal + 8).value -= 1
    if mailbox := word(signal + 0x10):
      self.model.interrupt(queue.gpu_id, mailbox, word(signal + 0x18) & 0xFFFFFFFF)

  def _signal_error(self, queue: Queue, code: int) -> None:
    begin = queue.read_pointer - 0x80
    ctypes.c_int64.from_address(word(begin + 0xC0) + 8).value = code


def read(address: int, size: int) -> bytes:
  """Bytes of memory."""
  return ctypes.string_at(address, size)


def word(address: int) -> int:
  """64 bits of memory."""
  return int(ctypes.c_uint64.from_address(address).value)


def half(address: int) -> int:
  """16 bits of memory."""
  return int(ctypes.c_uint16.from_address(address).value)
