"""The reader of cubins, on what ptxas writes for every architecture."""

from __future__ import annotations

import random
import re
import struct

import pytest

from tiny_runtime import CompileError
from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime_nv import ARCHS, Arch, ptxas
from tiny_runtime_nv.kernel_driver.compiler import CubinCompiler
from tiny_runtime_nv.kernel_driver.cubin import CubinError, CubinKernel, parse
from tiny_runtime_nv.shared_memory import at_launch, without_note

HERE = pytest.mark.skipif(ptxas.find_ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc")
VERSIONS = {arch.name: f"{arch.ptx // 10}.{arch.ptx % 10}" for arch in ARCHS}
KERNEL = """
.version {version}
.target {arch}
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 n)
.reqntid {threads}, 2, 1
{{
  .reg .b64 %d<8>;
  .reg .b32 %r<8>;
  .reg .f32 %f<4>;
  .shared .align 16 .b8 near[{shared}];
  {local}
  ld.param.u64 %d0, [a];
  cvta.to.global.u64 %d0, %d0;
  ld.param.u64 %d1, [n];
  cvt.u32.u64 %r3, %d1;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, near;
  shl.b32 %r2, %r0, 2;
  add.u32 %r1, %r1, %r2;
  st.shared.u32 [%r1], %r3;
  bar.sync 0;
  {keep}
  ld.shared.u32 %r4, [%r1+4];
  st.global.u32 [%d0], %r4;
  ret;
}}
"""
KEEP = """
  mov.u64 %d3, own;
  and.b32 %r5, %r3, 60;
  cvt.u64.u32 %d4, %r5;
  add.u64 %d3, %d3, %d4;
  st.local.u32 [%d3], %r3;
  ld.local.u32 %r3, [%d3+16];
  st.shared.u32 [%r1+4], %r3;
"""


def assembled(arch: str, shared: int, local: int = 0) -> tuple[int, CubinKernel, str]:
  own = f".local .align 16 .b8 own[{local}];" if local else ""
  text = KERNEL.format(
    version=VERSIONS[arch], arch=arch, threads=64, shared=shared, local=own, keep=KEEP if local else ""
  )
  code, said = ptxas.assemble(text.encode(), arch, report=True)
  number, kernels = parse(code)
  return number, kernels["kernel"], said


@HERE
@pytest.mark.parametrize("arch", [arch.name for arch in ARCHS])
def test_what_a_kernel_takes(arch: str) -> None:
  number, plain, said = assembled(arch, 4096)
  assert number == int(arch.removeprefix("sm_").rstrip("a"))
  assert plain.registers == int(re.findall(r"Used (\d+) registers", said)[0]) and plain.barriers == 1
  assert plain.parameters == ({75: 0x160, 80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210}.get(number, 0x380), 24)
  assert plain.threads == (64, 2, 1) and plain.stack == 0 and len(plain.code) % 128 == 0
  assert plain.shared == 4096 + (1024 if number >= 90 else 0) and "4096 bytes smem" in said
  assert assembled(arch, 16, local=256)[1].stack == 256


@HERE
@pytest.mark.parametrize("arch", [arch.name for arch in ARCHS])
def test_the_stack_pointer_comes_first(arch: str) -> None:
  """R1 is loaded of constant bank 0, where the device puts it: at 0x28, from Blackwell on at 0x37c."""
  number, kernel, _ = assembled(arch, 16, local=256)
  low, high = struct.unpack_from("<II", kernel.code)
  assert low >> 16 & 0xFF == 1  # to R1
  assert (high >> 8 & 0x3FFF) * 4 == (0x28 if number < 100 else 0x37C)


@HERE
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120"])
def test_kernels_of_ours(arch: str) -> None:
  for name in ("matmul_float16", "softmax") if "softmax" in STANDARD else ("matmul_float16",):
    binary = CubinCompiler(Arch.parse(arch)).compile(STANDARD[name]())
    number, kernels = parse(without_note(binary.code))
    kernel = kernels[binary.entry]
    assert kernel.parameters[1] == 8 * (len(binary.params) + len(binary.variables)) and 0 < kernel.registers <= 255
    assert (
      kernel.threads is not None and kernel.shared + at_launch(binary.code) <= Arch.parse(arch).shared_memory + 1024
    )
    assert all(kernel.constants.values()) and number in (75, 90, 120)


@HERE
def test_what_is_no_cubin_is_said() -> None:
  text = KERNEL.format(version=VERSIONS["sm_80"], arch="sm_80", threads=32, shared=64, local="", keep="")
  code, _ = ptxas.assemble(text.encode(), "sm_80")
  with pytest.raises(CubinError, match="begins with"):
    parse(b"PTX" + code)
  with pytest.raises(CubinError, match="machine 224, expected 190"):
    parse(code[:18] + struct.pack("<H", 224) + code[20:])
  random.seed(1)
  for _ in range(300):  # cut off, or with a byte changed: an error of ours, or something else is read
    broken = bytearray(code[: random.choice((len(code), random.randrange(len(code))))])
    if broken:
      broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    try:
      parse(bytes(broken))
    except CubinError:
      pass


@HERE
def test_code_that_is_to_be_moved_is_refused() -> None:
  text = ".version 7.0\n.target sm_80\n.address_size 64\n.global .u32 counter;\n" + (
    ".visible .entry kernel() {\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\nmov.u64 %d0, counter;\nld.global.u32 %r0, [%d0];\n"
    "add.u32 %r0, %r0, 1;\nst.global.u32 [%d0], %r0;\nret;\n}\n"
  )
  with pytest.raises(CubinError, match="depends on where things are"):
    parse(ptxas.assemble(text.encode(), "sm_80")[0])


def test_no_ptxas_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(ptxas, "find_ptxas", lambda: None)
  with pytest.raises(CompileError, match=r"pip install 'tiny-runtime-nv\[ptxas\]'"):
    ptxas.cubin_of(".version 7.0", "sm_80")
