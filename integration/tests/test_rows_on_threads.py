"""Rows that are sorted, or whose median is looked for, by several threads at once, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_tensor import Context, Tensor


@pytest.mark.parametrize("rows", [3, 50])
def test_threads_share_rows_out(rows: int) -> None:
  """Each group of rows has memory of its own, in which another thread's rows would show in some of the launches."""
  a = np.random.default_rng(rows).standard_normal((rows, 2001)).astype(np.float32)
  with Context(DEVICE="CPU"):
    x = Tensor(a).realize()  # the setting comes with the plugin
  with Context(DEVICE="CPU", CPU_COUNT=4):
    for _ in range(10):
      np.testing.assert_array_equal(x.argsort().numpy(), np.argsort(a, -1, kind="stable"))
      np.testing.assert_array_equal(x.median(-1)[0].numpy(), np.median(a, -1))
