"""LLVM IR text → machine code, as an object file or as assembler text, for every processor that LLVM knows.

For plugins that compile by way of LLVM. It knows no kernels, and needs no hardware. `llvmlite` is what the extra
`tiny-runtime[llvm]` brings, so nothing else in this package imports this module.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import llvmlite
import llvmlite.binding as llvm

LLVM_VERSION = f"llvmlite {llvmlite.__version__} llvm {'.'.join(map(str, llvm.llvm_version_info))}"
"""What code depends on besides its source and the processor."""

Level: TypeAlias = int | tuple[str, ...]
"""How much LLVM does: one of its -O levels, or names of function passes."""


class LLVMError(ValueError):
  """LLVM refused a text or an object."""


@dataclass(frozen=True)
class Processor:
  """What LLVM compiles for: triple, processor name and features in LLVM's spelling (`+avx2,-avx512f`)."""

  triple: str
  cpu: str = ""
  features: str = ""


@cache
def initialize(triple: str) -> None:
  """Make LLVM ready to compile for an architecture: for this machine's only, if it is that one."""
  if triple.split("-")[0] == llvm.get_process_triple().split("-")[0]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
  else:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


class _Optimizer:
  """LLVM for one processor and level: what turns IR text into optimised modules.

  Made once per thread and then used for all kernels: LLVM gives back the memory of modules, but not all that its pass
  managers and builders took.
  """

  def __init__(self, processor: Processor, level: Level) -> None:
    initialize(processor.triple)
    # position-independent code in the small model: constants are reached relative to the program counter instead of
    # through 64-bit immediates; the linker puts calls that leave the object through stubs
    effort = level if isinstance(level, int) else 2
    self.machine = llvm.Target.from_triple(processor.triple).create_target_machine(
      cpu=processor.cpu, features=processor.features, opt=effort, reloc="pic", codemodel="small"
    )
    self.level = level
    options = llvm.create_pipeline_tuning_options(speed_level=level if isinstance(level, int) else 1)
    options.loop_vectorization = options.slp_vectorization = False
    self.builder = llvm.create_pass_builder(self.machine, options)
    self.manager = llvm.create_new_function_pass_manager()
    for name in level if isinstance(level, tuple) else ():
      getattr(self.manager, f"add_{name}_pass")()

  def module(self, text: str) -> llvm.ModuleRef:
    """The optimised module of a text. Raises LLVMError."""
    # a context of its own: the global one keeps every type and constant for ever
    try:
      module = llvm.parse_assembly(text, context=llvm.create_context())
      module.verify()
    except RuntimeError as error:
      raise LLVMError(str(error)) from None
    module.triple = self.machine.triple
    module.data_layout = str(self.machine.target_data)
    if isinstance(self.level, tuple):
      for function in module.functions:
        if not function.is_declaration:
          self.manager.run(function, self.builder)
    elif self.level:
      self.builder.getModulePassManager().run(module, self.builder)
    return module


class _Optimizers(threading.local):
  """Those of this thread."""

  def __init__(self) -> None:
    self.get = cache(_Optimizer)


_optimizers = _Optimizers()


def compile_object(text: str, processor: Processor, level: Level = 2) -> bytes:
  """Compile LLVM IR text to an object file. LLVM's own vectorisers are off. Raises LLVMError."""
  optimizer = _optimizers.get(processor, level)
  code: bytes = optimizer.machine.emit_object(optimizer.module(text))
  return code


def compile_assembly(text: str, processor: Processor, level: Level = 2) -> str:
  """What `compile_object` makes, as assembler text; for NVIDIA's GPUs, PTX. Raises LLVMError."""
  optimizer = _optimizers.get(processor, level)
  assembly: str = optimizer.machine.emit_assembly(optimizer.module(text))
  return assembly
