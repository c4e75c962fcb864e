"""The code that traced waves ran: instructions by address, and where a kernel begins."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

from tiny_asm_amd.disassembler import decode
from tiny_asm_amd.errors import AsmError, TraceError
from tiny_asm_amd.instruction import Instruction

_CODE_OBJECT = b"\x7fELF\x02"
_SYMBOL_TABLES = (2, 11)
_UNTRACED = ("s_delay_alu", "s_wait_alu", "s_barrier_wait")
"""Instructions of which a trace has no packet."""
_SCALAR_MEMORY = ("s_load", "s_store", "s_buffer", "s_scratch", "s_atomic", "s_dcache", "s_memtime", "s_prefetch")
_IMMEDIATE = ("s_wait", "s_clause", "s_nop", "s_sleep", "s_inst_prefetch", "s_set", "s_round", "s_denorm", "s_icache")
_MEMORY = ("global", "flat", "scratch", "buffer", "tbuffer", "image")


@dataclass(frozen=True)
class Program:
  """Machine code of `chip`, and the address in it where a kernel begins. Addresses count from the code's first byte."""

  chip: str
  code: bytes
  entry: int = 0
  lanes: int = 0
  """Of a wave, where the file says it."""

  @staticmethod
  def of(elf: bytes, chip: str, kernel: str | None = None) -> Program:
    """The code of a code object and where a kernel begins: the first where none is named, and the code's first byte
    where the file names no kernels. Raises TraceError where the file has no code, or no such kernel."""
    try:
      return _read(elf, chip, kernel)
    except (struct.error, IndexError, ValueError) as error:
      if isinstance(error, TraceError):
        raise
      raise TraceError(f"this is no code object (64-bit little-endian ELF): {error}") from None

  @cached_property
  def _instructions(self) -> dict[int, Instruction | None]:
    return {}

  def at(self, address: int) -> Instruction | None:
    """The instruction at an address, None where none is."""
    known = self._instructions
    if address not in known:
      try:
        known[address] = decode(self.code, self.chip, address, self.lanes) if 0 <= address < len(self.code) else None
      except AsmError:
        known[address] = None
    return known[address]


def class_of(instruction: Instruction) -> str:
  """The class of an instruction, of those that a trace tells apart; "" where a trace has no packet of it."""
  name = instruction.mnemonic
  first = name.split("_")[0]
  if name.startswith(_UNTRACED):
    return ""
  if first in _MEMORY:
    return "memory"
  if first != "s":
    return "local memory" if first == "ds" else "vector"
  for found, starts in (
    ("scalar memory", _SCALAR_MEMORY), ("branch", ("s_branch", "s_cbranch")), ("message", ("s_sendmsg",)),
    ("barrier", ("s_barrier",)), ("end", ("s_endpgm",)), ("immediate", _IMMEDIATE),
  ):  # fmt: skip
    if name.startswith(starts):
      return found
  return "scalar"


def target_of(address: int, branch: Instruction) -> int:
  """Where a branch with a distance in words goes."""
  distance = int.from_bytes(bytes(branch)[:2], "little", signed=True)
  return address + branch.size + 4 * distance


def _read(elf: bytes, chip: str, kernel: str | None) -> Program:
  if elf[:5] != _CODE_OBJECT:
    raise TraceError(
      f"this is no code object: expected an ELF file that begins with {_CODE_OBJECT!r}, found {elf[:5]!r}"
    )
  (table,) = struct.unpack_from("<Q", elf, 40)
  size, count, names = struct.unpack_from("<HHH", elf, 58)
  sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + (size or 64) * n) for n in range(count)]

  def text(start: int) -> str:
    return elf[start : elf.index(0, start)].decode("utf-8", "replace")

  named = {text(sections[names][4] + section[0]): section for section in sections}
  if ".text" not in named:
    raise TraceError(f"the code object has no section .text, only {', '.join(filter(None, named)) or 'none'}")
  _, _, _, address, place, length, *_ = named[".text"]
  if place + length > len(elf):
    raise TraceError(f"the code ends at byte {place + length}, behind the file's end ({len(elf)} bytes)")
  entries = {}
  for section in sections:
    if section[1] in _SYMBOL_TABLES and section[6] < count:
      for at in range(section[4], min(section[4] + section[5], len(elf) - 23), 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
        symbol = text(sections[section[6]][4] + name)
        if symbol.endswith(".kd"):
          entries[symbol[:-3]] = value
  if kernel is not None and kernel not in entries:
    raise TraceError(f"the code object has no kernel {kernel!r}, only {', '.join(entries) or 'none'}")
  if not entries:
    return Program(chip, elf[place : place + length])
  descriptor = entries[kernel] if kernel is not None else next(iter(entries.values()))
  for section in sections:
    if section[3] <= descriptor < section[3] + section[5]:
      (distance,) = struct.unpack_from("<q", elf, section[4] + descriptor - section[3] + 16)
      (properties,) = struct.unpack_from("<H", elf, section[4] + descriptor - section[3] + 56)
      lanes = 32 if properties >> 10 & 1 else 64
      return Program(chip, elf[place : place + length], descriptor + distance - address, lanes)
  raise TraceError(f"the descriptor of the kernel, at address {descriptor:#x}, is in no section")
