"""The pure half: kernel UOp → LLVM IR (tiny-codegen) → PTX (LLVM). The driver assembles it, where it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tiny_runtime import Binary, CompileError, Measure
from tiny_runtime.generated import compile_generated
from tiny_runtime.llvm import LLVM_VERSION, LLVMError, compile_assembly
from tiny_runtime_nv.arch import Arch
from tiny_uop import UOp

LEVEL = 3
"""How much LLVM optimises; ptxas does the rest."""


@dataclass(frozen=True)
class NVCompiler:
  """Compiles kernels for one architecture. Needs no GPU, no driver and nothing of CUDA."""

  arch: Arch

  @property
  def key(self) -> str:
    """Architecture, version of PTX, and version of LLVM."""
    return f"nv {LLVM_VERSION} -O{LEVEL} {self.arch} ptx{self.arch.ptx}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Compile a kernel-level SINK to PTX. Raises CompileError with the LLVM IR, or the kernel if it never came to
    that."""
    from tiny_codegen import compile_kernel
    from tiny_runtime_nv.target import PTXRenderer

    return compile_generated(kernel, measure, partial(compile_kernel, renderer=PTXRenderer(self.arch)), self.assemble)

  def assemble(self, program: UOp) -> Binary:
    """The back half: a PROGRAM with its source → Binary, whose code is PTX."""
    from tiny_codegen.render.c_dialect import function_name

    text = str(program.src[2].arg)
    try:
      ptx = compile_assembly(text, self.arch.processor, LEVEL)
    except LLVMError as error:
      raise CompileError(f"LLVM refused kernel {program.arg.name}: {error}", text) from error
    return Binary.of(program, ptx.encode(), function_name(program.arg.name))
