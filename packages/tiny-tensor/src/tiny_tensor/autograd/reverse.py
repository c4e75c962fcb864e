"""Reverse-mode differentiation: a walk over the graph with the table of derivatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tiny_tensor.autograd.custom_gradient import derivative_of, inputs_of, is_zero, pulled_back
from tiny_tensor.autograd.rules import FORMULAS
from tiny_tensor.base import const_uop
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.origins import MARK, Mark, recording, set_mark

CUSTOM, SINK = Ops.CUSTOM_GRADIENT, Ops.SINK


def reaches(root: UOp, targets: set[UOp]) -> set[UOp]:
  """Nodes of the graph through which a gradient flows from the root to a target."""
  flowing: set[UOp] = set()
  for u in root.walk(lambda n: n.op is not Ops.DETACH):
    if u in targets or (u.op is not Ops.DETACH and carries(u) and any(s in flowing for s in u.src)):
      flowing.add(u)
  return flowing


def carries(u: UOp) -> bool:
  """Whether a node can have a gradient: floats, the effects of an assignment, and several values as one."""
  return u.op is Ops.STORE or (u.op is SINK and u.arg is None) or (dtypes.is_float(u.dtype) and u.op in FORMULAS)


def gradients(root: UOp, root_grad: UOp, targets: Sequence[UOp]) -> dict[UOp, UOp]:
  """d(root)/d(target) · root_grad for each target that the root depends on."""
  return pullback([(root, root_grad)], targets)


def pullback(seeds: Iterable[tuple[UOp, UOp]], targets: Sequence[UOp]) -> dict[UOp, UOp]:
  """The gradients of `targets`, those that the roots depend on, given (root, its gradient) of one or several roots.

  Walks the graph once from the roots, over the nodes that lead to a target. A gradient that is zero because a function
  is constant in pieces is known to be one: nothing is computed of it, neither here nor on the way to the targets.
  """
  grads: dict[UOp, UOp | None] = {}  # None: zero
  for root, seed in seeds:
    grads[root] = seed if (before := grads.get(root)) is None else before + seed
  top = UOp.sink(*grads)
  wanted = set(targets)
  flowing = reaches(top, wanted)
  # of the results of functions with a derivative of their own, by their bundle: one of them, and all gradients so far
  together: dict[UOp, dict[int, tuple[UOp, dict[int, UOp]]]] = {}
  order = [u for u in top.walk(lambda n: n in flowing) if u in flowing]
  marks = backward_marks(order) if recording.wanted else {}
  for node in reversed(order):
    if node.op is SINK:
      for one, made in together.pop(node, {}).values():
        _add(grads, inputs_of(one), _own(one, made, flowing), flowing, marks.get(one))
      continue
    if node not in grads or (node in wanted and not any(s in flowing for s in node.src)):
      continue
    if (g := grads[node]) is None:
      for s in inputs_of(node) if node.op is CUSTOM else node.src:
        if s in flowing:
          grads.setdefault(s, None)
    elif node.op is CUSTOM:
      together.setdefault(node.src[1], {}).setdefault(node.arg.number, (node, {}))[1][node.arg.output] = g
    elif (formula := FORMULAS.get(node.op)) is not None:
      _add(grads, node.src, formula(g, node), flowing, marks.get(node))
    # else a target of an operation in WITHOUT_GRADIENT, whose sources are reached otherwise
  return {t: zeros(t) if (g := grads[t]) is None else g for t in wanted if t in grads}


def backward_marks(order: Sequence[UOp]) -> dict[UOp, Mark | None]:
  """Of each node, sources before users, the mark of its gradient: its own, or that of what it was made for."""
  found: dict[UOp, Mark | None] = {}
  made: dict[Mark, Mark] = {}
  for node in reversed(order):
    own = node.__dict__.get(MARK)
    if own is None:
      mark = found.setdefault(node, None)
    else:
      if (mark := made.get(own)) is None:
        mark = made[own] = own.of("backward")
      found[node] = mark
    for s in node.src:
      found.setdefault(s, mark)
  return found


def zeros(target: UOp) -> UOp:
  """The gradient of what is constant in pieces, where the target is."""
  return const_uop(0.0, target.dtype, target.shape, target.device)


def _add(
  grads: dict[UOp, UOp | None], sources: Sequence[UOp], contributions: Sequence[UOp | None], flowing: set[UOp],
  mark: Mark | None,
) -> None:  # fmt: skip
  for s, contribution in zip(sources, contributions, strict=False):
    if contribution is None or s not in flowing:
      continue
    if is_zero(contribution):
      grads.setdefault(s, None)
    else:
      total = grads[s] = contribution if (before := grads.get(s)) is None else before + contribution
      if mark is not None:
        set_mark(contribution, mark)
        if before is not None:
          set_mark(total, mark)


def _own(node: UOp, gs: Mapping[int, UOp], flowing: set[UOp]) -> Sequence[UOp | None]:
  """The gradients of the inputs of a function with a derivative of its own. Raises RuntimeError where one is wanted
  that it does not know of."""
  given = derivative_of(node).given
  inputs = inputs_of(node)
  if given is not None and any(s in flowing for s in inputs[given:]):
    hidden = next(s for s in inputs[given:] if s in flowing)
    raise RuntimeError(
      f"{node.arg.name!r} has a gradient of its own, which is none in a value of shape {hidden.shape} that it takes, "
      "where one is wanted: detach() the value, or make it an argument of the function"
    )
  return pulled_back(node, [gs.get(i) for i in range(len(node.src[1].src) - len(inputs))])
