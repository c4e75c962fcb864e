"""NVIDIA's GPUs as plugins of tiny-runtime. See README.md."""

from tiny_runtime_nv.arch import ARCHS, Arch
from tiny_runtime_nv.backend import CUDA, NV
from tiny_runtime_nv.compiler import NVCompiler

__all__ = ["ARCHS", "CUDA", "NV", "Arch", "NVCompiler"]
