"""What differs from one generation of GPUs to the next, as rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tiny_runtime_nv.kernel_driver.tables import constant

USERMODE = ("BLACKWELL_USERMODE_A", "HOPPER_USERMODE_A", "AMPERE_USERMODE_A", "TURING_USERMODE_A")
CHANNEL = (
  "BLACKWELL_CHANNEL_GPFIFO_B", "BLACKWELL_CHANNEL_GPFIFO_A", "HOPPER_CHANNEL_GPFIFO_A", "AMPERE_CHANNEL_GPFIFO_A",
  "TURING_CHANNEL_GPFIFO_A",
)  # fmt: skip
COPY = (
  "BLACKWELL_DMA_COPY_B", "BLACKWELL_DMA_COPY_A", "HOPPER_DMA_COPY_A", "AMPERE_DMA_COPY_B", "AMPERE_DMA_COPY_A",
  "TURING_DMA_COPY_A",
)  # fmt: skip
"""Classes from the newest on: of those that a GPU has the first is used."""


@dataclass(frozen=True)
class Generation:
  """A class of compute engines."""

  compute: str
  qmd: str
  """Version of the structure that describes a launch."""
  shared: tuple[int, ...]
  """KiB of shared memory that a multiprocessor can have set aside ("CUDA C++ Programming Guide", 16)."""
  reserved: int = 1024
  """Bytes of shared memory that the system takes of each block, beside what a cubin declares."""
  windows: int = 0x18
  """Where constant bank 0 has the addresses of the windows to shared and local memory, 64 bits each."""
  stack: int = 0x28
  """Where constant bank 0 has the stack pointer, 32 bits."""
  sizes: tuple[int, int] = (0, 0xC)
  """Where constant bank 0 has the threads of a block and the blocks of a grid (`%ntid`, `%nctaid`), 32 bits each."""
  action: bool = True
  """Launches are told by SEND_SIGNALING_PCAS2_B."""


SMALL, LARGE = (8, 16, 32, 64, 100), (8, 16, 32, 64, 100, 132, 164)
HOPPER = (*LARGE, 196, 228)
GENERATIONS = (
  Generation("BLACKWELL_COMPUTE_B", "5.0", SMALL, 0, 0x2F0, 0x37C, (0x360, 0x370)),
  Generation("BLACKWELL_COMPUTE_A", "5.0", HOPPER, 0, 0x2F0, 0x37C, (0x360, 0x370)),
  Generation("HOPPER_COMPUTE_A", "4.0", HOPPER, 0),
  Generation("ADA_COMPUTE_A", "3.0", SMALL),
  Generation("AMPERE_COMPUTE_B", "3.0", SMALL),
  Generation("AMPERE_COMPUTE_A", "3.0", LARGE),
  Generation("TURING_COMPUTE_A", "2.3", (32, 64), 0, action=False),
)
"""The newest first. Where constant bank 0 has what is from tinygrad (MIT), which ran it on Ampere, Ada and Blackwell;
that the stack pointer and sizes are there, ptxas shows in what kernels read."""


def newest(names: Collection[str], classes: Collection[int]) -> str | None:
  """The first class of a list that a GPU has."""
  return next((name for name in names if constant(name) in classes), None)


def generation_of(classes: Collection[int]) -> Generation | None:
  """The row of a GPU, by its classes; None if none is known."""
  return next((row for row in GENERATIONS if constant(row.compute) in classes), None)
