"""The one thing a renderer does: turn a linear program into text."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tiny_codegen.target import Target
from tiny_uop import ProgramInfo, UOp


class Renderer(ABC):
  """A target of code generation. Renderers are plain data (picklable, comparable by `name`), and need no device."""

  name: str
  """What it writes for, in errors and in ProgramInfo."""
  target: Target

  @abstractmethod
  def render(self, linear: UOp, info: ProgramInfo) -> str:
    """The source text of a program-level LINEAR. `info` gives its name, its buffers and its variables, in ABI order.

    Raises NotImplementedError, naming the instruction, for what `target` does not promise.
    """


def no_tensor_core(target: str, mma: UOp) -> NotImplementedError:
  """The error for an MMA that a target has no instruction for."""
  return NotImplementedError(
    f"{target} has no tensor-core instruction {mma.arg}: its Target should not list it in tensor_cores, "
    "or its dialect has to say how it is written"
  )


def no_atomic(target: str, store: UOp) -> NotImplementedError:
  """The error for an atomic STORE that a target has no instruction for."""
  return NotImplementedError(
    f"{target} has no atomic {store.arg.op.name} to {store.src[0].dtype}: its Target should have it in atomics, "
    "and its target or dialect say how it is written, or the kernel should not ask for it"
  )


def no_exchange(target: str, shuffle: UOp) -> NotImplementedError:
  """The error for a SHUFFLE that a target has no instruction for."""
  return NotImplementedError(
    f"{target} has no exchange of {shuffle.dtype} between threads whose numbers differ by the bits {shuffle.arg:#x}: "
    "its Target should not have so large a wave, or its target or dialect has to say how it is written"
  )
