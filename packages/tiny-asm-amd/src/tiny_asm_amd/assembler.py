"""Text → instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tiny_asm_amd import sources, symbols
from tiny_asm_amd.build import build
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.modifiers import FLAGS, NAMES
from tiny_asm_amd.registers import Operand
from tiny_asm_amd.table import family_of, table

_WORDS = ("SWaitCnt", "DepCtr", "SDelayALU", "VersionImm")
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*):\s*(.*)$")


def parse(line: str, chip: str, labels: Mapping[str, int] | None = None, here: int = 0) -> Instruction:
  """The instruction that a line is, for a chip as "gfx1100". `labels` are bytes from the beginning, and so is `here`.
  Raises AsmError, which names the line."""
  try:
    return _parse(re.sub(r"(//|;).*", "", line).strip(), chip, {} if labels is None else labels, here)
  except AsmError as error:
    raise AsmError(f"{line.strip()!r}: {error}") from error


def assemble(text: str, chip: str) -> bytes:
  """The bytes of lines of text: instructions, labels with a colon, and comments behind // or ;. Raises AsmError."""
  lines = [re.sub(r"(//|;).*", "", line).strip() for line in text.splitlines()]
  labels: dict[str, int] = {}
  parts: list[str] = []
  for line in lines:
    while (found := _LABEL.match(line)) and " " not in found[1]:
      parts.append(f"{found[1]}:")
      line = found[2].strip()
    parts += [line] if line else []
  # a branch has one size, whatever it goes to
  here = 0
  for part in parts:
    if part.endswith(":"):
      if part[:-1] in labels:
        raise AsmError(f"label {part[:-1]} is there twice")
      labels[part[:-1]] = here
    else:
      here += parse(part, chip, _Any(), here).size
  code, here = b"", 0
  for part in parts:
    if not part.endswith(":"):
      code += bytes(parse(part, chip, labels, len(code)))
  return code


class _Any(dict[str, int]):
  """Every label is here, while it is not known yet where it is."""

  def __contains__(self, name: object) -> bool:
    return True

  def __missing__(self, name: str) -> int:
    return 4


def words(line: str) -> Iterator[str]:
  """The words of a line; what is in brackets is one, and commas part words."""
  depth, bar, word = 0, False, ""
  for char in line:
    if char in "([":
      depth += 1
    elif char in ")]":
      depth -= 1
    elif char == "|":
      bar = not bar
    if char in " \t," and depth == 0 and not bar:
      if word:
        yield word
      word = ""
    else:
      word += char
  if word:
    yield word


def _parse(line: str, chip: str, labels: Mapping[str, int], here: int) -> Instruction:
  family = family_of(chip)
  mnemonic, _, rest = line.partition(" ")
  mnemonic = mnemonic.lower()
  rows = table(family).named.get(mnemonic, ())
  if rows and rows[0].layout.kinds.get("simm16", ("",))[0] in _WORDS:
    return build(chip, mnemonic, [Operand(_number_or(rest))], {})
  if "::" in rest:
    first, _, second = rest.partition("::")
    other, _, second = second.strip().partition(" ")
    mnemonic, rest = f"{mnemonic} :: {other.lower()}", f"{first.strip()}, {second}"
  operands: list[Operand | Sequence[Operand]] = []
  given: dict[str, str] = {}
  for word in words(rest):
    name, colon, value = word.partition(":")
    if colon and name in NAMES or word in FLAGS and not (word == "lds" and not operands):
      given[name] = value
    else:
      operands.append(_operand(word, family))
  _resolve(operands, labels, here)
  return build(chip, mnemonic, operands, given)


def _number_or(text: str) -> int | str:
  found = symbols.number(text)
  return text if found is None else found


def _operand(word: str, family: str) -> Operand | list[Operand]:
  if word.startswith("["):
    return [sources.parse(part.strip(), family) for part in words(word[1:-1])]
  return sources.parse(word, family)


def _resolve(operands: list[Operand | Sequence[Operand]], labels: Mapping[str, int], here: int) -> None:
  """Names of labels become how many words they are from behind this instruction."""
  for n, operand in enumerate(operands):
    if isinstance(operand, Operand) and isinstance(operand.value, str) and re.fullmatch(r"[\w.$]+", operand.value):
      name = operand.value
      if name in labels and name != "off" and not name.startswith("attr") and not _is_target(name):
        distance = labels[name] - here - 4
        operands[n] = Operand(distance // 4)


def _is_target(name: str) -> bool:
  """Whether an export goes there."""
  found = re.fullmatch(r"(mrt|pos|param|invalid_target_)\d+|mrtz|prim|null|dual_src_blend[01]|p10|p20|p0", name)
  return found is not None
