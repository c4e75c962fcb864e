"""The OpenCL plugin of tiny-runtime. See README.md."""

from tiny_runtime_opencl.arch import Arch
from tiny_runtime_opencl.backend import BACKEND
from tiny_runtime_opencl.compiler import OpenCLCompiler
from tiny_runtime_opencl.renderer import OpenCLRenderer

__all__ = ["BACKEND", "Arch", "OpenCLCompiler", "OpenCLRenderer"]
