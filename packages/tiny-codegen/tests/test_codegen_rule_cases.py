"""Every rule of the decompositions at its examples and near misses, for targets that lack different things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from codegen_meaning import in_bytes, joined

from tiny_codegen import decompose
from tiny_codegen.decompose import late_table_for, table_for
from tiny_codegen.render import C99, cpu_target
from tiny_codegen.target import Target
from tiny_uop import GroupOp, Ops, dtypes
from tiny_uop.testing import RuleCase, rule_cases

NARROW = frozenset({dtypes.bool, *(d for d in dtypes.ints if d.bits < 64), dtypes.float32})
TARGETS = (
  Target(NARROW, frozenset()),  # nothing that it could lack
  C99.target,
  cpu_target("x86_64", features=["+fma", "+f16c", "+avx512f", "+avx512fp16"]).target,
  Target(NARROW | {*dtypes.ints, dtypes.float64, dtypes.bfloat16}, frozenset(), bfloat16_of_integers=False),
)
# 64 bits by 64 bits: more than z3 can do; `test_codegen_decompose_wide.py` tries more values, on the machine
HARD = frozenset({"split_product"})
MEMORY = frozenset({Ops.LOAD, Ops.STORE})


def cases(target: Target) -> list[RuleCase]:
  """Of all rules for a target. Those about memory see it as bytes, as they read it by other types."""
  rows = (*table_for(target).rules, *late_table_for(target).rules)
  memory = [r for r in rows if r.pattern.op is not None and r.pattern.op <= MEMORY]
  hard = [r for r in rows if r.name in HARD]
  others = [r for r in rows if r not in memory and r not in hard]
  return [
    *rule_cases(others, meaning=joined),
    *rule_cases(memory, meaning=in_bytes),
    *rule_cases(hard, meaning=joined, samples=100),
  ]


# a graph that a rule of the same name gets for several targets is rewritten alike
CASES = {(c.row.name, c.kind, c.root): c for target in TARGETS for c in cases(target)}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_rule(case: RuleCase) -> None:
  case.check()


def test_every_rule_is_in_a_table_that_is_tested() -> None:
  written = set()
  for path in Path(decompose.__file__).parent.glob("*.py"):
    written |= set(re.findall(r'rule\("(\w+)"', path.read_text()))
  written |= {f"{op.name.lower()}_polynomial" for op in GroupOp.Transcendental}
  assert written == {c.row.name for c in CASES.values()}
