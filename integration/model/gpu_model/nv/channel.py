"""A channel: its ring, what it fetches, methods of the host, and the engines that get the rest.

A doorbell tells of work, and nothing is fetched before the model's GPUs are let work (`Model.pause`). Engines do what
they got in their own time: where no semaphore and no wait orders them, in the order that serves a program worst.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from gpu_model.nv.errors import Blocked, ChannelError, Misuse, MmuFault, Xid
from gpu_model.nv.memory import Space
from gpu_model.nv.tables import Record, bits, has_method, methods

if TYPE_CHECKING:
  from gpu_model.nv.engine import Engine
  from gpu_model.nv.model import Gpu, Model

SUBCHANNELS, COPY_SUBCHANNEL, GRAPHICS = 8, 4, 1
HOST_METHODS = 0x100
"""Where methods of engines begin."""
SEGMENT_BITS = 40
"""Of the address of what the ring names."""
MEMBAR, TLB_INVALIDATE = 5, 9


class Channel:
  """See the module."""

  def __init__(
    self, model: Model, gpu: Gpu, number: int, engine: int, space: Space, ring: int, entries: int, userd: int,
    notifier: int,
  ) -> None:  # fmt: skip
    self.model, self.gpu, self.number, self.engine, self.space = model, gpu, number, engine, space
    self.ring, self.entries, self.userd, self.notifier = ring, entries, userd, notifier
    self.token = (engine << 16 | number) ^ 0x20000
    self.classes: set[str] = set()
    """Of the objects that were made on it."""
    self.group: Any = None
    self.scheduled, self.dead = False, False
    self.fault: tuple[int, int] | None = None
    """Address and kind of the MMU's fault that ended it."""
    self.put, self.get = 0, 0
    self.seen: deque[tuple[int, bytes, int, bytes]] = deque()
    """Entries that a doorbell told of: the entry, and what it names, as they were then."""
    self.waiting: deque[tuple[int, int, int]] = deque()
    """Methods: subchannel, place, data."""
    self.state: dict[int, int] = {}
    self.bound: dict[int, str] = {}
    """Classes of subchannels."""
    self.engines: dict[str, Engine] = {}
    self.executed: deque[str] = deque(maxlen=4096)
    self.name = gpu.chip.classes[1]

  def busy(self) -> bool:
    """Whether it has something to do."""
    engines = any(engine.waiting for engine in self.engines.values())
    return not self.dead and bool(self.seen or self.waiting or engines)

  # *** the ring ***

  def rung(self) -> None:
    """The doorbell: there is more up to GP_PUT."""
    if self.dead:
      return
    if not self.scheduled:
      raise Misuse(f"the doorbell of channel {self.number} is rung, and the channel is not scheduled")
    put = Record("Nvc56fControl", self.userd)["GPPut"]
    if put >= self.entries:
      raise Misuse(f"GP_PUT is {put} in a ring of {self.entries} entries")
    read = self.model.store.read
    while self.put != put:
      entry, segment, size = b"", 0, 0
      try:
        entry = read(self.space.reach(self.ring + 8 * self.put, 8, what="a ring's entry"), 8)
        segment, size = self._segment(entry)
        data = read(self.space.reach(segment, size, what="a pushbuffer"), size)
      except MmuFault:
        data = b""  # told when it is fetched
      self.seen.append((self.put, entry, segment, data))
      self.put = (self.put + 1) % self.entries

  def _segment(self, entry: bytes) -> tuple[int, int]:
    """Address and bytes of what an entry names."""
    low, high = int.from_bytes(entry[:4], "little"), int.from_bytes(entry[4:], "little")
    size = high >> 10 & 0x1FFFFF
    if not size and high & 0xFF == 0 and low == 0:
      return 0, 0  # NOP
    if not size:
      raise Misuse(f"a ring's entry with opcode {high & 0xFF}, which the model does not know")
    if low & 3 or high & 0x100 or high >> 9 & 1 not in (0, 1):
      raise Misuse(f"a ring's entry {high:08x}{low:08x}: fetched if, or with bits that nothing is known of")
    return (high & 0xFF) << 32 | low & ~3, 4 * size

  def _fetch(self) -> None:
    """Take the next entry apart into methods."""
    number, before, _, data = self.seen.popleft()
    place = self.space.reach(self.ring + 8 * number, 8, what="a ring's entry")
    entry = ctypes.string_at(place, 8)
    if entry != before:
      raise Misuse(f"entry {number} of the ring was written anew before the GPU fetched it")
    segment, size = self._segment(entry)
    self.space.reach(segment, size, what="a pushbuffer")
    if ctypes.string_at(segment, size) != data:
      raise Misuse(f"the pushbuffer at {segment:#x} was changed before the GPU fetched it")
    self.get = (number + 1) % self.entries
    self._decode([int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)])

  def _decode(self, words: list[int]) -> None:
    """Method headers and their data."""
    at = 0
    while at < len(words):
      word = words[at]
      at += 1
      if word == 0:
        continue  # NVC56F_DMA_NOP
      kind, count, subchannel, place = word >> 29, word >> 16 & 0x1FFF, word >> 13 & 7, (word & 0xFFF) << 2
      if kind == 4:
        self.waiting.append((subchannel, place, count))
        continue
      if kind == 7:
        break  # the end of the segment
      if kind == 0 and word >> 16 & 3 == 0:
        kind, count, place = 1, word >> 18 & 0x7FF, word & 0x1FFC
      elif kind == 2 and word >> 16 & 3 == 0:
        kind, count, place = 3, word >> 18 & 0x7FF, word & 0x1FFC
      if kind not in (1, 3, 5):
        raise ChannelError(Xid.PUSHBUFFER, f"a method header {word:#010x}, which there is not")
      if at + count > len(words):
        raise ChannelError(Xid.PUSHBUFFER, f"{count} words of data in a segment that ends after {len(words) - at}")
      if word >> 12 & 1 and kind in (1, 3, 5) and word >> 29 in (1, 3, 5):
        raise ChannelError(Xid.PUSHBUFFER, f"bit 12 of the method header {word:#010x} is set")
      for number in range(count):
        step = {1: number, 3: 0, 5: min(number, 1)}[kind]
        self.waiting.append((subchannel, place + 4 * step, words[at + number]))
      at += count

  # *** running ***

  def run(self) -> bool:
    """Go on until there is nothing to do, or a semaphore is waited for; whether something was done."""
    done = False
    try:
      while not self.dead and (self.waiting or self.seen):
        if not self.waiting:
          self._fetch()
          done = True
          continue
        self._execute(*self.waiting[0])
        if self.dead:
          break
        self.waiting.popleft()
        done = True
    except Blocked:
      if self.advance():
        return True
    except ChannelError as error:
      self.fail(error)
    if not self.waiting and not self.seen:
      Record("Nvc56fControl", self.userd)["GPGet"] = self.get
    return done

  def _execute(self, subchannel: int, place: int, data: int) -> None:
    if place < HOST_METHODS and place:
      self._host(place, data)
      return
    if place == 0:
      self._bind(subchannel, data)
      return
    name = self.bound.get(subchannel)
    if name is None:
      raise ChannelError(Xid.PUSHBUFFER, f"method {place:#x} on subchannel {subchannel}, which has no object")
    if not has_method(name, place):
      raise ChannelError(Xid.CLASS_ERROR, f"class {name} has no method {place:#x}")
    self.engines[name].take(place, data)

  def _bind(self, subchannel: int, data: int) -> None:
    name = f"{data & 0xFFFF:x}"
    if data >> 16 or name not in self.classes:
      raise ChannelError(Xid.CLASS_ERROR, f"SET_OBJECT {data:#x}: no such object was made on this channel")
    is_copy = name == self.gpu.chip.classes[3]
    if self.engine == GRAPHICS and is_copy != (subchannel == COPY_SUBCHANNEL):
      raise ChannelError(Xid.CLASS_ERROR, f"class {name} on subchannel {subchannel}: {COPY_SUBCHANNEL} is for copies")
    if name not in self.engines:
      self.engines[name] = self.gpu.engine(self, name)
    self.bound[subchannel] = name

  def _host(self, place: int, data: int) -> None:
    known = methods(self.name).get(place)
    if known is None or not has_method(self.name, place):
      raise ChannelError(Xid.PUSHBUFFER, f"the host has no method {place:#x}")
    name, fields = known
    for field in fields.values():
      data_left = data & ~(((1 << field[1]) - 1) << field[0])
      if name in ("SEM_ADDR_LO", "SEM_ADDR_HI") and data_left:
        raise ChannelError(Xid.PUSHBUFFER, f"{name} {data:#x}: an address of more than {self.gpu.chip.host_bits} bits,"
                           " or at no multiple of 4")  # fmt: skip
    self.executed.append(name)
    if name == "SEM_EXECUTE":
      self._semaphore(data, fields)
    elif name == "WFI":
      self.drain()
    elif name == "MEM_OP_D":
      operation = bits(data, fields["OPERATION"])
      if operation not in (MEMBAR, TLB_INVALIDATE):
        raise Misuse(f"the model knows no MEM_OP {operation:#x}")
      if operation == TLB_INVALIDATE:
        raise ChannelError(Xid.PUSHBUFFER, "MEM_OP of the MMU, which a channel without privileges may not do")
      for engine in self.engines.values():
        engine.flushed = True
    elif name == "NON_STALL_INTERRUPT":
      self.model.interrupted(self.gpu)
    elif name not in ("SEM_ADDR_LO", "SEM_ADDR_HI", "SEM_PAYLOAD_LO", "SEM_PAYLOAD_HI", "NOP", "MEM_OP_A", "MEM_OP_B",
                      "MEM_OP_C"):  # fmt: skip
      raise Misuse(f"the model knows no method {name} of the host")
    self.state[place] = data

  def _value(self, name: str) -> int:
    place = next(place for place, (other, _) in methods(self.name).items() if other == name)
    if place not in self.state:
      raise Misuse(f"{name} was never set, and is used")
    return self.state[place]

  def _semaphore(self, data: int, fields: dict[str, list[int]]) -> None:
    address = self._value("SEM_ADDR_HI") << 32 | self._value("SEM_ADDR_LO")
    wide = bool(bits(data, fields["PAYLOAD_SIZE"]))
    payload = self._value("SEM_PAYLOAD_LO") | (self._value("SEM_PAYLOAD_HI") << 32 if wide else 0)
    operation, size = bits(data, fields["OPERATION"]), 8 if wide else 4
    stamped = bool(bits(data, fields["RELEASE_TIMESTAMP"]))
    used = sum(((1 << width) - 1) << low for low, width in fields.values())
    if data & ~used:
      raise ChannelError(Xid.PUSHBUFFER, f"SEM_EXECUTE {data:#x} has bits that no field has")
    if address % (16 if stamped and operation == 1 else size):
      raise ChannelError(Xid.PUSHBUFFER, f"a semaphore of {16 if stamped else size} bytes at {address:#x}")
    if operation == 1:
      if bits(data, fields["RELEASE_WFI"]):
        self.drain()
        if self.dead:
          return
      self.check_flushed()
      self.release(address, payload, size, stamped, "a semaphore's release")
      return
    if operation > 5 or stamped:
      raise Misuse(f"the model knows no operation {operation} of semaphores, and none but releases have a time")
    self.space.reach(address, size, what="a semaphore's acquire")
    found = int.from_bytes(ctypes.string_at(address, size), "little")
    half = 1 << 8 * size - 1
    held = (
      found == payload, False, found >= payload, (found - payload) % (2 * half) < half, found & payload != 0,
      (found | payload) ^ (2 * half - 1) != 0,
    )[operation]  # fmt: skip
    if not held:
      raise Blocked

  def release(self, address: int, payload: int, size: int, stamped: bool, what: str) -> None:
    """Write a semaphore, with the time behind it if it has one."""
    self.space.reach(address, 16 if stamped else size, True, what)
    if self.model.flip_payload:
      payload ^= self.model.flip_payload
    if stamped:
      ctypes.c_uint64.from_address(address + 8).value = time.perf_counter_ns()
      payload &= (1 << 8 * size) - 1
      size = 8
    ctypes.memmove(address, payload.to_bytes(size, "little"), size)

  def check_flushed(self) -> None:
    """Whoever sees a semaphore sees what was done before it."""
    for engine in self.engines.values():
      if engine.results and not engine.flushed:
        engine.results = False
        raise Misuse(f"a semaphore is released, and {engine.results_of} may not be seen by the host yet")

  def advance(self) -> bool:
    """Let the engines do some of what they got: the one that got the latest first."""
    engines = [engine for engine in self.engines.values() if engine.waiting]
    if not engines:
      return False
    latest = max(engines, key=lambda engine: engine.order())
    try:
      latest.drain()
    except ChannelError as error:
      self.fail(error)
    return True

  def drain(self) -> None:
    """Engines do all that they got."""
    while not self.dead and self.advance():
      pass

  def fail(self, error: ChannelError) -> None:
    """It ends, and with it all channels of its group. The host reads so in the notifiers."""
    self.model.wrong = str(error)
    self.model.xids.append((error.xid, str(error)))
    if isinstance(error, MmuFault):
      self.fault = error.address, error.kind
    others = [child.channel for child in self.group.children if child.channel is not None]
    for channel in others or [self]:
      channel.end(error.xid)

  def end(self, xid: Xid) -> None:
    """No more of it."""
    self.dead = True
    self.waiting.clear()
    self.seen.clear()
    for engine in self.engines.values():
      engine.waiting.clear()
    if self.notifier:
      now = time.perf_counter_ns()
      data = now.to_bytes(8, "little") + int(xid).to_bytes(4, "little")
      ctypes.memmove(self.notifier, data + self.engine.to_bytes(2, "little") + b"\xff\xff", 16)
