"""Loaded kernels, and their arguments in the form that the driver takes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tiny_runtime import Binary, CompileError
from tiny_runtime.handles import ProgramOfWords
from tiny_runtime_nv.cuda_errors import NOT_THE_CODE, TOO_NEW
from tiny_runtime_nv.driver import (
  LOG,
  LOG_SIZE,
  MOST_SHARED_AT_LAUNCH,
  MOST_THREADS,
  REGISTERS,
  Driver,
  DriverError,
)
from tiny_runtime_nv.entries import are_aligned, entries
from tiny_runtime_nv.memory import Memory
from tiny_runtime_nv.shared_memory import at_launch

LOG_BYTES = 8192
Sizes = tuple[int, int, int]


class Program(ProgramOfWords):
  """A kernel that can be launched. Its module stays loaded for as long as this is held."""

  def __init__(self, driver: Driver, binary: Binary) -> None:
    super().__init__(binary)
    self.driver = driver
    self.module = _module(driver, binary)
    self.shared = at_launch(binary.code)
    """Bytes of shared memory that each launch gives to its blocks."""
    self.functions = [self._function(name) for name in entries(binary.code, binary.entry)]
    self.function = self.functions[0]
    """The one for the arguments of the next launch."""
    count = len(self.needs) + self.integers
    # each argument is a word; the driver wants to know where each is, and copies them at each launch
    self.words = (ctypes.c_uint64 * max(1, count))()
    begin = ctypes.addressof(self.words)
    self.places = (ctypes.c_void_p * max(1, count))(*(begin + 8 * n for n in range(count)))
    self.parameters = ctypes.addressof(self.places)

  def _function(self, name: str) -> Any:
    function = self.driver.new("cuModuleGetFunction", self.module, name.encode())
    if self.shared:
      self.driver("cuFuncSetAttribute", function, MOST_SHARED_AT_LAUNCH, self.shared)
    return function

  def pass_in(self, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int]) -> None:
    """Set the arguments of the next launch, and its function. Raises ValueError for those that do not fit the
    kernel."""
    words = self.words_of(buffers, integers)
    for number, word in enumerate(words):
      self.words[number] = word
    if len(self.functions) > 1:
      self.function = self.functions[are_aligned(words[: len(buffers)])]

  def limits(self) -> str:
    """What the driver says that a block of it may have."""
    most, registers = (
      self.driver.new("cuFuncGetAttribute", which, self.function, kind=ctypes.c_int)
      for which in (MOST_THREADS, REGISTERS)
    )
    return f"it takes {registers} registers a thread, so {most} threads a block"


def three(sizes: Sequence[int]) -> Sizes:
  """Sizes of a launch along x, y and z."""
  x, y, z = (*sizes, 1, 1, 1)[:3]
  return x, y, z


def _module(driver: Driver, binary: Binary) -> Any:
  """The driver's module of a binary. Raises CompileError with the driver's words, and the source."""
  log = ctypes.create_string_buffer(LOG_BYTES)
  options = (ctypes.c_int * 2)(LOG, LOG_SIZE)
  values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
  try:
    return driver.new("cuModuleLoadDataEx", binary.code + b"\0", 2, options, values)
  except DriverError as error:
    if error.status not in NOT_THE_CODE:
      raise
    todo = ". Install a newer driver" if error.status == TOO_NEW else ""
    text = log.value.decode(errors="replace").strip()
    raise CompileError(f"the driver refused kernel {binary.entry}: {error}{todo}\n{text}", binary.source) from error
