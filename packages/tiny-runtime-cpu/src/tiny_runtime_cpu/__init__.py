"""The CPU plugin of tiny-runtime. See README.md."""

from tiny_runtime_cpu.backend import BACKEND
from tiny_runtime_cpu.compiler import CPUCompiler
from tiny_runtime_cpu.device import CPUDevice
from tiny_runtime_cpu.host import Arch, host_arch

__all__ = ["BACKEND", "Arch", "CPUCompiler", "CPUDevice", "host_arch"]
