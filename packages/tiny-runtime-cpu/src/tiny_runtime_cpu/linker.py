"""Links an object file into this process, where it is of the kind that LLVM writes for our kernels: ELF for x86-64.

LLVM's own linker can do that and everything else, but to load LLVM takes longer than a program that finds its kernels
in the cache runs otherwise. So this does what kernels need and leaves the rest to it (`NotForUs`). The sections that a
program has in memory are laid out in one mapping, then come a slot for each symbol of the process that is used and, in
the last pages, what is writable. Unwind tables are left out: no exception passes through a kernel.

Source: the System V ABI, "Object Files", and its AMD64 supplement, "Relocation".
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from typing import NamedTuple

from tiny_runtime import system
from tiny_runtime.llvm import LLVMError
from tiny_runtime_cpu.system import OBJECTS_ARE_ELF

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
MAGIC, RELOCATABLE, X86_64 = b"\x7fELF\x02\x01\x01", 1, 62
PROGBITS, SYMTAB, RELA, NOBITS = 1, 2, 4, 8
ARRAYS = (14, 15, 16)
"""Types of sections with functions that run when a program is loaded, or ends."""
WRITE, ALLOC, TLS = 1, 2, 0x400
UNDEFINED, WEAK = 0, 2

R_64, R_PC32, R_PLT32, R_GOTPCREL, R_PC64, R_GOTPCRELX, R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
OF_SLOT = (R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX)
"""Relocations that want a place where the address stands, not the address."""

SLOT = struct.Struct("<Q6s2x")
"""For a symbol of the process: its address, and `jmp *-14(%rip)`, which goes there from any distance."""
JUMP = b"\xff\x25\xf2\xff\xff\xff"


class NotForUs(Exception):
  """A file that LLVM's linker has to look at."""


class Section(NamedTuple):
  """A section header."""

  name: int
  type: int
  flags: int
  address: int
  offset: int
  size: int
  link: int
  info: int
  align: int
  entry_size: int


def links_here() -> bool:
  """Whether this is a system of the kind that `Linked` is for."""
  return OBJECTS_ARE_ELF and system.machine() == "x86_64" and sys.maxsize > 1 << 32


class Linked:
  """An object file in executable memory, which is given back when this object goes."""

  def __init__(self, code: bytes) -> None:
    """Raises NotForUs, or LLVMError for a symbol that the process lacks."""
    try:
      self._sections, self._table, self._names = _parse(code)
      self._symbols = list(SYMBOL.iter_unpack(self._bytes(code, self._sections[self._table])))
      self._link(code)
    except LLVMError:
      raise
    except (struct.error, IndexError, ValueError, OverflowError, OSError) as error:
      raise NotForUs(f"a damaged object file, or no memory for it: {error}") from None

  def address(self, symbol: str) -> int:
    """Address of a symbol. Raises LLVMError if the file has none of this name."""
    wanted = symbol.encode() + b"\0"
    for name, _, _, section, value, _ in self._symbols:
      if name and section in self._places and self._names.startswith(wanted, name):
        return self._places[section] + int(value)
    raise LLVMError(f"the object has no symbol {symbol!r}")

  def keep(self) -> None:
    """Never give the memory back."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))

  @staticmethod
  def _bytes(code: bytes, section: Section) -> bytes:
    found = code[section.offset : section.offset + section.size]
    if len(found) != section.size:
      raise NotForUs("a section that is not all there")
    return found

  def _link(self, code: bytes) -> None:
    sections = self._sections
    kept = {n: s for n, s in enumerate(sections) if s.flags & ALLOC and s.size and s.type in (PROGBITS, NOBITS)}
    relocations = [
      (s.info, *row)
      for s in sections
      if s.type == RELA and s.info in kept
      for row in RELOCATION.iter_unpack(self._bytes(code, s))
    ]
    outside = dict.fromkeys(info >> 32 for _, _, info, _ in relocations if self._symbols[info >> 32][3] == UNDEFINED)
    addresses = {number: self._outside(number) for number in outside}
    # code and constants, slots; on pages of their own what is written
    offsets: dict[int, int] = {}
    end = 0
    for writable in (0, WRITE):
      end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
      start = end
      for n, s in kept.items():
        if s.flags & WRITE == writable:
          offsets[n] = end = -(-end // max(s.align, 1)) * max(s.align, 1)
          end += s.size
      if not writable:
        first_slot = end = -(-end // 16) * 16
        end += len(outside) * SLOT.size
    self._memory = system.new_pages(end)
    base = system.address_of(self._memory)
    self._places = {n: base + offset for n, offset in offsets.items()}
    for n, s in kept.items():
      if s.type == PROGBITS:
        self._memory[offsets[n] : offsets[n] + s.size] = self._bytes(code, s)
    slots = {number: first_slot + k * SLOT.size for k, number in enumerate(outside)}
    for number, slot in slots.items():
      SLOT.pack_into(self._memory, slot, addresses[number], JUMP)
    for section, offset, info, addend in relocations:
      self._relocate(offsets[section] + offset, base, info, addend, slots)
    if start:
      system.make_executable(self._memory, start)

  def _relocate(self, at: int, base: int, info: int, addend: int, slots: dict[int, int]) -> None:
    """Write what depends on where a symbol is."""
    kind, number = info & 0xFFFFFFFF, info >> 32
    section, value = self._symbols[number][3:5]
    if number in slots:
      target = base + slots[number] + (8 if kind == R_PLT32 else 0)
      if kind not in (*OF_SLOT, R_PLT32):
        raise NotForUs(f"relocation {kind} of a symbol of the process")
    elif section in self._places and kind not in OF_SLOT:
      target = self._places[section] + value
    else:
      raise NotForUs(f"relocation {kind} of symbol {number} in section {section}")
    target += addend
    if kind == R_64:
      struct.pack_into("<Q", self._memory, at, target)
    elif kind == R_PC64:
      struct.pack_into("<q", self._memory, at, target - base - at)
    elif kind in (R_PC32, R_PLT32, *OF_SLOT):
      struct.pack_into("<i", self._memory, at, target - base - at)
    else:
      raise NotForUs(f"relocation {kind}")

  def _outside(self, number: int) -> int:
    """Address of a symbol of the process."""
    name, info = self._symbols[number][:2]
    text = self._names[name : self._names.index(b"\0", name)].decode()
    if not text or info >> 4 == WEAK:
      raise NotForUs(f"a weak symbol {text!r}")
    if address := system.symbol(text):
      return address
    raise LLVMError(f"this process has no function {text!r}, which the object calls")


def _parse(code: bytes) -> tuple[list[Section], int, bytes]:
  """Sections, the number of the one with symbols, and the names of these."""
  if len(code) < HEADER.size or not code.startswith(MAGIC):
    raise NotForUs("no ELF file of 64 bits")
  _, kind, machine, _, _, _, table, _, _, _, _, entry, count, _ = HEADER.unpack_from(code)
  if kind != RELOCATABLE or machine != X86_64 or entry != SECTION.size:
    raise NotForUs("no object file for x86-64")
  sections = [Section._make(SECTION.unpack_from(code, table + n * entry)) for n in range(count)]
  if any(s.flags & ALLOC and (s.flags & TLS or s.type in ARRAYS or s.align > mmap.PAGESIZE) for s in sections):
    raise NotForUs("storage of threads, what runs when it is loaded, or what is aligned to more than pages")
  tables = [n for n, s in enumerate(sections) if s.type == SYMTAB]
  if len(tables) != 1:
    raise NotForUs(f"{len(tables)} tables of symbols")
  strings = sections[sections[tables[0]].link]
  return sections, tables[0], code[strings.offset : strings.offset + strings.size]


def check_execution() -> None:
  """Raises OSError if this system does not let the process make code and run it."""
  system.make_executable(system.new_pages(mmap.PAGESIZE), mmap.PAGESIZE)
