"""Copies that are turned, in squares through the memory of a workgroup."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_codegen_workgroup_reduce import Waves, shared_memory
from workgroup_machine import run_workgroups

from tiny_codegen import compile_kernel
from tiny_uop import AddrSpace, Context, DType, KernelInfo, Ops, OptOps, UOp, dtypes

F = dtypes.float32


def turned(batches: int, rows: int, columns: int, dtype: DType = F, plus: bool = False) -> UOp:
  """Each matrix turned; plus what lies as the result does."""
  size = batches * rows * columns
  k, i, j = UOp.range(batches, 0), UOp.range(columns, 1), UOp.range(rows, 2)
  place = (k * columns + i) * rows + j
  value = UOp.param(1, dtype.ptr(size)).index((k * rows + j) * columns + i).load()
  if plus:
    value = value + UOp.param(2, dtype.ptr(size)).index(place).load()
  return UOp.sink(UOp.param(0, dtype.ptr(size)).index(place).store(value).end(k, i, j), arg=KernelInfo("turned"))


def run(batches: int, rows: int, columns: int, plus: bool = False) -> UOp:
  with Context(SPEC=2):
    program = compile_kernel(turned(batches, rows, columns, plus=plus), Waves())
  random = np.random.default_rng(0)
  x, y = random.normal(size=(batches, rows, columns)), random.normal(size=(batches, columns, rows))
  for backwards in (False, True):
    out = np.full(x.size, np.nan)
    arrays: list[Any] = [out, x.ravel(), y.ravel()]
    run_workgroups(program, arrays, backwards=backwards)
    assert np.allclose(out.reshape(y.shape), x.transpose(0, 2, 1) + (y if plus else 0))
  return program


def test_whole_squares() -> None:
  program = run(1, 64, 32)
  opts = [(o.op, o.arg) for o in program.src[1].arg.opts]
  assert opts == [
    (OptOps.SPLIT, 32), (OptOps.STAGE, (3, 1)), (OptOps.LOCAL, 32), (OptOps.LOCAL, 8), (OptOps.UPCAST, 0)
  ]  # fmt: skip
  assert shared_memory(program) == [F.ptr(32 * 33, AddrSpace.LOCAL)]
  assert sum(u.op is Ops.BARRIER for u in program.src[1].src) == 1


@pytest.mark.parametrize(("batches", "rows", "columns"), ((2, 33, 40), (3, 8, 50), (1, 9, 11)))
def test_parts_of_squares(batches: int, rows: int, columns: int) -> None:
  assert OptOps.STAGE in {o.op for o in run(batches, rows, columns).src[1].arg.opts}


def test_what_is_not_turned_is_read_where_it_is_used() -> None:
  program = run(2, 16, 32, plus=True)
  assert [o.axis for o in program.src[1].arg.opts if o.op is OptOps.STAGE] == [1]


def test_short_sides_are_left_alone() -> None:
  """Three channels: what neighbours do not use of a cache line the next ones find there."""
  assert OptOps.STAGE not in {o.op for o in run(1, 3, 40).src[1].arg.opts}


@pytest.mark.parametrize(("dtype", "row"), ((dtypes.uint8, 36), (dtypes.float16, 34), (F, 33), (dtypes.float64, 33)))
def test_rows_are_an_odd_number_of_words_apart(dtype: DType, row: int) -> None:
  program = compile_kernel(turned(1, 32, 64, dtype), Waves())
  assert shared_memory(program)[0].size == 32 * row  # type: ignore[attr-defined]
