"""AMD's GPUs as a plugin of tiny-runtime. See README.md."""

from typing import TYPE_CHECKING

from tiny_runtime_amd.arch import ARCHS, Arch
from tiny_runtime_amd.backend import AMD
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_runtime_amd.code_object import CodeObject, Descriptor
  from tiny_runtime_amd.compiler import AMDCompiler
  from tiny_runtime_amd.elf import ElfError
  from tiny_runtime_amd.linking import link

__all__ = ["AMD", "ARCHS", "AMDCompiler", "Arch", "CodeObject", "Descriptor", "ElfError", "link"]

# whoever looks for devices imports this package: what compiles is only needed later
__getattr__ = lazy_names(
  __name__, AMDCompiler="compiler", CodeObject="code_object", Descriptor="code_object", ElfError="elf", link="linking"
)
