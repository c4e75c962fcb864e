"""METAL on a model: the plugin's own backend and device, with the model of the framework in the place of a Mac's.

`pytest -p tiny_runtime.conformance.options --pyargs tiny_runtime.conformance --backend gpu_model.metal:BACKEND`
"""

from __future__ import annotations

from typing import Any

from gpu_model.framework import Model
from gpu_model.machine import Options
from gpu_model.toolchain import compiler
from tiny_runtime import Binary, Unavailable
from tiny_runtime_metal import MetalBackend
from tiny_runtime_metal.device import MetalDevice
from tiny_runtime_metal.messages import Messages
from tiny_runtime_metal.programs import Program


class ModelDevice(MetalDevice):
  """The plugin's device on a model that is told how long a kernel's buffers are, and so sees accesses behind them."""

  messages: Model

  def load(self, binary: Binary) -> Program:
    program = super().load(binary)
    sizes = {f"p{p.slot}": p.size * p.dtype.itemsize for p in binary.params}
    self.messages.sizes[program.pipeline] = sizes
    return program


class ModelBackend(MetalBackend):
  """The plugin's backend on a model of its own."""

  def __init__(self, options: Options | None = None, **model: Any) -> None:
    super().__init__(self.model_or_reason)
    self.options, self.changes = options, model

  def model_or_reason(self) -> Messages | Unavailable:
    """A new model, or what it lacks."""
    if compiler() is None:
      return Unavailable("the model of Metal needs a C++ compiler", "Install g++ or clang++, or name one with CXX")
    return Model(options=self.options, **self.changes)

  def open(self, index: int) -> ModelDevice:
    """See `Backend`."""
    messages, handle, arch = self.find(index)
    assert isinstance(messages, Model)
    return ModelDevice(messages, handle, arch, index)


BACKEND = ModelBackend()
FLUSHING = ModelBackend(Options(flush=True))
"""One whose float32 numbers below 2**-126 are 0, which Metal allows."""
