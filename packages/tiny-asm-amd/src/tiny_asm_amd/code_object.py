"""Kernels as code objects: an ELF file with code, a descriptor of each kernel, and its metadata.

Source: LLVM's "User Guide for AMDGPU Backend": "Code Object", "Kernel Descriptor", "Code Object V5 Metadata".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tiny_asm_amd.dsl import Item, code
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.registers import ACCUMULATOR, VECTOR
from tiny_asm_amd.table import family_of

PAGE, MOST_THREADS = 0x1000, 1024
ANY = 0x500
"""That memory may be retried and corrected, or not."""
MACHINES = {
  "gfx900": 0x12C, "gfx908": 0x30 | ANY, "gfx90a": 0x3F | ANY, "gfx940": 0x40 | ANY, "gfx942": 0x4C | ANY,
  "gfx950": 0x4F | ANY,
  "gfx1100": 0x41, "gfx1101": 0x46, "gfx1102": 0x47, "gfx1103": 0x44, "gfx1150": 0x43, "gfx1151": 0x4A,
  "gfx1200": 0x48, "gfx1201": 0x4E,
}  # fmt: skip
"""EF_AMDGPU_MACH, with what may or may not be on."""
DENORMALS, CLAMP, IEEE, WORKGROUP_MODE, ORDERED = 0xF << 16, 1 << 21, 1 << 23, 1 << 29, 1 << 30


@dataclass(frozen=True)
class Program:
  """A kernel with a launch of it, as `Kernel.program` makes it."""

  arch: str
  """The chip."""
  code: bytes
  """A code object."""
  entry: str
  groups: tuple[int, ...]
  threads: tuple[int, ...]
  written: tuple[int, ...]
  ops: int = 0
  source: str = ""
  form: str = "code-object"
  """What `code` is, for who takes programs of several kinds."""


@dataclass(frozen=True)
class Kernel:
  """A kernel that is written by hand. It finds the address of its arguments in s[0:1], behind that the numbers of its
  workgroup along the axes of `groups` (on RDNA 4, and on gfx942 for scratch, elsewhere: LLVM's guide says where), and
  in v0 that of its thread: along x, and from bit 10 and 20 on along y and z where `axes` says so."""

  chip: str
  name: str
  body: tuple[Instruction, ...]
  argument_bytes: int = 0
  local_bytes: int = 0
  """Of shared memory, for a workgroup."""
  groups: str = "x"
  """Axes along which it wants to know its workgroup: "", "x", "xy", "xyz"."""
  axes: int = 1
  """Axes of which v0 has the thread's number."""
  threads: int = MOST_THREADS
  """Of a workgroup, at most."""
  lanes: int = 0
  """Threads of a wave, where the chip leaves a choice (RDNA: 32 or 64); 0: 32 there. With 64, masks of lanes are pairs
  of registers, as `vcc` and `s[4:5]`."""

  @classmethod
  def of(cls, chip: str, name: str, items: Iterable[Item], **about: Any) -> Kernel:
    """Of instructions, labels and lines of text. Raises AsmError."""
    return cls(chip, name, tuple(code(items, chip)), **about)

  @property
  def shown(self) -> list[Instruction]:
    """Its instructions, with masks as its waves have them."""
    return [replace(made, lanes=self.wave) for made in self.body]

  def _most(self, base: int, bound: int) -> int:
    used = [n for made in self.shown for numbers in made.operands.values() for n in numbers if base <= n < bound]
    return max(used, default=base - 1) - base + 1

  @property
  def vector_registers(self) -> int:
    """Vector registers that it uses: v0 is one of them."""
    return max(1, self._most(VECTOR, VECTOR + 256))

  @property
  def accumulators(self) -> int:
    """Accumulation registers that it uses."""
    return self._most(ACCUMULATOR, ACCUMULATOR + 256)

  @property
  def scalar_registers(self) -> int:
    """Registers of the wave that it uses, without those that have names."""
    return max(2 * bool(self.argument_bytes) + len(self.groups), self._most(0, 106))

  @property
  def wave(self) -> int:
    """Threads that run in step."""
    return self.lanes or (64 if family_of(self.chip) == "cdna" else 32)

  @property
  def machine_code(self) -> bytes:
    """Its instructions as bytes."""
    return b"".join(map(bytes, self.body))

  def program(
    self, groups: int | tuple[int, ...], threads: int | tuple[int, ...], written: Iterable[int] = (0,), ops: int = 0
  ) -> Program:
    """What `Tensor.custom_kernel` of tiny-tensor takes: the kernel with a launch of so many workgroups of so many
    threads. Its arguments are addresses, and it writes those with the numbers `written`. `ops`: the arithmetic
    operations of a launch, for who counts them. Raises AsmError."""
    grid, group = ((sizes,) if isinstance(sizes, int) else tuple(sizes) for sizes in (groups, threads))
    if math.prod(group) > self.threads:
      raise AsmError(f"{self.name}: {math.prod(group)} threads a workgroup, and it was made for {self.threads}")
    text = "\n".join(map(str, self.shown))
    return Program(self.chip, code_object([self]), self.name, grid, group, tuple(written), ops, text)

  def descriptor(self, distance: int) -> bytes:
    """What the hardware is told; the first instruction is `distance` bytes from here. Raises AsmError."""
    cdna, new = family_of(self.chip) == "cdna", family_of(self.chip) == "rdna4"
    unified = self.chip in ("gfx90a", "gfx940", "gfx942", "gfx950")
    vectors = self.vector_registers
    offset = -(-vectors // 4) * 4 if unified else 0
    total = offset + self.accumulators if unified else max(vectors, self.accumulators)
    if self.wave not in ((64,) if cdna else (32, 64)):
      raise AsmError(f"{self.name}: {self.chip} has no waves of {self.wave} lanes")
    if self.wave == 64 and (pairs := [made for made in self.body if " :: " in made.mnemonic]):
      raise AsmError(f"{self.name}: {pairs[0]}: two operations at once are for waves of 32 lanes")
    granule = 4 if self.chip in ("gfx900", "gfx908") or self.wave == 64 and not cdna else 8
    first = max(0, -(-total // granule) - 1) | DENORMALS
    if cdna:
      first |= max(0, -(-(self.scalar_registers + 6) // 8) - 1) << 6
    first |= 0 if new else CLAMP | IEEE
    first |= 0 if cdna else WORKGROUP_MODE | ORDERED
    users = 2 if self.argument_bytes else 0
    second = users << 1 | sum(1 << (7 + "xyz".index(axis)) for axis in self.groups) | (self.axes - 1) << 11
    third = offset // 4 - 1 if unified else 0
    properties = (8 if self.argument_bytes else 0) | (1 << 10 if self.wave == 32 else 0)
    return struct.pack(
      "<III4xq20xIIIHH4x", self.local_bytes, 0, self.argument_bytes, distance, third, first, second, properties, 0
    )

  def metadata(self) -> dict[str, Any]:
    """What a loader is told."""
    return {
      ".name": self.name, ".symbol": f"{self.name}.kd", ".kernarg_segment_size": self.argument_bytes,
      ".kernarg_segment_align": 8, ".group_segment_fixed_size": self.local_bytes, ".private_segment_fixed_size": 0,
      ".wavefront_size": self.wave, ".sgpr_count": self.scalar_registers, ".vgpr_count": self.vector_registers,
      ".agpr_count": self.accumulators, ".max_flat_workgroup_size": self.threads, ".uses_dynamic_stack": False,
      ".sgpr_spill_count": 0, ".vgpr_spill_count": 0,
    }  # fmt: skip


def pack(value: Any) -> bytes:
  """MessagePack, of what metadata have. Raises AsmError."""
  if isinstance(value, bool):
    return b"\xc3" if value else b"\xc2"
  if isinstance(value, int) and value >= 0:
    return bytes((value,)) if value < 128 else b"\xce" + value.to_bytes(4, "big")
  if isinstance(value, str):
    text = value.encode()
    return b"\xda" + len(text).to_bytes(2, "big") + text
  if isinstance(value, list | tuple):
    return b"\xdc" + len(value).to_bytes(2, "big") + b"".join(map(pack, value))
  if isinstance(value, dict):
    return b"\xde" + len(value).to_bytes(2, "big") + b"".join(pack(k) + pack(v) for k, v in value.items())
  raise AsmError(f"{value!r} cannot be in metadata")


def code_object(kernels: Sequence[Kernel]) -> bytes:
  """A file that loaders of AMD's code objects take, with these kernels, all of one chip. Raises AsmError."""
  chips = {kernel.chip for kernel in kernels}
  if len(chips) != 1:
    raise AsmError(f"a code object has kernels of one chip, not of {', '.join(sorted(chips)) or 'none'}")
  (chip,) = chips
  about = {
    "amdhsa.version": [1, 2], "amdhsa.target": f"amdgcn-amd-amdhsa--{chip}",
    "amdhsa.kernels": [kernel.metadata() for kernel in kernels],
  }  # fmt: skip
  content = pack(about)
  note = struct.pack("<III8s", 7, len(content), 32, b"AMDGPU") + content.ljust(-(-len(content) // 4) * 4, b"\0")
  strings = b"\0" + b"".join(f"{k.name}\0{k.name}.kd\0".encode() for k in kernels)
  count = 1 + 2 * len(kernels)
  chain = [0, *[n + 1 if n + 1 < count else 0 for n in range(1, count)]]
  hashes = struct.pack(f"<{3 + count}I", 1, count, 1 if count > 1 else 0, *chain)
  rest, read = bytes(6 * 16), []
  # what is read comes first, each part at a multiple of 64, then code, each kernel at a multiple of 256
  at = 64 + 56 * 4
  parts = (
    (".note", 7, note), (".dynsym", 11, bytes(24 * count)), (".hash", 5, hashes), (".dynstr", 3, strings),
    (".rodata", 1, bytes(64 * len(kernels))), (".dynamic", 6, rest),
  )  # fmt: skip
  for name, kind, data in parts:
    at = -(-at // 64) * 64
    read.append([name, kind, at, data])
    at += len(data)
  run = -(-at // PAGE) * PAGE
  text, entries = b"", []
  for kernel in kernels:
    text = text.ljust(-(-len(text) // 256) * 256, b"\0")
    entries.append(run + len(text))
    text += kernel.machine_code
  text += bytes(256)  # instructions are fetched ahead
  return _file(chip, kernels, read, run, text, entries, strings)


def _file(
  chip: str, kernels: Sequence[Kernel], read: list[list[Any]], run: int, text: bytes, entries: list[int], strings: bytes
) -> bytes:
  place = {name: at for name, _, at, _ in read}
  symbols, descriptors = bytes(24), b""
  for n, (kernel, entry) in enumerate(zip(kernels, entries)):
    where = place[".rodata"] + 64 * n
    names = [strings.index(f"\0{kernel.name}{end}\0".encode()) + 1 for end in ("", ".kd")]
    symbols += struct.pack("<IBBHQQ", names[0], 0x12, 3, 7, entry, len(kernel.machine_code))
    symbols += struct.pack("<IBBHQQ", names[1], 0x11, 3, 5, where, 64)
    descriptors += kernel.descriptor(entry - where)
  pairs = ((4, place[".hash"]), (5, place[".dynstr"]), (6, place[".dynsym"]), (10, len(strings)), (11, 24), (0, 0))
  filled = {".dynsym": symbols, ".rodata": descriptors, ".dynamic": b"".join(struct.pack("<QQ", *p) for p in pairs)}
  rows = [(name, kind, 2, at, filled.get(name, data)) for name, kind, at, data in read] + [(".text", 1, 6, run, text)]
  links = {".dynsym": (4, 1, 24), ".hash": (2, 0, 4), ".dynamic": (4, 0, 16)}
  titles = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in rows) + b".shstrtab\0"
  end = run + len(text)
  table = -(-(end + len(titles)) // 8) * 8
  out = bytearray(table)
  headers = bytes(64)
  for name, kind, flags, at, data in rows:
    out[at : at + len(data)] = data
    link, info, entry_size = links.get(name, (0, 0, 0))
    title = titles.index(f"\0{name}\0".encode()) + 1
    aligned = 4 if kind == 7 else 64 if flags == 2 else 256
    headers += struct.pack("<IIQQQQIIQQ", title, kind, flags, at, at, len(data), link, info, aligned, entry_size)
  headers += struct.pack("<IIQQQQIIQQ", titles.index(b"\0.shstrtab\0") + 1, 3, 0, 0, end, len(titles), 0, 0, 1, 0)
  out[end : end + len(titles)] = titles
  last = rows[-2]
  note, dynamic = rows[0], last
  segments = [(1, 4, 0, last[3] + len(last[4]), PAGE), (1, 5, run, len(text), PAGE),
              (2, 4, dynamic[3], len(dynamic[4]), 8), (4, 4, note[3], len(note[4]), 4)]  # fmt: skip
  ident = b"\x7fELF\x02\x01\x01" + bytes((64, 3)) + bytes(7)
  sizes = (64, 56, len(segments), 64, len(rows) + 2, len(rows) + 1)
  head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 224, 1, 0, 64, table, MACHINES[chip], *sizes)
  head += b"".join(struct.pack("<IIQQQQQQ", k, rights, at, at, at, n, n, align) for k, rights, at, n, align in segments)
  out[: len(head)] = head
  return bytes(out) + headers
