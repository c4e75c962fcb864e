"""Gated elements that are read from zeros where their gates are false."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, kernel, loop, over, param
from codegen_machine import host_renderer

from tiny_codegen import compile_kernel
from tiny_uop import DType, Ops, Opt, OptOps, UOp, dtypes

CHANNELS, WIDTH, OUTPUTS = 5, 12, 16
LANES = Opt(OptOps.VECTOR, 1, 16)


def padded(dtype: DType = dtypes.float32, other: float = 0.0) -> UOp:
  """`out[x, o] = sum over c of (x[c, place - 1], or `other` before the first place) * w[c, o]`."""
  place, o, c = loop(WIDTH, 0), loop(OUTPUTS, 1), over(CHANNELS, 2)
  x = param(1, CHANNELS * WIDTH, dtype).index(c * WIDTH + place - 1, place >= 1).load(UOp.const(dtype, other))
  total = (x * param(2, CHANNELS * OUTPUTS, dtype).index(c * OUTPUTS + o).load()).reduce(Ops.ADD, c)
  return kernel(param(0, WIDTH * OUTPUTS, dtype).index(place * OUTPUTS + o).store(total).end(place, o))


def text(sink: UOp) -> str:
  return str(compile_kernel(sink, host_renderer(), (LANES,)).src[2].arg)


def test_no_value_is_selected_and_the_address_outside_of_the_sum() -> None:
  blocks = re.split(r"^\w+:$", text(padded()), flags=re.M)
  assert not any(re.search(r"select i1 \S+, float", block) for block in blocks)
  (chosen,) = [block for block in blocks if "ptr @zeros" in block]
  assert "load <16 x float>" not in chosen, "nothing is multiplied there"


@pytest.mark.parametrize("other", [-0.0, 1.0])
def test_other_values_are_selected(other: float) -> None:
  assert "@zeros" not in text(padded(other=other))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int8])
def test_results(dtype: DType, run_kernel: Any) -> None:
  x, w = data(CHANNELS, WIDTH, dtype=dtype), data(CHANNELS, OUTPUTS, dtype=dtype, seed=1)
  (got, *_) = run_kernel(padded(dtype), (garbage(WIDTH, OUTPUTS, dtype=dtype), x, w), (LANES,))
  before = np.concatenate([np.zeros((CHANNELS, 1), x.dtype), x[:, :-1]], axis=1)
  np.testing.assert_allclose(got, np.einsum("cx,co->xo", before, w).astype(x.dtype), rtol=1e-5, atol=1e-6)


def test_what_is_in_memory_behind_a_gate_does_not_matter(run_kernel: Any) -> None:
  x, w = data(CHANNELS, WIDTH), data(CHANNELS, OUTPUTS, seed=1)
  x[:, -1] = np.nan  # what the first place would read of another channel, and the last place does not read at all
  (got, *_) = run_kernel(padded(), (garbage(WIDTH, OUTPUTS), x, w), (LANES,))
  assert not got[0].any() and not np.isnan(got).any()


def test_a_gate_that_is_a_negation(run_kernel: Any) -> None:
  """The condition is known before the gate, and the element may be read between them."""
  i, j = loop(4, 0), loop(4, 1)
  place, gate = i * 4 + j, (j < 1).logical_not()
  b = param(1, 16).index(place, gate).load() + 0.0
  weight = (i * 7 + j).cast(dtypes.int32).cast(dtypes.float32).exp2()
  total = param(1, 16).index(place).load() + gate.where(weight * b, b.const_like(0.0))
  x = data(4, 4)
  (got, _) = run_kernel(kernel(param(0, 16).index(place).store(total).end(i, j)), (garbage(4, 4), x), ())
  weights = np.exp2(np.arange(4)[:, None] * 7 + np.arange(4))
  np.testing.assert_allclose(got, x + np.where(np.arange(4) < 1, 0, weights * x), rtol=1e-5)
