"""What a target can do, as data: `Target` (types, operations, instructions, caches), with its Limits and CostModel."""

from __future__ import annotations

import re

from tiny_codegen.cost_model import CostModel
from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.instructions.tensor_core import TensorCore
from tiny_uop import AddrSpace, DType, Ops
from tiny_uop.records import dataclass

# Bytes of which a part may still be in a cache when the next kernel comes, whatever the last level claims to hold (in a
# virtual machine that is true of the whole host). Copies that read what the copy before wrote, on a server core with
# 2 MiB of its own: streaming is 1.2 times as fast where each touches 16 MiB, 1.5 times from 64 MiB on.
KEPT = 32 << 20
# with up to so many threads the shares of eight iterations are even enough
FEW_THREADS = 4

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


@dataclass(frozen=True)
class Limits:
  """Limits of a launch."""

  max_global: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
  """Workgroups of each axis, at most."""
  max_local: tuple[int, int, int] = (1, 1, 1)
  """Threads of a workgroup along each axis, at most."""
  max_workgroup: int = 1
  """Threads of a workgroup, at most."""
  shared_memory: int = 0
  """Bytes of LOCAL memory of a program, at most: shared memory of a workgroup; on a processor, buffers of a thread."""
  shared_memory_for_all: int = 0
  """Bytes of shared memory of all workgroups that run on one processor at the same time. 0: unknown."""

  def has_room(self, needed: int, wanted: int) -> bool:
    """Whether a program that needs so many bytes of shared memory should take more of it: only as far as two workgroups
    still have room on one processor, if they have without."""
    half = self.shared_memory_for_all // 2
    return wanted <= self.shared_memory and (not half or wanted <= half or needed > half)


@dataclass(frozen=True)
class Target:
  """What a target can do. Passes ask this record; nobody compares names of targets."""

  native_dtypes: frozenset[DType]
  """Types of registers and arithmetic. Others are emulated (`tiny_codegen.decompose`)."""
  native_ops: frozenset[Ops]
  """Elementwise ops that the renderer writes directly. Others are decomposed."""
  atomics: frozenset[str] = frozenset()
  """Updates of memory that several threads may make at once (STOREs with an atomic Accumulate), as `tiny_uop.updates`
  names them: `GLOBAL ADD int32`."""
  vector_bits: int = 0
  """Bits of a vector register. 0: a scalar machine."""
  vector_registers: int = 16
  """How many vector registers there are."""
  max_vector_lanes: int = 1
  """Lanes of a vector in the program, at most."""
  bfloat16_of_integers: bool = True
  """An integer becomes bfloat16 with one rounding. False: by way of float32, with two."""
  has_fma: bool = False
  """`a*b + c` may be fused: MULACC, one rounding."""
  masked_loads: bool = True
  """Vectors are loaded of which some lanes may not happen. False: that would be a branch for each lane."""
  multiplies_by_lane: frozenset[DType] = frozenset()
  """Types of which multiply-adds and dot products take one lane of a register, for all lanes of the other factor."""
  has_threads: bool = False
  """An outermost loop may be a THREAD loop, which several workers share."""
  threads: int = FEW_THREADS
  """How many workers there may be: the THREAD loop gets as many iterations as make their shares even, where it can."""
  has_prefetch: bool = False
  """Programs may ask for a cache line before they use it (PREFETCH)."""
  wide_offsets: bool = False
  """Offsets are int64, as addresses are, and not int32 where that will do."""
  has_streaming: bool = False
  """Stores may go past the caches (STOREs with `STREAMING`)."""
  has_local: bool = False
  """There are workgroups of threads, with shared memory and barriers."""
  subgroup: int = 0
  """Threads of a subgroup (warp), which exchange values of native types (SHUFFLE). 0: threads exchange none."""
  async_copy: int = 0
  """Bytes of a piece, aligned to as many, that is copied to shared memory while threads go on. 0: there are none."""
  tensor_cores: tuple[TensorCore, ...] = ()
  """Matrix instructions of a GPU, best first."""
  matrix_loads: bool = False
  """Threads of a subgroup load fragments from shared memory together (`MatrixLoad`)."""
  dot_products: tuple[tuple[DotProduct, float], ...] = ()
  """Instructions that add several products to each lane, best first, and how many start in the time of a multiply-add
  of float32 vectors; of a `MatrixProduct`, how many vectors of a row and a word."""
  caches: CacheSizes = CacheSizes()
  """Data caches of a core."""
  limits: Limits = Limits()
  """Limits of a launch."""
  cost: CostModel = CostModel()
  """Figures of time, for estimates."""

  @property
  def has_masks(self) -> bool:
    """Vectors have mask registers: some lanes of a load or store may not happen, for nothing more."""
    return self.vector_bits >= 512

  def has_atomic(self, space: AddrSpace, op: Ops, dtype: DType) -> bool:
    """Whether threads may make such an update at once."""
    return f"{space.name} {op.name} {dtype.name}" in self.atomics

  def lanes(self, dtype: DType) -> int:
    """How many elements of the scalar `dtype` fill one vector register; 1 on a scalar machine."""
    return max(1, min(self.max_vector_lanes, self.vector_bits // max(8, dtype.bits)))
