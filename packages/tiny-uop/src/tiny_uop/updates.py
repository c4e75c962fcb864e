"""Atomic updates of memory by name, as `GLOBAL ADD int32`: records of targets and of devices have sets of them."""

from __future__ import annotations

from collections.abc import Iterable

from tiny_uop.dtype import dtypes


def updates(operations: str, types: Iterable[str], spaces: str = "GLOBAL LOCAL") -> frozenset[str]:
  """Each of the operations on each of the types, in each of the memories."""
  return frozenset(f"{s} {op} {kind}" for kind in types for op in operations.split() for s in spaces.split())


HOST_UPDATES = updates("ADD MAX AND OR XOR", [d.name for d in dtypes.ints], "GLOBAL")
HOST_UPDATES |= updates("ADD", ("float32", "float64"), "GLOBAL")
"""What a processor does as one step, by instructions or in a loop that LLVM makes."""
GPU_UPDATES = updates("ADD MAX AND OR XOR", ("int32", "uint32", "int64", "uint64")) | updates("ADD", ("float32",))
"""What a GPU does as one step, unless it says otherwise."""
