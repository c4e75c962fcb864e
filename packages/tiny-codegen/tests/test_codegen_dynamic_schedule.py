"""Kernels that claim parts of the loop that workers share, and what they compute before that loop."""

from __future__ import annotations

import pytest
from codegen_kernels import check, elementwise, matmul
from codegen_machine import Machine, host_renderer

from tiny_codegen import LLVMRenderer, compile_kernel
from tiny_uop import Opt, OptOps

PACKED = (Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.STAGE, 2, (1, 2)), Opt(OptOps.THREAD, 0, 0))
"""One operand of `matmul` is packed as a whole, before the loop over rows."""


@pytest.fixture(scope="module")
def claiming() -> LLVMRenderer:
  return host_renderer(dynamic_scheduling=True)


@pytest.mark.parametrize("pieces", [1, 2, 3, 8])
def test_what_all_parts_need_is_computed_once(claiming: LLVMRenderer, pieces: int) -> None:
  case = matmul()
  arrays = [a.copy() for a in case.arrays]
  program = compile_kernel(case.kernel, claiming, PACKED)
  assert str(program.src[2].arg).count("call i64 %claim(") == 1
  assert Machine().call(program, arrays, {}, pieces) == 1
  check(case, arrays)


@pytest.mark.parametrize("pieces", [1, 3])
def test_with_nothing_to_prepare_each_part_is_a_call(claiming: LLVMRenderer, pieces: int) -> None:
  case = elementwise()
  arrays = [a.copy() for a in case.arrays]
  program = compile_kernel(case.kernel, claiming, (Opt(OptOps.THREAD, 0, 0),))
  assert "call i64 %claim(" not in str(program.src[2].arg)
  assert Machine().call(program, arrays, {}, pieces) == pieces
  check(case, arrays)


def test_other_targets_are_passed_no_more_than_their_part(renderer: LLVMRenderer) -> None:
  case = matmul()
  arrays = [a.copy() for a in case.arrays]
  program = compile_kernel(case.kernel, renderer, PACKED)
  assert "%claim" not in str(program.src[2].arg)
  assert Machine().call(program, arrays, {}, 3) == 3
  check(case, arrays)
