"""What a code object says of its kernel, and the assembler text beside it, from the same module."""

from __future__ import annotations

import os
import re

from tiny_codegen import compile_kernel
from tiny_runtime import Binary, CompileError
from tiny_runtime.conformance.compile_only import CompileOnly
from tiny_runtime.llvm import compile_assembly
from tiny_runtime_amd import AMD, AMDCompiler, Arch, CodeObject
from tiny_runtime_amd.compiler import LEVEL
from tiny_runtime_amd.target import renderer
from tiny_uop import Opt, UOp
from tiny_uop.updates import GPU_UPDATES


def compiled(kernel: UOp, arch: str, opts: list[Opt] | None = None) -> Binary:
  """The binary of a kernel with these optimisations."""
  made = Arch.parse(arch)
  return AMDCompiler(made).assemble(compile_kernel(kernel, renderer(made), opts))


def assembly(binary: Binary, arch: str) -> str:
  """The text of the code in a binary."""
  return compile_assembly(binary.source, Arch.parse(arch).processor, LEVEL)


def check(binary: Binary) -> None:
  """Raises CompileError where a code object is not as a launch needs it."""
  code = CodeObject.parse(binary.code)
  kernel, about = code.kernels[binary.entry], code.about(binary.entry)
  arguments = 8 * (len(binary.params) + len(binary.variables))
  wanted = tuple(name for name in kernel.wanted if name != "private segment buffer")  # which CDNA 2 always wants
  facts = {
    "arguments": (kernel.argument_bytes, arguments),
    "what is wanted in registers": (wanted, ("kernel arguments",) if arguments else ()),
    "local memory, in the metadata": (about["group_segment_fixed_size"], kernel.local_bytes),
    "wave": (kernel.subgroup_size, about["wavefront_size"]),
    "place of the descriptor": (kernel.place % 64, 0),
    "place of the code": (kernel.entry % 256, 0),
  }
  wrong = [f"{name} is {got}, expected {wanted}" for name, (got, wanted) in facts.items() if got != wanted]
  if wrong:
    raise CompileError("; ".join(wrong), binary.source)


def directive(text: str, name: str) -> int:
  """The value of a directive of a kernel's descriptor in assembler text."""
  found = re.search(rf"\.amdhsa_{name} (\d+)", text)
  assert found is not None, name
  return int(found[1])


BACKEND = CompileOnly(AMD, os.environ.get("AMD_ARCH", "gfx942"), check, atomics=GPU_UPDATES)
"""For the conformance kit: every kernel is compiled, linked and looked at, and run by REF."""
