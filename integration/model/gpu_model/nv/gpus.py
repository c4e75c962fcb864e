"""The GPUs that the model has, one of a generation."""

from __future__ import annotations

from dataclasses import dataclass

OLD_SIZES, NEW_SIZES = (0, 8, 16, 32, 64, 100), (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
VERSIONS = {"550": "550.163.01", "570": "570.211.01", "580": "580.126.09", "610": "610.43.02"}
"""The drivers that the model can be, by the first number of their version."""
OLDER = {"550": {"NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS": 2}}
"""Bytes of structures that were shorter: `bSkipEnable` came later (from memory)."""


@dataclass(frozen=True)
class Chip:
  """`classes`: usermode, channel, compute, copies; `sm`: the compute capability, two digits or three; `shape`: GPCs,
  TPCs in each, SMs in each, warps of an SM; `configurations`: of an SM's shared memory, in KiB; `parameters`: where
  constant bank 0 has a kernel's; `windows`: where it has the windows of shared and local memory; `sizes`: where it
  has the threads and the blocks of a launch; `reserved`: bytes of shared memory of a block that the system keeps."""

  name: str
  arch: str
  sm: int
  classes: tuple[str, str, str, str]
  shape: tuple[int, int, int, int]
  configurations: tuple[int, ...]
  most_shared: int
  parameters: int
  windows: tuple[int, int]
  device_id: int
  sizes: tuple[int, int] = (0, 12)
  reserved: int = 0

  @property
  def host_bits(self) -> int:
    """How many bits an address has in a channel's semaphores."""
    return 57 if self.classes[1] >= "c86f" else 40


CHIPS = {
  chip.name: chip
  for chip in (
    Chip("TU102", "sm_75", 75, ("c461", "c46f", "c5c0", "c5b5"), (6, 6, 2, 32), (32, 64), 64, 0x160, (0x18, 0x20),
         0x1E04),
    Chip("GA102", "sm_86", 86, ("c561", "c56f", "c7c0", "c7b5"), (7, 6, 2, 48), OLD_SIZES, 99, 0x160, (0x18, 0x20),
         0x2204),
    Chip("AD102", "sm_89", 89, ("c561", "c56f", "c9c0", "c7b5"), (12, 6, 2, 48), OLD_SIZES, 99, 0x160, (0x18, 0x20),
         0x2684),
    Chip("GH100", "sm_90a", 90, ("c661", "c86f", "cbc0", "c8b5"), (8, 9, 2, 64), NEW_SIZES, 227, 0x210, (0x18, 0x20),
         0x2335, (0, 12), 1024),
    Chip("GB202", "sm_120", 120, ("c761", "ca6f", "cec0", "cab5"), (12, 8, 2, 48), OLD_SIZES, 99, 0x380, (0x2F0, 0x2F8),
         0x2B85, (0x360, 0x370), 1024),
  )
}  # fmt: skip
"""Quadro RTX 8000's, GeForce RTX 3090's, 4090's, H200's and 5090's. (In gpu-hardware.md and from ptxas: places in the
constant bank; the programming guide of CUDA, appendix of compute capabilities: sizes of shared memory.)"""
