"""Dynamic shared memory: what a program with much of it gets at its launch, as one array that ALLOCs have places in.

A program may have some bytes of shared memory (`static`, 48 KiB with CUDA) as arrays that it declares. One that needs
more declares a single array without a size, which its launch gives; each ALLOC then begins at an offset in that.
Of ALLOCs of 4096 and 200 bytes, `places_at_launch` gives

    static = 48 KiB:       {}, 0                              each is declared
    static = 4096 bytes:   {first: 0, second: 4096}, 4296     offsets and size of the one array, in bytes
"""

from __future__ import annotations

from tiny_codegen.instructions.tensor_core import MATRIX, SWIZZLE, TensorCore
from tiny_codegen.kernel.memory import element_of, nbytes_of, space_of
from tiny_uop import AddrSpace, Ops, UOp

LINE = 64  # bytes that an array of at least so many is aligned to
TILE = MATRIX * SWIZZLE  # bytes that an array of at least so many is aligned to, if tensor cores read it themselves


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
  """(offset of each ALLOC of shared memory, bytes of all of them) of a LINEAR. ({}, 0) if that is no more than `static`
  bytes, or if `static` is 0: the program then declares each."""
  places: dict[UOp, int] = {}
  end, tiles = 0, reads_shared_memory(linear)
  for u in linear.src:
    if u.op is Ops.ALLOC and space_of(u) is AddrSpace.LOCAL:
      align = alignment(u, tiles)
      places[u] = -(-end // align) * align
      end = places[u] + nbytes_of(u)
  return (places, end) if end > static > 0 else ({}, 0)
