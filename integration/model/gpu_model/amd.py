"""AMD's GPUs on the machine, by the names of their architectures."""

from __future__ import annotations

from gpu_model.llvm import LLVMBackend
from tiny_runtime_amd import AMD, Arch
from tiny_runtime_amd.target import target


def backend_of(name: str) -> LLVMBackend:
  """The plugin's compiler for an architecture, and the machine with waves of its size."""
  arch = Arch.parse(name)
  return LLVMBackend(AMD, name, target(arch), arch.subgroup_size)


GFX1100, GFX1201, GFX942, GFX950 = map(backend_of, ("gfx1100", "gfx1201", "gfx942", "gfx950"))
