"""Object code → functions in this process, by LLVM's JIT linker. Nothing here knows kernels."""

from __future__ import annotations

import ctypes
import threading

import llvmlite.binding as llvm

from tiny_runtime.llvm import LLVMError, initialize

PASSES = ("sroa", "loop_rotate", "instruction_combine", "simplify_cfg")
"""LLVM's passes for kernels, which come unrolled and vectorised. See README.md, "Choices that were measured"."""

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
      initialize(llvm.get_process_triple())
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
