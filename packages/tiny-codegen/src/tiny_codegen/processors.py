"""What processors have, by architecture and features. How LLVM writes it is in `render/llvm/`: `cpu_target`."""

from __future__ import annotations

from typing import NamedTuple

from tiny_codegen.target import CacheSizes

X86, ARM = ("x86_64", "i686", "i386"), ("aarch64", "arm64")
LEAST_SCALABLE = 512
# bytes: packed buffers are on the stack of a thread, and smaller ones are not worth it; the second level is cut to this
LEAST_PACKED, MOST_PACKED = 1 << 20, 2 << 20


class Processor(NamedTuple):
  """What a core has. The defaults are the portable minimum."""

  vector_bits: int = 128
  """Bits of a vector register."""
  vector_registers: int = 16
  """How many vector registers there are."""
  fma: bool = False
  """Multiply-adds are fused: one rounding."""
  halves: bool = False
  """Instructions convert float16."""
  rounding: bool = False
  """An instruction rounds floats to integers."""
  masks: bool = False
  """AVX-512 with instructions of all lengths: mask registers."""


def processor(arch: str, on: frozenset[str], scalable_bits: int = 0) -> Processor:
  """A core of an architecture with these features, as LLVM names both; one that is not known has the minimum.

  SVE, with registers of `scalable_bits`, is used where those are longer than what NEON's units do in a cycle as well:
  with 256 bits (Neoverse V1) products take 1.2 to 2 times as long as with NEON, with 512 (A64FX) a quarter, by LLVM's
  models (`hatch run ports`).
  """
  if arch in ARM and "sve" in on and scalable_bits >= LEAST_SCALABLE:
    return Processor(scalable_bits, 32, True, True, True)
  if arch not in X86:
    return Processor(128, 32, True, True, True) if arch in ARM else Processor()
  wide = "avx512f" in on and "avx512vl" in on
  bits = 512 if wide else 256 if "avx" in on else 128
  return Processor(bits, 32 if wide else 16, "fma" in on, "f16c" in on, "sse4.1" in on, wide)


def usual_caches(vector_bits: int) -> CacheSizes:
  """What cores with such vectors have at least, as far as they are servers and laptops of the last years: those with
  512 bits 48 KiB and 2 MiB (Intel since 2021), others 32 KiB and 1 MiB."""
  return CacheSizes(48 << 10, 2 << 20) if vector_bits == 512 else CacheSizes()


def packed_bytes(caches: CacheSizes) -> int:
  """Bytes of packed buffers that a thread may have."""
  return min(max(caches.second, LEAST_PACKED), MOST_PACKED)
