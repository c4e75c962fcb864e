"""Software prefetch of rows whose numbers are in memory."""

from __future__ import annotations

import itertools

from tiny_codegen.kernel.expressions import clauses, split_constant, stride
from tiny_codegen.lower.prefetch.program import (
  GAP,
  Program,
  element_at,
  innermost_sums,
  joined,
  known_sizes,
  lines_of,
  plus,
  spans_of,
)
from tiny_uop import DType, Ops, UOp

ROWS_AHEAD = 16
"""Rows of a table after which a loop reads the one that it asks for; of rows of more than FEW_ROW_LINES half as many,
so that what is asked for stays in the first cache level until then."""
FEW_ROW_LINES = 10
MOST_ROW_LINES = 36
"""Lines of a row that is asked for: of longer ones a processor finds most by itself."""


def looked_up(program: Program) -> dict[UOp, list[UOp]]:
  """By loop of a sum: the PREFETCHes of each iteration, of vectors whose places depend on a number that it loads."""
  found: dict[UOp, list[UOp]] = {}
  large = {p for p, size in program.read.items() if size > program.caches.second}
  for loop, reads in innermost_sums(program) if large else ():
    numbers = {
      u: _further_on(u, loop.counter, program, 0) for u in reads if u.dtype.count == 1 and u.dtype.kind != "float"
    }
    known = {u for u, later in numbers.items() if later is not None}
    rows = [u for u in reads if u.src[0].src[0] in large and u.dtype.count > 1 and u.src[0].src[1].dtype.count == 1]
    lines: list[tuple[UOp, UOp, int]] = []
    pieces = 1
    for (pointer, offset), spans in spans_of((_without_gate(u.src[0]), _part_read(u)) for u in rows).items():
      if offset is not None and not known.isdisjoint(offset.toposort):
        bytes_of_lines = itertools.chain(*[lines_of(first, behind) for first, behind in joined(spans, GAP)])
        lines += [(pointer, offset, byte) for byte in bytes_of_lines]
        # loops that take a row piece by piece
        pieces = max(pieces, known_sizes(offset.ranges.difference(*[u.ranges for u in known])))
    if 0 < len(lines) * pieces <= MOST_ROW_LINES:
      rows_ahead = ROWS_AHEAD if len(lines) * pieces <= FEW_ROW_LINES else ROWS_AHEAD // 2
      found_on = {u: _further_on(u, loop.counter, program, rows_ahead) for u in known}
      later = {u: on for u, on in found_on.items() if on is not None}
      found[loop.counter] = [
        element_at(pointer, offset.substitute(later), byte).prefetch() for pointer, offset, byte in lines
      ]
  return found


def _without_gate(index: UOp) -> UOp:
  """The INDEX of the place that is read where a gate holds, which may be chosen there, and element 0 elsewhere."""
  offset, constant = split_constant(index.src[1])
  if offset is not None and offset.op is Ops.WHERE:
    return index.replace(src=(index.src[0], plus(offset.src[1], offset.const_like(constant))))
  return index.replace(src=index.src[:2])


def _part_read(load: UOp) -> DType:
  """The type of a LOAD up to the last lane that its gate may open: the last vector of a row reaches beyond the row."""
  known = [c.arg for g in load.src[0].src[2:] for c in clauses(g) if c.op is Ops.CONST and isinstance(c.arg, tuple)]
  last = max((lane for lane in range(load.dtype.count) if all(lanes[lane] for lanes in known)), default=0)
  return load.dtype.scalar().vec(last + 1)


def _further_on(load: UOp, loop: UOp, program: Program, rows: int) -> UOp | None:
  """The LOAD of the number `rows` further on, at most the last one of its buffer, which outlives the loop: the next
  sum goes on there. None for what may be written, or is gated, or not read in order."""
  index = load.src[0]
  if index.src[0] not in program.read or len(index.src) > 2 or stride(index.src[1], loop) != 1:
    return None
  place, last = (
    index.src[1] + rows,
    index.src[1].const_like(program.read[index.src[0]] // load.dtype.itemsize - 1),
  )
  return load.replace(src=(index.replace(src=(index.src[0], (place < last).where(place, last))), *load.src[1:]))
