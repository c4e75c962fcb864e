"""Programs: source → what the driver makes of it, and what a launch of it takes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from tiny_codegen import function_name
from tiny_runtime import Binary, CompileError
from tiny_runtime_opencl.arch import Arch
from tiny_runtime_opencl.memory import Memory

LONG = struct.Struct("q").pack


class Program:
  """A loaded kernel, and what its launches take."""

  def __init__(self, program: Any, binary: Binary) -> None:
    self.program = program
    self.name = binary.entry
    self.needs = tuple(p.size * p.dtype.itemsize for p in binary.params)
    self.variables = binary.variables
    self.kernel: Any = self.new_kernel()

  def new_kernel(self) -> Any:
    """The function with arguments of its own."""
    return cl.Kernel(self.program, function_name(self.name))

  def check(self, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int]) -> None:
    """Raises ValueError for arguments that do not fit."""
    if len(buffers) != len(self.needs) or len(integers) != len(self.variables):
      raise ValueError(
        f"kernel {self.name} takes {len(self.needs)} buffers and the integers {self.variables}, "
        f"got {len(buffers)} buffers and {len(integers)} integers"
      )
    for (memory, offset), need in zip(buffers, self.needs):
      memory.check(offset, need)


def set_arguments(kernel: Any, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int]) -> None:
  """Pass a memory and an offset for each buffer, then the integers. (pyopencl's `set_args` would look up how in a
  database, the first time for each kernel.)"""
  place = 0
  for memory, offset in buffers:
    kernel.set_arg(place, memory.buffer)
    kernel.set_arg(place + 1, LONG(offset))
    place += 2
  for integer in integers:
    kernel.set_arg(place, LONG(integer))
    place += 1


def build_options(arch: Arch) -> list[str]:
  """What the driver's compiler is told."""
  return ["-cl-std=CL1.2", "-w", *(["-cl-fp32-correctly-rounded-divide-sqrt"] if arch.exact else [])]


def load_program(context: Any, arch: Arch, binary: Binary) -> Program:
  """The kernel of a binary, built by the driver. Raises CompileError with the source and the driver's log."""
  source = binary.code.decode()
  try:
    # drivers have caches of their own. PoCL asked for what it has built compiles twice
    program = cl.Program(context, source).build(build_options(arch), cache_dir=False)
  except cl.RuntimeError as error:
    if error.code != cl.status_code.BUILD_PROGRAM_FAILURE:
      raise
    raise CompileError(f"the OpenCL driver refused kernel {binary.entry}:\n{error}", source) from error
  return Program(program, binary)
