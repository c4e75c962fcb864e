"""The pure half: kernel UOp → LLVM IR (tiny-codegen) → PTX (LLVM). The driver assembles it, where it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tiny_runtime import Binary, CompileError, Measure
from tiny_runtime.binary import not_for
from tiny_runtime.generated import compile_generated
from tiny_runtime.llvm import LLVMError, compile_assembly, llvm_version
from tiny_runtime_nv.arch import PTX, Arch
from tiny_runtime_nv.shared_memory import STATIC, noted
from tiny_uop import NativeCode, UOp

LEVEL = 3
"""How much LLVM optimises; ptxas does the rest."""


@dataclass(frozen=True)
class NVCompiler:
  """Compiles kernels for one architecture. Needs no GPU, no driver and nothing of CUDA."""

  arch: Arch
  tf32: bool = False
  """Products of float32 may be rounded to TF32."""

  @property
  def key(self) -> str:
    """Architecture, version of PTX, version of LLVM, and whether float32 is rounded."""
    return f"nv {llvm_version()} -O{LEVEL} {self.arch} ptx{self.arch.ptx}{' tf32' if self.tf32 else ''}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Compile a kernel-level SINK to PTX. Raises CompileError with the LLVM IR, or the kernel if it never came to
    that."""
    from tiny_codegen import compile_kernel
    from tiny_runtime_nv.target import PTXRenderer

    return compile_generated(
      kernel, measure, partial(compile_kernel, renderer=PTXRenderer(self.arch, self.tf32)), self.assemble, self.native
    )

  def native(self, program: NativeCode) -> bytes:
    """PTX from elsewhere, as it is, if it is for this architecture or one before it. Raises CompileError."""
    if program.form != PTX or not self.arch.runs(program.arch):
      raise not_for(program, f"{PTX} for {self.arch} or older")
    return program.content

  def assemble(self, program: UOp) -> Binary:
    """The back half: a PROGRAM with its source → Binary, whose code is PTX."""
    from tiny_codegen.render.c.dialect import function_name
    from tiny_codegen.render.shared_memory import places_at_launch
    from tiny_runtime_nv.tensor_cores import version_needed
    from tiny_runtime_nv.waits import waits_first

    text, processor = str(program.src[2].arg), self.arch.processor
    if (version := version_needed(program.src[1])) > self.arch.ptx:
      # for the instruction that needs it, and so that no other kernel does
      newer = replace(processor, features=f"+ptx{version}")
      text, processor = text.replace(f'"{processor.features}"', f'"{newer.features}"'), newer
    try:
      ptx = compile_assembly(text, processor, LEVEL)
    except LLVMError as error:
      raise CompileError(f"LLVM refused kernel {program.arg.name}: {error}", text) from error
    _, shared = places_at_launch(program.src[1], STATIC)
    return Binary.of(program, noted(waits_first(ptx).encode(), shared), function_name(program.arg.name))
