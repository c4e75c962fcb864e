"""Operands and modifiers → an instruction, in its shortest encoding that has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tiny_asm_amd import modifiers, sources, symbols
from tiny_asm_amd.aliases import ALIASES
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import ABS, HALF, HIGH, LISTS, NEG, Instruction, is_half, narrow_size, op_sel_hi_default
from tiny_asm_amd.legal import legal
from tiny_asm_amd.modifiers import Given
from tiny_asm_amd.registers import Operand, Register
from tiny_asm_amd.sources import Mismatch
from tiny_asm_amd.table import LIKE, Row, family_of, table

Operands = Sequence[Operand | Sequence[Operand]]
SUFFIXES = {
  "_e64_dpp": ("e64_dpp", "e64_dpp8"), "_e32": ("e32",), "_e64": ("e64",), "_dpp": ("dpp", "dpp8"), "_sdwa": ("sdwa",),
}  # fmt: skip
"""What a mnemonic can end with to ask for an encoding."""
PAIRED = ("gfx90a", "gfx942", "gfx950")
"""Chips where several vector registers begin at an even one."""


def build(chip: str, mnemonic: str, operands: Operands, given: Given) -> Instruction:
  """The instruction with these operands, in its shortest encoding that has them. Raises AsmError, which says why each
  encoding has not."""
  family = family_of(chip)
  rows, forms = _rows(chip, family, mnemonic)
  why: list[str] = []
  for row in rows:
    if forms and row.form not in forms:
      continue
    if not forms and not _asked_for(row, given):
      continue
    try:
      return _fit(chip, family, row, operands, given)
    except Mismatch as problem:
      why.append(f"{row.form}: {problem}" if row.form else str(problem))
  if not why:
    wanted = "lanes that are permuted, parts that are selected" if not forms else forms[0]
    raise AsmError(f"{mnemonic} has no such encoding on {chip}: {wanted}")
  if len({problem.partition(": ")[2] for problem in why}) == 1:
    why = [why[0].partition(": ")[2] or why[0]]
  shown = ", ".join(f"[{', '.join(map(str, op))}]" if isinstance(op, Sequence) else str(op) for op in operands)
  raise AsmError(f"{mnemonic} {shown}: " + "; ".join(dict.fromkeys(why)))


def _rows(chip: str, family: str, mnemonic: str) -> tuple[list[Row], tuple[str, ...]]:
  """(rows of a chip, the encodings that the name asks for)."""
  named, like = table(family).named, LIKE.get(chip, chip)
  forms: tuple[str, ...] = ()
  if mnemonic not in named:
    for suffix, asked in SUFFIXES.items():
      parts = mnemonic.split(" :: ")
      if all(part.endswith(suffix) for part in parts):
        mnemonic, forms = " :: ".join(part.removesuffix(suffix) for part in parts), asked
        break
  mnemonic = " :: ".join(ALIASES.get(family, {}).get(part, part) for part in mnemonic.split(" :: "))
  rows = [row for row in named.get(mnemonic, ()) if like in row.chips]
  if forms and forms[0] == "e64_dpp" and not any(row.form in forms for row in rows):
    forms = ("dpp", "dpp8")  # of those that have no other
  if not rows:
    raise AsmError(f"{chip} has no instruction {mnemonic}")
  return rows, forms


def _asked_for(row: Row, given: Given) -> bool:
  """Whether what is given is a reason for an encoding with selected parts, or permuted lanes."""
  if row.form == "sdwa":
    return any(name.endswith(("_sel", "_unused")) for name in given)
  if row.form.endswith("dpp8"):
    return "dpp8" in given
  return not row.form.endswith("dpp") or any(name in given for name in modifiers.DPP_CONTROLS)


# *** operands → fields ***


class _Fields:
  """The fields of an instruction that is being made."""

  def __init__(self, chip: str, row: Row, family: str) -> None:
    self.chip, self.row, self.layout, self.family = chip, row, row.layout, family
    self.values: dict[str, int] = {}
    self.done_to = {name: 0 for name in self.layout.sources if f"{name}_modifiers" in self.layout.kinds}
    self.literal: int | None = None
    self.more: list[int] = []
    self.lanes = 0
    """Of the wave, where a mask says it."""
    self.exported = 0
    """Which of four operands are exported."""

  def put(self, name: str, value: int) -> None:
    """Raises Mismatch where the field has not the bits."""
    runs = self.layout.fields.get(name)
    if runs is None:
      if value:
        raise Mismatch(f"{name} cannot be given")
      return
    self.values[name] = value

  def use_literal(self, literal: int) -> None:
    """All literals of an instruction are one."""
    if self.literal not in (None, literal):
      raise Mismatch("there is room for one literal")
    if self.family == "cdna" and self.row.size == 8 and "imm" not in self.layout.fields:
      raise Mismatch("this encoding has no literal")
    self.literal = literal

  def source(self, name: str, operand: Operand, signs: bool) -> None:
    """An operand with a place."""
    kinds = self.layout.kinds[name]
    done = self.layout.kinds.get(f"{name}_modifiers", ("",))[0]
    if operand.neg or operand.abs or operand.sext:
      if not signs or operand.sext != done.startswith("Int"):
        raise Mismatch(f"{operand}: nothing can be done to this operand")
      self.done_to[name] |= (NEG if operand.neg or operand.sext else 0) | (ABS if operand.abs else 0)
    value, problem = operand.value, None
    pairs = LIKE.get(self.chip, self.chip) in PAIRED and isinstance(value, Register) and value.kind in "va"
    if pairs and isinstance(value, Register) and value.count > 1 and value.index % 2:
      raise Mismatch(f"{value} does not begin at a multiple of 2")
    for kind in kinds:
      try:
        number, literal = sources.encode(operand, kind, self.family)
      except Mismatch as error:
        problem = problem or error
        continue
      if literal is not None:
        self.use_literal(literal)
      self.half(name, operand, kind)
      if (kind == "sw" or kind.endswith(".i1")) and isinstance(value, Register) and value.count == 2:
        self.lanes = 64
      if kind == "e":
        self.exported |= (operand.value != "off") << int(name[-1])
      # the ninth bit says there that it is no vector register
      self.values[name] = number ^ 256 if self.row.form == "sdwa" and name != "vdst" else number
      return
    raise problem or Mismatch(f"{operand} is of no kind that {name} takes")

  def do_to(self, name: str, bits: int) -> None:
    """Something is done to a source, or comes from it. Raises Mismatch."""
    if name in self.done_to:
      self.done_to[name] |= bits
    elif bits:
      raise Mismatch(f"nothing can be done to {name}")

  def half(self, name: str, operand: Operand, kind: str) -> None:
    """Halves of registers are said by modifiers where the number has no room for it."""
    value = operand.value
    if is_half(kind) and isinstance(value, Register) and value.half == "h":
      if name in self.done_to:
        self.done_to[name] |= HALF
      elif name == "vdst" and "src0" in self.done_to:
        self.done_to["src0"] |= HIGH
      else:
        raise Mismatch(f"{operand}: this encoding has no upper halves")


def _fit(chip: str, family: str, row: Row, operands: Operands, given: Given) -> Instruction:
  layout, fields = row.layout, _Fields(chip, row, family)
  positions = layout.positions
  if len(operands) == len(positions) - 1 and layout.kinds.get(positions[-1][0][1:], ("",))[0] == "Endpgm":
    operands = [*operands, Operand(0)]
  if len(operands) != len(positions):
    raise Mismatch(f"{len(positions)} operands are wanted")
  for position, operand in zip(positions, operands):
    parts: Sequence[Operand] = operand if isinstance(operand, Sequence) else (operand,)
    if len(position) == 1 and len(parts) > 1:
      parts = (_joined(parts),)
    if len(parts) != len(position):
      raise Mismatch(f"{len(position)} registers in brackets are wanted")
    for token, part in zip(position, parts):
      _place(fields, token, part)
  used = _modify(fields, given)
  if left := [name for name in given if name not in used]:
    raise Mismatch(f"it takes no {left[0]}")
  _check(fields)
  for position, operand in zip(positions, operands):
    wanted = narrow_size(row, fields.values, position[0][1:])
    if (
      wanted and isinstance(operand, Operand) and isinstance(operand.value, Register) and operand.value.count != wanted
    ):
      raise Mismatch(f"{operand}: {wanted} registers are wanted for numbers of this format")
  literal = None if "imm" in layout.fields else fields.literal
  return Instruction(chip, row, tuple(sorted(fields.values.items())), literal, tuple(fields.more), fields.lanes)


def _joined(parts: Sequence[Operand]) -> Operand:
  """Registers in brackets that are neighbours, as one operand. Raises Mismatch."""
  first = parts[0].value
  if isinstance(first, Register):
    wanted = [Register(first.kind, first.index + n) for n in range(len(parts))]
    if [part.value for part in parts] == wanted:
      return Operand(Register(first.kind, first.index, len(parts)))
  raise Mismatch("one operand is wanted, and these are no neighbours")


def _place(fields: _Fields, token: str, operand: Operand) -> None:
  """Put an operand where it belongs. Raises Mismatch."""
  value, layout = operand.value, fields.layout
  if token[0] != "$":
    name = value.kind if isinstance(value, Register) else value
    if {"vcc_lo": "vcc"}.get(str(name), name) != token or operand.neg:
      raise Mismatch(f"{operand}: {token} is wanted")
    fields.lanes = 64 if token == "vcc" == name else fields.lanes
    return
  name = token[1:].removesuffix("_modifiers")
  if name == "immDeferred":
    name = "imm"
  kind = layout.kinds[name][0]
  if kind.startswith("KImm"):
    if not isinstance(value, int | float):
      raise Mismatch(f"{operand} is no constant")
    bits = sources.float_bits(value, kind[5:].replace("FP", "f").lower()) if isinstance(value, float) else value
    size = 16 if kind == "KImmFP16" else 32
    if not -(1 << (size - 1)) <= bits < 1 << size:
      raise Mismatch(f"{operand} does not fit {size} bits")
    bits &= (1 << size) - 1
    if fields.literal not in (None, bits) or fields.values.get("imm", bits) != bits:
      raise Mismatch("there is room for one literal")
    fields.values["imm"] = fields.literal = bits  # which other operands can be, too
  elif kind in ("InterpAttr", "InterpAttrChan", "InterpSlot"):
    _interpolated(fields, name, kind, str(value))
  elif kind in symbols.IMMEDIATES:
    if isinstance(value, Register | float) or operand.neg or operand.abs:
      raise Mismatch(f"{operand} is no immediate")
    try:
      number = symbols.immediate(str(value), kind, fields.family)
    except AsmError as error:
      raise Mismatch(str(error)) from error
    bits, length = symbols.IMMEDIATES[kind][0], max(low + length for _, low, length in layout.fields[name])
    signed = number - (number >> (bits - 1) << bits)
    if not (0 <= number < 1 << length or -(1 << (length - 1)) <= signed < 0):
      raise Mismatch(f"{value} does not fit {length} bits")
    fields.values[name] = number & ((1 << length) - 1)
  elif name.startswith("vaddr") and name not in layout.fields:
    if not isinstance(value, Register) or value.kind != "v":
      raise Mismatch(f"{operand} is no vector register")
    number, _ = sources.encode(operand, layout.kinds[name][0], fields.family)
    fields.more.append(number & 255)
  else:
    fields.source(name, operand, token.endswith("_modifiers"))


def _interpolated(fields: _Fields, name: str, kind: str, text: str) -> None:
  """attr0.x, or p10."""
  if kind == "InterpSlot":
    if text not in ("p10", "p20", "p0"):
      raise Mismatch(f"{text}: p0, p10 or p20 are wanted")
    fields.values[name] = ("p10", "p20", "p0").index(text)
    return
  found = re.match(r"attr(\d+)\.([xyzw])$", text)
  if found is None:
    raise Mismatch(f"{text} is no attribute, as attr0.x")
  fields.values[name] = int(found[1])
  fields.values["attrchan"] = "xyzw".index(found[2])


# *** modifiers → fields ***


def _modify(fields: _Fields, given: Given) -> set[str]:
  """Gives which modifiers were used. Raises Mismatch."""
  used: set[str] = set()
  layout, row, family = fields.layout, fields.row, fields.family
  for token in layout.modifiers:
    if token[0] != "$":
      if token not in given:
        raise Mismatch(f"it needs {token}")
      used.add(token)
      continue
    name = token[1:]
    if name in LISTS:
      used |= {name} & given.keys()
      continue
    if name == "attrchan":
      continue
    value, these = modifiers.value_of(name, given, family, row.mnemonic)
    used |= these
    _put(fields, name, value)
  _lists(fields, given)
  return used


def _put(fields: _Fields, name: str, value: int) -> None:
  """A modifier's field. Raises Mismatch where its bits do not fit."""
  kind, runs = fields.layout.kinds.get(name, ("",))[0], fields.layout.fields.get(name, ())
  if name == "cpol":
    if kind.startswith("CPol_GLC"):
      if not value & 1:
        raise Mismatch("what returns a value needs glc, or th:TH_ATOMIC_RETURN")
      value &= ~1
    elif kind.startswith("CPol_NonGLC") and value & 1:
      raise Mismatch("it returns no value")
  if name == "fi" and kind == "Dpp8FI":
    value += modifiers.DPP8_BASE
  if name == "offset" and not runs and not value:
    return
  length = max((low + length for _, low, length in runs), default=0)
  signed = kind in ("flat_offset", "SMEMOffsetMod", "OptSMEMOffsetMod") or name == "offset" and value < 0
  least = -(1 << (length - 1)) if signed and length else 0
  most = 1 << (length - (kind == "flat_offset"))  # the uppermost bit is a sign, or nothing
  if not least <= value < most:
    raise Mismatch(f"{name} {value} does not fit {length} bits")
  fields.values[name] = value & ((1 << length) - 1)


def _lists(fields: _Fields, given: Given) -> None:
  """Lists of a bit per source become what is done to each."""
  layout = fields.layout
  names = layout.sources
  if "$op_sel" in layout.modifiers:
    runs = layout.fields.get("src0_modifiers", ())
    to_half = "$op_sel_hi" not in layout.modifiers and any(low == 3 for _, low, _ in runs)
    names, to_half = (names[:2], False) if fields.row.mnemonic.startswith("v_permlane") else (names, to_half)
    found = modifiers.bits_of(given.get("op_sel"), len(names) + to_half, 0)
    for name, bit in zip(names, found):
      fields.do_to(name, HALF * bit)
    if to_half:
      fields.done_to["src0"] |= HIGH * found[len(names)]
  if "$op_sel_hi" in layout.modifiers:
    for name, bit in zip(names, modifiers.bits_of(given.get("op_sel_hi"), len(names), op_sel_hi_default(fields.row))):
      if name in fields.done_to:
        fields.do_to(name, HIGH * bit)
  for which, place in (("neg_lo", NEG), ("neg_hi", ABS)):
    if f"${which}" in layout.modifiers:
      for name, bit in zip(names, modifiers.bits_of(given.get(which), len(names), 0)):
        fields.do_to(name, place * bit)


def _check(fields: _Fields) -> None:
  """What is done to sources has fields, and every field that must be given was."""
  layout = fields.layout
  for name, done in fields.done_to.items():
    runs = layout.fields.get(f"{name}_modifiers", ())
    room = sum(((1 << length) - 1) << low for _, low, length in runs)
    if done & ~room:
      raise Mismatch(f"{name}: this encoding cannot do that to it")
    if runs:
      fields.values[f"{name}_modifiers"] = done
  if "en" in layout.fields:
    fields.values["en"] = fields.exported
  for name, value in fields.values.items():
    if name not in layout.fields and name != "imm" and value and not name.startswith("vaddr"):
      raise Mismatch(f"{name} cannot be given")
  fields.values = {name: value for name, value in fields.values.items() if name in layout.fields}
  legal(fields.chip, fields.row, fields.values)
  for name, value in fields.values.items():
    room = max(low + length for _, low, length in layout.fields[name])
    fields.values[name] = value & ((1 << room) - 1)  # that it is a vector register, a field need not say
