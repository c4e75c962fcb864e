"""CUDA on a model: the plugin's own compiler and device, with a model of the driver in the place of libcuda.

`pytest -p tiny_runtime.conformance.options --pyargs tiny_runtime.conformance --backend gpu_model.cuda:BACKEND`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_model.cuda_driver import Model
from gpu_model.toolchain import compiler
from tiny_runtime import Unavailable
from tiny_runtime_nv import ARCHS
from tiny_runtime_nv.backend import CUDABackend
from tiny_runtime_nv.device import CUDADevice
from tiny_runtime_nv.driver import Driver

HOPPER = next(arch for arch in ARCHS if arch.name == "sm_90a")


class ModelBackend(CUDABackend):
  """The plugin's backend on a model of its own."""

  def __init__(self, **model: Any) -> None:
    self.model = Model(**model)

  def probe(self) -> Sequence[str] | Unavailable:
    """The GPUs, if there is what the model needs."""
    if compiler() is None:
      return Unavailable("the model of CUDA needs a C++ compiler", "Install g++ or clang++, or name one with CXX")
    return [HOPPER.name] * len(self.model.gpus)

  def open(self, index: int) -> CUDADevice:
    """See `Backend`."""
    if not 0 <= index < len(self.model.gpus):
      raise Unavailable(f"there is no CUDA:{index}")
    return CUDADevice(Driver(self.model), index, HOPPER, index)


BACKEND = ModelBackend(gpus=2)
