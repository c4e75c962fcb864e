"""64-bit integers on targets that have none: the emulation against `exec_alu`, on edges and random values."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply, apply_all, plain, storage

from tiny_codegen.decompose import table_for
from tiny_codegen.render import C99, CRenderer, LLVMRenderer, Renderer
from tiny_uop import AddrSpace, DType, Ops, UOp, dtypes, exec_alu, graph_rewrite, truncate

pytestmark = pytest.mark.slow

WIDE = (dtypes.int64, dtypes.uint64)
NARROW_TYPES = frozenset({dtypes.bool, *(d for d in dtypes.ints if d.bits < 64), dtypes.float32})


def llvm_without() -> LLVMRenderer:
  target = plain().llvm
  return LLVMRenderer(replace(target, target=replace(target.target, native_dtypes=NARROW_TYPES)))


def c_without() -> CRenderer:
  return CRenderer(C99.with_target(native_dtypes=NARROW_TYPES))


TARGETS = {"llvm": llvm_without, **({"c": c_without} if "c" in RENDERERS else {})}
both = pytest.mark.parametrize("dtype", WIDE, ids=str)
every_target = pytest.mark.parametrize("target", TARGETS)


def made(target: str) -> Renderer:
  return TARGETS[target]()


def values(dtype: DType) -> list[int]:
  low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
  edges = [0, 1, 2, 3, 7, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 5, 1 << 62, low, low + 1, high, high - 1]
  random = np.random.default_rng(0).integers(low, high, 4, dtype=storage(dtype), endpoint=True).tolist()
  return [*edges, *random, *([-1, -2, -7, -(1 << 32), -(1 << 31) - 1] if low else [])]


@both
@every_target
@pytest.mark.parametrize("lanes", [1, 3])
def test_operations(dtype: DType, target: str, lanes: int) -> None:
  pairs = list(itertools.product(values(dtype), repeat=2))
  pairs += pairs[:1] * (-len(pairs) % lanes)
  a, b = (np.array(c, storage(dtype)) for c in zip(*pairs, strict=True))
  ops = dict.fromkeys((Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR, Ops.MAX), dtype)
  ops |= dict.fromkeys((Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE), dtypes.bool)
  functions = [(lambda x, y, op=op: x.alu(op, y), output) for op, output in ops.items()]
  results = apply_all(made(target), functions, [(dtype, a), (dtype, b)], lanes)
  for (op, output), got in zip(ops.items(), results, strict=True):
    assert got.tolist() == [exec_alu(op, output, pair) for pair in pairs], op


@both
@every_target
def test_division(dtype: DType, target: str) -> None:
  pairs = list(itertools.product(values(dtype), repeat=2))
  a, b = (np.array(c, storage(dtype)) for c in zip(*pairs, strict=True))
  by_any, by_eight = (Ops.TRUNCDIV, Ops.FLOORMOD), (Ops.FLOORDIV, Ops.TRUNCDIV, Ops.TRUNCMOD)
  functions = [
    *((lambda x, y, op=op: x.alu(op, y), dtype) for op in by_any),
    *((lambda x, y, op=op: x.alu(op, x.const_like(8)), dtype) for op in by_eight),
  ]
  results = apply_all(made(target), functions, [(dtype, a), (dtype, b)])
  for op, got in zip(by_any, results):
    assert got.tolist() == [exec_alu(op, dtype, pair) for pair in pairs], op
  for op, got in zip(by_eight, results[len(by_any) :], strict=True):
    assert got.tolist() == [exec_alu(op, dtype, (v, 8)) for v, _ in pairs], op


@both
@every_target
def test_shifts(dtype: DType, target: str) -> None:
  pairs = list(itertools.product(values(dtype), (0, 1, 31, 32, 33, 63)))
  a, b = (np.array(c, storage(dtype)) for c in zip(*pairs, strict=True))
  ops = (Ops.SHL, Ops.SHR)
  functions = [(lambda x, y, op=op: x.alu(op, y), dtype) for op in ops]
  for op, got in zip(ops, apply_all(made(target), functions, [(dtype, a), (dtype, b)]), strict=True):
    assert got.tolist() == [exec_alu(op, dtype, pair) for pair in pairs], op


@both
@every_target
def test_conversions(dtype: DType, target: str) -> None:
  column: list[Any] = values(dtype)
  # neighbours of midpoints of float32, which converting twice would get wrong
  column += [v for k in (0, 9, 20, 38) for e in (-1, 0, 1) if (v := ((0x1000001 << k + 1) + e)) <= dtypes.max(dtype)]
  a = np.array(column, storage(dtype))
  others = (dtypes.bool, dtypes.int8, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.float32, *WIDE)
  functions = [(lambda x, other=other: x.cast(other), other) for other in others]
  for other, got in zip(others, apply_all(made(target), functions, [(dtype, a)]), strict=True):
    assert got.tolist() == [truncate(other, v) for v in column], other
  for other in (dtypes.bool, dtypes.int8, dtypes.int32, dtypes.uint32):
    small = np.array([0, 1] if other is dtypes.bool else [0, 1, dtypes.min(other), dtypes.max(other)], storage(other))
    got = apply(made(target), lambda x: x.cast(dtype), [(other, small)], dtype)
    assert got.tolist() == [truncate(dtype, v) for v in small.tolist()]
  floats = np.array(
    [0, 1.9, 3e9, 2.0**40 + 2.0**20, 1e18, *([-1.9, -3e9, -1e18] if dtype is dtypes.int64 else [])], np.float32
  )
  got = apply(made(target), lambda x: x.cast(dtype), [(dtypes.float32, floats)], dtype)
  assert got.tolist() == [int(v) for v in floats.tolist()]


@every_target
def test_threefry_and_large_sines_need_64_bits(target: str) -> None:
  keys = np.arange(6, dtype=np.uint64) * 0x123456789ABCDEF
  got = apply(
    made(target), lambda c, k: c.threefry(k), [(dtypes.uint64, keys), (dtypes.uint64, keys[::-1].copy())], dtypes.uint64
  )
  want = [exec_alu(Ops.THREEFRY, dtypes.uint64, (int(c), int(k))) for c, k in zip(keys, keys[::-1], strict=True)]
  assert got.tolist() == want
  x = np.array([1e3, 1e10, 3e38, -7e20, 0.5, -0.0], np.float32)
  got = apply(made(target), lambda v: v.sin(), [(dtypes.float32, x)], dtypes.float32)
  assert np.allclose(got, np.sin(x.astype(np.float64)), rtol=3e-7, atol=0)


def test_memory_and_gates_are_split() -> None:
  i = UOp.range(4, 0, dtype=dtypes.int32)
  register = UOp.alloc(0, dtypes.int64.ptr(2, AddrSpace.REG))
  value = (
    UOp.param(1, dtypes.int64.ptr(8))
    .index(i * 2, i < 3)
    .load(UOp.const(dtypes.int64.vec(2), (5, -6)), dtypes.int64.vec(2))
  )
  start = register.after(i).index(0).store(value.extract(1))
  total = register.after(start).index(0).load()
  root = UOp.sink(UOp.param(0, dtypes.int64.ptr(4)).index(i).store((i < 2).where(total, value.extract(0))).end(i))
  lowered = graph_rewrite(root, table_for(c_without().target))
  left = [u for u in lowered.toposort if getattr(u.dtype, "base", u.dtype).scalar() in WIDE]
  assert not left, left
