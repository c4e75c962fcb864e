"""Kernels to launch by hand, for cases about order, memory and time rather than about results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.target import Target, launch_size
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.contract import Memory
from tiny_uop import UOp, dtypes

I = dtypes.int32  # noqa: E741


class Loaded:
  """A kernel, compiled and loaded. Call it to launch it: memories in slot order, or (memory, byte offset)."""

  def __init__(self, target: Target, kernel: UOp) -> None:
    self.target, self.kernel = target, kernel
    self.binary = target.compile(kernel)
    self.program = target.device.load(self.binary)

  def __call__(self, *memories: Memory | tuple[Memory, int], wait: bool = False, **values: int) -> float | None:
    binary = self.binary
    buffers = [memories[p.slot] for p in binary.params]
    return self.target.device.launch(
      self.program,
      [buffer if isinstance(buffer, tuple) else (buffer, 0) for buffer in buffers],
      [values[name] for name in binary.variables],
      launch_size(binary.global_size, values),
      launch_size(binary.local_size, values),
      wait,
    )


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
