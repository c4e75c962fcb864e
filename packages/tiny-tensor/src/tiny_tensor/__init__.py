"""The frontend: `Tensor`, autograd, `nn`, `TinyJit`. See README.md."""

from tiny_runtime import Device, GlobalCounters
from tiny_tensor import nn
from tiny_tensor.jit import JitError, TinyJit
from tiny_tensor.tensor import Tensor
from tiny_tensor.variable import Variable
from tiny_uop import Context, UOp, dtypes, getenv

__all__ = [
  "Context", "Device", "GlobalCounters", "JitError", "Tensor", "TinyJit", "UOp", "Variable", "dtypes", "getenv", "nn",
]  # fmt: skip
