"""Registers: how they are written, and the number that each has in an operand of a machine instruction.

Sources: the ISA manuals of RDNA 3, RDNA 4 and CDNA 3, "Scalar source operands".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tiny_asm_amd.errors import AsmError

VECTOR, ACCUMULATOR = 0x100, 0x300
"""Added to the number of a vector register, or an accumulation register, in an operand with nine or ten bits."""


@dataclass(frozen=True)
class Register:
  """`count` registers of 32 bits from `index` on. `kind`: v (of each lane), a (accumulators of CDNA), s (of the wave),
  ttmp (of trap handlers), or the name of one with a name; then `index` is 0. `half`: l or h, of a v."""

  kind: str
  index: int
  count: int = 1
  half: str = ""

  def __str__(self) -> str:
    if self.kind not in RANGES:
      return self.kind
    if self.count > 1:
      return f"{self.kind}[{self.index}:{self.index + self.count - 1}]"
    return f"{self.kind}{self.index}" + (f".{self.half}" if self.half else "")

  def __neg__(self) -> Operand:
    """With the other sign."""
    return Operand(self, neg=True)

  def __abs__(self) -> Operand:
    """Without a sign."""
    return Operand(self, abs=True)

  @property
  def l(self) -> Register:  # noqa: E743
    """The lower 16 bits."""
    return Register(self.kind, self.index, 1, "l")

  @property
  def h(self) -> Register:
    """The upper 16 bits."""
    return Register(self.kind, self.index, 1, "h")


@dataclass(frozen=True)
class Operand:
  """A register, a number, or a word; with `neg`, `abs` and `sext` done to it first."""

  value: Register | int | float | str
  neg: bool = False
  abs: bool = False
  sext: bool = False

  def __neg__(self) -> Operand:
    """With the other sign."""
    return replace(self, neg=not self.neg)

  def __str__(self) -> str:
    text = hexadecimal(self.value) if isinstance(self.value, int) else str(self.value)
    if self.sext:
      text = f"sext({text})"
    if self.abs:
      text = f"|{text}|"
    return (
      (f"neg({text})" if isinstance(self.value, int | float) and not self.abs else f"-{text}") if self.neg else text
    )


def sext(register: Register) -> Operand:
  """A selected part of a register, with its sign."""
  return Operand(register, sext=True)


def hexadecimal(value: int) -> str:
  """A number as it is written: small ones decimal."""
  return str(value) if -16 <= value <= 64 else hex(value)


class File:
  """Registers of a kind, by number: `v[3]`; or several, first and last as assemblers write it: `s[4:5]` are two."""

  def __init__(self, kind: str) -> None:
    self.kind = kind

  def __getitem__(self, where: int | slice) -> Register:
    """Raises AsmError for a number that there is not."""
    first, last = (where, where) if isinstance(where, int) else (where.start, where.stop)
    if not isinstance(first, int) or not isinstance(last, int) or not 0 <= first <= last < RANGES[self.kind]:
      raise AsmError(f"registers {self.kind}[{first}:{last}]: there are {self.kind}0 to {self.kind}{self.size - 1}")
    return Register(self.kind, first, last - first + 1)

  @property
  def size(self) -> int:
    """How many there are."""
    return RANGES[self.kind]


RANGES = {"v": 256, "a": 256, "s": 106, "ttmp": 16}
v, a, s, ttmp = File("v"), File("a"), File("s"), File("ttmp")
TTMP = 108

# name → (number, registers of 32 bits)
NAMED: dict[str, tuple[int, int]] = {
  "vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1), "exec": (126, 2), "exec_lo": (126, 1), "exec_hi": (127, 1),
  "src_shared_base": (235, 2), "src_shared_limit": (236, 2), "src_private_base": (237, 2),
  "src_private_limit": (238, 2), "src_pops_exiting_wave_id": (239, 2), "src_vccz": (251, 1), "src_execz": (252, 1),
  "src_scc": (253, 1), "src_lds_direct": (254, 1),
}  # fmt: skip
OF_FAMILY: dict[str, dict[str, tuple[int, int]]] = {
  "rdna": {"null": (124, 0), "m0": (125, 1)},
  "cdna": {
    "m0": (124, 1), "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2), "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1),
  },
}  # fmt: skip
ALIASES = {
  "vccz": "src_vccz", "execz": "src_execz", "scc": "src_scc", "lds_direct": "src_lds_direct",
  "shared_base": "src_shared_base", "shared_limit": "src_shared_limit", "private_base": "src_private_base",
  "private_limit": "src_private_limit", "pops_exiting_wave_id": "src_pops_exiting_wave_id",
}  # fmt: skip
vcc, vcc_lo, vcc_hi, exec_, exec_lo, exec_hi, m0, null, scc = (
  Register(name, 0, 2 if name in ("vcc", "exec") else 1)
  for name in ("vcc", "vcc_lo", "vcc_hi", "exec", "exec_lo", "exec_hi", "m0", "null", "src_scc")
)


_ONE = re.compile(r"(v|a|acc|s|ttmp)(\d+)(?:\.([lh]))?$")
_SEVERAL = re.compile(r"(v|a|acc|s|ttmp)\[(\d+)(?::(\d+))?\](?:\.([lh]))?$")


def named(family: str) -> dict[str, tuple[int, int]]:
  """The registers with names of a family."""
  return NAMED | OF_FAMILY["cdna" if family == "cdna" else "rdna"]


def parse(text: str, family: str) -> Register | None:
  """The register that a text names; None if it names none. Raises AsmError for numbers that there are not."""
  text = ALIASES.get(text, text)
  if text in named(family):
    return Register(text, 0, named(family)[text][1])
  found = _ONE.match(text) or _SEVERAL.match(text)
  if found is None:
    listed = text[1:-1].split(",") if text.startswith("[") and text.endswith("]") else []
    parts = [parse(part.strip(), family) for part in listed]
    if parts and all(p and p.count == 1 and p.kind == parts[0].kind for p in parts):  # type: ignore[union-attr]
      first = parts[0]
      assert first is not None
      if [p.index for p in parts if p] == list(range(first.index, first.index + len(parts))):
        return Register(first.kind, first.index, len(parts))
    return None
  kind, first_number = {"acc": "a"}.get(found[1], found[1]), int(found[2])
  last = int(found[3]) if found.re is _SEVERAL and found[3] else first_number
  half = found[3] if found.re is _ONE else found[4]
  if not first_number <= last < RANGES[kind]:
    raise AsmError(f"{text}: there are {kind}0 to {kind}{RANGES[kind] - 1}")
  return Register(kind, first_number, last - first_number + 1, half or "")


def number(register: Register, family: str) -> int:
  """What stands for a register in an operand."""
  if register.kind == "v":
    return VECTOR + register.index
  if register.kind == "a":
    return ACCUMULATOR + register.index
  if register.kind == "s":
    return register.index
  return TTMP + register.index if register.kind == "ttmp" else named(family)[register.kind][0]


def of_number(code: int, count: int, family: str) -> Register | None:
  """The inverse of `number`, of `count` registers."""
  if code >= VECTOR:
    return Register("a" if code & 0x200 else "v", code & 0xFF, count)
  if code < (102 if family == "cdna" else 106):
    return Register("s", code, count)
  if TTMP <= code < TTMP + 16:
    return Register("ttmp", code - TTMP, count)
  same = [(abs(size - count), name) for name, (n, size) in named(family).items() if n == code]
  return Register(min(same)[1], 0, count) if same else None
