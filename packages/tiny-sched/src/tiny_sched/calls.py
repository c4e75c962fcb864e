"""Kernels as a schedule: CALLs over BUFFERs, with temporaries and arenas that have no memory yet."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.kernels import Kernel
from tiny_sched.normalise import temporary_buffer
from tiny_sched.units import Place
from tiny_uop import DType, Ops, UOp, dtypes


def calls_of(kernels: Sequence[Kernel]) -> UOp:
  """The LINEAR of the kernels, in their order: each temporary is a BUFFER of its own, VARIABLEs stand for BINDs."""
  temporaries = _temporaries(kernels)

  def argument(place: Place) -> UOp:
    base = temporaries.get(place.base, place.base)
    return view_of(base, place.dtype, place.byte_offset, place.size)

  calls = [UOp(Ops.CALL, dtypes.void, (k.body, *[argument(p) for p in k.places], *k.variables)) for k in kernels]
  return UOp(Ops.LINEAR, dtypes.void, tuple(calls))


def view_of(base: UOp, dtype: DType, byte_offset: int, size: int) -> UOp:
  """`size` elements from `byte_offset` of a BUFFER: a BUFFER_VIEW, or the BUFFER where that is all of it."""
  if byte_offset == 0 and size == base.arg[1] and dtype is base.dtype:
    return base
  return UOp(Ops.BUFFER_VIEW, dtype, (base,), (byte_offset, size))


def _temporaries(kernels: Sequence[Kernel]) -> dict[UOp, UOp]:
  """The BUFFER of each node that is kept in memory, on the device of its writer, large enough for all its users."""
  first: dict[UOp, tuple[Place, str]] = {}
  nbytes: dict[UOp, int] = {}
  for kernel in kernels:
    for place in kernel.places:
      if place.base.op is not Ops.BUFFER:
        first.setdefault(place.base, (place, kernel.device))  # the writer comes first
        nbytes[place.base] = max(nbytes.get(place.base, 0), place.byte_offset + place.nbytes)
  found: dict[UOp, UOp] = {}
  for number, (base, (place, device)) in enumerate(first.items()):
    exact = nbytes[base] == place.nbytes
    dtype, size = (place.dtype, place.size) if exact else (dtypes.uint8, nbytes[base])
    found[base] = temporary_buffer(number, device, size, dtype)
  return found
