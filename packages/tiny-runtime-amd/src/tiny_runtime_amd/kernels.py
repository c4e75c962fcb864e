"""Kernels as packets name them, and those that copy bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from tiny_runtime import Binary, CompileError
from tiny_runtime.compile_cache import compile_cached
from tiny_runtime.hcq import Kernel, Launch, Sizes
from tiny_runtime_amd.aql import MOST_THREADS
from tiny_runtime_amd.arch import Arch
from tiny_runtime_amd.code_object import CodeObject, Descriptor
from tiny_runtime_amd.compiler import AMDCompiler
from tiny_runtime_amd.elf import ElfError
from tiny_uop import Context, KernelInfo, Opt, OptOps, UOp, dtypes


@dataclass(slots=True, eq=False)
class AMDKernel(Kernel):
  """A kernel with its descriptor. A workgroup has `threads` at most."""

  descriptor: Descriptor = None  # type: ignore[assignment]  # fields without a default cannot follow
  threads: int = 1024

  @classmethod
  def of(cls, binary: Binary) -> AMDKernel:
    """Read a code object. Raises CompileError."""
    try:
      code = CodeObject.parse(binary.code)
    except ElfError as error:
      raise CompileError(f"kernel {binary.entry} is no code object: {error}", binary.source) from error
    if binary.entry not in code.kernels:
      names = ", ".join(code.kernels) or "none"
      raise CompileError(f"a code object without kernel {binary.entry}: it has {names}", binary.source)
    threads = code.about(binary.entry).get("max_flat_workgroup_size", 1024)
    descriptor = code.kernels[binary.entry]
    needs = 8 * (len(binary.params) + len(binary.variables))
    if descriptor.argument_bytes != needs:
      raise CompileError(
        f"kernel {binary.entry} takes {descriptor.argument_bytes} bytes of arguments, not {needs}", binary.source
      )
    return cls(binary.entry, code.image, 0, descriptor, threads)

  def check(self, groups: Sizes, threads: Sizes) -> None:
    """Raises ValueError for sizes that the GPU does not take."""
    most = max(count * size for count, size in zip(groups, threads))
    if prod(threads) > self.threads or most > MOST_THREADS:
      raise ValueError(
        f"kernel {self.name}, {groups} workgroups of {threads} threads: a workgroup has {self.threads} at most, and an "
        f"axis {MOST_THREADS}"
      )


GROUP, LANES = 256, 4
"""Threads of a workgroup that copies, and words that one of them copies in the wide kernel."""
PIECE = GROUP * LANES * dtypes.uint32.itemsize
"""Bytes of a workgroup of that."""
MOST = 1 << 18
"""Workgroups of a copy: 2^28 words, so that a place in them is a number of 32 bits."""


def wide_kernel() -> UOp:
  """`n` workgroups copy whole pieces."""
  n = UOp.variable("n", 1, MOST)
  i = UOp.range(n * (GROUP * LANES), 0)
  to, of = (UOp.param(slot, dtypes.uint32.ptr(MOST * GROUP * LANES)).index(i) for slot in range(2))
  opts = (Opt(OptOps.UPCAST, 0, LANES), Opt(OptOps.LOCAL, 0, GROUP))
  return UOp.sink(to.store(of.load()).end(i), arg=KernelInfo("copy_wide", opts))


def narrow_kernel() -> UOp:
  """`n` threads copy a byte each."""
  most = MOST * GROUP
  n = UOp.variable("n", 1, most)
  group, thread = UOp.range((n + (GROUP - 1)) // GROUP, 0), UOp.range(GROUP, 1)
  item = group * GROUP + thread
  to, of = (UOp.param(slot, dtypes.uint8.ptr(most)).index(item, item < n) for slot in range(2))
  opts = (Opt(OptOps.LOCAL, 0, GROUP),)
  return UOp.sink(to.store(of.load()).end(group, thread), arg=KernelInfo("copy_bytes", opts))


@cache
def copy_binaries(arch: Arch) -> tuple[Binary, Binary]:
  """What copies pieces of 4 KiB, and what copies bytes. From the cache on disk, if they are there."""
  with Context(NOOPT=0, BEAM=0):
    wide, narrow = (
      compile_cached(kernel, AMDCompiler(arch), "tiny-runtime-amd") for kernel in (wide_kernel(), narrow_kernel())
    )
  return wide, narrow


class Copier:
  """Copies of bytes as launches of two kernels, whose code is in place."""

  def __init__(self, wide: Kernel, narrow: Kernel) -> None:
    self.wide, self.narrow = wide, narrow

  def __call__(self, target: int, source: int, nbytes: int) -> list[Launch]:
    """What copies bytes from one address to another that do not overlap. Words want addresses that are multiples of 4:
    the bytes up to there come first, if there are such."""
    word = dtypes.uint32.itemsize
    head = min(nbytes, -target % word) if (target - source) % word == 0 else nbytes
    body = (nbytes - head) // PIECE
    launches: list[Launch] = []
    place = 0
    for kernel, size, threads, count in (
      (self.narrow, 1, 1, head),
      (self.wide, PIECE, GROUP, body),
      (self.narrow, 1, 1, nbytes - head - body * PIECE),
    ):
      most = MOST * GROUP // threads
      for begin in range(0, count, most):
        n = min(most, count - begin)
        groups = -(-n * threads // GROUP)
        launches.append(Launch(kernel, (target + place, source + place, n), (groups, 1, 1), (GROUP, 1, 1)))
        place += n * size
    return launches
