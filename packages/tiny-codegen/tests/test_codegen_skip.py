"""Sums that a tile of results does not use: nothing is computed for them, and results stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_codegen.skip import skip_sums
from tiny_uop import AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

ROWS, COLUMNS, LENGTH = 20, 44, 24
Mask = Callable[[Any, Any], Any]
MASKS: dict[str, Mask] = {
  "causal": lambda i, j: j < i + 1,
  "future": lambda i, j: i < j,
  "band": lambda i, j: (j < i + 3) & (i < j + 5),
  "far": lambda i, j: j * 2 < i + 7,
}


def masked_product(mask: Mask, opts: tuple[Opt, ...] | None) -> UOp:
  i, j, k = UOp.range(ROWS, 0), UOp.range(COLUMNS, 1), UOp.range(LENGTH, 2, AxisType.REDUCE)
  a = UOp.param(1, dtypes.float32.ptr(ROWS * LENGTH)).index(i * LENGTH + k).load()
  b = UOp.param(2, dtypes.float32.ptr(LENGTH * COLUMNS)).index(k * COLUMNS + j).load()
  total = (a * b).reduce(Ops.ADD, k)
  value = mask(i, j).where(total * 0.5, total.const_like(-7.0))
  out = UOp.param(0, dtypes.float32.ptr(ROWS * COLUMNS)).index(i * COLUMNS + j).store(value).end(i, j)
  return UOp.sink(out, arg=KernelInfo("masked", opts))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
  "opts",
  [None, (Opt(OptOps.VECTOR, 1, 4), Opt(OptOps.UPCAST, 0, 5)), (Opt(OptOps.VECTOR, 1, 4), Opt(OptOps.UNROLL, 2, 2))],
  ids=["heuristics", "tile", "unrolled"],
)
def test_values(name: str, opts: tuple[Opt, ...] | None, run_kernel: Any) -> None:
  rng = np.random.default_rng(3)
  a, b = rng.standard_normal((ROWS, LENGTH), np.float32), rng.standard_normal((LENGTH, COLUMNS), np.float32)
  rows, columns = np.indices((ROWS, COLUMNS))
  expected = np.where(MASKS[name](rows, columns), a @ b * 0.5, -7.0)
  with Context(SPEC=2):
    (got, *_) = run_kernel(masked_product(MASKS[name], opts), (np.zeros((ROWS, COLUMNS), np.float32), a, b))
  np.testing.assert_allclose(got.reshape(ROWS, COLUMNS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MASKS)
def test_loops_of_sums_have_iterations_where_they_are_needed(name: str) -> None:
  root = skip_sums(masked_product(MASKS[name], ()))
  loops = [u for u in root.toposort if u.op is Ops.RANGE and u.arg[1] is AxisType.REDUCE]
  assert [loop.src[0].op for loop in loops] == [Ops.WHERE]


def test_a_mask_from_memory_says_nothing() -> None:
  flags = UOp.param(3, dtypes.bool.ptr(ROWS * COLUMNS))
  root = masked_product(lambda i, j: flags.index(i * COLUMNS + j).load(), ())
  assert skip_sums(root) is root


def test_a_sum_over_no_loop_is_left_alone() -> None:
  i = UOp.range(4, 0)
  total = UOp(Ops.REDUCE, dtypes.float32, (UOp.param(1, dtypes.float32.ptr(4)).index(i).load(),), (Ops.ADD, ()))
  value = (i < 2).where(total, total.const_like(0.0))
  root = UOp.sink(UOp.param(0, dtypes.float32.ptr(4)).index(i).store(value).end(i), arg=KernelInfo("one"))
  assert skip_sums(root) is root
