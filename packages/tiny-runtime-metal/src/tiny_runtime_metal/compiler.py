"""The pure half: kernel UOp → Metal Shading Language, which is the binary. The device's driver compiles it when it is
loaded; no SDK is needed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiny_codegen import compile_kernel
from tiny_runtime import Binary, CompileError, Measure
from tiny_runtime_metal.arch import Arch
from tiny_runtime_metal.renderer import MetalRenderer
from tiny_uop import UOp, print_uop


@dataclass(frozen=True)
class MetalCompiler:
  """Compiles kernels for every GPU of one arch."""

  arch: Arch

  @property
  def key(self) -> str:
    """The arch: all else that the text depends on are versions of packages, which tiny-runtime adds."""
    return f"metal {self.arch}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Generate the source for a kernel-level SINK. Raises CompileError with the kernel."""
    timer: Callable[[UOp], float] | None = None
    if measure is not None:
      timer = lambda program: measure(as_binary(program))  # noqa: E731
    try:
      program = compile_kernel(kernel, MetalRenderer(self.arch), measure=timer, notes=measure)
    except (ValueError, NotImplementedError) as error:
      raise CompileError(f"no Metal source for this kernel: {error}", print_uop(kernel)) from error
    return as_binary(program)


def as_binary(program: UOp) -> Binary:
  """A PROGRAM with its source as a Binary, whose code is the source."""
  return Binary.of(program, str(program.src[2].arg).encode())
