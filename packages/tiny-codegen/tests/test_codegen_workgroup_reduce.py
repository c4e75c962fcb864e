"""Sums that threads share: in a wave by exchanging values, between waves through shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, check
from workgroup_machine import run_workgroups

from tiny_codegen import C99, CRenderer, KernelOptError, Limits, LLVMRenderer, Renderer, Target, compile_kernel
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.render.llvm.target import GENERIC, LLVM_DTYPES, LLVM_OPS
from tiny_uop import (
  AddrSpace,
  AxisType,
  Context,
  DType,
  KernelInfo,
  Ops,
  Opt,
  OptOps,
  ProgramInfo,
  PtrDType,
  UOp,
  dtypes,
)

WAVE = 8


class Waves(Renderer):
  """A device with waves of eight threads; its programs are interpreted."""

  name = "waves"
  target = Target(
    LLVM_DTYPES,
    LLVM_OPS,
    has_local=True,
    subgroup=WAVE,
    limits=Limits(max_local=(64, 64, 64), max_workgroup=256, shared_memory=16384),
  )

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return ""


def opts_of(*texts: tuple[OptOps, int, int]) -> list[Opt]:
  return [Opt(*text) for text in texts]


def run(name: str, sizes: tuple[int, ...], opts: list[Opt] | None, device: Renderer | None = None) -> UOp:
  """A case of `codegen_kernels` on the interpreter; the first and the last thread first."""
  case = CASES[name](*sizes)
  with Context(SPEC=2):
    program = compile_kernel(case.kernel, device or Waves(), opts)
  for backwards in (False, True):
    arrays: list[Any] = [a.ravel().astype(float) for a in case.arrays]
    run_workgroups(program, arrays, backwards=backwards)
    check(case, [arrays[0].reshape(case.expected.shape)])
  return program


def masks(program: UOp) -> list[int]:
  """Of the exchanges, each once."""
  return sorted({u.arg for u in program.src[1].src if u.op is Ops.SHUFFLE})


def shared_memory(program: UOp) -> list[DType]:
  """The arrays that a workgroup shares."""
  found = [u.dtype for u in program.src[1].src if u.op is Ops.ALLOC]
  return [d for d in found if isinstance(d, PtrDType) and d.space is AddrSpace.LOCAL]


def count(program: UOp, op: Ops) -> int:
  return sum(u.op is op for u in program.src[1].src)


@pytest.mark.parametrize("threads", (2, 4, 8))
def test_within_a_wave_nothing_goes_through_memory(threads: int) -> None:
  program = run("reduce_rows", (3, 16), opts_of((OptOps.GROUP, 1, threads)))
  assert masks(program) == [1, 2, 4][: threads.bit_length() - 1]
  assert count(program, Ops.BARRIER) == 0 and not shared_memory(program)


@pytest.mark.parametrize(("threads", "numbers"), ((16, 2), (32, 4), (64, 8)))
def test_waves_leave_one_number_each(threads: int, numbers: int) -> None:
  program = run("reduce_rows", (2, 128), opts_of((OptOps.GROUP, 1, threads)))
  assert masks(program) == [1, 2, 4] and count(program, Ops.BARRIER) == 1
  assert shared_memory(program) == [dtypes.float32.ptr(numbers, AddrSpace.LOCAL)]


@pytest.mark.parametrize(("beside", "threads", "expected"), ((2, 8, [2, 4]), (4, 8, [4]), (8, 4, []), (3, 8, [])))
def test_threads_of_another_loop_in_between(beside: int, threads: int, expected: list[int]) -> None:
  """Neighbours along the sum are `beside` threads apart: only those in one wave exchange values. Where the distance is
  no power of two, bits of numbers do not say who they are."""
  program = run("matmul", (4, 24, 16), opts_of((OptOps.LOCAL, 1, beside), (OptOps.GROUP, 2, threads)))
  assert masks(program) == expected
  assert count(program, Ops.BARRIER) == 1


def test_rows_of_a_register_tile_are_exchanged_each() -> None:
  program = run("matmul", (4, 6, 8), opts_of((OptOps.UPCAST, 0, 2), (OptOps.GROUP, 2, 4), (OptOps.LOCAL, 1, 3)))
  assert count(program, Ops.SHUFFLE) == 2 * 2 and count(program, Ops.BARRIER) == 0


def test_lanes_are_combined_before() -> None:
  device = Waves()
  device.target = replace(device.target, max_vector_lanes=4, vector_bits=128)
  program = run("reduce_rows", (3, 64), opts_of((OptOps.VECTOR, 1, 4), (OptOps.GROUP, 1, 8)), device)
  assert count(program, Ops.SHUFFLE) == 3 and any(u.op is Ops.LOAD and u.dtype.count == 4 for u in program.src[1].src)


@pytest.mark.parametrize("name", ("softmax", "layer_norm"))
def test_what_a_row_is_normalised_with_is_known_to_all_its_threads(name: str) -> None:
  program = run(name, (3, 40), None)
  assert [o.op for o in program.src[1].arg.opts].count(OptOps.GROUP) >= 1
  assert count(program, Ops.SHUFFLE) >= 3 and count(program, Ops.BARRIER) == 0


def test_all_threads_have_the_same_sum_to_the_bit() -> None:
  """Each thread writes the total that it has: in every step both partners add the same two numbers."""
  r, t = UOp.range(64, 0, AxisType.REDUCE), UOp.range(8, 1)
  total = UOp.param(1, dtypes.float32.ptr(64)).index(r).load().reduce(Ops.ADD, r)
  store = UOp.param(0, dtypes.float32.ptr(8)).index(t).store(total + 0.0 * t.cast(dtypes.float32)).end(t)
  opts = opts_of((OptOps.GROUP, 0, 8), (OptOps.LOCAL, 1, 8))
  program = compile_kernel(UOp.sink(store, arg=KernelInfo("total")), Waves(), opts)
  out = np.zeros(8)
  run_workgroups(program, [out, np.random.default_rng(0).normal(size=64) * 1e3])
  assert count(program, Ops.SHUFFLE) == 3 and len({x.tobytes() for x in out}) == 1


def test_values_that_are_emulated_go_through_memory() -> None:
  case = CASES["reduce_rows"](3, 16, Ops.ADD, dtypes.float16)
  program = compile_kernel(case.kernel, Waves(), opts_of((OptOps.GROUP, 1, 8)))
  assert count(program, Ops.SHUFFLE) == 0 and count(program, Ops.BARRIER) == 1


def test_no_waves_no_exchange() -> None:
  device = Waves()
  device.target = replace(device.target, subgroup=0)
  program = run("reduce_rows", (3, 16), opts_of((OptOps.GROUP, 1, 8)), device)
  assert count(program, Ops.SHUFFLE) == 0 and count(program, Ops.BARRIER) == 1


# *** loops that threads meet in ***


def masked(rows: int, columns: int) -> UOp:
  """`out[i, j] = Σk a[i, k] where j <= i, else 0`, as the scores of causal attention are."""
  i, j, k = UOp.range(rows, 0), UOp.range(columns, 1), UOp.range(32, 2, AxisType.REDUCE)
  total = UOp.param(1, dtypes.float32.ptr(rows * 32)).index(i * 32 + k).load().reduce(Ops.ADD, k)
  value = (j < i + 1).where(total, total.const_like(0))
  store = UOp.param(0, dtypes.float32.ptr(rows * columns)).index(i * columns + j).store(value).end(i, j)
  return UOp.sink(store, arg=KernelInfo("masked"))


def test_a_sum_is_not_skipped_where_threads_meet_in_it() -> None:
  """Each thread has a column of its own, and fills a part of local memory: all have to come to the barrier."""
  opts = [Opt(OptOps.LOCAL, 1, 4), Opt(OptOps.SPLIT, 2, 2), Opt(OptOps.STAGE, 1, (4,))]
  program = compile_kernel(masked(3, 8), Waves(), opts)
  assert count(program, Ops.BARRIER) > 0
  out, x = np.full(24, np.nan), np.arange(96.0)
  run_workgroups(program, [out, x])
  assert np.array_equal(out.reshape(3, 8), np.tril(np.ones((3, 8))) * x.reshape(3, 32).sum(1)[:, None])


# *** choices ***


def chosen(name: str, sizes: tuple[int, ...]) -> list[Opt]:
  device = Waves()
  limits = replace(device.target.limits, max_local=(1024,) * 3, max_workgroup=1024)
  device.target = replace(device.target, limits=limits, subgroup=32)
  return list(choose_opts(before_opts(CASES[name](*sizes).kernel), device.target))


def test_one_wave_has_a_row_where_there_are_many() -> None:
  assert chosen("reduce_rows", (8192, 256))[0] == Opt(OptOps.GROUP, 1, 32)
  assert chosen("reduce_rows", (16, 16384))[0] == Opt(OptOps.GROUP, 1, 1024)


def test_sums_of_columns_are_shared_and_neighbours_read_neighbours() -> None:
  assert chosen("reduce_columns", (4096, 8192)) == opts_of((OptOps.LOCAL, 0, 32), (OptOps.GROUP, 1, 8))
  assert chosen("reduce_columns", (4096, 1024)) == opts_of((OptOps.LOCAL, 0, 8), (OptOps.GROUP, 1, 16))
  assert OptOps.GROUP not in {o.op for o in chosen("reduce_columns", (64, 1 << 17))}


def test_sums_of_columns() -> None:
  program = run("reduce_columns", (64, 40), None)
  assert [o.op for o in program.src[1].arg.opts][:2] == [OptOps.LOCAL, OptOps.GROUP]


# *** renderers ***


def exchange(dtype: DType, mask: int) -> UOp:
  """A thread's number plus what its partner has."""
  t = UOp.range(8, 0, AxisType.LOCAL)
  value = UOp.param(1, dtype.ptr(8)).index(t).load()
  store = UOp.param(0, dtype.ptr(8)).index(t).store(value + value.shuffle(mask)).end(t)
  return UOp.sink(store, arg=KernelInfo("exchange", ()))


@pytest.mark.parametrize("mask", (1, 4, 6))
def test_written_by_hand(mask: int) -> None:
  program = compile_kernel(exchange(dtypes.int32, mask), Waves())
  out, x = np.zeros(8), np.arange(8) * 10
  run_workgroups(program, [out, x])
  assert out.tolist() == [x[n] + x[n ^ mask] for n in range(8)]


def test_a_target_without_exchange_says_so() -> None:
  local = {"has_local": True, "limits": Limits(max_local=(64, 64, 64), max_workgroup=256)}
  c = CRenderer(replace(C99.with_target(**local, has_threads=False), counters=(("lidx0", "0"),)))
  llvm = LLVMRenderer(replace(GENERIC, target=replace(GENERIC.target, **local, has_threads=False)))  # type: ignore[arg-type]
  for renderer in (c, llvm):
    with pytest.raises(NotImplementedError, match=r"has no exchange of int32 between threads .* bits 0x4"):
      compile_kernel(exchange(dtypes.int32, 4), renderer)
  with pytest.raises(KernelOptError, match="no workgroups"):
    compile_kernel(CASES["reduce_rows"]().kernel, CRenderer(), [Opt(OptOps.GROUP, 1, 4)])
