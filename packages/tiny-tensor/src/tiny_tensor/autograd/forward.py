"""Forward-mode differentiation: the tangents of a graph's values, by a rule per operation.

A tangent is the derivative of a value in the direction of the tangents of the arguments. The rules are graph rewrites
as those of `derivatives` are, for the same operations. Element by element the Jacobian is diagonal, and to push a
tangent forward is to pull a gradient back: these operations have the formula of reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.custom_gradient import derivative_of, inputs_of, pulled_back
from tiny_tensor.autograd.reverse import pullback
from tiny_tensor.autograd.rules import FORMULAS, moved, moved_back, of_reduce, sum_to, view_chain
from tiny_uop import GroupOp, Ops, UOp, dtypes

Tangents: TypeAlias = "Sequence[UOp | None]"
Rule: TypeAlias = "Callable[[UOp, Tangents], UOp | None]"  # (node, tangent of each source) → tangent of the node


def diagonal(n: UOp, ts: Tangents) -> UOp | None:
  """Elementwise: the sum of what each source contributes."""
  formula = FORMULAS[n.op]
  parts = [p for i, t in enumerate(ts) if t is not None and (p := formula(t, n)[i]) is not None]
  return sum(parts[1:], parts[0]) if parts else None


def same(n: UOp, ts: Tangents) -> UOp | None:
  """Linear in the first source: the operation itself."""
  return None if ts[0] is None else n.with_src((ts[0], *n.src[1:]))


def unchanged(n: UOp, ts: Tangents) -> UOp | None:
  """The value is that of the first source."""
  return ts[0]


def of_reduction(n: UOp, ts: Tangents) -> UOp | None:
  """A sum of tangents, weighted by how much each element counts."""
  op, axes = n.arg
  (t,) = ts
  if t is None or op is Ops.ADD:
    return same(n, ts)
  weight = of_reduce(n.const_like(1), n)[0]
  assert weight is not None, "floats"
  return sum_to(t * weight, axes)


def of_multi(n: UOp, ts: Tangents) -> UOp | None:
  """The tangents of the pieces, zeros for those that have none."""
  if all(t is None for t in ts):
    return None
  zeros = (s.const_like(0).copy_to(str(s.device)) for s in n.src)
  return n.with_src(tuple([zero if t is None else t for t, zero in zip(ts, zeros, strict=True)]))


def of_after(n: UOp, ts: Tangents) -> UOp | None:
  """An assignment: the tangent of what was written, in its place, over that of the old contents."""
  if all(t is None for t in ts):
    return None
  out = n.const_like(0) if ts[0] is None else ts[0]
  for store, t in zip(n.src[1:], ts[1:], strict=True):
    chain = view_chain(store.src[0], n.src[0])
    before = moved(out, chain)
    out = out + moved_back(-before if t is None else t - before, chain)
  return out


def of_custom_gradient(n: UOp, ts: Tangents) -> UOp | None:
  """The transpose of its pullback, which is linear: the gradient, in the gradient g, of what g becomes times the
  tangents. Raises TransformError where it is not linear."""
  inputs = inputs_of(n)
  results: list[UOp | None] = [None] * (len(n.src[1].src) - len(inputs))
  g = tracing.placeholder(n.shape, n.dtype, n.device, f"the gradient of {n.arg.name!r}")
  results[n.arg.output] = g
  pulled = pulled_back(n, results)
  given = derivative_of(n).given
  if given is not None and any(t is not None for t in ts[given:]):
    raise tracing.TransformError(
      f"{n.arg.name!r} has a gradient of its own and takes a value from around it that the derivative is wanted in: "
      "pass it as an argument, or detach() it"
    )
  seeds = [(p, t) for p, t in zip(pulled, ts, strict=True) if p is not None and t is not None]
  tangent = pullback(seeds, [g]).get(g)
  if tangent is not None and tracing.depends_on(tangent, g):
    raise tracing.TransformError(
      f"the gradient of {n.arg.name!r} is not linear in the gradient that it is given, so that it has no derivative in "
      "forward mode"
    )
  return tangent


RULES: dict[Ops, Rule] = {
  **dict.fromkeys((*GroupOp.Movement, Ops.CONTIGUOUS, Ops.COPY), same),
  **dict.fromkeys((
    Ops.EXP2, Ops.EXP, Ops.LOG2, Ops.LOG, Ops.SIN, Ops.COS, Ops.LDEXP, Ops.SQRT, Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX,
    Ops.WHERE), diagonal),
  Ops.CAST: lambda n, ts: None if ts[0] is None else ts[0].cast(n.dtype),
  Ops.TRUNC: lambda n, ts: None,
  Ops.REDUCE: of_reduction,
  Ops.CONTIGUOUS_BACKWARD: unchanged,
  Ops.BARRIER: unchanged,
  Ops.MULTI: of_multi,
  Ops.STORE: lambda n, ts: ts[1],
  Ops.AFTER: of_after,
  Ops.CUSTOM_GRADIENT: of_custom_gradient,
}  # fmt: skip


def _followed(u: UOp) -> tuple[UOp, ...]:
  """The nodes whose tangents that of a node is made of."""
  if u.op is Ops.DETACH or not (u.op is Ops.STORE or dtypes.is_float(u.dtype)):
    return ()
  if u.op is Ops.CUSTOM_GRADIENT:
    return u.src[:1] if derivative_of(u).transparent else inputs_of(u)
  return u.src


def _order(roots: Iterable[UOp], ends: Mapping[UOp, UOp]) -> list[UOp]:
  """The nodes that tangents go through, sources first."""
  seen: set[UOp] = set()
  found: list[UOp] = []
  stack: list[tuple[UOp, bool]] = [(r, False) for r in roots]
  while stack:
    u, done = stack.pop()
    if done:
      found.append(u)
    elif u not in seen:
      seen.add(u)
      stack.append((u, True))
      if u not in ends:
        stack.extend((s, False) for s in _followed(u) if s not in seen)
  return found


def push_forward(roots: Sequence[UOp], tangents: Mapping[UOp, UOp]) -> list[UOp | None]:
  """The tangent of each root, None for one that does not depend on any of the nodes whose tangents are given."""
  known: dict[UOp, UOp] = dict(tangents)
  for u in _order(roots, tangents):
    if u in known or not any(s in known for s in _followed(u)):
      continue
    if u.op is Ops.CUSTOM_GRADIENT and derivative_of(u).transparent:
      known[u] = known[u.src[0]]
    elif u.op is Ops.CALL:
      raise tracing.TransformError(f"the derivative of the kernel {u.src[0].arg.name!r} is wanted, which has none")
    elif (rule := RULES.get(u.op)) is not None:
      tangent = rule(u, [known.get(s) for s in _followed(u)])
      if tangent is not None:
        known[u] = tangent
  return [known.get(r) for r in roots]
