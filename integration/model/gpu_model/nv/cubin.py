"""A stand-in for ptxas: PTX in an ELF file of a cubin's form, with the PTX where the machine code would be.

A real cubin has machine code, which the model cannot run. All else is as ptxas 13.0 writes it: sections, symbols,
attributes (`.nv.info`), where the parameters are in constant bank 0, shared memory with what the system keeps of it.
Figures that ptxas would find out (registers) are made up, as different from each other as may be.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from gpu_model.ptx import ARRAY, AT_LAUNCH, ENTRY
from gpu_model.toolchain import Refused

MAGIC = b"PTX of the model"
Head = struct.Struct("<16s6I")
PARAMETERS = {"75": 0x160, "80": 0x160, "86": 0x160, "87": 0x160, "89": 0x160, "90": 0x210, "100": 0x380, "120": 0x380}
SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
INFO, NOBITS = 0x70000000, 8
ALIGNED = 128
"""Of machine code."""


@dataclass(frozen=True)
class Program:
  """What is where the machine code would be. `shared` has what the system keeps."""

  ptx: str
  registers: int
  barriers: int
  shared: int
  parameters: int
  parameter_bytes: int

  def image(self) -> bytes:
    """As it is in memory."""
    text = self.ptx.encode()
    head = Head.pack(
      MAGIC, len(text), self.registers, self.barriers, self.shared, self.parameters, self.parameter_bytes
    )
    return head + text + bytes(-(len(head) + len(text)) % ALIGNED)

  @staticmethod
  def length(head: bytes) -> int:
    """How many bytes there are of it, told by the first ones; 0: this is none."""
    magic, length, *_ = Head.unpack(head)
    return Head.size + int(length) if magic == MAGIC else 0

  @staticmethod
  def read(data: bytes) -> Program:
    """Take an image apart."""
    _, length, registers, barriers, shared, parameters, nbytes = Head.unpack_from(data)
    ptx = data[Head.size : Head.size + length].decode()
    return Program(ptx, registers, barriers, shared, parameters, nbytes)


def programs(ptx: str, arch: str) -> list[tuple[str, Program, tuple[int, int, int]]]:
  """Of each kernel in PTX its name, the program, and the threads of a block that it is for. Raises Refused."""
  text = re.sub(r"//[^\n]*", "", ptx)
  entries = list(ENTRY.finditer(text))
  target = re.search(r"^\.target (\w+)", text, re.MULTILINE)
  if not entries or target is None or target[1] != arch:
    raise Refused(f"ptxas fatal: no kernel in this text, or it is for {target and target[1]}, not {arch}")
  head, sm, found = text[: entries[0].start()], re.sub(r"\D", "", arch), []
  for entry in entries:
    name, parameters, directives, body = entry.groups()
    kinds = re.findall(r"\.param\s+\.(\w+)", parameters)
    if {*kinds} - {"u64", "s64", "b64"}:
      raise Refused(f"the model knows no parameters of types {kinds}")
    block = re.search(r"\.(?:reqntid|maxntid) (\d+), (\d+), (\d+)", directives)
    x, y, z = map(int, block.groups()) if block else (1024, 1, 1)
    shared = 0
    # arrays that several kernels name stand before all of them
    for kind, align, _, size in ARRAY.findall(body) + [array for array in ARRAY.findall(head) if array[2] in body]:
      if kind == "shared":
        shared = -(-shared // int(align)) * int(align) + int(size)
    shared += 1024 if (shared or AT_LAUNCH.search(head)) and int(sm) >= 90 else 0
    declared = sum(int(number) for number in re.findall(r"\.reg \.\w+\s+%\w+<(\d+)>", body))
    registers = min(16 + declared % 61, 255, max(16, 65536 // (x * y * z) // 8 * 8))
    numbers = [int(number) for number in re.findall(r"\b(?:bar|barrier)\.[\w.]*\s+(\d+)", body)]
    barriers = max(numbers, default=-1) + 1
    made = Program(head + entry.group(), registers, barriers, shared, PARAMETERS[sm], 8 * len(kinds))
    found.append((name, made, (x, y, z)))
  return found


def _attribute(kind: int, number: int, value: bytes) -> bytes:
  """A row of `.nv.info`: of kind 4 with a length, else two bytes that are the value."""
  return (
    struct.pack("<BBH", kind, number, len(value)) + value if kind == 4 else struct.pack("<BB2s", kind, number, value)
  )


class _Elf:
  """Sections one after the other."""

  def __init__(self) -> None:
    self.rows: list[tuple[int, int, int, bytes, int, int, int, int]] = [(0, 0, 0, b"", 0, 0, 0, 0)]
    self.names = b"\0"

  def add(
    self, name: str, kind: int, flags: int, data: bytes, link: int = 0, info: int = 0, align: int = 4, entry: int = 0
  ) -> None:
    """Another section."""
    self.rows.append((len(self.names), kind, flags, data, link, info, align, entry))
    self.names += name.encode() + b"\0"

  def file(self, names: int, flags: int) -> bytes:
    """The bytes, with the names of sections in section `names`."""
    offset, body, headers = 64, b"", b""
    for number, (name, kind, flag, data, link, info, align, entry) in enumerate(self.rows):
      data = self.names if number == names else data
      room = -offset % max(1, align) if number else 0
      body, offset = body + bytes(room), offset + room
      headers += SECTION.pack(name, kind, flag, 0, offset if number else 0, len(data), link, info, align, entry)
      if kind != NOBITS:
        body, offset = body + data, offset + len(data)
    body, offset = body + bytes(-offset % 8), offset + -offset % 8
    head = struct.pack("<4sBBBBB7x", b"\x7fELF", 2, 1, 1, 0x41, 8)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, offset, flags, 64, 56, 0, 64, len(self.rows), names)
    return head + body + headers


def assemble(ptx: str, arch: str) -> bytes:
  """The cubin of PTX, with all its kernels. Raises Refused."""
  found, sm = programs(ptx, arch), int(re.sub(r"\D", "", arch))
  strings, places = b"\0", []
  for name, _, _ in found:
    places.append(len(strings))
    strings += name.encode() + b"\0"
  # 5 sections and then 3 or 4 for each kernel; symbols: of its code, of its bank, and itself
  codes = list(range(6, 6 + len(found)))
  first = 1 + 2 * len(found)
  local = [SYMBOL.pack(0, 0, 0, 0, 0, 0)]
  local += [SYMBOL.pack(0, 3, 0, section + n * len(found), 0, 0) for section in codes for n in (0, 1)]
  images = [made.image() for _, made, _ in found]
  symbols = local + [
    SYMBOL.pack(place, 0x12, 0x10, section, 0, len(image)) for place, section, image in zip(places, codes, images)
  ]
  info = b"".join(
    _attribute(4, number, struct.pack("<II", first + n, value))
    for n, (_, made, _) in enumerate(found) for number, value in ((0x2F, made.registers), (0x11, 0), (0x12, 0))
  )  # fmt: skip
  elf = _Elf()
  elf.add(".shstrtab", 3, 0, b"", align=1)
  elf.add(".strtab", 3, 0, strings, align=1)
  elf.add(".symtab", 2, 0, b"".join(symbols), 2, first, 8, SYMBOL.size)
  elf.add(".nv.info", INFO, 0, info, 3)
  elf.add(".note.nv.tkinfo", 7, 0, b"the model's stand-in for ptxas", 0)
  for n, ((name, made, _), image) in enumerate(zip(found, images)):
    registers = made.registers << 24 if sm < 90 else 0
    elf.add(f".text.{name}", 1, 6, image, 3, registers | (first + n), ALIGNED)
  for (name, made, _), code in zip(found, codes):
    elf.add(f".nv.constant0.{name}", 1, 0x42, bytes(made.parameters + made.parameter_bytes), 0, code)
  for n, ((name, made, threads), code) in enumerate(zip(found, codes)):
    elf.add(f".nv.info.{name}", INFO, 0x40, _information(made, threads, 2 + 2 * n, len(images[n])), 3, code)
    if made.shared or AT_LAUNCH.search(made.ptx):
      elf.add(f".nv.shared.{name}", NOBITS, 0x43, bytes(made.shared), 0, code, 128)
  return elf.file(1, 0x6000004 | sm << 8)


def _information(made: Program, threads: tuple[int, int, int], constant: int, length: int) -> bytes:
  """`.nv.info` of a kernel; `constant`: the symbol of its bank."""
  rows = [
    _attribute(4, 0x37, struct.pack("<I", 130)),
    _attribute(4, 0x0A, struct.pack("<IHH", constant, made.parameters, made.parameter_bytes)),
    _attribute(3, 0x19, struct.pack("<H", made.parameter_bytes)),
    *(
      _attribute(4, 0x17, struct.pack("<IHHI", 0, n, 8 * n, 0x21F000))
      for n in reversed(range(made.parameter_bytes // 8))
    ),
    _attribute(3, 0x1B, struct.pack("<H", 255)),
    *([_attribute(2, 0x4C, struct.pack("<H", made.barriers))] if made.barriers else []),
    _attribute(4, 0x1C, struct.pack("<I", length - 16)),
    _attribute(4, 0x10, struct.pack("<III", *threads)),
  ]
  return b"".join(rows)
