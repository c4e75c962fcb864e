"""Instructions as functions: `v_add_f32(v[0], v[1], 2.0)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tiny_asm_amd import symbols
from tiny_asm_amd.build import SUFFIXES, build
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.modifiers import FLAGS, NAMES
from tiny_asm_amd.registers import Operand, Register
from tiny_asm_amd.table import LIKE, family_of, table

Value = Register | Operand | int | float | str


@dataclass(frozen=True)
class Label:
  """A place in code, which branches name."""

  name: str


@dataclass(frozen=True)
class Branch:
  """A branch to a label, whose distance is not known yet."""

  chip: str
  mnemonic: str
  operands: tuple[Operand, ...]
  target: Label

  def to(self, words: int) -> Instruction:
    """The branch, over so many words from behind it."""
    return build(self.chip, self.mnemonic, [*self.operands, Operand(words)], {})


@dataclass(frozen=True)
class Half:
  """One of two operations that are done at once: `first & second` is an instruction."""

  chip: str
  mnemonic: str
  operands: tuple[Operand, ...]

  def __and__(self, other: Half) -> Instruction:
    return build(self.chip, f"{self.mnemonic} :: {other.mnemonic}", [*self.operands, *other.operands], {})


Item = Instruction | Branch | Label | str


class Isa:
  """The instructions of a chip: `Isa("gfx1100").v_mov_b32(v[0], 1)`. Names are those of assemblers; what is behind
  operands there are keywords here: `offset=16`, `clamp=True`, `op_sel=[0, 1]`, `row_shl=1`, `th="TH_LOAD_NT"`. A name
  may end with _e32, _e64, _dpp, _e64_dpp or _sdwa. Counters are keywords too: `s_waitcnt(vmcnt=0)`."""

  def __init__(self, chip: str) -> None:
    self.chip, self.family = chip, family_of(chip)

  def __getattr__(self, name: str) -> Callable[..., Any]:
    if name.startswith("_"):
      raise AttributeError(name)
    if name.startswith("v_dual_"):
      return lambda *operands: Half(self.chip, name, tuple(map(operand, operands)))
    if not self._has(name):
      raise AttributeError(f"{self.chip} has no instruction {name}")

    def instruction(*operands: Value | Label | Sequence[Value], **keywords: Any) -> Instruction | Branch:
      if operands and isinstance(operands[-1], Label):
        return Branch(self.chip, name, tuple(operand(o) for o in operands[:-1]), operands[-1])  # type: ignore[arg-type]
      if name == "s_waitcnt" and keywords:
        return build(self.chip, name, [Operand(symbols.waits(self.family, keywords))], {})
      made = [[operand(o) for o in op] if isinstance(op, list | tuple) else operand(op) for op in operands]  # type: ignore[arg-type]
      return build(self.chip, name, made, given(keywords))

    instruction.__name__ = name
    return instruction

  def _has(self, name: str) -> bool:
    names = [name, *[name.removesuffix(suffix) for suffix in SUFFIXES]]
    like = LIKE.get(self.chip, self.chip)
    return any(like in row.chips for known in names for row in table(self.family).named.get(known, ()))

  def __dir__(self) -> list[str]:
    like = LIKE.get(self.chip, self.chip)
    return sorted({row.mnemonic for row in table(self.family).rows if like in row.chips and " " not in row.mnemonic})

  def waits(self, **counts: int) -> int:
    """The immediate of `s_waitcnt`."""
    return symbols.waits(self.family, counts)

  def hwreg(self, name: str | int, offset: int = 0, size: int = 32) -> int:
    """The immediate that names bits of a hardware register."""
    return symbols.hwreg(self.family, name, offset, size)


def operand(value: Value | Label) -> Operand:
  """What stands for a value in an instruction. Raises AsmError."""
  if isinstance(value, Operand):
    return value
  if isinstance(value, bool) or not isinstance(value, Register | int | float | str):
    raise AsmError(f"{value!r} is no operand: a register, a number or a word is")
  return Operand(value)


def given(keywords: dict[str, Any]) -> dict[str, str]:
  """Keywords as modifiers. Raises AsmError."""
  found = {}
  for name, value in keywords.items():
    if value is False or value is None:
      continue
    if name not in NAMES and name not in FLAGS:
      raise AsmError(f"there is no modifier {name}")
    if value is True:
      found[name] = "" if name in FLAGS else "1"
    else:
      found[name] = f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
  return found


def code(items: Iterable[Item], chip: str = "") -> list[Instruction]:
  """Instructions with labels resolved; texts are lines of assembly for `chip`. Raises AsmError."""
  from tiny_asm_amd.assembler import parse

  made = [parse(item, chip) if isinstance(item, str) else item for item in items]
  places: dict[str, int] = {}
  at = 0
  for item in made:
    if isinstance(item, Label):
      if item.name in places:
        raise AsmError(f"label {item.name} is there twice")
      places[item.name] = at
    else:
      at += 4 if isinstance(item, Branch) else item.size
  found: list[Instruction] = []
  at = 0
  for item in made:
    if isinstance(item, Label):
      continue
    if isinstance(item, Branch):
      if item.target.name not in places:
        raise AsmError(f"{item.mnemonic}: there is no label {item.target.name}")
      item = item.to((places[item.target.name] - at - 4) // 4)
    found.append(item)
    at += item.size
  return found
