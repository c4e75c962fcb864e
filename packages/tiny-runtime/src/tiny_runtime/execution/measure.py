"""Times candidates of a searching compiler (BEAM) on a device."""

from __future__ import annotations

import math

from tiny_runtime.binary import Binary
from tiny_runtime.compile_cache import Timer
from tiny_runtime.opened import OpenDevice

REPEATS, MOST_REPEATS = 3, 100
LEAST_SECONDS, MOST_SECONDS = 0.005, 0.5


def measure_on(opened: OpenDevice) -> Timer:
  """A function that gives the least time in seconds of a few launches of a binary, over scratch buffers, variables at
  their maximum: of more than `REPEATS` until they took `LEAST_SECONDS` together, of fewer once they took
  `MOST_SECONDS`."""

  def timer(binary: Binary) -> float:
    values = largest(binary)
    sizes = [p.size * p.dtype.scalar().itemsize for p in binary.params]
    memory = [(opened.alloc(size), 0) for size in sizes]
    try:
      for (handle, _), size in zip(memory, sizes):
        if size:
          opened.write(handle, 0, memoryview(bytes(size)))
      program = opened.load(binary)
      grid, group, _, _ = binary.sizes(values)
      integers = [values[name] for name in binary.variables]
      times: list[float] = []
      while sum(times) < (LEAST_SECONDS if len(times) >= REPEATS else MOST_SECONDS) and len(times) < MOST_REPEATS:
        seconds = opened.launch(binary.entry, program, memory, integers, grid, group, True)
        times.append(math.inf if seconds is None else seconds)
      return min(times)
    finally:
      for (handle, _), size in zip(memory, sizes):
        opened.release(handle, size)

  return timer


def largest(binary: Binary) -> dict[str, int]:
  """Every variable of a binary at its maximum, where it is known; 1 where only the kernel's body uses it."""
  found = dict.fromkeys(binary.variables, 1)
  for size in (*binary.global_size, *binary.local_size, binary.ops, binary.nbytes):
    found |= {variable.arg[0]: int(variable.arg[2]) for variable in size.variables}
  return found
