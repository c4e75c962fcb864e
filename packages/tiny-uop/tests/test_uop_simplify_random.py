"""The simplifier against exhaustive evaluation: 12,000 random expressions of every kind of node that it looks at, at
night 100,000.

Of each: the value is kept at every assignment of its variables (under a gate, at those where it holds), bounds of all
nodes hold, simplifying again gives the same object, and the result is not dearer. `SEED=n` draws others.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable
from functools import wraps
from random import Random

import numpy as np
import pytest
from uop_expressions import Drawn, draw
from uop_oracle import Oracle

from tiny_uop import Ops, PatternMatcher, UOp, dtypes, graph_rewrite, rule, simplify
from tiny_uop.symbolic import SYMBOLIC
from tiny_uop.testing import check_same_value

SEED = int(os.environ.get("SEED", "0"))
CHUNKS, PER_CHUNK, BY_DAY = 50, 2000, 6
_POINTER = UOp.param(0, dtypes.float32.ptr(1000))
_TRUE = UOp.const(dtypes.bool, True)


def drawn(chunk: int, count: int = PER_CHUNK) -> list[Drawn]:
  """Expressions of a chunk. Each has a seed of its own, so that one can be drawn without those before it."""
  return [draw(Random((SEED * CHUNKS + chunk) * PER_CHUNK + place)) for place in range(count)]


def whole(case: Drawn) -> UOp:
  """What is simplified: the expression, or a memory access under the gate."""
  return case.expression if case.gate is None else _POINTER.index(case.expression, case.gate)


# *** what an expression costs ***

_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD})
_COMPARISONS = frozenset({Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE})


def _folded(u: UOp) -> bool:
  """Signs and negations go into the operation that takes them."""
  last = u.src[-1]
  if u.op in (Ops.NEG, Ops.INDEX):
    return True
  return last.op is Ops.CONST and ((u.op is Ops.MUL and last.arg == -1) or (u.op is Ops.CMPNE and last.arg is True))


def cost(root: UOp) -> tuple[int, int]:
  """Operations, each once and each as often as it is used; a division counts as 16."""
  once, written_out = 0, dict[UOp, int]()
  for u in root.toposort:
    own = 0 if not u.src or u.op is Ops.RANGE or _folded(u) else 16 if u.op in _DIVISIONS else 1
    once += own
    written_out[u] = own + sum(written_out[s] for s in u.src)
  return once, written_out[root]


def allowance(root: UOp) -> int:
  """What the canonical form may add: a factor and offsets that are taken out of a division, what changes sides in a
  comparison, constants multiplied into sums."""
  found: dict[UOp, int] = {}
  for u in root.toposort:
    scaled_sum = u.op is Ops.MUL and u.src[1].op is Ops.CONST and u.src[0].op in (Ops.ADD, Ops.SUB)
    own = 3 if u.op in _DIVISIONS else 1 if u.op in _COMPARISONS or scaled_sum else 0
    found[u] = own + sum(found[s] for s in u.src)
  return found[root]


def dearer(before: UOp, after: UOp) -> bool:
  """Whether `after` costs more, both where what is shared is computed once and where it is not."""
  allowed = allowance(before)
  return all(b > a + allowed for a, b in zip(cost(before), cost(after), strict=True))


def multiplies_out(root: UOp) -> bool:
  """Whether products of symbolic sizes are brought to a sum, which by design may get longer."""
  return any(u.op is Ops.MUL and u.dtype is dtypes.index and u.src[1].op is not Ops.CONST for u in root.toposort)


# *** the tests ***


def check(case: Drawn) -> None:
  """All that is promised of `simplify`, for one expression."""
  before = whole(case)
  after = simplify(before)
  if (problem := broken_promise(case, before, after)) is not None:
    raise AssertionError(f"{problem}: {before.render()} → {after.render()}, over {case.leaves}")


def broken_promise(case: Drawn, before: UOp, after: UOp) -> str | None:
  """What is wrong with a simplified expression."""
  if (again := simplify(after)) is not after:
    return f"not stable ({again.render()})"
  oracle = Oracle(case.leaves)
  if case.gate is None:
    if not (oracle(before) == oracle(after)).all():
      return "another value"
  else:
    offset, kept = after.src[1], after.src[2] if len(after.src) == 3 else _TRUE
    holds = oracle(case.gate)
    if not (holds == oracle(kept)).all() or not ((oracle(case.expression) == oracle(offset)) | ~holds).all():
      return "another value under the gate, or another gate"
  for u, values in oracle.values.items():
    if values.size and not (u.vmin <= values.min() and values.max() <= u.vmax):
      return f"wrong bounds [{u.vmin}, {u.vmax}] of {u.render()}"
  return "dearer" if not multiplies_out(before) and dearer(before, after) else None


def when(chunk: int) -> list[pytest.MarkDecorator]:
  return [] if chunk < BY_DAY else [pytest.mark.nightly]


@pytest.mark.parametrize("chunk", [pytest.param(c, marks=when(c)) for c in range(CHUNKS)])
def test_expressions(chunk: int) -> None:
  for case in drawn(chunk):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_sample_by_proof(part: int) -> None:
  """The same by z3, which shares nothing with the oracle."""
  for seed in range(part, 60, 4):
    case = draw(Random(10**9 + seed))
    if case.gate is None:
      check_same_value(case.expression, simplify(case.expression))


def test_every_integer_rule_is_reached() -> None:
  """The generator builds what the rules are about: each fires."""
  fired: Counter[str] = Counter()

  def counted(name: str, replacement: Callable[..., UOp | None]) -> Callable[..., UOp | None]:
    @wraps(replacement)
    def count(*args: UOp, **captures: UOp) -> UOp | None:
      result = replacement(*args, **captures)
      if result is not None:
        fired[name] += 1
      return result

    return count

  table = PatternMatcher([rule(r.name, r.pattern, counted(r.name, r.replacement)) for r in SYMBOLIC.rules])
  assert "ctx" not in {p for r in SYMBOLIC.rules for p in inspect.signature(r.replacement).parameters}
  for seed in range(3 * PER_CHUNK):
    graph_rewrite(whole(draw(Random(seed))), table, bottom_up=True)
  elsewhere = {"extract_known_lanes", "vector_of_constants", "load_never", "bitcast_same", "bitcast_bitcast"}
  elsewhere |= {"where_load"}
  elsewhere |= {"less_same"}  # of integers the bounds know it already
  names = {r.name for r in SYMBOLIC.rules if "float" not in r.name and r.name != "trunc_trunc"}
  wanted = names - elsewhere
  assert wanted <= fired.keys(), f"never fired: {sorted(wanted - fired.keys())}"


def test_the_oracle_finds_errors() -> None:
  x = UOp.variable("x", -4, 4)
  oracle = Oracle((x,))
  assert (oracle(x // 2) != oracle(x.alu(Ops.TRUNCDIV, UOp.const(dtypes.index, 2)))).any()
  assert (oracle(x % 3) == oracle(x + (x // 3) * -3)).all()
  assert oracle(x % 0).max() == oracle(x // 0).max() == 0
  wrapped = UOp.variable("y", 126, 127, dtypes.int8) + 1
  assert Oracle(wrapped.src[:1])(wrapped).tolist() == [127, -128]
  assert np.array_equal(oracle(x.cast(dtypes.uint8).cast(dtypes.index)), np.arange(-4, 5) % 256)
