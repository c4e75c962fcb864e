"""What code is made for: one row per architecture, and which row a GPU gets."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_runtime.llvm import Processor

TRIPLE = "amdgcn-amd-amdhsa"
FORM = "code-object"
"""Of binaries, and of programs from elsewhere."""


@dataclass(frozen=True)
class Arch:
  """An architecture, by LLVM's name. `subgroup_size` threads run in step, a wave; a workgroup has up to `local_memory`
  bytes."""

  name: str
  subgroup_size: int
  local_memory: int = 64 << 10
  private_buffer: bool = False
  """Kernels ask for a buffer of private memory, whose descriptor the queue has; elsewhere the hardware itself tells a
  wave where its own is."""

  @property
  def processor(self) -> Processor:
    """What LLVM has to know; the size of a wave is its own choice, and the one of this table. Linux sets GPUs up for
    accesses that are not aligned."""
    return Processor(TRIPLE, self.name, "+unaligned-access-mode")

  @property
  def major(self) -> int:
    """9 for CDNA, 11 for RDNA 3 and 3.5, 12 for RDNA 4."""
    return self.version // 10000

  @property
  def version(self) -> int:
    """How the kernel driver writes it (`gfx_target_version` in sysfs): 90402 for gfx942, 110000 for gfx1100."""
    digits = self.name.removeprefix("gfx")
    major, minor, step = int(digits[:-2]), int(digits[-2]), int(digits[-1], 16)
    return major * 10000 + minor * 100 + step

  def __str__(self) -> str:
    return self.name

  @classmethod
  def of(cls, version: int) -> Arch | None:
    """The one with this `version`; None if it is not in the table."""
    return next((arch for arch in ARCHS if arch.version == version), None)

  @classmethod
  def parse(cls, text: str) -> Arch:
    """The inverse of `str`. Raises ValueError for a name that is not in the table."""
    for arch in ARCHS:
      if arch.name == text:
        return arch
    names = ", ".join(arch.name for arch in ARCHS)
    raise ValueError(f"no architecture of an AMD GPU that is known: {text!r}, expected one of {names}")


ARCHS = (
  Arch("gfx1100", 32),
  Arch("gfx1101", 32),
  Arch("gfx1102", 32),
  Arch("gfx1103", 32),
  Arch("gfx1150", 32),
  Arch("gfx1151", 32),
  Arch("gfx1200", 32),
  Arch("gfx1201", 32),
  Arch("gfx90a", 64, private_buffer=True),
  Arch("gfx942", 64),
  Arch("gfx950", 64, 160 << 10),
)
"""RDNA 3 (Radeon RX 7900, 7800, 7600, Ryzen 7040), RDNA 3.5 (Ryzen AI 300, AI Max), RDNA 4 (RX 9060, RX 9070), CDNA 2
(Instinct MI200), CDNA 3 (MI300), CDNA 4 (MI350)."""
