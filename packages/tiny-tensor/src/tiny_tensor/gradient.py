"""Reverse-mode differentiation as a table: for each op, the gradients of its sources given that of its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tiny_tensor.cosine import cosine
from tiny_uop import GroupOp, Ops, UOp, dtypes

Grads = tuple[UOp | None, ...]
Rule = Callable[[UOp, UOp], Grads]  # (gradient of the node, node) → gradient of each source, None for no gradient


def pairs(flat: Sequence[object]) -> list[tuple[object, object]]:
  return list(zip(flat[::2], flat[1::2], strict=True))


def sum_to(g: UOp, axes: Sequence[int]) -> UOp:
  """Sum along axes; halves are summed in float32."""
  wide = dtypes.promote(g.dtype, dtypes.float32) if dtypes.is_float(g.dtype) else g.dtype
  return g.cast(wide).reduce_axes(Ops.ADD, axes).cast(g.dtype)


def expand_rule(g: UOp, n: UOp) -> Grads:
  """Repeated elements: their gradients add up."""
  old, new = n.src[0].shape, n.shape
  return (sum_to(g, [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a is not b and a != b]),)


def pad_rule(g: UOp, n: UOp) -> Grads:
  """Only what was inside."""
  around = pairs(n.geometry)
  return (g.shrink([(b, b + s) for (b, _), s in zip(around, n.src[0].shape, strict=True)]),)  # type: ignore[operator, misc]


def shrink_rule(g: UOp, n: UOp) -> Grads:
  """Zero for what was cut off."""
  kept = pairs(n.geometry)
  return (g.pad([(a, s - b) for (a, b), s in zip(kept, n.src[0].shape, strict=True)]),)  # type: ignore[operator, misc]


def permute_rule(g: UOp, n: UOp) -> Grads:
  return (g.permute([n.arg.index(i) for i in range(len(n.arg))]),)


def max_rule(g: UOp, n: UOp) -> Grads:
  """To the larger operand; halved where they are equal (PyTorch's `maximum`)."""
  a, b = n.src
  half = g * 0.5
  zero = g.const_like(0)
  return tuple((y < x).where(g, x.eq(y).where(half, zero)) for x, y in ((a, b), (b, a)))


def reduce_rule(g: UOp, n: UOp) -> Grads:
  """A sum passes the gradient on, a maximum shares it among the elements that attain it, a product is a case by
  zeros.
  """
  op, axes = n.arg
  x = n.src[0]
  spread = g.expand(x.shape)
  if op is Ops.ADD:
    return (spread,)
  if op is Ops.MAX:
    top = x.eq(n.expand(x.shape)).cast(g.dtype)
    return (spread * (top / sum_to(top, axes).expand(x.shape)),)
  # Product: g·n/x where nothing is zero. With one zero, only that element has a gradient: the product of the others.
  one, zero = x.const_like(1), x.const_like(0)
  is_zero = x.eq(zero)
  zeros = is_zero.cast(dtypes.int32).reduce_axes(Ops.ADD, axes).expand(x.shape)
  others = is_zero.where(one, x).reduce_axes(Ops.MUL, axes).expand(x.shape)
  divided = n.expand(x.shape) / is_zero.where(one, x)
  return (spread * is_zero.where(zeros.eq(1).where(others, zero), zeros.eq(0).where(divided, zero)),)


def where_rule(g: UOp, n: UOp) -> Grads:
  c, zero = n.src[0], g.const_like(0)
  return (None, c.where(g, zero), c.where(zero, g))


def after_rule(g: UOp, n: UOp) -> Grads:
  """An assignment: what was written gets the gradient of the place it went to; the old contents that of the rest."""
  stores = n.src[1:]
  grads: list[UOp | None] = []
  rest: UOp = g
  for s in reversed(stores):
    chain = view_chain(s.src[0], n.src[0])
    value = rest
    for move in chain:
      value = move.with_src((value, *move.src[1:]))
    grads.insert(0, value)
    back = value
    for move in reversed(chain):
      back = MOVEMENT_RULES[move.op](back, move)[0]  # type: ignore[assignment]
    rest = rest - back
  return (rest, *grads)


def view_chain(view: UOp, base: UOp) -> list[UOp]:
  """The movement ops of a view, from the base outward."""
  chain = []
  while view is not base and view.op in GroupOp.Movement:
    chain.append(view)
    view = view.src[0]
  return chain[::-1]


MOVEMENT_RULES: dict[Ops, Rule] = {
  Ops.RESHAPE: lambda g, n: (g.reshape(n.src[0].shape),),
  Ops.EXPAND: expand_rule,
  Ops.PERMUTE: permute_rule,
  Ops.PAD: pad_rule,
  Ops.SHRINK: shrink_rule,
  Ops.FLIP: lambda g, n: (g.flip(n.arg),),
}

RULES: dict[Ops, Rule] = {
  **MOVEMENT_RULES,
  Ops.CAST: lambda g, n: (g.cast(n.src[0].dtype),),
  Ops.BITCAST: lambda g, n: (None,),
  Ops.EXP2: lambda g, n: (g * n * math.log(2),),
  Ops.EXP: lambda g, n: (g * n,),
  Ops.LOG2: lambda g, n: (g / (n.src[0] * math.log(2)),),
  Ops.LOG: lambda g, n: (g / n.src[0],),
  Ops.SIN: lambda g, n: (g * cosine(n.src[0]),),
  Ops.SQRT: lambda g, n: (g / (n * 2),),
  Ops.TRUNC: lambda g, n: (None,),
  Ops.ADD: lambda g, n: (g, g),
  Ops.MUL: lambda g, n: (g * n.src[1], g * n.src[0]),
  Ops.FDIV: lambda g, n: (g / n.src[1], -(g * n) / n.src[1]),
  Ops.MAX: max_rule,
  Ops.WHERE: where_rule,
  Ops.REDUCE: reduce_rule,
  Ops.CONTIGUOUS: lambda g, n: (g,),
  Ops.CONTIGUOUS_BACKWARD: lambda g, n: (g.contiguous(),),
  Ops.DETACH: lambda g, n: (None,),
  Ops.COPY: lambda g, n: (g.copy_to(n.src[0].device or str(n.device)), None),
  Ops.AFTER: after_rule,
  Ops.STORE: lambda g, n: (None, g),
}

# Comparisons and integer ops have no rule: their results are not floats, so no gradient ever reaches them.


def reaches(root: UOp, targets: set[UOp]) -> set[UOp]:
  """Nodes of the graph through which a gradient flows from the root to a target."""
  flowing: set[UOp] = set()
  for u in root.walk(lambda n: n.op is not Ops.DETACH):
    if u in targets or (u.op is not Ops.DETACH and carries(u) and any(s in flowing for s in u.src)):
      flowing.add(u)
  return flowing


def carries(u: UOp) -> bool:
  """Whether a node can have a gradient: floats, and the effects of an assignment."""
  return u.op is Ops.STORE or (dtypes.is_float(u.dtype) and u.op in RULES)


def gradients(root: UOp, root_grad: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
  """d(root)/d(target) · root_grad for each target that the root depends on.

  Walks the graph once from the root, over the nodes that lead to a target.
  """
  wanted = set(targets)
  flowing = reaches(root, wanted)
  grads: dict[UOp, UOp] = {root: root_grad}
  order = [u for u in root.walk(lambda n: n in flowing) if u in flowing]
  for node in reversed(order):
    g = grads.get(node)
    if g is None or (node in wanted and not any(s in flowing for s in node.src)):
      continue
    if (rule := RULES.get(node.op)) is None:
      raise RuntimeError(f"no gradient is known for {node.op.name}")
    for s, contribution in zip(node.src, rule(g, node), strict=False):
      if contribution is not None and s in flowing:
        grads[s] = contribution if s not in grads else grads[s] + contribution
  return {t: grads[t] for t in wanted if t in grads}
