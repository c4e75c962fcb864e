"""Integer decompositions: what guards are left, threefry against published vectors, multiply-adds."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply, host, info_of, lower, plain

from tiny_codegen.decompose import late_table_for, table_for
from tiny_codegen.render import C99, CRenderer, LLVMRenderer
from tiny_uop import Ops, UOp, dtypes, exec_alu, graph_rewrite


def counter(size: int) -> UOp:
  return UOp.range(size, 0, dtype=dtypes.int32)


def loaded() -> UOp:
  return UOp.param(1, dtypes.int32.ptr(8)).index(counter(8)).load()


def text_of(value: UOp) -> str:
  place = UOp.param(0, dtypes.int32.ptr(8)).index(counter(8))
  linear = UOp(Ops.LINEAR, src=lower(LLVMRenderer(), place.store(value).end(counter(8))).toposort)
  return LLVMRenderer().render(linear, info_of(linear))


def test_bounds_drop_guards() -> None:
  i = counter(8)
  assert "select" in text_of(loaded() // loaded()) and "select" in text_of(i // loaded())
  assert "select" not in text_of(i // (i + 1)) and "udiv" not in text_of(i // (i + 1))
  assert "div" not in text_of(i // 4) and "rem" not in text_of(i % 4)
  assert "select" not in text_of(loaded() // 7) and text_of(loaded() // 7).count("sdiv") == 1
  assert "div" not in text_of(loaded() // 8) and "rem" not in text_of(loaded() % 8)


# key, counter, result: test vectors of the authors' Random123 library for threefry2x32, 20 rounds (words 0 and 1 each)
VECTORS = (
  ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
  ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
  ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
)


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("lanes", [1, 3])
def test_threefry(lanes: int, renderer: str) -> None:
  def join(words: tuple[int, int]) -> int:
    return words[0] | words[1] << 32

  keys, counters = (np.array([join(v[k]) for v in VECTORS], np.uint64) for k in (0, 1))
  inputs = [(dtypes.uint64, counters), (dtypes.uint64, keys)]
  got = apply(RENDERERS[renderer](), lambda c, k: c.threefry(k), inputs, dtypes.uint64, lanes)
  assert [hex(v) for v in got.tolist()] == [hex(join(v[2])) for v in VECTORS]
  assert got.tolist() == [exec_alu(Ops.THREEFRY, dtypes.uint64, (int(c), int(k))) for c, k in zip(counters, keys)]


def test_products_are_fused_where_the_target_can() -> None:
  a, b, c = (UOp.param(k, dtypes.float32.ptr(8)).index(counter(8)).load() for k in (1, 2, 3))
  for target in (host().target, plain().target):
    fused = graph_rewrite(a * b + c, late_table_for(target))
    assert (Ops.MULACC in {u.op for u in fused.toposort}) == target.has_fma


@pytest.mark.skipif(not host().target.has_fma, reason="this processor has no fused multiply-add")
def test_fused_means_one_rounding() -> None:
  x = np.array([1 + 2.0**-12] * 8, np.float32)
  inputs = [(dtypes.float32, x), (dtypes.float32, x), (dtypes.float32, -(x * x))]
  got = apply(host(), lambda a, b, c: a * b + c, inputs, dtypes.float32)
  assert got.tolist() == [2.0**-24] * 8
  assert apply(plain(), lambda a, b, c: a * b + c, inputs, dtypes.float32).tolist() == [0.0] * 8


@pytest.mark.parametrize("renderer", ["plain", "c"] if "c" in RENDERERS else ["plain"])
def test_trunc_without_an_instruction(renderer: str) -> None:
  for dtype in (dtypes.float32, dtypes.float64):
    kind = np.dtype(dtype.name)
    x = np.array(
      [0.5, -0.5, 1.5, -2.7, 1e9, -1e30, 2.0**23 + 1, 2.0**52 - 0.5, np.inf, -np.inf, np.nan, -0.0, 5e-324], kind
    )
    got = apply(RENDERERS[renderer](), lambda v: v.trunc(), [(dtype, x)], dtype)
    assert np.array_equal(got, np.trunc(x), equal_nan=True) and np.array_equal(np.signbit(got), np.signbit(np.trunc(x)))


def test_tables_are_made_once() -> None:
  assert table_for(CRenderer().target) is table_for(CRenderer(C99).target)
