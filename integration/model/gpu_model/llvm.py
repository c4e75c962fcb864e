"""GPUs that are compiled for by way of LLVM: their compilers' LLVM IR is run, with threads and barriers.

`pytest -p tiny_runtime.conformance.options --pyargs tiny_runtime.conformance --backend gpu_model.amd:GFX942`
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_model.llvm_source import LLVMSource
from gpu_model.machine import Buffer, Options, Sizes, Wrong, allocated, launch
from gpu_model.toolchain import Refused, compiler
from tiny_codegen import LLVMTarget
from tiny_runtime import Binary, Capabilities, CompileError, Compiler, DeviceInfo, DeviceLost, OutOfMemory, Unavailable
from tiny_runtime.contract import Backend
from tiny_uop import dtypes

MEMORY = 1 << 26


class Memory:
  """One allocation."""

  def __init__(self, nbytes: int) -> None:
    self.nbytes = nbytes
    self.bytes = allocated(nbytes)
    self.address = ctypes.addressof(self.bytes)

  def view(self, offset: int, nbytes: int) -> memoryview:
    """Some of it."""
    return memoryview((ctypes.c_char * nbytes).from_address(self.address + offset)).cast("B")


@dataclass
class Program:
  """A kernel with what its launches may touch."""

  name: str
  source: LLVMSource
  sizes: list[int]
  written: list[bool]


@dataclass
class LLVMDevice:
  """The machine, as a device."""

  info: DeviceInfo
  target: LLVMTarget
  warp: int
  options: Options
  used: int = 0

  def alloc(self, nbytes: int) -> Memory:
    """Raises OutOfMemory."""
    if self.used + nbytes > MEMORY:
      raise OutOfMemory(f"{nbytes} bytes asked for, {MEMORY - self.used} are free")
    self.used += nbytes
    return Memory(nbytes)

  def free(self, memory: Memory) -> None:
    self.used -= memory.nbytes

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    memory.view(offset, data.nbytes)[:] = data.cast("B")

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    out.cast("B")[:] = memory.view(offset, out.nbytes)

  def load(self, binary: Binary) -> Program:
    """Raises CompileError for LLVM IR that the model does not know."""
    sizes = [p.size * p.dtype.itemsize for p in binary.params]
    try:
      source = LLVMSource(binary.source, self.target)
      assert source.call is not None
    except Refused as error:
      raise CompileError(f"kernel {binary.entry}: {error}", binary.source) from error
    return Program(binary.entry, source, sizes, [p.written for p in binary.params])

  def launch(
    self, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...], wait: bool,
  ) -> float | None:  # fmt: skip
    """Raises DeviceLost for what a kernel must not do."""
    places = [
      Buffer(memory.address + offset, size, f"p{n}", written, program.source.unaliased[n])
      for n, ((memory, offset), size, written) in enumerate(zip(buffers, program.sizes, program.written))
    ]
    numbers = [ctypes.c_int64(integer) for integer in integers]
    passed = [Buffer(ctypes.addressof(number), 8, f"n{n}", False) for n, number in enumerate(numbers)]
    start = time.perf_counter()
    try:
      if 0 not in global_size:
        launch(program.source.call, [*places, *passed], sizes(global_size), sizes(local_size), self.options, self.warp)
    except Wrong as error:
      raise DeviceLost(f"kernel {program.name}: {error}") from error
    return time.perf_counter() - start

  def sync(self) -> None:
    """Nothing is pending."""

  def close(self) -> None:
    """Nothing is held outside of the memories."""


def sizes(given: tuple[int, ...]) -> Sizes:
  """Along three axes."""
  x, y, z = given
  return x, y, z


class LLVMBackend:
  """A GPU's compiler with the machine as its device."""

  def __init__(self, tested: Backend, arch: str, target: LLVMTarget, warp: int, options: Options | None = None) -> None:
    self.api, self.ir = tested.api, tested.ir
    self.tested, self.arch, self.target, self.warp, self.options = tested, arch, target, warp, options or Options()

  def probe(self) -> Sequence[str] | Unavailable:
    """The arch, where this machine has what the model needs."""
    if compiler() is None:
      return Unavailable("the model needs a C++ compiler", "Install g++ or clang++, or name one with CXX")
    return [self.arch]

  def open(self, index: int) -> LLVMDevice:
    """Raises Unavailable."""
    found = self.probe()
    if isinstance(found, Unavailable) or index:
      raise found if isinstance(found, Unavailable) else Unavailable(f"there is no model {index}", "Use the first")
    record = self.target.target
    capabilities = Capabilities(
      dtypes=frozenset(d.name for d in dtypes.all), local_memory=record.limits.shared_memory,
      max_local_size=record.limits.max_workgroup, atomics=record.atomics,
    )  # fmt: skip
    return LLVMDevice(DeviceInfo("MODEL", self.arch, MEMORY, capabilities), self.target, self.warp, self.options)

  def compiler(self, arch: str) -> Compiler:
    """The compiler under test."""
    return self.tested.compiler(arch)
