"""Kernels whose extents depend on variables: compiled once, run for every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, kernel, loop, over, param

from tiny_uop import Context, Ops, Opt, OptOps, UOp, dtypes, evaluate

N = UOp.variable("n", 1, 64)
VALUES = (1, 3, 8, 16, 21, 64)


def scale() -> UOp:
  i = loop(N, 0)
  return kernel(param(0, 64).index(i).store(param(1, 64).index(i).load() * N.cast(dtypes.float32)).end(i))


def total() -> UOp:
  k = over(N, 0)
  return kernel(param(0, 1).index(0).store(param(1, 64).index(k).load().reduce(Ops.ADD, k)))


@pytest.mark.parametrize(
  "opts",
  [
    None,
    [],
    [Opt(OptOps.PADTO, 0, 8), Opt(OptOps.VECTOR, 0, 8)],
    [Opt(OptOps.PADTO, 0, 4), Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.THREAD, 0)],
  ],
)
def test_output_loop(opts: list[Opt] | None, run_kernel: Any) -> None:
  x = data(64)
  for n in VALUES:
    with Context(SPEC=2):
      result = run_kernel(scale(), [garbage(64), x], opts, {"n": n})[0]
    np.testing.assert_array_equal(result[:n], x[:n] * n)
    np.testing.assert_array_equal(result[n:], garbage(64)[n:])  # nothing beyond the extent is touched


@pytest.mark.parametrize(
  "opts",
  [None, [Opt(OptOps.PADTO, 0, 8), Opt(OptOps.VECTOR, 0, 8)], [Opt(OptOps.PADTO, 0, 4), Opt(OptOps.UNROLL, 0, 4)]],
)
def test_reduce_loop(opts: list[Opt] | None, run_kernel: Any) -> None:
  x = data(64)
  x[-1] = np.nan  # read only when n says so
  for n in VALUES[:-1]:
    result = run_kernel(total(), [garbage(1), x], opts, {"n": n})[0]
    np.testing.assert_allclose(result[0], x[:n].sum(), rtol=1e-5)


def test_sizes_and_estimates_are_expressions_of_the_variable(renderer: Any) -> None:
  from tiny_codegen import compile_kernel

  program = compile_kernel(scale(), renderer, [Opt(OptOps.THREAD, 0)])
  assert program.arg.variables == ("n",)
  assert [evaluate(s, {N: 21}) for s in program.src[3].src] == [21, 1, 1]
  operations, nbytes = program.src[5].src
  assert (evaluate(operations, {N: 21}), evaluate(nbytes, {N: 21})) == (21, 21 * 8)
