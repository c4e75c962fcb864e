"""LLVM's JIT linker (ORC with JITLink): links any object file that LLVM writes, on every system that it knows."""

from __future__ import annotations

import ctypes
from itertools import count

import llvmlite.binding as llvm

from tiny_runtime.llvm import LLVMError
from tiny_runtime.llvm.optimizer import initialize

OBJECTS_PER_JIT = 64


class _Linker:
  """LLVM's JITs, one after the other: each keeps a little of every object for as long as it lives itself."""

  def __init__(self) -> None:
    self._jit: llvm.LLJIT | None = None
    self._numbers = count()

  def link(self, builder: llvm.JITLibraryBuilder) -> tuple[llvm.ResourceTracker, llvm.LLJIT]:
    """(what keeps the object linked, the JIT that it is in). Threads may link at once."""
    number, jit = next(self._numbers), self._jit
    if jit is None or number % OBJECTS_PER_JIT == 0:
      initialize(llvm.get_process_triple())
      jit = self._jit = llvm.create_lljit_compiler(use_jit_link=True)
    return builder.link(jit, f"object{number}"), jit


_linker = _Linker()


class JitLinked:
  """An object file that LLVM has linked into this process. It has the methods of `linker.Linked`, and stands in for it
  where that raises NotForUs and on systems that our own linker does not know. The memory is given back when this object
  goes."""

  def __init__(self, code: bytes, *symbols: str) -> None:
    """Raises LLVMError if `code` is no object, or lacks one of the symbols, or needs one that the process lacks."""
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in symbols:
      builder.export_symbol(symbol)
    try:
      self._tracker, self._jit = _linker.link(builder)
    except RuntimeError as error:
      raise LLVMError(str(error)) from None

  def address(self, symbol: str) -> int:
    """Address of one of the symbols that were asked for."""
    return int(self._tracker[symbol])

  def keep(self) -> None:
    """Never give the memory back."""
    # both would be unmapped when the interpreter clears its modules
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._jit))


def check_execution() -> None:
  """Raises OSError if this system does not let the process make code and run it."""
  llvm.check_jit_execution()
