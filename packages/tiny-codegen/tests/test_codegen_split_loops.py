"""Loops that are cut where conditions on their counters change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import Case, check, data, garbage, param
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_codegen import LLVMRenderer, cpu_target
from tiny_codegen.lower.split_loops import LEAST_SHARED, MOST_PIECES, split_loops
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.target import Target
from tiny_uop import Context, KernelInfo, Ops, OptOps, UOp

HOST = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1"))).target
WORKGROUPS = replace(HOST, has_local=True)


def concatenation(outer: int, sizes: list[int], inner: int) -> Case:
  """out[o, :, i] is arrays[n][o, :, i], one behind the other."""
  total = sum(sizes)
  o, m, i = UOp.range(outer, 0), UOp.range(total, 1), UOp.range(inner, 2)
  value, start = None, total
  arrays: list[Any] = []
  for slot, size in reversed(list(enumerate(sizes, 1))):
    start -= size
    inside = (m < start + size) & (m < start).logical_not()
    piece = param(slot, outer * size * inner).index((o * size + m - start) * inner + i, inside).load()
    value = piece if value is None else (m < start + size).where(piece, value)
    arrays.insert(0, data(outer, size, inner, seed=slot))
  assert value is not None
  kernel = UOp.sink(param(0, outer * total * inner).index((o * total + m) * inner + i).store(value).end(o, m, i))
  kernel = kernel.replace(arg=KernelInfo("concatenation"))
  return Case(kernel, (garbage(outer, total, inner), *arrays), np.concatenate(arrays, 1))


def reflection(rows: int, columns: int, border: int) -> Case:
  """Rows that go on as in a mirror at both ends."""
  wide = columns + 2 * border
  r, c = UOp.range(rows, 0), UOp.range(wide, 1)
  place = (c < border).where(border - c, (c < border + columns).where(c - border, border + 2 * columns - 2 - c))
  here = param(0, rows * wide).index(r * wide + c)
  kernel = UOp.sink(here.store(param(1, rows * columns).index(r * columns + place).load()).end(r, c))
  x = data(rows, columns)
  return Case(
    kernel.replace(arg=KernelInfo("reflection")),
    (garbage(rows, wide), x),
    np.pad(x, ((0, 0), (border, border)), "reflect"),
  )


def rotation(rows: int, columns: int, by: int) -> Case:
  """Rows that begin with their last elements; `by` of more than a row goes around more than once."""
  r, c = UOp.range(rows, 0), UOp.range(columns, 1)
  place = r * columns + (c + by) % columns
  here = param(0, rows * columns).index(r * columns + c)
  kernel = UOp.sink(here.store(param(1, rows * columns).index(place).load()).end(r, c))
  x = data(rows, columns)
  return Case(kernel.replace(arg=KernelInfo("rotation")), (garbage(rows, columns), x), np.roll(x, -by, 1))


def pieces(case: Case, target: Target = HOST) -> int:
  """The effects of a kernel that is cut."""
  return len(split_loops(case.kernel, target).src)


SIZES = st.lists(st.integers(1, 96), min_size=1, max_size=4)


@settings(max_examples=40)
@given(st.sampled_from([1, 3, 8, 20]), SIZES, st.sampled_from([1, 3, 64]))
def test_pieces_are_put_together(run_kernel: Any, outer: int, sizes: list[int], inner: int) -> None:
  case = concatenation(outer, sizes, inner)
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize("case", [reflection(20, 70, 5), rotation(20, 150, 70), rotation(20, 150, 310)])
def test_results(case: Case, run_kernel: Any) -> None:
  assert 2 <= pieces(case) <= 3
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize(
  ("outer", "sizes", "inner", "count"),
  [
    (16, [64, 1], 1, 2),
    (16, [47, 1], 1, 1),  # too short for loops of their own
    (16, [64] * (MOST_PIECES + 1), 1, 1),  # too many
    (16, [64, 48] * 20, 1, 40),
    (15, [64, 32], 64, 2),
    (1, [64, 32], 64, 2),
    (1, [65, 32], 64, 2),  # the last blocks overlap
    (15, [65, 32], 64, 2),
    (1, [2, 1], 64, 2),  # there is too little to do for threads
  ],
)
def test_what_is_cut(outer: int, sizes: list[int], inner: int, count: int) -> None:
  case = concatenation(outer, sizes, inner)
  assert pieces(case) == count
  assert pieces(case, WORKGROUPS) == 1


def test_no_condition_is_left_and_threads_share_a_loop_around_all_pieces() -> None:
  some = [256, 128]
  for outer, sizes, inner in ((1, some, 490), (8, some, 49), (64, some, 49), (1, [1001, 1000], 49), (1, [2, 1], 81921)):
    root = before_opts(concatenation(outer, sizes, inner).kernel, HOST)
    assert not any(u.op in (Ops.WHERE, Ops.CMPLT) for u in root.toposort)
    common = set(root.src[0].src[1:]).intersection(*[end.src[1:] for end in root.src])
    assert [r.src[0].arg >= LEAST_SHARED for r in common] == [True]
    opts = choose_opts(root, HOST)
    assert [o.axis for o in opts if o.op is OptOps.THREAD] == [r.arg[0] for r in common]
    assert sum(o.op is OptOps.VECTOR for o in opts) == 2


@pytest.mark.parametrize(
  ("outer", "sizes", "inner", "threads"),
  [(1, [32] * 40, 64, False), (1, [3, 2] * 10, 2000, True), (1, [3, 2] * 10, 70, False), (20, [50, 65] * 9, 1, True)],
)
def test_many_pieces(run_kernel: Any, outer: int, sizes: list[int], inner: int, threads: bool) -> None:
  """Each is code of its own, in vectors; those of a large result share a loop for threads."""
  case = concatenation(outer, sizes, inner)
  root = before_opts(case.kernel, HOST)
  assert len(root.src) == len(sizes) and not any(u.op in (Ops.WHERE, Ops.CMPLT) for u in root.toposort)
  opts = choose_opts(root, HOST)
  assert sum(o.op is OptOps.VECTOR for o in opts) == len(sizes)
  assert any(o.op is OptOps.THREAD for o in opts) == threads
  check(case, run_kernel(case.kernel, case.arrays))


def test_many_pieces_are_taken_in_few_blocks() -> None:
  """Runs of 128 elements of each, where there would be 64 blocks of 32; with as many threads as blocks they stay."""

  def blocks(threads: int) -> object:
    root = before_opts(concatenation(1, [1] * 40, 2048).kernel, replace(HOST, threads=threads))
    (shared,) = set(root.src[0].src[1:]).intersection(*[end.src[1:] for end in root.src])
    return shared.src[0].arg

  assert (blocks(2), blocks(64)) == (16, 64)
