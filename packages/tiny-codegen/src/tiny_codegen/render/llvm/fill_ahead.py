"""What is packed is on its way some iterations before: lines that a loop which packs reads with gaps between them.

Processors fetch by themselves what is read in order. A loop that packs every second row of an image, or a few elements
of each row of a matrix, leaves gaps, of which they do not know how long they are. So each of its iterations asks for
what a later one reads. So does a sum that packs on its way (see `first_tile`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tiny_codegen.kernel.loops import stride
from tiny_codegen.render.llvm.ahead import near_of
from tiny_codegen.render.llvm.memory import in_register
from tiny_codegen.render.llvm.prefetch import GAP, bytes_of_lines, joined, spans_of
from tiny_codegen.render.llvm.streaming import LINE
from tiny_codegen.target import CacheSizes
from tiny_uop import AxisType, Ops, ProgramInfo, PtrDType, UOp
from tiny_uop.records import dataclass

AHEAD = 16
"""Iterations: some hundred cycles."""
LEAST = 64
"""Iterations of a loop: those at its end ask for what may not be read."""
MOST_LINES = 12
"""That an iteration asks for."""


@dataclass(frozen=True)
class Later:
  """A cache line that a later iteration reads: so many bytes behind the element at `offset`."""

  pointer: UOp
  offset: UOp
  byte: int


def fills_ahead(
  linear: Sequence[UOp], info: ProgramInfo, caches: CacheSizes, known: Collection[UOp] = ()
) -> dict[UOp, tuple[Later, ...]]:
  """By the loop that packs: what each of its iterations is to ask for. Loops that fill near memories in `known` are
  left out: what goes there has been asked for (see llvm_ahead). A sum that packs on its way asks nevertheless: nobody
  else does for the first panel of several, and the others are nearer."""
  large = {p.slot for p in info.params if not p.written and p.size * p.dtype.itemsize > caches.second}
  found = {}
  for loop, body in _innermost(linear):
    # accumulators apart: a sum may pack on its way (see `first_tile`)
    filled = [near_of(u.src[0]) for u in body if u.op is Ops.STORE and not in_register(u)]
    left_out = () if loop.arg[1] is AxisType.REDUCE else known
    if (
      filled
      and all(memory not in (None, *left_out) for memory in filled)
      and loop.src[0].op is Ops.CONST
      and loop.src[0].arg >= LEAST
    ):
      loads = [u for u in body if u.op is Ops.LOAD and u.src[0].src[0].op is Ops.PARAM and u.src[0].src[0].arg in large]
      lines = tuple(_lines(loop, loads))
      if 0 < len(lines) <= MOST_LINES:
        found[loop] = lines
  return found


def _innermost(linear: Sequence[UOp]) -> Iterator[tuple[UOp, Sequence[UOp]]]:
  """Loops that have no other inside, with what is in them."""
  begin = None
  for place, u in enumerate(linear):
    if u.op is Ops.RANGE:
      begin = place
    elif u.op is Ops.END:
      if begin is not None and linear[begin] in u.src:
        yield linear[begin], linear[begin + 1 : place]
      begin = None


def _lines(loop: UOp, loads: Sequence[UOp]) -> Iterator[Later]:
  """Lines of what is read with gaps."""
  accesses = [(load.src[0], load.dtype) for load in loads if load.src[0].src[1].dtype.count == 1]
  for (pointer, offset), known in spans_of(accesses).items():
    step = stride(offset, loop) if offset is not None else None
    if offset is None or step is None:
      continue
    assert isinstance(pointer.dtype, PtrDType)
    pieces = joined(known, GAP)
    far = abs(step) * pointer.dtype.base.itemsize
    if far >= LINE and far > pieces[-1][1] - pieces[0][0]:
      ahead = AHEAD * step * pointer.dtype.base.itemsize
      for first, behind in pieces:
        yield from [Later(pointer, offset, ahead + byte) for byte in bytes_of_lines(first, behind)]
