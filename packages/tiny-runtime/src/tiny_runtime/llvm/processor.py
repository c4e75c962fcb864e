"""What LLVM compiles for, and how its refusals are called."""

from __future__ import annotations

from typing import TypeAlias

from tiny_uop.records import dataclass

Level: TypeAlias = int | tuple[str, ...]
"""How much LLVM does: one of its -O levels, or names of function passes."""


class LLVMError(ValueError):
  """LLVM refused a text or an object."""


@dataclass(frozen=True)
class Processor:
  """What LLVM compiles for: triple, processor name and features in LLVM's spelling (`+avx2,-avx512f`)."""

  triple: str
  cpu: str = ""
  features: str = ""
