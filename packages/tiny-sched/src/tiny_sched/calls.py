"""Kernels as a schedule: CALLs over BUFFERs, with temporaries and arenas that have no memory yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_sched.kernels import Kernel
from tiny_sched.normalise import temporary_buffer
from tiny_sched.schedule_item import BufferRegion
from tiny_uop import Ops, UOp, dtypes


def calls_of(kernels: Sequence[Kernel]) -> UOp:
  """The LINEAR of the kernels, in their order: each temporary is a BUFFER of its own, VARIABLEs stand for BINDs."""
  temporaries = _temporaries(kernels)

  def argument(region: BufferRegion) -> UOp:
    region = replace(region, base=temporaries.get(region.base, region.base))
    if region.is_whole:
      return region.base
    return UOp(Ops.BUFFER_VIEW, region.dtype, (region.base,), (region.byte_offset, region.size))

  calls = [UOp(Ops.CALL, dtypes.void, (k.body, *[argument(p) for p in k.regions], *k.variables)) for k in kernels]
  return UOp(Ops.LINEAR, dtypes.void, tuple(calls))


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
