"""Transforms of functions of Tensors: maps over batches, derivatives in both modes, recomputation, own gradients.

`Memory` is what a function that writes a kernel for `Tensor.custom_kernel` gets, `NativeCode` a program that it may
give. The other names are those that users of `torch.func` and JAX know.
"""

from tiny_tensor.autograd.tracing import TransformError
from tiny_tensor.custom_kernel import Memory
from tiny_tensor.transforms.checkpoint import checkpoint, function
from tiny_tensor.transforms.jacobians import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp
from tiny_tensor.transforms.vmap import vmap
from tiny_uop import NativeCode

__all__ = [
  "Memory", "NativeCode", "TransformError", "checkpoint", "function", "grad", "hessian", "jacfwd", "jacrev", "jvp",
  "value_and_grad", "vjp", "vmap",
]  # fmt: skip
