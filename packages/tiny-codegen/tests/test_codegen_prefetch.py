"""Programs with PREFETCHes compute what they do without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from codegen_kernels import data, hinted, loop, over, param
from codegen_machine import Machine, host_renderer
from codegen_prefetches import PACKED, PANEL, RESULT, prefetches
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tiny_codegen import CacheSizes, CRenderer, LLVMRenderer, build_program
from tiny_uop import Context, KernelInfo, Ops, Opt, OptOps, UOp

LANES = 8
HOST = host_renderer().llvm
SMALL = CacheSizes(1 << 10, 4 << 10)
"""Caches so small that memory of a few kilobytes is worth asking for."""
TARGET = LLVMRenderer(replace(HOST, target=replace(HOST.target, caches=SMALL)))


def product(images: int, rows: int, tiles: int, length: int, columns: int, step: int, packed: bool, steps: int) -> UOp:
  """`out[n, o, j] = sum over k of w[o, k] * x[n, k, step * j]`, with panels of x packed or where they are."""
  outputs, size = rows * tiles, LANES * columns
  n, o, j, k = loop(images, 0), loop(outputs, 1), loop(size, 2), over(length, 3)
  x = param(1, images * length * size * step).index((n * length + k) * size * step + j * step).load()
  out = param(0, images * outputs * size).index((n * outputs + o) * size + j)
  end = out.store((param(2, outputs * length).index(o * length + k).load() * x).reduce(Ops.ADD, k)).end(n, o, j)
  opts = [Opt(OptOps.VECTOR, 2, LANES)]
  opts += [Opt(OptOps.UPCAST, 1, rows)] * (rows > 1)
  opts += [Opt(OptOps.SWAP, 1, 2)] * (tiles > 1)
  opts += [Opt(OptOps.STAGE, 1, (3,))] * packed
  opts += [Opt(OptOps.UNROLL, 3, steps)] * (steps > 1)
  return UOp.sink(end, arg=KernelInfo("product", tuple(opts)))


PRODUCTS = st.builds(
  product,
  images=st.integers(1, 2),
  rows=st.sampled_from((1, 2, 4)),
  tiles=st.integers(1, 5),
  length=st.sampled_from((16, 32, 64)),
  columns=st.integers(2, 5),
  step=st.sampled_from((1, 2, 9)),
  packed=st.booleans(),
  steps=st.integers(1, 2),
)


@settings(max_examples=40)
@given(PRODUCTS)
@example(product(2, 4, 5, 64, 5, 2, True, 2))
def test_programs_with_prefetches_compute_the_same(kernel: UOp) -> None:
  results = []
  with Context(SPEC=2):
    for skip in ((), ("prefetch",)):
      program = build_program(kernel, TARGET, skip=skip)
      out, *inputs = [data(p.size, seed=p.slot) for p in program.arg.params]
      Machine().call(program, [out, *inputs], {}, 1)
      results.append(out)
  np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(
  ("kernel", "kind"),
  [
    (product(2, 2, 4, 32, 5, 1, False, 1), PANEL),
    (product(2, 4, 5, 32, 5, 1, False, 1), RESULT),
    (product(2, 4, 5, 64, 5, 9, True, 1), PACKED),
  ],
)
def test_there_are_such_programs_of_each_kind(kernel: UOp, kind: tuple[str, int]) -> None:
  assert prefetches(build_program(kernel, TARGET).src[1], kind)
  assert not prefetches(build_program(kernel, TARGET, skip=("prefetch",)).src[1], kind)


def test_hints_of_a_kernel_reach_only_targets_that_have_them() -> None:
  without = replace(HOST, target=replace(TARGET.target, has_prefetch=False))
  found = [[u.arg for u in build_program(hinted().kernel, r).src[1].src if u.op is Ops.PREFETCH]
           for r in (TARGET, LLVMRenderer(without), CRenderer())]  # fmt: skip
  assert sorted(found[0]) == [("read", 2), ("write", 1)]
  assert found[1:] == [[], []]


def test_renderers_write_hints_or_nothing() -> None:
  program = build_program(product(2, 2, 4, 32, 5, 1, False, 1), TARGET)
  linear, info = program.src[1], program.arg
  assert "call void @llvm.prefetch.p0(ptr" in TARGET.render(linear, info)
  device = LLVMRenderer(replace(TARGET.llvm, convention="amdgpu_kernel"))
  for renderer in (device, CRenderer()):
    assert "llvm.prefetch" not in (text := renderer.render(linear, info)) and "__builtin_prefetch" not in text
  with_none = LLVMRenderer(replace(HOST, target=replace(TARGET.target, has_prefetch=False)))
  assert not prefetches(build_program(product(2, 2, 4, 32, 5, 1, False, 1), with_none).src[1], PANEL)
