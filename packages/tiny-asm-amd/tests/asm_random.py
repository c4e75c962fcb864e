"""Random instructions with operands that their encodings have, and what LLVM's assembler makes of text."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from random import Random

from tiny_asm_amd.build import build
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.modifiers import DIMENSIONS
from tiny_asm_amd.registers import Operand, Register
from tiny_asm_amd.sources import WIDE
from tiny_asm_amd.symbols import IMMEDIATES
from tiny_asm_amd.table import LIKE, Row, family_of, table

LLVM = next((found for n in ("22", "21", "20", "19") if (found := shutil.which(f"llvm-mc-{n}"))), None)
"""LLVM's assembler; Debian: llvm-19 or llvm-22."""
ERROR = re.compile(r"<stdin>:(\d+):\d+: error: (.*)")
ENCODING = re.compile(r"encoding: \[([0-9a-fxA-Z,' ]+)\]")


def assembled(lines: Sequence[str], chip: str, wave: int = 0) -> list[bytes | str]:
  """What LLVM makes of each line: its bytes, or the error."""
  assert LLVM is not None
  features = [f"-mattr=+wavefrontsize{wave}"] if wave else []
  done = subprocess.run(
    [LLVM, "-triple=amdgcn", f"-mcpu={chip}", *features, "-show-encoding"], input="\n".join(lines) + "\n",
    capture_output=True, text=True, timeout=300,
  )  # fmt: skip
  errors: dict[int, str] = {}
  for number, problem in ERROR.findall(done.stderr):
    errors.setdefault(int(number), problem)
  codes = [bytes(int(b, 16) for b in found.split(",")) for found in ENCODING.findall(done.stdout)]
  rest = iter(codes)
  result = [errors[n] if n in errors else next(rest) for n in range(1, len(lines) + 1)]
  assert next(rest, None) is None
  return result


def _checked(row: Row) -> bool:
  """Whether random operands of a row are legal: sizes of images depend on each other, and LLVM refuses more than there
  is in its records of some others."""
  words = ("image_", "s_waitcnt_", "ds_gws_", "global_load_tr", "v_writelane", "s_sendmsg", "s_version", "v_mov_b64")
  return row.variant != "t16" and "tfe" not in row.layout.modifiers and not row.mnemonic.startswith(words)


class Source:
  """Random instructions of a chip."""

  def __init__(self, chip: str, seed: int) -> None:
    self.chip, self.family, self.random = chip, family_of(chip), Random(seed)
    self.rows = [row for row in table(self.family).rows if LIKE.get(chip, chip) in row.chips and _checked(row)]

  def instruction(self, row: Row | None = None) -> Instruction:
    """One of a row, or of any."""
    row = row or self.random.choice(self.rows)
    for _ in range(20):
      operands = [[self.operand(row, token) for token in position] for position in row.layout.positions]
      given = {key: value for token in row.layout.modifiers for key, value in self.modifier(row, token)}
      try:
        name = row.mnemonic if not row.form else " :: ".join(
          f"{part}_{row.form.removesuffix('8')}" for part in row.mnemonic.split(" :: "))  # fmt: skip
        if " :: " in row.mnemonic:
          name = row.mnemonic
        return build(self.chip, name, [op[0] if len(op) == 1 else op for op in operands], given)
      except AsmError as error:
        problem = error
    raise problem

  def register(self, files: str, count: int, low: bool = False) -> Register:
    """A register, which begins where it may."""
    kind = self.random.choice(files)
    if kind == "s":
      step = min(4, 1 if count == 1 else 2 if count < 4 else 4)
      most = 102 if self.family == "cdna" else 104
      return Register("s", self.random.randrange(0, most - count + 1, step), count)
    step = 2 if self.chip in ("gfx90a", "gfx942") and count > 1 else 1
    return Register(kind, self.random.randrange(0, (128 if low else 256) - count + 1, step), count)

  def operand(self, row: Row, token: str) -> Operand:
    """What stands in a place."""
    if token[0] != "$":
      return Operand(Register("vcc", 0, 2) if token == "vcc" else Register("m0", 0) if token == "m0" else token)
    name = token[1:].removesuffix("_modifiers")
    name = "imm" if name == "immDeferred" else name
    kind = self.random.choice(row.layout.kinds[name])
    if kind.startswith("KImm"):
      return Operand(0x3456 if kind.endswith("16") else 0x11223344)
    if kind == "InterpAttr":
      return Operand(f"attr{self.random.randrange(32)}.{self.random.choice('xyzw')}")
    if kind == "InterpSlot":
      return Operand(self.random.choice(("p10", "p20", "p0")))
    if kind == "exp_tgt":
      return Operand(self.random.choice(("mrt0", "mrtz", "pos1") if self.family != "cdna" else ("mrt1", "param3")))
    if kind in IMMEDIATES:
      bits = min(IMMEDIATES[kind][0], 12)
      return Operand(self.random.randrange(1 << (bits - 1)))
    done = row.layout.kinds.get(f"{name}_modifiers", ("",))[0]
    signs = token.endswith("_modifiers") and not done.startswith(("Int", "Packed"))
    neg, absolute = (signs and self.random.random() < 0.2 for _ in range(2))
    value = self.value(kind)
    if not isinstance(value, Register):
      neg = absolute = False
    return Operand(value, neg, absolute)

  def value(self, kind: str) -> Register | int | float | str:
    """A value of a kind of operand."""
    if found := re.match(r"(v|a|w|s)(\d+)(lo)?$", kind):
      files = {"w": "va" if self.chip in ("gfx90a", "gfx942") else "v"}.get(found[1], found[1])
      return self.register(files, int(found[2]), bool(found[3]))
    if kind in ("h", "hlo"):
      return Register("v", self.random.randrange(128), 1, self.random.choice("lh"))
    if kind in ("sw", "sd"):
      return self.register("s", 2 if self.family == "cdna" else 1)
    if kind == "e":
      return self.register("v", 1) if self.random.random() < 0.5 else "off"
    allowed, _, typed = kind.partition(".")
    count = 2 if typed == "i1" and self.family == "cdna" else WIDE.get(typed, 1)
    if allowed in ("VI", "AI"):
      bits, _, typed = typed.partition("_")
      if self.random.random() < 0.2:
        return self.random.randrange(-16, 65)
      return self.register("a" if allowed == "AI" else "v", int(bits) // 32)
    files = {"S": "s", "SC": "s", "K": "", "VL": "v"}.get(allowed, "vvs")
    choice = self.random.random()
    if files and choice < 0.75 or allowed == "VL":
      return self.register(files, count, allowed == "Vlo")
    if choice < 0.9 or allowed in ("SC", "VC", "K") or self.family == "cdna":
      constants: list[int | float] = [self.random.randrange(-16, 65), 0.5, -4.0] if files else [-1, 3]
      return self.random.choice(constants)
    return 0x1234 if typed in ("f16", "b16", "i16", "u16", "bf16") else self.random.choice([0x12345678, 1000])

  def modifier(self, row: Row, token: str) -> list[tuple[str, str]]:
    """What is written of a modifier; nothing half of the time."""
    free, name = self.random, token[1:]
    if token[0] != "$":
      return [(token, "")]
    if name == "dpp_ctrl":
      if ("f64" in row.mnemonic or "v_cvt_pk_f32" in row.mnemonic) and self.family == "cdna":
        return [("row_newbcast", "3")]
      words = ["row_shl", "row_ror"] + ([] if self.family == "cdna" else ["row_share", "row_xmask"])
      return [free.choice([("quad_perm", "[1,2,3,0]"), (free.choice(words), str(free.randrange(1, 16)))])]
    if name == "dpp8":
      return [("dpp8", f"[{','.join(str(free.randrange(8)) for _ in range(8))}]")]
    kind = row.layout.kinds.get(name, ("",))[0]
    if name == "cpol" and kind.startswith("CPol_GLC"):
      new = self.chip == "gfx942" and not row.mnemonic.startswith("s_")
      return [("th", "TH_ATOMIC_RETURN") if self.family == "rdna4" else ("sc0", "") if new else ("glc", "")]
    if name == "dmask":
      count = 0 if "load" in row.mnemonic or "store" in row.mnemonic else 1
      return [(name, str(free.choice([1, 3, 7, 15][count * 0 :])))]
    if name == "dim":
      return [(name, f"SQ_RSRC_IMG_{free.choice(DIMENSIONS)}")]
    if free.random() < 0.5:
      return []
    names = row.layout.sources
    lists = {
      "op_sel": len(names) + (any(low == 3 for _, low, _ in row.layout.fields.get("src0_modifiers", ()))
                              and "$op_sel_hi" not in row.layout.modifiers),
      "op_sel_hi": len(names), "neg_lo": len(names), "neg_hi": len(names),
    }  # fmt: skip
    if name in lists:
      return [(name, f"[{','.join(str(free.randrange(2)) for _ in range(lists[name]))}]")] if names else []
    if name in ("clamp", "gds", "unorm", "d16"):
      return [(name, "")] if name != "gds" else []
    if name == "omod":
      return [free.choice([("mul", "2"), ("mul", "4"), ("div", "2")])]
    if name in ("offset", "offset0", "offset1"):
      runs = row.layout.fields.get(name, ((0, 0, 1),))
      length = max(low + length for _, low, length in runs)
      return [(name, str(free.randrange(1 << (length - 1))))]
    if name in ("row_mask", "bank_mask"):
      return [(name, str(free.randrange(16)))]
    if name == "bound_ctrl":
      return [(name, "0" if self.family == "cdna" else "1")]
    if name in ("dst_sel", "src0_sel", "src1_sel"):
      return [(name, free.choice(["BYTE_1", "WORD_1", "DWORD"]))]
    if name == "dst_unused":
      return [(name, "UNUSED_SEXT")]
    if name in ("cbsz", "abid", "blgp", "waitexp", "waitvdst", "byte_sel"):
      return [({"waitexp": "wait_exp"}.get(name, name), str(free.randrange(4)))] if name != "waitvdst" else []
    if name == "fi" and self.family != "cdna":
      return [(name, "1")]
    return []
