"""AMD's GPUs as data of tiny-codegen's LLVM renderer."""

from __future__ import annotations

from functools import cache

from tiny_codegen import Limits, LLVMRenderer, LLVMTarget, Target
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_runtime_amd.arch import TRIPLE, Arch
from tiny_runtime_amd.exchanges import exchanges
from tiny_runtime_amd.matrix_cores import matrix_instructions
from tiny_uop import Ops, dtypes
from tiny_uop.updates import GPU_UPDATES

MOST_THREADS = 1024
WIDEST = 16
"""Bytes of the widest access. It may begin at any multiple of an element."""

# what a kernel could ask of the runtime and never does: without it there is nothing to prepare in a launch
_UNUSED = (
  "completion-action", "default-queue", "dispatch-id", "dispatch-ptr", "heap-ptr", "hostcall-ptr", "implicitarg-ptr",
  "lds-kernel-id", "multigrid-sync-arg", "queue-ptr",
)  # fmt: skip


@cache
def target(arch: Arch) -> LLVMTarget:
  """What the renderer has to know of an architecture."""
  matrices = matrix_instructions(arch)
  facts = Target(
    native_dtypes=LLVM_DTYPES | {dtypes.float16, dtypes.bfloat16},
    native_ops=LLVM_OPS | {Ops.MULACC},
    atomics=GPU_UPDATES,
    vector_bits=8 * WIDEST,
    max_vector_lanes=WIDEST,
    bfloat16_of_integers=False,  # LLVM's instructions go by way of float32
    has_fma=True,
    has_local=True,
    subgroup=arch.subgroup_size,
    limits=Limits(max_local=(MOST_THREADS,) * 3, max_workgroup=MOST_THREADS, shared_memory=arch.local_memory),
    tensor_cores=tuple([m.core for m in matrices]),
  )
  return LLVMTarget(
    name=arch.name,
    target=facts,
    triple=TRIPLE,
    cpu=arch.name,
    features=arch.processor.features,
    convention="amdgpu_kernel",
    spaces=(1, 3, 5),  # LLVM's numbers for AMD's global memory, shared memory (LDS) and memory of a thread
    counters=tuple([
      (f"{prefix}{axis}", f"llvm.amdgcn.{register}.id.{'xyz'[axis]}")
      for prefix, register in (("gidx", "workgroup"), ("lidx", "workitem"))
      for axis in range(3)
    ]),
    barrier=(
      'fence syncscope("workgroup") release',
      "call void @llvm.amdgcn.s.barrier()",
      'fence syncscope("workgroup") acquire',
    ),
    # !mmra !0 ("memory model relaxation annotation" of LLVM) says that a fence orders shared memory alone: stores that
    # are on their way to global memory are not waited for
    local_barrier=(
      'fence syncscope("workgroup") release, !mmra !0',
      "call void @llvm.amdgcn.s.barrier()",
      'fence syncscope("workgroup") acquire, !mmra !0',
    ),
    metadata=('!0 = !{!"amdgpu-synchronize-as", !"local"}',),
    group_size='"amdgpu-flat-work-group-size"="{threads},{threads}"',
    attributes=('"uniform-work-group-size"="true"', *[f'"amdgpu-no-{name}"' for name in _UNUSED]),
    matrices=matrices,
    exchanges=exchanges(arch.subgroup_size),
    fence_halves=True,  # LLVM 22 makes v_fma_mixlo_f16 of a product, which adds +0.0: -0.0 would become 0.0
    scopes=("agent", "workgroup"),  # who sees atomic updates: of global memory the GPU, of shared the workgroup
  )  # fmt: skip


def renderer(arch: Arch) -> LLVMRenderer:
  """Programs as LLVM IR for an architecture."""
  return LLVMRenderer(target(arch))
