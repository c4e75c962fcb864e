"""The two kernels of a program that reads or writes memory in vectors: for any buffers, and for aligned ones.

Vectors have to be aligned to their size: the hardware traps otherwise. A kernel that chose for itself would have the
registers of both ways, so the host does, at each launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

WIDEST = 16
"""Bytes of the widest access, which buffers of the second kernel are aligned to."""
ALIGNED = "_aligned"
"""What the name of the second kernel ends with, as tiny-codegen's LLVM renderer writes it (`render/llvm/module.py`)."""


def entries(ptx: bytes, entry: str) -> tuple[str, ...]:
  """The names of the kernels in PTX: the one for any buffers, and the one for aligned buffers if there is one."""
  aligned = entry + ALIGNED
  return (entry, aligned) if b".entry %s(" % aligned.encode() in ptx else (entry,)


def are_aligned(addresses: Iterable[int]) -> bool:
  """Whether all buffers at these addresses are aligned."""
  return reduce(or_, addresses, 0) % WIDEST == 0
