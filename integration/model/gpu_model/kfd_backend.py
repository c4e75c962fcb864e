"""AMD on a model: the plugin's own compiler and device, with a model of KFD in the place of Linux's.

`pytest -p tiny_runtime.conformance.options --pyargs tiny_runtime.conformance --backend gpu_model.kfd_backend:BACKEND`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_model.kfd import Model
from gpu_model.llvm_source import LLVMSource
from gpu_model.toolchain import Refused, compiler
from tiny_runtime import Binary, CompileError, Unavailable
from tiny_runtime_amd.backend import AMDBackend
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.hardware import AMDHardware
from tiny_runtime_amd.kernels import AMDKernel
from tiny_runtime_amd.process import Process
from tiny_runtime_amd.target import target


class ModelHardware(AMDHardware):
  """The plugin's, on a model that is told the IR that code was made of, and runs that."""

  def kernel(self, binary: Binary) -> AMDKernel:
    kernel = super().kernel(binary)
    model = self.process.system
    assert isinstance(model, Model)
    if model.machine_code:
      return kernel
    try:
      model.processor.learn(binary.code, binary.entry, LLVMSource(binary.source, target(self.arch)))
    except Refused as error:
      raise CompileError(f"kernel {binary.entry}: {error}", binary.source) from error
    return kernel


class ModelBackend(AMDBackend):
  """The plugin's backend on a model of its own."""

  def __init__(self, **model: Any) -> None:
    self.model = Model(**model)
    super().__init__(self.model, self.model.places)

  def probe(self) -> Sequence[str] | Unavailable:
    """The GPUs, if there is what the model needs."""
    if compiler() is None:
      return Unavailable("the model of KFD needs a C++ compiler", "Install g++ or clang++, or name one with CXX")
    return super().probe()

  def hardware(self, process: Process, gpu: Gpu, index: int) -> AMDHardware:
    """See AMDBackend."""
    assert gpu.arch is not None
    return ModelHardware(process, gpu, gpu.arch, index)


BACKEND, GFX1100 = ModelBackend(gpus=2), ModelBackend(gpu="gfx1100", gpus=2)
CODE1100, CODE1201, CODE90A, CODE942, CODE950 = (
  ModelBackend(gpu=chip, machine_code=True) for chip in ("gfx1100", "gfx1201", "gfx90a", "gfx942", "gfx950")
)
"""These run the bytes of kernels (`amd_code`)."""
