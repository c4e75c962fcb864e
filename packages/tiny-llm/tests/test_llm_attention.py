"""Attention of one token over the cache, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_llm.attention import attend
from tiny_llm.quantised.packing import LANES
from tiny_tensor import Tensor, TinyJit, UOp, Variable, dtypes
from tiny_uop import DType

ROOM = 48


@pytest.mark.parametrize(
  "heads, groups, size, slots, window, cap, dtype",
  [
    (6, 2, 16, 1, 0, 0.0, dtypes.float16),
    (4, 4, 8, 2, 0, 0.0, dtypes.float32),  # no group, less than a vector
    (7, 1, 32, 3, 5, 0.0, dtypes.float16),  # a window
    (2, 1, 48, 1, 17, 30.0, dtypes.float32),  # scores that are capped
    (3, 3, 20, 1, 0, 2.0, dtypes.float16),  # sizes that nothing divides
  ],
)
def test_it_is_attention(heads: int, groups: int, size: int, slots: int, window: int, cap: float, dtype: DType) -> None:
  rng = np.random.default_rng(heads)
  numbers = np.float16 if dtype is dtypes.float16 else np.float32
  queries = rng.standard_normal((heads, size)).astype(np.float32)
  k, v = (rng.standard_normal((slots, groups, ROOM, size)).astype(numbers) for _ in range(2))
  side_by_side = k.reshape(slots, groups, ROOM // LANES, LANES, size).swapaxes(-1, -2)
  keys, values = Tensor(np.ascontiguousarray(side_by_side)).realize(), Tensor(v).realize()
  variables = Variable("slot", 0, slots - 1), Variable("start", 0, ROOM - 1)

  @TinyJit
  def look_up(q: Tensor, slot: UOp, start: UOp) -> Tensor:
    values[slot, :, start : start + 1] = values[slot, :, start : start + 1] * 1  # binds the variables
    return attend(q, keys, values, slot, start, window, cap).realize()

  for start in (7, 7, 7, 0, 15, 16, 31, ROOM - 1):
    for slot in range(slots):
      found = look_up(Tensor(queries).realize(), variables[0].bind(slot), variables[1].bind(start)).numpy()
      seen = slice(max(0, start + 1 - window) if window else 0, start + 1)
      mine, theirs = k[slot, :, seen].astype(np.float64), v[slot, :, seen].astype(np.float64)
      scores = np.einsum("gnd,gpd->gnp", queries.reshape(groups, -1, size), mine)
      scores = np.tanh(scores / cap) * cap if cap else scores
      weights = np.exp(scores - scores.max(-1, keepdims=True))
      expected = np.einsum("gnp,gpd->gnd", weights / weights.sum(-1, keepdims=True), theirs)
      np.testing.assert_allclose(found, expected.reshape(heads, size), rtol=2e-5, atol=2e-5)
