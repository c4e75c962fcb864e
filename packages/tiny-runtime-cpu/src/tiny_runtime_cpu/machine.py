"""LLVM IR text → object code, and object code → functions in this process. Nothing here knows kernels."""

from __future__ import annotations

import ctypes
import itertools
import threading
from functools import cache

import llvmlite
import llvmlite.binding as llvm

from tiny_runtime_cpu.host import Arch, host_arch

LEVEL = 1
"""LLVM's -O level for kernels. See README.md, "Choices that were measured"."""


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


def _target_machine(arch: Arch, level: int) -> llvm.TargetMachine:
  _initialize(arch.family)
  # position-independent code in the small model: constants are reached relative to the program counter instead of
  # through 64-bit immediates; the linker puts calls that leave the object through stubs
  return llvm.Target.from_triple(arch.triple).create_target_machine(
    cpu=arch.cpu, features=arch.features, opt=level, reloc="pic", codemodel="small"
  )


def _optimized(text: str, machine: llvm.TargetMachine, level: int, vectorize: bool) -> llvm.ModuleRef:
  # a context of its own: the global one keeps every type and constant for ever
  try:
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()
  except RuntimeError as error:
    raise LLVMError(str(error)) from None
  module.triple = machine.triple
  module.data_layout = str(machine.target_data)
  if level:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = vectorize
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
  return module


def compile_object(text: str, arch: Arch, level: int = 2, vectorize: bool = False) -> bytes:
  """Compile LLVM IR text to an object file. `level` is -O0 … -O3; `vectorize` also runs LLVM's own vectorisers.

  Raises LLVMError.
  """
  machine = _target_machine(arch, level)
  code: bytes = machine.emit_object(_optimized(text, machine, level, vectorize))
  return code


def compile_assembly(text: str, arch: Arch, level: int = 2, vectorize: bool = False) -> str:
  """What `compile_object` makes, as assembler text."""
  machine = _target_machine(arch, level)
  assembly: str = machine.emit_assembly(_optimized(text, machine, level, vectorize))
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
