"""The reader of cubins, on what ptxas writes for every architecture."""

from __future__ import annotations

import random
import re
import struct

import pytest

from tiny_runtime import Binary, CompileError
from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime_nv import ARCHS, Arch, ptxas
from tiny_runtime_nv.kernel_driver.compiler import CubinCompiler
from tiny_runtime_nv.kernel_driver.cubin import CubinError, CubinKernel, parse
from tiny_runtime_nv.kernel_driver.generations import GENERATIONS
from tiny_runtime_nv.kernel_driver.kernels import NVKernel, Windows
from tiny_runtime_nv.shared_memory import at_launch, without_note
from tiny_uop import ParamInfo, UOp, dtypes

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


VARIABLES = """
.version {version}
.target {arch}
.address_size 64
.global .align 4 .u32 counter;
.global .align 4 .u32 table[4] = {{11, 12, 13, 14}};
.global .align 8 .u64 second = generic(table)+4;
.const .align 8 .u64 places[2] = {{table, generic(counter)}};
.visible .entry {name}(.param .u64 a)
{{
  .reg .b64 %d<8>;
  .reg .b32 %r<4>;
  ld.param.u64 %d0, [a];
  ld.global.u32 %r0, [counter];
  add.u32 %r0, %r0, 1;
  st.global.u32 [counter], %r0;
  ld.global.u64 %d1, [second];
  ld.u32 %r1, [%d1];
  and.b32 %r0, %r0, 1;
  mul.wide.u32 %d2, %r0, 8;
  mov.u64 %d3, places;
  add.u64 %d3, %d3, %d2;
  ld.const.u64 %d3, [%d3];
  ld.u32 %r2, [%d3];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%d0], %r1;
  ret;
}}
"""


def of_variables(arch: str, name: str = "kernel") -> bytes:
  return ptxas.assemble(VARIABLES.format(version=VERSIONS[arch], arch=arch, name=name).encode(), arch)[0]


@HERE
@pytest.mark.parametrize("arch", [arch.name for arch in ARCHS])
def test_addresses_of_global_variables(arch: str) -> None:
  """Of constants and of variables that hold one, in the places that the cubin's symbols name."""
  kernel = parse(of_variables(arch))[1]["kernel"]
  words = struct.unpack(f"<{len(kernel.variables) // 4}I", kernel.variables)
  table = words.index(11)
  assert words[table : table + 4] == (11, 12, 13, 14)
  (own,) = [a for a in kernel.addresses if a.bank is None]
  assert own.place == 4 * table + 4 and own.at % 8 == 0 and not any(kernel.variables[own.at : own.at + 8])
  first, other = sorted((a.at, a.place) for a in kernel.addresses if a.bank == 3)
  counter = other[1]
  assert first == (0, 4 * table) and other[0] == 8 and words[counter // 4] == 0
  assert {a.place for a in kernel.addresses if a.bank == 4} == {counter, own.at, 4 * table}
  assert all(a.at + 8 <= len(kernel.constants[a.bank]) for a in kernel.addresses if a.bank is not None)


@HERE
def test_a_loaded_kernel_has_the_addresses() -> None:
  """The image has the variables, and says where they are once it is somewhere."""
  arch, hopper = Arch.parse("sm_90a"), next(g for g in GENERATIONS if g.compute == "HOPPER_COMPUTE_A")
  params = (ParamInfo(0, dtypes.uint32, 4, True, False),)
  one = UOp.const(dtypes.int32, 1)
  binary = Binary(of_variables(arch.name), "kernel", (one, one, one), (one, one, one), params, (), one, one, "")
  kernel = NVKernel.of(binary, arch, hopper, Windows(1 << 32, 2 << 32))
  kernel.address = 0x7F0000123000
  image = kernel.placed()
  variables = bytearray(kernel.about.variables)
  assert len(image) == len(kernel.image) and len(kernel.about.addresses) == 6
  for address in kernel.about.addresses:
    begin = 0 if address.bank is None else kernel.banks[address.bank][0]
    (there,) = struct.unpack_from("<Q", image, begin + address.at)
    assert there - kernel.address == address.place
    if address.bank is None:
      struct.pack_into("<Q", variables, address.at, there)
  assert image.startswith(variables)


FIBONACCI = """
.version 7.0
.target sm_80
.address_size 64
.func (.param .b32 r) fib(.param .b32 x);
.func (.param .b32 r) fib(.param .b32 x)
{
  .reg .b32 %r<6>;
  .reg .pred %p;
  ld.param.u32 %r0, [x];
  setp.lt.u32 %p, %r0, 2;
  @%p bra end;
  sub.u32 %r1, %r0, 1;
  { .param .b32 y; .param .b32 z; st.param.b32 [y], %r1; call.uni (z), fib, (y); ld.param.b32 %r2, [z]; }
  sub.u32 %r1, %r0, 2;
  { .param .b32 y; .param .b32 z; st.param.b32 [y], %r1; call.uni (z), fib, (y); ld.param.b32 %r3, [z]; }
  add.u32 %r0, %r2, %r3;
end:
  st.param.b32 [r], %r0;
  ret;
}
.visible .entry kernel(.param .u64 a)
{
  .reg .b64 %d<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %d0, [a];
  ld.global.u32 %r0, [%d0];
  { .param .b32 y; .param .b32 z; st.param.b32 [y], %r0; call.uni (z), fib, (y); ld.param.b32 %r1, [z]; }
  st.global.u32 [%d0], %r1;
  ret;
}
"""


@HERE
def test_functions_that_call_themselves_have_a_stack() -> None:
  """ptxas says that the kernel needs none, and how much a call takes."""
  kernel = parse(ptxas.assemble(FIBONACCI.encode(), "sm_80")[0])[1]["kernel"]
  assert kernel.stack == 1024 and not kernel.addresses and not kernel.variables


PRINTS = """
.version 7.1
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[4] = {65, 66, 10, 0};
.visible .entry kernel()
{
  .reg .b64 %d<2>;
  mov.u64 %d0, text;
  cvta.global.u64 %d0, %d0;
  { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d0; st.param.b64 [a], %d0;
    call.uni (r), vprintf, (f, a); }
  ret;
}
"""
MASKS = """
.version 7.1
.target sm_80
.address_size 64
.global .align 4 .u32 table[4];
.global .align 4 .u32 low = 0xff(table);
.visible .entry kernel(.param .u64 a)
{
  .reg .b64 %d<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %d0, [a];
  ld.global.u32 %r0, [low];
  st.global.u32 [%d0], %r0;
  ret;
}
"""


@HERE
@pytest.mark.parametrize(
  ("text", "message"),
  [
    (PRINTS, r"a cubin that needs vprintf, which is not in it \(byte \d+ of .nv.constant4\)"),
    (MASKS, r"a relocation of type \d+ for table \(byte 0 of .nv.global.init\): known are, in constants and variables"),
  ],
)
def test_what_else_is_left_to_a_loader_is_refused(text: str, message: str) -> None:
  with pytest.raises(CubinError, match=message):
    parse(ptxas.assemble(text.encode(), "sm_80")[0])


def test_no_ptxas_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(ptxas, "find_ptxas", lambda: None)
  with pytest.raises(CompileError, match=r"pip install 'tiny-runtime-nv\[ptxas\]'"):
    ptxas.cubin_of(".version 7.0", "sm_80")
