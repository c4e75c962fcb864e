"""Rectangles of vectors turned in registers.

A column of n vectors of m lanes, taken lane by lane, is n insertions; all m columns together are m·log2(n) shuffles of
two vectors, if each takes what the others need half of. Rows are merged in pairs, first within blocks of 128 bits,
which every processor rearranges by instructions without a table of lanes (x86's UNPCKLPS, NEON's ZIP1): after step s a
block of a vector holds, for a 2^s-th of its lanes, those of 2^s rows side by side. Then whole blocks change places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiny_codegen.kernel.columns import column_of
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import DType, Ops, UOp

BLOCK_BITS = 128  # within which instructions of all processors rearrange elements most cheaply


def rows_of_lanes(u: UOp) -> tuple[tuple[UOp, UOp], list[int]] | None:
  """The two vectors that a VECTORIZE takes all its lanes from, and which lanes, those of the second behind those of the
  first; None if there are not two of one type."""
  if any(s.op is not Ops.EXTRACT for s in u.src):
    return None
  rows = tuple(dict.fromkeys(s.src[0] for s in u.src))
  if len(rows) != 2 or rows[0].dtype is not rows[1].dtype or rows[0].dtype.count == 1:
    return None
  count, lanes = rows[0].dtype.count, [s.arg[0] if isinstance(s.arg, tuple) else s.arg for s in u.src]
  return (rows[0], rows[1]), [lane + count * rows.index(s.src[0]) for lane, s in zip(lanes, u.src)]


def only_shuffled(listed: Iterable[UOp]) -> frozenset[UOp]:
  """The EXTRACTs and VECTORIZEs of a program that nothing but shuffles take lanes of, from where they are."""
  shuffled, others = set[UOp](), set[UOp]()
  for u in listed:
    column = u.op is Ops.EXTRACT and column_of(u) is not None
    whole = column or (u.op is Ops.VECTORIZE and rows_of_lanes(u) is not None)
    (shuffled if whole else others).update(u.src)
  return frozenset(u for u in shuffled - others if u.op in (Ops.EXTRACT, Ops.VECTORIZE))


def picked(body: Function, rows: tuple[UOp, UOp], lanes: list[int]) -> str:
  """A vector of these lanes of two others."""
  return _shuffled(body, body.operand(rows[0]), body.operand(rows[1]), rows[0].dtype, lanes)


def column(body: Function, rows: tuple[UOp, ...], lane: int) -> str:
  """Lane `lane` of each row, as a vector. What it has in common with other columns of the same rows is written
  once."""
  kind = rows[0].dtype
  return _column(body, tuple([body.operand(r) for r in rows]), lane, kind)


def _column(body: Function, rows: tuple[str, ...], lane: int, kind: DType) -> str:
  count, many = kind.count, len(rows)
  if many > count:  # as many rows at a time as fill a vector
    upper, lower = (_column(body, part, lane, kind) for part in (rows[: many // 2], rows[many // 2 :]))
    return _shuffled(body, upper, lower, kind.scalar().vec(many // 2), range(many))
  block = min(BLOCK_BITS // kind.scalar().bits, count)
  together = min(many, block)
  apart = block // together  # columns of a block in one vector
  groups = [_within(body, rows[g : g + together], lane % block // apart, kind) for g in range(0, many, together)]
  start = (lane // block * apart + lane % apart) * together if many <= block else lane // many * many
  pieces = tuple(groups if many == count else [_shuffled(body, g, g, kind, range(start, start + many)) for g in groups])
  return _across(body, pieces, lane % many // block, kind.scalar().vec(many))


def _within(body: Function, rows: tuple[str, ...], part: int, kind: DType) -> str:
  """Vector `part` of those that hold, block by block, the lanes of these rows side by side."""
  if len(rows) == 1:
    return rows[0]
  half, block = len(rows) // 2, min(BLOCK_BITS // kind.scalar().bits, kind.count)
  upper, lower = (_within(body, r, part // 2, kind) for r in (rows[:half], rows[half:]))
  mask: list[int] = []
  for start in range(part % 2 * block // 2, kind.count, block):
    for chunk in range(start, start + block // 2, half):
      mask += [*range(chunk, chunk + half), *range(kind.count + chunk, kind.count + chunk + half)]
  return _shuffled(body, upper, lower, kind, mask)


def _across(body: Function, groups: tuple[str, ...], part: int, kind: DType) -> str:
  """Block `part` of each of these vectors, which have as many blocks as there are vectors of a square."""
  if len(groups) == 1:
    return groups[0]
  half = len(groups) // 2
  upper, lower = (_across(body, g, part // 2, kind) for g in (groups[:half], groups[half:]))
  each = kind.count // half  # lanes of each group so far: half of them go on
  starts = [first + part % 2 * each // 2 for first in range(0, 2 * kind.count, each)]
  return _shuffled(body, upper, lower, kind, [lane for start in starts for lane in range(start, start + each // 2)])


def _shuffled(body: Function, first: str, second: str, kind: DType, lanes: Sequence[int]) -> str:
  """A vector of these lanes of two others, written once for a block of instructions."""
  key = (body.block, first, second, tuple(lanes))
  if key not in body.shuffled:
    body.shuffled[key] = body.shuffle(value_type(kind), first, lanes, second)
  return body.shuffled[key]
