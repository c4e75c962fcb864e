"""Object code → functions in this process. Nothing here knows kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_runtime import system
from tiny_runtime_cpu import linker

if TYPE_CHECKING:
  from tiny_runtime_cpu.jit_linker import JitLinked

PASSES = ("sroa", "simplify_cfg", "instruction_combine")
"""LLVM's passes for kernels, which come unrolled, vectorised and with their loops rotated. See README.md, "Choices that
were measured"."""
PASSES_ELSEWHERE = ("sroa", "loop_rotate", "simplify_cfg", "instruction_combine")
"""Those for programs that others wrote."""


class LoadedObject:
  """An object file linked into this process; its memory is given back when this object goes."""

  def __init__(self, code: bytes, *symbols: str) -> None:
    """Link `code` and look up `symbols`. Raises LLVMError if it is no object, or lacks a symbol, or needs one that the
    process lacks."""
    self._linked = _link(code, symbols)
    self._addresses = {symbol: self._linked.address(symbol) for symbol in symbols}

  def address(self, symbol: str) -> int:
    """Address of one of the symbols that were asked for."""
    return self._addresses[symbol]

  def keep(self) -> None:
    """Never give the memory back, not even at exit: threads may be inside."""
    self._linked.keep()


def _link(code: bytes, symbols: tuple[str, ...]) -> linker.Linked | JitLinked:
  """By our own linker where that will do, else by LLVM's."""
  if linker.links_here():
    try:
      return linker.Linked(code)
    except linker.NotForUs:
      pass
  from tiny_runtime_cpu.jit_linker import JitLinked  # late: it loads LLVM

  return JitLinked(code, *symbols)


def check_execution() -> None:
  """Raises OSError if this system does not let the process make code and run it."""
  if linker.links_here():
    return linker.check_execution()
  from tiny_runtime_cpu import jit_linker

  return jit_linker.check_execution()


def has_symbols(*names: str) -> bool:
  """Whether this process has all of these C functions."""
  return all(system.symbol(name) for name in names)
