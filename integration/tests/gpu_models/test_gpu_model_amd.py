"""The LLVM IR that tiny-runtime-amd writes, run on the model: results, races, bounds, barriers."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
from gpu_model_kernels import SMALL, check_on, product, some

from gpu_model.amd import GFX942, GFX950, GFX1100, GFX1201
from gpu_model.llvm import LLVMBackend
from gpu_model.llvm_source import LLVMSource
from gpu_model.machine import Buffer, Wrong, allocated, launch
from gpu_model.toolchain import Refused, compiler
from tiny_runtime import DeviceLost
from tiny_runtime.conformance.standard import elementwise
from tiny_uop import dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

ARCHS = {backend.arch: backend for backend in (GFX1100, GFX1201, GFX942, GFX950)}
CORES = [(name, n) for name, backend in ARCHS.items() for n in range(len(backend.target.matrices))]


@pytest.mark.parametrize(("arch", "number"), some(CORES, 3))
def test_matrix_instructions(arch: str, number: int) -> None:
  """Two matrices along each side and half of one more: each element goes where the table of fragments says."""
  backend = ARCHS[arch]
  instruction = backend.target.matrices[number]
  n, m, k = instruction.core.dims
  types = instruction.core.dtype_in, instruction.core.dtype_out
  kernel = product((2 * m, n + n // 2, 2 * k), (m, n, k), types, number)
  assert f"@{instruction.name}(" in check_on(backend, kernel)


@pytest.mark.parametrize("backend", [GFX942, GFX1100], ids=lambda b: str(b.arch))
def test_matrix_instructions_under_a_causal_mask(backend: LLVMBackend) -> None:
  instruction = backend.target.matrices[0]
  n, m, k = instruction.core.dims
  types = instruction.core.dtype_in, instruction.core.dtype_out
  kernel = product((2 * m, n, 3 * k), (m, n, k), types, 0, causal=True)
  assert f"@{instruction.name}(" in check_on(backend, kernel)


@pytest.mark.parametrize("name", some(SMALL, 3))
@pytest.mark.parametrize("backend", some([GFX942, GFX1100], 2), ids=lambda b: str(b.arch))
def test_standard_kernels_with_what_the_heuristics_choose(name: str, backend: LLVMBackend) -> None:
  check_on(backend, SMALL[name](), tolerance=64)


@pytest.mark.parametrize("backend", [GFX1100], ids=lambda b: str(b.arch))
def test_what_a_kernel_must_not_do_is_found(backend: LLVMBackend) -> None:
  binary = backend.compiler(backend.arch).compile(elementwise(16, dtypes.int32))
  place = "ptr addrspace(1) %p2, i32 %"
  far = replace(binary, source=binary.source.replace(f"inbounds i32, {place}", f"i64, {place}"))
  assert far.source != binary.source
  device = backend.open(0)
  memories = [(device.alloc(64), 0) for _ in range(4)]
  program = device.load(far)
  with pytest.raises(DeviceLost, match="elementwise: thread .* reads 4 bytes at byte 64 of p2, which has 64"):
    device.launch(program, memories, [], (1, 1, 1), (16, 1, 1), True)


EXCHANGE = """
define amdgpu_kernel void @exchange(ptr addrspace(1) {promise}%p0) #0 {{
start:
  %lidx0 = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr inbounds i32, ptr addrspace({space}) {array}, i32 %lidx0
  store i32 %lidx0, ptr addrspace({space}) %at, align 4
{barrier}
  %other = xor i32 %lidx0, 63
  %from = getelementptr inbounds i32, ptr addrspace({space}) {array}, i32 %other
  %value = load i32, ptr addrspace({space}) %from, align 4
  %behind = add i32 %lidx0, 64
  %to = getelementptr inbounds i32, ptr addrspace(1) %p0, i32 %behind
  store i32 %value, ptr addrspace(1) %to, align 4
  ret void
}}

declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()

!0 = !{{!"amdgpu-synchronize-as", !"local"}}
!1 = !{{!"amdgpu-synchronize-as", !"global"}}
!2 = !{{!0, !1}}
"""
ARRAY = "@m0 = internal addrspace(3) global [64 x i32] poison, align 16\n"
RELEASE, ACQUIRE = 'fence syncscope("workgroup") release', 'fence syncscope("workgroup") acquire'
BARRIER = "call void @llvm.amdgcn.s.barrier()"
FULL = (RELEASE, BARRIER, ACQUIRE)
LOCAL, GLOBAL = ((f"{RELEASE}, !mmra {n}", BARRIER, f"{ACQUIRE}, !mmra {n}") for n in ("!0", "!1"))


def exchanged(barrier: tuple[str, ...], shared: bool = False, promise: str = "") -> list[int]:
  """What 64 threads read that others wrote before a barrier, in a buffer or in shared memory."""
  space, array = (3, "@m0") if shared else (1, "%p0")
  lines = "\n".join(f"  {line}" for line in barrier)
  text = EXCHANGE.format(barrier=lines, space=space, array=array, promise=promise)
  source = LLVMSource(ARRAY * shared + text, GFX942.target)
  memory = allocated(512)
  launch(source.call, [Buffer(ctypes.addressof(memory), 512, "p0", True, *source.unaliased)], (1, 1, 1), (64, 1, 1))
  return list((ctypes.c_int32 * 128).from_buffer(memory))[64:]


@pytest.mark.parametrize(
  ("barrier", "device", "shared"),
  [
    (FULL, True, True),
    (LOCAL, False, True),
    (GLOBAL, True, False),
    ((f"{RELEASE}, !mmra !2", BARRIER, f"{ACQUIRE}, !mmra !2"), True, True),
    ((LOCAL[0], GLOBAL[0], BARRIER, ACQUIRE), True, True),
    (("fence acq_rel", BARRIER, 'fence syncscope("agent") seq_cst'), True, True),
    ((RELEASE, BARRIER, LOCAL[2]), False, True),
    ((GLOBAL[0], BARRIER, LOCAL[2]), False, False),
    ((BARRIER,), False, False),
    ((RELEASE, BARRIER), False, False),
    ((BARRIER, ACQUIRE), False, False),
    ((ACQUIRE, BARRIER, RELEASE), False, False),
    ((RELEASE.replace("workgroup", "wavefront"), BARRIER, ACQUIRE), False, False),
    ((*LOCAL, *FULL), True, True),
  ],
)
def test_fences_say_which_memory_a_barrier_orders(barrier: tuple[str, ...], device: bool, shared: bool) -> None:
  for ordered, in_shared, kind in ((device, False, "device"), (shared, True, "shared")):
    if ordered:
      assert exchanged(barrier, in_shared) == list(range(63, -1, -1))
    else:
      with pytest.raises(Wrong, match=f"has written with no barrier between that orders {kind} memory"):
        exchanged(barrier, in_shared)


def test_threads_do_not_exchange_through_a_pointer_that_is_promised_to_have_no_other() -> None:
  """LLVM may keep what it loaded before the barrier, or store behind it: that it does not here is luck."""
  with pytest.raises(Wrong, match="which thread .* has written and its pointer is noalias"):
    exchanged(FULL, promise="noalias ")
  assert exchanged(FULL, shared=True, promise="noalias ") == list(range(63, -1, -1))


def test_what_is_no_kernel_is_refused() -> None:
  with pytest.raises(Refused, match="no function is a kernel"):
    LLVMSource("define void @f() {\n}", GFX942.target)
