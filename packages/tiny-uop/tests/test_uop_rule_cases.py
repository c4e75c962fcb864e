"""The tests that follow from the rule tables of the simplifier: see `tiny_uop.testing`."""

import pytest

from tiny_uop.symbolic import SYMBOLIC
from tiny_uop.testing import RuleCase, rule_cases

CASES = rule_cases(SYMBOLIC)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rule(case: RuleCase) -> None:
  case.check()


def test_no_rule_stands_behind_one_that_always_applies_first() -> None:
  applied = {(case.row.name, SYMBOLIC.rewrite_named(case.root)) for case in CASES if case.kind == "example"}
  reached = {name for name, result in applied if result is not None and result[0] == name}
  assert {row.name for row in SYMBOLIC.rules} - reached == set()
