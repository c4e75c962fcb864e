"""Columns of rows: one lane of each of several vectors, which renderers write as shuffles of whole vectors.

    EXTRACT(VECTORIZE(row0, row1, …), (2, lanes + 2, …))    # lane 2 of each row

All columns of a rectangle share the VECTORIZE; an EXTRACT for each element would be most of what a kernel is made of.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_uop import Ops, UOp

LEAST = 16  # elements of a rectangle


def vector_of(scalars: Sequence[UOp]) -> UOp:
  """A vector of scalars: a column where they are that."""
  kind, lane = scalars[0].dtype, scalars[0].arg
  rows = tuple([s.src[0] for s in scalars if s.op is Ops.EXTRACT and s.arg == lane])
  if len(rows) < len(scalars) or not _is_rectangle(rows):
    return UOp(Ops.VECTORIZE, kind.vec(len(scalars)), tuple(scalars))
  count = rows[0].dtype.count
  size = count * len(rows)
  return UOp(Ops.VECTORIZE, kind.vec(size), rows).extract(*range(lane[0], size, count))


def column_of(u: UOp) -> tuple[tuple[UOp, ...], int] | None:
  """The rows, and which lane of each an EXTRACT takes; None if that is not what it does."""
  rows, lanes = u.src[0].src, u.arg
  if u.src[0].op is not Ops.VECTORIZE or len(lanes) != len(rows) or not _is_rectangle(rows):
    return None
  count = rows[0].dtype.count
  return (rows, lanes[0]) if lanes == tuple(range(lanes[0], count * len(rows), count)) else None


def _is_rectangle(rows: Sequence[UOp]) -> bool:
  """Whether vectors are different rows of a rectangle whose sides are powers of two, and which is not too small."""
  many, count = len(rows), rows[0].dtype.count
  if many < 2 or many & (many - 1) or count & (count - 1) or many * count < LEAST:
    return False
  return len(set(rows)) == many and all(r.dtype.count == count for r in rows)
