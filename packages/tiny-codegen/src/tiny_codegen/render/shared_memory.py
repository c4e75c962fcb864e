"""Where the arrays of shared memory are that a workgroup gets when it is launched."""

from __future__ import annotations

from tiny_codegen.instructions.tensor_core import MATRIX, SWIZZLE, TensorCore
from tiny_codegen.kernel.memory import element_of, nbytes_of, space_of
from tiny_uop import AddrSpace, Ops, UOp

LINE = 64  # bytes that an array of at least so many is aligned to
TILE = MATRIX * SWIZZLE  # the same of one that tensor cores read themselves


def reads_shared_memory(linear: UOp) -> bool:
  """Whether tensor cores of a LINEAR read shared memory themselves."""
  return any(u.op is Ops.MMA and isinstance(u.arg, TensorCore) and u.arg.shared is not None for u in linear.src)


def alignment(memory: UOp, tiles: bool = False) -> int:
  """Bytes that an ALLOC begins at a multiple of. `tiles`: tensor cores read shared memory themselves."""
  if tiles and nbytes_of(memory) >= TILE:
    return TILE
  if nbytes_of(memory) >= LINE:
    return LINE
  return max(16, 1 << (element_of(memory).itemsize - 1).bit_length())


def places_at_launch(linear: UOp, static: int) -> tuple[dict[UOp, int], int]:
  """(where the ALLOCs of shared memory begin, in bytes, the bytes of all of them) of a LINEAR, if they are more than
  `static` bytes, which are what a program may have without asking; else nothing, and 0."""
  places: dict[UOp, int] = {}
  end, tiles = 0, reads_shared_memory(linear)
  for u in linear.src:
    if u.op is Ops.ALLOC and space_of(u) is AddrSpace.LOCAL:
      align = alignment(u, tiles)
      places[u] = -(-end // align) * align
      end = places[u] + nbytes_of(u)
  return (places, end) if end > static > 0 else ({}, 0)
