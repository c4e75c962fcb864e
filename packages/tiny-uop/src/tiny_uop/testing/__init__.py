"""Tests that follow from rule tables: every row fires on its examples, leaves its near misses alone and keeps values.

    @pytest.mark.parametrize("case", rule_cases(TABLE), ids=str)
    def test_rule(case: RuleCase) -> None:
      case.check()

Needs z3: `pip install tiny-uop[test]`.
"""

from tiny_uop.testing.cases import RuleCase, rule_cases
from tiny_uop.testing.cost import cost
from tiny_uop.testing.equality import check_same_value

__all__ = ["RuleCase", "check_same_value", "cost", "rule_cases"]
