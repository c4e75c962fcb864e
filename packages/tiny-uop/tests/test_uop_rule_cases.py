"""The tests that follow from the rule tables of the simplifier: see `tiny_uop.testing`."""

import pytest

from tiny_uop.symbolic import SYMBOLIC
from tiny_uop.testing import RuleCase, rule_cases


@pytest.mark.parametrize("case", rule_cases(SYMBOLIC), ids=str)
def test_rule(case: RuleCase) -> None:
  case.check()
