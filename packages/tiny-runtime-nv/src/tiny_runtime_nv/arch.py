"""What PTX is written for: one row per architecture, and which row a GPU gets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tiny_runtime.llvm import Processor

TRIPLE = "nvptx64-nvidia-cuda"
PTX, CUBIN = "ptx", "cubin"
"""Forms of programs from elsewhere."""


@dataclass(frozen=True)
class Arch:
  """An architecture, by the name that LLVM and ptxas give it.

  `ptx` is the version of PTX that is written, ×10: the first that knows the architecture and its matrix instructions,
  so that the oldest possible driver reads it. PTX runs on later architectures too, but for one whose name ends in "a".
  """

  name: str
  ptx: int
  shared: int
  """KiB of shared memory that a block may have. A multiprocessor has 1 more for all of its blocks, of which the system
  takes 1 for each; on Turing it has as many (CUDA Programming Guide, "Compute Capabilities")."""
  bfloat16: bool = True
  """It computes with bfloat16."""

  @property
  def capability(self) -> tuple[int, int]:
    """(major, minor), as the driver counts: 9.0 is sm_90a."""
    digits = self.name.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])

  @property
  def shared_memory(self) -> int:
    """Bytes of shared memory that a block may have."""
    return self.shared << 10

  @property
  def shared_memory_for_all(self) -> int:
    """Bytes of shared memory that the blocks on a multiprocessor have together, less what the system takes of each of
    two blocks: 1 KiB from sm_80 on."""
    return (self.shared - (self.capability >= (8, 0))) << 10

  @property
  def processor(self) -> Processor:
    """What LLVM has to know."""
    return Processor(TRIPLE, self.name, f"+ptx{self.ptx}")

  def runs(self, ptx: str) -> bool:
    """Whether PTX that was written for an architecture, of that name, runs here: on later ones too, unless it has what
    only one has."""
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", ptx)
    if found is None or found[3]:
      return ptx == self.name
    return (int(found[1]), int(found[2])) <= self.capability

  def __str__(self) -> str:
    return self.name

  @classmethod
  def parse(cls, text: str) -> Arch:
    """The inverse of `str`. Raises ValueError for a name that is not in the table."""
    for arch in ARCHS:
      if arch.name == text:
        return arch
    names = ", ".join(arch.name for arch in ARCHS)
    raise ValueError(f"no architecture of an NVIDIA GPU: {text!r}, expected one of {names}")

  @classmethod
  def of(cls, major: int, minor: int) -> Arch | None:
    """The row for a GPU of a compute capability: its own, else the newest one before it whose PTX it can run. None for
    GPUs older than the table."""
    own = [a for a in ARCHS if a.capability == (major, minor)]
    before = [a for a in ARCHS if a.capability < (major, minor) and not a.name.endswith("a")]
    return own[-1] if own else max(before, key=lambda a: a.capability, default=None)


ARCHS = (
  Arch("sm_75", 65, 64, bfloat16=False),
  Arch("sm_80", 70, 163),
  Arch("sm_86", 71, 99),
  Arch("sm_89", 78, 99),
  Arch("sm_90a", 80, 227),
  Arch("sm_100", 86, 227),
  Arch("sm_120", 87, 99),
)
"""Turing, Ampere, its small version, Ada, Hopper, Blackwell, its small version."""
