"""Simplification under a gate: where an expression counts only if a condition holds, the condition narrows the bounds
inside it.

A gate is an AND of comparisons. Each comparison says that a linear form lies in an interval; that form is replaced by a
fresh variable with these bounds, the expression is simplified, and the form put back. What results is kept only if it
is smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_uop.dtype import dtypes
from tiny_uop.graph import chain
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.pattern import PatternMatcher, UPat, rule
from tiny_uop.rewrite import graph_rewrite
from tiny_uop.symbolic import algebra, compare, constfold, divmod, positions
from tiny_uop.symbolic.clauses import Fact, clauses, facts, narrow_clause
from tiny_uop.symbolic.linear import Linear, build, is_const

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

# the rules that need no gate
PLAIN = constfold.RULES + algebra.RULES + positions.RULES + divmod.RULES + compare.RULES
_MAX_NODES = 400  # larger expressions are not worth it, and simplifying them again and again would cost time
_MAX_CLAUSES = 12
_NARROWED = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.WHERE, Ops.MAX})


def _plain(u: UOp) -> UOp:
  return graph_rewrite(u, PLAIN, bottom_up=True, name="under a gate")


def _cost(u: UOp) -> tuple[int, int]:
  nodes = u.toposort
  return sum(n.op in _NARROWED for n in nodes), len(nodes)


def _uses(u: UOp) -> int:
  """How often the expression, written out without sharing, has one of the dear operations."""
  found: dict[UOp, int] = {}
  for n in u.toposort:
    found[n] = (n.op in _NARROWED) + sum([found[s] for s in n.src])
  return found[u]


def _apply(u: UOp, fact: Fact, number: int) -> UOp:
  """`u` where the form of `fact` lies in its interval."""
  form, low, high = fact
  inside = u.toposort
  # the node to replace by the fresh variable: the form itself where it is one term, else a term it can be solved for
  pivot = next((t for t, c in form.terms.items() if abs(c) == 1 and t in inside), None)
  if pivot is None:
    return u
  sign = form.terms[pivot]
  fresh = u.const(dtypes.index, low) if low == high else u.variable(f"~{number}", low, high)
  rest = Linear({t: c for t, c in form.terms.items() if t is not pivot})
  solved = fresh if sign == 1 else fresh * -1
  if rest.terms:
    solved = solved + build(pivot, rest) * -sign
  # What the gate does not guard stays the same node: extents of loops are computed outside of it, and a load under this
  # expression happens all the same where the gate is false, so its address must not rely on it.
  outside = {t: t for t in inside if t.op not in GroupOp.Elementwise and t.src and t is not pivot}
  narrowed = _plain(u.substitute({pivot: solved, **outside}))
  back = build(pivot, form)
  return _plain(narrowed.substitute({fresh: back})) if low != high else narrowed


def simplify_under(u: UOp, conditions: list[UOp]) -> UOp:
  """An `index` or bool expression equal to `u` wherever all conditions hold, and no larger."""
  if not conditions or len(conditions) > _MAX_CLAUSES:
    return u
  known = facts(conditions)
  if known is None:
    return u  # the access never happens; what is computed does not matter
  if u.dtype is dtypes.bool and (clause := narrow_clause(u, known)) is not None:
    return clause if clause is u else _plain(clause)
  cost: tuple[int, int] | None = None
  for number, fact in enumerate(known):
    if cost is None:
      cost = _cost(u)
    if cost[0] == 0 or cost[1] > _MAX_NODES:
      return u
    narrowed = _apply(u, fact, number)
    if narrowed is not u and (less := _cost(narrowed)) < cost and _uses(narrowed) <= _uses(u):
      u, cost = narrowed, less
  return u


def simplify_gate(gate: UOp) -> UOp:
  """A gate without clauses that follow from the others; False when they contradict each other."""
  parts = clauses(gate)
  if len(parts) > _MAX_CLAUSES:
    return gate
  if facts(parts) is None:
    return gate.const_like(False)
  if len(parts) == 1:
    return gate
  for place in range(len(parts)):
    others = [p for p in parts[:place] + parts[place + 1 :] if not is_const(p)]
    if others:
      parts[place] = simplify_under(parts[place], others)
  kept = [p for p in parts if not (is_const(p) and p.arg)]
  if any(is_const(p) for p in kept):
    return gate.const_like(False)
  return chain(Ops.AND, kept) if kept else gate.const_like(True)


def _gated_index(u: UOp, x: UOp, gate: UOp) -> UOp | None:
  pointer = u.src[0]
  if is_const(gate):
    return u.with_src((pointer, x)) if gate.arg else None
  simpler = simplify_gate(gate)
  if is_const(simpler):
    return u.with_src((pointer, x, simpler))
  offset = simplify_under(x, clauses(simpler))
  return u.with_src((pointer, offset, simpler))


def _gated_where(u: UOp, cond: UOp, x: UOp, y: UOp) -> UOp | None:
  if is_const(x) and is_const(y):
    return None
  yes = x if is_const(x) else simplify_under(x, clauses(cond))
  no = y if is_const(y) else simplify_under(y, [cond.logical_not()])
  return cond.alu(Ops.WHERE, yes, no)


def _never_loaded(u: UOp) -> UOp | None:
  address = u.src[0]
  if address.op is not Ops.INDEX or len(address.src) != 3 or not is_const(address.src[2]) or address.src[2].arg:
    return None
  return u.src[1] if len(u.src) == 2 else u.const_like(0)


def _load_or(cond: UOp, x: UOp, y: UOp) -> UOp | None:
  """A load where it happens and something else where not: the load's own alternative."""
  address = x.src[0]
  if address.op is not Ops.INDEX or len(address.src) != 3 or address.src[2] is not cond:
    return None
  return x.replace(src=(address,) if y is y.const_like(0) else (address, y))


x, y = UPat.var("x"), UPat.var("y")
RULES = PatternMatcher([
  rule("where_load", UPat(Ops.WHERE, None, (UPat.var("cond"), UPat(Ops.LOAD, name="x"), UPat.cvar("y"))), _load_or,
       example=lambda s: ((s.p < 3).where(s.pointer(3).index(s.p, s.p < 3).load(), 7.0),
                          (s.p < 3).where(s.pointer(3).index(s.p, s.p < 3).load(s.f), 0.0)),
       near_miss=lambda s: ((s.p < 3).where(s.pointer(3).index(s.p, s.p < 2).load(), 0.0),
                            (s.p < 3).where(s.pointer(16).index(s.p).load(), 0.0))),
  rule("load_never", UPat(Ops.LOAD, name="u"), _never_loaded,
       example=lambda s: (s.pointer(16).index(s.p, s.b.const_like(False)).load(),
                          s.pointer(16).index(s.p, s.b.const_like(False)).load(s.f)),
       near_miss=lambda s: (s.pointer(16).index(s.p, s.b).load(s.f), s.pointer(16).index(s.p).load())),
  rule("index_gate", UPat(Ops.INDEX, None, (UPat.var("p"), UPat.var("x", dtypes.index), UPat.var("gate", dtypes.bool)),
       name="u"),
       _gated_index,
       example=lambda s: (
         s.pointer(16).index(s.p, s.b.const_like(True)),                                             # always
         s.pointer(16).index(s.p, (s.p < 12) & (s.p < 14) & (s.p >= 5)),                             # implied clauses
         s.pointer(16).index(s.p, (s.p < 3) & (s.p >= 5)),                                           # never
         s.pointer(16).index((s.p - 5) % 7, (s.p < 12) & (s.p >= 5)),                                # an offset
         s.pointer(16).index((s.range(8) + s.range(3, 1) + 7) % 8,
                             (s.range(8) + s.range(3, 1) >= 1) & (s.range(8) + s.range(3, 1) < 9))),
       near_miss=lambda s: (s.pointer(16).index(s.p, s.b.const_like(False)), s.pointer(16).index(s.p, s.p < 3),
                            s.pointer(16).index(s.p % 8, s.n < 3))),
  rule("where_gate", UPat(Ops.WHERE, dtypes.index, (UPat.var("cond"), x, y), name="u"), _gated_where,
       example=lambda s: (
         (s.n >= 0).where(s.n % 8, 0), (s.p < 4).where(s.m, s.p // 4 % 4 * 4 + s.p % 4),              # both sides
         ((s.p < 12) & (s.p >= 5)).where((s.p - 5) % 7, s.m), (s.p > 9).where(s.p // 8, s.m),
         (s.p > 3).logical_not().where(s.p % 4, s.m), s.p.eq(5).where(s.p % 4, s.m),
         (s.n < s.m).where((s.m - s.n - 1) // 16, s.m),
         ((s.p < 4) & s.b).where(s.p % 4, s.m)),
       near_miss=lambda s: ((s.p < 4).where(1, s.m), (s.p < 4).where(s.m % 4, s.m // 4), (s.i < 4).where(s.p % 4, s.m),
                            (s.p < 5).where(s.p % 4, s.m), ((s.p < 3) & (s.p > 5)).where(s.p % 4, s.m))),
])  # fmt: skip
