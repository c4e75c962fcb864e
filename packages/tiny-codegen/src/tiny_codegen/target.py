"""What a target can do, as data: its types, operations, memories, instructions and limits. Passes ask this record."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.instructions.tensor_core import TensorCore
from tiny_uop import AddrSpace, DType, Ops
from tiny_uop.records import dataclass

# Bytes of which a part may still be in a cache when the next kernel comes, whatever the last level claims to hold (in a
# virtual machine that is true of the whole host). Copies that read what the copy before wrote, on a server core with
# 2 MiB of its own: streaming is 1.2 times as fast where each touches 16 MiB, 1.5 times from 64 MiB on.
KEPT = 32 << 20

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_SIZE = re.compile(r"(\d+)([KMG]?)")


@dataclass(frozen=True)
class CacheSizes:
  """Bytes of the data caches that one core has: of the first and the second level, and its share of the last one (0:
  there is none beyond the second)."""

  first: int = 32 << 10
  second: int = 1 << 20
  last: int = 0

  @classmethod
  def parse(cls, text: str) -> CacheSizes:
    """`48K,2M,16M`, or without units; the last may be left out. Raises ValueError for anything else."""
    found = [_SIZE.fullmatch(part.strip()) for part in text.split(",")]
    sizes = [int(size[1]) << _UNITS[size[2]] for size in found if size is not None]
    if len(sizes) != len(found) or len(sizes) not in (2, 3) or not all(sizes[:2]):
      raise ValueError(f"no cache sizes: {text!r}, expected bytes of the first, second and last level, as 48K,2M,16M")
    return cls(*sizes)


Atomic = tuple[AddrSpace, Ops, DType]
"""An update that is made as one step: of memory that is GLOBAL or LOCAL, by an operation, of a type."""


def atomics(ops: Iterable[Ops], types: Iterable[DType], *spaces: AddrSpace) -> frozenset[Atomic]:
  """All of these operations on all of these types, in memory that is GLOBAL or LOCAL unless told otherwise."""
  return frozenset(itertools.product(spaces or (AddrSpace.GLOBAL, AddrSpace.LOCAL), tuple(ops), tuple(types)))


def names_of(updates: Iterable[Atomic]) -> frozenset[str]:
  """Atomic updates as tiny-runtime's record of a device has them: `GLOBAL ADD int32`."""
  return frozenset(f"{space.name} {op.name} {dtype.name}" for space, op, dtype in updates)


@dataclass(frozen=True)
class Capabilities:
  """What a target can do. Passes ask this record; nobody compares target names.

  `native_dtypes` are the types that registers and arithmetic hold; any other dtype is emulated
  (`tiny_codegen.decompose`). `native_ops` are the elementwise ops the renderer writes directly; the others are
  decomposed. `atomics` are the updates of memory that several threads may make at once (STOREs with an atomic
  Accumulate), by where it is, what is done and the type. `vector_bits` is the width of a vector register (0: a scalar
  machine), `vector_registers` how many there are, `max_vector_lanes` the widest vector that a value of the program
  may have. `has_fma` allows `a*b + c` to be fused (MULACC, one rounding). `has_threads`: an outermost loop can be a
  THREAD loop that several workers share. `has_local`: workgroups of threads with shared memory and barriers. `wave`:
  so many neighbours of a workgroup run in step and exchange values of native types (SHUFFLE; 0: none do).
  `max_global` / `max_local` bound the launch sizes per axis, `max_workgroup` the threads of one workgroup,
  `shared_memory_bytes` the near memory (LOCAL) one program may take, `shared_memory_for_all` what the workgroups that
  run on one processor at the same time have together (0: unknown). `async_copy`: pieces of so many bytes, aligned to
  that, may be copied to near memory while threads go on (0: the target has no such instruction). `tensor_cores` are
  the matrix instructions, best first; `matrix_loads`: the threads of a warp load fragments from near memory together
  (`MatrixLoad`). `dot_products` are instructions that add several products to each lane, best first, each with how
  many of it the target starts in the time of one multiply-add of float32 vectors; of one that multiplies matrices (a
  `MatrixProduct`), how many vectors of a row and a word. `caches` are those of a core, and
  `multiply_adds` says how many vectors it multiplies and adds in a cycle, `loads` how many vectors and scalars it
  reads for them, where they are in the first cache level, and `load_cycles` by how many cycles each of these delays
  multiplying and adding. `scattered` is how many times as long a step of a sum takes that reads a few elements
  of many cache lines, or of lines that are not next to each other, where these are in the second cache level, and where
  they are beyond; `beyond`, how many times as long one takes whose panels do not stay in the second cache level, and
  one of a single tap whose strided window does not. `piece_cycles` are those of starting on a piece of memory that is
  not next to the one before, where it does not stay in a cache.
  """

  native_dtypes: frozenset[DType]
  native_ops: frozenset[Ops]
  atomics: frozenset[Atomic] = frozenset()
  vector_bits: int = 0
  vector_registers: int = 16
  max_vector_lanes: int = 1
  has_fma: bool = False
  has_threads: bool = False
  has_local: bool = False
  wave: int = 0
  max_global: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
  max_local: tuple[int, int, int] = (1, 1, 1)
  max_workgroup: int = 1
  shared_memory_bytes: int = 0
  shared_memory_for_all: int = 0
  async_copy: int = 0
  tensor_cores: tuple[TensorCore, ...] = ()
  matrix_loads: bool = False
  dot_products: tuple[tuple[DotProduct, float], ...] = ()
  caches: CacheSizes = CacheSizes()
  multiply_adds: float = 2.0
  loads: float = 2.0
  load_cycles: float = 0.0
  scattered: tuple[float, float] = (1.0, 1.0)
  beyond: tuple[float, float] = (1.0, 1.0)
  piece_cycles: float = 40.0

  def has_room(self, needed: int, wanted: int) -> bool:
    """Whether a program that needs so many bytes of near memory should take more of it: only as far as two workgroups
    still have room on one processor, if they have without."""
    half = self.shared_memory_for_all // 2
    return wanted <= self.shared_memory_bytes and (not half or wanted <= half or needed > half)

  def lanes(self, dtype: DType) -> int:
    """How many elements of the scalar `dtype` fill one vector register; 1 on a scalar machine."""
    return max(1, min(self.max_vector_lanes, self.vector_bits // max(8, dtype.bits)))
