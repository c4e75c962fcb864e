"""Reductions in closed form.

A sum over `k` of a term that depends on `k` only through comparisons is a count (`arange`, triangular masks). A sum
that picks the one `k` equal to an expression is a load there (indexing by a tensor, `one_hot` products). Both are O(1).
"""

from __future__ import annotations

from tiny_sched.conditions import Interval, conjuncts, interval_of, together
from tiny_sched.index import simplify
from tiny_sched.value_rules import tidy
from tiny_uop import Ops, UOp, dtypes


def _is_zero(u: UOp) -> bool:
  return u.op is Ops.CONST and type(u.arg) is not tuple and u.arg == 0


def _times(value: UOp, count: UOp) -> UOp | None:
  """The sum of `count` terms equal to `value`; a sum of bools is their disjunction."""
  count = simplify(count)
  if value.dtype.kind == "bool":
    return tidy(value & simplify(UOp.const(dtypes.index, 0) < count))
  return tidy(value * tidy(UOp(Ops.CAST, value.dtype, (count,))))


def gate_loads(value: UOp, old: set[UOp], valid: UOp) -> UOp:
  """`value` with `valid` added to the gate of each load that is not in `old`."""
  changes: dict[UOp, UOp] = {}
  for u in value.toposort:
    if u.op is Ops.INDEX and u not in old:
      gate = valid if len(u.src) == 2 else simplify(u.src[2] & valid)
      changes[u] = UOp(Ops.INDEX, u.dtype, (*u.src[:2], gate))
  return value.substitute(changes)


def _pick(value: UOp, k: UOp, place: Interval) -> UOp:
  """The sum over k of `value[k]` where k equals the one value in `place` and its conditions hold."""
  assert place.point is not None
  inside = simplify(together([(place.point < 0).logical_not(), place.point < k.src[0]]))
  conditions = together(place.valid)
  # the conditions may load at k as well
  met = gate_loads(conditions.substitute({k: place.point}), {*conditions.toposort, *place.point.toposort}, inside)
  valid = simplify(met & inside)
  chosen = value.substitute({k: place.point})
  if k in value.ranges:
    chosen = gate_loads(chosen, {*value.toposort, *place.point.toposort}, valid)
  return tidy(valid.where(chosen, UOp.const(value.dtype, 0)))


def _sum_where(cond: UOp, value: UOp, k: UOp) -> UOp | None:
  """Σ_k (value where cond, else 0)."""
  free = [c for c in conjuncts(cond) if k not in c.ranges]
  bound = [c for c in conjuncts(cond) if k in c.ranges]
  zero = UOp.const(value.dtype, 0)
  if not bound:
    inner = sum_over(value, k)
  elif (place := interval_of(bound, k)) is None:
    return None
  elif place.point is not None:
    inner = _pick(value, k, place)
  elif k in value.ranges or place.valid:
    return None
  else:
    inner = _times(value, (place.stop - place.start).maximum(0))
  if inner is None or not free:
    return inner
  return tidy(together(free).where(inner, zero))


def sum_over(value: UOp, k: UOp) -> UOp | None:
  """Σ of `value` over the loop `k` without the loop, or None where none is known. For bool, the disjunction."""
  if k not in value.ranges:
    return _times(value, k.src[0])
  op, src, exact = value.op, value.src, dtypes.is_int(value.dtype)
  if op is Ops.WHERE:
    cond, yes, no = src
    if _is_zero(no):
      return _sum_where(cond, yes, k)
    if _is_zero(yes):
      return _sum_where(cond.logical_not(), no, k)
    if exact:
      a, b = _sum_where(cond, yes, k), _sum_where(cond.logical_not(), no, k)
      return None if a is None or b is None else tidy(a + b)
    return None
  if op is Ops.CAST and src[0].dtype.kind == "bool" and value.dtype.kind != "bool":
    return _sum_where(src[0], UOp.const(value.dtype, 1), k)
  if op is Ops.CAST and src[0].op is Ops.WHERE and src[0].src[1].op is src[0].src[2].op is Ops.CONST:
    cond, yes, no = src[0].src
    return sum_over(cond.where(yes.cast(value.dtype), no.cast(value.dtype)), k)
  if value.dtype.kind == "bool":
    return (
      _sum_where(value, UOp.const(dtypes.bool, True), k) if op in (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE, Ops.AND) else None
    )
  if not exact:
    return None
  if op is Ops.ADD:
    a, b = sum_over(src[0], k), sum_over(src[1], k)
    return None if a is None or b is None else tidy(a + b)
  if op is Ops.MUL:
    for term, factor in (src, src[::-1]):
      if k not in factor.ranges:
        inner = sum_over(term, k)
        return None if inner is None else tidy(inner * factor)
      if term.op is Ops.CAST and term.src[0].dtype.kind == "bool":
        return _sum_where(term.src[0], factor, k)
  if op is Ops.CAST and src[0].dtype.kind == "index":
    inner = sum_over(src[0], k)  # conversion wraps, and so may as well come after the sum
    return None if inner is None else tidy(UOp(Ops.CAST, value.dtype, (inner,)))
  return simplify(k.src[0] * (k.src[0] - 1) // 2) if value is k else None


def _collapse(op: Ops, value: UOp, k: UOp) -> UOp | None:
  if k.src[0].vmin <= 0:
    # an empty loop gives the identity, which only sums and counts express
    return sum_over(value, k) if op is Ops.ADD and k in value.ranges else None
  if op is Ops.MAX and k not in value.ranges:
    return value
  if op is Ops.MUL and value.dtype.kind == "bool":
    negated = sum_over(value.logical_not(), k)
    return None if negated is None else tidy(negated.logical_not())
  if op is Ops.ADD or (op is Ops.MAX and value.dtype.kind == "bool"):
    return sum_over(value, k)
  return None


def reduce_over(op: Ops, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
  """REDUCE of a scalar value over loops, each of them replaced by its closed form where there is one. The loops of a
  REDUCE by the same operation join them."""
  left = list(ranges)
  found = True
  while found:
    found = False
    for k in reversed(left):
      if (closed := _collapse(op, value, k)) is not None:
        value, found = closed, True
        left.remove(k)
        break
  if left and value.op is Ops.REDUCE and value.arg[0] is op:
    value, left = value.src[0], [*left, *value.src[1:]]
  return value.reduce(op, *left)
