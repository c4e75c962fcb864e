"""Long sums in two kernels, as machines with many processors have them, compiled: results are those of one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tiny_runtime.execution.items import run_schedule
from tiny_sched import Room
from tiny_tensor import Context, Tensor, realize

THREADS = 64
CASES: dict[str, Callable[[Callable[..., Tensor]], Tensor]] = {
  "gradient of weights": lambda new: new(2048, 24).T @ new(2048, 36),
  "product with bias": lambda new: (new(16, 3072) @ new(3072, 48) + new(48)).relu(),
  "convolution": lambda new: new(1, 256, 7, 7).conv2d(new(64, 256, 3, 3), new(64), padding=1).relu(),
  "strided": lambda new: new(1, 256, 14, 14).conv2d(new(32, 256, 3, 3), stride=2, padding=1),
}


@pytest.mark.parametrize("case", CASES)
def test_two_kernels_are_as_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
  from tiny_sched.products import split

  rng = np.random.default_rng(0)
  arrays: list[np.ndarray] = []

  def new(*shape: int) -> Tensor:
    arrays.append(rng.integers(-4, 5, shape).astype(np.float32))  # whose sums are exact in any order
    return Tensor(arrays[-1])

  with Context(DEVICE="CPU"):
    one = CASES[case](new)
    alone = one.numpy()
    monkeypatch.setattr(split, "SECOND_KERNEL", 0)  # these are small, so that they compile and run in no time
    monkeypatch.setattr(realize, "room", lambda device: Room(0, THREADS))
    given = iter(arrays)
    two = CASES[case](lambda *shape: Tensor(next(given)))
    items = two.schedule()
    assert len(items) == 2
    run_schedule(items)
    np.testing.assert_array_equal(two.numpy(), alone)
