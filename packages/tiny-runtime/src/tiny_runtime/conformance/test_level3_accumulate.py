"""Level 3: STOREs that accumulate, in the order of loops; where the device claims atomics, by threads.

`I` and `F` are int32 and float32.
"""

from __future__ import annotations

import random

import pytest

from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.kernels import I, kernel, param, read, write
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level3_programs import REDUCED, F
from tiny_runtime.conformance.test_level3_workgroups import program, threads_of
from tiny_runtime.conformance.values import pack, small
from tiny_uop import ACCUMULATORS, AddrSpace, AxisType, DType, Ops, UOp, dtypes

ORDER = "loops in which iterations may come to the same element: they run in order, each update after the one before"
ATOMIC = "Capabilities.atomics, and how the compiler writes an update: as one step, whoever else is at the element"
# ADD in all types, the other ACCUMULATORS in these; of floats there are only the first three, ADD, MUL and MAX
WIDEST = (dtypes.int32, dtypes.uint64, F)
UPDATES = [(Ops.ADD, dtype) for dtype in REDUCED] + [
  (op, dtype) for op in ACCUMULATORS[1:] for dtype in WIDEST if dtype.kind != "float" or op in ACCUMULATORS[:3]
]


def places(count: int, size: int, seed: int = 0, outside: int = 0) -> bytes:
  """Random places below `size`, and some that are outside."""
  return pack(I, [random.Random(seed).randrange(-outside, size + outside) for _ in range(count)])


def place_of(slot: int, count: int, n: UOp) -> UOp:
  return read(slot, I, count, n).cast(dtypes.index)


def values(op: Ops, dtype: DType, count: int) -> bytes:
  """Numbers of which every sum and product is exact."""
  if op is Ops.MUL and dtype.kind == "float":
    return pack(dtype, random.Random(count).choices((-1.0, 1.0), k=count))
  return small(dtype, count, count)


@pytest.mark.parametrize(("op", "dtype"), UPDATES, ids=[f"{op.name}-{d.name}" for op, d in UPDATES])
def test_accumulate(target: Target, oracle: Target, op: Ops, dtype: DType) -> None:
  n = UOp.range(100, 0)
  here = param(0, dtype, 7).index(place_of(1, 100, n))
  sink = kernel("accumulate", here.accumulate(op, read(2, dtype, 100, n)).end(n))
  contents = [values(op, dtype, 7), places(100, 7), values(op, dtype, 100)]
  compare(target, oracle, sink, contents, look_at=ORDER)


@pytest.mark.parametrize("columns", (1, 16, 67))
@pytest.mark.parametrize("batch", (1, 3))
def test_rows(target: Target, oracle: Target, columns: int, batch: int) -> None:
  """Rows are added to rows, those outside are left out: columns do not alias, nor do batches."""
  count, rows = 40, 9
  b, n, d = UOp.range(batch, 0), UOp.range(count, 1), UOp.range(columns, 2)
  row = place_of(1, batch * count, b * count + n)
  inside = (row >= 0) & (row < rows)
  here = param(0, F, batch * rows * columns).index((b * rows + row) * columns + d, inside)
  value = read(2, F, batch * count * columns, (b * count + n) * columns + d)
  sink = kernel("add_rows", here.accumulate(Ops.ADD, value).end(b, n, d))
  contents = [small(F, batch * rows * columns), places(batch * count, rows, 1, 3), small(F, batch * count * columns, 2)]
  compare(target, oracle, sink, contents, look_at=ORDER)


def test_large_enough_to_be_shared(target: Target, oracle: Target) -> None:
  count, rows, columns = 64, 50, 256
  n, d = UOp.range(count, 0), UOp.range(columns, 1)
  here = param(0, I, rows * columns).index(place_of(1, count, n) * columns + d)
  sink = kernel("large", here.accumulate(Ops.ADD, read(2, I, count * columns, n * columns + d)).end(n, d))
  contents = [bytes(4 * rows * columns), places(count, rows), small(I, count * columns)]
  compare(target, oracle, sink, contents, look_at=ORDER)


def test_sums_of_floats_are_in_order(target: Target, oracle: Target) -> None:
  """Large numbers that cancel: in another order the small ones between them would be left, or not."""
  n = UOp.range(60, 0)
  here = param(0, F, 3).index(place_of(1, 60, n))
  sink = kernel("in_order", here.accumulate(Ops.ADD, read(2, F, 60, n)).end(n))
  numbers = [(1e8, 1.0, -1e8, 3.0)[k // 3 % 4] for k in range(60)]
  # a device with workgroups may turn the kernel round, and add up what comes to an element by itself
  tolerance = float("inf") if target.device.info.capabilities.local_memory else 0
  contents = [bytes(12), pack(I, [k % 3 for k in range(60)]), pack(F, numbers)]
  compare(target, oracle, sink, contents, tolerance=tolerance, look_at=ORDER)


def test_filled_and_accumulated(target: Target, oracle: Target) -> None:
  """One kernel fills the memory, counts, and reads what it has counted."""
  i, n, j = UOp.range(8, 0), UOp.range(100, 1), UOp.range(8, 2)
  bins = param(0, I, 8)
  empty = bins.after(bins.index(i).store(0).end(i))
  counted = bins.after(empty.index(place_of(2, 100, n)).accumulate(Ops.ADD, 1).end(n))
  sink = kernel("count", write(1, I, 8, j, counted.index(j).load() * 10).end(j))
  compare(target, oracle, sink, [pack(I, [77] * 8), bytes(32), places(100, 8)], look_at=ORDER)


def test_several_updates_of_one_element(target: Target, oracle: Target) -> None:
  n = UOp.range(50, 0)
  out, value = param(0, I, 4), read(2, I, 50, n)
  first = out.index(place_of(1, 50, n)).accumulate(Ops.ADD, value)
  second = out.index(0).accumulate(Ops.ADD, value * 3)
  sink = kernel("twice", UOp.group(first, second).end(n))
  compare(target, oracle, sink, [small(I, 4), places(50, 4), small(I, 50)], look_at=ORDER)


def test_each_iteration_counts(target: Target, oracle: Target) -> None:
  """Also one that does not use its counter."""
  n, m = UOp.range(30, 0), UOp.range(5, 1)
  sink = kernel("ticks", param(0, I, 1).index(0).accumulate(Ops.ADD, 1).end(n, m))
  compare(target, oracle, sink, [bytes(4)], look_at=ORDER)


def test_the_last_one_counts(target: Target, oracle: Target) -> None:
  n = UOp.range(80, 0)
  value = read(2, F, 80, n)
  sink = kernel("last", write(0, F, 9, place_of(1, 80, n), value).end(n))
  compare(target, oracle, sink, [small(F, 9), places(80, 9), pack(F, range(80))], look_at=ORDER)


@pytest.mark.parametrize("space", ("GLOBAL", "LOCAL"))
@pytest.mark.parametrize("op", ACCUMULATORS, ids=lambda op: str(op.name))
def test_atomics(target: Target, oracle: Target, space: str, op: Ops) -> None:
  """Each type that is claimed, by as many threads as there are: of a processor, those that share the loop."""
  record = target.device.info.capabilities
  claimed = [d for d in dtypes.all if f"{space} {op.name} {d.name}" in record.atomics]
  if not claimed:
    pytest.skip(f"{target.name} claims no atomic {op.name} in {space} memory")
  for dtype in claimed:
    if space == "LOCAL":
      sink, contents = _in_a_group(threads_of(target, 64, dtype.itemsize), op, dtype)
    else:
      sink, contents = _by_all(threads_of(target, 32) if record.local_memory else 0, op, dtype)
    compare(target, oracle, sink, contents, look_at=ATOMIC)


def _by_all(threads: int, op: Ops, dtype: DType) -> tuple[UOp, list[bytes]]:
  """All threads combine: of four groups, or of a processor, which share a loop."""
  g, t = UOp.range(4, 0, AxisType.GLOBAL), UOp.range(max(threads, 1), 1, AxisType.LOCAL)
  count = 4 * threads or 9_000
  n = g * threads + t if threads else UOp.range(count, 0)
  here = param(0, dtype, 3).index(place_of(1, count, n))
  update = here.accumulate(op, read(2, dtype, count, n), atomic=True)
  sink = program("atomic", update.end(g, t)) if threads else kernel("atomic", update.end(n))
  return sink, [values(op, dtype, 3), places(count, 3), values(op, dtype, count)]


def _in_a_group(threads: int, op: Ops, dtype: DType) -> tuple[UOp, list[bytes]]:
  """Threads of each group combine in its memory, and one of them writes what has come of it."""
  g, t = UOp.range(2, 0, AxisType.GLOBAL), UOp.range(threads, 1, AxisType.LOCAL)
  near, count = UOp.alloc(0, dtype.ptr(2, AddrSpace.LOCAL)), 2 * threads
  start = near.index(t, t < 2).store(read(3, dtype, 2, t, t < 2))
  ready = near.after(start.barrier())
  n = g * threads + t
  here = ready.index(place_of(1, count, n))
  update = here.accumulate(op, read(2, dtype, count, n), atomic=True)
  there = near.after(update.barrier()).index(t, t < 2).load()
  sink = program("atomic_near", write(0, dtype, 4, g * 2 + t, there, t < 2).end(g, t))
  return sink, [bytes(4 * dtype.itemsize), places(count, 2), values(op, dtype, count), values(op, dtype, 2)]
