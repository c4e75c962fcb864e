"""Immediates that are written in words: waits, messages, hardware registers, formats, permutations.

Sources: the ISA manuals of RDNA 3, RDNA 4 and CDNA 3; the names are those of LLVM's assembler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tiny_asm_amd.errors import AsmError

_CALL = re.compile(r"(\w+)\s*\(([^()]*)\)")


def number(text: str) -> int | None:
  """A number in any base; None for something else."""
  try:
    return int(text.strip(), 0)
  except ValueError:
    return None


# *** counters ***

WAITS: dict[str, dict[str, tuple[tuple[int, int, int], ...]]] = {
  # name → bits of it in the immediate: (bit of the counter, bit of the immediate, length)
  "rdna3": {"expcnt": ((0, 0, 3),), "lgkmcnt": ((0, 4, 6),), "vmcnt": ((0, 10, 6),)},
  "rdna4": {"expcnt": ((0, 0, 3),), "lgkmcnt": ((0, 4, 6),), "vmcnt": ((0, 10, 6),)},
  "cdna": {"vmcnt": ((0, 0, 4), (4, 14, 2)), "expcnt": ((0, 4, 3),), "lgkmcnt": ((0, 8, 4),)},
}  # fmt: skip


def waits(family: str, counts: Mapping[str, int], saturate: bool = False) -> int:
  """The immediate of `s_waitcnt`: counters that are not given are not waited for. Raises AsmError."""
  value, known = 0, WAITS[family]
  if wrong := [name for name in counts if name not in known]:
    raise AsmError(f"s_waitcnt has no counter {wrong[0]}, but {', '.join(known)}")
  for name, runs in known.items():
    most = (1 << sum(length for _, _, length in runs)) - 1
    count = counts.get(name, most)
    if saturate:
      count = min(count, most)
    if not 0 <= count <= most:
      raise AsmError(f"{name}({count}): the counter goes to {most}")
    for low, place, length in runs:
      value |= (count >> low & ((1 << length) - 1)) << place
  return value


def _parse_waits(text: str, family: str) -> int:
  found = {name.removesuffix("_sat"): number(count) for name, count in _CALL.findall(text)}
  if not found or any(count is None for count in found.values()):
    raise AsmError(f"s_waitcnt {text}: expected a number, or counters as vmcnt(0)")
  return waits(family, {name: count or 0 for name, count in found.items()}, "_sat(" in text)


def show_waits(value: int, family: str) -> str:
  """The counters that an immediate waits for; a number where it has other bits, or all of them."""
  parts = {}
  for name, runs in WAITS[family].items():
    count = sum((value >> place & ((1 << length) - 1)) << low for low, place, length in runs)
    if count != (1 << sum(length for _, _, length in runs)) - 1:
      parts[name] = count
  if not parts or waits(family, parts) != value:
    return hex(value)
  return " ".join(f"{name}({count})" for name, count in parts.items())


# *** delays ***

_INSTID = ["NO_DEP", *[f"VALU_DEP_{n}" for n in range(1, 5)], *[f"TRANS32_DEP_{n}" for n in range(1, 4)],
           "FMA_ACCUM_CYCLE_1", *[f"SALU_CYCLE_{n}" for n in range(1, 4)]]  # fmt: skip
_INSTSKIP = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"]
_DELAYS = {"instid0": (0, _INSTID), "instskip": (4, _INSTSKIP), "instid1": (7, _INSTID)}


def _parse_delay(text: str, family: str) -> int:
  value = 0
  for name, word in _CALL.findall(text):
    if name not in _DELAYS or word.strip() not in _DELAYS[name][1]:
      raise AsmError(f"s_delay_alu {text}: there is no {name}({word})")
    place, words = _DELAYS[name]
    value |= words.index(word.strip()) << place
  return value


def show_delay(value: int) -> str:
  """An immediate of `s_delay_alu` in words."""
  parts = []
  for name, (place, words) in _DELAYS.items():
    code = value >> place & (7 if name == "instskip" else 15)
    if code >= len(words):
      return hex(value)
    if code or name == "instid0" and value == 0:
      parts.append(f"{name}({words[code]})")
  return " | ".join(parts) if _parse_delay(" ".join(parts), "rdna3") == value else hex(value)


# *** dependency counters ***

_DEPCTR = {
  "depctr_hold_cnt": (7, 1), "depctr_sa_sdst": (0, 1), "depctr_va_vdst": (12, 4), "depctr_va_sdst": (9, 3),
  "depctr_va_ssrc": (8, 1), "depctr_va_vcc": (1, 1), "depctr_vm_vsrc": (2, 3),
}  # fmt: skip


def _parse_depctr(text: str, family: str) -> int:
  # counters that are not named are not waited for
  value = sum(((1 << length) - 1) << place for place, length in _DEPCTR.values())
  for name, count in _CALL.findall(text):
    if name not in _DEPCTR or (found := number(count)) is None:
      raise AsmError(f"there is no counter {name}({count})")
    place, length = _DEPCTR[name]
    if not 0 <= found < 1 << length:
      raise AsmError(f"{name}({found}): the counter goes to {(1 << length) - 1}")
    value = value & ~(((1 << length) - 1) << place) | found << place
  return value


# *** hardware registers, messages ***

_HWREG_OLD = {
  "HW_REG_MODE": 1, "HW_REG_STATUS": 2, "HW_REG_TRAPSTS": 3, "HW_REG_HW_ID": 4, "HW_REG_GPR_ALLOC": 5,
  "HW_REG_LDS_ALLOC": 6, "HW_REG_IB_STS": 7,
}  # fmt: skip
_HWREGS = {
  "cdna": {
    **_HWREG_OLD, "HW_REG_SH_MEM_BASES": 15, "HW_REG_TBA_LO": 16, "HW_REG_TBA_HI": 17, "HW_REG_TMA_LO": 18,
    "HW_REG_TMA_HI": 19, "HW_REG_XCC_ID": 20, "HW_REG_SQ_PERF_SNAPSHOT_DATA": 21, "HW_REG_SQ_PERF_SNAPSHOT_DATA1": 22,
    "HW_REG_SQ_PERF_SNAPSHOT_PC_LO": 23, "HW_REG_SQ_PERF_SNAPSHOT_PC_HI": 24,
  },
  "rdna3": {
    **{k: n for k, n in _HWREG_OLD.items() if n != 4}, "HW_REG_SH_MEM_BASES": 15, "HW_REG_PERF_SNAPSHOT_DATA": 27,
    "HW_REG_PERF_SNAPSHOT_PC_LO": 18, "HW_REG_PERF_SNAPSHOT_PC_HI": 19, "HW_REG_FLAT_SCR_LO": 20,
    "HW_REG_FLAT_SCR_HI": 21, "HW_REG_HW_ID1": 23, "HW_REG_HW_ID2": 24, "HW_REG_SHADER_CYCLES": 29,
  },
  "rdna4": {
    "HW_REG_MODE": 1, "HW_REG_STATUS": 2, "HW_REG_GPR_ALLOC": 5, "HW_REG_LDS_ALLOC": 6, "HW_REG_IB_STS": 7,
    "HW_REG_STATE_PRIV": 4, "HW_REG_PERF_SNAPSHOT_DATA": 10, "HW_REG_PERF_SNAPSHOT_PC_LO": 11,
    "HW_REG_PERF_SNAPSHOT_PC_HI": 12, "HW_REG_PERF_SNAPSHOT_DATA1": 15, "HW_REG_PERF_SNAPSHOT_DATA2": 16,
    "HW_REG_EXCP_FLAG_PRIV": 17, "HW_REG_EXCP_FLAG_USER": 18, "HW_REG_TRAP_CTRL": 19, "HW_REG_SCRATCH_BASE_LO": 20,
    "HW_REG_SCRATCH_BASE_HI": 21, "HW_REG_HW_ID1": 23, "HW_REG_HW_ID2": 24, "HW_REG_SHADER_CYCLES_LO": 29,
    "HW_REG_SHADER_CYCLES_HI": 30, "HW_REG_DVGPR_ALLOC_LO": 31, "HW_REG_DVGPR_ALLOC_HI": 32,
  },
}  # fmt: skip


def hwreg(family: str, name: str | int, offset: int = 0, size: int = 32) -> int:
  """The immediate of `s_getreg_b32` and `s_setreg_b32`: `size` bits from `offset` on of a hardware register."""
  code = _HWREGS[family].get(name) if isinstance(name, str) else name
  if code is None or not 0 <= code < 64 or not 0 <= offset < 32 or not 1 <= size <= 32:
    raise AsmError(f"hwreg({name}, {offset}, {size}): no such register, or bits")
  return code | offset << 6 | (size - 1) << 11


def _parse_hwreg(text: str, family: str) -> int:
  found = _CALL.match(text)
  if found is None or found[1] != "hwreg":
    raise AsmError(f"{text}: expected a number, or hwreg(NAME, OFFSET, SIZE)")
  name, *bits = [part.strip() for part in found[2].split(",")]
  code = number(name)
  return hwreg(family, name if code is None else code, *[number(bit) or 0 for bit in bits])


_MESSAGES = {
  "old": {"MSG_INTERRUPT": 1, "MSG_GS": 2, "MSG_GS_DONE": 3, "MSG_SAVEWAVE": 4, "MSG_STALL_WAVE_GEN": 5,
          "MSG_HALT_WAVES": 6, "MSG_ORDERED_PS_DONE": 7, "MSG_EARLY_PRIM_DEALLOC": 8, "MSG_GS_ALLOC_REQ": 9,
          "MSG_GET_DOORBELL": 10, "MSG_SYSMSG": 15},
  "new": {"MSG_INTERRUPT": 1, "MSG_HS_TESSFACTOR": 2, "MSG_DEALLOC_VGPRS": 3, "MSG_STALL_WAVE_GEN": 5,
          "MSG_HALT_WAVES": 6, "MSG_GS_ALLOC_REQ": 9, "MSG_RTN_GET_DOORBELL": 128, "MSG_RTN_GET_DDID": 129,
          "MSG_RTN_GET_TMA": 130, "MSG_RTN_GET_REALTIME": 131, "MSG_RTN_SAVE_WAVE": 132, "MSG_RTN_GET_TBA": 133,
          "MSG_RTN_GET_TBA_TO_PC": 134, "MSG_RTN_GET_SE_AID_ID": 135},
}  # fmt: skip
_OPERATIONS = {"GS_OP_NOP": 0, "GS_OP_CUT": 1, "GS_OP_EMIT": 2, "GS_OP_EMIT_CUT": 3, "SYSMSG_OP_ECC_ERR_INTERRUPT": 1,
               "SYSMSG_OP_REG_RD": 2, "SYSMSG_OP_HOST_TRAP_ACK": 3, "SYSMSG_OP_TTRACE_PC": 4}  # fmt: skip


def _parse_message(text: str, family: str) -> int:
  found = _CALL.match(text)
  if found is None or found[1] != "sendmsg":
    raise AsmError(f"{text}: expected a number, or sendmsg(NAME)")
  parts = [part.strip() for part in found[2].split(",")]
  names: dict[str, int] = {**_MESSAGES["old" if family == "cdna" else "new"]}
  codes = [number(part) if number(part) is not None else {**names, **_OPERATIONS}.get(part) for part in parts]
  if any(code is None for code in codes):
    raise AsmError(f"{text}: there is no such message")
  return sum((code or 0) << shift for code, shift in zip(codes, (0, 4, 8)))


# *** permutations ***


def _parse_swizzle(text: str) -> int:
  found = re.match(r"swizzle\((.*)\)$", text)
  parts = [part.strip().strip('"') for part in found[1].split(",")] if found else [""]
  numbers = [number(part) or 0 for part in parts[1:]]
  if parts[0] == "QUAD_PERM" and len(numbers) == 4:
    return 0x8000 | sum(lane << 2 * n for n, lane in enumerate(numbers))
  if parts[0] == "BITMASK_PERM" and len(parts) == 2 and re.fullmatch("[01pi]{5}", parts[1]):
    bits = {"0": (0, 0, 0), "1": (0, 1, 0), "p": (1, 0, 0), "i": (1, 0, 1)}
    masks = [0, 0, 0]
    for char in parts[1]:
      masks = [mask << 1 | bit for mask, bit in zip(masks, bits[char])]
    return masks[0] | masks[1] << 5 | masks[2] << 10
  if parts[0] == "BROADCAST" and len(numbers) == 2:
    return 0x20 - numbers[0] & 0x1F | numbers[1] << 5
  if parts[0] == "SWAP" and len(numbers) == 1:
    return 0x1F | numbers[0] << 10
  if parts[0] == "REVERSE" and len(numbers) == 1:
    return 0x1F | (numbers[0] - 1) << 10
  raise AsmError(f"{text}: no such permutation")


def offset(text: str, family: str) -> int:
  """An offset of memory, or the permutation of `ds_swizzle_b32`."""
  found = number(text)
  return _parse_swizzle(text) if found is None and text.startswith("swizzle") else _needed(found, text)


def _needed(found: int | None, text: str) -> int:
  if found is None:
    raise AsmError(f"{text} is no number")
  return found


_INDEX_MODES = {"SRC0": 1, "SRC1": 2, "SRC2": 4, "DST": 8}


def _parse_index_mode(text: str, family: str) -> int:
  found = _CALL.match(text)
  if found is None or found[1] != "gpr_idx":
    raise AsmError(f"{text}: expected a number, or gpr_idx(SRC0, DST)")
  return sum(_INDEX_MODES[part.strip()] for part in found[2].split(",") if part.strip())


# *** exports, interpolation ***

_TARGETS = {
  "null": 9, "mrtz": 8, "prim": 20, "dual_src_blend0": 21, "dual_src_blend1": 22, **{f"mrt{n}": n for n in range(8)},
  **{f"pos{n}": 12 + n for n in range(5)}, **{f"param{n}": 32 + n for n in range(32)},
}  # fmt: skip


def target(text: str, family: str) -> int:
  """Where an export goes."""
  if text in _TARGETS:
    return _TARGETS[text]
  if found := re.match(r"invalid_target_(\d+)$", text):
    return int(found[1])
  raise AsmError(f"{text} is nothing that can be exported to")


def show_target(code: int) -> str:
  """The inverse of `target`."""
  return next((name for name, known in _TARGETS.items() if known == code), f"invalid_target_{code}")


_VERSIONS = {"UC_VERSION_GFX7": 0, "UC_VERSION_GFX8": 1, "UC_VERSION_GFX9": 2, "UC_VERSION_GFX10": 4,
             "UC_VERSION_GFX11": 6, "UC_VERSION_GFX12": 9, "UC_VERSION_W64_BIT": 0x2000, "UC_VERSION_W32_BIT": 0x4000,
             "UC_VERSION_MDP_BIT": 0x8000}  # fmt: skip


def _parse_version(text: str, family: str) -> int:
  names = [part.strip() for part in text.split("|")]
  if wrong := [name for name in names if name not in _VERSIONS]:
    raise AsmError(f"there is no version {wrong[0]}")
  return sum({_VERSIONS[name] for name in names})


def _plain(text: str, family: str) -> int:
  return _needed(number(text), text)


IMMEDIATES: dict[str, tuple[int, Callable[[str, str], int]]] = {
  "s16imm": (16, _plain), "i16imm": (16, _plain), "u16imm": (16, _plain), "i32imm": (32, _plain), "i8imm": (8, _plain),
  "SOPPBrTarget": (16, _plain), "hwreg": (16, _parse_hwreg), "SendMsg": (16, _parse_message),
  "SWaitCnt": (16, _parse_waits), "DepCtr": (16, _parse_depctr), "SDelayALU": (16, _parse_delay),
  "Endpgm": (16, _plain), "VersionImm": (16, _parse_version), "GPRIdxMode": (4, _parse_index_mode),
  "exp_tgt": (6, target), "SMEMOffset": (32, _plain), "i1imm": (1, _plain),
}  # fmt: skip
"""Kinds of immediates that have a place: bits, and how they are read."""


def immediate(text: str, kind: str, family: str) -> int:
  """An immediate with a place. Raises AsmError."""
  bits, words = IMMEDIATES[kind]
  found = number(text)
  value = words(text, family) if found is None else found
  if not -(1 << (bits - 1)) <= value < 1 << bits:
    raise AsmError(f"{text} does not fit {bits} bits")
  return value & ((1 << bits) - 1)


def show_immediate(value: int, kind: str, family: str) -> str:
  """The inverse of `immediate`."""
  if kind == "SWaitCnt":
    return show_waits(value, family)
  if kind == "SDelayALU":
    return show_delay(value)
  if kind == "exp_tgt":
    return show_target(value)
  return str(value) if 0 <= value < 10 else hex(value)
