"""The pure half: kernel UOp → Metal Shading Language, which is the binary. The device's driver compiles it when it is
loaded; no SDK is needed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tiny_runtime import Binary, Measure
from tiny_runtime.binary import not_for
from tiny_runtime.generated import compile_generated
from tiny_runtime_metal.arch import MSL, Arch
from tiny_uop import NativeCode, UOp


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
    # whoever looks for devices imports this: a code generator is only needed here
    from tiny_codegen import compile_kernel
    from tiny_runtime_metal.renderer import MetalRenderer

    generate = partial(compile_kernel, renderer=MetalRenderer(self.arch))
    return compile_generated(kernel, measure, generate, as_binary, self.native)

  def native(self, program: NativeCode) -> bytes:
    """Metal Shading Language from elsewhere, as it is. Raises CompileError."""
    if program.form != MSL or program.arch != str(self.arch):
      raise not_for(program, f"{MSL} for {self.arch}")
    return program.content


def as_binary(program: UOp) -> Binary:
  """A PROGRAM with its source as a Binary, whose code is the source."""
  return Binary.of(program, str(program.src[2].arg).encode())
