"""LLVM IR text → machine code."""

from __future__ import annotations

from tiny_runtime.llvm.processor import Level, Processor


def compile_object(text: str, processor: Processor, level: Level = 2, plain: str = "") -> bytes:
  """Compile LLVM IR text to an object file. LLVM's own vectorisers are off. `plain` names a function that is not worth
  LLVM's time: it becomes machine code as it is written. Raises LLVMError."""
  from tiny_runtime.llvm.optimizer import optimizer_for  # late: see __init__.py

  optimizer = optimizer_for(processor, level)
  code: bytes = optimizer.machine.emit_object(optimizer.module(text, plain))
  return code


def compile_assembly(text: str, processor: Processor, level: Level = 2) -> str:
  """What `compile_object` makes, as assembler text; for NVIDIA's GPUs, PTX. Raises LLVMError."""
  from tiny_runtime.llvm.optimizer import optimizer_for

  optimizer = optimizer_for(processor, level)
  assembly: str = optimizer.machine.emit_assembly(optimizer.module(text))
  return assembly
