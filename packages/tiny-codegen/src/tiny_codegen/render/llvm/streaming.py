"""Streaming stores: what a kernel writes goes past the caches where it could not stay in them.

An ordinary store of a whole cache line first reads the line; a streaming ("non-temporal") one writes it, and evicts
nothing. That pays where a kernel touches more memory than the last cache level holds, so that whoever reads the result
finds nothing of it there anyway. Streaming stores have to be aligned, and other threads see them only after a fence.
So the body of such a kernel is there twice, and its entry point looks at the buffers' addresses.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiny_codegen.kernel.loops import factor
from tiny_codegen.target import KEPT
from tiny_uop import Ops, ProgramInfo, UOp

LINE = 64  # bytes of a cache line
PLAIN, STREAMED = ", align 1 ; streamed", ", align 64, !nontemporal !0"


def past_caches(info: ProgramInfo) -> bool:
  """Whether a program touches more memory than caches keep."""
  return sum(p.size * p.dtype.itemsize for p in info.params) > KEPT


def may_stream(store: UOp, loops: Iterable[UOp], info: ProgramInfo) -> bool:
  """Whether a STORE inside `loops` writes whole, aligned lines (if its buffer is aligned) of a buffer that the program
  does not read, each of them once."""
  pointer, offset = store.src[0].src[:2]
  if pointer.op is not Ops.PARAM or any(p.slot == pointer.arg and p.read for p in info.params):
    return False
  size = store.src[1].dtype.scalar().itemsize
  if store.src[1].dtype.count * size % LINE or (factor(offset) * size) % LINE:
    return False
  varying = offset.ranges
  return all(loop in varying for loop in loops)
