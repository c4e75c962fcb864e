"""Kernels as the device launches them: the image, and the structure that describes a launch (QMD)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from tiny_runtime import Binary, CompileError
from tiny_runtime.hcq import Kernel, Launch, Sizes
from tiny_runtime_nv.arch import Arch
from tiny_runtime_nv.entries import ALIGNED, are_aligned
from tiny_runtime_nv.kernel_driver.cubin import CubinError, CubinKernel, parse
from tiny_runtime_nv.kernel_driver.generations import Generation
from tiny_runtime_nv.kernel_driver.qmd import QMD
from tiny_runtime_nv.kernel_driver.tables import qmd_layout
from tiny_runtime_nv.shared_memory import at_launch, without_note

ALIGNMENT = 256
"""Of code and constants in an image: more than either needs."""
STACK_POINTER, STACK_RESERVED = 0xFFFDC0, 0x240
"""Where a thread's stack begins in its 16 MiB of local memory, which is 0x240 bytes before their end."""
MOST_GROUPS = ((1 << 31) - 1, 65535, 65535)
MOST_THREADS = 1024
EVERY_GROUP = 0x3F
"""No group of launches in particular."""
CACHES = (
  "INVALIDATE_TEXTURE_HEADER_CACHE", "INVALIDATE_TEXTURE_SAMPLER_CACHE", "INVALIDATE_TEXTURE_DATA_CACHE",
  "INVALIDATE_SHADER_DATA_CACHE", "INVALIDATE_SHADER_CONSTANT_CACHE",
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class Windows:
  """Where shared and local memory are in the addresses of a thread."""

  shared: int
  local: int


@dataclass(slots=True, eq=False, kw_only=True)
class NVKernel(Kernel):
  """A kernel with what its launch has to say. `local` bytes of local memory a thread needs, `shared` a block."""

  about: CubinKernel
  generation: Generation
  version: int
  """Of the machine code: 0x86 for sm_86."""
  place: int
  """Of its code in the image."""
  shared: int
  banks: dict[int, tuple[int, int]]
  """Constant banks but 0: where in the image, and how many bytes."""
  made: dict[tuple[Sizes, Sizes], QMD] = field(default_factory=dict)
  """Launches that were asked for, but for their arguments."""
  whole: NVKernel | None = None
  """The kernel whose image and address this one has, too."""
  aligned: list[NVKernel] = field(default_factory=list)
  buffers: int = 0

  @classmethod
  def of(cls, binary: Binary, arch: Arch, generation: Generation, windows: Windows) -> NVKernel:
    """Read a cubin. Raises CompileError."""
    try:
      number, kernels = parse(without_note(binary.code))
    except CubinError as error:
      raise CompileError(f"kernel {binary.entry} is no cubin: {error}", binary.source) from error
    if binary.entry not in kernels:
      raise CompileError(f"a cubin without kernel {binary.entry}: it has {', '.join(kernels) or 'none'}", binary.source)
    if number != int("".join(map(str, arch.capability))):
      raise CompileError(f"kernel {binary.entry} is for sm_{number}, and this GPU runs code for {arch}", binary.source)
    image = bytearray(kernels[binary.entry].variables)  # which both kernels share
    made = [
      cls._read(binary, name, kernels[name], arch, generation, windows, image)
      for name in (binary.entry, f"{binary.entry}{ALIGNED}")
      if name in kernels
    ]
    whole = made[0]
    whole.image, whole.aligned, whole.buffers = bytes(image), made[1:], len(binary.params)
    for other in whole.aligned:
      other.whole = whole
    return whole

  @classmethod
  def _read(
    cls, binary: Binary, name: str, about: CubinKernel, arch: Arch, generation: Generation, windows: Windows,
    image: bytearray,
  ) -> NVKernel:  # fmt: skip
    """One kernel of a cubin, whose code and constants are put behind an image. Raises CompileError."""
    needs, (base, size) = 8 * (len(binary.params) + len(binary.variables)), about.parameters
    if size != needs:
      raise CompileError(f"kernel {name} takes {size} bytes of arguments, not {needs}", binary.source)
    shared = about.shared + at_launch(binary.code)
    if shared + generation.reserved > generation.shared[-1] << 10:
      most = (generation.shared[-1] << 10) - generation.reserved
      raise CompileError(f"kernel {name} needs {shared} bytes of shared memory, of {most}", binary.source)

    def put(data: bytes) -> tuple[int, int]:
      image.extend(bytes(-len(image) % ALIGNMENT) + data)
      return len(image) - len(data), len(data)

    place, _ = put(about.code)
    banks = {bank: put(data) for bank, data in about.constants.items()}
    head = bytearray(base)
    if needs:
      struct.pack_into("<QQ", head, generation.windows, windows.shared, windows.local)
      struct.pack_into("<I", head, generation.stack, STACK_POINTER)
    major, minor = arch.capability
    return cls(
      name, b"", about=about, generation=generation, version=major << 4 | minor, place=place, shared=shared,
      banks=banks, head=bytes(head),
    )  # fmt: skip

  def placed(self) -> bytes:
    """See Kernel: with the addresses of global variables, and these as they are at first."""
    image = bytearray(self.image)
    for kernel in (self, *self.aligned):
      for address in kernel.about.addresses:
        begin = 0 if address.bank is None else kernel.banks[address.bank][0]
        struct.pack_into("<Q", image, begin + address.at, self.address + address.place)
    return bytes(image)

  def variant(self, words: Sequence[int]) -> NVKernel:
    """See Kernel: the one that takes buffers at multiples of 16 bytes only, where all are."""
    if self.aligned and are_aligned(words[: self.buffers]):
      return self.aligned[0]
    return self

  def arguments(self, launch: Launch) -> memoryview:
    """See Kernel: its sizes stand before them."""
    data = bytearray(self.head)
    if data:
      for place, sizes in zip(self.generation.sizes, (launch.local_size, launch.global_size)):
        struct.pack_into("<3I", data, place, *sizes)
    return memoryview(data + array("Q", launch.words).tobytes())

  @property
  def local(self) -> int:
    """Bytes of local memory that a thread needs, counted from their end."""
    stack = max(kernel.about.stack for kernel in (self, *self.aligned))
    return -(-(stack + STACK_RESERVED) // 16) * 16 if stack else 0

  def check(self, groups: Sizes, threads: Sizes) -> None:
    """Raises ValueError for sizes that the GPU does not take, or the kernel."""
    wanted = self.about.threads
    if any(n > most for n, most in zip(groups, MOST_GROUPS)) or prod(threads) > MOST_THREADS or threads[2] > 64:
      raise ValueError(
        f"kernel {self.name}, {groups} blocks of {threads} threads: a block has {MOST_THREADS} at most, 64 along z,"
        f" and a grid {MOST_GROUPS}"
      )
    if wanted is not None and wanted != threads:
      raise ValueError(f"kernel {self.name} is for blocks of {wanted} threads, not {threads}")

  def launch(self, arguments: int, groups: Sizes, threads: Sizes) -> bytes:
    """The structure of a launch with constant bank 0 at an address. Raises ValueError."""
    made = self.made.get((groups, threads))
    if made is None:
      self.check(groups, threads)
      made = self.made[groups, threads] = self._launch(groups, threads)
    qmd = QMD(made.layout, made.value)
    qmd.address("CONSTANT_BUFFER_ADDR", arguments, 0)
    return bytes(qmd)

  def _launch(self, groups: Sizes, threads: Sizes) -> QMD:
    generation, about = self.generation, self.about
    qmd = QMD(qmd_layout(generation.qmd))
    major, minor = map(int, generation.qmd.split("."))
    qmd["QMD_MAJOR_VERSION"] = major
    qmd["QMD_VERSION" if "QMD_VERSION" in qmd else "QMD_MINOR_VERSION"] = minor
    qmd["QMD_GROUP_ID"] = EVERY_GROUP
    if "QMD_TYPE" in qmd:
      qmd["QMD_TYPE"] = "GRID_CTA"
    if "SM_GLOBAL_CACHING_ENABLE" in qmd:
      qmd["SM_GLOBAL_CACHING_ENABLE"] = 1
    qmd["SASS_VERSION"] = self.version
    qmd["API_VISIBLE_CALL_LIMIT"] = "NO_CHECK"
    qmd["SAMPLER_INDEX"] = "VIA_HEADER_INDEX"
    qmd["CWD_MEMBAR_TYPE"] = "L1_SYSMEMBAR"
    for cache in CACHES:
      qmd[cache] = 1
    kind = "GRID" if "GRID_WIDTH" in qmd else "CTA_RASTER"
    for axis, (name, count) in enumerate(zip(("WIDTH", "HEIGHT", "DEPTH"), groups)):
      qmd[f"{kind}_{name}"] = count
      qmd[f"CTA_THREAD_DIMENSION{axis}"] = threads[axis]
    qmd["REGISTER_COUNT_V" if "REGISTER_COUNT_V" in qmd else "REGISTER_COUNT"] = about.registers
    qmd["BARRIER_COUNT"] = about.barriers
    base = (self.whole or self).address
    qmd.address("PROGRAM_ADDRESS", base + self.place)
    self._memories(qmd)
    self._bank(qmd, 0, -(-(about.parameters[0] + about.parameters[1]) // 16) * 16)
    for bank, (place, nbytes) in self.banks.items():
      self._bank(qmd, bank, -(-nbytes // 16) * 16)
      qmd.address("CONSTANT_BUFFER_ADDR", base + place, bank)
    return qmd

  def _memories(self, qmd: QMD) -> None:
    """Shared memory, with what a multiprocessor is to set aside for it: in steps of 4 KiB, counted from 1; and local
    memory."""
    unit = 128 if "SHARED_MEMORY_SIZE_SHIFTED7" in qmd else 256
    shared = -(-self.shared // unit) * unit
    aside = next(kib for kib in self.generation.shared if kib << 10 >= shared + self.generation.reserved)
    qmd.shifted("SHARED_MEMORY_SIZE", shared)
    for which, kib in (("MIN", aside), ("TARGET", aside), ("MAX", self.generation.shared[-1])):
      qmd[f"{which}_SM_CONFIG_SHARED_MEM_SIZE"] = kib // 4 + 1
    qmd.shifted("SHADER_LOCAL_MEMORY_HIGH_SIZE", self.local)

  @staticmethod
  def _bank(qmd: QMD, bank: int, nbytes: int) -> None:
    qmd["CONSTANT_BUFFER_VALID", bank] = 1
    qmd["CONSTANT_BUFFER_INVALIDATE", bank] = 1
    qmd["CONSTANT_BUFFER_SIZE_SHIFTED4", bank] = nbytes >> 4
