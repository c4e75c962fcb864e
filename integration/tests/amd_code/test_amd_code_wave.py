"""Instructions of the wave (the SALU's) on the emulator of AMD's machine code, against Python's integers and NumPy:
results, SCC, masks of lanes, branches and jumps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amd_code_machine import CHIPS, ORDERS, Function, Words, cases, launched
from test_amd_code_instructions import exact_fma, field, reverse

from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, Label, exec_hi, exec_lo, s, v, vcc_hi, vcc_lo
from tiny_asm_amd.table import table

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
FULL, FULL64 = (1 << 32) - 1, (1 << 64) - 1


def bits_from(a: int, b: int, size: int, signed: bool) -> tuple[int, bool]:
  """So many bits (b from 16 on) from one (b's lowest) on, and whether they are not 0."""
  count = min(b >> 16 & 127, size)
  found = (a & (1 << size) - 1) >> (b & size - 1) & (1 << count) - 1
  return (field(found, count) if signed else found), found != 0


SCALARS: list[tuple[str, str, Function]] = [
  ("s_add_u32 s_add_co_u32 s_add_u32", "u32 u32 u32", lambda a, b: (a + b, a + b > FULL)),
  ("s_sub_u32 s_sub_co_u32 s_sub_u32", "u32 u32 u32", lambda a, b: (a - b, b > a)),
  ("s_add_i32 s_add_co_i32 s_add_i32", "i32 i32 i32", lambda a, b: (a + b, not -(1 << 31) <= a + b < 1 << 31)),
  ("s_sub_i32 s_sub_co_i32 s_sub_i32", "i32 i32 i32", lambda a, b: (a - b, not -(1 << 31) <= a - b < 1 << 31)),
  ("s_mul_i32", "i32 i32 i32", lambda a, b: (a * b, None)),
  ("s_mul_hi_u32", "u32 u32 u32", lambda a, b: (a * b >> 32, None)),
  ("s_mul_hi_i32", "i32 i32 i32", lambda a, b: (a * b >> 32, None)),
  ("- s_mul_u64 -", "u64 u64 u64", lambda a, b: (a * b, None)),
  ("- s_add_nc_u64 -", "u64 u64 u64", lambda a, b: (a + b, None)),
  ("s_min_u32", "u32 u32 u32", lambda a, b: (min(a, b), a <= b)),
  ("s_max_u32", "u32 u32 u32", lambda a, b: (max(a, b), a >= b)),
  ("s_min_i32", "i32 i32 i32", lambda a, b: (min(a, b), a <= b)),
  ("s_max_i32", "i32 i32 i32", lambda a, b: (max(a, b), a >= b)),
  *[(f"s_{name}_b{bits}", f"u{bits} u{bits} u{bits}", lambda a, b, f=f, m=m: ((r := f(a, b) & m), r != 0))
    for bits, m in ((32, FULL), (64, FULL64))
    for name, f in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b),
                    ("nand", lambda a, b: ~(a & b)), ("nor", lambda a, b: ~(a | b)), ("xnor", lambda a, b: ~(a ^ b)))],
  *[(f"s_and_not1_b{bits} s_and_not1_b{bits} s_andn2_b{bits}", f"u{bits} u{bits} u{bits}",
     lambda a, b: (a & ~b, a & ~b != 0)) for bits in (32, 64)],
  *[(f"s_lshl_b{bits}", f"u{bits} u{bits} u32", lambda a, b, n=bits: ((r := a << (b & n - 1) & (1 << n) - 1), r != 0))
    for bits in (32, 64)],
  *[(f"s_{name}{bits}", f"{name[-1].replace('b', 'u')}{bits} {name[-1].replace('b', 'u')}{bits} u32",
     lambda a, b, n=bits: ((r := a >> (b & n - 1)), r != 0)) for name in ("lshr_b", "ashr_i") for bits in (32, 64)],
  ("s_bfm_b32", "u32 u32 u32", lambda a, b: ((1 << (a & 31)) - 1 << (b & 31), None)),
  ("s_not_b32", "u32 u32", lambda a: (~a, a != FULL)), ("s_not_b64", "u64 u64", lambda a: (~a, a != FULL64)),
  ("s_brev_b32", "u32 u32", lambda a: (reverse(a), None)), ("s_mov_b64", "u64 u64", lambda a: (a, None)),
  ("s_bcnt1_i32_b32", "u32 u32", lambda a: (a.bit_count(), a != 0)),
  ("s_bcnt1_i32_b64", "u32 u64", lambda a: (a.bit_count(), a != 0)),
  ("s_ctz_i32_b32 s_ctz_i32_b32 s_ff1_i32_b32", "i32 u32", lambda a: ((a & -a).bit_length() - 1, None)),
  ("s_clz_i32_u32 s_clz_i32_u32 s_flbit_i32_b32", "i32 u32", lambda a: (32 - a.bit_length() if a else -1, None)),
  ("s_sext_i32_i8", "i32 u32", lambda a: (field(a & 255, 8), None)),
  ("s_sext_i32_i16", "i32 u32", lambda a: (field(a & 0xFFFF, 16), None)),
  ("s_abs_i32", "u32 i32", lambda a: (abs(a), a != 0)),
  ("s_pack_ll_b32_b16", "u32 u32 u32", lambda a, b: (a & 0xFFFF | b << 16, None)),
  ("s_bfe_u32", "u32 u32 u32", lambda a, b: ((r := a >> (b & 31) & (1 << (b >> 16 & 127)) - 1), r != 0)),
  *[(f"s_lshl{n}_add_u32", "u32 u32 u32", lambda a, b, n=n: ((a << n) + b, (a << n) + b > FULL)) for n in range(1, 5)],
  ("- s_sub_nc_u64 -", "u64 u64 u64", lambda a, b: (a - b, None)),
  ("s_absdiff_i32", "u32 i32 i32", lambda a, b: (abs(a - b), a != b)),
  *[(f"s_or_not1_b{n} s_or_not1_b{n} s_orn2_b{n}", f"u{n} u{n} u{n}",
     lambda a, b, n=n: ((r := (a | ~b) & (1 << n) - 1), r != 0)) for n in (32, 64)],
  ("s_bfm_b64", "u64 u32 u32", lambda a, b: ((1 << (a & 63)) - 1 << (b & 63), None)),
  ("s_brev_b64", "u64 u64", lambda a: (reverse(a & FULL) << 32 | reverse(a >> 32), None)),
  *[(f"s_bcnt0_i32_b{n}", f"u32 u{n}", lambda a, n=n: ((r := n - a.bit_count()), r != 0)) for n in (32, 64)],
  ("s_ctz_i32_b64 s_ctz_i32_b64 s_ff1_i32_b64", "i32 u64", lambda a: ((a & -a).bit_length() - 1, None)),
  ("s_clz_i32_u64 s_clz_i32_u64 s_flbit_i32_b64", "i32 u64", lambda a: (64 - a.bit_length() if a else -1, None)),
  ("s_cls_i32 s_cls_i32 s_flbit_i32", "i32 i32", lambda a: (32 - b.bit_length() if (b := max(a, ~a)) else -1, None)),
  ("s_cls_i32_i64 s_cls_i32_i64 s_flbit_i32_i64", "i32 i64",
   lambda a: (64 - b.bit_length() if (b := max(a, ~a)) else -1, None)),
  ("s_pack_lh_b32_b16", "u32 u32 u32", lambda a, b: (a & 0xFFFF | b & 0xFFFF0000, None)),
  ("s_pack_hh_b32_b16", "u32 u32 u32", lambda a, b: (a >> 16 | b & 0xFFFF0000, None)),
  ("s_pack_hl_b32_b16 s_pack_hl_b32_b16 -", "u32 u32 u32", lambda a, b: (a >> 16 | b << 16 & FULL, None)),
  *[(f"s_bfe_{t}{n}", f"{t}{n} {t}{n} u32", lambda a, b, t=t, n=n: bits_from(a, b, n, t == "i"))
    for t, n in (("i", 32), ("u", 64), ("i", 64))],
  *[(f"s_bitcmp{bit}_b{n}", f"u32 u{n} u32", lambda a, b, bit=bit, n=n: (None, (a >> (b & n - 1) & 1) == bit))
    for bit in (0, 1) for n in (32, 64)],
  *[(f"s_cmp_{how}_{t}32", f"u32 {t}32 {t}32", lambda a, b, f=f: (None, f(a, b))) for t in "iu" for how, f in (
    ("eq", lambda a, b: a == b), ("lg", lambda a, b: a != b), ("lt", lambda a, b: a < b), ("le", lambda a, b: a <= b),
    ("gt", lambda a, b: a > b), ("ge", lambda a, b: a >= b))],
  ("s_cmp_eq_u64", "u32 u64 u64", lambda a, b: (None, a == b)),
  ("s_cmp_lg_u64", "u32 u64 u64", lambda a, b: (None, a != b)),
]  # fmt: skip
NO_RESULT = ("s_cmp_", "s_bitcmp")
SOME = [0, 1, 2, 5, 31, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0x80000, 0x200004]


@pytest.mark.parametrize("chip,name,kinds,function", cases(SCALARS))
def test_scalars(chip: str, name: str, kinds: str, function: Function) -> None:
  """Results, and SCC where it is written."""
  isa, move, (result, *types) = Isa(chip), Words(chip), kinds.split()
  free = np.random.default_rng(len(name))
  wide = result.endswith("64")
  rows = []
  for n in range(10):
    words = [SOME[n % len(SOME)] if k == n % 2 else int(free.choice(SOME)) for k in range(2)]
    upper = free.integers(0, 1 << 32, 2, np.uint64).tolist()
    rows.append([w | (u << 32 if k.endswith("64") else 0) for w, u, k in zip(words, upper, types)])
  out = np.zeros((len(rows), 3), np.uint32)
  body: list[Any] = [*move.addresses(s[4:5]), isa.v_mov_b32(v[0], 0)]
  for n, row in enumerate(rows):
    operands = []
    for k, (value, kind) in enumerate(zip(row, types)):
      first = 20 + 4 * k
      body += [isa.s_mov_b32(s[first], value & FULL), isa.s_mov_b32(s[first + 1], value >> 32)]
      operands.append(s[first : first + 1] if kind.endswith("64") else s[first])
    body += [isa.s_mov_b32(s[41], 0), *move.settled(), isa.s_cmp_eq_u32(s[41], 1)]
    to = () if name.startswith(NO_RESULT) else (s[40:41] if wide else s[40],)
    body += [] if to else [isa.s_mov_b32(s[40], 0)]
    body += [getattr(isa, name)(*to, *operands), isa.s_cselect_b32(s[42], 1, 0)]
    body += move.settled()
    for part in range(3):
      body += [isa.v_mov_b32(v[10], s[40 + part]), move.store(v[0], v[10], s[4:5], 4 * (3 * n + part))]
  launched(chip, [*body, isa.s_endpgm()], [out])
  for row, found in zip(rows, out):
    given = [field(x, int(k[1:])) if k[0] == "i" else x for x, k in zip(row, types)]
    value, carry = function(*given)
    got = int(found[0]) | (int(found[1]) << 32 if wide else 0)
    assert value is None or got == value & (FULL64 if wide else FULL), (name, row)
    assert carry is None or bool(found[2]) == carry, (name, row)


def results(chip: str, groups: list[list[Any]], words: int, settle: bool = True) -> Any:
  """What s40 and those behind it are behind each group of instructions: a row each. `settle`: what the VALU read and an
  instruction wrote anew is waited for before the next one."""
  isa, move = Isa(chip), Words(chip)
  out = np.zeros((len(groups), words), np.uint32)
  body: list[Any] = [*move.addresses(s[4:5]), isa.v_mov_b32(v[0], 0)]
  for n, group in enumerate(groups):
    body += [i for made in group for i in (made, *(move.settled() if settle else []))]
    body += move.settled()
    for k in range(words):
      body += [isa.v_mov_b32(v[10], s[40 + k]), move.store(v[0], v[10], s[4:5], 4 * (words * n + k))]
  launched(chip, [*body, isa.s_endpgm()], [out])
  return out


FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, 3e-39, 1e30, -7.75, np.inf, -np.inf, np.nan, 65521.0]
OF_FLOATS: dict[str, Function] = {
  "s_add_f32": np.add, "s_sub_f32": np.subtract, "s_mul_f32": np.multiply, "s_min_num_f32": np.fmin,
  "s_max_num_f32": np.fmax, "s_minimum_f32": np.minimum, "s_maximum_f32": np.maximum,
  "s_floor_f32": lambda a, b: np.floor(a), "s_ceil_f32": lambda a, b: np.ceil(a),
  "s_trunc_f32": lambda a, b: np.trunc(a), "s_rndne_f32": lambda a, b: np.rint(a),
  "s_fmac_f32": lambda a, b: exact_fma(np.float32)(a, b, np.full_like(a, 0.25)),
  "s_cvt_f16_f32": lambda a, b: a.astype(np.float16).view(np.uint16).astype(np.uint32).view(np.float32),
  "s_cvt_f32_f16": lambda a, b: a.view(np.uint32).astype(np.uint16).view(np.float16).astype(np.float32),
  "s_cvt_f32_i32": lambda a, b: a.view(np.int32).astype(np.float32),
  "s_cvt_f32_u32": lambda a, b: a.view(np.uint32).astype(np.float32),
  "s_cvt_i32_f32": lambda a, b: whole(a, -(1 << 31), (1 << 31) - 1),
  "s_cvt_u32_f32": lambda a, b: whole(a, 0, (1 << 32) - 1),
}  # fmt: skip


def whole(a: Any, least: int, most: int) -> Any:
  """Integers, with what is outside at the nearest end, and NaN as 0."""
  made = [0 if np.isnan(x) else int(min(max(float(x), least), most)) & FULL for x in a]
  return np.array(made, np.uint32).view(np.float32)


def bits(x: Any) -> int:
  return int(np.float32(x).view(np.uint32))


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_of_the_wave(name: str) -> None:
  """RDNA 4 has some."""
  isa, one = Isa("gfx1201"), any(w in name for w in ("floor", "ceil", "trunc", "rndne", "cvt"))
  rows = [(a, FLOATS[(n * 5 + 3) % len(FLOATS)]) for n, a in enumerate(FLOATS)]
  groups = []
  for x, y in rows:
    operands = [s[20]] if one else [s[20], s[21]]
    groups.append([isa.s_mov_b32(s[20], bits(x)), isa.s_mov_b32(s[21], bits(y)), isa.s_mov_b32(s[40], bits(0.25)),
                   getattr(isa, name)(s[40], *operands)])  # fmt: skip
  found = results("gfx1201", groups, 1)[:, 0].view(np.float32)
  a, b = (np.array(x, np.float32) for x in zip(*rows))
  with np.errstate(all="ignore"):
    wanted = OF_FLOATS[name](a, b)
  equal = (found.view(np.uint32) == wanted.view(np.uint32)) | np.isnan(found) & np.isnan(wanted)
  assert (equal | (found == 0) & (wanted == 0) & ("m" in name[2:4])).all(), [found, wanted]


def test_compares_of_floats_of_the_wave() -> None:
  isa = Isa("gfx1201")
  rows = [(a, b) for a in FLOATS[::2] for b in FLOATS[2::4]]
  a, b = (np.array(x, np.float32) for x in zip(*rows))
  for how, function in ORDERS.items():
    if (name := f"s_cmp_{how}_f32") in table("rdna4").named:
      groups = [[isa.s_mov_b32(s[20], bits(x)), isa.s_mov_b32(s[21], bits(y)), getattr(isa, name)(s[20], s[21]),
                 isa.s_cselect_b32(s[40], 1, 0)] for x, y in rows]  # fmt: skip
      assert (results("gfx1201", groups, 1)[:, 0] == function(a, b)).all(), name


def saveexec(name: str) -> Callable[[int, int], int]:
  """What EXEC becomes, of the operand and what it was."""
  kind = name.removeprefix("s_").partition("_saveexec")[0]
  kind = {"andn1": "and_not0", "andn2": "and_not1", "orn1": "or_not0", "orn2": "or_not1"}.get(kind, kind)
  two, _, other = kind.partition("_not")

  def made(a: int, e: int) -> int:
    a, e = (~a if other == "0" else a), (~e if other == "1" else e)
    done = {"and": a & e, "or": a | e, "xor": a ^ e, "nand": ~(a & e), "nor": ~(a | e), "xnor": ~(a ^ e)}
    return done[two]

  return made


@pytest.mark.parametrize("family", CHIPS)
def test_masks_that_are_saved(family: str) -> None:
  """S_*_SAVEEXEC: the result is what EXEC was; SCC whether it is not 0 now."""
  chip, isa, size = CHIPS[family], Isa(CHIPS[family]), 64 if family == "cdna" else 32
  names = [n for n in table(family).named if n.endswith(f"_saveexec_b{size}")]
  assert len(names) == 10
  high, full = [exec_hi] if size == 64 else [], (1 << size) - 1
  for given, before in ((0x12345678_9ABCDEF0, 0x0FF00FF0_F00FF00F), (0, full)):
    groups = []
    for name in names:
      to, of = (s[40:41], s[20:21]) if size == 64 else (s[40], s[20])
      group = [isa.s_mov_b32(s[20 + n], given >> 32 * n & FULL) for n in range(2)]
      group += [isa.s_mov_b32(r, before >> 32 * n & FULL) for n, r in enumerate((exec_lo, *high))]
      group += [getattr(isa, name)(to, of), isa.s_cselect_b32(s[44], 1, 0)]
      group += [isa.s_mov_b32(s[42 + n], r) for n, r in enumerate((exec_lo, *high))]
      group += [] if high else [isa.s_mov_b32(s[43], 0), isa.s_mov_b32(s[41], 0)]
      groups.append([*group, *(isa.s_mov_b32(r, -1) for r in (exec_lo, *high))])
    for name, row in zip(names, results(chip, groups, 5).tolist()):
      made = saveexec(name)(given & full, before & full) & full
      assert row == [before & FULL, before >> 32 & full >> 32, made & FULL, made >> 32, int(made != 0)], name


@pytest.mark.parametrize("family", CHIPS)
def test_carries_of_the_wave(family: str) -> None:
  """Numbers of 64 bits in two steps, and moves by SCC."""
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  first, second = ("s_{}_co_u32", "s_{}_co_ci_u32") if family == "rdna4" else ("s_{}_u32", "s_{}c_u32")
  pairs = [(0xFFFFFFFF_FFFFFFFF, 1), (5, 0x1_00000007), (0x80000000_00000000, 0x80000000_00000000), (1, 2)]
  for name, sign in (("add", 1), ("sub", -1)):
    groups = []
    for a, b in pairs:
      group = [isa.s_mov_b32(s[20 + n], x >> 32 * (n % 2) & FULL) for n, x in enumerate((a, a, b, b))]
      carried = second.format("subb" if name == "sub" and family != "rdna4" else name)
      carried = carried.replace("subbc", "subb")
      group += [getattr(isa, first.format(name))(s[40], s[20], s[22]), getattr(isa, carried)(s[41], s[21], s[23])]
      groups.append([*group, isa.s_mov_b32(s[42], 7), isa.s_cmov_b32(s[42], 9)])
    wanted = [a + sign * b for a, b in pairs]
    found = results(chip, groups, 3).tolist()
    assert found == [[w & FULL, w >> 32 & FULL, 7 if 0 <= w < 1 << 64 else 9] for w in wanted], name


@pytest.mark.parametrize("family", CHIPS)
def test_bits_that_are_set(family: str) -> None:
  isa = Isa(CHIPS[family])
  groups = [[isa.s_mov_b32(s[40], x), isa.s_mov_b32(s[20], n), getattr(isa, name)(s[40], s[20])]
            for name in ("s_bitset0_b32", "s_bitset1_b32") for x in (0, FULL) for n in (0, 31, 37)]  # fmt: skip
  bit = [1 << 0, 1 << 31, 1 << 5]
  wanted = [x & ~b for x in (0, FULL) for b in bit] + [x | b for x in (0, FULL) for b in bit]
  assert results(CHIPS[family], groups, 1)[:, 0].tolist() == wanted


@pytest.mark.parametrize("family", CHIPS)
def test_words_by_scc(family: str) -> None:
  isa = Isa(CHIPS[family])
  set_up = [isa.s_mov_b32(s[20 + n], n) for n in range(4)]
  groups = [[*set_up, isa.s_cmp_eq_u32(s[20], n), isa.s_cselect_b64(s[40:41], s[20:21], s[22:23])] for n in (0, 1)]
  assert results(CHIPS[family], groups, 2).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("family", CHIPS)
def test_branches(family: str) -> None:
  """Each kind of branch, taken and not."""
  isa, cdna = Isa(CHIPS[family]), family == "cdna"
  masks = [vcc_lo, *([vcc_hi] if cdna else [])]
  execs = [exec_lo, *([exec_hi] if cdna else [])]

  def put(registers: list[Any], value: int) -> list[Any]:
    return [isa.s_mov_b32(r, value if n == 0 else 0) for n, r in enumerate(registers)]

  rows: list[tuple[str, list[Any], bool]] = [("s_branch", [], True)]
  for value in (0, 1):
    rows += [(f"s_cbranch_scc{n}", [isa.s_cmp_eq_u32(value, 1)], n == value) for n in (0, 1)]
    rows += [(f"s_cbranch_vcc{'n' * n}z", put(masks, value), n == value) for n in (0, 1)]
    rows += [(f"s_cbranch_exec{'n' * n}z", put(execs, value), n == value) for n in (0, 1)]
  groups = []
  for n, (name, before, _) in enumerate(rows):
    end = Label(f"end{n}")
    groups.append([isa.s_mov_b32(s[40], 1), *before, getattr(isa, name)(end), isa.s_mov_b32(s[40], 0), end,
                   *(isa.s_mov_b32(r, -1) for r in execs)])  # fmt: skip
  assert results(CHIPS[family], groups, 1)[:, 0].tolist() == [int(taken) for *_, taken in rows]


@pytest.mark.parametrize("family", CHIPS)
def test_a_function_is_called(family: str) -> None:
  """S_GETPC, S_SWAPPC and S_SETPC: a function that adds 5, twice."""
  isa = Isa(CHIPS[family])
  add = isa.s_add_co_u32 if family == "rdna4" else isa.s_add_u32
  carry = isa.s_add_co_ci_u32 if family == "rdna4" else isa.s_addc_u32
  function, after = Label("function"), Label("after")
  body = [isa.s_mov_b32(s[40], 1), isa.s_getpc_b64(s[20:21]), add(s[20], s[20], 20), carry(s[21], s[21], 0),
          isa.s_swappc_b64(s[22:23], s[20:21]), isa.s_swappc_b64(s[22:23], s[20:21]), isa.s_branch(after), function,
          add(s[40], s[40], 5), isa.s_setpc_b64(s[22:23]), after]  # fmt: skip
  assert results(CHIPS[family], [body], 1, settle=False).tolist() == [[11]]
