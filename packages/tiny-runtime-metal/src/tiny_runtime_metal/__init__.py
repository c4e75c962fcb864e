"""The Metal plugin of tiny-runtime. See README.md."""

from typing import TYPE_CHECKING

from tiny_runtime_metal.arch import FAMILIES, Arch, Family
from tiny_runtime_metal.backend import BACKEND, MetalBackend
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_runtime_metal.compiler import MetalCompiler
  from tiny_runtime_metal.renderer import MetalRenderer

__all__ = ["BACKEND", "FAMILIES", "Arch", "Family", "MetalBackend", "MetalCompiler", "MetalRenderer"]

# whoever looks for devices imports this package: what compiles is only needed later
__getattr__ = lazy_names(__name__, MetalCompiler="compiler", MetalRenderer="renderer")
