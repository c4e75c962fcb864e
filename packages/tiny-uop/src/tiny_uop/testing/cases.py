"""The cases of rule tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from tiny_uop.pattern import Example, PatternMatcher, Rule
from tiny_uop.records import dataclass
from tiny_uop.samples import Samples
from tiny_uop.spec import SpecError, check_nodes
from tiny_uop.testing.cost import cost
from tiny_uop.testing.equality import both, check_same_value, show
from tiny_uop.uop import UOp


def _itself(u: UOp) -> UOp:
  return u


@dataclass(frozen=True)
class RuleCase:
  """One example or near miss of one rule. `str` of it is the id of a test."""

  row: Rule
  kind: Literal["example", "near_miss"]
  number: int
  root: UOp
  context: Callable[[], Any] | None = None
  meaning: Callable[[UOp], UOp] = _itself
  samples: int = 0

  def __str__(self) -> str:
    return f"{self.row.name}-{self.kind}-{self.number}"

  def rewritten(self) -> UOp | None:
    """What the rule makes of the root; None where it leaves it alone."""
    return PatternMatcher([self.row]).rewrite(self.root, None if self.context is None else self.context())

  def check(self) -> None:
    """Raises AssertionError, which names the rule: see `rule_cases` for what has to hold."""
    after = self.rewritten()
    try:
      if self.kind == "example":
        self._check_example(after)
      elif after is not None:
        raise AssertionError(f"it is rewritten:{both(self.root, after)}")
    except AssertionError as wrong:
      raise AssertionError(f"rule {self.row.name!r}, {self.kind.replace('_', ' ')} {self.number}: {wrong}") from None

  def _check_example(self, after: UOp | None) -> None:
    row, before = self.row, self.root
    if after is None:
      raise AssertionError(f"the rule leaves it alone: {show(before)}\n  pattern: {row.pattern!r}")
    if before.dtype is not after.dtype:
      raise AssertionError(f"dtype {before.dtype} became {after.dtype}:{both(before, after)}")
    plain_before, plain_after = self.meaning(before), self.meaning(after)
    _check_legal(plain_before, plain_after)
    check_same_value(plain_before, plain_after, row.changes, self.samples)
    if not row.grows and (new := cost(after)) > (old := cost(before)):
      why = "a row that makes graphs larger says why in grows="
      raise AssertionError(f"cost {old} became {new}; {why}{both(before, after)}")


def rule_cases(
  *tables: PatternMatcher | Iterable[Rule],
  context: Callable[[], Any] | None = None,
  meaning: Callable[[UOp], UOp] = _itself,
  samples: int = 0,
) -> list[RuleCase]:
  """The tests that follow from tables of rules; `context` makes what rules with a parameter `ctx` get.

  `meaning` makes plain graphs of those that use a representation of their own: it is applied to what is compared.
  `samples`, for integers that are too wide to prove or to try all values of: how many to try.

  An example's root is rewritten by the rule it stands in. The result keeps dtype, shape and value (see
  `check_same_value`), stays legal where the example is, and costs no more (see `cost`) unless the row says `grows`. A
  near miss is left alone. Raises ValueError for a row without example or near miss, and for two rows of one name.
  """
  rows = dict.fromkeys(row for table in tables for row in (table.rules if isinstance(table, PatternMatcher) else table))
  names: set[str] = set()
  for row in rows:
    if row.name in names:
      raise ValueError(f"two rules are named {row.name!r}: give each rule a name of its own, also across tables")
    names.add(row.name)
    for what, found in (("example", row.examples), ("near_miss", row.near_misses)):
      if not found:
        raise ValueError(f"rule {row.name!r} has no {what}: add {what}=lambda s: … to its row (see tiny_uop.Samples)")
  cases: list[RuleCase] = []
  for row in rows:
    cases += [RuleCase(row, "example", i, u, context, meaning, samples) for i, u in _graphs(row.examples)]
    cases += [RuleCase(row, "near_miss", i, u, context) for i, u in _graphs(row.near_misses)]
  return cases


def _graphs(builders: Iterable[Example]) -> Iterator[tuple[int, UOp]]:
  built = [build(Samples()) for build in builders]
  return enumerate(u for made in built for u in (made if isinstance(made, tuple) else (made,)))


def _check_legal(before: UOp, after: UOp) -> None:
  try:
    check_nodes(before)
  except SpecError:
    return  # what is matched in the middle of a pass need not be legal
  try:
    check_nodes(after)
  except SpecError as illegal:
    raise AssertionError(f"the result is {illegal}") from None
