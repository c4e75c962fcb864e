"""The pure half: kernel UOp → LLVM IR (tiny-codegen) → object (LLVM) → code object (our linker)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tiny_runtime import Binary, CompileError, Measure
from tiny_runtime.binary import not_for
from tiny_runtime.generated import compile_generated
from tiny_runtime.llvm import LLVMError, compile_object, llvm_version
from tiny_runtime_amd.arch import FORM, Arch
from tiny_runtime_amd.code_object import CodeObject
from tiny_runtime_amd.elf import ElfError
from tiny_runtime_amd.linking import link
from tiny_uop import NativeCode, UOp

LEVEL = 3
"""How much LLVM optimises."""


@dataclass(frozen=True)
class AMDCompiler:
  """Compiles kernels for one architecture. Needs no GPU, no driver and nothing of ROCm."""

  arch: Arch

  @property
  def key(self) -> str:
    """Architecture and version of LLVM."""
    return f"amd {llvm_version()} -O{LEVEL} {self.arch}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Compile a kernel-level SINK to a code object. Raises CompileError with the LLVM IR, or the kernel if it never
    came to that."""
    from tiny_codegen import compile_kernel
    from tiny_runtime_amd.target import renderer

    generate = partial(compile_kernel, renderer=renderer(self.arch))
    return compile_generated(kernel, measure, generate, self.assemble, self.native)

  def native(self, program: NativeCode) -> bytes:
    """A code object from elsewhere, as it is. Raises CompileError for one of another chip."""
    if (program.form, program.arch) != (FORM, str(self.arch)):
      raise not_for(program, f"{FORM} for {self.arch}")
    try:
      made_for = CodeObject.parse(program.content).chip
    except ElfError as error:
      raise CompileError(f"program {program.entry!r} is no code object: {error}", program.source) from error
    if made_for != program.arch:
      what = f"is said to be for {program.arch}, and its metadata say for {made_for or 'nothing'}"
      raise CompileError(f"program {program.entry!r} {what}", program.source)
    return program.content

  def assemble(self, program: UOp) -> Binary:
    """The back half: a PROGRAM with its source → Binary, whose code is a loadable ELF file."""
    text = str(program.src[2].arg)
    try:
      return Binary.of(program, link(compile_object(text, self.arch.processor, LEVEL)))
    except (LLVMError, ElfError) as error:
      raise CompileError(f"LLVM refused kernel {program.arg.name}: {error}", text) from error
