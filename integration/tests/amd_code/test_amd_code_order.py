"""Waves of a workgroup that exchange numbers through global memory, on the emulator of AMD's machine code: what has to
be around a barrier, after "Memory Model" of LLVM's guide (gfx90a, gfx942, gfx10-gfx11, gfx12) at workgroup scope, and
as LLVM makes it of fences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_code_machine import Words, lanes, launched, run_image

from gpu_model.amd_code.emulator import Fault
from gpu_model.toolchain import compiler
from tiny_asm_amd import null, s, v
from tiny_runtime.llvm import compile_object
from tiny_runtime_amd import Arch, CodeObject
from tiny_runtime_amd.linking import link

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CDNA, RDNA = ("gfx90a", "gfx942", "gfx950"), ("gfx1100", "gfx1201")
CHIPS = (*CDNA, *RDNA)
Body = list[Any]
NOT_WAITED = "is read, and wave . of workgroup 0 wrote, with no barrier in between, or before that was waited for"
NOT_INVALIDATED = "the wave's cache may have what was there before, and is to be invalidated behind the barrier"


def stored(chip: str) -> Body:
  """Until stores are done for others."""
  isa = Words(chip).isa
  wait = {"gfx1100": lambda: isa.s_waitcnt_vscnt(null, 0), "gfx1201": lambda: isa.s_wait_storecnt(0)}
  return [wait.get(chip, lambda: isa.s_waitcnt(vmcnt=0))()]


def invalidated(chip: str, scope: int = 1) -> Body:
  """The cache that the waves of a compute unit have, where those of a workgroup are on two."""
  isa = Words(chip).isa
  return {"gfx1100": lambda: [isa.buffer_gl0_inv()], "gfx1201": lambda: [isa.global_inv(scope=scope)]}.get(chip, list)()


def exchanged(chip: str, between: Body, load: dict[str, int] | None = None) -> bool:
  """Whether each thread of two waves finds what one of the other wave stored in a buffer before `between`. `load` has
  modifiers of the load."""
  move, threads = Words(chip), 2 * lanes(chip)
  out = np.zeros(2 * threads, np.uint32)
  name = "global_load_dword" if move.family == "cdna" else "global_load_b32"
  body = [
    *move.addresses(s[4:5]), move.isa.v_lshlrev_b32(v[1], 2, v[0]), move.store(v[1], v[0], s[4:5]),
    move.isa.v_xor_b32(v[2], 4 * (threads - 1), v[1]), *between,
    getattr(move.isa, name)(v[3], v[2], s[4:5], **(load or {})), *move.wait(),
    move.store(v[1], v[3], s[4:5], 4 * threads), move.isa.s_endpgm(),
  ]  # fmt: skip
  for backwards in (False, True):
    out[:] = 0
    launched(chip, body, [out], threads=threads, backwards=backwards)
    if not np.array_equal(out[threads:], np.arange(threads)[::-1]):
      return False
  return True


@pytest.mark.parametrize("chip", CHIPS)
def test_a_barrier_between_waits_and_an_invalidation(chip: str) -> None:
  barrier = Words(chip).barrier()
  assert exchanged(chip, [*stored(chip), *barrier, *invalidated(chip)])


@pytest.mark.parametrize("chip", RDNA)
def test_a_store_that_is_not_waited_for_before_the_barrier(chip: str) -> None:
  barrier, fresh = Words(chip).barrier(), invalidated(chip)
  for between in ([*barrier, *fresh], [*barrier, *stored(chip), *fresh]):
    with pytest.raises(Fault, match=NOT_WAITED):
      exchanged(chip, between)


@pytest.mark.parametrize("chip", CDNA)
def test_waves_with_one_cache_need_not_wait_for_stores(chip: str) -> None:
  assert exchanged(chip, Words(chip).barrier())


@pytest.mark.parametrize("chip", CHIPS)
def test_without_a_barrier(chip: str) -> None:
  with pytest.raises(Fault, match="wave . of workgroup 0 (wrote|touched), with no barrier in between"):
    exchanged(chip, [*stored(chip), *invalidated(chip)])


def test_a_barrier_is_for_what_was_waited_for_when_a_wave_came_to_it() -> None:
  """On RDNA 4 a wave signals and goes on: what it waits for before the others have come is not for them."""
  signal, wait = Words("gfx1201").barrier()
  fresh = invalidated("gfx1201")
  assert exchanged("gfx1201", [*stored("gfx1201"), signal, wait, *fresh])
  with pytest.raises(Fault, match=NOT_WAITED):
    exchanged("gfx1201", [signal, *stored("gfx1201"), wait, *fresh])


@pytest.mark.parametrize("chip", RDNA)
def test_a_load_from_a_cache_that_is_not_invalidated(chip: str) -> None:
  """The waves may be on the two compute units of a workgroup processor."""
  barrier, fresh = Words(chip).barrier(), invalidated(chip)
  for between in (barrier, [*fresh, *barrier]):
    with pytest.raises(Fault, match=NOT_INVALIDATED):
      exchanged(chip, [*stored(chip), *between])
  assert exchanged(chip, [*stored(chip), *barrier], load={"gfx1100": {"glc": 1}, "gfx1201": {"scope": 1}}[chip])


def test_an_invalidation_for_one_compute_unit_is_not_enough() -> None:
  with pytest.raises(Fault, match=NOT_INVALIDATED):
    exchanged("gfx1201", [*stored("gfx1201"), *Words("gfx1201").barrier(), *invalidated("gfx1201", scope=0)])


# *** what LLVM makes of fences ***

KERNEL = """
target triple = "amdgcn-amd-amdhsa"

define amdgpu_kernel void @exchange(ptr addrspace(1) %p0) #0 {{
start:
  %lidx0 = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr inbounds i32, ptr addrspace(1) %p0, i32 %lidx0
  store i32 %lidx0, ptr addrspace(1) %at, align 4
  fence syncscope("workgroup") release{only}
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire{only}
  %other = xor i32 %lidx0, 127
  %from = getelementptr inbounds i32, ptr addrspace(1) %p0, i32 %other
  %value = load i32, ptr addrspace(1) %from, align 4
  %behind = add i32 %lidx0, 128
  %to = getelementptr inbounds i32, ptr addrspace(1) %p0, i32 %behind
  store i32 %value, ptr addrspace(1) %to, align 4
  ret void
}}

declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()

attributes #0 = {{ nounwind "amdgpu-flat-work-group-size"="128,128" "uniform-work-group-size"="true" {more} }}
!0 = !{{!"amdgpu-synchronize-as", !"local"}}
"""
UNUSED = (
  "completion-action", "default-queue", "dispatch-id", "dispatch-ptr", "heap-ptr", "hostcall-ptr", "implicitarg-ptr",
  "lds-kernel-id", "multigrid-sync-arg", "queue-ptr",
)  # fmt: skip


LOCAL_ONLY = ", !mmra !0"


def compiled_exchange(chip: str, only: str = "", more: str = "") -> bool:
  """Whether the kernel with fences for all memory, or for shared memory only, leaves what it should."""
  text = KERNEL.format(only=only, more=" ".join([*(f'"amdgpu-no-{name}"' for name in UNUSED), more]))
  code = CodeObject.parse(link(compile_object(text, Arch.parse(chip).processor, 3)))
  out = np.zeros(256, np.uint32)
  run_image(chip, bytes(code.image), code.kernels["exchange"], [out], (1, 1, 1), (128, 1, 1))
  return np.array_equal(out[128:], np.arange(128)[::-1])


@pytest.mark.parametrize("chip", CHIPS)
def test_fences_as_llvm_compiles_them(chip: str) -> None:
  assert compiled_exchange(chip)


@pytest.mark.parametrize("chip", RDNA)
def test_fences_that_are_for_shared_memory_only(chip: str) -> None:
  """On CDNA, and in compute unit mode, what LLVM makes of them is enough for global memory."""
  with pytest.raises(Fault, match=NOT_WAITED):
    compiled_exchange(chip, LOCAL_ONLY)
  assert compiled_exchange(chip, LOCAL_ONLY, '"target-features"="+cumode"')
