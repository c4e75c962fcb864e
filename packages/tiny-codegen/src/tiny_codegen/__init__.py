"""The code generator: `compile_kernel` turns a kernel UOp into a program UOp with its source text."""

from tiny_codegen.compile import PassContext, build_program, compile_kernel, run_passes
from tiny_codegen.cost_model import CostModel
from tiny_codegen.errors import KernelError, KernelOptError
from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.instructions.tensor_core import Fragment, MatrixLoad, SharedOperand, TensorCore
from tiny_codegen.pipeline import PASSES
from tiny_codegen.render.base import Renderer
from tiny_codegen.render.c.dialect import C99, CDialect, function_name
from tiny_codegen.render.c.renderer import CRenderer, Place
from tiny_codegen.render.llvm.renderer import LLVMRenderer
from tiny_codegen.render.llvm.target import LLVMTarget, cpu_target
from tiny_codegen.target import CacheSizes, Limits, Target
from tiny_uop.passes import Pass

__all__ = [
  "C99", "CDialect", "CRenderer", "CacheSizes", "CostModel", "DotProduct", "Fragment", "KernelError", "KernelOptError",
  "LLVMRenderer", "LLVMTarget", "Limits", "MatrixLoad", "PASSES", "Pass", "PassContext", "Place", "Renderer",
  "SharedOperand", "Target", "TensorCore", "build_program", "compile_kernel", "cpu_target", "function_name",
  "run_passes",
]  # fmt: skip
