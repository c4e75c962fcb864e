"""What the packets of a thread trace are, by layout: patterns of their lowest bits, sizes and fields.

Two sources: the names and bits of `SQ_THREAD_TRACE_WORD_*` in the register headers of AMD's Linux driver (CDNA, whose
layout is that of GCN), and recordings of RDNA 3, RDNA 4 and CDNA 4 GPUs, against which the tests hold what is here.
Bits without a name below are not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property

from tiny_asm_amd.errors import TraceError


@dataclass(frozen=True)
class Kind:
  """A kind of packets. `pattern` is what the lowest bits are; `bits` the size; fields are (highest bit, lowest bit)."""

  name: str
  pattern: str
  bits: int
  fields: dict[str, tuple[int, int]] = field(hash=False)

  def fields_of(self, value: int) -> dict[str, int]:
    """The fields of a packet."""
    return {name: value >> low & ((1 << (high - low + 1)) - 1) for name, (high, low) in self.fields.items()}

  def packed(self, **values: int) -> int:
    """A packet of fields; those not named are 0. Raises TraceError for a field that there is not or a value that does
    not fit."""
    packet = int(self.pattern, 2)
    for name, value in values.items():
      if name not in self.fields:
        raise TraceError(f"{self.name} has no field {name!r}, only {', '.join(self.fields) or 'none'}")
      high, low = self.fields[name]
      if not 0 <= value < 1 << (high - low + 1):
        raise TraceError(f"{self.name}: {name} = {value} does not fit {high - low + 1} bits")
      packet |= value << low
    return packet


@dataclass(frozen=True)
class Layout:
  """All kinds of packets of a layout. Sizes are multiples of `unit` bits; `code` is what the first packet says."""

  name: str
  code: int
  unit: int
  kinds: tuple[Kind, ...]
  operations: dict[int, str] = field(hash=False)
  """What the codes of INST packets stand for, as far as recordings show it: a class of instructions, or `other` where
  the instruction is of another SIMD."""

  @cached_property
  def by_name(self) -> dict[str, Kind]:
    return {kind.name: kind for kind in self.kinds}

  @cached_property
  def by_low_byte(self) -> list[int]:
    """The number of the kind for each lowest byte of a packet, or -1: of patterns that fit, the longest."""
    found = [-1] * 256
    for byte in range(256):
      fitting = [
        (len(kind.pattern), n) for n, kind in enumerate(self.kinds)
        if byte & ((1 << len(kind.pattern)) - 1) == int(kind.pattern, 2)
      ]  # fmt: skip
      found[byte] = max(fitting)[1] if fitting else -1
    return found


_RDNA3 = """
VALUINST        011      12 delta=5:3 wave=11:7
INST            010      20 delta=6:4 wave=12:8 operation=19:13
VMEMEXEC        1111      8 delta=5:4 source=7:6
ALUEXEC         1110      8 delta=5:4 source=7:6
IMMEDIATE       1101     12 delta=6:4 wave=11:7
IMMEDIATE_MASK  00100    24 delta=7:5 waves=23:8
WAVERDY         10100    24 delta=7:5 waves=23:8
WAVESTART       01100    32 delta=6:5 array=7:7 simd=9:8 unit=12:10 wave=17:13 id=31:18
WAVEEND         10101    20 delta=7:5 array=8:8 simd=10:9 unit=13:11 wave=19:15
WAVEALLOC       00101    20 delta=7:5
PERF            10110    28 delta=7:5
TS_SHORT        1000      8 delta=7:4
TS_OR_MARK      0000001  48 played=8:8 real=9:9 value=47:12
TS_LONG         0100001  72 delta=71:8
TS_MEDIUM       00110    52 delta=51:5
TS_MIDDLE       11100    48 delta=47:5
TS_WAVE_STATE   1010001  24 delta=15:7 state=23:16
EVENT           01100001 24 delta=10:8 event=23:11
EVENT_BIG       11100001 32 delta=10:8 event=31:11
REG             1001     64 delta=6:4 slot=9:7 address=31:10 data=63:32
SNAPSHOT        1110001  64 delta=9:7 data=63:10
UTILCTR         0110001  48 delta=8:7 data=47:9
LAYOUT          0010001  64 layout=12:7 data=63:13
NOP             0000      4
"""
"""The markers of real time are TS_OR_MARK with `real` and without `played`."""

_RDNA4 = """
INST            010      20 delta=5:3 wave=11:7 operation=19:12
WAVESTART       01100    32 delta=6:5 array=7:7 simd=9:8 unit=12:10 wave=19:15 id=31:20
WAVEALLOC       00101    24 delta=7:5
PERF            10110    32 delta=7:5
TS_OR_MARK      0000001  64 real=7:7 played=8:8 value=63:12
TS_MEDIUM       00110    56 delta=55:5
TS_MIDDLE       11100    40 delta=39:5
"""
"""What differs from RDNA 3."""

_CDNA = """
MISC        0000 16 delta=11:4 array=12:12 kind=15:13
TIMESTAMP   0001 64 layout=12:7 time=63:16
REG         0010 64 delta=4:4 address=31:5 data=63:32
WAVESTART   0011 32 delta=4:4 array=5:5 unit=9:6 wave=13:10 simd=15:14 dispatcher=20:16 threads=28:22 group=31:29
WAVEALLOC   0100 16 delta=4:4 array=5:5 unit=9:6 wave=13:10 simd=15:14
REG_CS      0101 48 delta=4:4 address=15:5 data=47:16
WAVEEND     0110 16 delta=4:4 array=5:5 unit=9:6 wave=13:10 simd=15:14
EVENT       0111 16 delta=4:4 array=5:5 stage=8:6 event=15:10
EVENT_CS    1000 16 delta=4:4 array=5:5 stage=8:6 event=15:10
EVENT_GFX   1001 16 delta=4:4 array=5:5 stage=8:6 event=15:10
INST        1010 16 delta=4:4 wave=8:5 simd=10:9 operation=15:11
INST_PC     1011 64 delta=4:4 wave=8:5 simd=10:9 pc=63:16
USERDATA    1100 48 delta=4:4 array=5:5 unit=9:6 data=47:16
ISSUE       1101 32 delta=4:4 simd=6:5 waves=27:8
PERF        1110 64 delta=4:4 array=5:5 unit=9:6 bank=11:10 data=63:12
REG_CS_PRIV 1111 48 delta=4:4 address=15:5 data=47:16
"""
"""ISSUE has two bits for each of ten waves, which are of `ISSUED`."""

ISSUED = ("", "stalled", "issued", "immediate")

_RDNA3_OPERATIONS = {
  0x00: "scalar", 0x01: "scalar memory", 0x03: "branch taken", 0x04: "branch not taken", 0x09: "message",
  0x0D: "vector", 0x13: "barrier", 0x21: "memory", 0x22: "memory", 0x24: "memory", 0x29: "local memory",
  0x2B: "local memory", 0x50: "other", 0x51: "other", 0x5B: "other", 0x73: "vector",
}  # fmt: skip
_RDNA4_OPERATIONS = {
  **{code: name for code, name in _RDNA3_OPERATIONS.items() if code not in (0x13, 0x5B, 0x73)},
  0x7A: "barrier", 0xBD: "other",
}  # fmt: skip
_CDNA_OPERATIONS = {
  0: "scalar memory", 1: "scalar", 4: "memory", 5: "vector", 6: "local memory", 12: "branch taken",
  13: "branch not taken", 14: "memory", 15: "end", 18: "vector",
}  # fmt: skip
"""12, of which there is no recording, after AMD's list of GCN's types of instructions, which the others agree with."""


@cache
def layout(name: str) -> Layout:
  """The layout `rdna3`, `rdna4` or `cdna`."""
  if name == "cdna":
    return Layout(name, 0, 16, tuple(_kinds(_CDNA).values()), _CDNA_OPERATIONS)
  rdna4 = name == "rdna4"
  kinds = _kinds(_RDNA3) | (_kinds(_RDNA4) if rdna4 else {})
  return Layout(name, 4 if rdna4 else 3, 4, tuple(kinds.values()), _RDNA4_OPERATIONS if rdna4 else _RDNA3_OPERATIONS)


def layout_of(data: bytes | memoryview) -> Layout:
  """The layout that a trace has by its first packet. Raises TraceError where it begins with none."""
  first = int.from_bytes(data[:2], "little")
  if len(data) < 8 or first & 0x7F != 0b0010001:
    raise TraceError(
      f"this is no thread trace: expected a first packet that tells the layout (lowest bits 0010001), found "
      f"{bytes(data[:8]).hex() or 'nothing'}"
    )
  return layout({3: "rdna3", 4: "rdna4"}.get(first >> 7 & 63, "cdna"))


def _kinds(text: str) -> dict[str, Kind]:
  found = {}
  for line in text.strip().splitlines():
    name, pattern, bits, *fields = line.split()
    places = {}
    for entry in fields:
      field_name, _, place = entry.partition("=")
      high, _, low = place.partition(":")
      places[field_name] = (int(high), int(low))
    found[name] = Kind(name, pattern, int(bits), places)
  return found
