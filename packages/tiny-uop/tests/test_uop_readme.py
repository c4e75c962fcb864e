"""The programs in the README's section on rules run, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
RULES = README.split("\n## Rules\n")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", RULES, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["rule", "examples"])
def test_rules(block: str, capsys: pytest.CaptureFixture[str]) -> None:
  names: dict[str, Any] = {}
  exec(block, names)
  assert capsys.readouterr().out.split() == re.findall(r"print\(.*\)  # (.*)", block)
  if "rule_cases" in names:
    cases = names["rule_cases"](names["RULES"])
    assert len(cases) == 4
    for case in cases:
      names["test_rule"](case)
