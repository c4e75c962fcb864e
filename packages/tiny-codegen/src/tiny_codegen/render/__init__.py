"""Renderers: a linear program as the text of a target's language."""

from tiny_codegen.render.base import Renderer
from tiny_codegen.render.c.dialect import C99, CDialect, function_name
from tiny_codegen.render.c.renderer import CRenderer, Place
from tiny_codegen.render.llvm.renderer import LLVMRenderer
from tiny_codegen.render.llvm.target import LLVMTarget, cpu_target
from tiny_codegen.target import Target

__all__ = [
  "C99", "CDialect", "CRenderer", "LLVMRenderer", "LLVMTarget", "Place", "Renderer", "Target", "cpu_target",
  "function_name",
]  # fmt: skip
