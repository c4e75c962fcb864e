"""Bytes of a thread trace ⇄ packets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiny_asm_amd.errors import TraceError
from tiny_asm_amd.traces.layouts import Kind, Layout, layout_of

_BLOCK = 1 << 16
_TOGETHER = 3
"""Doublings: 8 packets are one step of the loop that goes from packet to packet."""
_SHORT = 4
"""Cycles that TS_SHORT tells on top of its field."""
_CDNA_CYCLES = 4
"""Cycles of one step of the clock in packets of CDNA."""


class Packet(NamedTuple):
  """One packet: its kind, all its bits, its place in bits, and its time in cycles since the trace began."""

  kind: Kind
  value: int
  at: int = 0
  time: int = 0

  @property
  def name(self) -> str:
    return self.kind.name

  def __getattr__(self, name: str) -> int:
    if name not in self.kind.fields:
      raise AttributeError(f"{self.kind.name} has no field {name!r}, only {', '.join(self.kind.fields) or 'none'}")
    return self.kind.fields_of(self.value)[name]

  def __str__(self) -> str:
    fields = " ".join(f"{name}={value}" for name, value in self.kind.fields_of(self.value).items())
    return f"{self.time} {self.kind.name} {fields}".rstrip()


class Packets:
  """The packets of a trace, as columns: `kinds` (numbers in `layout.kinds`), `at` (bits), `times` (cycles since the
  trace began), and the lowest 64 bits of each in `low`. `rest`: bits at the end that are no whole packet."""

  def __init__(
    self, layout: Layout, kinds: NDArray[np.uint8], at: NDArray[np.int64], low: NDArray[np.uint64],
    high: dict[int, int], rest: int,
  ) -> None:  # fmt: skip
    self.layout, self.kinds, self.at, self.low, self.rest = layout, kinds, at, low, rest
    self._high = high
    """What is above 64 bits, by number of the packet."""
    self.times = self._clock()

  def __len__(self) -> int:
    return len(self.kinds)

  def __getitem__(self, number: int) -> Packet:
    n = range(len(self))[number]
    value = int(self.low[n]) | self._high.get(n, 0) << 64
    return Packet(self.layout.kinds[self.kinds[n]], value, int(self.at[n]), int(self.times[n]))

  def __iter__(self) -> Iterator[Packet]:
    return (self[n] for n in range(len(self)))

  def of(self, *names: str) -> Iterator[Packet]:
    """The packets of some kinds, in order."""
    numbers = [n for n, kind in enumerate(self.layout.kinds) if kind.name in names]
    return (self[int(n)] for n in np.flatnonzero(np.isin(self.kinds, numbers)))

  def field(self, name: str, number: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
    """A field of packets, 0 where their kind has none."""
    places = [kind.fields.get(name, (-1, 0)) for kind in self.layout.kinds]
    shifts = np.array([lowest for _, lowest in places], np.uint64)
    masks = np.array([(1 << min(highest - lowest + 1, 63)) - 1 for highest, lowest in places], np.uint64)
    kinds = self.kinds[number]
    found: NDArray[np.int64] = (self.low[number] >> shifts[kinds] & masks[kinds]).astype(np.int64)
    return found

  def counts(self) -> dict[str, int]:
    """How many there are of each kind that there is."""
    found = np.bincount(self.kinds, minlength=len(self.layout.kinds))
    return {kind.name: int(count) for kind, count in zip(self.layout.kinds, found) if count}

  def _is(self, name: str) -> NDArray[np.bool_]:
    return np.equal(self.kinds, list(self.layout.by_name).index(name))

  def _clock(self) -> NDArray[np.int64]:
    deltas = self.field("delta")
    if self.layout.name != "cdna":
      deltas[self._is("TS_SHORT")] += _SHORT
      step = self._is("TS_OR_MARK")
      step &= (self.field("real") == 0) | (self.field("played") == 1)
      deltas[step] = self.field("value")[step]
      for n, high in self._high.items():
        deltas[n] |= (high & 0x7F) << 56
      return np.cumsum(deltas)
    times = np.cumsum(deltas * _CDNA_CYCLES)
    # Where the clock of the packets ran over, TIMESTAMP tells the time again. The first is the head.
    marks = np.flatnonzero(self._is("TIMESTAMP"))[1:]
    if len(marks):
      told = self.field("time", marks)
      parts = np.diff(np.append(marks, len(times)))
      shift = told - told[0] + times[marks[0]] - times[marks]
      times[marks[0] :] += np.repeat(shift, parts)
    return times


def decode(data: bytes | memoryview) -> Packets:
  """The packets of a trace.

  Raises TraceError where the first packet is not that of a trace, and where bits are no packet.
  """
  layout = layout_of(data)
  unit = layout.unit
  padded = np.frombuffer(bytes(data) + bytes(16), np.uint8)
  kind_of = np.array(layout.by_low_byte, np.int16)
  sizes = np.array([kind.bits // unit for kind in layout.kinds] + [0], np.int32)  # the last is that of kind -1
  total = len(data) * 8 // unit
  places: list[NDArray[np.int64]] = []
  kinds: list[NDArray[np.int16]] = []
  position = 0
  for begin in range(0, total, _BLOCK):
    end = min(begin + _BLOCK, total)
    here = _low_bytes(padded, begin, end, unit)
    numbers = kind_of[here]
    found, place = _starts(sizes[numbers], position - begin, int(sizes.max()))
    if place < end - begin:
      bit = (begin + place) * unit
      raise TraceError(f"bit {bit} of the trace ({layout.name}): no packet begins with {here[place]:08b}")
    position = begin + place
    kinds.append(numbers[found])
    places.append(found.astype(np.int64) + begin)
  kind_numbers = np.concatenate(kinds).astype(np.uint8)
  at = np.concatenate(places) * unit
  rest = len(data) * 8 - total * unit
  if position > total:  # the last packet is cut off
    rest = len(data) * 8 - int(at[-1])
    kind_numbers, at = kind_numbers[:-1], at[:-1]
  return _packets(layout, padded, kind_numbers, at, rest)


def _starts(steps: NDArray[np.int32], first: int, longest: int) -> tuple[NDArray[np.int32], int]:
  """Where packets begin, from `first` on, and where they lead: behind the end, or to what is no packet. `steps` go from
  each place to the next packet: 0 where none begins, `longest` at most."""
  length = len(steps)
  once = np.arange(length + longest, dtype=np.int32)  # places behind the end lead to themselves
  once[:length] += steps
  often = once
  for _ in range(_TOGETHER):
    often = often[often]
  leads, found, place, last = often.data, list[int](), first, -1
  while place < length and place != last:
    found.append(place)
    place, last = leads[place], place
  rows = [np.array(found, np.int32)]
  while len(rows) < 1 << _TOGETHER:
    rows.append(once[rows[-1]])
  starts = np.stack(rows, 1).ravel()
  return starts[starts < length], place


def encode(packets: Iterable[Packet]) -> bytes:
  """The bytes of packets. RDNA's may end in the middle of a byte, which is then filled with a NOP."""
  value = position = 0
  parts: list[bytes] = []
  for packet in packets:
    value |= packet.value << position
    position += packet.kind.bits
    if position >= 1 << 12 and position % 8 == 0:
      parts.append(value.to_bytes(position // 8, "little"))
      value = position = 0
  parts.append(value.to_bytes(-(-position // 8), "little"))
  return b"".join(parts)


def _low_bytes(padded: NDArray[np.uint8], begin: int, end: int, unit: int) -> NDArray[np.uint8]:
  """The eight bits that begin at each unit."""
  if unit == 16:
    return padded[begin * 2 : end * 2 : 2]
  made = np.empty(end - begin, np.uint8)
  # blocks begin at whole bytes: they have an even number of half bytes
  low = padded[begin // 2 : begin // 2 + len(made[::2])]
  made[::2] = low
  following = padded[begin // 2 + 1 : begin // 2 + 1 + len(made[1::2])]
  made[1::2] = low[: len(following)] >> 4 | following << 4
  return made


def _packets(
  layout: Layout, padded: NDArray[np.uint8], kinds: NDArray[np.uint8], at: NDArray[np.int64], rest: int
) -> Packets:  # fmt: skip
  words = np.ndarray((len(padded) - 7,), "<u8", padded.tobytes(), strides=(1,))
  byte, odd = at >> 3, at & 7 != 0
  low = words[byte]
  low[odd] = low[odd] >> np.uint64(4) | padded[byte[odd] + 8].astype(np.uint64) << np.uint64(60)
  bits = np.array([kind.bits for kind in layout.kinds])[kinds]
  high = {}
  for n in np.flatnonzero(bits > 64):
    start = int(at[n])
    whole = int.from_bytes(padded[start // 8 : start // 8 + 10].tobytes(), "little") >> start % 8
    high[int(n)] = (whole & ((1 << int(bits[n])) - 1)) >> 64
  short = bits < 64
  low[short] &= (np.uint64(1) << bits[short].astype(np.uint64)) - np.uint64(1)
  return Packets(layout, kinds, at, low, high, rest)
