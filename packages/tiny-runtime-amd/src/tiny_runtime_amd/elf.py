"""ELF files of 64 bits, little endian, as far as code for AMD's GPUs needs them: sections, symbols, relocations.

Source: the System V ABI's chapter on object files, and LLVM's "User Guide for AMDGPU Backend", "ELF Code Object".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

RELOCATABLE, SHARED = 1, 3
"""Values of e_type: what a compiler writes, and what a loader takes."""
NOBITS, NOTE, DYNSYM, SYMTAB, RELA, HASH, DYNAMIC, STRTAB = 8, 7, 11, 2, 4, 5, 6, 3
ALLOC, WRITE, EXECUTE = 2, 1, 4
"""Flags of sections."""
UNDEFINED, ABSOLUTE, RESERVED = 0, 0xFFF1, 0xFF00
"""Numbers of sections that are none: from RESERVED on they mean something else."""
AMDGPU, HSA = 224, 64
"""e_machine, and the byte of e_ident that tells the operating system."""

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")


class ElfError(ValueError):
  """A file that is no code for AMD's GPUs, or has something that no kernel has."""


@dataclass(frozen=True)
class Section:
  """A section; `address` is where its bytes go, 0 if that is not decided."""

  name: str
  type: int
  flags: int = 0
  data: bytes = b""
  address: int = 0
  link: int = 0
  info: int = 0
  align: int = 1
  entry_size: int = 0
  size: int = 0
  """Bytes in memory: more than `data` where there is none of it in the file."""


@dataclass(frozen=True)
class Symbol:
  """A name for a place: `value` is relative to a section in a relocatable file, an address in a linked one."""

  name: str
  value: int
  size: int
  info: int
  section: int

  @property
  def is_global(self) -> bool:
    """Whether other files see it."""
    return self.info >> 4 == 1


@dataclass(frozen=True)
class Relocation:
  """Bytes of section `section` that depend on where a symbol is."""

  section: int
  offset: int
  type: int
  symbol: Symbol
  addend: int


@dataclass(frozen=True)
class Elf:
  """A file that has been read."""

  type: int
  abi: int
  """Version of the ABI of the operating system: what the kernel descriptor's bits mean depends on it."""
  flags: int
  """The architecture, as a number of LLVM's."""
  sections: tuple[Section, ...]
  symbols: tuple[Symbol, ...]
  relocations: tuple[Relocation, ...]

  @classmethod
  def parse(cls, code: bytes) -> Elf:
    """Read a file. Raises ElfError if it is none for AMD's GPUs."""
    if len(code) < HEADER.size or code[:6] != b"\x7fELF\x02\x01":
      raise ElfError(f"no ELF file of 64 bits: it begins with {code[:6]!r}")
    ident, kind, machine, _, _, _, table, flags, _, _, _, entry, count, names = HEADER.unpack_from(code)
    if machine != AMDGPU or ident[7] != HSA:
      raise ElfError(f"an ELF file for machine {machine} and system {ident[7]}, expected {AMDGPU} and {HSA}")
    if entry != SECTION.size or table + count * entry > len(code) or names >= count:
      raise ElfError("an ELF file whose section headers are not all there")
    raw = [_section(code, table + place * entry) for place in range(count)]
    sections = tuple([replace(s, name=_text(raw[names][1].data, place)) for place, s in raw])
    tables = [n for n, s in enumerate(sections) if s.type in (SYMTAB, DYNSYM)]
    by_table = {n: _symbols(sections[n], sections[sections[n].link].data) for n in tables}
    symbols = tuple([symbol for n in tables[-1:] for symbol in by_table[n]])
    relocations = [r for s in sections if s.type == RELA for r in _relocations(s, by_table[s.link])]
    return cls(kind, ident[8], flags, sections, symbols, tuple(relocations))

  def section(self, name: str) -> Section | None:
    """The first of a name."""
    return next((s for s in self.sections if s.name == name), None)


def _section(code: bytes, at: int) -> tuple[int, Section]:
  name, kind, flags, address, offset, size, link, info, align, entry = SECTION.unpack_from(code, at)
  data = b"" if kind in (0, NOBITS) else code[offset : offset + size]
  return name, Section("", kind, flags, data, address, link, info, max(align, 1), entry, size)


def _text(strings: bytes, at: int) -> str:
  return strings[at : strings.index(b"\0", at)].decode()


def _symbols(table: Section, strings: bytes) -> tuple[Symbol, ...]:
  found = []
  for name, info, _, section, value, size in SYMBOL.iter_unpack(table.data):
    found.append(Symbol(_text(strings, name), value, size, info, section))
  return tuple(found)


def _relocations(table: Section, symbols: tuple[Symbol, ...]) -> list[Relocation]:
  return [
    Relocation(table.info, offset, info & 0xFFFFFFFF, symbols[info >> 32], addend)
    for offset, info, addend in RELOCATION.iter_unpack(table.data)
  ]
