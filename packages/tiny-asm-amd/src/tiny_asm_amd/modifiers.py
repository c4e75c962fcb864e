"""Modifiers: what stands behind an instruction's operands, in any order, and the fields that it becomes.

Sources: the ISA manuals of RDNA 3, RDNA 4 and CDNA 3; LLVM's AMDGPUModifierSyntax for how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tiny_asm_amd import symbols
from tiny_asm_amd.errors import AsmError
from tiny_asm_amd.sources import Mismatch

Given = Mapping[str, str]
"""Modifiers as they are written: `offset:4` is {"offset": "4"}, `clamp` is {"clamp": ""}."""

FLAGS = frozenset(
  "clamp glc slc dlc scc nt sc0 sc1 gds offen idxen addr64 lds tfe lwe unorm r128 a16 d16 da done vm compr row_mirror "
  "row_half_mirror row_en high".split()
)
NAMES = frozenset(
  "mul div op_sel op_sel_hi neg_lo neg_hi offset offset0 offset1 dmask dim fi bound_ctrl row_mask bank_mask quad_perm "
  "row_shl row_shr row_ror wave_shl wave_shr wave_rol wave_ror row_bcast row_share row_newbcast row_xmask dpp8 dst_sel "
  "dst_unused src0_sel src1_sel wait_exp wait_vdst wait_va_vdst wait_vm_vsrc format byte_sel index_key cbsz abid blgp "
  "bitop3 neg th scope clamp".split()
)
CACHE = ("glc", "slc", "dlc", "scc", "nt", "sc0", "sc1", "th", "scope")
CACHE_BITS = {"glc": 1, "slc": 2, "dlc": 4, "scc": 16, "sc0": 1, "nt": 2, "sc1": 16}
SCOPES = ["SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS"]
HINTS = {
  "LOAD": {"RT": 0, "NT": 1, "HT": 2, "LU": 3, "BYPASS": 3, "NT_RT": 4, "RT_NT": 5, "NT_HT": 6},
  "STORE": {"RT": 0, "NT": 1, "HT": 2, "RT_WB": 3, "BYPASS": 3, "NT_RT": 4, "RT_NT": 5, "NT_HT": 6, "NT_WB": 7},
  "ATOMIC": {"RT": 0, "RT_RETURN": 1, "RETURN": 1, "NT": 2, "NT_RETURN": 3, "CASCADE_RT": 4, "CASCADE_NT": 6},
}  # fmt: skip
DIMENSIONS = ["1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY"]
SELECTORS = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"]
UNUSED = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"]
DPP_ROWS = {
  "row_shl": 0x100, "row_shr": 0x110, "row_ror": 0x120, "row_share": 0x150, "row_newbcast": 0x150, "row_xmask": 0x160
}  # fmt: skip
DPP_WORDS = {
  "wave_shl:1": 0x130, "wave_rol:1": 0x134, "wave_shr:1": 0x138, "wave_ror:1": 0x13C, "row_mirror": 0x140,
  "row_half_mirror": 0x141, "row_bcast:15": 0x142, "row_bcast:31": 0x143,
}  # fmt: skip
DPP_CONTROLS = ("quad_perm", *DPP_ROWS, "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mirror", "row_half_mirror",
                "row_bcast")  # fmt: skip
DPP8_BASE = 0xE9
"""What stands in the place of the first operand where lanes are permuted in eights; one more with fi."""
DATA_FORMATS = ["INVALID", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2", "2_10_10_10",
                "8_8_8_8", "32_32", "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15"]  # fmt: skip
NUMBER_FORMATS = ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT"]


def _formats() -> list[str]:
  """Formats of typed buffers on RDNA 3 and 4, by number."""
  six = ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT"]
  groups = [
    ("8", six), ("16", [*six, "FLOAT"]), ("8_8", six), ("32", ["UINT", "SINT", "FLOAT"]), ("16_16", [*six, "FLOAT"]),
    ("10_11_11", ["FLOAT"]), ("11_11_10", ["FLOAT"]), ("10_10_10_2", ["UNORM", "SNORM", "UINT", "SINT"]),
    ("2_10_10_10", six), ("8_8_8_8", six), ("32_32", ["UINT", "SINT", "FLOAT"]), ("16_16_16_16", [*six, "FLOAT"]),
    ("32_32_32", ["UINT", "SINT", "FLOAT"]), ("32_32_32_32", ["UINT", "SINT", "FLOAT"]),
  ]  # fmt: skip
  return ["INVALID", *[f"{data}_{kind}" for data, kinds in groups for kind in kinds]]


FORMATS = _formats()


def numbers(text: str) -> list[int]:
  """A list in brackets. Raises AsmError."""
  found = [symbols.number(part) for part in text.strip("[]").split(",")]
  if any(n is None for n in found):
    raise AsmError(f"{text} is no list of numbers")
  return [n or 0 for n in found]


def bits_of(text: str | None, count: int, default: int) -> list[int]:
  """A list of so many bits, of which the first may be given."""
  found = [] if text is None else numbers(text)
  while len(found) > count and not found[-1]:
    found.pop()  # of operands to which nothing can be done
  if len(found) > count or any(bit not in (0, 1) for bit in found):
    raise Mismatch(f"{text}: {count} bits are wanted")
  return found + [default if text is None else 0] * (count - len(found))


def cache_policy(given: Given, mnemonic: str) -> int:
  """The bits of who keeps what: glc, slc and so on, or th and scope."""
  value = sum({CACHE_BITS[name] for name in given if name in CACHE_BITS})
  if scope := given.get("scope"):
    value |= SCOPES.index(scope) << 3 if scope in SCOPES else _number(scope) << 3
  if hint := given.get("th"):
    found = re.match(r"TH_(LOAD|STORE|ATOMIC)_(\w+)$", hint)
    if found is None and symbols.number(hint) is None:
      raise AsmError(f"there is no th:{hint}")
    if found is not None and found[2] not in HINTS[found[1]]:
      raise AsmError(f"there is no th:{hint}")
    value |= HINTS[found[1]][found[2]] if found is not None else _number(hint)
  return value


def _number(text: str) -> int:
  found = symbols.number(text)
  if found is None:
    raise AsmError(f"{text} is no number")
  return found


def show_cache(value: int, family: str, chip: str, mnemonic: str) -> list[str]:
  """The inverse of `cache_policy`."""
  if family == "rdna4":
    kind = "ATOMIC" if "atomic" in mnemonic else "STORE" if "store" in mnemonic else "LOAD"
    hint, scope = value & 7, value >> 3 & 3
    names = [name for name, code in HINTS[kind].items() if code == hint]
    shown = [f"th:TH_{kind}_{names[0]}" if names else f"th:{hint}"] if hint else []
    return shown + ([f"scope:{SCOPES[scope]}"] if scope else [])
  new = chip in ("gfx940", "gfx942", "gfx950") and not mnemonic.startswith("s_")
  words = (("sc0", 1), ("nt", 2), ("sc1", 16)) if new else (("glc", 1), ("slc", 2), ("dlc", 4), ("scc", 16))
  return [word for word, bit in words if value & bit]


def dpp_control(given: Given) -> int:
  """The permutation of lanes in rows. Raises Mismatch without one."""
  for name in DPP_CONTROLS:
    if name not in given:
      continue
    text = f"{name}:{given[name]}" if given[name] else name
    if name == "quad_perm":
      lanes = numbers(given[name])
      if len(lanes) != 4 or any(not 0 <= lane < 4 for lane in lanes):
        raise AsmError(f"{text}: four lanes of 0 to 3 are wanted")
      return sum(lane << 2 * n for n, lane in enumerate(lanes))
    if text in DPP_WORDS:
      return DPP_WORDS[text]
    if name in DPP_ROWS and 0 <= _number(given[name]) < 16:
      return DPP_ROWS[name] + _number(given[name])
    raise AsmError(f"there is no {text}")
  raise Mismatch("no permutation of lanes is given")


def show_dpp(value: int, family: str) -> str:
  """The inverse of `dpp_control`."""
  if value < 0x100:
    return f"quad_perm:[{','.join(str(value >> 2 * n & 3) for n in range(4))}]"
  for text, code in DPP_WORDS.items():
    if code == value:
      return text
  for name, base in DPP_ROWS.items():
    if base <= value < base + 16 and name != ("row_share" if family == "cdna" else "row_newbcast"):
      return f"{name}:{value - base}"
  raise AsmError(f"no permutation of lanes has number {value:#x}")


def _lanes(given: Given) -> int:
  if "dpp8" not in given:
    raise Mismatch("no permutation of eight lanes is given")
  lanes = numbers(given["dpp8"])
  if len(lanes) != 8 or any(not 0 <= lane < 8 for lane in lanes):
    raise AsmError(f"dpp8:{given['dpp8']}: eight lanes of 0 to 7 are wanted")
  return sum(lane << 3 * n for n, lane in enumerate(lanes))


def _format(text: str, family: str) -> int:
  if (found := symbols.number(text)) is not None:
    return found
  names = [name.strip() for name in text.strip("[]").split(",")]
  if family != "cdna":
    name = names[0].removeprefix("BUF_FMT_")
    if any(part.startswith(("BUF_DATA_FORMAT_", "BUF_NUM_FORMAT_")) for part in names):  # as before RDNA, in two parts
      parts = sorted((part for part in names), key=lambda part: "_NUM_" in part)
      data = parts[0].removeprefix("BUF_DATA_FORMAT_") if "_DATA_" in parts[0] else "8"
      kind = parts[-1].removeprefix("BUF_NUM_FORMAT_") if "_NUM_" in parts[-1] else "UNORM"
      name = f"{data}_{kind}"
    if name not in FORMATS:
      raise AsmError(f"there is no format {text}")
    return FORMATS.index(name)
  value = 1  # of 8 bits, normalised
  for name in names:
    if name.startswith("BUF_DATA_FORMAT_") and name[16:] in DATA_FORMATS:
      value = value & ~15 | DATA_FORMATS.index(name[16:])
    elif name.startswith("BUF_NUM_FORMAT_") and name[15:] in NUMBER_FORMATS:
      value = value & 15 | NUMBER_FORMATS.index(name[15:]) << 4
    else:
      raise AsmError(f"there is no format {name}")
  return value


def _word(words: list[str], prefix: str = "") -> Callable[[str, str], int]:
  def read(text: str, family: str) -> int:
    name = text.removeprefix(prefix)
    return words.index(name) if name in words else _number(text)

  return read


def _plain(text: str, family: str) -> int:
  return _number(text)


VALUES: dict[str, tuple[str, int, Callable[[str, str], int]]] = {
  # operand → name as it is written, value where it is not, how it is read
  "offset": ("offset", 0, symbols.offset), "offset0": ("offset0", 0, _plain), "offset1": ("offset1", 0, _plain),
  "dmask": ("dmask", 0, _plain), "dim": ("dim", 0, _word(DIMENSIONS, "SQ_RSRC_IMG_")), "fi": ("fi", 0, _plain),
  "row_mask": ("row_mask", 15, _plain), "bank_mask": ("bank_mask", 15, _plain),
  "dst_sel": ("dst_sel", 6, _word(SELECTORS)), "src0_sel": ("src0_sel", 6, _word(SELECTORS)),
  "src1_sel": ("src1_sel", 6, _word(SELECTORS)), "dst_unused": ("dst_unused", 0, _word(UNUSED)),
  "waitexp": ("wait_exp", 0, _plain), "waitvdst": ("wait_vdst", 0, _plain), "waitvsrc": ("wait_vm_vsrc", 0, _plain),
  "format": ("format", 1, _format), "byte_sel": ("byte_sel", 0, _plain), "cbsz": ("cbsz", 0, _plain),
  "abid": ("abid", 0, _plain), "index_key_8bit": ("index_key", 0, _plain), "index_key_16bit": ("index_key", 0, _plain),
  "bitop3": ("bitop3", 0, _plain),
}  # fmt: skip


def value_of(name: str, given: Given, family: str, mnemonic: str) -> tuple[int, set[str]]:
  """(the field of a modifier, which of those that are given it is). Raises Mismatch, AsmError."""
  if name == "r128" and family == "cdna" and "a16" in given:
    return 1, {"a16"}  # where the bit says something else
  if name in ("clamp", "gds", "unorm", "r128", "a16", "tfe", "lwe", "d16", "da", "high", "compr", "vm"):
    return (int(given[name] or "1", 0), {name}) if name in given else (0, set())
  if name == "omod":
    value = {"mul:1": 0, "mul:2": 1, "mul:4": 2, "div:2": 3, "div:1": 0}
    used = [key for key in ("mul", "div") if key in given]
    if used and f"{used[0]}:{given[used[0]]}" not in value:
      raise AsmError(f"there is no {used[0]}:{given[used[0]]}")
    return (value[f"{used[0]}:{given[used[0]]}"], {used[0]}) if used else (0, set())
  if name == "cpol":
    return cache_policy(given, mnemonic), {key for key in CACHE if key in given}
  if name == "dpp_ctrl":
    return dpp_control(given), {key for key in DPP_CONTROLS if key in given}
  if name == "dpp8":
    return _lanes(given), {"dpp8"}
  if name == "bound_ctrl":
    # before RDNA 3 it was written with 0 for what the bit is 1 for
    text = given.get(name)
    return (0 if text is None else _number(text) if family != "cdna" else 1), {name} & given.keys()
  if name == "blgp":
    if "neg" in given:
      return sum(bit << n for n, bit in enumerate(numbers(given["neg"]))), {"neg"}
    return (_number(given[name]), {name}) if name in given else (0, set())
  written, default, read = VALUES[name]
  if name == "waitvdst" and "wait_va_vdst" in given:
    written = "wait_va_vdst"
  if name == "format" and family != "cdna" and name not in given:
    return 1, set()
  return (read(given[written], family), {written}) if written in given else (default, set())


def show(name: str, value: int, family: str, chip: str, mnemonic: str) -> list[str]:
  """The words for the field of a modifier; none where it need not be written."""
  if name in ("clamp", "gds", "unorm", "r128", "a16", "tfe", "lwe", "d16", "da", "high", "compr", "vm"):
    return [{"r128": "a16"}.get(name, name) if family == "cdna" else name] if value else []
  if name == "omod":
    return [["mul:2"], ["mul:4"], ["div:2"]][value - 1] if value else []
  if name == "cpol":
    return show_cache(value, family, chip, mnemonic)
  if name == "dpp_ctrl":
    return [show_dpp(value, family)]
  if name == "dpp8":
    return [f"dpp8:[{','.join(str(value >> 3 * n & 7) for n in range(8))}]"]
  if name == "bound_ctrl":
    return [f"bound_ctrl:{0 if family == 'cdna' else 1}"] if value else []
  if name == "blgp":
    if value and chip in ("gfx940", "gfx942", "gfx950") and "f64" in mnemonic:
      return [f"neg:[{','.join(str(value >> n & 1) for n in range(3))}]"]
    return [f"blgp:{value}"] if value else []
  written, default, _ = VALUES[name]
  if name == "waitvdst" and family == "rdna4":
    written = "wait_va_vdst"
  if name in ("row_mask", "bank_mask"):
    return [f"{written}:{value:#x}"]
  if name in ("dst_sel", "src0_sel", "src1_sel"):
    return [f"{written}:{SELECTORS[value]}" if value < len(SELECTORS) else f"{written}:{value}"]
  if name == "dst_unused":
    return [f"{written}:{UNUSED[value]}" if value < len(UNUSED) else f"{written}:{value}"]
  if value == default:
    return []
  if name == "dim":
    return [f"dim:SQ_RSRC_IMG_{DIMENSIONS[value]}"]
  return [f"{written}:{value:#x}" if name in ("dmask", "bitop3") else f"{written}:{value}"]
