"""The Metal plugin of tiny-runtime. See README.md."""

from tiny_runtime_metal.arch import FAMILIES, Arch, Family
from tiny_runtime_metal.backend import BACKEND, MetalBackend
from tiny_runtime_metal.compiler import MetalCompiler
from tiny_runtime_metal.renderer import MetalRenderer

__all__ = ["BACKEND", "FAMILIES", "Arch", "Family", "MetalBackend", "MetalCompiler", "MetalRenderer"]
