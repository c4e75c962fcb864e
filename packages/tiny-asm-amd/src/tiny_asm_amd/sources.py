"""Operands that have a place: registers, constants that an instruction's encoding has, and literals behind it.

Sources: the ISA manuals' "Scalar source operands"; LLVM's AMDGPUOperandSyntax for how they are written.
"""

from __future__ import annotations

import re
import struct

from tiny_asm_amd import registers
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.registers import Operand, Register

LITERAL = 255
"""The number of an operand that is a literal, 32 bits behind the instruction."""
FLOATS = {
  0.5: 240, -0.5: 241, 1.0: 242, -1.0: 243, 2.0: 244, -2.0: 245, 4.0: 246, -4.0: 247, 0.15915494309189532: 248
}  # fmt: skip
ONE_BY_TWO_PI = 248
_FLOAT_BITS = {number: value for value, number in FLOATS.items()}
NUMBER = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|0b[01]+|\d+)$")
FRACTION = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?$")
WIDE = {"b64": 2, "f64": 2, "i64": 2, "u64": 2, "v2f32": 2, "v2b32": 2, "v2i32": 2}
HALVES = {"f16", "b16", "i16", "u16", "v2f16", "v2b16", "bf16", "v2bf16"}


class Mismatch(Exception):
  """An operand is not of a kind: another encoding may have it. What is wrong is the text."""


def scalar(text: str, family: str) -> Register | int | float | str:
  """A register, number or word without signs."""
  if (found := registers.parse(text, family)) is not None:
    return found
  if NUMBER.match(text):
    return int(text, 0) if not re.match(r"[+-]?0\d", text) else int(text)
  return float(text) if FRACTION.match(text) else text


def parse(text: str, family: str) -> Operand:
  """An operand as it is written."""
  neg = absolute = sext = False
  while True:
    if text.startswith("neg(") and text.endswith(")"):
      neg, text = not neg, text[4:-1]
    elif text.startswith("-") and not NUMBER.match(text) and not FRACTION.match(text):
      neg, text = not neg, text[1:]
    elif text.startswith("|") and text.endswith("|") and len(text) > 2:
      absolute, text = True, text[1:-1]
    elif text.startswith("abs(") and text.endswith(")"):
      absolute, text = True, text[4:-1]
    elif text.startswith("sext(") and text.endswith(")"):
      sext, text = True, text[5:-1]
    else:
      return Operand(scalar(text.strip(), family), neg, absolute, sext)


# *** numbers ***


def float_bits(value: float, kind: str) -> int:
  """A float as a literal of a kind of operand: of 64 bits, the upper half."""
  try:
    if kind in ("f16", "b16", "v2f16", "v2b16", "i16", "u16"):
      return int.from_bytes(struct.pack("<e", value), "little")
    if kind in ("bf16", "v2bf16"):
      bits = int.from_bytes(struct.pack("<f", value), "little")
      return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if kind in WIDE and kind not in ("v2f32", "v2b32", "v2i32"):
      return int.from_bytes(struct.pack("<d", value), "little") >> 32
    return int.from_bytes(struct.pack("<f", value), "little")
  except OverflowError as error:
    raise Mismatch(f"{value} is too large for {kind}") from error


def constant(value: int | float, kind: str) -> tuple[int, int | None]:
  """(number of the operand, literal) of a constant, for an operand of this kind. Raises Mismatch."""
  if isinstance(value, float):
    for known, number in FLOATS.items():
      if value == known and (value or str(value)[0] != "-") or number == ONE_BY_TWO_PI and abs(value - known) < 1e-8:
        return number, None
    if value == 0 and str(value)[0] != "-":
      return 128, None
    return LITERAL, float_bits(value, kind)
  if 0 <= value <= 64:
    return 128 + value, None
  if -16 <= value < 0:
    return 192 - value, None
  if (number_of := _same_bits(value, kind)) is not None:
    return number_of, None
  bits = 16 if kind in HALVES and not kind.startswith("v2") else 32
  if not -(1 << (bits - 1)) <= value < 1 << bits:
    raise Mismatch(f"{value:#x} does not fit {bits} bits")
  return LITERAL, value & ((1 << bits) - 1)


def _same_bits(value: int, kind: str) -> int | None:
  """The number of a float constant that has these bits."""
  if kind in ("b16", "i16", "u16", "v2b16"):
    return None
  code = {"f16": "<e", "v2f16": "<e", "b64": "<d", "f64": "<d", "i64": "<d", "u64": "<d"}.get(kind, "<f")
  for number, known in _FLOAT_BITS.items():
    if kind in ("bf16", "v2bf16"):
      bits = int.from_bytes(struct.pack("<f", known), "little") >> 16
    else:
      bits = int.from_bytes(struct.pack(code, known), "little")
    if bits == value:
      return number
  return None


# *** operands of a kind ***

_KIND = re.compile(r"(v|a|w|s)(\d+)(lo)?$")


def encode(operand: Operand, kind: str, family: str) -> tuple[int, int | None]:
  """(number, literal) of an operand of a kind in the table. Raises Mismatch."""
  value = operand.value
  if found := _KIND.match(kind):
    if not isinstance(value, Register) or value.half:
      raise Mismatch(f"{operand} is no register")
    return _register(value, found[1], int(found[2]), bool(found[3]), family), None
  if kind in ("h", "hlo"):
    if not isinstance(value, Register) or value.kind != "v" or value.count != 1:
      raise Mismatch(f"{operand} is no vector register")
    return _half(value, kind), None
  if kind == "sw":
    if not isinstance(value, Register) or value.kind in "va" or value.count not in (0, 1, 2):
      raise Mismatch(f"{operand} is no register of the wave")
    return registers.number(value, family), None
  if kind == "sd":
    if not isinstance(value, Register) or value.kind in "va" or value.count != 2:
      raise Mismatch(f"{operand}: two registers of the wave are wanted")
    return 0 if value.kind == "vcc" else 256 | 128 | registers.number(value, family), None
  if kind == "e":
    if value == "off":
      return 0, None
    if not isinstance(value, Register) or value.kind != "v" or value.count != 1:
      raise Mismatch(f"{operand} is no vector register")
    return value.index, None
  allowed, _, typed = kind.partition(".")
  return _source(operand, allowed, typed, family)


def _register(value: Register, files: str, count: int, low: bool, family: str) -> int:
  number = registers.number(value, family)
  vector, accumulator = value.kind == "v", value.kind == "a"
  fits = {"v": vector, "a": accumulator, "w": vector or accumulator, "s": number < 128}[files]
  # null has any size, and so have addresses that are constants
  if not fits or value.count not in (count, 0) and value.kind not in ("null",) and not (number >= 235 and not vector):
    raise Mismatch(f"{value}: {count} registers of {files} are wanted")
  if low and value.index > 127:
    raise Mismatch(f"{value} is not among the first 128")
  if files == "s" and count > 1 and value.kind in ("s", "ttmp") and value.index % (2 if count == 2 else 4):
    raise Mismatch(f"{value} does not begin at a multiple of {2 if count == 2 else 4}")
  return number


def _half(value: Register, kind: str) -> int:
  """A half is named by the eighth bit where there are only 128 registers, else by a modifier."""
  high = value.half == "h"
  if kind == "hlo":
    if value.index > 127:
      raise Mismatch(f"{value} is not among the first 128")
    return registers.VECTOR + value.index + 128 * high
  return registers.VECTOR + value.index


def _source(operand: Operand, allowed: str, typed: str, family: str) -> tuple[int, int | None]:
  value = operand.value
  count = WIDE.get(typed, 1)
  if allowed in ("VI", "AI"):
    size, _, typed = typed.partition("_")
    count = int(size) // 32
  if isinstance(value, Register):
    if allowed in ("VT", "VTlo") and value.kind == "v":
      return _half(value, "hlo" if allowed == "VTlo" else "h"), None
    number = registers.number(value, family)
    kinds = {"S": False, "SC": False}.get(allowed, True)
    special = number >= 235 and value.kind not in "va"
    if value.half or value.count not in (count, 0) and value.kind != "null" and not special and typed != "i1":
      raise Mismatch(f"{operand}: {count} registers are wanted")
    if allowed == "K":
      raise Mismatch(f"{operand} is no constant")
    if allowed == "VL" and value.kind not in ("v", "src_lds_direct"):
      raise Mismatch(f"{operand} is no vector register")
    if value.kind == "v" and (not kinds or allowed == "AI") or value.kind == "a" and allowed != "AI":
      raise Mismatch(f"{operand} is of another file")
    if allowed in ("VI", "AI") and value.kind not in "va":
      raise Mismatch(f"{operand} is no vector register")
    if allowed == "Vlo" and value.kind == "v" and value.index > 127:
      raise Mismatch(f"{operand} is not among the first 128")
    if value.kind in ("s", "ttmp") and (count > 1 or typed == "i1" and value.count > 1) and value.index % 2:
      raise Mismatch(f"{operand} does not begin at a multiple of 2")
    return number, None
  if isinstance(value, str):
    raise Mismatch(f"{value} is nothing that an operand can be")
  if allowed == "VL":
    raise Mismatch(f"{value} is no vector register")
  if typed == "i1":
    raise Mismatch(f"{value} is no register")
  number, literal = constant(value, typed)
  if literal is not None and allowed in ("SC", "VC", "VI", "AI", "K"):
    raise Mismatch(f"{value} is no constant that this encoding has")
  return number, literal


def decode(
  number: int, literal: int | None, kinds: tuple[str, ...], family: str, count: int = 0, wide: bool = False
) -> Operand:
  """What a number stands for, in an operand of one of these kinds; registers are `count`, if it is not 0, and of a mask
  two if it is `wide`. Raises AsmError."""
  kind = kinds[0]
  if found := _KIND.match(kind):
    sizes = sorted({int(k[1:].removesuffix("lo")) for k in kinds})
    size = count or sizes[0]
    code = number
    if found[1] in "va":
      code = (registers.VECTOR if found[1] == "v" else registers.ACCUMULATOR) + (number & 255)
    elif found[1] == "w":
      code = (registers.ACCUMULATOR if number & 512 else registers.VECTOR) + (number & 255)
    return Operand(_known(code, size, family))
  if kind == "h":
    return Operand(Register("v", number & 255))
  if kind == "hlo":
    return Operand(Register("v", number & 127, 1, "h" if number & 128 else "l"))
  if kind in ("sw", "sd"):
    number = number & 127 if number & 128 else 106 if kind == "sd" else number
    return Operand(_known(number, count or (2 if kind == "sd" else 1), family))
  if kind == "e":
    return Operand(Register("v", number))
  allowed, _, typed = kind.partition(".")
  size = 2 if typed == "i1" and wide else WIDE.get(typed, 1)
  if allowed in ("VI", "AI"):
    bits, _, typed = typed.partition("_")
    size = int(bits) // 32
    if number >= 256 and allowed == "AI":
      number |= 512
  if allowed == "VTlo" and number >= 256:
    return Operand(Register("v", number & 127, 1, "h" if number & 128 else "l"))
  if number == LITERAL:
    if literal is None:
      raise AsmError("there is no literal behind the instruction")
    return Operand(literal)
  if 128 <= number <= 192:
    return Operand(number - 128)
  if 193 <= number <= 208:
    return Operand(192 - number)
  if number in _FLOAT_BITS:
    return Operand(_FLOAT_BITS[number])
  return Operand(_known(number, size, family))


def _known(code: int, count: int, family: str) -> Register:
  found = registers.of_number(code, count, family)
  if found is None:
    raise AsmError(f"no operand has number {code}")
  return found
