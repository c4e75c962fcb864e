"""The code generator: `compile_kernel` turns a kernel UOp into a program UOp with its source text."""

from tiny_codegen.dot_product import DotProduct
from tiny_codegen.errors import KernelError, KernelOptError
from tiny_codegen.passes import Pass, PassContext
from tiny_codegen.pipeline import PASSES, build_program, compile_kernel, run_passes
from tiny_codegen.render.base import CacheSizes, Capabilities, Renderer, atomics, names_of
from tiny_codegen.render.c import CRenderer, Place
from tiny_codegen.render.c_dialect import C99, CDialect, function_name
from tiny_codegen.render.llvm import LLVMRenderer
from tiny_codegen.render.llvm_atomics import DEVICE_ATOMICS, HOST_ATOMICS
from tiny_codegen.render.llvm_target import LLVMTarget, cpu_target
from tiny_codegen.tensor_core import Fragment, MatrixLoad, NearMatrix, TensorCore

__all__ = [
  "C99",
  "DEVICE_ATOMICS",
  "HOST_ATOMICS",
  "PASSES",
  "CDialect",
  "CRenderer",
  "CacheSizes",
  "Capabilities",
  "DotProduct",
  "Fragment",
  "KernelError",
  "KernelOptError",
  "LLVMRenderer",
  "LLVMTarget",
  "MatrixLoad",
  "NearMatrix",
  "Pass",
  "PassContext",
  "Place",
  "Renderer",
  "TensorCore",
  "atomics",
  "build_program",
  "compile_kernel",
  "cpu_target",
  "function_name",
  "names_of",
  "run_passes",
]
