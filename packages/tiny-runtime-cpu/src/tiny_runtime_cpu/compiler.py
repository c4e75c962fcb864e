"""The pure half: kernel UOp → LLVM IR (tiny-codegen) → object code (LLVM). Needs no device and can be pickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tiny_runtime import Binary, CompileError, Measure
from tiny_runtime.binary import not_for
from tiny_runtime.generated import compile_generated
from tiny_runtime.llvm import LLVMError, compile_object, llvm_version
from tiny_runtime_cpu.host import FORMS, Arch
from tiny_runtime_cpu.machine import PASSES, PASSES_ELSEWHERE
from tiny_uop import NativeCode, UOp

if TYPE_CHECKING:
  # imported where it is used: a process that finds all its kernels in the cache does without
  from tiny_codegen import LLVMRenderer


@cache
def renderer_for(arch: Arch) -> LLVMRenderer:
  """The code generator's view of a processor."""
  from tiny_codegen import CacheSizes, LLVMRenderer, cpu_target
  from tiny_codegen.target import FEW_THREADS

  features = [f for f in arch.features.split(",") if f]
  caches = CacheSizes.parse(arch.caches) if arch.caches else None
  threads = arch.threads or FEW_THREADS
  target = cpu_target(
    arch.triple, arch.cpu, features, caches=caches, dynamic_scheduling=True, threads=threads,
    scalable_bits=arch.scalable_bits,
  )  # fmt: skip
  return LLVMRenderer(target)


@dataclass(frozen=True)
class CPUCompiler:
  """Compiles kernels for one processor type, this machine's or another's."""

  arch: Arch

  @property
  def key(self) -> str:
    """Processor, its features and caches, and the version of LLVM."""
    return f"cpu claims {llvm_version()} {' '.join(PASSES)} {self.arch}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Compile a kernel-level SINK. Raises CompileError with the LLVM IR, or the kernel if it never came to that."""
    from tiny_codegen import compile_kernel

    def generate(kernel: UOp, *, measure: Callable[[UOp], float] | None, notes: Measure | None) -> UOp:
      return compile_kernel(kernel, renderer_for(self.arch), measure=measure, notes=notes)

    return compile_generated(kernel, measure, generate, self.assemble, self.native)

  def native(self, program: NativeCode) -> bytes:
    """A program from elsewhere as object code: that for this processor as it is, LLVM IR compiled. Raises
    CompileError."""
    if program.form == FORMS[0] and program.arch == str(self.arch):
      return program.content
    if program.form != FORMS[1] or program.arch != self.arch.family:
      raise not_for(program, f"{FORMS[0]} for {self.arch} or {FORMS[1]} for {self.arch.family}")
    text = program.content.decode()
    try:
      return compile_object(text, self.arch.processor, PASSES_ELSEWHERE)
    except LLVMError as error:
      raise CompileError(f"LLVM refused program {program.entry!r}: {error}", text) from error

  def assemble(self, program: UOp) -> Binary:
    """The back half: a PROGRAM with its source → Binary."""
    text = str(program.src[2].arg)
    try:
      # what the pool calls loads some arguments and calls the body: to optimise it would take 5 % of LLVM's time
      return Binary.of(program, compile_object(text, self.arch.processor, PASSES, program.arg.name))
    except LLVMError as error:
      raise CompileError(f"LLVM refused kernel {program.arg.name}: {error}", text) from error
