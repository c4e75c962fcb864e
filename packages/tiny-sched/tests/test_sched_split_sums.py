"""Long sums of products are two kernels where many threads share them, and give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sched_graphs import new, stored, total

from tiny_sched import Room, schedule
from tiny_sched.products import split
from tiny_sched.products.split import LongSum
from tiny_uop import Ops, UOp, dtypes

Execute = Callable[[UOp, dict[UOp, Any]], None]
Evaluate = Callable[[UOp, dict[UOp, Any]], Any]


def many(device: str) -> Room:
  return Room(threads=16)


def product(a: UOp, b: UOp) -> UOp:
  """Of matrices, or of several side by side."""
  (*batch, n, k), m = [int(s) for s in a.shape], int(b.shape[-1])
  rows = a.reshape((*batch, n, 1, k)).expand((*batch, n, m, k))
  columns = b.permute((*range(len(batch)), len(batch) + 1, len(batch))).reshape((*batch, 1, m, k))
  return total(rows * columns.expand((*batch, n, m, k)), len(batch) + 2).reshape((*batch, n, m))


def ints(*shape: int) -> UOp:
  return new(*shape, dtype=dtypes.int32)


GRAPHS: dict[str, Callable[[], UOp]] = {
  "product": lambda: product(ints(3, 64), ints(64, 5)),
  "with what follows": lambda: product(ints(3, 64), ints(64, 5)) * 2 + ints(1, 5).expand((3, 5)),
  "of several matrices": lambda: product(ints(2, 3, 64), ints(2, 64, 5)),
  "gradient's layout": lambda: product(ints(64, 3).permute((1, 0)), ints(64, 5)),
  "spread over rows": lambda: product(ints(3, 64), ints(64, 1)).expand((3, 7)) + ints(3, 7),
  "padded operand": lambda: product(ints(3, 60).pad(((0, 0), (2, 2))), ints(64, 5)),
  "over two loops": lambda: total(ints(3, 1, 8, 6).expand((3, 5, 8, 6)) * ints(1, 5, 8, 6).expand((3, 5, 8, 6)), 2, 3),
  "two": lambda: product(product(ints(3, 64), ints(64, 5)), ints(5, 32)),
}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
  """A second kernel costs nothing, so that small sums are split, which the interpreter is quick enough for."""
  for name in ("SECOND_KERNEL", "PART", "TERMS"):
    monkeypatch.setattr(split, name, 0)


def checked(root: UOp, execute: Execute, evaluate: Evaluate) -> list[UOp]:
  """The kernels of a store, whose results are compared bit for bit."""
  linear = schedule(UOp.sink(root), many)
  rng = np.random.default_rng(0)
  memory = {u: rng.integers(-9, 9, u.arg[1]).astype("int32") for u in root.toposort if u.op is Ops.BUFFER}
  wanted = evaluate(root, memory)
  execute(linear, memory)
  np.testing.assert_array_equal(memory[root.src[0].base], np.asarray(wanted).reshape(-1))
  return [call.src[0] for call in linear.src]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", GRAPHS)
def test_split_sums_are_right(name: str, execute: Execute, evaluate: Evaluate) -> None:
  kernels = checked(stored(GRAPHS[name]()), execute, evaluate)
  assert len(kernels) >= 2
  assert all("_r" in kernel.arg.name for kernel in kernels)


@pytest.mark.usefixtures("eager")
def test_what_follows_may_read_what_was_there(execute: Execute, evaluate: Evaluate) -> None:
  before = ints(3, 5)
  assert len(checked(before.assign(before + product(ints(3, 64), ints(64, 5))), execute, evaluate)) == 2


@pytest.mark.usefixtures("eager")
def test_sums_of_other_values_stay_one_kernel(execute: Execute, evaluate: Evaluate) -> None:
  assert len(checked(stored(total(ints(3, 64), 1)), execute, evaluate)) == 1  # no products
  assert len(checked(stored(total(ints(3, 64) * 3, 1)), execute, evaluate)) == 1  # of one operand


def test_few_threads_share_no_sums() -> None:
  root = UOp.sink(stored(product(new(512, 16384), new(16384, 512))))
  assert len(schedule(root).src) == 1
  assert len(schedule(root, many).src) == 1  # 16 threads have 128 × 128 results each
  assert len(schedule(root, lambda device: Room(threads=128)).src) == 2


def test_halves_are_not_rounded_between() -> None:
  root = UOp.sink(stored(product(new(64, 25088, dtype=dtypes.float16), new(25088, 64, dtype=dtypes.float16))))
  assert len(schedule(root, lambda device: Room(threads=64)).src) == 1


SQUARE = ((1024,), (1024,))


@pytest.mark.parametrize(
  ("own", "again", "terms", "threads", "parts"),
  [
    (SQUARE, (1, 1), 1024, 64, 1),
    (SQUARE, (1, 1), 1024, 128, 1),
    (((512,), (512,)), (1, 1), 512, 64, 1),
    (((512,), (512,)), (1, 1), 16384, 64, 4),
    (((512,), (512,)), (1, 1), 16384, 128, 8),
    (((64,), (576,)), (1, 1), 25088, 8, 1),
    (((64,), (576,)), (1, 1), 25088, 64, 8),
    (((7, 7), (512,)), (9, 1), 4608, 32, 1),
    (((7, 7), (512,)), (9, 1), 4608, 64, 2),
    (((14, 14), (256,)), (9, 1), 2304, 64, 1),
  ],
)
def test_choice(
  own: tuple[tuple[int, ...], tuple[int, ...]], again: tuple[float, float], terms: int, threads: int, parts: int
) -> None:
  """Of kernels that were simulated (`hatch run scaling`): `parts` was as good as any other number, to a tenth."""
  choices = [n for n in (2, 4, 8, 16, 32) if n <= threads]
  assert LongSum(own, again, 1, terms, 4).parts(choices, threads) == parts
