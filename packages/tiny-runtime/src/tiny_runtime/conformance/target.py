"""The backend under test, and the reference that it is compared with: both run a kernel over bytes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tiny_runtime.binary import Binary
from tiny_runtime.contract import Backend, Compiler, Device
from tiny_runtime.discovery import find
from tiny_runtime.errors import Unavailable
from tiny_runtime.ref import BACKEND as REF
from tiny_uop import UOp, evaluate


@dataclass
class Target:
  """One backend with its first device, opened on first use."""

  name: str
  backend: Backend
  origin: str
  """The entry point's value, `module:OBJECT`."""

  @cached_property
  def arch(self) -> str:
    """Arch of the first device. Raises Unavailable where there is none."""
    found = self.backend.probe()
    if isinstance(found, Unavailable):
      raise found
    return found[0]

  @cached_property
  def device(self) -> Device:
    """The first device."""
    return self.backend.open(0)

  @cached_property
  def compiler(self) -> Compiler:
    """The compiler for the first device."""
    return self.backend.compiler(self.arch)

  def claims(self, *dtype_names: str) -> bool:
    """Whether the device claims all of these data types."""
    return self.device.info.capabilities.dtypes.issuperset(dtype_names)

  def run(
    self, kernel: UOp, contents: Sequence[bytes], values: Mapping[str, int] | None = None, offset: int = 0
  ) -> list[bytes]:
    """Compile and launch a kernel over buffers with these contents, in slot order; returns what they hold afterwards.

    With `offset`, each buffer begins that many bytes into its memory.
    """
    return self.run_binary(self.compiler.compile(kernel), contents, values, offset)

  def run_binary(
    self, binary: Binary, contents: Sequence[bytes], values: Mapping[str, int] | None = None, offset: int = 0
  ) -> list[bytes]:
    """The same with a binary."""
    device, numbers = self.device, dict(values or {})
    program = device.load(binary)
    memory = [device.alloc(offset + max(1, len(data))) for data in contents]
    try:
      for handle, data in zip(memory, contents):
        device.write(handle, offset, memoryview(data))
      device.launch(
        program,
        [(memory[p.slot], offset) for p in binary.params],
        [numbers[name] for name in binary.variables],
        tuple(_integer(size, numbers) for size in binary.global_size),
        tuple(_integer(size, numbers) for size in binary.local_size),
        True,
      )
      results = [bytearray(len(data)) for data in contents]
      for handle, result in zip(memory, results):
        device.read(handle, offset, memoryview(result))
      return [bytes(result) for result in results]
    finally:
      for handle in memory:
        device.free(handle)


def _integer(size: UOp, values: Mapping[str, int]) -> int:
  value = evaluate(size, values)
  assert isinstance(value, int)
  return value


def find_target(name: str) -> Target:
  """The target for `--backend`: a device name (`CPU`), or `module:OBJECT` for a backend that is not installed.

  Raises Unavailable, Broken or Incompatible.
  """
  if ":" in name:
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    backend = found() if isinstance(found, type) else found
    if not isinstance(backend, Backend):
      raise TypeError(f"--backend {name}: expected an object with api, probe, open and compiler, got {backend!r}")
    return Target(attribute, backend, name)
  plugin = find(name)
  return Target(name, plugin.require(), plugin.value)


def reference() -> Target:
  """The oracle."""
  return Target("REF", REF, "tiny_runtime.ref:BACKEND")
