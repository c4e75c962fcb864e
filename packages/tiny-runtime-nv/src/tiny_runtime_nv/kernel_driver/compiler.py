"""The pure half for the kernel driver, which takes machine code: PTX as for `CUDA`, then ptxas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiny_runtime import Binary
from tiny_runtime.binary import not_for
from tiny_runtime_nv.arch import CUBIN, PTX
from tiny_runtime_nv.compiler import NVCompiler
from tiny_runtime_nv.ptxas import cubin_of, version
from tiny_runtime_nv.shared_memory import at_launch, noted
from tiny_uop import NativeCode, UOp


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
    return replace(binary, code=self.assembled(binary.code))

  def native(self, program: NativeCode) -> bytes:
    """A program from elsewhere as a cubin: one for this architecture as it is, PTX assembled. Raises CompileError."""
    if program.form == CUBIN and program.arch == self.arch.name:
      return program.content
    if program.form != PTX or not self.arch.runs(program.arch):
      raise not_for(program, f"{CUBIN} for {self.arch}, or {PTX} for it or older")
    return self.assembled(program.content)

  def assembled(self, ptx: bytes) -> bytes:
    """PTX as a cubin. Raises CompileError."""
    return noted(self.assembler(ptx.decode(), self.arch.name), at_launch(ptx))
