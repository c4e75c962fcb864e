"""tiny-asm-amd with the plugin AMD: it reads what LLVM compiles, and the plugin loads what it writes."""

from __future__ import annotations

import re

import pytest
from asm_kernels import doubled

from gpu_model.kfd_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_asm_amd import Instruction, assemble, disassemble, parse
from tiny_runtime import Binary
from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime.llvm import compile_assembly
from tiny_runtime_amd import AMD, Arch, CodeObject
from tiny_runtime_amd.compiler import LEVEL
from tiny_runtime_amd.hardware import AMDHardware


def instructions(binary: Binary, chip: str) -> list[Instruction]:
  """Those of a kernel that LLVM compiled."""
  code = CodeObject.parse(binary.code)
  begin = code.kernels[binary.entry].entry
  found = []
  for _, made in disassemble(memoryview(code.image)[begin:], chip):
    found.append(made)
    if made.mnemonic == "s_endpgm":
      return found
  raise AssertionError("no end")


def text_of(binary: Binary, chip: str) -> str:
  """The instructions and labels that LLVM writes of a kernel."""
  text = compile_assembly(binary.source, Arch.parse(chip).processor, LEVEL)
  body = text[text.index(f"\n{binary.entry}:") :]
  lines = [re.sub(r"(;|//).*", "", line).strip() for line in body[: body.index(".section")].splitlines()]
  return "\n".join(line for line in lines if re.match(r"[a-z]|\.L\w+:", line))


@pytest.mark.parametrize(
  "chip", ["gfx1100", *[pytest.param(c, marks=pytest.mark.nightly) for c in ("gfx1151", "gfx90a")], "gfx1201", "gfx942"]
)
@pytest.mark.parametrize("name", [name for name in STANDARD if name.startswith(("elementwise", "matmul", "softmax"))])
def test_llvms_text_and_code_are_the_same_here(name: str, chip: str) -> None:
  """LLVM's text → its bytes; its bytes → our text → its bytes."""
  binary = AMD.compiler(chip).compile(STANDARD[name]())
  code = assemble(text_of(binary, chip), chip)
  image = CodeObject.parse(binary.code)
  entry = image.kernels[binary.entry].entry
  assert len(code) > 20 and code == image.image[entry : entry + len(code)]
  found = [made for _, made in disassemble(code, chip)]
  assert b"".join(bytes(parse(str(made), chip)) for made in found) == code


def test_code_objects_are_what_the_plugin_reads() -> None:
  binary = doubled()
  code = CodeObject.parse(binary.code)
  kernel, about = code.kernels["doubled"], code.about("doubled")
  assert (kernel.subgroup_size, kernel.argument_bytes, kernel.wanted) == (32, 16, ("kernel arguments",))
  assert kernel.place % 64 == kernel.entry % 256 == 0 and about["vgpr_count"] == 2
  assert [str(made) for made in instructions(binary, "gfx1100")] == binary.source.splitlines()
  compiled = AMD.compiler("gfx1100").compile(STANDARD["elementwise"]())
  theirs = CodeObject.parse(compiled.code)
  other = theirs.kernels[compiled.entry]
  assert code.flags == theirs.flags and kernel.properties == other.properties
  assert (kernel.rsrc1 ^ other.rsrc1) & ~(63 | 1 << 31) == 0, "all but registers and progress"


@pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
def test_a_device_loads_them() -> None:
  """The model of KFD has no machine for their code yet, so that is as far as it goes."""
  backend = ModelBackend(gpu="gfx1100")
  device = backend.open(0)
  assert isinstance(device.hardware, AMDHardware)
  kernel = AMDHardware.kernel(device.hardware, doubled())
  assert kernel.threads == 32 and kernel.name == "doubled"
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []
