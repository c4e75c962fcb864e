"""Every rule of the scheduler at its examples and near misses: the tests follow from the tables."""

from __future__ import annotations

import pytest

from tiny_sched.device_rules import DEVICE_RULES, PART_RULES
from tiny_sched.graph_rules import GRAPH_RULES
from tiny_sched.value_rules import VALUE_RULES
from tiny_uop.testing import RuleCase, rule_cases


@pytest.mark.parametrize("case", rule_cases(PART_RULES, DEVICE_RULES, GRAPH_RULES, VALUE_RULES), ids=str)
def test_rule(case: RuleCase) -> None:
  case.check()
