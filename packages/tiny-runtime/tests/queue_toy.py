"""A device with hardware queues that is played in Python: what a driver fills in of `tiny_runtime.hcq`, on one page.

Its memory is one array of bytes, its addresses are places in that. Packets of 64 bytes go through a ring; the processor
takes one at a time while somebody waits, and interprets kernels as REF does.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tiny_runtime import Binary, Capabilities, Compiler, DeviceInfo, DeviceLost, OutOfMemory, Unavailable
from tiny_runtime.hcq import (
  Block,
  Command,
  Dispatch,
  Hardware,
  Kernel,
  Kind,
  QueueDevice,
  Ring,
  Transfer,
  Work,
)
from tiny_runtime.ref import BACKEND as REF
from tiny_runtime.ref.generate import generate
from tiny_runtime.ref.memory import open_view
from tiny_uop import ParamInfo, dtypes, parse_uop

PAGE, MEMORY, HOST = 4096, 32 << 20, 32 << 20
PACKET, SLOTS = 64, 16
LAST = 1 << 8
"""Bit of a packet's kind: a submission ends with it."""


@dataclass(slots=True, eq=False)
class ToyKernel(Kernel):
  """A kernel with what its arguments are."""

  params: tuple[ParamInfo, ...] = ()
  variables: int = 0


@dataclass
class ToyHardware:
  """See `tiny_runtime.hcq.Hardware`."""

  info: DeviceInfo
  argument_alignment: int = 64
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
    self.free = {Kind.DEVICE: [(PAGE, MEMORY)], Kind.HOST: [(MEMORY, MEMORY + HOST)]}
    self.view = memoryview(self.memory)
    block = self.allocate(PACKET * SLOTS, Kind.HOST)
    assert block.view is not None
    self.ring = Ring(block.view[: PACKET * SLOTS], PACKET, lambda: self.taken, lambda: self.pause(0))
    self.kernels: dict[int, ToyKernel] = {}
    self.spans = [0.0, 0.0]

  # *** memory ***

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """The first place that is large enough."""
    size, places = -(-nbytes // PAGE) * PAGE, self.free[Kind.HOST if kind is Kind.HOST else Kind.DEVICE]
    for number, (begin, end) in enumerate(places):
      if end - begin >= size:
        places[number] = (begin + size, end)
        block = Block(begin, size, kind, self.view[begin : begin + size] if kind is Kind.HOST else None)
        self.held.add(block)
        return block
    raise OutOfMemory(f"{self.info.name}: {nbytes} bytes asked for")

  def release(self, block: Block) -> None:
    """Joined with its neighbours."""
    self.held.remove(block)
    kind = Kind.HOST if block.kind is Kind.HOST else Kind.DEVICE
    self.view[block.address : block.address + block.nbytes] = b"\x5a" * block.nbytes
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
    else:
      numbers = (2 | last, command.target, command.source, command.nbytes)
    struct.pack_into("<4Q", prepared, index * PACKET, *numbers)

  def submit(self, prepared: bytearray, timed: bool) -> None:
    """See Hardware."""
    self.submissions += 1
    begin = 0
    for number, count in self.ring.pieces(len(prepared) // PACKET):
      self.ring.at(number, count)[:] = prepared[begin : begin + count * PACKET]
      begin += count * PACKET

  def completed(self) -> int:
    """See Hardware."""
    return self.done

  def pause(self, seconds: float) -> None:
    """A packet is done meanwhile."""
    self.pauses += 1
    if self.broken:
      raise DeviceLost(self.broken)
    if self.taken == self.ring.written or self.stuck:
      return
    kind, *numbers = struct.unpack_from("<4Q", self.ring.at(self.taken))
    self.spans = [time.perf_counter(), 0.0]
    if kind & 255 == 2:
      target, source, nbytes = numbers
      assert abs(target - source) >= nbytes > 0
      self.view[target : target + nbytes] = self.view[source : source + nbytes]
    else:
      self._execute(*numbers[:2])
    self.spans[1] = time.perf_counter()
    self.taken += 1
    self.done += kind // LAST

  def _execute(self, address: int, arguments: int) -> None:
    """A kernel, as it is in memory."""
    kernel = self.kernels[address]
    code = bytes(self.view[address : address + len(kernel.image)])
    assert code == kernel.image, "another's code is there, or none"
    words = struct.unpack_from(f"<{len(kernel.params) + kernel.variables}q", self.memory, arguments)
    views = []
    for param, begin in zip(kernel.params, words):
      window = self.view[begin : begin + param.size * param.dtype.itemsize]
      views.append(open_view(param.dtype, window))
    generate(parse_uop(code.decode())).call(*views, *words[len(views) :])

  def seconds(self) -> float:
    """See Hardware."""
    return max(1e-9, self.spans[1] - self.spans[0])

  def close(self, lost: bool) -> None:
    """See Hardware."""
    self.held.clear()


def toy_device() -> QueueDevice:
  """A new one."""
  names = frozenset(d.name for d in dtypes.all)
  hardware: Hardware = ToyHardware(DeviceInfo("TOY", "python", MEMORY, Capabilities(dtypes=names, graphs=True)))
  return QueueDevice(hardware)


class ToyBackend:
  """For the conformance kit."""

  api, ir = (1, 3), (1, 1)

  def probe(self) -> list[str]:
    """One."""
    return ["python"]

  def open(self, index: int) -> QueueDevice:
    """See Backend."""
    if index:
      raise Unavailable(f"there is no TOY:{index}", "Use TOY")
    return toy_device()

  def compiler(self, arch: str) -> Compiler:
    """That of REF."""
    return REF.compiler(arch)


BACKEND = ToyBackend()
