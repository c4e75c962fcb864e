"""Renderers: a linear program as the text of a target's language."""

from tiny_codegen.render.base import Capabilities, Renderer
from tiny_codegen.render.c import CRenderer, Place
from tiny_codegen.render.c_dialect import C99, CDialect, function_name
from tiny_codegen.render.llvm import LLVMRenderer
from tiny_codegen.render.llvm_target import LLVMTarget, cpu_target

__all__ = [
  "C99",
  "CDialect",
  "CRenderer",
  "Capabilities",
  "LLVMRenderer",
  "LLVMTarget",
  "Place",
  "Renderer",
  "cpu_target",
  "function_name",
]
