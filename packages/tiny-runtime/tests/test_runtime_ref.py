"""The reference backend, against values worked out here and not by it."""

from __future__ import annotations

import gc
import linecache
import math
import struct

import pytest

from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.errors import CompileError, OutOfMemory, Unavailable
from tiny_runtime.ref import BACKEND, RefCompiler, RefDevice
from tiny_runtime.ref.device import RefMemory
from tiny_runtime.ref.generate import generate
from tiny_uop import AxisType, DType, KernelInfo, Ops, UOp, dtypes

F, I = dtypes.float32, dtypes.int32  # noqa: E741


def param(slot: int, dtype: DType, size: int) -> UOp:
  return UOp.param(slot, dtype.ptr(size))


def sink(*effects: UOp) -> UOp:
  return UOp.sink(*effects, arg=KernelInfo("test"))


def run(kernel: UOp, *contents: bytes, **values: int) -> list[bytes]:
  return Target("REF", BACKEND, "").run(kernel, contents, values)


def ints(data: bytes) -> list[int]:
  return list(struct.unpack(f"{len(data) // 4}i", data))


def test_matrix_product() -> None:
  m, n, k = 3, 4, 5
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  a_element, b_element = param(1, I, m * k).index(i * k + r).load(), param(2, I, k * n).index(r * n + j).load()
  product = (a_element * b_element).reduce(Ops.ADD, r)
  kernel = sink(param(0, I, m * n).index(i * n + j).store(product).end(i, j))
  a, b = [x * 7 % 11 - 5 for x in range(m * k)], [x * 5 % 13 - 6 for x in range(k * n)]
  out = run(kernel, bytes(4 * m * n), struct.pack("15i", *a), struct.pack("20i", *b))[0]
  assert ints(out) == [sum(a[y * k + z] * b[z * n + x] for z in range(k)) for y in range(m) for x in range(n)]


def test_each_step_is_rounded_to_the_type() -> None:
  i = UOp.range(1, 0)
  x = param(1, F, 1).index(i).load()
  kernel = sink(param(0, F, 1).index(i).store(x + 1.0 + -1.0).end(i))
  (tiny,) = struct.unpack("f", run(kernel, bytes(4), struct.pack("f", 2.0**-30))[0])
  assert tiny == 0.0  # in float64 it would have survived
  byte = sink(param(0, dtypes.uint8, 1).index(i).store(param(1, dtypes.uint8, 1).index(i).load() + 200).end(i))
  assert run(byte, bytes(1), bytes([100]))[0] == bytes([44])


def test_a_function_is_freed_with_its_lines() -> None:
  loop = UOp.range(4, 0)
  function = generate(sink(param(0, I, 4).index(loop).store(param(1, I, 4).index(loop).load()).end(loop)))
  name = function.call.__code__.co_filename
  assert any("def kernel" in line for line in linecache.getlines(name))
  gc.disable()
  try:
    del function
    assert not linecache.getlines(name), "the function holds itself, or its lines are kept for ever"
  finally:
    gc.enable()


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: str(d.name))
def test_narrow_floats_go_through_memory(dtype: DType) -> None:
  values = [1.5, -0.25, math.nan, 0.0]
  i = UOp.range(4, 0)
  kernel = sink(param(0, dtype, 4).index(i).store(param(1, dtype, 4).index(i).load() * 2.0).end(i))
  got = unpack(dtype, run(kernel, bytes(4 * dtype.itemsize), pack(dtype, values))[0])
  assert got[:2] == [3.0, -0.5] and got[2] != got[2] and got[3] == 0.0


def test_gate_and_alternative() -> None:
  i = UOp.range(6, 0)
  inside = param(1, I, 4).index(i - 1, (i >= 1) & (i < 5))
  zero = sink(param(0, I, 6).index(i).store(inside.load()).end(i))
  assert ints(run(zero, bytes(24), struct.pack("4i", 1, 2, 3, 4))[0]) == [0, 1, 2, 3, 4, 0]
  other = sink(param(0, I, 6).index(i).store(inside.load(UOp.const(I, 9))).end(i))
  assert ints(run(other, bytes(24), struct.pack("4i", 1, 2, 3, 4))[0]) == [9, 1, 2, 3, 4, 9]


def test_loops_that_share_a_range_are_separate() -> None:
  """The same RANGE closed twice is two loops; a REDUCE over a loop that is open outside too has its own counter."""
  r = UOp.range(4, 0, AxisType.REDUCE)
  x = param(2, I, 4).index(r).load()
  total, highest = x.reduce(Ops.ADD, r), x.reduce(Ops.MAX, r)
  kernel = sink(param(0, I, 1).index(0).store(total * highest), param(1, I, 4).index(r).store(x + total).end(r))
  first, second, _ = run(kernel, bytes(4), bytes(16), struct.pack("4i", 1, 5, 2, 3))
  assert (ints(first), ints(second)) == ([55], [12, 16, 13, 14])


def test_reads_after_a_store_see_it() -> None:
  i, j = UOp.range(4, 0), UOp.range(4, 1)
  target = param(0, I, 4)
  filled = target.after(target.index(i).store(i.cast(I) * 10).end(i))
  kernel = sink(param(1, I, 4).index(j).store(filled.index(-j + 3).load() + 1).end(j))
  assert ints(run(kernel, bytes(16), bytes(16))[1]) == [31, 21, 11, 1]


def test_local_memory() -> None:
  from tiny_uop import AddrSpace

  near = UOp.alloc(0, I.ptr(4, AddrSpace.LOCAL))
  i, j = UOp.range(4, 0), UOp.range(4, 1)
  filled = near.after(near.index(i).store(param(1, I, 4).index(i).load() * 2).end(i))
  kernel = sink(param(0, I, 4).index(j).store(filled.index(-j + 3).load()).end(j))
  assert ints(run(kernel, bytes(16), struct.pack("4i", 1, 2, 3, 4))[0]) == [8, 6, 4, 2]


def test_an_empty_loop_and_an_empty_reduction() -> None:
  n = UOp.variable("n", 0, 4)
  i, r = UOp.range(2, 0), UOp.range(n, 1, AxisType.REDUCE)
  value = param(1, I, 4).index(r).load()
  for op, empty in ((Ops.ADD, 0), (Ops.MUL, 1), (Ops.MAX, -(2**31))):
    kernel = sink(param(0, I, 2).index(i).store(value.reduce(op, r)).end(i))
    assert ints(run(kernel, bytes(8), struct.pack("4i", 2, 3, 4, 5), n=0)[0]) == [empty, empty]


@pytest.mark.parametrize(("shift", "message"), ((1, "read element 4 of buffer 1"), (-1, "read element -1 of buffer 1")))
def test_reading_outside_a_buffer_is_an_error_that_names_it(shift: int, message: str) -> None:
  i = UOp.range(4, 0)
  kernel = sink(param(0, I, 4).index(i).store(param(1, I, 4).index(i + shift).load()).end(i))
  with pytest.raises(IndexError, match=message):
    run(kernel, bytes(16), bytes(16))


def test_writing_outside_a_buffer_is_an_error_that_names_it() -> None:
  i = UOp.range(5, 0)
  with pytest.raises(IndexError, match="write element 4 of buffer 0, which has 4 elements"):
    run(sink(param(0, I, 4).index(i).store(1).end(i)), bytes(16))


def test_depth_is_no_limit() -> None:
  i = UOp.range(2, 0)
  value = param(1, I, 2).index(i).load()
  for step in range(5000):
    value = value * 3 + step
  kernel = sink(param(0, I, 2).index(i).store(value).end(i))
  expected = [1, 2]
  for step in range(5000):
    expected = [(v * 3 + step) % 2**32 for v in expected]
  assert [v % 2**32 for v in ints(run(kernel, bytes(8), struct.pack("2i", 1, 2))[0])] == expected


def refused(kernel: UOp) -> str:
  with pytest.raises(CompileError) as caught:
    RefCompiler().compile(kernel)
  return str(caught.value)


def test_what_is_no_kernel_is_refused_with_a_reason() -> None:
  stray, output = UOp.range(4, 9), param(0, F, 4)
  assert "not open" in refused(sink(output.index(stray).store(1.0)))
  vector = UOp.const(F.vec(2), (1.0, 2.0))
  assert "scalars" in refused(sink(output.index(0).store(vector)))
  assert "RANGE" in refused(sink(output.index(0).store(1.0).end(UOp.const(dtypes.index, 3))))
  assert "not an effect" in refused(sink(UOp.const(F, 1.0)))


def test_a_kernel_brings_no_text_into_the_function() -> None:
  """Names in a kernel are data."""
  evil = UOp.variable("__import__('os')._exit(1)", 0, 3)
  binary = RefCompiler().compile(
    UOp.sink(param(0, I, 1).index(0).store(evil.cast(I)), arg=KernelInfo("x):\n  raise SystemExit"))
  )
  assert "import" not in binary.source and "SystemExit" not in binary.source
  target = Target("REF", BACKEND, "")
  assert ints(target.run_binary(binary, [bytes(4)], {"__import__('os')._exit(1)": 2})[0]) == [2]


def test_description_of_the_kernel() -> None:
  i, r = UOp.range(6, 0), UOp.range(10, 1, AxisType.REDUCE)
  value = (param(3, F, 60).index(i * 10 + r).load() * 2.0).reduce(Ops.ADD, r)
  binary = RefCompiler().compile(sink(param(1, F, 6).index(i).store(value).end(i)))
  assert [(p.slot, p.size, p.written, p.read) for p in binary.params] == [(1, 6, True, False), (3, 60, False, True)]
  assert (binary.ops.vmax, binary.nbytes.vmax) == (120, 264)


def test_arguments_are_checked() -> None:
  device, binary = RefDevice(), RefCompiler().compile(sink(param(0, I, 4).index(0).store(1)))
  program, memory, one = device.load(binary), device.alloc(16), (1, 1, 1)
  wrong: list[tuple[list[tuple[RefMemory, int]], list[int], str]] = [
    ([], [], "takes 1 buffers, got 0"),
    ([(memory, 0)], [1], "takes the integers"),
  ]
  for buffers, integers, message in wrong:
    with pytest.raises(ValueError, match=message):
      device.launch(program, buffers, integers, one, one, True)
  with pytest.raises(ValueError, match="outside this memory of 16 bytes"):
    device.launch(program, [(memory, 4)], [], one, one, True)
  device.free(memory)
  with pytest.raises(ValueError, match="was freed"):
    device.launch(program, [(memory, 0)], [], one, one, True)


def test_memory() -> None:
  device = RefDevice()
  with pytest.raises(OutOfMemory, match="in use"):
    device.alloc(1 << 40)
  memory, out = device.alloc(4), bytearray(4)
  device.read(memory, 0, memoryview(out))
  assert out == b"\xff" * 4, "what was never written must show"
  device.free(memory)
  assert device.used == 0
  with pytest.raises(Unavailable, match="REF:8 does not exist: there are 8, numbered from 0"):
    BACKEND.open(8)
  with pytest.raises(ValueError, match="unknown arch"):
    BACKEND.compiler("sparc")
