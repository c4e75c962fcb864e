"""Performance counters as a GPU wrote them to memory: a block of 64-bit values, and which of them is what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from tiny_asm_amd.errors import TraceError

MAX_INSTANCES = 1 << 20


@dataclass(frozen=True)
class Counter:
  """One counter and where its values are: a 64-bit number for each instance of what counts, in the order of the parts
  from the largest to the smallest. `parts` are their names and numbers, `{"xcc": 1, "se": 6, "sa": 2, "wgp": 4}`;
  `offset` is in bytes."""

  name: str
  offset: int
  parts: dict[str, int]
  block: str = ""

  @property
  def instances(self) -> int:
    return math.prod(self.parts.values())

  def values(self, data: bytes | memoryview) -> dict[tuple[int, ...], int]:
    """The value of each instance, by its numbers. Raises TraceError where the block is too short."""
    count, end = self.instances, self.offset + 8 * self.instances
    if not 0 < count <= MAX_INSTANCES or self.offset < 0 or end > len(data):
      raise TraceError(
        f"{self.name}: {count} values from byte {self.offset} on do not fit a block of {len(data)} bytes"
      )
    read = bytes(data[self.offset : end])
    numbers = [int.from_bytes(read[n : n + 8], "little") for n in range(0, len(read), 8)]
    return dict(zip(product(*map(range, self.parts.values())), numbers))


def totals(counters: Sequence[Counter], data: bytes | memoryview) -> dict[str, int]:
  """The sum over all instances, by counter. Raises TraceError."""
  return {counter.name: sum(counter.values(data).values()) for counter in counters}
