"""Private memory: what kernels spill to, for every wave that may run at once.

Source: COMPUTE_TMPRING_SIZE in the register references of Linux's amdgpu (gc_9_4_3, gc_11_0_0, gc_12_0_0), and how
ROCm's runtime fills it in. Nothing of it was tried on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiny_runtime_amd.arch import Arch
from tiny_runtime_amd.gpus import Gpu

WAVE = 64
"""Threads of a wave here, also where a kernel's have 32: then half of it is not used."""
WAVES_BITS = 12
SWIZZLED, LANES_64, ADD_LANE = 1 << 31, 3 << 21, 1 << 23
"""Of a buffer's descriptor before gfx940: SWIZZLE_ENABLE in its second word, INDEX_STRIDE and ADD_TID_ENABLE in its
last one. Elements have 4 bytes."""


@dataclass(frozen=True)
class Scratch:
  """Sizes of scratch memory: `lane_bytes` a thread, `die_bytes` a compute die, `nbytes` in all, and the register that
  tells the hardware."""

  lane_bytes: int
  die_bytes: int
  nbytes: int
  register: int
  buffer: bool = False
  """Kernels ask for a descriptor of it."""

  def words(self, address: int) -> tuple[int, int, int, int]:
    """The descriptor of a buffer of scratch memory at an address, as LLVM makes one where no runtime does
    (`getScratchRsrcWords23`): words of 64 lanes side by side, a lane adds its number; zeros where kernels ask for
    none."""
    if not self.buffer:
      return 0, 0, 0, 0
    return address & 0xFFFFFFFF, address >> 32 | SWIZZLED, self.die_bytes, LANES_64 | ADD_LANE


def scratch_for(arch: Arch, gpu: Gpu, private_bytes: int, most: int) -> Scratch:
  """Scratch memory for kernels with so many bytes a thread, of at most `most` bytes; then fewer waves run at once.
  Raises ValueError where not one wave of each shader engine would fit."""
  unit, size_bits, per_engine = (1024, 13, False) if arch.major == 9 else (256, 15 if arch.major == 11 else 18, True)
  wave_bytes = -(-private_bytes * WAVE // unit) * unit
  # the register counts waves in each shader engine on RDNA, else in each compute die, whose engines share them equally
  engines = gpu.engines // gpu.dies
  unit_waves, room = gpu.units // gpu.dies * gpu.scratch_waves, most // gpu.dies // wave_bytes
  waves = min(unit_waves // engines, room // engines, ((1 << WAVES_BITS) - 1) // (1 if per_engine else engines))
  if wave_bytes // unit >= 1 << size_bits or waves < 1:
    raise ValueError(
      f"{private_bytes} bytes of private memory a thread are more than this GPU has: {most} bytes in all"
    )
  counted, die_bytes = waves if per_engine else waves * engines, waves * engines * wave_bytes
  register = counted | wave_bytes // unit << WAVES_BITS
  return Scratch(wave_bytes // WAVE, die_bytes, die_bytes * gpu.dies, register, arch.private_buffer)
