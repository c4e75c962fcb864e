"""What code depends on: the family that a GPU is of, and the version of the shading language that its system has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tiny_uop.updates import updates

Version = tuple[int, int]

MSL = "msl"
"""The form of binaries, and of programs from elsewhere."""
BFLOAT: Version = (3, 1)
"""The version of the language that brought `bfloat`."""
LATEST: Version = (3, 1)
"""The newest version that the code generator makes a difference for."""
ATOMICS = updates("ADD MAX AND OR XOR", ("int32", "uint32"))
"""Updates that threads may make at once: of 32 bits, by functions over atomic_int and atomic_uint (6.15.4)."""


@dataclass(frozen=True)
class Family:
  """GPUs that can do the same: a family of Apple's "Metal Feature Set Tables"."""

  number: int
  """`MTLGPUFamily`, as `supportsFamily:` takes it."""
  found_in: str
  matrices: bool
  """Multiplies matrices that a SIMD-group holds ("SIMD-scoped matrix multiply operations")."""
  bfloat: bool
  """Computes with `bfloat`."""
  threadgroup_memory: int = 32 << 10
  """Bytes that the threads of a threadgroup share, at most."""
  threads: int = 1024
  """Threads in a threadgroup, at most: in all and along each axis."""


# newest first, so that the first that a GPU says to be of is the one to compile for
FAMILIES: dict[str, Family] = {
  "apple10": Family(1010, "A19, M5", matrices=True, bfloat=True),
  "apple9": Family(1009, "A17 Pro, A18, M3, M4", matrices=True, bfloat=True),
  "apple8": Family(1008, "A15, A16, M2", matrices=True, bfloat=True),
  "apple7": Family(1007, "A14, M1", matrices=True, bfloat=True),
  "mac2": Family(2002, "GPUs of Macs with Intel's processors", matrices=False, bfloat=False),
}
"""The families of GPUs that kernels are written for, the newest first."""

_TEXT = re.compile(r"(\w+)(?: metal(\d+)\.(\d+))?")


@dataclass(frozen=True)
class Arch:
  """A family, and the version of the language."""

  name: str
  language: Version = LATEST

  @property
  def family(self) -> Family:
    """What GPUs of this arch can do."""
    return FAMILIES[self.name]

  @property
  def bfloat(self) -> bool:
    """Whether there is a type `bfloat`."""
    return self.family.bfloat and self.language >= BFLOAT

  def __str__(self) -> str:
    """`apple9`, or `apple9 metal3.0` for a system whose language is older than the one this package writes."""
    return self.name if self.language >= LATEST else f"{self.name} metal{self.language[0]}.{self.language[1]}"

  @classmethod
  def parse(cls, text: str) -> Arch:
    """The inverse of `str`. Raises ValueError for a family that is not in the table."""
    found = _TEXT.fullmatch(text)
    if found is None or found[1] not in FAMILIES:
      raise ValueError(
        f"arch {text!r} of METAL is none of {', '.join(FAMILIES)}, with `metal3.0`, say, behind it or not"
      )
    return cls(found[1], min(LATEST, (int(found[2]), int(found[3]))) if found[2] else LATEST)
