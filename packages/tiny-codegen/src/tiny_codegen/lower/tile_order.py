"""The order in which the sums of a register tile take their products.

Each accumulator takes its next product, then the next accumulator: one accumulator after the other, each product would
wait for the one before. Where the rows of a tile are a window that slides from step to step, a product comes when the
element that it reads does, which is then loaded once for all its products, and needs a register no longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

from tiny_codegen.kernel.memory import in_register
from tiny_uop import Ops, UOp

SUMMANDS = {Ops.MULACC: 2, Ops.MMA: 2, Ops.ADD: 0}
"""Which source of a step is the sum so far."""


def in_turn(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
  """For the steps of the sums of register tiles, the one that each comes after."""
  before: dict[UOp, UOp] = {}
  for u in nodes:
    if u.op is Ops.GROUP and len(u.src) > 1 and all(s.op is Ops.STORE and in_register(s) for s in u.src):
      sums = [steps_of_sum(store) for store in u.src]
      if all(sums) and max(map(len, sums)) > 1:
        ordered = [sums[place][step] for wave in _waves(sums) for place, step in wave]
        before |= {step: earlier for earlier, step in pairwise(ordered)}
  return before


def sorted_by(root: UOp, before: dict[UOp, UOp]) -> tuple[UOp, ...]:
  """Every node of a graph once, sources and what is to come before it in front of each."""
  if not before:
    return root.toposort
  done: set[UOp] = set()
  found: list[UOp] = []
  stack = [root]
  while stack:
    node = stack.pop()
    if node not in done:
      first = (before[node], *node.src) if node in before else node.src
      if done.issuperset(first):
        done.add(node)
        found.append(node)
      else:
        stack.append(node)
        stack += first[::-1]
  return tuple(found)


def adds_to_register(u: UOp) -> bool:
  """Whether an instruction is the first of an iteration that adds to an accumulator."""
  total = u.src[SUMMANDS[u.op]] if u.op in SUMMANDS else None
  return total is not None and total.op is Ops.LOAD and in_register(total)


def steps_of_sum(store: UOp) -> list[UOp]:
  """What an accumulator takes in an iteration, one after the other; empty where it is more than that."""
  found, value = [], store.src[1]
  while value.op in SUMMANDS:
    found.append(value)
    value = value.src[SUMMANDS[value.op]]
  return found[::-1] if value.op is Ops.LOAD and value.src[0] is store.src[0] else []


def factors(step: UOp) -> tuple[UOp, ...]:
  """What a step of a sum multiplies."""
  return step.src[:2] if step.op is not Ops.ADD else step.src[1].src[:2] or step.src[1:]


def _waves(sums: Sequence[Sequence[UOp]]) -> list[list[tuple[int, int]]]:
  """The steps of a tile as (accumulator, step), in the order in which they are added: those together that come after
  as many others, and of these those next to each other that share an element, which needs a register no longer. What
  comes after what follows from the steps of an accumulator, and from the factors that products share: of the two, that
  which fewer products have, which in a tile is the element of a row."""
  uses = Counter(factor for steps in sums for step in steps for factor in set(factors(step)))
  rows = [[min(factors(step), key=lambda factor: uses[factor]) for step in steps] for steps in sums]
  levels: dict[UOp, int] = {}
  for _ in range(sum(map(len, rows))):  # as often as it takes, if no element has to come before itself
    before = dict(levels)
    for elements in rows:
      for step, element in enumerate(elements):
        after = levels[elements[step - 1]] + 1 if step else 0
        levels[element] = max(levels.get(element, 0), after)
    if levels == before:
      break
  else:
    levels = {}
  waves: dict[int, dict[UOp, list[tuple[int, int]]]] = {}
  for place, elements in enumerate(rows):
    for step, element in enumerate(elements):
      waves.setdefault(levels.get(element, step), {}).setdefault(element, []).append((place, step))
  return [list(chain.from_iterable(waves[level].values())) for level in sorted(waves)]
