"""The frontend: `Tensor`, autograd, `nn`, `TinyJit`. See README.md."""

from tiny_runtime import Device, GlobalCounters
from tiny_tensor import func, nn
from tiny_tensor.download import fetch
from tiny_tensor.func import TransformError, checkpoint, function, jvp, vmap
from tiny_tensor.jit import JitError, TinyJit
from tiny_tensor.tensor import Tensor
from tiny_tensor.variable import Variable
from tiny_uop import Context, UOp, dtypes, getenv

__all__ = [
  "Context", "Device", "GlobalCounters", "JitError", "Tensor", "TinyJit", "TransformError", "UOp", "Variable",
  "checkpoint", "dtypes", "fetch", "func", "function", "getenv", "jvp", "nn", "vmap",
]  # fmt: skip
