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


@dataclass(frozen=True)
class Scratch:
  """Sizes of scratch memory: `lane_bytes` a thread, `nbytes` in all, and the register that tells the hardware."""

  lane_bytes: int
  nbytes: int
  register: int


def scratch_for(arch: Arch, gpu: Gpu, private_bytes: int, most: int) -> Scratch:
  """Scratch memory for kernels with so many bytes a thread, of at most `most` bytes; then fewer waves run at once.
  Raises ValueError where not one wave of each part of the GPU would fit."""
  unit, size_bits, per_engine = (1024, 13, False) if arch.major == 9 else (256, 15 if arch.major == 11 else 18, True)
  wave_bytes = -(-private_bytes * WAVE // unit) * unit
  # waves are counted in each compute die, on RDNA in each shader engine, which has several arrays; to take each
  # array for an engine errs towards fewer waves
  parts = gpu.arrays if per_engine else gpu.dies
  waves = min(gpu.units // parts * gpu.scratch_waves, most // parts // wave_bytes, (1 << WAVES_BITS) - 1)
  if wave_bytes // unit >= 1 << size_bits or waves < 1:
    raise ValueError(
      f"{private_bytes} bytes of private memory a thread are more than this GPU has: {most} bytes in all"
    )
  return Scratch(wave_bytes // WAVE, parts * waves * wave_bytes, waves | wave_bytes // unit << WAVES_BITS)
