"""NVIDIA's GPUs as plugins of tiny-runtime. See README.md."""

from typing import TYPE_CHECKING

from tiny_runtime_nv.arch import ARCHS, Arch
from tiny_runtime_nv.backend import CUDA
from tiny_runtime_nv.kernel_driver.backend import NV
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_runtime_nv.compiler import NVCompiler
  from tiny_runtime_nv.kernel_driver.compiler import CubinCompiler

__all__ = ["ARCHS", "CUDA", "NV", "Arch", "CubinCompiler", "NVCompiler"]

# whoever looks for devices imports this package: what compiles is only needed later
__getattr__ = lazy_names(__name__, CubinCompiler="kernel_driver.compiler", NVCompiler="compiler")
