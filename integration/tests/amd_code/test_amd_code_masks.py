"""Instructions that read and write a bit of each lane, on the emulator of AMD's machine code: compares that set EXEC,
classes of numbers, carries, choices, divisions, and products of 64 bits; against NumPy and Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_code_machine import CHIPS, ORDERS, TYPES, Words, applied, as_words, drawn, lanes, launched, made, same

from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, exec_, exec_hi, exec_lo, s, v, vcc, vcc_lo
from tiny_asm_amd.table import table

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
Array = Any


def all_lanes(family: str) -> list[Any]:
  isa = Isa(CHIPS[family])
  return [isa.s_mov_b32(exec_lo, -1), *([isa.s_mov_b32(exec_hi, -1), isa.s_nop(4)] if family == "cdna" else [])]


def masks(family: str, groups: list[list[Any]], inputs: list[Array]) -> Array:
  """What lanes are on behind each group of instructions, which find the inputs in v2, v4, …: a row of 0 and 1 each."""
  chip = CHIPS[family]
  isa, move, count = Isa(chip), Words(chip), lanes(chip)
  given = [(2 + 2 * n + k, word) for n, x in enumerate(inputs) for k, word in enumerate(as_words(x))]
  out = np.zeros((len(groups), count), np.uint32)
  body: list[Any] = [*move.addresses(s[4:5]), isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n, (register, _) in enumerate(given):
    body += [*move.addresses(s[6:7], 8 * (n + 1)), move.load(v[register], v[0], s[6:7])]
  body += move.wait()
  for instructions in groups:
    body += [isa.v_mov_b32(v[30], 0), *instructions, *([isa.s_nop(4)] if family == "cdna" else [])]
    body += [isa.v_mov_b32(v[30], 1), *all_lanes(family), move.store(v[0], v[30], s[4:5])]
    body += [isa.v_add_u32(v[0], 4 * count, v[0]) if family == "cdna" else isa.v_add_nc_u32(v[0], 4 * count, v[0])]
  launched(chip, [*body, isa.s_endpgm()], [out, *(word for _, word in given)])
  return out


def both_results(family: str, name: str, operands: list[Any]) -> list[list[Any]]:
  """What a compare leaves in EXEC; and on CDNA what it writes beside that."""
  isa, to = Isa(CHIPS[family]), s[20:21]
  if family != "cdna":
    return [[getattr(isa, name)(*operands)]]
  compared = getattr(isa, name)(to, *operands)
  return [[compared], [isa.s_mov_b64(to, 0x5A), compared, isa.s_mov_b64(exec_, to)]]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("family", CHIPS)
def test_compares_that_set_exec(family: str, kind: str) -> None:
  """All orders of a type."""
  wide = kind.endswith("64")
  a, b = (drawn(kind, n, lanes(CHIPS[family])) for n in range(2))
  b[::3] = a[::3]
  operands = [v[2:3], v[4:5]] if wide else [v[2], v[4]]
  names = {how: f"v_cmpx_{how}_{kind}" for how in ORDERS if f"v_cmpx_{how}_{kind}" in table(family).named}
  groups = [both_results(family, f"{name}_e64", operands) for name in names.values()]
  found = masks(family, sum(groups, []), [a, b]).reshape(len(names), -1, len(a))
  for (how, name), rows in zip(names.items(), found):
    with np.errstate(all="ignore"):
      assert (rows == ORDERS[how](a, b)).all(), name


def class_of(x: Array) -> Array:
  """The bit of a number's class: signalling and quiet NaN, -infinity, -normal, -denormal, -0, 0, …, infinity."""
  least = np.finfo(x.dtype).tiny
  kind = np.select([np.isinf(x), x == 0, np.abs(x) < least], [0, 3, 2], 1)
  return np.where(np.isnan(x), 1, np.where(np.signbit(x), 2 + kind, 9 - kind))


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("family", CHIPS)
def test_classes(family: str, kind: str) -> None:
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  x = drawn(kind, 0, lanes(chip))
  wanted = (np.arange(lanes(chip), dtype=np.uint32) * 77 + 13) & 0x3FF
  to, operands = (s[20:21] if family == "cdna" else s[20]), [v[2:3] if kind == "f64" else v[2], v[4]]
  move = isa.s_mov_b64(exec_, to) if family == "cdna" else isa.s_mov_b32(exec_lo, to)
  groups = [
    [getattr(isa, f"v_cmp_class_{kind}_e64")(to, *operands), *Words(chip).settled(), move],
    *both_results(family, f"v_cmpx_class_{kind}_e64", operands),
  ]
  found = masks(family, groups, [x, wanted])
  assert (found == (wanted >> class_of(x) & 1)).all()


CARRIES = {"add": lambda a, b, c: a + b + c, "sub": lambda a, b, c: a - b - c, "subrev": lambda a, b, c: b - a - c}


@pytest.mark.parametrize("name", CARRIES)
@pytest.mark.parametrize("family", CHIPS)
def test_carries(family: str, name: str) -> None:
  """Numbers of 64 bits in two steps: the second one takes what the first one carried."""
  chip, isa = CHIPS[family], Isa(CHIPS[family])
  a, b = (drawn("u64", n, lanes(chip)) for n in range(2))
  mask = s[20:21] if family == "cdna" else s[20]
  second = {"cdna": {"add": "v_addc_co_u32", "sub": "v_subb_co_u32", "subrev": "v_subbrev_co_u32"}[name]}.get(
    family, f"v_{name}_co_ci_u32"
  )

  def added(x: list[Any], to: Any) -> list[Any]:
    return [
      getattr(isa, f"v_{name}_co_u32_e64")(v[20], mask, v[2], v[4]),
      *([isa.s_nop(1)] if family == "cdna" else []),
      getattr(isa, f"{second}_e64")(v[21], mask, v[3], v[5], mask),
    ]

  found = applied(chip, added, [a, b], "u64")
  assert found.tolist() == [CARRIES[name](int(x), int(y), 0) & (1 << 64) - 1 for x, y in zip(a, b)]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("family", CHIPS)
def test_products_of_64_bits(family: str, signed: bool) -> None:
  chip, co = CHIPS[family], "co_" if family == "rdna4" else ""
  kind, wide = ("i32", "i64") if signed else ("u32", "u64")
  a, b, c = drawn(kind, 0, lanes(chip)), drawn(kind, 1, lanes(chip)), drawn(wide, 2, lanes(chip))
  product = getattr(Isa(chip), f"v_mad_{co}{wide}_{kind}")
  mask = s[20:21] if family == "cdna" else s[20]
  found = applied(chip, lambda x, to: [product(to, mask, *x)], [a, b, c], wide)
  wanted = [(int(x) * int(y) + int(z)) & (1 << 64) - 1 for x, y, z in zip(a, b, c)]
  assert found.view(np.uint64).tolist() == wanted


@pytest.mark.parametrize("family", ["rdna3", "rdna4"])
def test_choices_of_halves(family: str) -> None:
  chip = CHIPS[family]
  a, b = (drawn("u16", n, 32) for n in range(2))
  choose = Isa(chip).v_cndmask_b16_e64
  body = [Isa(chip).s_mov_b32(s[20], 0x0FF05A5A), *Words(chip).settled()]
  half = family == "rdna3"  # whose halves of registers have names

  def chosen(x: list[Any], to: Any) -> list[Any]:
    return [*body, choose(*((r.l if half else r) for r in (to, *x)), s[20])]

  found = applied(chip, chosen, [a, b], "u16")
  assert (found == np.where(0x0FF05A5A >> np.arange(32) & 1, b, a)).all()


# *** divisions: the steps by which compilers divide, after LLVM's AMDGPU backend, are exact ***

HARD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 7.0, 1e-3]


def dividends(kind: str, count: int, seed: int) -> Array:
  """Numbers of all sizes, denormal ones and those that are no numbers among them."""
  free, info = np.random.default_rng(seed), np.finfo(TYPES[kind])
  powers = free.integers(info.minexp - info.nmant, info.maxexp, count)
  x = np.ldexp(free.uniform(1, 2, count), powers) * free.choice([-1, 1], count)
  x[: len(HARD)] = HARD
  free.shuffle(x)
  return x.astype(TYPES[kind])


def divided(family: str, kind: str, x: list[Any], to: Any) -> list[Any]:
  """x[0] / x[1] by DIV_SCALE, an estimate made better, DIV_FMAS and DIV_FIXUP."""
  isa = Isa(CHIPS[family])
  of: Any = {name: getattr(isa, f"v_{name}_{kind}") for name in ("div_scale", "div_fmas", "div_fixup", "rcp", "fma")}
  wide = kind == "f64"
  d, n, r, e, q, rest = (v[k : k + 1] if wide else v[k] for k in (30, 32, 34, 36, 38, 40))
  fma, mask, flags = of["fma"], (s[20:21] if family == "cdna" else s[20]), (vcc if family == "cdna" else vcc_lo)
  pause = {"cdna": [isa.s_nop(4)], "rdna3": ["s_waitcnt_depctr 0xfff"], "rdna4": []}[family]
  body = [of["div_scale"](d, mask, x[1], x[1], x[0]), of["rcp"](r, d), *pause]
  for _ in range(2 if wide else 1):
    body += [fma(e, -d, r, 1.0), fma(r, r, e, r)]
  body += [of["div_scale"](n, flags, x[0], x[1], x[0]), getattr(isa, f"v_mul_{kind}")(q, n, r), fma(rest, -d, q, n)]
  if not wide:
    body += [fma(q, rest, r, q), fma(rest, -d, q, n)]
  return [*body, *pause, of["div_fmas"](q, rest, r, q), of["div_fixup"](to, q, x[1], x[0])]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("family", CHIPS)
def test_divisions_are_rounded_correctly(family: str, kind: str) -> None:
  chip = CHIPS[family]
  for seed in range(4):
    a, b = dividends(kind, lanes(chip), seed), dividends(kind, lanes(chip), 10 + seed)
    found = applied(chip, lambda x, to: divided(family, kind, x, to), [a, b], kind)
    with np.errstate(all="ignore"):
      wanted = a / b
    bad = np.flatnonzero(~same(found, wanted))
    assert not len(bad), [(a[n], b[n], found[n], wanted[n]) for n in bad[:4]]


@pytest.mark.parametrize("family", CHIPS)
def test_quotients_of_halves(family: str) -> None:
  """DIV_FIXUP puts right what an estimate cannot have: signs, zeros, infinities."""
  chip = CHIPS[family]
  a, b = dividends("f16", lanes(chip), 1), dividends("f16", lanes(chip), 2)
  with np.errstate(all="ignore"):
    wanted = a / b
  estimate = np.where(np.isfinite(a) & np.isfinite(b), np.abs(wanted), np.float16(3)).astype(np.float16)
  kinds = ("f16",) * 4
  found = applied(chip, lambda x, to: [made(chip, "v_div_fixup_f16", to, x, kinds)], [estimate, b, a], "f16")
  assert same(found, wanted).all()
