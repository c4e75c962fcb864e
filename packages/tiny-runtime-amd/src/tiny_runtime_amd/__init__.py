"""AMD's GPUs as a plugin of tiny-runtime. See README.md."""

from tiny_runtime_amd.arch import ARCHS, Arch
from tiny_runtime_amd.backend import AMD
from tiny_runtime_amd.code_object import CodeObject, Descriptor
from tiny_runtime_amd.compiler import AMDCompiler
from tiny_runtime_amd.elf import ElfError
from tiny_runtime_amd.link import link

__all__ = ["AMD", "ARCHS", "AMDCompiler", "Arch", "CodeObject", "Descriptor", "ElfError", "link"]
