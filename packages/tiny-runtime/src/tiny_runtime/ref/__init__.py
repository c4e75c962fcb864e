"""REF, the reference backend: interprets kernels in pure Python, exactly and slowly. The template for a new plugin."""

from tiny_runtime.ref.backend import BACKEND
from tiny_runtime.ref.compiler import RefCompiler
from tiny_runtime.ref.device import RefDevice

__all__ = ["BACKEND", "RefCompiler", "RefDevice"]
