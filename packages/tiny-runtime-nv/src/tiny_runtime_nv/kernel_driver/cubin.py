"""Cubins, the ELF files that ptxas writes: code of kernels, and what the hardware has to be told of each.

Source: no manual says it. Sections and attributes were read from what ptxas 13.0 writes for known kernels, for every
architecture of `arch.py`; the names of attributes are those that `cuobjdump -elf` prints.

What ptxas leaves to whoever loads a cubin are addresses of global variables: in constant bank 4, of which code reads
them, in bank 3 (`.const`) and in variables that are given some. Functions are part of each kernel's code, and pointers
to them are distances in it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

CUDA = 190
"""e_machine."""
NOBITS, SYMTAB, RELOCATIONS = 8, 2, (4, 9)
HEADER, SECTION, SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
REGISTERS, FRAME, STACK, PARAMETERS, BARRIERS, THREADS = 0x2F, 0x11, 0x12, 0x0A, 0x4C, 0x10
"""EIATTR_REGCOUNT, _FRAME_SIZE, _MIN_STACK_SIZE, _PARAM_CBANK, _NUM_BARRIERS, _REQNTID."""
SIZED = 4
"""The format of an attribute that has as many bytes as it says; of others the value is in two bytes."""
ADDRESSES = {2: "R_CUDA_64", 4: "R_CUDA_G64"}
"""Relocations that are an address of 64 bits: of global memory, and as generic addresses are, which is the same."""
DEEP = 1024
"""Bytes of stack where ptxas cannot know how deep functions call each other: as many as CUDA has by default."""


class CubinError(ValueError):
  """A file that is no cubin, or has what no kernel of ours has."""


@dataclass(frozen=True)
class Address:
  """Where the address of a global variable is to stand: 64 bits at byte `at` of a constant bank, or of the variables
  themselves (bank None). `place`: the byte of the variables that it is the address of."""

  bank: int | None
  at: int
  place: int


@dataclass(frozen=True)
class CubinKernel:
  """A kernel. `shared` are bytes of shared memory that it declares, with what the system takes; `stack` bytes of local
  memory of a thread."""

  code: bytes
  registers: int
  barriers: int
  shared: int
  stack: int
  parameters: tuple[int, int]
  """Where they are in constant bank 0, and how many bytes."""
  constants: dict[int, bytes] = field(default_factory=dict)
  """Constant banks but 0, by number."""
  threads: tuple[int, int, int] | None = None
  """Of a block, if it wants so many."""
  variables: bytes = b""
  """Global variables, which all kernels of the cubin share, as they are at first."""
  addresses: tuple[Address, ...] = ()


@dataclass(frozen=True)
class _Section:
  name: str
  type: int
  data: bytes
  size: int
  info: int


def parse(code: bytes) -> tuple[int, dict[str, CubinKernel]]:
  """(architecture, kernels by name): 90 is sm_90a. Raises CubinError."""
  if len(code) < HEADER.size or code[:6] != b"\x7fELF\x02\x01":
    raise CubinError(f"no ELF file of 64 bits: it begins with {code[:6]!r}")
  _, _, machine, _, _, _, table, flags, _, _, _, entry, count, names = HEADER.unpack_from(code)
  if machine != CUDA:
    raise CubinError(f"an ELF file for machine {machine}, expected {CUDA}")
  if entry != SECTION.size or table + count * entry > len(code) or names >= count:
    raise CubinError("an ELF file whose section headers are not all there")
  try:
    raw = [SECTION.unpack_from(code, table + n * entry) for n in range(count)]
    strings = code[raw[names][4] : raw[names][4] + raw[names][5]]
    sections = [
      _Section(_text(strings, row[0]), row[1], b"" if row[1] == NOBITS else code[row[4] : row[4] + row[5]], row[5],
               row[7])
      for row in raw
    ]  # fmt: skip
    return flags >> 8 & 0xFF, _kernels(sections)
  except (struct.error, IndexError, ValueError) as error:
    if isinstance(error, CubinError):
      raise
    raise CubinError(f"a cubin that ends too early: {error}") from error


def _text(strings: bytes, at: int) -> str:
  return strings[at : strings.index(b"\0", at)].decode()


def _kernels(sections: list[_Section]) -> dict[str, CubinKernel]:
  by_name = {section.name: section for section in sections}
  variables, addresses = _variables(sections)
  general = by_name.get(".nv.info")
  symbols = [row[3] for s in sections if s.type == SYMTAB for row in SYMBOL.iter_unpack(s.data)]
  of_symbols: dict[tuple[int, int], int] = {}
  """Attributes of functions, by attribute and the function's section: the largest, if it has parts."""
  for attribute, value in _attributes(general.data if general else b""):
    if attribute in (REGISTERS, FRAME, STACK):
      symbol, number = struct.unpack("<II", value)
      key = attribute, symbols[symbol]
      of_symbols[key] = max(number, of_symbols.get(key, 0))
  kernels = {}
  for place, section in enumerate(sections):
    name = section.name.removeprefix(".text.")
    if name != section.name and f".nv.info.{name}" in by_name:
      about = dict(_attributes(by_name[f".nv.info.{name}"].data))
      shared = by_name.get(f".nv.shared.{name}")
      _, where = struct.unpack("<II", about[PARAMETERS]) if PARAMETERS in about else (0, 0)
      frame, stack = (of_symbols.get((what, place), 0) for what in (FRAME, STACK))
      kernels[name] = CubinKernel(
        code=section.data,
        registers=of_symbols.get((REGISTERS, place), section.info >> 24),
        barriers=about[BARRIERS][0] if BARRIERS in about else 0,
        shared=shared.size if shared else 0,
        stack=stack if frame <= stack else max(frame, DEEP),
        parameters=(where & 0xFFFF, where >> 16),
        constants=dict(sorted(_constants(sections, name))),
        threads=struct.unpack("<III", about[THREADS]) if THREADS in about else None,
        variables=variables,
        addresses=tuple(address for owner, address in addresses if owner in ("", name)),
      )
  return kernels


def _variables(sections: list[_Section]) -> tuple[bytes, list[tuple[str, Address]]]:
  """Global variables, and where their addresses are to stand, with the kernel whose constants these are ("": of all).
  Raises CubinError for what else is left to whoever loads a cubin."""
  data, begins = bytearray(), {}
  for number, section in enumerate(sections):
    if section.name in (".nv.global.init", ".nv.global"):
      data.extend(bytes(-len(data) % 256))
      begins[number] = len(data)
      data.extend(section.data or bytes(section.size))
  names = {s.name: s for s in sections}
  symbols = [(_text(names[".strtab"].data, row[0]), row[3], row[4]) for s in sections if s.type == SYMTAB
             for row in SYMBOL.iter_unpack(s.data)]  # fmt: skip
  found = []
  for section in sections:
    target = sections[section.info] if section.type in RELOCATIONS else section
    if target is section or not target.name.startswith((".nv.constant", ".nv.global", ".text.")):
      continue  # of debuggers, and the graph of calls
    bank, _, owner = target.name.removeprefix(".nv.constant").partition(".")
    constants = bank.isdecimal() and bank != "0"
    for at, about, *addend in struct.iter_unpack("<QQq" if section.type == 4 else "<QQ", section.data):
      name, home, value = symbols[about >> 32]
      kind, where = about & 0xFFFFFFFF, f"byte {at} of {target.name}"
      if home == 0:
        raise CubinError(f"a cubin that needs {name}, which is not in it ({where})")
      if kind not in ADDRESSES or home not in begins or not (constants or section.info in begins):
        raise CubinError(
          f"a cubin with a relocation of type {kind} for {name} ({where}): known are, in constants and variables,"
          f" addresses of variables ({', '.join(ADDRESSES.values())})"
        )
      place = begins[home] + value + (addend[0] if addend else struct.unpack_from("<q", target.data, at)[0])
      if constants:
        found.append((owner, Address(int(bank), at, place)))
      else:
        found.append(("", Address(None, begins[section.info] + at, place)))
  return bytes(data), found


def _constants(sections: list[_Section], kernel: str) -> list[tuple[int, bytes]]:
  """Banks of a kernel, and those of all."""
  found = []
  for section in sections:
    bank, _, owner = section.name.removeprefix(".nv.constant").partition(".")
    if bank != section.name and bank.isdecimal() and bank != "0" and owner in ("", kernel):
      found.append((int(bank), section.data))
  return found


def _attributes(data: bytes) -> list[tuple[int, bytes]]:
  """(attribute, value) of a section .nv.info."""
  found, at = [], 0
  while at + 4 <= len(data):
    kind, attribute, size = struct.unpack_from("<BBH", data, at)
    value = data[at + 4 : at + 4 + size] if kind == SIZED else data[at + 2 : at + 4]
    found.append((attribute, value))
    at += 4 + (size if kind == SIZED else 0)
  return found
