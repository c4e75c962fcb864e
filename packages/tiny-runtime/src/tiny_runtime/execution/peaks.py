"""What a device can do at most, as our own kernels find it: a matrix product of float32, and a sum of two arrays."""

from __future__ import annotations

from functools import cache

from tiny_runtime.devices import Device
from tiny_runtime.execution.launch import load_kernel
from tiny_runtime.opened import OpenDevice
from tiny_runtime.profiling.recording import Peaks
from tiny_uop import AxisType, KernelInfo, Ops, UOp, dtypes
from tiny_uop.context import Context

SECONDS = 0.02
"""What one measurement may take, at the rates that a profile has seen."""
LARGEST, SMALLEST = 1024, 64
"""Rows of the product."""
MOST_BYTES, LEAST_BYTES = 192 << 20, 1 << 20
"""Of the sum: more than caches hold."""


def product(n: int) -> UOp:
  """C = A · B of n × n elements."""
  i, j, k = UOp.range(n, 0), UOp.range(n, 1), UOp.range(n, 2, AxisType.REDUCE)
  c, a, b = (UOp.param(slot, dtypes.float32.ptr(n * n)) for slot in range(3))
  terms = a.index(i * n + k).load() * b.index(k * n + j).load()
  total = UOp(Ops.REDUCE, dtypes.float32, (terms, k), (Ops.ADD, ()))
  return UOp.sink(c.index(i * n + j).store(total).end(i, j), arg=KernelInfo(f"peak_product_{n}"))


def total(n: int) -> UOp:
  """c = a + b of n elements."""
  i = UOp.range(n, 0)
  c, a, b = (UOp.param(slot, dtypes.float32.ptr(n)) for slot in range(3))
  sums = a.index(i).load() + b.index(i).load()
  return UOp.sink(c.index(i).store(sums).end(i), arg=KernelInfo(f"peak_sum_{n}"))


@cache
def measured(name: str, rows: int, elements: int) -> Peaks | None:
  """The rates of a device, found once in a process."""
  opened = Device.opened(name)
  if opened.compiler is None:
    return None
  with Context(DEBUG=0, BEAM=0, VIZ=0, PROFILE=0):  # it is no part of the program, and a trace of it may be closed
    computing = _seconds(opened, product(rows), rows * rows)
    moving = _seconds(opened, total(elements), elements)
  return Peaks(2 * rows**3 / computing, 12 * elements / moving)


def _seconds(opened: OpenDevice, kernel: UOp, elements: int) -> float:
  """What the fastest of some launches takes, over three buffers of so many elements."""
  loaded = load_kernel(kernel, opened)
  memories = [opened.alloc(4 * elements) for _ in range(3)]
  try:
    for memory in memories:
      opened.write(memory, 0, memoryview(bytes(4 * elements)))
    buffers = [(memories[param.slot], 0) for param in loaded.binary.params]
    global_size, local_size, _, _ = loaded.sizes({})
    arguments = loaded.name, loaded.program, buffers, (), global_size, local_size, True
    return min([opened.launch(*arguments) or 1.0 for _ in range(5)])
  finally:
    for memory in memories:
      opened.release(memory, 4 * elements)


def peaks(name: str, ops_per_s: float, bytes_per_s: float) -> Peaks | None:
  """The peaks of a device, on which a profile has seen these rates; None where it is too slow to measure, or fails."""
  rows = LARGEST
  while rows >= SMALLEST and 2 * rows**3 > ops_per_s * SECONDS:
    rows //= 2
  elements = MOST_BYTES // 12
  while 12 * elements >= LEAST_BYTES and 12 * elements > bytes_per_s * SECONDS:
    elements //= 2
  if rows < SMALLEST or 12 * elements < LEAST_BYTES:
    return None
  try:
    return measured(name, rows, elements)
  except RuntimeError:  # no such device any more, or no room
    return None
