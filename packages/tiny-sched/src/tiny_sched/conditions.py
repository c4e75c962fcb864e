"""Solving conditions for a loop counter: which k satisfy a conjunction of comparisons that are linear in k."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiny_sched.index import ZERO, simplify
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.graph import chain, operands
from tiny_uop.records import dataclass

_TRUE = UOp.const(dtypes.bool, True)
_INTEGER_KINDS = ("int", "uint", "index")


@dataclass(frozen=True)
class Interval:
  """The k in `[start, stop)`; or, with `point`, that one k where all of `valid` (which may mention k) hold."""

  start: UOp
  stop: UOp
  point: UOp | None = None
  valid: tuple[UOp, ...] = ()


def conjuncts(cond: UOp) -> list[UOp]:
  """The operands of a conjunction."""
  return [c for c in operands(cond, Ops.AND) if c is not _TRUE]


def together(conds: Iterable[UOp]) -> UOp:
  """The conjunction."""
  known = [c for c in conds if c is not _TRUE]
  return chain(Ops.AND, known) if known else _TRUE


def _as_index(u: UOp) -> UOp:
  return u.cast(dtypes.index)


def linear(u: UOp, k: UOp) -> tuple[int, UOp] | None:
  """(a, b) with u = a*k + b over the integers and b free of k; None where u is not known to be of that form.

  An operation that contains k counts only if its dtype cannot wrap at the bounds of its operands.
  """
  if k not in u.ranges:
    return 0, _as_index(u)
  if u is k:
    return 1, ZERO
  if u.op is Ops.CAST and u.src[0].dtype.kind in _INTEGER_KINDS and u.dtype.kind in _INTEGER_KINDS:
    source = u.src[0]
    fits = dtypes.min(u.dtype) <= source.vmin and source.vmax <= dtypes.max(u.dtype)
    return linear(source, k) if fits else None
  if u.op not in (Ops.ADD, Ops.MUL) or u.dtype.kind not in _INTEGER_KINDS:
    return None
  left, right = linear(u.src[0], k), linear(u.src[1], k)
  if left is None or right is None:
    return None
  if u.op is Ops.ADD:
    result = left[0] + right[0], left[1] + right[1]
  elif right[0] == 0 and right[1].op is Ops.CONST:
    result = left[0] * right[1].arg, left[1] * right[1].arg
  elif left[0] == 0 and left[1].op is Ops.CONST:
    result = right[0] * left[1].arg, right[1] * left[1].arg
  else:
    return None
  if u.dtype.kind != "index":
    exact = simplify(k * result[0] + result[1])
    if exact.vmin < dtypes.min(u.dtype) or exact.vmax > dtypes.max(u.dtype):
      return None
  return result


def _below(a: UOp, b: UOp, k: UOp, holds: bool) -> tuple[UOp | None, UOp | None] | None:
  """(start, stop) of the k for which `a < b` holds, or does not; None for a side that is open."""
  while a.op is Ops.FLOORDIV and k in a.ranges and k not in b.ranges and a.src[1].op is Ops.CONST and a.src[1].arg > 0:
    a, b = a.src[0], b * a.src[1].arg  # x // c < b  ⇔  x < b*c
  while b.op is Ops.FLOORDIV and k in b.ranges and k not in a.ranges and b.src[1].op is Ops.CONST and b.src[1].arg > 0:
    a, b = a * b.src[1].arg + (b.src[1].arg - 1), b.src[0]  # a < x // c  ⇔  a*c + c-1 < x
  left, right = linear(a, k), linear(b, k)
  if left is None or right is None:
    return None
  slope, rest = left[0] - right[0], simplify(left[1] - right[1])  # slope*k + rest < 0
  if slope > 0:
    edge = simplify(-(rest // slope))  # k < ceil(-rest / slope)
    return (None, edge) if holds else (edge, None)
  if slope < 0:
    edge = simplify(rest // -slope + 1)  # k > rest / |slope|
    return (edge, None) if holds else (None, edge)
  return None


def _equal(a: UOp, b: UOp, k: UOp) -> tuple[UOp, UOp] | None:
  """(the k for which `a == b`, condition that it exists)."""
  if a.dtype.kind not in _INTEGER_KINDS:
    return None
  left, right = linear(a, k), linear(b, k)
  if left is None or right is None or left[0] == right[0]:
    return None
  slope, rest = left[0] - right[0], right[1] - left[1]  # slope*k == rest
  if slope < 0:
    slope, rest = -slope, rest * -1
  rest = simplify(rest)
  return (rest, _TRUE) if slope == 1 else (simplify(rest // slope), simplify((rest % slope).eq(0)))


def interval_of(conds: Sequence[UOp], k: UOp) -> Interval | None:
  """The k in `[0, extent)` that satisfy all conditions, each of which mentions k; None where they cannot be solved."""
  for place, cond in enumerate(conds):
    if cond.op is Ops.CMPEQ and (solved := _equal(cond.src[0], cond.src[1], k)) is not None:
      rest = (*conds[:place], *conds[place + 1 :], solved[1])
      return Interval(ZERO, k.src[0], solved[0], tuple(c for c in rest if c is not _TRUE))
  start, stop = ZERO, k.src[0]
  for cond in conds:
    holds = True
    while cond.op is Ops.CMPNE and cond.src[1] is _TRUE:
      cond, holds = cond.src[0], not holds
    if cond.op is not Ops.CMPLT or cond.src[0].dtype.kind not in _INTEGER_KINDS:
      return None
    edges = _below(cond.src[0], cond.src[1], k, holds)
    if edges is None:
      return None
    start = start if edges[0] is None else start.maximum(edges[0])
    stop = stop if edges[1] is None else stop.minimum(edges[1])
  return Interval(simplify(start), simplify(stop))
