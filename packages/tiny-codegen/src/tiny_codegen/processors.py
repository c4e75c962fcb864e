"""What processors have, by architecture and features, and how long some take by measurements, by name: a table, the one
place where names of processors stand. How LLVM writes it is in `render/llvm/`: `cpu_target`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tiny_codegen.cost_model import CostModel
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
  with 256 bits (Neoverse V1) products take 1.2 to 2.1 times as long as with NEON, with 512 (A64FX) a quarter, by LLVM's
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


class Core(NamedTuple):
  """Figures of a core that do not follow from its features."""

  cost: CostModel
  """Figures of time."""
  bfloat16: float = 0.25
  """Dot products of bfloat16 (x86) that start in the time of one multiply-add of float32 vectors of the same size."""


_ANY = CostModel(scattered=(1.3, 1.8), beyond=(1.8, 1.8))
# four multiply-adds start in a cycle, each of a register
_ARM = replace(_ANY, multiply_adds=4.0, loads=3.0, latency=4.0, word_products=1.0)
# it hides the time of its second level, so that packing pays later
_ZEN5 = replace(
  _ANY, piece_cycles=15.0, copy_block=0.7, packed_in_first_tile=0.2, scattered=(1.05, 1.3), beyond=(1.3, 1.05)
)
_ZEN4 = replace(_ANY, scattered=(1.05, 1.2))
CORES = {
  ("x86", 128): Core(_ANY),
  # each scalar takes an instruction and a register of its own
  ("x86", 256): Core(replace(_ANY, loads=1.4)),
  # Intel's, with two multiply-adds of 512 bits a cycle, slow down for each load; a product of bfloat16 takes four times
  # as long as a multiply-add (measured on Emerald Rapids), with AMD's as long
  ("x86", 512): Core(replace(_ANY, load_cycles=0.35)),
  ("znver4", 256): Core(replace(_ZEN4, loads=1.4), 1.0),
  # its units have 256 bits ("Software Optimization Guide for the AMD Zen4 Microarchitecture", 2.11)
  ("znver4", 512): Core(replace(_ZEN4, multiply_adds=1.0), 1.0),
  ("znver5", 256): Core(replace(_ZEN5, loads=1.4), 1.0),
  ("znver5", 512): Core(replace(_ZEN5, load_cycles=0.2), 1.0),
  ("znver6", 512): Core(replace(_ANY, load_cycles=0.35), 1.0),
  ("arm", 128): Core(_ARM),
  # A64FX, by its manual: two units, nine cycles
  ("arm", 512): Core(replace(_ANY, latency=9.0)),
}
"""By LLVM's name and the bits of a vector register, or by the architecture where a processor is like others of it. x86
was measured on Granite Rapids, Zen 3 (with 256 bits), Zen 4 and Zen 5."""


def core(arch: str, name: str, vector_bits: int) -> Core:
  """The figures of a processor from its architecture and name, as LLVM has them."""
  family = "x86" if arch in X86 else "arm" if arch in ARM else ""
  # SVE may be longer than what the table has
  alike = CORES.get((family, vector_bits)) or CORES.get((family, LEAST_SCALABLE), Core(_ANY))
  return CORES.get((name, vector_bits), alike)
