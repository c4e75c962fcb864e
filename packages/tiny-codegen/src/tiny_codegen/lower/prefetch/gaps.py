"""Software prefetch of what a loop packs with gaps."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.memory import element_of, in_register
from tiny_codegen.lower.prefetch.program import (
  GAP,
  Program,
  element_at,
  is_sum,
  joined,
  known_size,
  lines_of,
  packed_buffer,
  spans_of,
)
from tiny_uop import Ops, UOp

AHEAD = 16
"""Iterations after which a loop that packs reads what it asks for: some hundred cycles."""
LEAST_PACKED = 64
"""Iterations of a loop that packs: those at its end ask for what may not be read."""
MOST_PACKED_LINES = 12
"""Lines that an iteration of a loop that packs asks for."""


def gaps(program: Program, panels: Collection[UOp]) -> dict[UOp, list[UOp]]:
  """By loop that packs: the PREFETCHes of each iteration, of lines with gaps between them. Loops that fill `panels`,
  which sums ask for, are left out. Sums that pack on their way are not: nobody else asks for the first of several
  panels, and the others are nearer."""
  large = {p for p, size in program.read.items() if size > program.caches.second}
  found = {}
  for loop in program.loops if large else ():
    body = program.linear[loop.begin : loop.end]
    filled = [packed_buffer(u.src[0]) for u in body if u.op is Ops.STORE and not in_register(u)]
    left_out = () if is_sum(loop.counter) else panels
    if loop.innermost and known_size(loop.counter) >= LEAST_PACKED and filled and not {*filled} & {None, *left_out}:
      reads = [u for u in body if u.op is Ops.LOAD and u.src[0].src[0] in large and u.src[0].src[1].dtype.count == 1]
      lines = list(_lines_with_gaps(loop.counter, reads))
      if 0 < len(lines) <= MOST_PACKED_LINES:
        found[loop.counter] = lines
  return found


def _lines_with_gaps(loop: UOp, reads: Sequence[UOp]) -> Iterator[UOp]:
  for (pointer, offset), spans in spans_of((u.src[0], u.dtype) for u in reads).items():
    step = stride(offset, loop) if offset is not None else None
    if offset is None or step is None:
      continue
    pieces, step = joined(spans, GAP), step * element_of(pointer).itemsize
    if abs(step) >= CACHE_LINE and abs(step) > pieces[-1][1] - pieces[0][0]:
      for byte in itertools.chain(*[lines_of(first, behind) for first, behind in pieces]):
        yield element_at(pointer, offset, AHEAD * step + byte).prefetch()
