"""Reverse-mode differentiation: a walk over the graph with the table of derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tiny_tensor.derivatives import FORMULAS
from tiny_uop import Ops, UOp, dtypes


@dataclass(frozen=True)
class Shortcut:
  """The derivative of a whole expression: `formula(g)` gives the gradients of `inputs`, None for one that has none."""

  inputs: tuple[UOp, ...]
  formula: Callable[[UOp], tuple[UOp | None, ...]]


# by the node at the head of the expression; not kept alive by it
_shortcuts: WeakKeyDictionary[UOp, Shortcut] = WeakKeyDictionary()


def add_shortcut(node: UOp, inputs: tuple[UOp, ...], formula: Callable[[UOp], tuple[UOp | None, ...]]) -> None:
  """Give an expression, `node` as a function of `inputs`, a derivative of its own: it has to give what the table would,
  and better kernels. `formula` must not hold `node`.
  """
  _shortcuts[node] = Shortcut(inputs, formula)


def reaches(root: UOp, targets: set[UOp]) -> set[UOp]:
  """Nodes of the graph through which a gradient flows from the root to a target."""
  flowing: set[UOp] = set()
  for u in root.walk(lambda n: n.op is not Ops.DETACH):
    if u in targets or (u.op is not Ops.DETACH and carries(u) and any(s in flowing for s in u.src)):
      flowing.add(u)
  return flowing


def carries(u: UOp) -> bool:
  """Whether a node can have a gradient: floats, and the effects of an assignment."""
  return u.op is Ops.STORE or (dtypes.is_float(u.dtype) and u.op in FORMULAS)


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
    if (shortcut := _shortcuts.get(node)) is not None:
      sources, contributions = shortcut.inputs, shortcut.formula(g)
    elif (formula := FORMULAS.get(node.op)) is not None:
      sources, contributions = node.src, formula(g, node)
    else:
      continue  # a target of an operation in WITHOUT_GRADIENT, whose sources are reached otherwise
    for s, contribution in zip(sources, contributions, strict=False):
      if contribution is not None and s in flowing:
        grads[s] = contribution if s not in grads else grads[s] + contribution
  return {t: grads[t] for t in wanted if t in grads}
