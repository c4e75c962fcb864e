"""Every rule of the scheduler at its examples and near misses: the tests follow from the tables."""

from __future__ import annotations

import pytest

from tiny_sched.constant_rules import CONSTANT_RULES, LAYOUT_RULES, Constants
from tiny_sched.devices.rules import DEVICE_RULES, PART_RULES
from tiny_sched.graph_rules import GRAPH_RULES
from tiny_sched.value_rules import VALUE_RULES
from tiny_uop.testing import RuleCase, rule_cases


@pytest.mark.parametrize("case", rule_cases(PART_RULES, DEVICE_RULES, GRAPH_RULES, VALUE_RULES), ids=str)
def test_rule(case: RuleCase) -> None:
  case.check()


def _all_but_the_first() -> Constants:
  """What rules on constants are told: the memory of slot 0 changes."""
  return Constants(lambda buffer: buffer.arg[0] != 1_000_000_000)


@pytest.mark.parametrize("case", rule_cases(CONSTANT_RULES, LAYOUT_RULES, context=_all_but_the_first), ids=str)
def test_rule_on_constants(case: RuleCase) -> None:
  case.check()
