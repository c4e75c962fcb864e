"""The tables of instructions, one text file per family, read when they are first asked for.

`tables/generate.py` of the repository writes them; its head describes the format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from tiny_asm_amd.errors import AsmError

FAMILIES = {
  "gfx1100": "rdna3", "gfx1101": "rdna3", "gfx1102": "rdna3", "gfx1103": "rdna3", "gfx1150": "rdna3",
  "gfx1151": "rdna3", "gfx1200": "rdna4", "gfx1201": "rdna4", "gfx900": "cdna", "gfx908": "cdna", "gfx90a": "cdna",
  "gfx942": "cdna", "gfx940": "cdna", "gfx950": "cdna",
}  # fmt: skip
"""Family of each chip. The table of cdna has the chips before gfx90a too, which are of GCN 5 and CDNA 1."""
LIKE = {"gfx1101": "gfx1100", "gfx1102": "gfx1100", "gfx1103": "gfx1100", "gfx1151": "gfx1150", "gfx1201": "gfx1200",
        "gfx940": "gfx942"}  # fmt: skip
"""Chips with the instructions of another."""
_TOKEN = re.compile(r"\$\w+|::|\[|\]|,|[\w.]+")
Runs = tuple[tuple[int, int, int], ...]
"""(bit of the instruction, bit of the field, length)."""


@dataclass(frozen=True)
class Layout:
  """How instructions are laid out: their operands as they are written, and where fields are."""

  size: int
  """Bytes, without a literal."""
  written: str
  fields: dict[str, Runs]
  kinds: dict[str, tuple[str, ...]]
  """What each operand can be, by name."""

  @cached_property
  def positions(self) -> tuple[tuple[str, ...], ...]:
    """The operands that have a place: names with $, or words; several where they are in brackets."""
    return self._parts[0]

  @cached_property
  def modifiers(self) -> tuple[str, ...]:
    """The operands that have none: names with $, or words."""
    return self._parts[1]

  @cached_property
  def _parts(self) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    positions: list[tuple[str, ...]] = []
    modifiers: list[str] = []
    inside: list[str] | None = None
    first = True
    for token in _TOKEN.findall(self.written):
      if token == "[":
        inside = []
      elif token == "]":
        positions.append(tuple(inside or ()))
        inside, first = None, False
      elif inside is not None:
        inside += [token] if token != "," else []
      elif token in (",", "::"):
        first = True
      elif token[0] == "$" and self._is_modifier(token[1:]) or token[0] != "$" and (not first or token in FLAGS):
        modifiers.append(token)
      else:
        positions.append((token,))
        first = False
    return tuple(positions), tuple(modifiers)

  def _is_modifier(self, name: str) -> bool:
    return name in MODIFIERS or name == "offset" and not any(k.endswith("SMEMOffset") for k in self.kinds[name])

  @cached_property
  def sources(self) -> tuple[str, ...]:
    """The operands up to the last that can have a sign or a half of its own."""
    can = [n for n in range(3) if f"src{n}_modifiers" in self.kinds]
    return tuple(f"src{n}" for n in range(max(can, default=-1) + 1))


FLAGS = frozenset(("gds", "lds", "tfe", "done", "row_en", "idxen", "offen"))
MODIFIERS = frozenset(
  "clamp omod op_sel op_sel_hi neg_lo neg_hi cpol offset0 offset1 gds dmask dim unorm r128 a16 tfe lwe d16 da fi "
  "bound_ctrl row_mask bank_mask dpp_ctrl dpp8 dst_sel dst_unused src0_sel src1_sel waitexp waitvdst waitvsrc format "
  "byte_sel bitop3 index_key_8bit index_key_16bit cbsz abid blgp high compr vm attrchan".split()
)


@dataclass(frozen=True)
class Row:
  """An instruction in one of its encodings. `form`: e32, e64, dpp, dpp8, sdwa and so on, or nothing where there is only
  one; `variant`: t16 where halves of registers are operands, fake16 where they are not."""

  mnemonic: str
  form: str
  variant: str
  chips: frozenset[str]
  layout: Layout
  value: int
  mask: int

  @property
  def size(self) -> int:
    """Bytes, without a literal."""
    return self.layout.size


@dataclass(frozen=True)
class Table:
  """A family's instructions."""

  family: str
  rows: tuple[Row, ...]

  @cached_property
  def named(self) -> dict[str, list[Row]]:
    """Rows by mnemonic, the shortest first, and those with less to choose."""
    found: dict[str, list[Row]] = {}
    for row in self.rows:
      found.setdefault(row.mnemonic, []).append(row)
    return {name: sorted(rows, key=lambda row: (row.size, len(row.layout.modifiers))) for name, rows in found.items()}

  @cached_property
  def by_bits(self) -> list[tuple[int, dict[int, list[Row]]]]:
    """(mask, rows by their constant bits), the most constant bits first."""
    found: dict[int, dict[int, list[Row]]] = {}
    for row in self.rows:
      found.setdefault(row.mask, {}).setdefault(row.value, []).append(row)
    return sorted(found.items(), key=lambda item: -item[0].bit_count())


def family_of(chip: str) -> str:
  """The family of a chip. Raises AsmError for one that is not known."""
  if chip not in FAMILIES:
    raise AsmError(f"no tables for {chip!r}: there are some for {', '.join(sorted(FAMILIES))}")
  return FAMILIES[chip]


@cache
def table(family: str) -> Table:
  """The table of rdna3, rdna4 or cdna."""
  layouts: dict[str, Layout] = {}
  rows: list[Row] = []
  chips: frozenset[str] = frozenset()
  text = resources.files("tiny_asm_amd").joinpath(f"tables/{family}.txt").read_text()
  for line in text.splitlines():
    cells = line.split("\t")
    if cells[0] == "layout":
      _, number, size, written, fields, kinds = cells
      layouts[number] = Layout(int(size), written, _fields(fields), _kinds(kinds))
    elif len(cells) == 1:
      chips = frozenset(line.split()[1:])
    else:
      mnemonic, form, names, layout, value, mask = cells
      form, _, variant = form.partition(".")
      which = chips if names == "*" else frozenset(names.split(","))
      rows.append(Row(mnemonic, form, variant, which, layouts[layout], int(value, 16), int(mask, 16)))
  return Table(family, tuple(rows))


def _fields(text: str) -> dict[str, Runs]:
  pairs = [field.split("=") for field in text.split()]
  return {name: tuple(tuple(map(int, run.split("."))) for run in runs.split("+")) for name, runs in pairs}  # type: ignore[misc]


def _kinds(text: str) -> dict[str, tuple[str, ...]]:
  return {name: tuple(kinds.split("|")) for name, kinds in (operand.split("=") for operand in text.split())}
