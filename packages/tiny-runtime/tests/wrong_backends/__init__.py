"""Backends derived from the reference, each wrong in one way, as real ones are. The conformance kit finds them."""

from __future__ import annotations

from tiny_runtime.contract import Compiler, Device
from tiny_runtime.ref import RefCompiler, RefDevice
from tiny_runtime.ref.backend import RefBackend


class Backend(RefBackend):
  """The reference with another compiler or another device."""

  def __init__(self, compiler: type[RefCompiler] = RefCompiler, device: type[RefDevice] = RefDevice) -> None:
    self.make_compiler = compiler
    self.make_device = device

  def open(self, index: int) -> Device:
    return super().open(index) if index else self.make_device()

  def compiler(self, arch: str) -> Compiler:
    super().compiler(arch)
    return self.make_compiler()
