"""Code objects as a device loads them: an image of memory, and the descriptor of each kernel in it.

Source: LLVM's "User Guide for AMDGPU Backend", "Kernel Descriptor" and "Code Object Metadata".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from tiny_runtime_amd.elf import ALLOC, NOTE, SHARED, Elf, ElfError
from tiny_runtime_amd.msgpack import unpack

DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
METADATA = 32
"""Type of the note that has the metadata, NT_AMDGPU_METADATA."""
WAVE32 = 1 << 10
"""Bit of a descriptor's properties: waves of 32 threads, not 64."""
USED = {0: "private segment buffer", 1: "dispatch pointer", 2: "queue pointer", 3: "kernel arguments", 4: "dispatch id",
        5: "flat scratch", 6: "private segment size"}  # fmt: skip
"""What a kernel can ask to find in scalar registers, by the bit of its descriptor's properties."""


@dataclass(frozen=True)
class Descriptor:
  """What the hardware has to be told to start a kernel. `place` and `entry` are bytes into the image: of the
  descriptor, which is what a packet of a queue names, and of the first instruction."""

  place: int
  entry: int
  local_bytes: int
  """Of shared memory, for a workgroup."""
  private_bytes: int
  """Of memory for each thread: 0 unless registers were spilled."""
  argument_bytes: int
  rsrc1: int
  rsrc2: int
  rsrc3: int
  """COMPUTE_PGM_RSRC1, 2 and 3, as the hardware's registers take them."""
  properties: int
  preload: int

  @property
  def subgroup_size(self) -> int:
    """Threads that run in step."""
    return 32 if self.properties & WAVE32 else 64

  @property
  def wanted(self) -> tuple[str, ...]:
    """What has to be in its scalar registers."""
    return tuple([name for bit, name in USED.items() if self.properties >> bit & 1])


@dataclass(frozen=True)
class CodeObject:
  """A code object: `image` goes into executable memory at any multiple of a page, as it is."""

  image: bytes
  flags: int
  kernels: dict[str, Descriptor]
  metadata: dict[str, Any]

  @classmethod
  def parse(cls, code: bytes) -> CodeObject:
    """Read a file that `link` made, or ld.lld. Raises ElfError."""
    elf = Elf.parse(code)
    if elf.type != SHARED:
      raise ElfError(f"an ELF file of type {elf.type}, expected one that has been linked ({SHARED})")
    loaded = [s for s in elf.sections if s.flags & ALLOC]
    image = bytearray(max((s.address + s.size for s in loaded), default=0))
    for section in loaded:
      image[section.address : section.address + len(section.data)] = section.data
    kernels = {
      s.name.removesuffix(".kd"): _descriptor(bytes(image), s.value)
      for s in elf.symbols
      if s.name.endswith(".kd") and s.size == DESCRIPTOR.size
    }
    notes = [s.data for s in elf.sections if s.type == NOTE]
    return cls(bytes(image), elf.flags, kernels, _metadata(notes))

  @property
  def chip(self) -> str:
    """What its metadata say that it is for: "gfx1100"; empty if they do not say."""
    return str(self.metadata.get("amdhsa.target", "")).rpartition("--")[2].partition(":")[0]

  def about(self, kernel: str) -> dict[str, Any]:
    """The metadata of one kernel, without the dots of their names: `vgpr_count`, `vgpr_spill_count`, `args`, …"""
    rows = [row for row in self.metadata.get("amdhsa.kernels", ()) if row[".name"] == kernel]
    if not rows:
      raise KeyError(f"there is no kernel {kernel!r}: there are {', '.join(self.kernels)}")
    return {name.removeprefix("."): value for name, value in rows[0].items()}


def _descriptor(image: bytes, place: int) -> Descriptor:
  local, private, arguments, distance, rsrc3, rsrc1, rsrc2, properties, preload = DESCRIPTOR.unpack_from(image, place)
  return Descriptor(place, place + distance, local, private, arguments, rsrc1, rsrc2, rsrc3, properties, preload)


def _metadata(notes: list[bytes]) -> dict[str, Any]:
  for data in notes:
    at = 0
    while at + 12 <= len(data):
      name_size, size, kind = struct.unpack_from("<III", data, at)
      content = at + 12 + (name_size + 3 & ~3)
      if kind == METADATA and data[at + 12 : at + 12 + name_size].rstrip(b"\0") == b"AMDGPU":
        found = unpack(data[content : content + size])
        return found if isinstance(found, dict) else {}
      at = content + (size + 3 & ~3)
  return {}
