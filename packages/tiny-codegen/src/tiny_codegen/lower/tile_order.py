"""The order in which the sums of a register tile, or of windows that are written out, take their products.

Each accumulator takes its next product, then the next accumulator: one accumulator after the other, each product would
wait for the one before. Where the rows of a tile are a window that slides from step to step, a product comes when the
element that it reads does, which is then loaded once for all its products, and needs a register no longer. For
windows of 3×3 that are written out, sum after sum, AVX2's 16 registers would not do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

from tiny_codegen.kernel.memory import in_register
from tiny_uop import GroupOp, Ops, UOp

LEAST_WRITTEN_OUT = 3
"""Steps of a sum without a loop, at least, that are put in order."""
SUMMANDS = {Ops.MULACC: 2, Ops.MMA: 2, Ops.ADD: 0}
"""Which source of a step is the sum so far."""


def in_turn(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
  """For the steps of the sums of register tiles and of windows, the one that each comes after."""
  before: dict[UOp, UOp] = {}
  written_out = sums_written_out(nodes)
  for u in nodes:
    if u.op is Ops.GROUP and len(u.src) > 1 and all(s.op is Ops.STORE for s in u.src):
      tile = all(map(in_register, u.src))
      sums = [steps_of_sum(s) if tile else _steps_in_its_loop(written_out.get(s.src[1])) for s in u.src]
      # of sums that are written out, each has a result of its own, and all of them are in one loop
      if all(sums) and max(map(len, sums)) > 1 and (tile or _alike(sums)):
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


def sums_written_out(nodes: Sequence[UOp]) -> dict[UOp, UOp | None]:
  """The last step of the sum of products, without a loop of its own, that a value is made of: the windows of a
  convolution, whose results a function may have been applied to. None for values that are made of several sums."""
  lengths, made = dict[UOp, int](), dict[UOp, UOp | None]()
  for u in nodes:
    if u.op is Ops.MULACC:
      lengths[u] = lengths.get(u.src[2], 0) + 1
    if lengths.get(u, 0) >= LEAST_WRITTEN_OUT:
      made[u] = u
    elif u.op in GroupOp.Elementwise and (parts := {made[s] for s in u.src if s in made}):
      made[u] = parts.pop() if len(parts) == 1 else None
  return made


def _steps_in_its_loop(total: UOp | None) -> list[UOp]:
  """The steps of such a sum that are in the innermost loop that it is in; none of no sum."""
  found, step = list[UOp](), total
  while step is not None and total is not None and step.ranges == total.ranges:
    if step.op is not Ops.MULACC:
      return [*([step] if step.op is Ops.MUL else []), *found[::-1]]
    found.append(step)
    step = step.src[2]
  return found[::-1]


def _alike(sums: Sequence[Sequence[UOp]]) -> bool:
  return len({steps[-1] for steps in sums}) == len(sums) and len({steps[-1].ranges for steps in sums}) == 1


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
