"""LLVM, by way of `llvmlite`: what makes machine code of LLVM IR text. The only module here that imports it."""

from __future__ import annotations

import threading
from functools import cache

import llvmlite.binding as llvm

from tiny_runtime.llvm.processor import Level, LLVMError, Processor
from tiny_uop.locks import around_forks

# One lock of llvmlite is around every call of LLVM, those of finalisers too, which run anywhere: where a thread ends,
# where a kernel goes. A fork takes the lock, or the child would find it taken by a thread that it does not have. It has
# no public name.
_llvm_lock = llvm.ffi.lib._lock
around_forks(_llvm_lock.__enter__, lambda in_child: _llvm_lock.__exit__())


@cache
def initialize(triple: str) -> None:
  """Make LLVM ready to compile for an architecture: for this machine's only, if it is that one."""
  if triple.split("-")[0] == llvm.get_process_triple().split("-")[0]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
  else:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


class Optimizer:
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

  def module(self, text: str, plain: str = "") -> llvm.ModuleRef:
    """The optimised module of a text, the function `plain` as it is. Raises LLVMError."""
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
        if not function.is_declaration and function.name != plain:
          self.manager.run(function, self.builder)
    elif self.level:
      self.builder.getModulePassManager().run(module, self.builder)
    if plain:
      # from here on: LLVM's passes say on stderr that they leave such a function out
      function = module.get_function(plain)
      for attribute in ("noinline", "optnone"):
        function.add_function_attribute(attribute)
    return module


class _Optimizers(threading.local):
  """Those of this thread."""

  def __init__(self) -> None:
    self.get = cache(Optimizer)


_optimizers = _Optimizers()


def optimizer_for(processor: Processor, level: Level) -> Optimizer:
  """The one of this thread."""
  return _optimizers.get(processor, level)
