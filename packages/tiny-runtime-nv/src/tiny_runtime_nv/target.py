"""NVIDIA's GPUs as data of tiny-codegen's LLVM renderer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tiny_codegen import Limits, LLVMRenderer, LLVMTarget, Target
from tiny_codegen.render.c.dialect import function_name
from tiny_codegen.render.llvm.copies import AsyncCopy
from tiny_codegen.render.llvm.shuffle import Exchange
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_runtime_nv.arch import TRIPLE, Arch
from tiny_runtime_nv.entries import WIDEST
from tiny_runtime_nv.shared_memory import STATIC
from tiny_runtime_nv.tensor_cores import matrix_instructions, shared_matrix_instructions
from tiny_uop import Ops, ProgramInfo, UOp, dtypes
from tiny_uop.updates import GPU_UPDATES

MOST_THREADS = 1024
WARP = 32

COPIES = AsyncCopy(
  16, "llvm.nvvm.cp.async.cg.shared.global.16", "llvm.nvvm.cp.async.cg.shared.global.16.s",
  "llvm.nvvm.cp.async.commit.group", "llvm.nvvm.cp.async.wait.group",
)  # fmt: skip
"""cp.async past the first cache, which only takes 16 bytes (PTX ISA, "cp.async")."""


@cache
def target(arch: Arch, tf32: bool = False) -> LLVMTarget:
  """What the renderer has to know of an architecture. `tf32`: products of float32 may be rounded."""
  matrices = matrix_instructions(arch, tf32)
  facts = Target(
    native_dtypes=LLVM_DTYPES | {dtypes.float16} | ({dtypes.bfloat16} if arch.bfloat16 else set()),
    native_ops=LLVM_OPS | {Ops.MULACC},
    bfloat16_of_integers=arch.capability >= (9, 0),  # before that LLVM goes by way of float32
    atomics=GPU_UPDATES,
    vector_bits=8 * WIDEST,
    max_vector_lanes=WIDEST,
    has_fma=True,
    has_local=True,
    subgroup=WARP,
    limits=Limits(
      max_local=(MOST_THREADS, MOST_THREADS, 64),
      max_workgroup=MOST_THREADS,
      shared_memory=arch.shared_memory,
      shared_memory_for_all=arch.shared_memory_for_all,
    ),
    async_copy=COPIES.nbytes if arch.capability >= (8, 0) else 0,
    matrix_loads=True,
    tensor_cores=(*[m.core for m in matrices], *[m.core for m in shared_matrix_instructions(arch)]),
  )
  return LLVMTarget(
    name=arch.name,
    target=facts,
    triple=TRIPLE,
    cpu=arch.name,
    features=arch.processor.features,
    convention="ptx_kernel",
    spaces=(1, 3, 0),
    counters=tuple([
      (f"{prefix}{axis}", f"llvm.nvvm.read.ptx.sreg.{register}.{'xyz'[axis]}")
      for prefix, register in (("gidx", "ctaid"), ("lidx", "tid"))
      for axis in range(3)
    ]),
    barrier=("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
    group_size='"nvvm.reqntid"="{x},{y},{z}"',
    matrices=matrices,
    # lanes that a small workgroup does not have count as those that are done: they need not come
    exchanges=tuple([
      Exchange(1 << bit, (f"call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {{x}}, i32 {1 << bit}, i32 31)",))
      for bit in range(5)
    ]),
    aligned=WIDEST,
    static_local=STATIC,
    shared_matrices=shared_matrix_instructions(arch),
    proxy_fence=('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()',),
    matrix_load="llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{matrices}{transposed}.b16.p3",
    copies=COPIES if arch.capability >= (8, 0) else None,
  )  # fmt: skip


class PTXRenderer(LLVMRenderer):
  """Programs as LLVM IR that becomes PTX. Names in PTX have letters, digits and underscores only."""

  def __init__(self, arch: Arch, tf32: bool = False) -> None:
    super().__init__(target(arch, tf32))

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return super().render(linear, replace(info, name=function_name(info.name)))
