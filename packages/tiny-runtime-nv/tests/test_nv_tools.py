"""Cubins as our reader has them, and launches of them, against what NVIDIA's cuobjdump and nvdisasm say."""

from __future__ import annotations

import struct
from dataclasses import replace

import nv_assembler
import pytest
from nv_tools import COMPUTE, WINDOWS, differences, disassembled, found, generation

from tiny_runtime import Binary, CompileError
from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime.hcq import Launch
from tiny_runtime_nv import ARCHS, Arch, ptxas
from tiny_runtime_nv.kernel_driver.compiler import CubinCompiler
from tiny_runtime_nv.kernel_driver.kernels import NVKernel
from tiny_uop import ParamInfo, UOp, dtypes

pytestmark = pytest.mark.skipif(
  not all(found(name) for name in ("ptxas", "cuobjdump", "nvdisasm")),
  reason="no tools: pip install nvidia-cuda-nvcc nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm",
)
SIZES = """
.version {version}
.target {arch}
.address_size 64
.visible .entry kernel(.param .u64 a)
{{
  .reg .b64 %d<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %d0, [a];
  mov.u32 %r0, %{register};
  st.global.u32 [%d0], %r0;
  ret;
}}
"""


@pytest.mark.parametrize("arch", COMPUTE)
@pytest.mark.parametrize("name", STANDARD)
def test_standard_kernels_are_as_the_tools_say(name: str, arch: str) -> None:
  assert differences(CubinCompiler(Arch.parse(arch)).compile(STANDARD[name]()), arch) == []


def of_sizes(arch: Arch, register: str) -> Binary:
  text = SIZES.format(version=f"{arch.ptx // 10}.{arch.ptx % 10}", arch=arch, register=register)
  params = (ParamInfo(0, dtypes.uint32, 4, True, False),)
  one = UOp.const(dtypes.int32, 1)
  code, _ = ptxas.assemble(text.encode(), arch.name)
  return Binary(code, "kernel", (one, one, one), (one, one, one), params, (), one, one, "")


@pytest.mark.parametrize("arch", ARCHS, ids=str)
def test_a_launch_has_its_sizes_where_code_reads_them(arch: Arch) -> None:
  """Programs from elsewhere ask for the threads of a block and the blocks of a grid: those are in constant bank 0."""
  for place, register in enumerate(f"{name}.{axis}" for name in ("ntid", "nctaid") for axis in "xyz"):
    binary = of_sizes(arch, register)
    assert differences(binary, arch.name) == []
    kernel = NVKernel.of(binary, arch, generation(arch.name), WINDOWS)
    data = kernel.arguments(Launch(kernel, (1 << 40,), (11, 12, 13), (8, 9, 10)))
    (read,) = {
      begin for begin, _ in disassembled(binary.code)["kernel"].reads
      if any(at <= begin < at + 12 for at in kernel.generation.sizes)
    }  # fmt: skip
    assert struct.unpack_from("<I", data, read)[0] == (8, 9, 10, 11, 12, 13)[place]


def test_what_differs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
  """Each field of a launch that is wrong, and each place of constants that nobody writes."""
  arch = Arch.parse("sm_90a")
  binary = of_sizes(arch, "nctaid.y")
  real = NVKernel.of

  def changed(**fields: object) -> list[str]:
    def of(*given: object) -> NVKernel:
      kernel = real(*given)  # type: ignore[arg-type]
      for name, value in fields.items():
        setattr(kernel, name, value)
      return kernel

    with monkeypatch.context() as patch:
      patch.setattr(NVKernel, "of", of)
      return differences(binary, arch.name)

  about = real(binary, arch, generation(arch.name), WINDOWS).about
  assert changed() == []
  assert "registers" in changed(about=replace(about, registers=about.registers + 1))[0]
  assert "code" in changed(place=256)[0]
  assert "shared memory" in changed(shared=4096)[0]
  assert "stack" in changed(about=replace(about, stack=16))[0]
  assert "which nobody writes" in changed(about=replace(about, parameters=(0x210, 0)))[-1]


def test_the_kit_holds_each_cubin_against_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
  """`hatch run ptxas:tools`: what differs of one of its kernels is an error of the compiler."""
  compiler = nv_assembler.TOOLS.compiler(nv_assembler.ARCH)
  compiler.compile(STANDARD["elementwise"]())
  real = NVKernel.placed
  monkeypatch.setattr(NVKernel, "placed", lambda kernel: real(kernel)[::-1])
  with pytest.raises(CompileError, match="elementwise: code: "):
    compiler.compile(STANDARD["elementwise"]())
