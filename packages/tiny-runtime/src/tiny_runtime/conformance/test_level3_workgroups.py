"""Level 3: threads of a workgroup, the memory that they share, and barriers. Only where the device claims them.

Some kernels are written for threads; others have directions (`KernelInfo.opts`) by which tiny-codegen makes threads of
their loops. A compiler of another make may leave directions aside: the result is the same.
"""

from __future__ import annotations

import pytest

from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.kernels import I, param, read, write
from tiny_runtime.conformance.target import Target
from tiny_uop import AddrSpace, AxisType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

F = dtypes.float32
BARRIER = (
  "barriers, and that all threads of a workgroup share one array in local memory, of the size that the kernel says"
)
COUNTERS = "the numbers of groups and of threads in a group: global_size counts groups, local_size threads of one"


def threads_of(target: Target, wanted: int, nbytes: int = 0) -> int:
  """As many threads as the device's workgroups have, `wanted` at most. Skips where it has none, or too little memory
  for `nbytes` per thread."""
  record = target.device.info.capabilities
  if record.max_local_size < 2 or record.local_memory == 0:
    pytest.skip(f"{target.name} claims no workgroups: local_memory and max_local_size")
  threads = wanted
  while threads > record.max_local_size or threads * nbytes > record.local_memory:
    threads //= 2
  return threads


def shared(size: int, number: int = 0) -> UOp:
  return UOp.alloc(number, I.ptr(size, AddrSpace.LOCAL))


def groups_and_threads(groups: int, threads: int) -> tuple[UOp, UOp]:
  return UOp.range(groups, 0, AxisType.GLOBAL), UOp.range(threads, 1, AxisType.LOCAL)


def program(name: str, effect: UOp) -> UOp:
  """A kernel whose loops are as they shall be."""
  return UOp.sink(effect, arg=KernelInfo(name, ()))


@pytest.mark.parametrize(("groups", "wanted"), ((1, 2), (3, 4), (5, 64), (2, 1024)))
def test_reverse_in_a_group(target: Target, oracle: Target, groups: int, wanted: int) -> None:
  """Every thread reads what another one wrote."""
  threads = threads_of(target, wanted, 4)
  g, t = groups_and_threads(groups, threads)
  size, place = groups * threads, g * threads + t
  near = shared(threads)
  written = near.index(t).store(read(1, I, size, place))
  value = near.after(written.barrier()).index(t * -1 + (threads - 1)).load()
  compare(target, oracle, program("reverse", write(0, I, size, place, value).end(g, t)), look_at=BARRIER)


def test_barriers_in_a_loop(target: Target, oracle: Target) -> None:
  """Tile after tile through the same memory: a barrier before it is read, one before it is written again."""
  threads, tiles = threads_of(target, 64, 4), 5
  g, t = groups_and_threads(3, threads)
  r = UOp.range(tiles, 2, AxisType.REDUCE)
  near, x = shared(threads), param(1, I, 3 * tiles * threads)
  empty = near.after(UOp(Ops.BARRIER, dtypes.void, (g, t, r)))
  filled = empty.index(t).store(x.index((g * tiles + r) * threads + t).load()).barrier()
  value = near.after(filled).index(t * -1 + (threads - 1)).load() * (r + 1).cast(I)
  out = write(0, I, 3 * threads, g * threads + t, value.reduce(Ops.ADD, r))
  compare(target, oracle, program("tiles", out.end(g, t)), look_at=BARRIER)


def test_sum_as_a_tree(target: Target, oracle: Target) -> None:
  threads = threads_of(target, 128, 4)
  g, t = groups_and_threads(4, threads)
  near = shared(threads)
  state = near.after(near.index(t).store(read(1, I, 4 * threads, g * threads + t)).barrier())
  half = threads // 2
  while half:
    both = state.index(t, t < half).load() + state.index(t + half, t < half).load()
    state, half = near.after(state.index(t, t < half).store(both).barrier()), half // 2
  compare(target, oracle, program("tree", write(0, I, 4, g, state.index(0).load(), t.eq(0)).end(g, t)), look_at=BARRIER)


def test_two_arrays_and_two_axes(target: Target, oracle: Target) -> None:
  """A tile transposed by a square of threads, and a row that all of them read."""
  side = 8 if threads_of(target, 64, 8) >= 64 else 1
  g, a, b = UOp.range(3, 0, AxisType.GLOBAL), *(UOp.range(side, n, AxisType.LOCAL) for n in (1, 2))
  size, tile, row = 3 * side * side, shared(side * side), shared(side, 1)
  first = tile.index(a * side + b).store(read(1, I, size, (g * side + a) * side + b))
  second = row.index(b, a.eq(0)).store(read(2, I, side, b))
  done = UOp.group(first, second).barrier()
  value = tile.after(done).index(b * side + a).load() * 10 + row.after(done).index(a).load()
  sink = program("square", write(0, I, size, (g * side + a) * side + b, value).end(g, a, b))
  compare(target, oracle, sink, look_at=BARRIER)


def test_exchange_through_global_memory(target: Target, oracle: Target) -> None:
  """What a thread has read is another behind barriers: its neighbour has written it. As in sorts and factorisations of
  tiny-tensor, a workgroup has each piece of a buffer to itself."""
  threads = threads_of(target, 256, 4)  # several subgroups
  g, t = groups_and_threads(3, threads)
  size, memory, register = 3 * (threads + 1), param(1, I, 3 * (threads + 1)), UOp.alloc(0, I.ptr(1, AddrSpace.REG))
  own = g * (threads + 1) + t

  def behind(effect: UOp) -> UOp:
    return memory.after(effect).index(own + 1).load()

  last = memory.after(g, t).index(g * (threads + 1) + threads).store(UOp.const(I, 7))
  filled = memory.after(last).index(own).store(read(2, I, size, own)).barrier()
  kept = register.after(filled).index(0).store(behind(filled)).barrier()
  old = register.after(kept).index(0).load()
  changed = memory.after(kept).index(own).store(old * 2 + t.cast(I)).barrier()
  out = write(0, I, 3 * threads, g * threads + t, register.after(changed).index(0).load() * 1000 + behind(changed))
  look_at = "barriers: they order global memory, too, and the compiler must not take a value from before one"
  compare(target, oracle, program("exchange", out.end(g, t)), look_at=look_at)


def test_all_of_the_local_memory(target: Target, oracle: Target) -> None:
  threads = threads_of(target, 16, 4)
  count = target.device.info.capabilities.local_memory // 4 // threads
  g, t = groups_and_threads(2, threads)
  i, r = UOp.range(count, 2), UOp.range(count, 3, AxisType.REDUCE)
  near = shared(count * threads)
  filled = near.index(i * threads + t).store((g * 1000 + i + t).cast(I)).end(i).barrier()
  total = near.after(filled).index(r * threads + (threads - 1 - t)).load().reduce(Ops.ADD, r)
  sink = program("full", write(0, I, 2 * threads, g * threads + t, total).end(g, t))
  compare(target, oracle, sink, look_at=f"local_memory is claimed as {4 * count * threads} bytes")


@pytest.mark.parametrize("axes", (1, 2, 3))
def test_groups_and_threads_on_every_axis(target: Target, oracle: Target, axes: int) -> None:
  """The place of each thread is written where it belongs, so that axes that are swapped show."""
  threads_of(target, 8)
  counts = ((3, 2), (4, 1), (5, 2))[:axes]
  groups = [UOp.range(count, n, AxisType.GLOBAL) for n, (count, _) in enumerate(counts)]
  threads = [UOp.range(count, 3 + n, AxisType.LOCAL) for n, (_, count) in enumerate(counts)]
  place, size = UOp.const(dtypes.index, 0), 1
  for (outer, inner), g, t in zip(counts, groups, threads):
    place, size = place * (outer * inner) + g * inner + t, size * outer * inner
  sink = program("places", write(0, I, size, place, place.cast(I) + 7).end(*groups, *threads))
  compare(target, oracle, sink, look_at=COUNTERS)


@pytest.mark.parametrize("size", (64, 256))
def test_a_sum_by_a_group(target: Target, oracle: Target, size: int) -> None:
  """By direction: the threads of a group share one sum."""
  threads = threads_of(target, 16, 4)
  i, r = UOp.range(6, 0), UOp.range(size, 1, AxisType.REDUCE)
  total = read(1, F, 6 * size, i * size + r).reduce(Ops.ADD, r)
  store = write(0, F, 6, i, total).end(i)
  sink = UOp.sink(store, arg=KernelInfo("group_sum", (Opt(OptOps.GROUP, 1, threads),)))
  compare(target, oracle, sink, look_at=BARRIER)


def test_a_matrix_product_by_groups(target: Target, oracle: Target) -> None:
  """By direction: a tile of threads, and the operands' tiles in local memory."""
  threads_of(target, 16, 64)
  i, j, r = UOp.range(8, 0), UOp.range(12, 1), UOp.range(10, 2, AxisType.REDUCE)
  product = read(1, F, 80, i * 10 + r) * read(2, F, 120, r * 12 + j)
  store = write(0, F, 96, i * 12 + j, product.reduce(Ops.ADD, r)).end(i, j)
  sink = UOp.sink(store, arg=KernelInfo("group_product", (Opt(OptOps.LOCAL, 0, 4), Opt(OptOps.LOCAL, 1, 4))))
  compare(target, oracle, sink, look_at=COUNTERS)
