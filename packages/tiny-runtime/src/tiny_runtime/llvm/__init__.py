"""LLVM IR text → machine code, as an object file or as assembler text, for every processor that LLVM knows.

For plugins that compile by way of LLVM. It knows no kernels, and needs no hardware. `llvmlite` is what the extra
`tiny-runtime[llvm]` brings; it is imported by the first that needs it (80 ms), not by whoever looks for devices or
finds its kernels in the cache.
"""

from tiny_runtime.llvm.code import compile_assembly, compile_object
from tiny_runtime.llvm.machine import host_processor, llvm_version
from tiny_runtime.llvm.processor import Level, LLVMError, Processor

__all__ = ["LLVMError", "Level", "Processor", "compile_assembly", "compile_object", "host_processor", "llvm_version"]
