"""Copies to local memory that go on while threads compute, run by an interpreter in which they are as late as they may
be: nothing is there before the BARRIER that waits for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, kernel, loop, over, param
from workgroup_machine import run_workgroups

from tiny_codegen import Limits, Renderer, Target, compile_kernel
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_codegen.staging.double_buffer import copies_that_fit
from tiny_uop import ASYNC, AddrSpace, Context, Ops, Opt, OptOps, ProgramInfo, PtrDType, UOp

TARGET = Target(
  LLVM_DTYPES, LLVM_OPS, vector_bits=128, max_vector_lanes=4, has_local=True, async_copy=16,
  limits=Limits(max_local=(64, 64, 64), max_workgroup=256, shared_memory=65536),
)  # fmt: skip


class Copies(Renderer):
  """A device with workgroups and copies of 16 bytes; its programs are interpreted."""

  name = "copies"

  def __init__(self, target: Target = TARGET) -> None:
    self.target = target

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return ""


def product(size: int, length: int, steps: int, computed: bool = False) -> tuple[UOp, list[Any], Any]:
  """`out = x @ y.T`, both operands in local memory for some steps of the sum at a time. `computed`: one is squared."""
  i, j, k = loop(size, 0), loop(size, 1), over(length, 2)
  x, y = param(1, size * length).index(i * length + k).load(), param(2, size * length).index(j * length + k).load()
  total = (x * (y * y if computed else y)).reduce(Ops.ADD, k)
  padding = [Opt(OptOps.PADTO, axis, n) for axis, n in ((0, 4), (1, 4), (2, steps))]
  opts = [*padding, Opt(OptOps.LOCAL, 0, 4), Opt(OptOps.LOCAL, 1, 4), Opt(OptOps.SPLIT, 2, steps)]
  opts += [Opt(OptOps.STAGE, 1, (5,)), Opt(OptOps.STAGE, 2, (5,))]
  a, b = data(size, length), data(size, length, seed=1)
  body = kernel(param(0, size * size).index(i * size + j).store(total).end(i, j))
  with Context(SPEC=2):
    program = compile_kernel(body, Copies(), opts)
  return program, [garbage(size, size), a, b], a @ (b * b if computed else b).T


def run(program: UOp, arrays: list[Any]) -> Any:
  flat = [a.ravel().astype(float) for a in arrays]
  run_workgroups(program, flat)
  return flat[0].reshape(arrays[0].shape)


def copies(program: UOp) -> list[UOp]:
  return [u for u in program.src[1].src if u.op is Ops.STORE and u.arg == ASYNC]


def near(program: UOp) -> list[int]:
  """Elements of local memory."""
  pointers = [u.dtype for u in program.src[1].src if u.op is Ops.ALLOC]
  return [p.size for p in pointers if isinstance(p, PtrDType) and p.space is AddrSpace.LOCAL]


@pytest.mark.parametrize(("length", "stages"), [(16, 2), (24, 3), (32, 4), (80, 4)])
def test_as_many_stages_as_there_are_steps_up_to_four(length: int, stages: int) -> None:
  program, arrays, expected = product(8, length, 8)
  assert near(program) == [stages * 4 * 8] * 2 and len(copies(program)) > 2
  waits = [u.arg for u in program.src[1].src if u.op is Ops.BARRIER]
  assert waits == [stages - 2] * (stages - 2) + [stages - 2, 0], "before the loop, in it, and behind it"
  np.testing.assert_allclose(run(program, arrays), expected, rtol=1e-4)


def test_what_is_not_waited_for_is_not_there() -> None:
  """The interpreter would see it."""
  program, arrays, expected = product(8, 48, 8)
  linear = program.src[1]
  late = [u.replace(arg=u.arg + 1) if u.op is Ops.BARRIER and u.arg == 2 else u for u in linear.src]
  wrong = run(program.replace(src=(program.src[0], linear.replace(src=tuple(late)), *program.src[2:])), arrays)
  assert np.isnan(wrong).any() and not np.isnan(expected).any()


def test_zeros_are_copied_where_there_is_nothing() -> None:
  """Edges in all three directions, in pieces that are all there or not at all."""
  program, arrays, expected = product(10, 44, 8)
  assert copies(program) and all(len(u.src[1].src[0].src) == 3 for u in copies(program))
  np.testing.assert_allclose(run(program, arrays), expected, rtol=1e-4)


def test_rows_that_are_no_pieces_go_through_registers() -> None:
  program, arrays, expected = product(8, 43, 8)
  assert not copies(program) and near(program) == [2 * 4 * 8] * 2
  np.testing.assert_allclose(run(program, arrays), expected, rtol=1e-4)


def test_what_is_computed_goes_through_registers_beside_copies() -> None:
  program, arrays, expected = product(8, 48, 8, computed=True)
  stores = [u for u in program.src[1].src if u.op is Ops.STORE and u.arg is None and u.src[1].dtype.count == 4]
  assert copies(program) and stores and near(program) == [4 * 4 * 8] * 2
  np.testing.assert_allclose(run(program, arrays), expected, rtol=1e-4)


def test_without_the_instruction_there_are_no_copies() -> None:
  i, j, k = loop(8, 0), loop(8, 1), over(48, 2)
  total = param(1, 8 * 48).index(i * 48 + k).load() * param(2, 8 * 48).index(j * 48 + k).load()
  body = kernel(param(0, 64).index(i * 8 + j).store(total.reduce(Ops.ADD, k)).end(i, j))
  opts = [Opt(OptOps.LOCAL, 0, 4), Opt(OptOps.LOCAL, 1, 4), Opt(OptOps.SPLIT, 2, 8), Opt(OptOps.STAGE, 1, (5,))]
  program = compile_kernel(body, Copies(replace(TARGET, async_copy=0)), opts)
  assert not copies(program) and all(u.arg is None for u in program.src[1].src if u.op is Ops.BARRIER)


@pytest.mark.parametrize(
  ("one", "expected"),
  [(10, 4), (15, 3), (19, 4), (26, 3), (34, 2), (60, 1)],
)
def test_copies_are_for_two_workgroups_if_there_are_enough_of_them(one: int, expected: int) -> None:
  """Of 100 KiB for all and 99 for one: three for each of two, else as many as one can have."""
  target = replace(TARGET, limits=Limits(shared_memory=99, shared_memory_for_all=100))
  assert copies_that_fit(one, one, 4, target) == expected
