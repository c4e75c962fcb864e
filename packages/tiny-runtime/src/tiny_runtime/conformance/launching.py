"""Kernels to launch by hand, for cases about order, memory and time rather than about results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tiny_runtime.binary import Binary
from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.contract import GraphKernel, Memory
from tiny_uop import UOp, dtypes

I = dtypes.int32  # noqa: E741


class Loaded:
  """A kernel, compiled and loaded. Call it to launch it: memories in slot order, or (memory, byte offset)."""

  def __init__(self, target: Target, kernel: UOp, binary: Binary | None = None) -> None:
    self.target, self.kernel = target, kernel
    self.binary = binary or target.compile(kernel)
    self.program = target.device.load(self.binary)
    self.sizes = None if self.binary.variables else self.binary.sizes({})

  def call(self, *places: tuple[Any, int], **values: int) -> GraphKernel:
    """A launch as a call of a graph: its buffers in slot order, each (memory or its position, byte offset)."""
    used, integers = (places[p.slot] for p in self.binary.params), (values[name] for name in self.binary.variables)
    return GraphKernel(self.program, tuple(used), tuple(integers), *(self.sizes or self.binary.sizes(values))[:2])

  def __call__(self, *memories: Memory | tuple[Memory, int], wait: bool = False, **values: int) -> float | None:
    call = self.call(*[memory if isinstance(memory, tuple) else (memory, 0) for memory in memories], **values)
    launch = self.target.device.launch
    return launch(self.program, call.buffers, call.integers, call.global_size, call.local_size, wait)


@contextmanager
def memories(target: Target, *contents: Sequence[int]) -> Iterator[list[Memory]]:
  """New memories that hold these int32 numbers; freed at the end, those that the list still has."""
  held = [filled(target, numbers) for numbers in contents]
  try:
    yield held
  finally:
    target.device.sync()
    for memory in held:
      target.device.free(memory)


def filled(target: Target, numbers: Sequence[int]) -> Memory:
  """New memory that holds these int32 numbers."""
  memory = target.device.alloc(4 * len(numbers))
  target.device.write(memory, 0, memoryview(pack(I, numbers)))
  return memory


def numbers_in(target: Target, memory: Memory, count: int) -> list[int]:
  """The first int32 numbers of a memory."""
  out = bytearray(4 * count)
  target.device.read(memory, 0, memoryview(out))
  return [int(number) for number in unpack(I, bytes(out))]


def demand_numbers(
  target: Target, memory: Memory, expected: Sequence[int], what: str, look_at: str, kernel: UOp | None = None
) -> None:
  """Raise Misbehaved, which says `what`, where a memory does not hold these numbers."""
  got = numbers_in(target, memory, len(expected))
  wrong = [n for n, (g, e) in enumerate(zip(got, expected)) if g != e]
  if wrong:
    first = wrong[0]
    demand(
      False,
      f"{what}: {len(wrong)} of {len(expected)} numbers are wrong, the first at {first}",
      expected=list(expected[first : first + 8]),
      got=got[first : first + 8],
      look_at=look_at,
      kernel=kernel,
    )


def demand_seconds(seconds: float | None, what: str, look_at: str = "") -> None:
  """Raise Misbehaved where the time that a call gave with `wait` is none that it can have taken."""
  right = isinstance(seconds, float) and 0 < seconds < 60
  demand(right, f"{what} with wait=True", expected="between 0 and 60 seconds", got=seconds, look_at=look_at)
