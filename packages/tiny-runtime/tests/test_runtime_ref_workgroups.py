"""Workgroups on the reference backend: threads, local memory and barriers, against values worked out here."""

from __future__ import annotations

import struct

import pytest

from tiny_runtime.conformance.target import Target
from tiny_runtime.errors import CompileError
from tiny_runtime.ref import BACKEND
from tiny_runtime.ref.workgroup import run_workgroup
from tiny_uop import AddrSpace, AxisType, KernelInfo, Ops, UOp, dtypes

I = dtypes.int32  # noqa: E741


def param(slot: int, size: int) -> UOp:
  return UOp.param(slot, I.ptr(size))


def run(effect: UOp, *contents: list[int]) -> list[int]:
  kernel = UOp.sink(effect, arg=KernelInfo("test", ()))
  data = [struct.pack(f"{len(numbers)}i", *numbers) for numbers in contents]
  return list(struct.unpack(f"{len(contents[0])}i", Target("REF", BACKEND, "").run(kernel, data)[0]))


def reverse(space: AddrSpace, with_barrier: bool) -> list[int]:
  """Two groups of four threads, each of which reads what its opposite wrote."""
  g, t = UOp.range(2, 0, AxisType.GLOBAL), UOp.range(4, 1, AxisType.LOCAL)
  near, place = UOp.alloc(0, I.ptr(4, space)), g * 4 + t
  written = near.index(t).store(param(1, 8).index(place).load())
  value = near.after(written.barrier() if with_barrier else written).index(t * -1 + 3).load()
  return run(param(0, 8).index(place).store(value).end(g, t), [0] * 8, list(range(10, 18)))


def test_a_barrier_shows_what_others_wrote() -> None:
  assert reverse(AddrSpace.LOCAL, True) == [13, 12, 11, 10, 17, 16, 15, 14]


def test_without_one_threads_run_one_after_the_other() -> None:
  # local memory starts as all ones, and holds what the group before left
  assert reverse(AddrSpace.LOCAL, False) == [-1, -1, 11, 10, 13, 12, 15, 14]


def test_registers_are_a_thread_s_own() -> None:
  assert reverse(AddrSpace.REG, True) == [-1] * 8


def test_sums_and_loops_around_barriers() -> None:
  t, r = UOp.range(3, 0, AxisType.LOCAL), UOp.range(4, 1, AxisType.REDUCE)
  near, x = UOp.alloc(0, I.ptr(3, AddrSpace.LOCAL)), param(1, 12)
  empty = near.after(UOp(Ops.BARRIER, dtypes.void, (t, r)))
  filled = empty.index(t).store(x.index(r * 3 + t).load()).barrier()
  total = near.after(filled).index((t + 1) % 3).load().reduce(Ops.ADD, r)
  numbers = [n * n for n in range(12)]
  expected = [sum(numbers[tile * 3 + (thread + 1) % 3] for tile in range(4)) for thread in range(3)]
  assert run(param(0, 3).index(t).store(total).end(t), [0] * 3, numbers) == expected


def test_two_axes_are_one_workgroup() -> None:
  a, b = UOp.range(2, 0, AxisType.LOCAL), UOp.range(3, 1, AxisType.LOCAL)
  near = UOp.alloc(0, I.ptr(6, AddrSpace.LOCAL))
  filled = near.after(near.index(a * 3 + b).store((a * 10 + b).cast(I)).barrier())
  value = filled.index(a * -3 + b * -1 + 5).load()
  assert run(param(0, 6).index(a * 3 + b).store(value).end(a, b), [0] * 6) == [12, 11, 10, 2, 1, 0]


def test_a_barrier_that_some_never_reach_is_an_error() -> None:
  def thread(barriers: int):  # type: ignore[no-untyped-def]
    for _ in range(barriers):
      yield

  run_workgroup([thread(2), thread(2)])
  with pytest.raises(RuntimeError, match="1 of 3 threads wait at a barrier that the others never reach"):
    run_workgroup([thread(1), thread(2), thread(1)])


def test_what_is_no_loop_cannot_be_looped_over() -> None:
  effect = param(0, 1).index(0).store(UOp.const(I, 1))
  with pytest.raises(CompileError, match="expected a RANGE to loop over"):
    BACKEND.compiler("python").compile(UOp.sink(effect.end(UOp.variable("n", 0, 3)), arg=KernelInfo("test")))
