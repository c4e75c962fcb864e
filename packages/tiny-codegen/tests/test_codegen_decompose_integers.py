"""Integer decompositions: what guards are left, threefry against published vectors, the late rules."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply, host, info_of, lower, plain

from tiny_codegen.decompose import late_table_for, table_for
from tiny_codegen.render import C99, CRenderer, LLVMRenderer
from tiny_uop import Ops, UOp, dtypes, exec_alu, graph_rewrite


def ops_of(root: UOp) -> set[Ops]:
  return {u.op for u in root.toposort}


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


def test_power_of_two_needs_a_non_negative_numerator_to_truncate() -> None:
  table = table_for(LLVMRenderer().capabilities)
  assert Ops.TRUNCDIV in ops_of(graph_rewrite(loaded().alu(Ops.TRUNCDIV, UOp.const(dtypes.int32, 8)), table))
  assert Ops.TRUNCDIV not in ops_of(graph_rewrite(counter(9).alu(Ops.TRUNCDIV, UOp.const(dtypes.int32, 8)), table))


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


def test_late_rules() -> None:
  a, b, c = (UOp.param(k, dtypes.float32.ptr(8)).index(counter(8)).load() for k in (1, 2, 3))
  fused = host().capabilities.has_fma
  table = late_table_for(host().capabilities)
  assert graph_rewrite(a - b, table) is a.alu(Ops.SUB, b)
  assert graph_rewrite(-a, table) is a.alu(Ops.NEG)
  assert (Ops.MULACC in ops_of(graph_rewrite(a * b + c, table))) == fused
  assert Ops.MULACC not in ops_of(graph_rewrite(a * b + c, late_table_for(plain().capabilities)))
  i = counter(100)
  assert graph_rewrite(i * 8, table) is i << 3
  x = loaded()
  assert graph_rewrite(x * 8, table) is x * 8  # may be negative: bounds of a shift are not known
  assert Ops.MULACC not in ops_of(graph_rewrite(i * 7 + x, table))
  assert graph_rewrite(i - x, table) is i.alu(Ops.SUB, x)
  u = UOp.param(1, dtypes.uint8.ptr(8)).index(i).load()
  assert graph_rewrite(u + u * -1, table).op is Ops.SUB


@pytest.mark.skipif(not host().capabilities.has_fma, reason="this processor has no fused multiply-add")
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
  assert table_for(CRenderer().capabilities) is table_for(CRenderer(C99).capabilities)
