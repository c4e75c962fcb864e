"""Linked kernels, and how the work of one is divided among threads."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tiny_runtime import Binary, CompileError
from tiny_runtime.llvm import LLVMError
from tiny_runtime_cpu.machine import LoadedObject
from tiny_runtime_cpu.pool import kernel_at

# more parts than threads evens out what the threads get done; each part costs about 50 ns
PARTS_PER_THREAD = 4
# where some cores are slower, what one of them began last is waited for: smaller parts
PARTS_PER_UNEVEN_THREAD = 16

# from so many threads on, one more does no harm
MANY = 8

# what one thread gets done per nanosecond, roughly, and how many nanoseconds of work are worth another thread: to wake
# one takes from 1 microsecond (still spinning) to 50 (asleep on a processor that sleeps too)
OPS_PER_NS, BYTES_PER_NS, NS_PER_THREAD = 32, 32, 16_000


def threads_for(nanoseconds: float, each: int = NS_PER_THREAD) -> int:
  """How many threads so much work can keep busy, if `each` is to get so many nanoseconds of it."""
  return 1 + int(nanoseconds / each)


def divide(extent: int, useful: int, limit: int, uneven: bool = False) -> tuple[int, int]:
  """(parts, threads) for a loop over [0, extent) that can keep `useful` threads busy, of which there are `limit`; some
  of them are slower than others if they are `uneven`."""
  threads = max(1, min(extent, useful, limit))
  if threads > MANY:
    # of 512 iterations, 63 threads would have 8 or 9 each; 64 have 8
    even = -(-extent // (extent // threads))
    threads = even if even <= min(limit, threads * 9 // 8) else threads
  return min(extent, threads * (PARTS_PER_UNEVEN_THREAD if uneven else PARTS_PER_THREAD)), threads


class Program:
  """A linked kernel: where it is, and what a launch has to pack."""

  def __init__(self, binary: Binary) -> None:
    try:
      self.object = LoadedObject(binary.code, binary.entry)
    except LLVMError as error:
      raise CompileError(f"kernel {binary.entry} cannot be linked: {error}", binary.source) from error
    self.address = self.object.address(binary.entry)
    self.function = kernel_at(self.address)
    self.name = binary.entry
    self.needs = tuple(p.size * p.dtype.itemsize for p in binary.params)
    self.variables = binary.variables
    # by the compiler's estimates
    self.nanoseconds = max(int(binary.ops.vmax) / OPS_PER_NS, int(binary.nbytes.vmax) / BYTES_PER_NS)
    self.useful_threads = threads_for(self.nanoseconds)
    self.pack_buffers = struct.Struct(f"{len(self.needs)}P").pack
    self.pack_integers = struct.Struct(f"{len(self.variables)}q").pack

  def check_count(self, buffers: Sequence[object], integers: Sequence[int]) -> None:
    """Raises ValueError for the wrong number of arguments."""
    if len(buffers) != len(self.needs) or len(integers) != len(self.variables):
      raise ValueError(
        f"kernel {self.name} takes {len(self.needs)} buffers and the {len(self.variables)} integers "
        f"{self.variables}, got {len(buffers)} buffers and {len(integers)} integers"
      )
