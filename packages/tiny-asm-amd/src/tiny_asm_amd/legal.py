"""What the fields of an instruction must not be together: how many registers of the wave it reads, which banks.

Sources: the ISA manuals of RDNA 3, RDNA 4 and CDNA 3, "Vector ALU", "Dual issue" and "MFMA".
"""

from __future__ import annotations

from tiny_asm_amd.sources import LITERAL, Mismatch
from tiny_asm_amd.table import LIKE, Row, family_of

Values = dict[str, int]
VCC, NULL, LDS_DIRECT, VECTOR = 106, 124, 254, 256
ONE_LANE = ("v_readlane", "v_writelane", "v_readfirstlane", "v_s_")
"""Instructions that are of the wave."""
SLOW_SHIFTS = ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
ALL_ROWS = range(0x150, 0x160)
"""Permutations of lanes that operands of 64 bits can have."""


def legal(chip: str, row: Row, values: Values) -> None:
  """Raises Mismatch for fields that are not legal together."""
  family, name = family_of(chip), row.mnemonic
  if "vdstY" in values:
    _two_at_once(family, name, values)
  elif name.startswith("v_") and not name.startswith(ONE_LANE):
    _bus(_reads(row, family, values), 1 if family == "cdna" or name in SLOW_SHIFTS else 2)
  if row.form.startswith("e64_dpp") and LIKE.get(chip, chip) == "gfx1100":
    if values.get("src1", VECTOR) < VECTOR and row.layout.kinds["src1"][0][0] == "V":
      raise Mismatch("the second operand has to be a vector register on this chip, where lanes are permuted")
  if name.startswith("s_waitcnt_") and values.get("sdst", NULL) != NULL:
    raise Mismatch("null is wanted")
  if family == "cdna":
    _of_cdna(row, values)


def _constant(value: int) -> bool:
  return 128 <= value <= 208 or 240 <= value <= 248


def _bus(read: set[int], most: int) -> None:
  if len(read) > most:
    raise Mismatch(f"it reads {len(read)} registers or literals of the wave, and {most} at most can be")


def _reads(row: Row, family: str, values: Values) -> set[int]:
  """Numbers of the registers of the wave, and of the literal, that a vector instruction reads."""
  read = {LITERAL} if "imm" in values else set()
  for name in ("src0", "src1", "src2"):
    value = values.get(name, VECTOR)
    kind = row.layout.kinds.get(name, ("v1",))[0]
    if row.form == "sdwa":
      value ^= VECTOR
    if "." not in kind and kind[0] != "s" or value >= VECTOR or _constant(value):
      continue
    if value != LDS_DIRECT and not (value == NULL and family != "cdna"):
      read.add(value)
  if any(position == ("vcc",) for position in row.layout.positions[2:]) or row.mnemonic.startswith("v_div_fmas"):
    read.add(VCC)
  return read


def _two_at_once(family: str, name: str, values: Values) -> None:
  """Two operations read from different banks of registers, and write to an even and an odd one."""
  if (values["vdstX"] ^ values["vdstY"]) & 1 == 0:
    raise Mismatch("one of the results has to be in an even register, the other in an odd one")
  first, second = name.split(" :: ")
  sources = [_sources(part, half, values) for part, half in ((first, "X"), (second, "Y"))]
  both_move = family == "rdna4" and first == second == "v_dual_mov_b32"
  for number, banks in enumerate((4, 4, 2)):
    a, b = (source[number] for source in sources)
    if a >= VECTOR and b >= VECTOR and a % banks == b % banks and not both_move:
      raise Mismatch(f"operands {number} of the two are in registers of one bank: they have to differ modulo {banks}")
  read = {value for value in (values["src0X"], values["src0Y"]) if value < VECTOR and not _constant(value)} - {NULL}
  read |= {LITERAL} if "imm" in values else set()
  _bus(read | ({VCC} if "cndmask" in name else set()), 2)


def _sources(part: str, half: str, values: Values) -> tuple[int, int, int]:
  """The three operands of one of the operations, 0 for none."""
  second = values.get(f"vsrc1{half}", 0)
  if "fmamk" in part:
    return values[f"src0{half}"], 0, second
  adds = "fmac" in part or "dot2acc" in part
  return values[f"src0{half}"], second, (values[f"vdst{half}"] | VECTOR) if adds else 0


def _of_cdna(row: Row, values: Values) -> None:
  name, kinds = row.mnemonic, row.layout.kinds
  wide = any(kind in ("v2", "V.f64", "VC.f64") for names in kinds.values() for kind in names)
  if row.form == "dpp" and wide and values["dpp_ctrl"] not in ALL_ROWS:
    raise Mismatch("operands of 64 bits can have row_newbcast alone")
  if name.startswith("v_dot"):
    for source in ("src0", "src1", "src2"):
      if values.get(f"{source}_modifiers", 8) & 12 != 8 and "$op_sel_hi" in row.layout.modifiers:
        raise Mismatch("products of halves take both halves of each operand")
  if name.startswith("v_mfma") and values.get("src2", 0) >= VECTOR and kinds["vdst"][0][1:].isdigit():
    count, distance = int(kinds["vdst"][0][1:]), abs((values["src2"] & 255) - (values["vdst"] & 255))
    if count > 4 and 0 < distance < count:
      raise Mismatch("what is added to is the result, or shares no register with it")
  given = [
    values[n] & 0x200 for n in ("vdst", "vdata", "data0", "data1") if kinds.get(n, ("",))[0][0:1] == "w" and n in values
  ]
  if len({*given}) > 1:
    raise Mismatch("data and result are both vector registers, or both accumulators")
