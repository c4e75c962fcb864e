"""Bytes → instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.modifiers import DPP8_BASE
from tiny_asm_amd.sources import LITERAL
from tiny_asm_amd.table import LIKE, Row, family_of, table

DATA = ("vdst", "vdata", "data0", "data1")
NSA = "vaddr"
"""The operands that further addresses of image instructions are."""


def decode(code: bytes | memoryview, chip: str, at: int = 0, lanes: int = 0) -> Instruction:
  """The instruction whose bytes begin at `at`. `lanes`: of the wave, which says how RDNA's masks are shown; by itself
  32. Raises AsmError where none does."""
  family, like = family_of(chip), LIKE.get(chip, chip)
  word = int.from_bytes(code[at : at + 16], "little")
  left = len(code) - at
  found: Instruction | None = None
  for mask, values in table(family).by_bits:
    for row in values.get(word & mask, ()):
      if like in row.chips and row.size <= left and (made := _made(chip, family, row, word, code, at)) is not None:
        if row.variant != "t16":
          return replace(made, lanes=lanes) if lanes else made
        found = found or made  # names of halves say nothing more where there are others
  if found is not None:
    return replace(found, lanes=lanes) if lanes else found
  raise AsmError(f"at byte {at}: {bytes(code[at : at + 8]).hex()} is no instruction of {chip}")


def _made(
  chip: str, family: str, row: Row, word: int, code: bytes | memoryview, at: int
) -> Instruction | None:  # fmt: skip
  """The instruction if it is of a row: one that gives these bytes."""
  values = {}
  for name, runs in row.layout.fields.items():
    values[name] = sum((word >> place & ((1 << length) - 1)) << low for place, low, length in runs)
    # bits that a field has not, which are the same in all registers that it can be
    if row.layout.kinds.get(name, ("",))[0][0:2] == "VI" and not any(low == 9 for _, low, _ in runs):
      values[name] &= 0x1FF
  if "vdstY" in values:
    values["vdstY"] = values["vdstY"] & ~1 | ~values["vdstX"] & 1
  accumulators = any(values.get(name, 0) & 512 for name in DATA)
  for name in DATA:
    if accumulators and row.layout.kinds.get(name, ("",))[0][0:1] == "w" and name in values:
      values[name] |= 512  # one bit is about all of them
  if not all(_can_be(row, name, value) for name, value in values.items()):
    return None
  made = Instruction(chip, row, tuple(sorted(values.items())))
  count = sum(token.startswith(f"${NSA}") and token[1:] not in row.layout.fields
              for position in row.layout.positions for token in position)  # fmt: skip
  end = at + row.size
  if count:
    made = replace(made, more=tuple(code[end : end + count]))
    end += (count + 3) // 4 * 4
  if _has_literal(row, values):
    if end + 4 > len(code):
      return None
    made = replace(made, literal=int.from_bytes(code[end : end + 4], "little"))
    end += 4
  if len(made.more) != count or bytes(made) != bytes(code[at:end]):
    return None
  try:
    str(made)
  except (AsmError, IndexError, KeyError):
    return None
  return made


def _can_be(row: Row, name: str, value: int) -> bool:
  """Whether a field can have a value, where it has room for others: of a vector register, and of its lower half."""
  kind = row.layout.kinds.get(name, ("",))[0]
  room = max(low + length for _, low, length in row.layout.fields[name])
  if kind == "Dpp8FI":
    return value - DPP8_BASE in (0, 1)
  if room == 9 and (kind[0:1] == "v" or kind in ("h", "hlo")) and kind[1:2].isdigit() | (kind[0:1] == "h"):
    return value >= 256
  if kind in ("v1lo",) or kind.startswith("Vlo.") and value >= 256:
    return value & 128 == 0
  return True


def _has_literal(row: Row, values: dict[str, int]) -> bool:
  if "imm" in row.layout.fields:
    return False
  for name, value in values.items():
    kind = row.layout.kinds.get(name, ("",))[0]
    # operands that can be one; of eight bits a vector register is the same number
    if value == LITERAL and kind[:2] in ("V.", "S.", "Vl", "VT") and (row.form != "sdwa"):
      return True
  return False


def disassemble(code: bytes | memoryview, chip: str, lanes: int = 0) -> Iterator[tuple[int, Instruction]]:
  """(byte, instruction) of each, one behind the other. `lanes`: of the wave, as in `decode`. Raises AsmError where
  bytes are none."""
  at = 0
  while at < len(code):
    made = decode(code, chip, at, lanes)
    yield at, made
    at += made.size
