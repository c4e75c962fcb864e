"""`TinyJit`: a function of tensors, captured once as a list of kernels and then replayed without its Python."""

from tiny_runtime import Arena
from tiny_tensor.jit.repeated import Repeated
from tiny_tensor.jit.tiny_jit import JitError, TinyJit

__all__ = ["Arena", "JitError", "Repeated", "TinyJit"]
