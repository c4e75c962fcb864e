"""One instruction: the row of the table that it is of, and its fields. It becomes bytes and text."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiny_asm_amd import modifiers, registers, sources, symbols
from tiny_asm_amd.registers import Operand, Register
from tiny_asm_amd.table import Row, family_of, table

NEG, ABS, HALF, HIGH = 1, 2, 4, 8
"""Bits of what is done to a source: its sign; which half it is, and which half another half goes to, or comes from."""
LISTS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
EXEC = 126


@dataclass(frozen=True)
class Instruction:
  """A machine instruction of `chip`. `values` are the fields of its row, `literal` the 32 bits behind it, `more` the
  registers of further addresses of an image instruction. `lanes` are those of the wave, where that is known: on RDNA
  masks of 64 are shown as pairs of registers; the bytes are the same."""

  chip: str
  row: Row
  values: tuple[tuple[str, int], ...]
  literal: int | None = None
  more: tuple[int, ...] = ()
  lanes: int = field(default=0, compare=False)

  @property
  def wide(self) -> bool:
    """Whether masks are pairs of registers."""
    return self.lanes == 64 or family_of(self.chip) == "cdna"

  @property
  def mnemonic(self) -> str:
    """Its name, without what asks for an encoding."""
    return self.row.mnemonic

  @property
  def size(self) -> int:
    """Bytes."""
    return self.row.size + (len(self.more) + 3) // 4 * 4 + (4 if self.literal is not None else 0)

  def __bytes__(self) -> bytes:
    word, layout = self.row.value | implied(self.row, family_of(self.chip)), self.row.layout
    for name, value in self.values:
      for place, low, length in layout.fields[name]:
        word |= (value >> low & ((1 << length) - 1)) << place
    done = word.to_bytes(layout.size, "little") + bytes(self.more).ljust((len(self.more) + 3) // 4 * 4, b"\0")
    return done + (self.literal.to_bytes(4, "little") if self.literal is not None else b"")

  def __str__(self) -> str:
    return _Shown(self).text()

  @property
  def operands(self) -> dict[str, tuple[int, ...]]:
    """Numbers of the 32-bit registers that each operand is, as operands number them: v0 is 256. Operands that are none
    are left out."""
    return _Shown(self).registers()


def op_sel_hi_default(row: Row) -> int:
  """What is in op_sel_hi where it is not written: packed operations take both halves."""
  return 0 if "_mix" in row.mnemonic or "_scale_" in row.mnemonic else 1


FORMAT_SIZES = (8, 8, 6, 6, 4)
"""Registers of 32 numbers as CBSZ and BLGP name their format: fp8, bf8, fp6, bf6 and fp4."""


def narrow_size(row: Row, values: dict[str, int], name: str) -> int:
  """Registers of A or B of a product whose numbers have 8, 6 or 4 bits; 0 for what is none."""
  if not row.mnemonic.endswith("f8f6f4") or name not in ("src0", "src1"):
    return 0
  code = values.get("cbsz" if name == "src0" else "blgp", 0)
  return FORMAT_SIZES[code] if code < len(FORMAT_SIZES) else 0


def implied(row: Row, family: str) -> int:
  """Bits of op_sel_hi of sources that an instruction with packed halves has not, which are 1. On RDNA compares that
  write EXEC have its number in the place of a result."""
  if row.mnemonic.startswith("v_cmpx_") and family != "cdna" and row.form.startswith("e64"):
    return EXEC
  top = row.value >> 23 & 0x1FF
  packed = top in (0x198, 0x199) if family != "cdna" else top == 0x1A7 and not row.value >> 22 & 1
  packed = packed and not row.mnemonic.startswith(("v_mfma", "v_smfmac"))
  if not packed and not row.mnemonic.startswith(("v_accvgpr_read", "v_accvgpr_write")):
    return 0
  count = len(row.layout.sources) if "$op_sel_hi" in row.layout.modifiers else 0
  places = [59, 60, 14]
  return sum(1 << place for place in places[count:] if not row.mask >> place & 1)


def is_half(kind: str) -> bool:
  """Whether an operand of this kind is a half of a register, which modifiers name."""
  return kind == "h" or kind.startswith("VT.")


class _Shown:
  """An instruction that is being written."""

  def __init__(self, made: Instruction) -> None:
    self.made, self.row, self.layout = made, made.row, made.row.layout
    self.family, self.values = family_of(made.chip), dict(made.values)

  def text(self) -> str:
    more = iter(self.made.more)
    operands = []
    for position in self.layout.positions:
      parts = [self.position(token, more) for token in position]
      operands.append(parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]")
    words = [word for token in self.layout.modifiers for word in self.modifier(token)]
    name = self.name()
    if " :: " in name:
      first, second = name.split(" :: ")
      count = len(self.layout.written.split("::")[0].split(","))
      return f"{first} {', '.join(operands[:count])} :: {second} {', '.join(operands[count:])}"
    if operands and operands[0] and self.layout.kinds.get("tgt"):
      operands = [f"{operands[0]} {operands[1]}", *operands[2:]]
    return " ".join([f"{name} {', '.join(operands)}".rstrip(), *words])

  def name(self) -> str:
    """The mnemonic, which asks for an encoding where a shorter one could be meant."""
    row = self.row
    same = table(self.family).named[row.mnemonic]
    if row.form == "e64" and any(other.form == "e32" or not other.form and other.size < row.size for other in same):
      return f"{row.mnemonic}_e64"
    if row.form.startswith("e64_dpp") or row.form.startswith("dpp") and row.size == 12:
      return f"{row.mnemonic}_e64_dpp"
    if row.form in ("dpp", "dpp8", "sdwa"):
      return f"{row.mnemonic}_{row.form.removesuffix('8')}"
    if row.form == "e32" and " :: " not in row.mnemonic:
      return f"{row.mnemonic}_e32" if any(other.form == "e64" for other in same) else row.mnemonic
    return row.mnemonic

  def operand(self, name: str) -> Operand:
    """An operand that is a register or a constant."""
    number = self.values.get(name, 0)
    kinds = self.layout.kinds[name]
    if self.row.form == "sdwa" and name != "vdst" and kinds[0] != "sd":
      number ^= 256
    literal = self.made.literal if "imm" not in self.values else self.values["imm"]
    return sources.decode(number, literal, kinds, self.family, self.count(name, kinds), self.made.wide)

  def count(self, name: str, kinds: tuple[str, ...]) -> int:
    """How many registers an operand has, where its kind leaves that open."""
    if kinds[0] == "sw":
      return 2 if self.made.wide else 1
    if wanted := narrow_size(self.row, self.values, name):
      return wanted
    sizes = {int(kind[1:]) for kind in kinds if kind[1:].isdigit()}
    if name in ("vdata", "vdst") and "dmask" in self.values and len(sizes) > 1:
      wanted = max(1, (self.values["dmask"] & 15).bit_count())
      if "gather4" in self.row.mnemonic or "msaa" in self.row.mnemonic:
        wanted = 4
      if self.values.get("d16"):
        wanted = (wanted + 1) // 2
      wanted += self.values.get("tfe", 0)
      if "cmpswap" in self.row.mnemonic and wanted not in sizes:
        wanted = max(sizes)
      return min((abs(size - wanted), size) for size in sizes)[1]
    return 0

  def position(self, token: str, more: object) -> str:
    if token[0] != "$":
      return "vcc_lo" if token == "vcc" and not self.made.wide else token
    name = token[1:].removesuffix("_modifiers")
    name = "imm" if name == "immDeferred" else name
    kind = self.layout.kinds[name][0]
    if kind.startswith("KImm"):
      return hex(self.values["imm"])
    if kind == "InterpSlot":
      return ("p10", "p20", "p0")[self.values[name]]
    if kind == "InterpAttr":
      return f"attr{self.values[name]}.{'xyzw'[self.values.get('attrchan', 0)]}"
    if kind == "e":
      number = self.values[name]
      enabled = "en" not in self.layout.fields or self.values.get("en", 15) >> "0123".index(name[-1]) & 1
      return f"v{number}" if enabled else "off"
    if kind in symbols.IMMEDIATES:
      return symbols.show_immediate(self.values.get(name, 0), kind, self.family)
    if name.startswith("vaddr") and name not in self.layout.fields:
      return str(Register("v", next(more), int(kind[1:])))  # type: ignore[call-overload]
    operand = self.operand(name)
    done = self.values.get(f"{name}_modifiers", 0)
    value = operand.value
    high = done & HALF if name in self.layout.sources else self.values.get("src0_modifiers", 0) & HIGH
    if isinstance(value, Register) and self.is_half(name, value):
      operand = Operand(Register("v", value.index, 1, "h" if high else "l"))
    if token.endswith("_modifiers"):
      integer = self.layout.kinds.get(f"{name}_modifiers", ("",))[0].startswith("Int")
      operand = Operand(operand.value, not integer and bool(done & NEG), not integer and bool(done & ABS),
                        integer and bool(done & NEG))  # fmt: skip
    return str(operand)

  def is_half(self, name: str, value: Register) -> bool:
    """Whether an operand is a half of a register, which a modifier names."""
    kind = self.layout.kinds[name][0]
    return value.kind == "v" and not value.half and is_half(kind)

  def modifier(self, token: str) -> list[str]:
    if token[0] != "$":
      return [token]
    name = token[1:]
    if name in LISTS:
      return self.list_of(name)
    if name == "attrchan":
      return []
    kind = self.layout.kinds.get(name, ("",))[0]
    value = self.values.get(name, 0)
    runs = self.layout.fields.get(name, ())
    if name == "cpol" and kind.startswith("CPol_GLC"):
      value |= 1
    if name == "fi" and kind == "Dpp8FI":
      value -= modifiers.DPP8_BASE
    if name == "offset" and kind in ("flat_offset", "SMEMOffsetMod", "OptSMEMOffsetMod"):
      length = max((low + length for _, low, length in runs), default=0)
      value -= value >> (length - 1) << length if self.signed() and length else 0
    return modifiers.show(name, value, self.family, self.made.chip, self.row.mnemonic)

  def signed(self) -> bool:
    """Whether an offset can be negative: not in flat instructions, whose addresses are not known to be of one kind."""
    return self.family == "rdna4" or not self.row.mnemonic.startswith("flat_") or self.family == "rdna3"

  def list_of(self, name: str) -> list[str]:
    """A bit of each source, where it is not as if nothing were written."""
    names = self.layout.sources
    done = [self.values.get(f"{source}_modifiers", 0) for source in names]
    if name == "op_sel":
      runs = self.layout.fields.get("src0_modifiers", ())
      bits = [0 if self.is_half_of(source) else bool(d & HALF) for source, d in zip(names, done)]
      if self.row.mnemonic.startswith("v_permlane"):
        bits = bits[:2]
      elif "$op_sel_hi" not in self.layout.modifiers and any(low == 3 for _, low, _ in runs) and done:
        bits.append(0 if self.is_half_of("vdst") else bool(done[0] & HIGH))
      default = 0
    elif name == "op_sel_hi":
      default = op_sel_hi_default(self.row)
      bits = [bool(d & HIGH) if f"{n}_modifiers" in self.layout.kinds else default for n, d in zip(names, done)]
    else:
      bits, default = [bool(d & (NEG if name == "neg_lo" else ABS)) for d in done], 0
    if all(bit == default for bit in bits):
      return []
    return [f"{name}:[{','.join(str(int(bit)) for bit in bits)}]"]

  def is_half_of(self, name: str) -> bool:
    """Whether the name of a register says which half it is."""
    if not is_half(self.layout.kinds.get(name, ("",))[0]):
      return False
    value = self.operand(name).value
    return isinstance(value, Register) and value.kind == "v"

  def registers(self) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    more = iter(self.made.more)
    for position in self.layout.positions:
      for token in position:
        name = token[1:].removesuffix("_modifiers")
        if token[0] != "$" or name == "immDeferred":
          continue
        kind = self.layout.kinds[name][0]
        if kind in symbols.IMMEDIATES or kind.startswith(("KImm", "Interp")):
          continue
        if name.startswith("vaddr") and name not in self.layout.fields:
          first = next(more) + 256
          found[name] = tuple(range(first, first + int(kind[1:])))
          continue
        value = self.operand(name).value
        if isinstance(value, Register):
          number = registers.number(value, self.family)
          if number < 128 or number >= registers.VECTOR:  # not SCC, nor where windows of memory are
            found[name] = tuple(range(number, number + max(1, value.count)))
    return found
