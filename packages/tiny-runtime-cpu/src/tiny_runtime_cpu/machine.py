"""LLVM IR text → object code, and object code → functions in this process. Nothing here knows kernels."""

from __future__ import annotations

import ctypes
import itertools
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


def _target_machine(arch: Arch, level: Level) -> llvm.TargetMachine:
  _initialize(arch.family)
  # position-independent code in the small model: constants are reached relative to the program counter instead of
  # through 64-bit immediates; the linker puts calls that leave the object through stubs
  effort = level if isinstance(level, int) else 2
  return llvm.Target.from_triple(arch.triple).create_target_machine(
    cpu=arch.cpu, features=arch.features, opt=effort, reloc="pic", codemodel="small"
  )


def _optimized(text: str, machine: llvm.TargetMachine, level: Level) -> llvm.ModuleRef:
  # a context of its own: the global one keeps every type and constant for ever
  try:
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()
  except RuntimeError as error:
    raise LLVMError(str(error)) from None
  module.triple = machine.triple
  module.data_layout = str(machine.target_data)
  options = llvm.create_pipeline_tuning_options(speed_level=level if isinstance(level, int) else 1)
  options.loop_vectorization = options.slp_vectorization = False
  builder = llvm.create_pass_builder(machine, options)
  if isinstance(level, tuple):
    manager = llvm.create_new_function_pass_manager()
    for name in level:
      getattr(manager, f"add_{name}_pass")()
    for function in module.functions:
      if not function.is_declaration:
        manager.run(function, builder)
  elif level:
    builder.getModulePassManager().run(module, builder)
  return module


def compile_object(text: str, arch: Arch, level: Level = 2) -> bytes:
  """Compile LLVM IR text to an object file. LLVM's own vectorisers are off. Raises LLVMError."""
  machine = _target_machine(arch, level)
  code: bytes = machine.emit_object(_optimized(text, machine, level))
  return code


def compile_assembly(text: str, arch: Arch, level: Level = 2) -> str:
  """What `compile_object` makes, as assembler text."""
  machine = _target_machine(arch, level)
  assembly: str = machine.emit_assembly(_optimized(text, machine, level))
  return assembly


_lock = threading.Lock()
_names = itertools.count()


@cache
def _jit() -> llvm.LLJIT:
  _initialize(host_arch().family)
  return llvm.create_lljit_compiler(use_jit_link=True)


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
        self._tracker = builder.link(_jit(), f"object{next(_names)}")
      except RuntimeError as error:
        raise LLVMError(str(error)) from None

  def address(self, symbol: str) -> int:
    """Address of one of the symbols that were asked for."""
    return int(self._tracker[symbol])

  def keep(self) -> None:
    """Never give the memory back, not even at exit: threads may be inside."""
    # both would be unmapped when the interpreter clears its modules
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_jit()))


def has_symbols(*names: str) -> bool:
  """Whether this process has all of these C functions."""
  try:
    process = ctypes.CDLL(None)
  except (OSError, TypeError):  # Windows has no such handle
    return False
  return all(hasattr(process, name) for name in names)
