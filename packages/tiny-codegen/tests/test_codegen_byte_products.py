"""Sums of products of the fields of words, as quantised weights are multiplied, by dot-product instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiny_codegen import DotProduct, LLVMRenderer, compile_kernel, cpu_target
from tiny_codegen.matrix.byte_products import find_dot_products
from tiny_codegen.matrix.dot_products import without_dot_products
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_uop import AxisType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, evaluate

AVX2 = ("+avx", "+avx2", "+fma", "+sse4.1")
AVX512 = (*AVX2, "+avx512f", "+avx512vl", "+avx512bw", "+avx512dq")
VNNI = cpu_target("x86_64-unknown-linux-gnu", "x86-64", (*AVX512, "+avx512vnni"))
PLAIN = cpu_target("x86_64-unknown-linux-gnu", "x86-64", AVX2)
SDOT = cpu_target("aarch64-unknown-linux-gnu", "neoverse-n1", ("+neon", "+dotprod"))
U8S8 = DotProduct(dtypes.uint8, dtypes.int8, dtypes.int32)
WIDE = dtypes.int32


def field(word: UOp, place: int, signed: bool) -> UOp:
  byte = (word >> 8 * place).cast(dtypes.uint8)
  return (byte.bitcast(dtypes.int8) if signed else byte).cast(WIDE)


FOUR = (0, 1, 2, 3)


def terms(a: UOp, b: UOp, places: tuple[int, ...] = FOUR, signs: tuple[bool, bool] = (False, True)) -> list[UOp]:
  return [field(a, n, signs[0]) * field(b, n, signs[1]) for n in places]


def added(values: list[UOp]) -> UOp:
  total = values[0]
  for value in values[1:]:
    total = total + value
  return total


def products(rows: int, blocks: int) -> UOp:
  """out[r, lane] = Σ over blocks of scale * Σ nibble · int8: weights of 16 rows side by side."""
  r, lane, block = UOp.range(rows, 0), UOp.range(16, 1), UOp.range(blocks, 2, AxisType.REDUCE)
  words = UOp.param(1, dtypes.uint32.ptr(rows * blocks * 16)).index((r * blocks + block) * 16 + lane).load()
  x = UOp.param(2, dtypes.uint32.ptr(blocks * 2))
  low, high = (x.index(block * 2 + n).load() for n in (0, 1))
  total = added([*terms(words & 0x0F0F0F0F, low), *terms((words >> 4) & 0x0F0F0F0F, high)])
  scale = UOp.param(3, dtypes.float32.ptr(blocks)).index(block).load()
  out = UOp.param(0, dtypes.float32.ptr(rows * 16)).index(r * 16 + lane)
  value = (total.cast(dtypes.float32) * scale).reduce(Ops.ADD, block)
  return UOp.sink(out.store(value).end(r, lane), arg=KernelInfo("products"))


def dots(root: UOp) -> list[UOp]:
  return [u for u in root.toposort if u.op is Ops.MMA]


def test_every_word_is_one_instruction() -> None:
  found = dots(find_dot_products(before_opts(products(32, 18), VNNI.target), VNNI.target))
  assert len(found) == 2 and {u.arg for u in found} == {U8S8}
  text = compile_kernel(products(32, 18), LLVMRenderer(VNNI)).src[2].arg
  assert text.count("call <16 x i32> @llvm.x86.avx512.vpdpbusd.512") == 2, "16 rows are one vector"


def test_values(run_kernel: Any) -> None:
  rng, rows, blocks = np.random.default_rng(0), 4, 3
  words = rng.integers(0, 1 << 32, (rows, blocks, 16), dtype=np.uint32)
  x = rng.integers(-128, 128, (blocks, 2, 4)).astype(np.int8)
  scale = rng.integers(1, 4, blocks).astype(np.float32)
  nibbles = np.stack([words.view(np.uint8).reshape(rows, blocks, 16, 4) >> 4 * n & 15 for n in (0, 1)], 3)
  expected = np.einsum("rblnt,bnt,b->rl", nibbles.astype(np.float64), x.astype(np.float64), scale)
  arrays = [np.zeros((rows, 16), np.float32), words, x.view(np.uint32), scale]
  np.testing.assert_array_equal(run_kernel(products(rows, blocks), arrays, ())[0].reshape(rows, 16), expected)


A, B, C = (UOp.variable(n, 0, (1 << 32) - 1, dtypes.uint32) for n in "abc")
D = UOp.variable("d", -1000, 1000, WIDE)


@pytest.mark.parametrize(
  ("total", "count"),
  [
    (added(terms(A, B)), 1),
    (added([D, *terms(B, A, signs=(True, False))]), 1),  # the other way around
    (added([*terms(A, B), *terms(C, B), *terms(A, B)[:3]]), 2),  # some are left
    (added(terms(A, B, (0, 1, 2))), 0),
    (added(terms(A, B, signs=(True, True))), 0),  # there is no such instruction
    (added([field(A, n, False) * field(B, 3 - n, True) for n in range(4)]), 0),
  ],
)
def test_which_sums_are(total: UOp, count: int) -> None:
  root = UOp.sink(UOp.param(0, WIDE.ptr(1)).index(UOp.const(dtypes.index, 0)).store(total), arg=KernelInfo("sum"))
  found = find_dot_products(root, VNNI.target)
  assert len(dots(found)) == count
  assert find_dot_products(root, PLAIN.target) is root
  value = without_dot_products(found, PLAIN.target).src[0].src[1]
  for seed in range(20):
    rng = np.random.default_rng(seed)
    given = {"a": 1 << 31, "b": 0xFF80017F} if not seed else {n: int(rng.integers(0, 1 << 32)) for n in "ab"}
    given |= {"c": int(rng.integers(0, 1 << 32)), "d": 7}
    values = {v: given[v.arg[0]] for v in (A, B, C, D)}
    assert evaluate(value, values) == evaluate(total, values)


ROUND = [{"a": 1 << 31, "b": 0xFF80017F, "c": 0, "d": 7}, {"a": 0x80FF7F01, "b": 0x80808080, "c": 0xFFFFFFFF, "d": -7}]


@pytest.mark.parametrize(
  ("total", "count"),
  [
    (added(terms(A, B, signs=(True, True))), 1),
    (added([D, *terms(A & 0x0F0F0F0F, B), *terms(A >> 4 & 0x0F0F0F0F, C)]), 2),
    (added(terms(A & 0x0F0F0F0F | (C >> 3 & 0x01010101) << 4, B)), 1),
    (added(terms(B, A & 0x7F7F7F7F, signs=(True, False))), 1),
    (added(terms(A & 0x7F7F7F7F, B & 0x7F7F7F7F, signs=(False, False))), 1),
    (added(terms(A & 0x0F8F0F0F, B)), 2),  # one may have the highest bit, so that 128 is added to all
    (added([D, *terms(A, B), *terms(C, B), *terms(C ^ 5, B)]), 6),
    (added(terms(A, B, (0, 1, 2))), 0),
  ],
)
def test_numbers_without_a_sign_where_instructions_take_those_with_one(total: UOp, count: int) -> None:
  root = UOp.sink(UOp.param(0, WIDE.ptr(1)).index(UOp.const(dtypes.index, 0)).store(total), arg=KernelInfo("sum"))
  found = find_dot_products(root, SDOT.target)
  assert len(dots(found)) == count
  value, rng = without_dot_products(found, PLAIN.target).src[0].src[1], np.random.default_rng(0)
  words = [{n: int(rng.integers(0, 1 << 32)) for n in "abc"} | {"d": 7} for _ in range(20)]
  for given in (*ROUND, *words):
    values = {v: given[v.arg[0]] for v in (A, B, C, D)}
    assert evaluate(value, values) == evaluate(total, values)


def test_instructions_of_the_very_types_come_first() -> None:
  """Of small numbers without a sign, too: those of other types may be narrower (VPDPBSSD)."""
  target = cpu_target("x86_64-unknown-linux-gnu", "x86-64", (*AVX512, "+avx512vnni", "+avxvnniint8")).target
  found = dots(find_dot_products(before_opts(products(32, 18), target), target))
  assert {u.arg for u in found} == {U8S8}


def test_rows_follow_one_another_in_memory() -> None:
  """Of what a tile of rows would reuse there is little: a few numbers for each vector. One row after another is one
  stream of memory."""
  opts = choose_opts(find_dot_products(before_opts(products(64, 18), VNNI.target), VNNI.target), VNNI.target)
  assert Opt(OptOps.VECTOR, 1, 16) in opts and all(o.op is not OptOps.UPCAST for o in opts)


def test_the_halves_of_bytes_are_written_out() -> None:
  """Σ over the halves of a byte, which a condition on the counter picks: the byte is read once for both."""
  i, b, half = UOp.range(64, 0), UOp.range(256, 1, AxisType.REDUCE), UOp.range(2, 2, AxisType.REDUCE)
  packed = UOp.param(1, dtypes.uint8.ptr(64 * 256)).index(i * 256 + b).load()
  number = half.eq(0).where(packed & 15, packed >> 4).cast(dtypes.float32)
  x = UOp.param(2, dtypes.float32.ptr(512)).index(b * 2 + half).load()
  out = UOp.param(0, dtypes.float32.ptr(64)).index(i).store((number * x).reduce(Ops.ADD, b, half)).end(i)
  root = UOp.sink(out, arg=KernelInfo("halves"))
  assert Opt(OptOps.UNROLL, 2, 0) in choose_opts(before_opts(root, VNNI.target), VNNI.target)
