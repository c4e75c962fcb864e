"""The linker: a relocatable object, as LLVM writes it, becomes a code object that a loader maps and is done.

Everything that a kernel refers to is in its own file, so all distances are known here; the result can be at any
address that is a multiple of a page. It is an ELF file as `ld.lld -shared` makes it, which AMD's runtime and tools
take too: a segment to read with the notes, the symbols of kernels and constants, and one to execute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiny_runtime_amd.elf import (
  ABSOLUTE,
  ALLOC,
  AMDGPU,
  DYNAMIC,
  DYNSYM,
  EXECUTE,
  HASH,
  HEADER,
  HSA,
  NOTE,
  RELOCATABLE,
  RESERVED,
  SECTION,
  SEGMENT,
  SHARED,
  STRTAB,
  SYMBOL,
  UNDEFINED,
  WRITE,
  Elf,
  ElfError,
  Relocation,
  Section,
  Symbol,
)

PAGE = 0x1000
_READ, _RUN = 4, 5  # rights of segments
_LOAD, _DYNAMIC, _NOTE = 1, 2, 4  # types of segments
_SEGMENTS = 4

# type of relocation → (bytes, how far the value is shifted, whether it is a distance); LLVM's guide, "Relocation
# Records"
_KINDS = {
  1: (4, 0, False), 2: (4, 32, False), 3: (8, 0, False), 6: (4, 0, False),
  4: (4, 0, True), 5: (8, 0, True), 10: (4, 0, True), 11: (4, 32, True),
}  # fmt: skip


@dataclass(frozen=True)
class _Placed:
  """A section with its place in the file, and the number it has in the object (0: it is new)."""

  section: Section
  offset: int
  number: int = 0


def link(code: bytes) -> bytes:
  """The loadable code object of a relocatable one. Raises ElfError for what it cannot resolve."""
  given = Elf.parse(code)
  if given.type != RELOCATABLE:
    raise ElfError(f"an ELF file of type {given.type}, expected a relocatable one ({RELOCATABLE})")
  kept = [(n, s) for n, s in enumerate(given.sections) if s.flags & ALLOC and s.size]
  if writable := [s.name for _, s in kept if s.flags & WRITE]:
    raise ElfError(f"sections {', '.join(writable)} are writable: a kernel has no variables of its own")
  exported = [s for s in given.symbols if s.is_global and s.section not in (UNDEFINED, ABSOLUTE)]
  names = b"\0" + b"".join(s.name.encode() + b"\0" for s in exported)
  # tables whose sizes are known, to be filled in once places are
  tables = [
    Section(
      ".dynsym", DYNSYM, ALLOC, bytes(SYMBOL.size * (len(exported) + 1)), align=8, entry_size=SYMBOL.size, info=1
    ),
    Section(".hash", HASH, ALLOC, _hash_table([s.name for s in exported]), align=4, entry_size=4),
    Section(".dynstr", STRTAB, ALLOC, names),
    Section(".dynamic", DYNAMIC, ALLOC, bytes(16 * 6), align=8, entry_size=16),
  ]
  readable = [(n, s) for n, s in kept if not s.flags & EXECUTE]
  runnable = [(n, s) for n, s in kept if s.flags & EXECUTE]
  notes = [(n, s) for n, s in readable if s.type == NOTE]
  others = [(n, s) for n, s in readable if s.type != NOTE]
  placed = _place([*notes, *[(0, t) for t in tables], *others], runnable)
  at = {p.number: p.section.address for p in placed if p.number}
  placed = [_relocated(p, given.relocations, at) for p in placed]
  placed = _filled(placed, exported, at, names)
  return _file(given, placed)


def _place(readable: Sequence[tuple[int, Section]], runnable: Sequence[tuple[int, Section]]) -> list[_Placed]:
  """Places in the file, and addresses: those of the second segment are a page further."""
  placed, offset = [], HEADER.size + _SEGMENTS * SEGMENT.size
  for page, group in ((0, readable), (PAGE, runnable)):
    for number, section in group:
      offset = -(-offset // section.align) * section.align
      placed.append(_Placed(replace(section, address=offset + page), offset, number))
      offset += len(section.data)
  return placed


def _relocated(placed: _Placed, relocations: Sequence[Relocation], at: dict[int, int]) -> _Placed:
  data = bytearray(placed.section.data)
  for relocation in relocations:
    if relocation.section == placed.number:
      _patch(data, relocation, placed.section.address + relocation.offset, at)
  return replace(placed, section=replace(placed.section, data=bytes(data)))


def _patch(data: bytearray, relocation: Relocation, place: int, at: dict[int, int]) -> None:
  symbol = relocation.symbol
  if relocation.type not in _KINDS:
    raise ElfError(f"a relocation of type {relocation.type} for {symbol.name!r}, which no kernel needs")
  size, shift, distance = _KINDS[relocation.type]
  absolute = symbol.section == ABSOLUTE
  if (
    symbol.section == UNDEFINED
    or (symbol.section >= RESERVED and not absolute)
    or not (absolute or symbol.section in at)
  ):
    raise ElfError(f"{symbol.name!r} is not defined: a kernel has all that it needs in its own file")
  if absolute is distance:
    raise ElfError(f"a relocation of type {relocation.type} for {symbol.name!r}: an address that only a loader knows")
  value = symbol.value + relocation.addend + (at[symbol.section] - place if distance else 0)
  value = (value >> shift) & ((1 << 8 * size) - 1)
  data[relocation.offset : relocation.offset + size] = value.to_bytes(size, "little")


def _filled(placed: Sequence[_Placed], exported: Sequence[Symbol], at: dict[int, int], names: bytes) -> list[_Placed]:
  """The tables with the places that they name. Sections are numbered from 1, in their order."""
  numbers = {p.number: place for place, p in enumerate(placed, 1) if p.number}
  where = {p.section.name: (place, p.section) for place, p in enumerate(placed, 1)}
  symbols = bytes(SYMBOL.size)
  for s in exported:
    address = s.value + at[s.section]
    name = names.index(b"\0" + s.name.encode() + b"\0") + 1
    symbols += SYMBOL.pack(name, s.info, 3, numbers[s.section], address, s.size)
  entries = ((4, ".hash"), (5, ".dynstr"), (6, ".dynsym"))
  dynamic = b"".join(struct.pack("<QQ", tag, where[name][1].address) for tag, name in entries)
  dynamic += struct.pack("<QQQQQQ", 10, len(names), 11, SYMBOL.size, 0, 0)
  changed = {
    ".dynsym": {"data": symbols, "link": where[".dynstr"][0]},
    ".hash": {"link": where[".dynsym"][0]},
    ".dynamic": {"data": dynamic, "link": where[".dynstr"][0]},
  }
  return [replace(p, section=replace(p.section, **changed.get(p.section.name, {}))) for p in placed]  # type: ignore[arg-type]


def _hash_table(names: Sequence[str]) -> bytes:
  """The System V hash table of symbols 1, 2, …: one bucket, as there are few."""
  chain = [0, *[n + 1 if n < len(names) else 0 for n in range(1, len(names) + 1)]]
  return struct.pack(f"<{3 + len(chain)}I", 1, len(chain), 1 if names else 0, *chain)


def _file(given: Elf, placed: Sequence[_Placed]) -> bytes:
  names = [*[p.section.name for p in placed], ".shstrtab"]
  strings = b"\0" + b"".join(n.encode() + b"\0" for n in names)
  end = placed[-1].offset + len(placed[-1].section.data)
  table = -(-(end + len(strings)) // 8) * 8
  headers = bytes(SECTION.size)
  for p in placed:
    s = p.section
    name = strings.index(b"\0" + s.name.encode() + b"\0") + 1
    headers += SECTION.pack(
      name, s.type, s.flags, s.address, p.offset, len(s.data), s.link, s.info, s.align, s.entry_size
    )
  name = strings.index(b"\0.shstrtab\0") + 1
  headers += SECTION.pack(name, STRTAB, 0, 0, end, len(strings), 0, 0, 1, 0)
  ident = b"\x7fELF\x02\x01\x01" + bytes((HSA, given.abi)) + bytes(7)
  sizes = (HEADER.size, SEGMENT.size, _SEGMENTS, SECTION.size, len(placed) + 2, len(placed) + 1)
  head = HEADER.pack(ident, SHARED, AMDGPU, 1, 0, HEADER.size, table, given.flags, *sizes)
  out = bytearray(head + _segments(placed))
  for p in placed:
    out += bytes(p.offset - len(out)) + p.section.data
  out += strings
  return bytes(out + bytes(table - len(out)) + headers)


def _segments(placed: Sequence[_Placed]) -> bytes:
  runnable = [p for p in placed if p.section.flags & EXECUTE]
  readable = [p for p in placed if not p.section.flags & EXECUTE]
  first, last = runnable[0], runnable[-1]
  read_end = readable[-1].offset + len(readable[-1].section.data)
  run_size = last.offset + len(last.section.data) - first.offset
  rows = [(_LOAD, _READ, 0, 0, read_end, PAGE), (_LOAD, _RUN, first.offset, first.section.address, run_size, PAGE)]
  for kind, wanted in ((_DYNAMIC, DYNAMIC), (_NOTE, NOTE)):
    found = [p for p in readable if p.section.type == wanted]
    rows += [(kind, _READ, p.offset, p.section.address, len(p.section.data), p.section.align) for p in found[:1]]
  rows += [(0, 0, 0, 0, 0, 0)] * (_SEGMENTS - len(rows))
  return b"".join(
    SEGMENT.pack(kind, rights, offset, address, address, size, size, align)
    for kind, rights, offset, address, size, align in rows
  )
