"""Targets with workgroups: LOCAL, GROUP and STAGE with shared memory and barriers, run by an interpreter."""

from __future__ import annotations

from typing import Any

import pytest
from codegen_kernels import CASES, check
from workgroup_machine import run_workgroups

from tiny_codegen import Capabilities, KernelOptError, Renderer, compile_kernel
from tiny_codegen.render.llvm_target import LLVM_DTYPES, LLVM_OPS
from tiny_uop import Context, Ops, Opt, OptOps, ProgramInfo, UOp


class Workgroups(Renderer):
  """A device with workgroups and no vectors; its programs are interpreted."""

  target = "workgroups"
  capabilities = Capabilities(
    LLVM_DTYPES, LLVM_OPS, has_local=True, max_local=(64, 64, 64), max_workgroup=256, shared_memory_bytes=65536
  )

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return ""


def run(name: str, sizes: tuple[int, ...], opts: list[Opt] | None) -> UOp:
  case = CASES[name](*sizes)
  arrays: list[Any] = [a.ravel().astype(float) for a in case.arrays]
  with Context(SPEC=2):
    program = compile_kernel(case.kernel, Workgroups(), opts)
  run_workgroups(program, arrays)
  check(case, [arrays[0].reshape(case.expected.shape)])
  return program


def test_output_loops_are_workgroups() -> None:
  program = run("matmul", (4, 6, 5), [])
  assert [int(s.arg) for s in program.src[3].src] == [4, 6, 1]


def test_local() -> None:
  program = run("matmul", (4, 6, 5), [Opt(OptOps.LOCAL, 0, 2), Opt(OptOps.LOCAL, 1, 3)])
  assert [int(s.arg) for s in program.src[3].src] == [2, 2, 1]
  assert [int(s.arg) for s in program.src[4].src] == [2, 3, 1]


def test_group_adds_up_in_shared_memory() -> None:
  program = run("reduce_rows", (3, 16), [Opt(OptOps.GROUP, 1, 4)])
  assert any(u.op is Ops.BARRIER for u in program.src[1].src)
  assert [int(s.arg) for s in program.src[4].src] == [4, 1, 1]


def test_group_with_upcast_and_local() -> None:
  run("matmul", (4, 6, 8), [Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.LOCAL, 1, 3), Opt(OptOps.GROUP, 2, 4)])


def test_group_in_two_dependent_reductions() -> None:
  run("softmax", (3, 8), [Opt(OptOps.GROUP, 2, 4)])


def test_stage_is_shared_by_the_threads_of_a_workgroup() -> None:
  opts = [Opt(OptOps.LOCAL, 0, 2), Opt(OptOps.LOCAL, 1, 3), Opt(OptOps.UNROLL, 2, 2), Opt(OptOps.STAGE, 2, (4, 5))]
  program = run("matmul", (4, 6, 8), opts)
  assert sum(u.op is Ops.BARRIER for u in program.src[1].src) == 2  # before a tile is overwritten, and once it is there


@pytest.mark.parametrize(
  "name", ["elementwise", "transpose", "reduce_rows", "matmul", "layer_norm", "convolution", "scalar", "pad"]
)
def test_heuristics(name: str) -> None:
  run(name, {"convolution": (2, 4, 2), "scalar": (), "pad": (9,)}.get(name, (4, 16)), None)


def test_local_needs_workgroups(renderer: Renderer) -> None:
  with pytest.raises(KernelOptError, match=r"LOCAL\(axis=0, arg=2\): the target has no workgroups"):
    compile_kernel(CASES["matmul"]().kernel, renderer, [Opt(OptOps.LOCAL, 0, 2)])
