"""NV on a model: the plugin's own compiler and device, with a model of NVIDIA's kernel driver in the place of the
machine's, and a stand-in for ptxas that leaves PTX where machine code would be.

`pytest -p tiny_runtime.conformance.options --pyargs tiny_runtime.conformance --backend gpu_model.nv_backend:GH100`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_model.nv.cubin import assemble
from gpu_model.nv.model import Model
from gpu_model.toolchain import Refused, compiler
from tiny_runtime import CompileError, Unavailable
from tiny_runtime_nv.kernel_driver.backend import NVBackend


def assembler(ptx: str, arch: str) -> bytes:
  """The stand-in, which says no as a plugin's compiler does."""
  try:
    return assemble(ptx, arch)
  except Refused as error:
    raise CompileError(str(error), ptx) from error


class ModelBackend(NVBackend):
  """The plugin's backend on a model of its own."""

  def __init__(self, *gpus: str, **model: Any) -> None:
    self.model = Model(gpus or ("GH100",), **model)
    super().__init__(self.model, assembler)

  def probe(self) -> Sequence[str] | Unavailable:
    """The GPUs, if there is what the model needs."""
    if compiler() is None:
      return Unavailable("the model of NVIDIA's driver needs a C++ compiler", "Install g++ or clang++, or set CXX")
    return super().probe()


TU102, GA102, AD102, GH100, GB202 = (ModelBackend(chip) for chip in ("TU102", "GA102", "AD102", "GH100", "GB202"))
TWO = ModelBackend("GH100", "GH100")
"""A machine with two GPUs, which reach each other."""
