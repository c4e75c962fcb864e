"""Random instructions against LLVM's assembler."""

from __future__ import annotations

import re

import pytest
from asm_random import LLVM, Source, assembled

from tiny_asm_amd import AsmError, Instruction

pytestmark = pytest.mark.skipif(LLVM is None, reason="there is no llvm-mc of LLVM 19 or later: apt-get install llvm-19")
CHIPS = ["gfx1100", "gfx1102", "gfx1150", "gfx1200", "gfx900", "gfx908", "gfx90a", "gfx942"]
ABOUT_THIS_CHIP = re.compile(
  r"not supported on this GPU|not valid for this GPU|invalid register class|register alignment|even aligned|"
  r"not a valid operand|invalid operand for instruction|inline constants are not allowed|src1 immediate operand|"
  r"VGPR or an inline constant|only supports row_newbcast"
)
"""What LLVM knows of chips that is not in its records: such lines say nothing of an encoding."""


def compare(chip: str, made: list[Instruction]) -> float:
  """The share of instructions that LLVM refuses; the others have to be the same."""
  lines = [str(m) for m in made]
  found = assembled(lines, chip, 32 if chip.startswith("gfx1") else 0)
  wrong = [
    f"{line}: {bytes(m).hex()}, LLVM has {got if isinstance(got, str) else got.hex()}"
    for m, line, got in zip(made, lines, found)
    if got != bytes(m) and not (isinstance(got, str) and ABOUT_THIS_CHIP.search(got))
  ]
  assert not wrong, f"{len(wrong)} of {len(made)}:\n" + "\n".join(wrong[:20])
  return sum(isinstance(got, str) for got in found) / len(made)


def drawn(source: Source, rows: list[int]) -> list[Instruction]:
  """An instruction of each of these rows, without those for which 20 tries found no legal operands."""
  found = []
  for row in rows:
    try:
      found.append(source.instruction(source.rows[row]))
    except AsmError:
      pass
  assert len(found) > 0.99 * len(rows)
  return found


@pytest.mark.parametrize("chip", CHIPS)
def test_some_random_instructions(chip: str) -> None:
  source = Source(chip, 0)
  rows = source.random.sample(range(len(source.rows)), 400)
  assert compare(chip, drawn(source, rows)) < 0.1


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("chip", CHIPS)
def test_random_instructions_of_every_row(chip: str, seed: int) -> None:
  source = Source(chip, seed)
  assert compare(chip, drawn(source, list(range(len(source.rows))) * 3)) < 0.1
