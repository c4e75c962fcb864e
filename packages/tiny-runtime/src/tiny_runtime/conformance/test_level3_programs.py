"""Level 3: loops, reductions, gates, staged operands, variables. Workgroups are in the file beside this one."""

from __future__ import annotations

import math
import random

import pytest

from tiny_runtime.conformance import standard
from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.kernels import I, Loaded, elementwise, kernel, param, random_kernel, read, write
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level1_memory import BEYOND, large_memory, noise
from tiny_runtime.conformance.values import pack, small, unpack
from tiny_uop import AxisType, DType, Ops, UOp, dtypes, truncate
from tiny_uop.truncate import FORMATS, Number

F = dtypes.float32
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 1000, 1024, 4099, 65537)
FAR = (1 << 16) + 4, (1 << 20) + 12, (1 << 24) + 64
OFFSETS = "launch gets (memory, byte offset) per buffer: the kernel's element 0 is at that byte, of each on its own"
INTEGERS = (
  "the integers of launch come in the order of Binary.variables; a variable may need 64 bits, its bounds say so"
)
REDUCED = [d for d in dtypes.all if d.bits >= 16 or d.kind != "float"]
REDUCTIONS = [(op, dtype) for op in (Ops.ADD, Ops.MUL, Ops.MAX) for dtype in REDUCED]


@pytest.mark.parametrize("size", SIZES)
def test_sizes(target: Target, oracle: Target, size: int) -> None:
  compare(target, oracle, elementwise(f"axpy{size}", size, F, [F, F], lambda a, b: a * 3.0 + b))


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: str(d.name))
@pytest.mark.parametrize("size", (1, 5, 67))
def test_copy(target: Target, oracle: Target, dtype: DType, size: int) -> None:
  compare(target, oracle, elementwise("copy", size, dtype, [dtype], lambda a: a))


@pytest.mark.parametrize("offsets", ((4, 4), (8, 0), (0, 20), (64, 12), (4096, 256), FAR[:2], (0, FAR[2])), ids=str)
def test_buffers_at_an_offset(target: Target, oracle: Target, offsets: tuple[int, int]) -> None:
  compare(target, oracle, elementwise("shifted", 50, F, [F], lambda a: a + 1.0), offset=offsets, look_at=OFFSETS)


def test_buffers_beyond_31_bits(target: Target) -> None:
  """Byte offsets that take 32 bits and more, on devices that have the memory."""
  memory, device = large_memory(target, max(BEYOND) + 1000), target.device
  try:
    program = Loaded(target, elementwise("beyond", 5, F, [F], lambda a: a + 1.0))
    for place in (1 << 31, 1 << 32):
      device.write(memory, place + 400, memoryview(pack(F, range(5))))
      device.write(memory, place, memoryview(bytes(20)))
      program((memory, place), (memory, place + 400), wait=True)
      what = f"a launch over buffers at byte {place} and behind"
      target.demand_bytes(memory, pack(F, range(1, 6)), what, OFFSETS, place)
  finally:
    device.free(memory)


def test_windows_of_one_memory(target: Target, oracle: Target) -> None:
  """Buffers are places in memories: several of them in one, of which one is written, as in an arena."""
  sink = elementwise("windows", 50, F, [F, F], lambda a, b: a * 4.0 + b)
  contents = [bytes(200), small(F, 50), small(F, 50, 1)]
  places, program, expected = (512, 0, 1024), Loaded(target, sink), bytearray(noise(2048, 7))
  for place, data in zip(places[1:], contents[1:]):
    expected[place : place + 200] = data
  with target.memories(bytes(expected)) as (memory,):
    program(*((memory, place) for place in places), wait=True)
    expected[512:712] = oracle.run(sink, contents)[0]
    what = "a launch over three places in one memory of which one is written"
    target.demand_bytes(memory, expected, what, OFFSETS)


def test_many_buffers(target: Target, oracle: Target) -> None:
  """As many as graphics hardware takes (31), less a few: each weighs differently."""
  count = 24
  i = UOp.range(5, 0)
  total = UOp.const(I, 0)
  for n in range(count):
    total = total * 3 + param(1 + n, I, 5).index(i).load()
  sink = kernel("many", write(0, I, 5, i, total).end(i))
  look_at = "all of the buffers come to the program, in the order of Binary.params"
  compare(target, oracle, sink, look_at=look_at)


def test_far_elements(target: Target, oracle: Target) -> None:
  """The number of an element takes more than 16 bits."""
  count, step = 30, 3001
  i = UOp.range(count, 0)
  size = count * step
  value = read(1, I, size, i * step + 1)
  sink = kernel("far", write(0, I, size, i * step, value).end(i))
  numbers = pack(I, range(size))
  compare(target, oracle, sink, [bytes(4 * size), numbers], look_at="how many bits an index has")


@pytest.mark.parametrize("dtype", (dtypes.uint8, dtypes.int16), ids=lambda d: str(d.name))
def test_narrow_buffers_at_an_odd_element(target: Target, oracle: Target, dtype: DType) -> None:
  """The least alignment that a view of a buffer can have is that of its elements."""
  size = dtype.itemsize
  sink = elementwise("odd", 67, dtype, [dtype], lambda a: a + 1)
  compare(target, oracle, sink, offset=(size, 3 * size), look_at=OFFSETS)


@pytest.mark.parametrize(("rows", "columns"), ((1, 1), (3, 5), (16, 16), (33, 17)))
def test_transpose(target: Target, oracle: Target, rows: int, columns: int) -> None:
  n = rows * columns
  compare(target, oracle, standard.transpose(rows, columns), [bytes(4 * n), pack(F, range(n))])


@pytest.mark.parametrize(("op", "dtype"), REDUCTIONS, ids=[f"{op.name}-{d.name}" for op, d in REDUCTIONS])
@pytest.mark.parametrize("size", (1, 3, 16, 37))
def test_reduce_all(target: Target, oracle: Target, op: Ops, dtype: DType, size: int) -> None:
  r = UOp.range(size, 0, AxisType.REDUCE)
  sink = kernel("reduce", write(0, dtype, 1, 0, read(1, dtype, size, r).reduce(op, r)))
  data = small(dtype, size, size)
  if op is Ops.MUL and dtype.kind == "float":  # so that the product is exact in any order
    data = pack(dtype, random.Random(size).choices((-1.0, 1.0, 2.0, 0.5), k=size))
  compare(target, oracle, sink, [bytes(dtype.itemsize), data])


@pytest.mark.parametrize("dtype", REDUCED, ids=lambda d: str(d.name))
def test_reduce_extremes(target: Target, oracle: Target, dtype: DType) -> None:
  """The maximum of the lowest numbers is one of them; of a NaN and others, NaN; sums have all bits of their type."""
  low: Number = -math.inf if dtype.kind == "float" else dtypes.min(dtype)
  rows = [[low] * 6, [low, low, truncate(dtype, -2), low, low, low]]
  if dtype.kind == "float":
    rows += [[math.nan, 1.0, 2.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0, 3.0, math.nan]]
    rows += [[-1.0, -2.0, -1.5, -3.0, -2.0, -1.0]]
  else:
    rows += [[dtypes.max(dtype), 0, 0, 0, 0, 0], [truncate(dtype, -3)] * 6]
  i, r = UOp.range(len(rows), 0), UOp.range(6, 1, AxisType.REDUCE)
  value = param(2, dtype, 6 * len(rows)).index(i * 6 + r).load()
  ops = [Ops.MAX] if dtype.kind == "float" else [Ops.MAX, Ops.ADD]
  stores = [write(n, dtype, len(rows), i, value.reduce(op, r)) for n, op in enumerate(ops)]
  contents = [bytes(dtype.itemsize * len(rows))] * 2 + [pack(dtype, [number for row in rows for number in row])]
  look_at = (
    "what a reduction begins with: the lowest number of the type, infinities included; NaN; an accumulator too narrow"
  )
  compare(target, oracle, kernel("extremes", UOp.group(*stores).end(i)), contents, look_at=look_at)


@pytest.mark.parametrize("rows", (1, 5, 64))
@pytest.mark.parametrize("columns", (1, 7, 64, 300))
@pytest.mark.parametrize("by_row", (True, False), ids=("rows", "columns"))
def test_reduce_axis(target: Target, oracle: Target, rows: int, columns: int, by_row: bool) -> None:
  compare(target, oracle, standard.sums(rows, columns, int(by_row)))


@pytest.mark.parametrize(("m", "n", "k"), ((1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 65, 40)))
@pytest.mark.parametrize("dtype", (F, I, dtypes.float64), ids=lambda d: str(d.name))
def test_matmul(target: Target, oracle: Target, m: int, n: int, k: int, dtype: DType) -> None:
  compare(target, oracle, standard.matmul(m, n, k, dtype, dtype, dtype))


def test_softmax(target: Target, oracle: Target) -> None:
  compare(target, oracle, standard.softmax(5, 33), tolerance=32)


def test_reduce_inside_reduce(target: Target, oracle: Target) -> None:
  i = UOp.range(6, 0)
  r, s = UOp.range(5, 1, AxisType.REDUCE), UOp.range(4, 2, AxisType.REDUCE)
  inner = read(1, I, 120, i * 20 + r * 4 + s).reduce(Ops.MAX, s)
  compare(target, oracle, kernel("nested", write(0, I, 6, i, (inner * inner).reduce(Ops.ADD, r)).end(i)))


def test_reduce_over_two_loops(target: Target, oracle: Target) -> None:
  i, r, s = UOp.range(6, 0), UOp.range(5, 1, AxisType.REDUCE), UOp.range(4, 2, AxisType.REDUCE)
  value = read(1, F, 120, i * 20 + r * 4 + s).reduce(Ops.ADD, r, s)
  compare(target, oracle, kernel("two", write(0, F, 6, i, value).end(i)))


def test_gated_load(target: Target, oracle: Target) -> None:
  i = UOp.range(20, 0)
  place = i - 5
  gate = (i >= 5) & (i < 15)
  for name, alternative in (("zero", None), ("minus", UOp.const(F, -3.5))):
    load = param(1, F, 10).index(place, gate).load(alternative)
    compare(target, oracle, kernel(f"pad_{name}", write(0, F, 20, i, load).end(i)))


def test_gated_store(target: Target, oracle: Target) -> None:
  i = UOp.range(20, 0)
  value = read(1, I, 20, i)
  sink = kernel("select", write(0, I, 20, i, value * 10, value > 0).end(i))
  compare(target, oracle, sink, [pack(I, [77] * 20), small(I, 20)])


def test_gated_convolution(target: Target, oracle: Target) -> None:
  size, taps = 30, 5
  i, r = UOp.range(size, 0), UOp.range(taps, 1, AxisType.REDUCE)
  place = i + r - 2
  x = read(1, F, size, place, (place >= 0) & (place < size))
  value = (x * read(2, F, taps, r)).reduce(Ops.ADD, r)
  compare(target, oracle, kernel("convolve", write(0, F, size, i, value).end(i)))


def test_gather(target: Target, oracle: Target) -> None:
  i = UOp.range(50, 0)
  place = read(2, I, 50, i).cast(dtypes.index)
  gate = (place >= 0) & (place < 10)
  sink = kernel("gather", write(0, F, 50, i, read(1, F, 10, place, gate)).end(i))
  places = pack(I, [random.Random(3).randrange(-3, 13) for _ in range(50)])
  compare(target, oracle, sink, [bytes(200), small(F, 10), places])


def test_update_in_place(target: Target, oracle: Target) -> None:
  i = UOp.range(100, 0)
  here = param(0, F, 100).index(i)
  compare(target, oracle, kernel("update", here.store(here.load() * 2.0 + read(1, F, 100, i)).end(i)))


def test_two_outputs(target: Target, oracle: Target) -> None:
  i = UOp.range(37, 0)
  x = read(2, I, 37, i)
  both = UOp.group(write(0, I, 37, i, x + 1), write(1, I, 37, i, x * x))
  compare(target, oracle, kernel("both", both.end(i)))


def test_two_loops_one_after_the_other(target: Target, oracle: Target) -> None:
  i, j = UOp.range(20, 0), UOp.range(30, 1)
  first = write(0, I, 20, i, read(2, I, 30, i) + 1).end(i)
  second = write(1, I, 30, j, read(2, I, 30, j) * 2).end(j)
  compare(target, oracle, kernel("sequence", first, second))


@pytest.mark.parametrize(("rows", "columns"), ((1, 33), (5, 64)))
def test_memory_is_read_again(target: Target, oracle: Target, rows: int, columns: int) -> None:
  """A row is doubled where it is, then all of it is read."""
  size, row, j, k = rows * columns, UOp.range(rows, 0), UOp.range(columns, 1), UOp.range(columns, 2)
  r, kept = UOp.range(columns, 3, AxisType.REDUCE), param(1, I, size)
  own = kept.index(row * columns + j)
  doubled = kept.after(own.store(own.load() * 2).end(j))
  turned, every = (doubled.index(row * columns + place).load() for place in (columns - 1 - k, r))
  value = turned + every.reduce(Ops.ADD, r)
  sink = kernel("again", write(0, I, size, row * columns + k, value).end(k).end(row))
  compare(target, oracle, sink, look_at="threads that read what others have not written yet: the loops of a kernel in "
          "which something is written have ended before what it is written to is read AFTER them")  # fmt: skip


@pytest.mark.parametrize("n", (1, 2, 16, 31, 32))
def test_variable_extent(target: Target, oracle: Target, n: int) -> None:
  size = UOp.variable("n", 1, 32)
  i = UOp.range(size, 0)
  sink = kernel("variable", write(0, I, 32, i, read(1, I, 32, i) + 5).end(i))
  compare(target, oracle, sink, [pack(I, [-1] * 32), small(I, 32)], {"n": n})


@pytest.mark.parametrize("start", (0, 3, 24))
def test_variables_in_offsets_and_values(target: Target, oracle: Target, start: int) -> None:
  first, scale = UOp.variable("start", 0, 24), UOp.variable("a_scale", -5, 5)
  i, r = UOp.range(8, 0), UOp.range(first + 1, 1, AxisType.REDUCE)
  total = read(1, I, 32, r).reduce(Ops.ADD, r)
  value = read(1, I, 32, first + i) * scale.cast(I) + total
  sink = kernel("window", write(0, I, 8, i, value).end(i))
  compare(target, oracle, sink, values={"start": start, "a_scale": -2}, look_at=INTEGERS)


def test_many_variables(target: Target, oracle: Target) -> None:
  """Each has its own digit in the result, so that one that is lost, swapped or cut off shows."""
  names = ("e", "b", "g", "a", "f", "c", "d")
  total = UOp.const(I, 0)
  for power, name in enumerate(names):
    total = total + UOp.variable(name, -9, 9).cast(I) * 10**power
  sink = kernel("digits", write(0, I, 1, 0, total))
  values = {name: (power + 1) * (-1) ** power for power, name in enumerate(names)}
  compare(target, oracle, sink, values=values, look_at=INTEGERS)


def test_more_variables(target: Target, oracle: Target) -> None:
  total = UOp.const(I, 0)
  for n in range(24):
    total = total * 3 + UOp.variable(f"v{n:02}", -1, 1).cast(I)
  sink = kernel("more", write(0, I, 1, 0, total))
  compare(target, oracle, sink, values={f"v{n:02}": n % 3 - 1 for n in range(24)}, look_at=INTEGERS)


@pytest.mark.parametrize("value", (-1, 2**31 - 1, 2**31, 2**40 + 12345, -(2**35)))
def test_variables_beyond_32_bits(target: Target, oracle: Target, value: int) -> None:
  target.needs_types(dtypes.int64)
  big = UOp.variable("big", -(2**50), 2**50)
  sink = kernel("big", write(0, dtypes.int64, 1, 0, big.cast(dtypes.int64)))
  compare(target, oracle, sink, values={"big": value}, look_at=INTEGERS)


@pytest.mark.parametrize(("m", "n", "k"), ((4, 8, 6), (9, 5, 7)))
def test_stage(target: Target, oracle: Target, m: int, n: int, k: int) -> None:
  """A tile of an operand in local memory: equal to reading it directly."""
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  row = (read(1, F, m * k, i * k + r) * 2.0).stage(r)
  product = row * read(2, F, k * n, r * n + j)
  compare(target, oracle, kernel("staged", write(0, F, m * n, i * n + j, product.reduce(Ops.ADD, r)).end(i, j)))


@pytest.mark.parametrize("size", (1, 100))
def test_constant(target: Target, oracle: Target, size: int) -> None:
  compare(target, oracle, elementwise("fill", size, F, [], lambda: UOp.const(F, 1.25)))


def test_counter_as_value(target: Target, oracle: Target) -> None:
  i, j = UOp.range(7, 0), UOp.range(9, 1)
  compare(target, oracle, kernel("arange", write(0, I, 63, i * 9 + j, (i * 100 + j).cast(I)).end(i, j)))


def test_sum_of_many(target: Target) -> None:
  demand_accurate_sum(target, F, 100_003)


def test_sum_of_doubles(target: Target) -> None:
  """Of float64: accumulators have no fewer bits."""
  target.needs_types(dtypes.float64)
  demand_accurate_sum(target, dtypes.float64, 1003)


def demand_accurate_sum(target: Target, dtype: DType, size: int) -> None:
  """A long reduction keeps its accuracy within a bound that any order of summation meets."""
  r = UOp.range(size, 0, AxisType.REDUCE)
  sink = kernel("sum", write(0, dtype, 1, 0, read(1, dtype, size, r).reduce(Ops.ADD, r)))
  numbers: list[Number] = [random.Random(5).random() for _ in range(size)]
  data = pack(dtype, numbers)
  (got,) = unpack(dtype, target.run(sink, [bytes(dtype.itemsize), data])[0])
  want = math.fsum(unpack(dtype, data))
  bound = size * 2.0 ** -(FORMATS[dtype.name].mantissa + 1) * want
  what = f"a sum of {size} {dtype.name} numbers is further off than any order of summation makes it"
  expected = f"{want}, give or take {bound}"
  look_at = f"elements left out or counted twice; an accumulator that is narrower than {dtype.name}"
  demand(abs(got - want) <= bound, what, expected=expected, got=got, look_at=look_at, kernel=sink)


@pytest.mark.parametrize("seed", range(60))
def test_random_kernel(target: Target, oracle: Target, seed: int) -> None:
  sink, contents, values = random_kernel(seed)
  compare(target, oracle, sink, contents, values)
