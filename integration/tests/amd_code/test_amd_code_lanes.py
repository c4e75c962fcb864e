"""Instructions by which lanes get each other's words, on the emulator of AMD's machine code: DPP, swizzles,
permutations, single lanes; and counts of the lanes before. Which lane it is, is written down here once more, from the
ISA manuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from amd_code_machine import CHIPS, Words, computed, lanes

from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, exec_hi, exec_lo, s, v

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
Array = Any
OLD = 7
"""What is in the result's register before."""


def words(chip: str) -> Array:
  return np.arange(lanes(chip), dtype=np.uint32) * 3 + 100


def moved(chip: str, made: Sequence[Any]) -> Array:
  """v10 behind instructions that find `words` in v1 and OLD in v10."""
  pause = [Isa(chip).s_nop(4)] if lanes(chip) == 64 else []
  body = [Isa(chip).v_mov_b32(v[10], OLD), *pause, *made, *Words(chip).wait()]
  return computed(chip, lambda: body, [words(chip)])


def taken(chip: str, lane: Callable[[int], int | None]) -> Array:
  """What lanes get of those named; None: nothing, and the register stays."""
  found = [lane(n) for n in range(lanes(chip))]
  return np.array([OLD if k is None else words(chip)[k] for k in found], np.uint32)


def within(n: int, at: int) -> int | None:
  """Lane `at` of the row of 16 that n is in."""
  return (n & ~15) | at if 0 <= at < 16 else None


EVERYWHERE: dict[str, tuple[dict[str, Any], Callable[[int], int | None]]] = {
  "quad_perm": ({"quad_perm": [2, 0, 3, 1]}, lambda n: n & ~3 | [2, 0, 3, 1][n & 3]),
  "row_shl": ({"row_shl": 3}, lambda n: within(n, (n & 15) + 3)),
  "row_shr": ({"row_shr": 5}, lambda n: within(n, (n & 15) - 5)),
  "row_ror": ({"row_ror": 6}, lambda n: within(n, ((n & 15) - 6) & 15)),
  "row_mirror": ({"row_mirror": True}, lambda n: within(n, 15 - (n & 15))),
  "row_half_mirror": ({"row_half_mirror": True}, lambda n: n & ~7 | 7 - (n & 7)),
}
RDNA: dict[str, tuple[dict[str, Any], Callable[[int], int | None]]] = {
  "row_share": ({"row_share": 9}, lambda n: within(n, 9)),
  "row_xmask": ({"row_xmask": 5}, lambda n: within(n, (n & 15) ^ 5)),
  "dpp8": ({"dpp8": [7, 1, 6, 2, 5, 3, 4, 0]}, lambda n: n & ~7 | [7, 1, 6, 2, 5, 3, 4, 0][n & 7]),
}
CDNA: dict[str, tuple[dict[str, Any], Callable[[int], int | None]]] = {
  "wave_shl": ({"wave_shl": 1}, lambda n: n + 1 if n < 63 else None),
  "wave_rol": ({"wave_rol": 1}, lambda n: (n + 1) % 64),
  "wave_shr": ({"wave_shr": 1}, lambda n: n - 1 if n else None),
  "wave_ror": ({"wave_ror": 1}, lambda n: (n - 1) % 64),
  "row_bcast 15": ({"row_bcast": 15}, lambda n: (n & ~15) - 1 if n >= 16 else None),
  "row_bcast 31": ({"row_bcast": 31}, lambda n: 31 if n >= 32 else None),
  "row_newbcast": ({"row_newbcast": 4}, lambda n: within(n, 4)),
}


@pytest.mark.parametrize("family", CHIPS)
def test_dpp(family: str) -> None:
  chip = CHIPS[family]
  for name, (how, lane) in {**EVERYWHERE, **(CDNA if family == "cdna" else RDNA)}.items():
    text = " ".join(f"{key}:{value}" if value is not True else key for key, value in how.items()).replace(" ", "")
    dpp = "v_mov_b32_dpp"
    masks = "" if "dpp8" in how else " row_mask:0xf bank_mask:0xf"
    assert (moved(chip, [f"{dpp} v10, v1 {text}{masks}"]) == taken(chip, lane)).all(), name
    if "dpp8" not in how:
      some = moved(chip, [f"{dpp} v10, v1 {text} row_mask:0x5 bank_mask:0x6"])
      kept = taken(chip, lambda n, lane=lane: lane(n) if n // 16 in (0, 2) and n // 4 % 4 in (1, 2) else None)  # type: ignore[misc]
      assert (some == kept).all(), name
    bound = "" if "dpp8" in how else " bound_ctrl:1" if family != "cdna" else " bound_ctrl:0"
    zero = moved(chip, [f"{dpp} v10, v1 {text}{masks}{bound}"])
    assert (zero == np.where([lane(n) is None for n in range(lanes(chip))], 0, taken(chip, lane))).all(), name


SWIZZLES: dict[int, Callable[[int], int]] = {
  0x8000 | 0b01_11_00_10: lambda n: n & ~3 | [2, 0, 3, 1][n & 3],
  0x1F | 5 << 10: lambda n: n ^ 5, 0x1C | 2 << 5: lambda n: n & 0x3C | 2, 0x0F | 0x10 << 10: lambda n: n & 47 ^ 16,
}  # fmt: skip


@pytest.mark.parametrize("family", CHIPS)
def test_swizzles(family: str) -> None:
  """Lanes of four in any order; or and, or, xor of a lane's number in its 32."""
  chip = CHIPS[family]
  for offset, lane in SWIZZLES.items():
    found = moved(chip, [Isa(chip).ds_swizzle_b32(v[10], v[1], offset=offset)])
    assert (found == taken(chip, lambda n, lane=lane: n & 32 | lane(n) & 31)).all(), hex(offset)  # type: ignore[misc]


@pytest.mark.parametrize("family", CHIPS)
def test_permutations_by_address(family: str) -> None:
  """BPERMUTE pulls from the lane at an address / 4, PERMUTE pushes to it."""
  chip, isa, count = CHIPS[family], Isa(CHIPS[family]), lanes(CHIPS[family])
  where = (np.arange(count) * 7 + 3) % count
  for name in ("bpermute", "permute"):
    made = getattr(isa, f"ds_{name}_b32")(v[10], v[2], v[1], offset=8)
    found = computed(chip, lambda made=made: [made, *Words(chip).wait()], [words(chip), (4 * where).astype(np.uint32)])  # type: ignore[misc]
    to = (where + 2) % count
    wanted = words(chip)[to] if name == "bpermute" else words(chip)[np.argsort(to)]
    assert (found == wanted).all(), name


@pytest.mark.parametrize("family", CHIPS)
def test_single_lanes(family: str) -> None:
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  pause = [isa.s_nop(4)] if family == "cdna" else [isa.s_wait_alu(0)] if family == "rdna4" else []
  some = [isa.s_mov_b32(exec_lo, 0xF0), *([isa.s_mov_b32(exec_hi, 0), isa.s_nop(4)] if family == "cdna" else [])]
  every = [isa.s_mov_b32(exec_lo, -1), *([isa.s_mov_b32(exec_hi, -1)] if family == "cdna" else [])]
  x, here = words(chip), np.arange(lanes(chip))
  shown, lane = [*every, *pause, isa.v_mov_b32(v[10], s[20])], [isa.s_mov_b32(s[21], 9), *pause]
  assert (moved(chip, [*lane, isa.v_readlane_b32(s[20], v[1], s[21]), *shown]) == x[9]).all()
  assert (moved(chip, [*some, isa.v_readfirstlane_b32(s[20], v[1]), *shown]) == x[4]).all()
  written = moved(chip, [isa.s_mov_b32(s[20], 99), *lane, isa.v_writelane_b32(v[10], s[20], s[21])])
  assert (written == np.where(here == 9, 99, OLD)).all()
  both = [isa.v_swap_b32(v[10], v[1]), *every, isa.v_mov_b32(v[11], v[1])]
  found = computed(chip, lambda: [isa.v_mov_b32(v[10], OLD), *some, *both], [x], 2)
  on = (here >= 4) & (here < 8)
  assert (found == np.stack([np.where(on, x, OLD), np.where(on, OLD, x)])).all()


@pytest.mark.parametrize("family", CHIPS)
def test_lanes_before(family: str) -> None:
  """MBCNT: how many lanes before this one have their bit set."""
  chip, isa, bits = CHIPS[family], Isa(CHIPS[family]), 0xDEADBEEF
  mask = [isa.s_mov_b32(s[20], bits), *Words(chip).settled()]
  found = moved(chip, [*mask, isa.v_mbcnt_lo_u32_b32(v[9], s[20], 5), isa.v_mbcnt_hi_u32_b32(v[10], s[20], v[9])])
  wanted = [5 + (bits & (1 << min(n, 32)) - 1).bit_count() + (bits & (1 << max(n - 32, 0)) - 1).bit_count()
            for n in range(lanes(chip))]  # fmt: skip
  assert found.tolist() == wanted


@pytest.mark.parametrize("name", ["v_permlane16_b32", "v_permlanex16_b32"])
@pytest.mark.parametrize("family", ["rdna3", "rdna4"])
def test_permutations_of_rows(family: str, name: str) -> None:
  """Each of 16 lanes names one of its row, or of the other row."""
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  order = [(5 * n + 2) % 16 for n in range(16)]
  choice = sum(k << 4 * n for n, k in enumerate(order))
  body = [isa.s_mov_b32(s[20], choice & 0xFFFFFFFF), isa.s_mov_b32(s[21], choice >> 32), *Words(chip).settled()]
  other = 16 * ("x16" in name)
  found = moved(chip, [*body, getattr(isa, name)(v[10], v[1], s[20], s[21])])
  assert (found == taken(chip, lambda n: (n & 16 ^ other) | order[n & 15])).all()


@pytest.mark.parametrize("size", [16, 32])
def test_rows_that_change_places(size: int) -> None:
  """gfx950: the odd rows of one register and the even rows of another one."""
  isa, x = Isa("gfx950"), words("gfx950")
  y = x + 1000
  made = [
    getattr(isa, f"v_permlane{size}_swap_b32")(v[1], v[2]),
    isa.v_mov_b32(v[10], v[1]),
    isa.v_mov_b32(v[11], v[2]),
  ]
  found = computed("gfx950", lambda: [isa.s_nop(4), *made], [x, y], 2)
  lane = np.arange(64)
  wanted = [np.where(lane & size, np.roll(y, size), x), np.where(lane & size, y, np.roll(x, -size))]
  assert (found == np.stack(wanted)).all()
