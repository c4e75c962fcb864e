"""The search for a target with workgroups. Its clock counts: how much memory the first workgroup moves, in sectors that
the threads of a wave touch together, times the number of workgroups.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES
from test_codegen_workgroup_reduce import WAVE, Waves, run
from workgroup_machine import Thread, run_group

from tiny_codegen import build_program, compile_kernel
from tiny_codegen.opt import beam as search
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.beam import before_opts, candidates
from tiny_codegen.opt.neighbours import other_choices, variations
from tiny_uop import AddrSpace, Context, Ops, Opt, OptOps, PtrDType, UOp

SECTOR, BARRIER = 32, 4  # bytes; and sectors that may be read while threads wait for each other
DEVICE = Waves()


class Watched(Thread):
  """A thread whose accesses are written down."""

  def __init__(self, *given: Any) -> None:
    super().__init__(*given)
    self.touched: list[tuple[UOp, int]] = []

  def place(self, index: UOp) -> tuple[Any, int]:
    array, offset = super().place(index)
    assert isinstance(index.dtype, PtrDType)
    if index.dtype.space is AddrSpace.GLOBAL:
      self.touched.append((index, offset * index.dtype.base.itemsize // SECTOR))
    return array, offset


def moved(program: UOp) -> float:
  """Sectors, of all workgroups, and what barriers cost."""
  linear = program.src[1]
  arrays = {u: np.zeros(u.dtype.size) for u in linear.toposort if u.op is Ops.PARAM and isinstance(u.dtype, PtrDType)}
  groups, sizes = ([int(s.arg) for s in sizes.src] for sizes in program.src[3:5])
  shared: dict[UOp, Any] = {}
  threads = [
    Watched(linear, arrays, shared, {"gidx0": 0, "gidx1": 0, "gidx2": 0, "lidx0": x, "lidx1": y, "lidx2": z})
    for z in range(sizes[2]) for y in range(sizes[1]) for x in range(sizes[0])
  ]  # fmt: skip
  run_group(threads, False)
  total = 0
  for first in range(0, len(threads), WAVE):
    together: dict[tuple[UOp, int], set[int]] = {}
    for thread in threads[first : first + WAVE]:
      times: dict[UOp, int] = {}
      for index, sector in thread.touched:
        times[index] = times.get(index, 0) + 1
        together.setdefault((index, times[index]), set()).add(sector)
    total += sum(map(len, together.values()))
  return math.prod(groups) * (total + BARRIER * sum(u.op is Ops.BARRIER for u in linear.src)) * 1e-9


@pytest.mark.parametrize(("name", "sizes"), (("reduce_rows", (4, 100)), ("softmax", (4, 100)), ("transpose", (4, 24))))
def test_what_is_found_moves_less(name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
  """One step from where it begins; what is found is right, and no worse than what needs no search: sums of 100 terms
  are better shared by more threads, and a copy of so few cannot be done better."""
  monkeypatch.setattr(search, "MAX_STEPS", 1)
  kernel = CASES[name](*sizes).kernel
  with Context(BEAM=1):
    opts = compile_kernel(kernel, DEVICE, measure=moved).src[1].arg.opts
  before, after = (moved(build_program(kernel, DEVICE, o)) for o in (None, opts))
  assert after == before if name == "transpose" else after < before * search.GAIN
  run(name, sizes, list(opts))


def test_where_it_begins() -> None:
  """Other sizes of workgroups and of tiles, other numbers of threads for a sum: all of them fit."""
  for name, sizes, op in (("reduce_rows", (64, 512), OptOps.GROUP), ("matmul", (64, 64, 64), OptOps.UPCAST)):
    root = before_opts(CASES[name](*sizes).kernel)
    lists = other_choices(root, DEVICE.target)
    for opts in lists:
      apply_opts(root, opts, DEVICE.target)
    assert len({o.arg for opts in lists for o in opts if o.op is op}) > 2


def test_threads_that_share_a_counter_change_together() -> None:
  root = before_opts(CASES["softmax"](64, 64).kernel)
  chosen = [Opt(OptOps.GROUP, 2, 8), Opt(OptOps.GROUP, 3, 8), Opt(OptOps.LOCAL, 1, 8), Opt(OptOps.LOCAL, 0, 2)]
  lists = list(variations(root, tuple(chosen), DEVICE.target))
  for amount in (4, 16):
    assert tuple([Opt(o.op, o.axis, amount if o.arg == 8 else o.arg) for o in chosen]) in lists


def test_what_a_part_of_a_sum_reads_may_be_kept() -> None:
  root = before_opts(CASES["matmul"](8, 16, 64).kernel)
  assert Opt(OptOps.SPLIT, 2, 16) in list(candidates(root, DEVICE.target))
  split = apply_opts(root, (Opt(OptOps.SPLIT, 2, 16),), DEVICE.target)
  staged = [o for o in candidates(split, DEVICE.target) if o.op is OptOps.STAGE]
  assert staged == [Opt(OptOps.STAGE, 1, (3,)), Opt(OptOps.STAGE, 2, (3,))]
