"""Constants that the host writes to memory: a few bytes need no kernel."""

from __future__ import annotations

from collections.abc import Iterable

from tiny_runtime import Device, buffer_of
from tiny_tensor.base import ALIASES, Scalar
from tiny_uop import Ops, UOp, truncate
from tiny_uop.truncate import to_bits

SAME = ALIASES | {Ops.COPY}
"""What has no other elements than its source."""

LARGEST = 1 << 20
"""Bytes of a buffer up to which the host writes them; kernels fill larger ones, with all threads."""


def constant_of(uop: UOp) -> Scalar | None:
  """The number that all elements of a graph are, where it is a constant that is only arranged, copied and cast."""
  if uop.op is Ops.CONST:
    value: Scalar = uop.arg
    return value if value == value else None  # which NaN a kernel writes is its own affair
  if uop.op is Ops.MULTI:
    values = {repr(value): value for value in map(constant_of, uop.src)}
    return values.popitem()[1] if len(values) == 1 else None
  if uop.op not in SAME and uop.op is not Ops.CAST:
    return None
  value_below = constant_of(uop.src[0])
  return value_below if value_below is None or uop.op is not Ops.CAST else truncate(uop.dtype, value_below)


def can_fill(pieces: Iterable[UOp]) -> bool:
  """Whether BUFFERs are ours to write: without memory, so that nobody has read them or will read what they had."""
  for piece in pieces:
    buffer = buffer_of(piece)
    if buffer.nbytes > LARGEST or buffer.is_allocated() or Device.opened(buffer.device).capabilities.persistent:
      return False
  return True


def fill(pieces: Iterable[UOp], value: Scalar) -> None:
  """Writes a number to all of each BUFFER."""
  for piece in pieces:
    one = to_bits(piece.dtype, value).to_bytes(piece.dtype.itemsize, "little")
    buffer_of(piece).write(one * int(piece.arg[1]))
