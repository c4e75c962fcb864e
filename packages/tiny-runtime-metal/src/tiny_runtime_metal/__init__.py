"""The Metal plugin of tiny-runtime. See README.md."""

from typing import TYPE_CHECKING, Any

from tiny_runtime_metal.arch import FAMILIES, Arch, Family
from tiny_runtime_metal.backend import BACKEND, MetalBackend
from tiny_runtime_metal.compiler import MetalCompiler

if TYPE_CHECKING:
  from tiny_runtime_metal.renderer import MetalRenderer

__all__ = ["BACKEND", "FAMILIES", "Arch", "Family", "MetalBackend", "MetalCompiler", "MetalRenderer"]


def __getattr__(name: str) -> Any:
  """`MetalRenderer` is imported when it is first used: it needs tiny-codegen, which looking for devices does not."""
  if name == "MetalRenderer":
    from tiny_runtime_metal.renderer import MetalRenderer

    return MetalRenderer
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
