"""The `compile` of compilers that are put together from a code generator and an assembler, for plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tiny_runtime.binary import IR_ONLY, Binary, not_for
from tiny_runtime.contract import Measure
from tiny_runtime.errors import CompileError
from tiny_uop import NativeCode, UOp, native_of, print_uop


class Generate(Protocol):
  """A code generator, as `tiny_codegen.compile_kernel` with a renderer: kernel → PROGRAM with its source."""

  def __call__(self, kernel: UOp, *, measure: Callable[[UOp], float] | None, notes: Measure | None) -> UOp:
    """Raises ValueError or NotImplementedError for a kernel that it has no code for."""


def compile_generated(
  kernel: UOp,
  measure: Measure | None,
  generate: Generate,
  assemble: Callable[[UOp], Binary],
  native: Callable[[NativeCode], bytes] | None = None,
) -> Binary:
  """Generate and assemble; what a search tries, too. A kernel that is one NATIVE is its program, which `native` makes
  what a device loads. Raises CompileError with the kernel if it never came to a source, else what `assemble` and
  `native` raise."""
  if (given := native_of(kernel)) is not None:
    if native is None:
      raise not_for(given.arg, IR_ONLY)
    return Binary.of_native(kernel, native(given.arg))
  timer: Callable[[UOp], float] | None = None
  if measure is not None:
    timer = lambda program: measure(assemble(program))  # noqa: E731
  try:
    program = generate(kernel, measure=timer, notes=measure)
  except (ValueError, NotImplementedError) as error:
    raise CompileError(f"no code for this kernel: {error}", print_uop(kernel)) from error
  return assemble(program)
