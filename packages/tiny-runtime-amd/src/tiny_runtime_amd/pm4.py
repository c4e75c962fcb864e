"""Packets of the kind PM4: what a queue's packet processor is told in words of 32 bits, by way of an indirect buffer.

Sources: Linux's `soc15d.h` and `nvd.h` (numbers and fields); PRED_EXEC after ROCm's aqlprofile, from memory. Their
number and order in memory are those of the words.
"""

from __future__ import annotations

from collections.abc import Sequence

Words = list[int]

PRED_EXEC, WAIT_REG_MEM, INDIRECT_BUFFER, COPY_DATA, EVENT_WRITE = 0x23, 0x3C, 0x3F, 0x40, 0x46
SET_SH_REG, SET_UCONFIG_REG = 0x76, 0x79
SH, UCONFIG = 0x2C00, 0xC000
"""Where the registers of each kind begin."""
CS_PARTIAL_FLUSH, COUNTERS_START, COUNTERS_STOP, COUNTERS_SAMPLE, TRACE_FINISH = 0x07, 0x17, 0x18, 0x1B, 0x37
"""Events."""
_PARTIAL_FLUSHES = 4
"""The index of an event that is one."""
_EQUAL, _NOT_EQUAL = 3, 4
_POLL = 4
"""Cycles between two looks at a register, in units of 16."""
_PERFORMANCE, _MEMORY, _CONFIRMED = 4, 5 << 8, 1 << 20
VALID = 1 << 23
"""Of the size of an indirect buffer."""


def packet(kind: int, *body: int) -> Words:
  """A packet of type 3."""
  return [3 << 30 | len(body) - 1 << 16 | kind << 8, *body]


def write(address: int, value: int) -> Words:
  """A register gets a value, by its address in words."""
  kind, first = (SET_UCONFIG_REG, UCONFIG) if address >= UCONFIG else (SET_SH_REG, SH)
  return packet(kind, address - first, value)


def event(number: int) -> Words:
  """An event for the pipeline."""
  return packet(EVENT_WRITE, number | (_PARTIAL_FLUSHES << 8 if number == CS_PARTIAL_FLUSH else 0))


def wait(address: int, mask: int, zero: bool) -> Words:
  """Until these bits of a register are 0, or are not all 0."""
  return packet(WAIT_REG_MEM, _EQUAL if zero else _NOT_EQUAL, address, 0, 0, mask, _POLL)


def copy(address: int, target: int) -> Words:
  """A register, to 4 bytes of memory."""
  return packet(COPY_DATA, _PERFORMANCE | _MEMORY | _CONFIRMED, address, 0, target & 0xFFFFFFFF, target >> 32)


def only_on(die: int, words: Sequence[int]) -> Words:
  """Packets that one of several compute dies is to take; the others leave them out."""
  return [*packet(PRED_EXEC, 1 << 24 + die | len(words)), *words]


def indirect(address: int, words: int) -> Words:
  """Packets that stand elsewhere."""
  return packet(INDIRECT_BUFFER, address & 0xFFFFFFFC, address >> 32, words | VALID)
