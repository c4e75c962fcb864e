"""LLVM IR text → object code, and object code → functions in this process. Nothing here knows kernels."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import TypeAlias

import llvmlite
import llvmlite.binding as llvm

from tiny_runtime_cpu.host import Arch, host_arch

PASSES = ("sroa", "loop_rotate", "instruction_combine", "simplify_cfg")
"""LLVM's passes for kernels, which come unrolled and vectorised. See README.md, "Choices that were measured"."""

Level: TypeAlias = int | tuple[str, ...]
"""How much LLVM does: one of its -O levels, or names of function passes."""


LLVM_VERSION = f"llvmlite {llvmlite.__version__} llvm {'.'.join(map(str, llvm.llvm_version_info))}"
"""What code depends on besides its source and the processor."""


class LLVMError(ValueError):
  """LLVM refused a text or an object."""


@cache
def _initialize(family: str) -> None:
  if family == host_arch().family:
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

  def __init__(self, arch: Arch, level: Level) -> None:
    _initialize(arch.family)
    # position-independent code in the small model: constants are reached relative to the program counter instead of
    # through 64-bit immediates; the linker puts calls that leave the object through stubs
    effort = level if isinstance(level, int) else 2
    self.machine = llvm.Target.from_triple(arch.triple).create_target_machine(
      cpu=arch.cpu, features=arch.features, opt=effort, reloc="pic", codemodel="small"
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


def compile_object(text: str, arch: Arch, level: Level = 2) -> bytes:
  """Compile LLVM IR text to an object file. LLVM's own vectorisers are off. Raises LLVMError."""
  optimizer = _optimizers.get(arch, level)
  code: bytes = optimizer.machine.emit_object(optimizer.module(text))
  return code


def compile_assembly(text: str, arch: Arch, level: Level = 2) -> str:
  """What `compile_object` makes, as assembler text."""
  optimizer = _optimizers.get(arch, level)
  assembly: str = optimizer.machine.emit_assembly(optimizer.module(text))
  return assembly


_lock = threading.Lock()
OBJECTS_PER_JIT = 64


class _Linker:
  """LLVM's JITs, one after the other: each keeps a little of every object for as long as it lives itself."""

  def __init__(self) -> None:
    self.jit: llvm.LLJIT | None = None
    self.linked = 0

  def link(self, builder: llvm.JITLibraryBuilder) -> tuple[llvm.ResourceTracker, llvm.LLJIT]:
    """(what keeps the object linked, the JIT that it is in)."""
    if self.jit is None or self.linked % OBJECTS_PER_JIT == 0:
      _initialize(host_arch().family)
      self.jit = llvm.create_lljit_compiler(use_jit_link=True)
    self.linked += 1
    return builder.link(self.jit, f"object{self.linked}"), self.jit


_linker = _Linker()


class LoadedObject:
  """An object file linked into this process; its memory is given back when this object goes."""

  def __init__(self, code: bytes, *symbols: str) -> None:
    """Link `code` and look up `symbols`. Raises LLVMError if it is no object, or lacks a symbol, or needs one that the
    process lacks."""
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in symbols:
      builder.export_symbol(symbol)
    with _lock:
      try:
        self._tracker, self._jit = _linker.link(builder)
      except RuntimeError as error:
        raise LLVMError(str(error)) from None

  def address(self, symbol: str) -> int:
    """Address of one of the symbols that were asked for."""
    return int(self._tracker[symbol])

  def keep(self) -> None:
    """Never give the memory back, not even at exit: threads may be inside."""
    # both would be unmapped when the interpreter clears its modules
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._jit))


def has_symbols(*names: str) -> bool:
  """Whether this process has all of these C functions."""
  try:
    process = ctypes.CDLL(None)
  except (OSError, TypeError):  # Windows has no such handle
    return False
  return all(hasattr(process, name) for name in names)
