"""Private memory before gfx940, on the emulator of AMD's machine code: a kernel that LLVM made of an array, of which
each thread takes another element, and of more numbers than it has registers; and what such code must not do."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from amd_code_machine import run_image

from gpu_model.amd_code.emulator import Fault
from gpu_model.as_device import as_device
from gpu_model.kfd_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_asm_amd import Program, decode
from tiny_runtime.llvm import compile_object
from tiny_runtime_amd import Arch, CodeObject
from tiny_runtime_amd.linking import link
from tiny_tensor import Tensor
from tiny_uop import Context

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CHIP, COUNT, ARRAY, THREADS = "gfx90a", 24, 8, 128
UNUSED = ("dispatch-id", "dispatch-ptr", "implicitarg-ptr", "queue-ptr")


def source() -> str:
  """LLVM IR: a thread adds COUNT numbers to the one of the first 8 whose place is said by the first number; that goes
  through an array and once more through its address as one of any memory."""
  lines = [
    'target triple = "amdgcn-amd-amdhsa"',
    "declare i32 @llvm.amdgcn.workitem.id.x()",
    "declare i32 @llvm.amdgcn.workgroup.id.x()",
    "define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {",
    "%t = call i32 @llvm.amdgcn.workitem.id.x()",
    "%g = call i32 @llvm.amdgcn.workgroup.id.x()",
    f"%b = mul i32 %g, {THREADS}",
    "%i = add i32 %b, %t",
    f"%a = alloca [{ARRAY} x i32], align 4, addrspace(5)",
    "%p = getelementptr i32, ptr addrspace(1) %in, i32 %i",
    "%o = getelementptr i32, ptr addrspace(1) %out, i32 %i",
  ]
  for n in range(COUNT):
    lines.append(f"%p{n} = getelementptr i32, ptr addrspace(1) %p, i32 {2 * THREADS * n}")
    lines.append(f"%x{n} = load volatile i32, ptr addrspace(1) %p{n}")
  for n in range(ARRAY):
    lines.append(f"%q{n} = getelementptr [{ARRAY} x i32], ptr addrspace(5) %a, i32 0, i32 {n}")
    lines.append(f"store i32 %x{n}, ptr addrspace(5) %q{n}")
  lines += [
    f"%m = and i32 %x0, {ARRAY - 1}",
    f"%r = getelementptr [{ARRAY} x i32], ptr addrspace(5) %a, i32 0, i32 %m",
    "%v = load i32, ptr addrspace(5) %r",
    "%f = addrspacecast ptr addrspace(5) %r to ptr",
    "store volatile i32 %v, ptr %f",
    "%s = load volatile i32, ptr %f",
  ]
  for n in range(COUNT):
    lines.append(f"%s{n} = add i32 %s{n - 1 if n else ''}, %x{n}")
    lines.append(f"store volatile i32 %s{n}, ptr addrspace(1) %o")
  unused = " ".join(f'"amdgpu-no-{name}"' for name in UNUSED)
  return "\n".join(
    [
      *lines,
      "ret void",
      "}",
      f'attributes #0 = {{ "amdgpu-flat-work-group-size"="1,{THREADS}" "amdgpu-num-vgpr"="12" {unused} }}',
    ]
  )


@cache
def code() -> bytes:
  return link(compile_object(source(), Arch.parse(CHIP).processor, 3))


@cache
def kernel() -> tuple[bytes, Any]:
  made = CodeObject.parse(code())
  return bytes(made.image), made.kernels["k"]


GIVEN = np.random.default_rng(0).integers(0, 1 << 32, (COUNT, 2 * THREADS), np.uint32)
WANTED = GIVEN.sum(0, dtype=np.uint32) + GIVEN[:ARRAY][GIVEN[0] % ARRAY, np.arange(2 * THREADS)]


def launched(image: bytes, private: int | None = None) -> None:
  out = np.zeros(2 * THREADS, np.uint32)
  run_image(CHIP, image, kernel()[1], [out, GIVEN], (2, 1, 1), (THREADS, 1, 1), private)
  assert (out == WANTED).all()


def test_spills_arrays_and_flat_addresses() -> None:
  image, made = kernel()
  assert made.private_bytes > 4 * ARRAY  # more than the array: it spills
  launched(image)


def test_by_the_plugin() -> None:
  """Its queue says where private memory is: after a kernel that needs none, and for one that needs more than before."""
  backend = ModelBackend(gpu=CHIP, machine_code=True)
  program = Program(CHIP, code(), "k", (2,), (THREADS,), (0,))
  with as_device(backend, "AMD"), Context(DEVICE="AMD"):
    given = (Tensor(GIVEN) ^ 1).realize()
    found = Tensor.empty(2 * THREADS, dtype="uint32").custom_kernel(given ^ 1, fxn=lambda *_: program)[0]
    assert (found.numpy() == WANTED).all() and backend.model.processor.private == kernel()[1].private_bytes
  assert backend.model.misuse == [] and backend.model.left() == []


@pytest.mark.parametrize(
  ("what", "message"),
  [
    ("s_add_u32 s0, s0, ", "a buffer of private memory begins at"),
    ("s_addc_u32 s1, s1, 0", "a buffer of private memory begins at"),
    ("s_add_u32 flat_scratch_lo, ", "SCC is read|s102 is read"),
    ("s_addc_u32 flat_scratch_hi, ", "s103 is read, and nobody wrote it"),
  ],
)
def test_places_that_are_not_made(what: str, message: str) -> None:
  """What the kernel does not do to find its wave's part is found."""
  image, made = kernel()
  at = made.entry
  while not str(here := decode(image[at : at + 20], CHIP)).startswith(what):
    at += here.size
  nop = (0xBF800000).to_bytes(4, "little")
  with pytest.raises(Fault, match=message):
    launched(image[:at] + nop * (here.size // 4) + image[at + here.size :])


def test_more_than_there_is() -> None:
  with pytest.raises(Fault, match=f"4 bytes at .* of private memory, which has {4 * ARRAY}"):
    launched(kernel()[0], 4 * ARRAY)
