"""All of the kit for a compiler whose device is absent: every kernel is compiled for it, and run by REF.

    BACKEND = CompileOnly(tiny_runtime_mine.BACKEND, "arch1", check)

`pytest --pyargs tiny_runtime.conformance --backend module:BACKEND` then says whether the compiler takes every kernel of
the kit, and whether `check(binary)`, where that is an assembler or a disassembler, has no objection to what it makes.
It says nothing about results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tiny_runtime.binary import Binary
from tiny_runtime.contract import Backend, Compiler, Device, Measure
from tiny_runtime.errors import Unavailable
from tiny_runtime.ref import BACKEND as REF
from tiny_runtime.ref import RefCompiler
from tiny_runtime.ref.device import RefDevice
from tiny_uop import UOp


def _accept(binary: Binary) -> None:
  """No objection."""


@dataclass(frozen=True)
class CompileOnlyCompiler:
  """Compiles a kernel twice: with the compiler under test, and for REF."""

  tested: Compiler
  check: Callable[[Binary], None]

  @property
  def key(self) -> str:
    """That of the compiler under test."""
    return f"compile only {self.tested.key}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """The binary for REF, if the compiler under test has one and `check` raises nothing about it."""
    self.check(self.tested.compile(kernel))
    return RefCompiler().compile(kernel)


@dataclass(frozen=True)
class CompileOnly:
  """A backend with another one's compiler, for `arch`, and REF's device. `check` raises CompileError for a binary that
  it objects to. `local_memory`: the bytes that a workgroup of the arch has; `atomics`: its `Capabilities.atomics`."""

  tested: Backend
  arch: str
  check: Callable[[Binary], None] = _accept
  local_memory: int = 32 << 10
  atomics: frozenset[str] = frozenset()
  api: tuple[int, int] = field(init=False)
  ir: tuple[int, int] = field(init=False)

  def __post_init__(self) -> None:
    object.__setattr__(self, "api", self.tested.api)
    object.__setattr__(self, "ir", self.tested.ir)

  def probe(self) -> Sequence[str] | Unavailable:
    """The arch."""
    return (self.arch,)

  def open(self, index: int) -> Device:
    """REF's device, which says that it is of the arch, and has its local memory and atomics."""
    device = REF.open(index)
    assert isinstance(device, RefDevice)
    capabilities = replace(device.info.capabilities, local_memory=self.local_memory, atomics=self.atomics, native=())
    device.info = replace(device.info, arch=self.arch, capabilities=capabilities)
    return device

  def compiler(self, arch: str) -> Compiler:
    """The compiler for the arch, and REF."""
    return CompileOnlyCompiler(self.tested.compiler(arch), self.check)
