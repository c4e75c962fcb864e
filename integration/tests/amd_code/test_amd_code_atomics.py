"""Atomic operations on the emulator of AMD's machine code, on RDNA 3, RDNA 4 and CDNA 3: of global memory by all kinds
of addresses, and of shared memory, against Python's integers and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from amd_code_machine import ZERO, descriptor, flat_address, lanes, launched, named, range_of, started

from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, s, v
from tiny_asm_amd.table import family_of, table

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CHIPS = ("gfx1100", "gfx1201", "gfx942")
Array = Any


# *** operations: names of RDNA 3, RDNA 4, CDNA; type; what is there then ***

Operation = Callable[[Any, Any, Any], Any]
ATOMICS: list[tuple[str, str, Operation]] = [
  *[(f"swap_b{n} swap_b{n} swap{x}", f"u{n}", lambda old, a, b: a) for n, x in ((32, ""), (64, "_x2"))],
  *[(f"cmpswap_b{n} cmpswap_b{n} cmpswap{x}", f"u{n}", lambda old, a, b: a if old == b else old)
    for n, x in ((32, ""), (64, "_x2"))],
  *[(f"{name}_u{n} {name}_u{n} {name}{x}", f"u{n}", f) for n, x in ((32, ""), (64, "_x2")) for name, f in (
    ("add", lambda old, a, b: old + a), ("sub", lambda old, a, b: old - a),
    ("inc", lambda old, a, b: 0 if old >= a else old + 1),
    ("dec", lambda old, a, b: a if old == 0 or old > a else old - 1))],
  *[(f"{name}_{t}{n} {name}_{t}{n} {'s' if t == 'i' else 'u'}{name}{x}", f"{t}{n}", f)
    for n, x in ((32, ""), (64, "_x2")) for t in "iu"
    for name, f in (("min", lambda old, a, b: min(old, a)), ("max", lambda old, a, b: max(old, a)))],
  *[(f"{name}_b{n} {name}_b{n} {name}{x}", f"u{n}", f) for n, x in ((32, ""), (64, "_x2")) for name, f in (
    ("and", lambda old, a, b: old & a), ("or", lambda old, a, b: old | a), ("xor", lambda old, a, b: old ^ a))],
  ("csub_u32 sub_clamp_u32 -", "u32", lambda old, a, b: max(0, old - a)),
  ("- cond_sub_u32 -", "u32", lambda old, a, b: old - a if old >= a else old),
  ("cmpswap_f32 - -", "f32", lambda old, a, b: a if old == b else old),
  ("add_f32", "f32", lambda old, a, b: np.float32(old + a)), ("- - add_f64", "f64", lambda old, a, b: old + a),
  ("min_f32 min_num_f32 -", "f32", lambda old, a, b: min(old, a)),
  ("max_f32 max_num_f32 -", "f32", lambda old, a, b: max(old, a)),
  ("- - min_f64", "f64", lambda old, a, b: min(old, a)), ("- - max_f64", "f64", lambda old, a, b: max(old, a)),
  ("- pk_add_f16 pk_add_f16", "u32", lambda old, a, b: pair_sum(old, a, half, half_bits)),
  ("- pk_add_bf16 pk_add_bf16", "u32", lambda old, a, b: pair_sum(old, a, wide, wide_bits)),
]  # fmt: skip


def half(bits: int) -> float:
  return float(np.uint16(bits).view(np.float16))


def half_bits(x: float) -> int:
  with np.errstate(over="ignore"):
    return int(np.float16(x).view(np.uint16))


def wide(bits: int) -> float:
  return float(np.uint32(bits << 16).view(np.float32))


def wide_bits(x: float) -> int:
  """The bfloat16 nearest to a number, the even one of two."""
  with np.errstate(over="ignore"):
    word = int(np.float32(x).view(np.uint32))
  return (word >> 16 | 64) if x != x else word + 0x7FFF + (word >> 16 & 1) >> 16


def pair_sum(a: int, b: int, number: Callable[[int], float], bits: Callable[[float], int]) -> int:
  """Sums of both halves, as floats of 16 bits."""
  low, high = (bits(number(a >> n & 0xFFFF) + number(b >> n & 0xFFFF)) for n in (0, 16))
  return low | high << 16


SHARED: list[tuple[str, str, Operation]] = [
  *[(f"storexchg_rtn_b{n} storexchg_rtn_b{n} wrxchg_rtn_b{n}", f"u{n}", lambda old, a, b: a) for n in (32, 64)],
  *[(f"cmpstore_rtn_{t}{n} - -", k, lambda old, a, b: a if old == b else old)
    for t, n, k in (("b", 32, "u32"), ("b", 64, "u64"), ("f", 32, "f32"), ("f", 64, "f64"))],
  *[(f"- - cmpst_rtn_{t}{n}", k, lambda old, a, b: b if old == a else old)
    for t, n, k in (("b", 32, "u32"), ("b", 64, "u64"), ("f", 32, "f32"))],
  *[(f"{name}_rtn_u{n}", f"u{n}", f) for n in (32, 64) for name, f in (
    ("add", lambda old, a, b: old + a), ("sub", lambda old, a, b: old - a), ("rsub", lambda old, a, b: a - old),
    ("inc", lambda old, a, b: 0 if old >= a else old + 1),
    ("dec", lambda old, a, b: a if old == 0 or old > a else old - 1))],
  *[(f"{name}_rtn_{t}{n}", f"{t}{n}", f) for n in (32, 64) for t in "iu"
    for name, f in (("min", lambda old, a, b: min(old, a)), ("max", lambda old, a, b: max(old, a)))],
  *[(f"{name}_rtn_b{n}", f"u{n}", f) for n in (32, 64) for name, f in (
    ("and", lambda old, a, b: old & a), ("or", lambda old, a, b: old | a), ("xor", lambda old, a, b: old ^ a),
    ("mskor", lambda old, a, b: old & ~a | b))],
  ("wrap_rtn_b32 - wrap_rtn_b32", "u32", lambda old, a, b: old - a if old >= a else old + b),
  ("- sub_clamp_rtn_u32 -", "u32", lambda old, a, b: max(0, old - a)),
  ("- cond_sub_rtn_u32 -", "u32", lambda old, a, b: old - a if old >= a else old),
  ("add_rtn_f32", "f32", lambda old, a, b: np.float32(old + a)), ("- - add_rtn_f64", "f64", lambda old, a, b: old + a),
  ("- cmpstore_rtn_b32 -", "u32", lambda old, a, b: a if old == b else old),
  ("- cmpstore_rtn_b64 -", "u64", lambda old, a, b: a if old == b else old),
  ("- - cmpst_rtn_f64", "f64", lambda old, a, b: b if old == a else old),
  *[(f"{name}_rtn_f{n} {name}_num_rtn_f{n} {name}_rtn_f{n}", f"f{n}", lambda old, a, b, f=f: f(old, a))
    for n in (32, 64) for name, f in (("min", min), ("max", max))],
  ("- pk_add_rtn_f16 pk_add_rtn_f16", "u32", lambda old, a, b: pair_sum(old, a, half, half_bits)),
  ("- pk_add_rtn_bf16 pk_add_rtn_bf16", "u32", lambda old, a, b: pair_sum(old, a, wide, wide_bits)),
]  # fmt: skip
PLACES = ("global_atomic", "flat_atomic", "buffer_atomic")
TWO = ("cmpswap", "cmpst", "mskor", "wrap")


def atomics(rows: list[tuple[str, str, Operation]], kinds: tuple[str, ...]) -> Iterator[Any]:
  for names, kind, function in rows:
    each = names.split() * (3 if " " not in names else 1)
    for chip, name in zip(CHIPS, each):
      for where in kinds:
        full = f"{where}_{name}"
        if name != "-" and full in table(family_of(chip)).named:
          often = where in ("ds", "global_atomic") or "add" in name  # the others do the same elsewhere
          marks = () if often else pytest.mark.nightly
          yield pytest.param(chip, full, kind, function, id=f"{chip}-{full}", marks=marks)


def operands(kind: str, count: int) -> tuple[Array, Array, Array]:
  """What is there, what comes, and what is compared with: often the same, often beside it."""
  free, dtype = np.random.default_rng(5), np.dtype({"u": "u", "i": "i", "f": "f"}[kind[0]] + str(int(kind[1:]) // 8))
  if kind[0] == "f":
    old, a = free.integers(-9, 9, (2, count)).astype(dtype)
  else:
    old, a = free.integers(0, 1 << 63, (2, count), np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    old[:8], a[:8] = [0, 1, 5, 5, 0, 3, 7, 9], [0, 1, 5, 6, 7, 3, 6, 0]
  b = np.where(np.arange(count) % 2, old, a).astype(dtype)
  return old, a, b


def checked(kind: str, function: Operation, old: Array, a: Array, b: Array, found: Array) -> None:
  size = old.dtype.itemsize
  if kind[0] == "f":
    assert (found == np.array([function(*row) for row in zip(old, a, b)], old.dtype)).all()
  else:
    wanted = [function(*map(int, row)) & (1 << 8 * size) - 1 for row in zip(old, a, b)]
    assert found.view(f"u{size}").tolist() == wanted


@pytest.mark.parametrize("chip,name,kind,function", list(atomics(ATOMICS, PLACES)))
def test_atomics(chip: str, name: str, kind: str, function: Operation) -> None:
  """Each lane has a place of its own; what was there comes back."""
  count, where = lanes(chip), name.partition("_")[0]
  old, a, b = operands(kind, count)
  size = old.itemsize // 4
  memory, out = np.zeros((count, 4), np.uint32), np.zeros((count, 4), np.uint32)
  memory[:, :size] = old.view(np.uint32).reshape(count, size)
  given = np.zeros((count, 4), np.uint32)
  given[:, : 2 * size] = np.concatenate([x.view(np.uint32).reshape(count, size) for x in (a, b)], 1)
  _, move, body = started(chip)
  body += [
    *move.addresses(s[12:13], 16),
    *(move.load(v[20 + n], v[0], s[12:13], 4 * n) for n in range(4)),
    *move.wait(),
  ]
  words = size * (2 if "cmpswap" in name else 1)
  data, to = (f"v[{n}:{n + k - 1}]" if k > 1 else f"v{n}" for n, k in ((20, words), (30, size)))
  glc = {"gfx1100": "glc", "gfx1201": "th:TH_ATOMIC_RETURN", "gfx942": "sc0"}[chip]
  if where == "global":
    body += [f"{name} {to}, v0, {data}, s[4:5] {glc}"]
  elif where == "flat":
    body += [*flat_address(chip), f"{name} {to}, v[2:3], {data} {glc}"]
  else:
    body += [*descriptor(chip, memory.nbytes), f"{name} {data}, v0, s[8:11], {ZERO[chip]} offen {glc}"]
  first = 20 if where == "buffer" else 30
  body += [*move.wait(), *(move.store(v[0], v[first + n], s[6:7], 4 * n) for n in range(size)), "s_endpgm"]
  launched(chip, body, [memory, out, given])
  assert (np.ascontiguousarray(out[:, :size]).view(old.dtype)[:, 0] == old).all()
  checked(kind, function, old, a, b, np.ascontiguousarray(memory[:, :size]).view(old.dtype)[:, 0])


@pytest.mark.parametrize("chip,name,kind,function", list(atomics(SHARED, ("ds",))))
def test_shared_atomics(chip: str, name: str, kind: str, function: Operation) -> None:
  """The same in shared memory, where others see it; and the instruction that gives nothing back."""
  count = lanes(chip)
  old, a, b = operands(kind, count)
  size = old.itemsize // 4
  given, out = np.zeros((count, 8), np.uint32), np.zeros((3, count, 4), np.uint32)
  for k, x in enumerate((old, a, b)):
    given[:, size * k : size * (k + 1)] = x.view(np.uint32).reshape(count, size)
  _, move, body = started(chip)
  isa = Isa(chip)
  body += [isa.v_lshlrev_b32(v[1], 1, v[0]), *(move.load(v[20 + n], v[1], s[4:5], 4 * n) for n in range(3 * size))]
  wide = "b64" if size == 2 else "b32"
  places = [range_of(20 + size * k, size) for k in range(3)]
  put = named(isa, f"ds_store_{wide}", f"ds_write_{wide}")
  body += [*move.wait(), put(v[0], places[0]), put(v[0], places[0], offset=16 * count), *move.wait()]
  more = [places[2]] if any(name.startswith(f"ds_{two}") for two in (*TWO, "cmpstore")) else []
  body += [getattr(isa, name)(range_of(30, size), v[0], places[1], *more), *move.wait()]
  silent = name.replace("_rtn", "")
  there = silent if silent in table(family_of(chip)).named and "_rtn" in name else name
  to = [] if there == silent else [range_of(30, size)]
  body += [getattr(isa, there)(*to, v[0], places[1], *more, offset=16 * count), *move.wait()]
  get = named(isa, f"ds_load_{wide}", f"ds_read_{wide}")
  body += [get(range_of(32, size), v[0]), get(range_of(34, size), v[0], offset=16 * count), *move.wait()]
  body += [*move.addresses(s[8:9], 16), *(move.store(v[0], v[30 + n], s[6:7], 4 * n) for n in range(size))]
  body += [*(move.store(v[0], v[32 + n], s[8:9], 4 * n) for n in range(size)), *move.addresses(s[8:9], 24)]
  body += [*(move.store(v[0], v[34 + n], s[8:9], 4 * n) for n in range(size)), isa.s_endpgm()]
  launched(chip, body, [given, *out], local=32 * count)
  back, *found = (np.ascontiguousarray(x[:, :size]).view(old.dtype)[:, 0] for x in out)
  assert (back == old).all()
  for after in found:
    checked(kind, function, old, a, b, after)


@pytest.mark.parametrize("chip", CHIPS)
def test_two_places_of_shared_memory_are_exchanged(chip: str) -> None:
  count = lanes(chip)
  out = np.zeros((4, 4 * count), np.uint32)
  _, move, body = started(chip)
  isa = Isa(chip)
  exchange = named(isa, "ds_storexchg_2addr_rtn_b32", "ds_wrxchg2_rtn_b32")
  store, load = (named(isa, *names) for names in (("ds_store_b32", "ds_write_b32"), ("ds_load_b32", "ds_read_b32")))
  body += [isa.v_mov_b32(v[1], 11), isa.v_mov_b32(v[2], 22), store(v[0], v[1]), store(v[0], v[0], offset=8)]
  body += [*move.wait(), exchange(v[30:31], v[0], v[1], v[2], offset0=2, offset1=0), *move.wait()]
  body += [load(v[32], v[0]), load(v[33], v[0], offset=8), *move.wait()]
  for n in range(4):
    body += [*move.addresses(s[8:9], 8 * n), move.store(v[0], v[30 + n], s[8:9])]
  launched(chip, [*body, isa.s_endpgm()], list(out), local=16 * count + 16)
  place = 16 * np.arange(count)
  assert (out[:, ::4] == np.stack([place, np.full(count, 11), np.full(count, 22), np.full(count, 11)])).all()
