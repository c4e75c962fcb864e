"""Times candidates of a searching compiler (BEAM) on a device."""

from __future__ import annotations

from tiny_runtime.binary import Binary
from tiny_runtime.contract import Measure
from tiny_runtime.opened import OpenDevice
from tiny_uop import UOp, evaluate

REPEATS = 3


def measure_on(opened: OpenDevice) -> Measure:
  """A function that gives the least time in seconds of a few launches of a binary, over scratch buffers, variables at
  their maximum."""

  def measure(binary: Binary) -> float:
    values = largest(binary)
    sizes = [p.size * p.dtype.scalar().itemsize for p in binary.params]
    memory = [(opened.alloc(size), 0) for size in sizes]
    try:
      for (handle, _), size in zip(memory, sizes):
        if size:
          opened.write(handle, 0, memoryview(bytes(size)))
      program = opened.load(binary)
      grid, group = ([number(size, values) for size in part] for part in (binary.global_size, binary.local_size))
      integers = [values[name] for name in binary.variables]
      times = [
        opened.launch(binary.entry, program, memory, integers, tuple(grid), tuple(group), True) for _ in range(REPEATS)
      ]
      return min(time for time in times if time is not None)
    finally:
      for (handle, _), size in zip(memory, sizes):
        opened.release(handle, size)

  return measure


def largest(binary: Binary) -> dict[str, int]:
  """Every variable of a binary at its maximum, where it is known; 1 where only the kernel's body uses it."""
  found = dict.fromkeys(binary.variables, 1)
  for size in (*binary.global_size, *binary.local_size, binary.ops, binary.nbytes):
    found |= {variable.arg[0]: int(variable.arg[2]) for variable in size.variables}
  return found


def number(size: UOp, values: dict[str, int]) -> int:
  """A launch size as an int."""
  value = evaluate(size, values)
  assert not isinstance(value, tuple)
  return int(value)
