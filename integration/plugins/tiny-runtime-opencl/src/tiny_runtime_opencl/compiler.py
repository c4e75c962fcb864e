"""The pure half: kernel UOp → OpenCL C. The driver compiles that, where the program is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tiny_codegen import compile_kernel
from tiny_runtime import Binary, Measure
from tiny_runtime.generated import compile_generated
from tiny_runtime_opencl.arch import Arch
from tiny_runtime_opencl.renderer import OpenCLRenderer
from tiny_uop import UOp


@dataclass(frozen=True)
class OpenCLCompiler:
  """Compiles kernels for every device of one arch. Needs neither a driver nor pyopencl."""

  arch: Arch

  @property
  def key(self) -> str:
    """The arch: all else that the text depends on are versions of packages, which tiny-runtime adds."""
    return f"opencl {self.arch}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Generate OpenCL C for a kernel-level SINK. Raises CompileError with the kernel."""

    return compile_generated(kernel, measure, partial(compile_kernel, renderer=OpenCLRenderer(self.arch)), as_binary)


def as_binary(program: UOp) -> Binary:
  """A PROGRAM with its source as a Binary, whose code is the source."""
  return Binary.of(program, str(program.src[2].arg).encode())
