"""Kernels as a schedule: CALLs over BUFFERs, with temporaries and arenas that have no memory yet."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.kernels import Kernel
from tiny_sched.normalise import temporary_buffer
from tiny_sched.schedule_item import BufferRegion
from tiny_uop import DType, Ops, UOp, dtypes


def calls_of(kernels: Sequence[Kernel]) -> UOp:
  """The LINEAR of the kernels, in their order: each temporary is a BUFFER of its own, VARIABLEs stand for BINDs."""
  temporaries = _temporaries(kernels)

  def argument(region: BufferRegion) -> UOp:
    base = temporaries.get(region.base, region.base)
    return view_of(base, region.dtype, region.byte_offset, region.size)

  calls = [UOp(Ops.CALL, dtypes.void, (k.body, *[argument(p) for p in k.regions], *k.variables)) for k in kernels]
  return UOp(Ops.LINEAR, dtypes.void, tuple(calls))


def view_of(base: UOp, dtype: DType, byte_offset: int, size: int) -> UOp:
  """`size` elements from `byte_offset` of a BUFFER: a BUFFER_VIEW, or the BUFFER where that is all of it."""
  if byte_offset == 0 and size == base.arg[1] and dtype is base.dtype:
    return base
  return UOp(Ops.BUFFER_VIEW, dtype, (base,), (byte_offset, size))


def _temporaries(kernels: Sequence[Kernel]) -> dict[UOp, UOp]:
  """The BUFFER of each node that is kept in memory, on the device of its writer, large enough for all its users."""
  first: dict[UOp, tuple[BufferRegion, str]] = {}
  nbytes: dict[UOp, int] = {}
  for kernel in kernels:
    for region in kernel.regions:
      if region.base.op is not Ops.BUFFER:
        first.setdefault(region.base, (region, kernel.device))  # the writer comes first
        nbytes[region.base] = max(nbytes.get(region.base, 0), region.byte_offset + region.nbytes)
  found: dict[UOp, UOp] = {}
  for number, (base, (region, device)) in enumerate(first.items()):
    exact = nbytes[base] == region.nbytes
    dtype, size = (region.dtype, region.size) if exact else (dtypes.uint8, nbytes[base])
    found[base] = temporary_buffer(number, device, size, dtype)
  return found
