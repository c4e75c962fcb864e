"""The part of a graph that decides its schedule: BUFFERs become numbered slots, BINDs their VARIABLEs.

BUFFERs that have no memory yet have ids of their own kind, so that none of them is taken for a real one: slots,
temporaries, and the arenas that temporaries lie in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiny_uop import DType, Ops, UOp, dtypes
from tiny_uop.uop import RESERVED_BUFFER_IDS

_FIRST_TEMPORARY = RESERVED_BUFFER_IDS
_FIRST_ARENA = RESERVED_BUFFER_IDS << 1
_FIRST_SLOT = RESERVED_BUFFER_IDS << 2


@dataclass(frozen=True)
class Normal:
  """`sink`: the key of the cache. `buffers[i]`: the BUFFER of slot i. `binds`: the BIND of each bound VARIABLE."""

  sink: UOp
  buffers: tuple[UOp, ...]
  binds: dict[UOp, UOp]

  def originals(self) -> dict[UOp, UOp]:
    """The BUFFER in the place of each slot."""
    return {slot_buffer(slot, buffer): buffer for slot, buffer in enumerate(self.buffers)}


def slot_buffer(slot: int, buffer: UOp) -> UOp:
  """The BUFFER that stands for a slot. No real one has its id, so that a cached graph keeps no memory alive."""
  return buffer.replace(arg=(_FIRST_SLOT + slot, buffer.arg[1]))


def slot_of(buffer: UOp) -> int:
  """The slot that a BUFFER of a normalised graph stands for."""
  return int(buffer.arg[0]) - _FIRST_SLOT


def temporary_buffer(number: int, device: str, size: int, dtype: DType) -> UOp:
  """The BUFFER that stands for a temporary."""
  return UOp(Ops.BUFFER, dtype, (UOp(Ops.DEVICE, arg=device),), (_FIRST_TEMPORARY + number, size))


def arena_buffer(number: int, device: str, nbytes: int) -> UOp:
  """The BUFFER that stands for the memory of all temporaries of a device."""
  return UOp(Ops.BUFFER, dtypes.uint8, (UOp(Ops.DEVICE, arg=device),), (_FIRST_ARENA + number, nbytes))


def is_slot(buffer: UOp) -> bool:
  """Whether a BUFFER stands for a slot."""
  return bool(buffer.arg[0] >= _FIRST_SLOT)


def is_temporary(buffer: UOp) -> bool:
  """Whether a BUFFER stands for a temporary."""
  return bool(_FIRST_TEMPORARY <= buffer.arg[0] < _FIRST_ARENA)


def is_arena(buffer: UOp) -> bool:
  """Whether a BUFFER stands for an arena."""
  return bool(_FIRST_ARENA <= buffer.arg[0] < _FIRST_SLOT)


def normalise(sink: UOp) -> Normal:
  """Normalises a graph. Raises ValueError where one VARIABLE is bound to two values."""
  done: dict[UOp, UOp] = {}
  buffers: list[UOp] = []
  binds: dict[UOp, UOp] = {}
  for u in sink.toposort:
    if u.op is Ops.BUFFER and not is_temporary(u):
      done[u] = slot_buffer(len(buffers), u)
      buffers.append(u)
    elif u.op is Ops.BIND:
      variable = u.src[0]
      if binds.setdefault(variable, u) is not u:
        values = sorted((binds[variable].unbind()[1], u.unbind()[1]))
        raise ValueError(
          f"variable {variable.arg[0]!r} is bound to {values[0]} and to {values[1]} in one graph: "
          "realize one part first"
        )
      done[u] = variable
    elif u.src:
      done[u] = u.with_src(tuple([done[s] for s in u.src]))
    else:
      done[u] = u
  return Normal(done[sink], tuple(buffers), binds)
