"""The pure half for the kernel driver, which takes machine code: PTX as for `CUDA`, then ptxas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiny_runtime import Binary
from tiny_runtime_nv.compiler import NVCompiler
from tiny_runtime_nv.ptxas import cubin_of, version
from tiny_runtime_nv.shared_memory import at_launch, noted
from tiny_uop import UOp


@dataclass(frozen=True)
class CubinCompiler(NVCompiler):
  """Compiles kernels for one architecture to cubins. `assembler` makes one of PTX, for an architecture; it can be
  pickled."""

  assembler: Callable[[str, str], bytes] = cubin_of

  @property
  def key(self) -> str:
    """That of PTX, and the assembler's version."""
    made_by = version() if self.assembler is cubin_of else f"{self.assembler.__module__}.{self.assembler.__qualname__}"
    return f"{super().key} {made_by}"

  def assemble(self, program: UOp) -> Binary:
    """The back half: a PROGRAM with its source → Binary, whose code is a cubin, with a line before it if the launch has
    to give shared memory."""
    binary = super().assemble(program)
    cubin = self.assembler(binary.code.decode(), self.arch.name)
    return replace(binary, code=noted(cubin, at_launch(binary.code)))
