"""A device with hardware queues that is played in Python: what a driver fills in of `tiny_runtime.hcq`, on one page.

Its memory is one array of bytes, its addresses are places in that, from `base` on: those of all devices are of one
space. Packets of 64 bytes go through a ring; the processor takes one at a time while somebody waits, and interprets
kernels as REF does. Another device's takes some only when this one has to wait for it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from weakref import WeakValueDictionary

from tiny_runtime import Binary, Capabilities, Compiler, DeviceInfo, DeviceLost, OutOfMemory, Unavailable
from tiny_runtime.hcq import (
  Block,
  Command,
  Dispatch,
  Kernel,
  Kind,
  PeerHardware,
  QueueDevice,
  Ring,
  Signal,
  Transfer,
  Wait,
  Work,
)
from tiny_runtime.ref import BACKEND as REF
from tiny_runtime.ref.generate import function_of
from tiny_runtime.ref.memory import open_view
from tiny_uop import ParamInfo, dtypes

PAGE, MEMORY, HOST = 4096, 32 << 20, 32 << 20
PACKET, SLOTS = 64, 16
LAST = 1 << 8
"""Bit of a packet's kind: a submission ends with it."""


@dataclass(slots=True, eq=False)
class ToyKernel(Kernel):
  """A kernel with what its arguments are."""

  params: tuple[ParamInfo, ...] = ()
  variables: int = 0


NUMBERS = count()
MACHINE: WeakValueDictionary[int, ToyHardware] = WeakValueDictionary()
"""The devices, by number. One begins at address number × SPAN."""
SPAN = MEMORY + HOST


@dataclass(eq=False)
class ToyHardware:
  """See `tiny_runtime.hcq.PeerHardware` and `TimedHardware`."""

  info: DeviceInfo
  argument_alignment: int = 64
  new_fence: bytes = bytes(8)
  done_fence: bytes = b"\1" * 8
  number: int = field(default_factory=lambda: next(NUMBERS))
  guests: set[tuple[int, int]] = field(default_factory=set)
  """Of blocks of other devices that it may use: where they begin and end."""
  alone: bool = False
  """There is no way to other devices."""
  memory: bytearray = field(default_factory=lambda: bytearray(b"\xa5") * (MEMORY + HOST))
  free: dict[Kind, list[tuple[int, int]]] = field(default_factory=dict)
  held: set[Block] = field(default_factory=set)
  done: int = 0
  broken: str = ""
  stuck: bool = False
  taken: int = 0
  submissions: int = 0
  pauses: int = 0

  def __post_init__(self) -> None:
    self.base = self.number * SPAN
    self.free = {
      Kind.DEVICE: [(self.base + PAGE, self.base + MEMORY)], Kind.HOST: [(self.base + MEMORY, self.base + SPAN)],
    }  # fmt: skip
    self.view = memoryview(self.memory)
    MACHINE[self.number] = self
    block = self.allocate(PACKET * SLOTS, Kind.HOST)
    assert block.view is not None
    self.ring = Ring(block.view[: PACKET * SLOTS], PACKET, lambda: self.taken, lambda: self.pause(0))
    self.kernels: dict[int, ToyKernel] = {}
    self.spans: list[tuple[float, float]] = []
    self.ended = True

  # *** memory ***

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """The first place that is large enough."""
    size, places = -(-nbytes // PAGE) * PAGE, self.free[Kind.HOST if kind is Kind.HOST else Kind.DEVICE]
    for number, (begin, end) in enumerate(places):
      if end - begin >= size:
        places[number] = (begin + size, end)
        block = Block(begin, size, kind, self.at(begin, size) if kind is Kind.HOST else None)
        self.held.add(block)
        return block
    raise OutOfMemory(f"{self.info.name}: {nbytes} bytes asked for")

  def at(self, address: int, nbytes: int) -> memoryview:
    """Bytes that this device can use: its own, and those of others that are shared with it."""
    owner = MACHINE[address // SPAN]
    if owner is not self:
      assert any(begin <= address and address + nbytes <= end for begin, end in self.guests), "it is not shared"
    return owner.view[address - owner.base : address - owner.base + nbytes]

  def reaches(self, source: ToyHardware) -> bool:
    """See PeerHardware."""
    return not self.alone and not source.alone

  def share(self, block: Block, source: ToyHardware) -> None:
    """See PeerHardware."""
    assert block in source.held
    if source is not self:
      self.guests.add((block.address, block.address + block.nbytes))

  def release(self, block: Block) -> None:
    """Joined with its neighbours."""
    self.held.remove(block)
    for other in MACHINE.values():
      other.guests.discard((block.address, block.address + block.nbytes))
    kind = Kind.HOST if block.kind is Kind.HOST else Kind.DEVICE
    self.at(block.address, block.nbytes)[:] = b"\x5a" * block.nbytes
    joined: list[tuple[int, int]] = []
    for begin, end in sorted([*self.free[kind], (block.address, block.address + block.nbytes)]):
      if joined and joined[-1][1] == begin:
        joined[-1] = (joined[-1][0], end)
      elif begin < end:
        joined.append((begin, end))
    self.free[kind] = joined

  # *** kernels ***

  def kernel(self, binary: Binary) -> ToyKernel:
    """Its code is text."""
    return ToyKernel(binary.entry, binary.code, 0, binary.params, len(binary.variables))

  def copies(self, target: int, source: int, nbytes: int) -> Sequence[Work]:
    """In two, so that there are several commands."""
    half = nbytes // 2
    pieces = [Transfer(target, source, half), Transfer(target + half, source + half, nbytes - half)]
    return [piece for piece in pieces if piece.nbytes]

  # *** the queue ***

  def prepare(self, commands: Sequence[Command]) -> bytearray:
    """Packets: kind, then numbers."""
    packets = bytearray(PACKET * len(commands))
    for number, command in enumerate(commands):
      self.replace(packets, number, command)
    return packets

  def replace(self, prepared: bytearray, index: int, command: Command) -> None:
    """See Hardware."""
    last = LAST if (index + 1) * PACKET == len(prepared) else 0
    if isinstance(command, Dispatch):
      assert isinstance(command.kernel, ToyKernel) and command.arguments % self.argument_alignment == 0
      self.kernels[command.kernel.address] = command.kernel
      if max(command.local_size) > 1:
        raise ValueError(f"kernel {command.kernel.name}: workgroups of {command.local_size} threads")
      numbers = (1 | last, command.kernel.address, command.arguments, 0)
    elif isinstance(command, Signal | Wait):
      numbers = ((3 if isinstance(command, Signal) else 4) | last, command.fence, 0, 0)
    else:
      numbers = (2 | last, command.target, command.source, command.nbytes)
    struct.pack_into("<4Q", prepared, index * PACKET, *numbers)

  def submit(self, prepared: bytearray, timed: bool) -> None:
    """See Hardware."""
    self.submissions += 1
    begin = 0
    for number, slots in self.ring.pieces(len(prepared) // PACKET):
      self.ring.at(number, slots)[:] = prepared[begin : begin + slots * PACKET]
      begin += slots * PACKET

  def completed(self) -> int:
    """See Hardware."""
    return self.done

  def pause(self, seconds: float) -> None:
    """A packet is done meanwhile."""
    self.pauses += 1
    if self.broken:
      raise DeviceLost(self.broken)
    if not self.step():
      for other in list(MACHINE.values()):
        if other is not self and other.step():
          break

  def step(self) -> bool:
    """Take a packet; False if there is none, or it has to wait."""
    if self.taken == self.ring.written or self.stuck or self.broken:
      return False
    kind, *numbers = struct.unpack_from("<4Q", self.ring.at(self.taken))
    begin = time.perf_counter()
    if kind & 255 == 2:
      target, source, nbytes = numbers
      assert abs(target - source) >= nbytes > 0
      self.at(target, nbytes)[:] = self.at(source, nbytes)
    elif kind & 255 == 3:
      self.at(numbers[0], 8)[:] = self.done_fence
    elif kind & 255 == 4:
      if self.at(numbers[0], 8) != self.done_fence:
        return False
    else:
      self._execute(*numbers[:2])
    self.spans = [*([] if self.ended else self.spans), (begin, time.perf_counter())]
    self.ended = bool(kind & LAST)
    self.taken += 1
    self.done += kind // LAST
    return True

  def _execute(self, address: int, arguments: int) -> None:
    """A kernel, as it is in memory."""
    kernel = self.kernels[address]
    code = bytes(self.at(address, len(kernel.image)))
    assert code == kernel.image, "another's code is there, or none"
    form = f"<{len(kernel.params) + kernel.variables}q"
    words = struct.unpack(form, self.at(arguments, struct.calcsize(form)))
    views = []
    for param, begin in zip(kernel.params, words):
      window = self.at(begin, param.size * param.dtype.itemsize)
      views.append(open_view(param.dtype, window))
    function_of(code).call(*views, *words[len(views) :])

  def seconds(self) -> float:
    """See Hardware."""
    return max(1e-9, self.spans[-1][1] - self.spans[0][0])

  def times(self) -> list[tuple[float, float]]:
    """See TimedHardware."""
    zero = self.spans[0][0]
    return [(begin - zero, end - zero) for begin, end in self.spans]

  def close(self, lost: bool) -> None:
    """See Hardware."""
    self.held.clear()


def toy_device() -> QueueDevice:
  """A new one."""
  names = frozenset(d.name for d in dtypes.all)
  record = Capabilities(dtypes=names, graphs=True, graph_times=True, peers=True, trims=True)
  hardware: PeerHardware = ToyHardware(DeviceInfo("TOY", "python", MEMORY, record))
  return QueueDevice(hardware)


class ToyBackend:
  """For the conformance kit."""

  api, ir = (1, 6), (1, 1)

  def probe(self) -> list[str]:
    """Two."""
    return ["python"] * 2

  def open(self, index: int) -> QueueDevice:
    """See Backend."""
    if not 0 <= index < 2:
      raise Unavailable(f"there is no TOY:{index}", "Use TOY")
    return toy_device()

  def compiler(self, arch: str) -> Compiler:
    """That of REF."""
    return REF.compiler(arch)


BACKEND = ToyBackend()
