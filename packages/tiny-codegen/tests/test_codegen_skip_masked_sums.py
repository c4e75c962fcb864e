"""Sums that a tile of results does not use: nothing is computed for them, and results stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_codegen.lower.skip_masked_sums import skip_masked_sums
from tiny_uop import AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

ROWS, COLUMNS, LENGTH = 20, 44, 24
Mask = Callable[[Any, Any], Any]
MASKS: dict[str, Mask] = {
  "causal": lambda i, j: j < i + 1,
  "future": lambda i, j: i < j,
  "band": lambda i, j: (j < i + 3) & (i < j + 5),
  "far": lambda i, j: j * 2 < i + 7,
}


def masked_product(mask: Mask, opts: tuple[Opt, ...] | None, rows: int = ROWS, columns: int = COLUMNS) -> UOp:
  i, j, k = UOp.range(rows, 0), UOp.range(columns, 1), UOp.range(LENGTH, 2, AxisType.REDUCE)
  a = UOp.param(1, dtypes.float32.ptr(rows * LENGTH)).index(i * LENGTH + k).load()
  b = UOp.param(2, dtypes.float32.ptr(LENGTH * columns)).index(k * columns + j).load()
  total = (a * b).reduce(Ops.ADD, k)
  value = mask(i, j).where(total * 0.5, total.const_like(-7.0))
  out = UOp.param(0, dtypes.float32.ptr(rows * columns)).index(i * columns + j).store(value).end(i, j)
  return UOp.sink(out, arg=KernelInfo("masked", opts))


TILE = (Opt(OptOps.VECTOR, 1, 4), Opt(OptOps.UPCAST, 0, 5))
PACKED = (Opt(OptOps.SWAP, 0, 1), Opt(OptOps.STAGE, 2, (2,)))  # a panel, by the first tile that reads it


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
  "opts",
  [
    None,
    TILE,
    (Opt(OptOps.VECTOR, 1, 4), Opt(OptOps.UNROLL, 2, 2)),
    (*TILE, *PACKED),
    (Opt(OptOps.VECTOR, 1, 4), Opt(OptOps.PADTO, 0, 7), Opt(OptOps.UPCAST, 0, 7), *PACKED),
    (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.PADTO, 0, 8), Opt(OptOps.UPCAST, 0, 8), *PACKED),
  ],
  ids=["heuristics", "tile", "unrolled", "packed", "rows left over", "rows and lanes left over"],
)
def test_values(name: str, opts: tuple[Opt, ...] | None, run_kernel: Any) -> None:
  check(name, opts, run_kernel, ROWS, COLUMNS)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("rows", "columns"), [(14, 16), (14, 32), (6, 16)])
def test_the_last_tile_of_rows_and_a_mask(name: str, rows: int, columns: int, run_kernel: Any) -> None:
  """Where its rows end is no end of a loop over columns, which has whole blocks alone."""
  size = 64
  tile = (Opt(OptOps.VECTOR, 1, columns), Opt(OptOps.PADTO, 0, rows), Opt(OptOps.UPCAST, 0, rows))
  check(name, (*tile, *PACKED), run_kernel, size, size)


def check(name: str, opts: tuple[Opt, ...] | None, run_kernel: Any, rows: int, columns: int) -> None:
  """Run it, and compare with NumPy."""
  rng = np.random.default_rng(3)
  a, b = rng.standard_normal((rows, LENGTH), np.float32), rng.standard_normal((LENGTH, columns), np.float32)
  i, j = np.indices((rows, columns))
  expected = np.where(MASKS[name](i, j), a @ b * 0.5, -7.0)
  with Context(SPEC=2):
    kernel = masked_product(MASKS[name], opts, rows, columns)
    (got, *_) = run_kernel(kernel, (np.zeros((rows, columns), np.float32), a, b))
  np.testing.assert_allclose(got.reshape(rows, columns), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MASKS)
def test_loops_of_sums_have_iterations_where_they_are_needed(name: str) -> None:
  root = skip_masked_sums(masked_product(MASKS[name], ()))
  loops = [u for u in root.toposort if u.op is Ops.RANGE and u.arg[1] is AxisType.REDUCE]
  assert [loop.src[0].op for loop in loops] == [Ops.WHERE]


def test_a_mask_from_memory_says_nothing() -> None:
  flags = UOp.param(3, dtypes.bool.ptr(ROWS * COLUMNS))
  root = masked_product(lambda i, j: flags.index(i * COLUMNS + j).load(), ())
  assert skip_masked_sums(root) is root


def test_a_sum_over_no_loop_is_left_alone() -> None:
  i = UOp.range(4, 0)
  total = UOp(Ops.REDUCE, dtypes.float32, (UOp.param(1, dtypes.float32.ptr(4)).index(i).load(),), (Ops.ADD, ()))
  value = (i < 2).where(total, total.const_like(0.0))
  root = UOp.sink(UOp.param(0, dtypes.float32.ptr(4)).index(i).store(value).end(i), arg=KernelInfo("one"))
  assert skip_masked_sums(root) is root
