"""What handles and numbers of the model of KFD stand for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

GPU_ID = 0x4A2B
"""Of the first GPU; those of the others are the next numbers."""


def ticks() -> int:
  """The GPU's clock: 100 MHz."""
  return time.perf_counter_ns() // 10


@dataclass(frozen=True)
class Facts:
  """A GPU. `properties` are those of sysfs; `stack`, `groups` and `debugger` bytes of the area where a compute die
  saves waves; `scratch`: the unit of the register for private memory, the shader engines of a die, and whether it
  counts the waves of an engine, or of a die."""

  version: int
  wave: int
  properties: dict[str, int]
  stack: int
  groups: int
  debugger: int
  dies: int
  last_unit: int
  last_wave: int
  scratch: tuple[int, int, bool]


GPUS = {
  "gfx942": Facts(
    90402, 64,
    {"simd_count": 1216, "max_waves_per_simd": 8, "array_count": 32, "simd_arrays_per_engine": 1, "simd_per_cu": 4,
     "num_xcc": 8},
    12288, 23191552, 48640, 8, 303, 31, (1024, 4, False),
  ),
  "gfx90a": Facts(
    90010, 64,
    {"simd_count": 440, "max_waves_per_simd": 8, "array_count": 8, "simd_arrays_per_engine": 1, "simd_per_cu": 4,
     "num_xcc": 1},
    36864, 67133440, 131072, 1, 109, 31, (1024, 8, False),
  ),
  "gfx1100": Facts(
    110000, 32,
    {"simd_count": 192, "max_waves_per_simd": 16, "array_count": 12, "simd_arrays_per_engine": 2, "simd_per_cu": 2,
     "num_xcc": 1},
    40960, 46006272, 98304, 1, 95, 31, (256, 6, True),
  ),
  "gfx1201": Facts(
    120001, 32,
    {"simd_count": 128, "max_waves_per_simd": 16, "array_count": 8, "simd_arrays_per_engine": 2, "simd_per_cu": 2,
     "num_xcc": 1},
    28672, 30670848, 65536, 1, 63, 31, (256, 4, True),
  ),
  "gfx950": Facts(
    90500, 64,
    {"simd_count": 1024, "max_waves_per_simd": 8, "array_count": 32, "simd_arrays_per_engine": 1, "simd_per_cu": 4,
     "num_xcc": 8, "lds_size_in_kb": 160},
    12288, 22675456, 40960, 8, 255, 31, (1024, 4, False),
  ),
}  # fmt: skip
"""Instinct MI300X, with 38 compute units in each of 8 dies, in 4 engines; a die of MI250X, with 110; Radeon RX
7900 XTX, with 96 in 6 engines; Radeon RX 9070 XT, with 64 in 4; Instinct MI350X, with 32 in each of 8 dies."""


class Blocked(Exception):
  """A packet waits for a signal of another queue."""


class Refusal(Exception):
  """A request ends with this number of errno."""

  @property
  def number(self) -> int:
    """It."""
    return int(self.args[0])


class Misuse(Exception):
  """A request, or a packet, is as the manual says that it must not be."""


@dataclass
class Buffer:
  """Memory of a GPU. `mapped`: the GPUs that can use it; `seen`: the host has mapped it."""

  handle: int
  gpu_id: int
  address: int
  size: int
  flags: int
  mapped: set[int] = field(default_factory=set)
  seen: bool = False

  @property
  def executable(self) -> bool:
    """Whether code may be in it."""
    return bool(self.flags >> 30 & 1)


@dataclass
class Event:
  """What can be waited for; `data` once it is set."""

  kind: int
  data: bytes | None = None
  auto_reset: bool = False


@dataclass(eq=False)
class Queue:
  """A queue. `slot`: of its doorbell in the process's; `places`: the buffers that it is made of."""

  number: int
  gpu_id: int
  ring: int
  ring_bytes: int
  write_pointer: int
  read_pointer: int
  slot: int
  places: set[int] = field(default_factory=set)
  saved: int = 0
  """Where its waves are saved."""
  copies: bool = False
  """It is a DMA engine's: `taken` counts bytes."""
  doorbell: int = 0
  taken: int = 0
  stopped: bool = False
  ended: bool = True
  """The last packet that was taken signalled that all is done."""
