"""The frontend: `Tensor`, autograd, `nn`, `TinyJit`. See README.md."""

from typing import TYPE_CHECKING

from tiny_runtime import Device, GlobalCounters
from tiny_runtime.errors import BackendError, OutOfMemory
from tiny_tensor.placement import DeviceMesh
from tiny_tensor.pytorch_names import of_torch
from tiny_tensor.tensor import Tensor
from tiny_uop import Context, UOp, dtypes, getenv
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_tensor import fft, func, nn
  from tiny_tensor.func import TransformError, checkpoint, function, jvp, vmap
  from tiny_tensor.io.download import fetch
  from tiny_tensor.jit import JitError, TinyJit
  from tiny_tensor.variable import Variable

__all__ = [
  "BackendError", "Context", "Device", "DeviceMesh", "GlobalCounters", "JitError", "OutOfMemory", "Tensor", "TinyJit",
  "TransformError", "UOp", "Variable", "checkpoint", "dtypes", "fetch", "fft", "func", "function", "getenv", "jvp",
  "nn", "vmap",
]  # fmt: skip

# what not every program needs is imported when it is first used
__getattr__ = lazy_names(
  __name__, of_torch, nn="", fft="", func="", fetch="io.download", TransformError="func", checkpoint="func",
  function="func", jvp="func", vmap="func", JitError="jit", TinyJit="jit", Variable="variable",
)  # fmt: skip
