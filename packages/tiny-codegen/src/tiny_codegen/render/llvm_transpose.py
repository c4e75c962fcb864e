"""Squares of vectors turned in registers.

A column of n vectors of n lanes, taken lane by lane, is n insertions; all n columns together are n·log2(n) shuffles of
two vectors, if each takes what the others need half of. Rows are merged in pairs: after step s a vector holds, for
n/2^s lanes, those of 2^s rows side by side, and after the last one a column.
"""

from __future__ import annotations

from tiny_codegen.render.llvm_function import Function
from tiny_codegen.render.llvm_text import value_type
from tiny_uop import DType, Ops, UOp


def rows_of_column(u: UOp) -> tuple[tuple[UOp, ...], int] | None:
  """The vectors of a square, and which lane of each a VECTORIZE takes; None if that is not what it does."""
  count = len(u.src)
  if count < 4 or count & (count - 1) or any(s.op is not Ops.EXTRACT for s in u.src):
    return None
  rows, lane = tuple([s.src[0] for s in u.src]), u.src[0].arg
  if any(s.arg != lane for s in u.src) or any(r.dtype.count != count for r in rows) or len(set(rows)) != count:
    return None
  return rows, lane[0] if isinstance(lane, tuple) else lane


def column(body: Function, rows: tuple[UOp, ...], lane: int) -> str:
  """Lane `lane` of each row, as a vector. What it has in common with other columns of the same block is written
  once."""
  return _merged(body, tuple([body.operand(r) for r in rows]), lane, rows[0].dtype)


def _merged(body: Function, rows: tuple[str, ...], part: int, kind: DType) -> str:
  """Vector `part` of those that hold the lanes of these rows side by side."""
  if len(rows) == 1:
    return rows[0]
  key = (body.block, rows, part)
  if key not in body.merged:
    half = len(rows) // 2
    upper, lower = (_merged(body, r, part // 2, kind) for r in (rows[:half], rows[half:]))
    start = (part % 2) * kind.count // 2
    mask: list[int] = []
    for chunk in range(start, start + kind.count // 2, half):
      mask += [*range(chunk, chunk + half), *range(kind.count + chunk, kind.count + chunk + half)]
    text = ", ".join(f"i32 {i}" for i in mask)
    vector = value_type(kind)
    body.merged[key] = body.let(f"shufflevector {vector} {upper}, {vector} {lower}, <{len(mask)} x i32> <{text}>")
  return body.merged[key]
