"""Gates as clauses, and what a comparison says: that a linear form lies in an interval, or has a remainder.

Most clauses compare sums of loop counters. Whether such a clause follows from the others is decided here, by intervals
alone, without rewriting anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from tiny_uop.dtype import dtypes
from tiny_uop.graph import operands
from tiny_uop.node import kept
from tiny_uop.ops import Ops
from tiny_uop.symbolic.compare import tighten
from tiny_uop.symbolic.linear import Linear, build, is_const, linear
from tiny_uop.symbolic.quotient import is_leaf

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

Fact = tuple[Linear, int, int]  # a form without constant, and the least and the greatest value that it has
Residue = tuple[Linear, int, int]  # a form without constant, a divisor, and the remainder by it

Limits: TypeAlias = "dict[UOp, tuple[int, int]]"  # bounds of single terms


def clauses(gate: UOp) -> list[UOp]:
  """The conditions whose AND is `gate`, each once."""
  return list(dict.fromkeys(operands(gate, Ops.AND)))


def _unnegated(clause: UOp) -> tuple[UOp, bool]:
  """The comparison of a clause, and whether it is to hold."""
  if clause.op is Ops.CMPNE and clause.src[0].dtype.kind == "bool" and is_const(clause.src[1]) and clause.src[1].arg:
    return clause.src[0], False
  return clause, True


@kept
def _difference(comparison: UOp) -> Linear:
  form = linear(comparison.src[0])
  form.add_form(linear(comparison.src[1]), -1)
  return form


@kept
def _fact(clause: UOp) -> Fact | None:
  clause, holds = _unnegated(clause)
  if clause.op not in (Ops.CMPLT, Ops.CMPEQ) or clause.src[0].dtype is not dtypes.index:
    return None
  difference = _difference(clause)
  if not difference.terms or (clause.op is Ops.CMPEQ and not holds):
    return None
  form, sign = _one_sign(difference)
  low, high = form.bounds()
  value = -sign * difference.const
  if clause.op is Ops.CMPEQ:
    return form, max(low, value), min(high, value)
  # form < value (or >= where it does not hold); of the other sign form > value (or <=)
  if sign > 0:
    return (form, low, min(high, value - 1)) if holds else (form, max(low, value), high)
  return (form, max(low, value + 1), high) if holds else (form, low, min(high, value))


def _one_sign(form: Linear) -> tuple[Linear, int]:
  """The terms, the first with a positive coefficient, and the sign that they had: facts about x < y and y < x meet."""
  sign = -1 if form.terms and next(iter(form.terms.values())) < 0 else 1
  return Linear({t: c * sign for t, c in form.terms.items()}), sign


def facts(conditions: list[UOp]) -> list[Fact] | None:
  """What comparisons say, one entry per form; None when they contradict each other."""
  merged: dict[frozenset[tuple[UOp, int]], Fact] = {}
  for form, low, high in filter(None, map(_fact, conditions)):
    key = frozenset(form.terms.items())
    if key in merged:
      low, high = max(low, merged[key][1]), min(high, merged[key][2])
    if low > high:
      return None
    merged[key] = (form, low, high)
  # what has a remainder lies between the first and the last place that has it
  for form, divisor, remainder in filter(None, map(_residue, conditions)):
    key = frozenset(form.terms.items())
    low, high = _bounds(form, _limits(merged.values()))
    if key in merged:
      low, high = max(low, merged[key][1]), min(high, merged[key][2])
    first, last = low + (remainder - low) % divisor, high - (high - remainder) % divisor
    if first > last:
      return None
    if form.terms and (first, last) != form.bounds():
      merged[key] = (form, first, last)
  return list(merged.values())


@kept
def _residue(clause: UOp) -> Residue | None:
  """What x % d < 1 and x % d == c say."""
  if clause.op not in (Ops.CMPLT, Ops.CMPEQ) or clause.src[0].op is not Ops.FLOORMOD or not is_const(clause.src[1]):
    return None
  x, divisor = clause.src[0].src
  value = clause.src[1].arg - (clause.op is Ops.CMPLT)
  if x.dtype is not dtypes.index or not is_const(divisor) or divisor.arg <= 0 or (clause.op is Ops.CMPLT and value):
    return None
  form = linear(x)
  without_const, sign = _one_sign(form)
  return without_const, int(divisor.arg), sign * (value - form.const) % int(divisor.arg)


def _limits(known: Iterable[Fact]) -> Limits:
  """The facts about single terms."""
  return {t: (low, high) for fact, low, high in known for t, c in fact.terms.items() if len(fact.terms) == c == 1}


def narrow_clause(clause: UOp, known: list[Fact]) -> UOp | None:
  """A comparison of sums of leaves where the facts hold: a constant if it follows from them or contradicts them, and
  shorter if one of them makes it so. None for other clauses."""
  comparison, holds = _unnegated(clause)
  if comparison.op is not Ops.CMPLT or comparison.src[0].dtype is not dtypes.index:
    return None
  form = _difference(comparison)  # of form < 0
  fixed = any(low == high and not form.terms.keys().isdisjoint(fact.terms) for fact, low, high in known)
  if fixed or not all(map(is_leaf, form.terms)):
    return None
  narrowed = _by_facts(form, known)
  if isinstance(narrowed, bool):
    return clause.const_like(narrowed == holds)
  if narrowed is form:
    return clause
  less = build(comparison.src[0], narrowed).alu(Ops.CMPLT, clause.const(dtypes.index, 0))
  return less if holds else less.logical_not()


def _by_facts(form: Linear, known: list[Fact]) -> Linear | bool:
  """Whether form < 0, or a shorter form of which that says the same, or the form itself."""
  limits = _limits(known)
  for number, (fact, least, most) in enumerate(known):
    pivot = next((t for t, c in fact.terms.items() if abs(c) == 1 and t in form.terms), None)
    if pivot is None:
      continue
    factor = form.terms[pivot] * fact.terms[pivot]
    rest = form.copy()
    rest.add_form(fact, -factor)
    low, high = _bounds(rest, limits)
    low, high = low + min(factor * least, factor * most), high + max(factor * least, factor * most)
    if high < 0 or low >= 0:
      return high < 0
    fresh = pivot.variable(f"~{number}", least, most)
    rest.add(fresh, factor)
    shorter = tighten(rest)
    if fresh not in shorter.terms and len(shorter.terms) < len(form.terms):
      form = shorter
  return form


def _bounds(form: Linear, limits: Limits) -> tuple[int, int]:
  """Bounds of a form of which some terms have narrower ones than their own."""
  low = high = form.const
  for term, coefficient in form.terms.items():
    ends = limits.get(term) or term._bounds
    low += coefficient * ends[coefficient < 0]
    high += coefficient * ends[coefficient > 0]
  return low, high
