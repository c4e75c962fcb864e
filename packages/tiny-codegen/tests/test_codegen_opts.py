"""A program with any optimisations that fit computes what it computes without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, Case, check, data, garbage, kernel, loop, over, param
from codegen_opts import before_optimising, opts_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_codegen import Renderer
from tiny_codegen.kernel.loops import loops_of, next_loop_id
from tiny_codegen.opt.apply import apply_opts
from tiny_uop import Context, Ops, Opt, OptOps, UOp
from tiny_uop.node import Node

SIZES = {
  "elementwise": (2, 40), "broadcast_bias": (2, 40), "transpose": (2, 24), "flip": (2, 24), "pad": (1, 40),
  "pad_with": (1, 40), "arange": (1, 60), "gather": (1, 40), "reduce_rows": (2, 48), "reduce_columns": (2, 48),
  "reduce_all": (2, 32), "matmul": (3, 24), "linear": (3, 24), "softmax": (2, 32), "layer_norm": (2, 32),
  "convolution": (3, 9), "argmax": (2, 40), "two_outputs": (1, 60), "integers": (2, 32), "mixed_widths": (1, 60),
  "any_of": (2, 40),
}  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Case:
  name = draw(st.sampled_from(sorted(SIZES)))
  dimensions, most = SIZES[name]
  least = 4 if name in ("arange", "gather", "pad", "pad_with", "two_outputs") else 1
  return CASES[name](*[draw(st.integers(least, most)) for _ in range(dimensions)])


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_opts(data: st.DataObject, run_kernel: Any, renderer: Renderer) -> None:
  case = data.draw(cases())
  with Context(SPEC=2):
    root = before_optimising(case.kernel, renderer.target)
    opts = data.draw(opts_for(root, renderer.target))
    pieces = data.draw(st.integers(1, 3))
    check(case, run_kernel(case.kernel, case.arrays, opts, pieces=pieces))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), pieces=st.integers(1, 4))
def test_heuristics_on_odd_sizes(case: Case, pieces: int, run_kernel: Any) -> None:
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, pieces=pieces))


def test_an_operand_may_be_kept_near_twice(run_kernel: Any) -> None:
  """What fills the second place reads the first, in vectors of a loop that the first was filled in."""
  case = CASES["convolution"](1, 2, 1)
  with Context(SPEC=2):
    opts = (Opt(OptOps.STAGE, 1, (1, 2, 4)), Opt(OptOps.STAGE, 1, (1,)))
    check(case, run_kernel(case.kernel, case.arrays, opts))


def test_lanes_that_go_on_after_a_peeled_sum(run_kernel: Any) -> None:
  """The last block of the sum has fewer lanes, but what comes after the sum has all of them."""
  i, k = loop(6, 0), over(5, 1)
  place = k * 10 + i
  value = param(1, 43).index(place, place < 43).load()
  out = param(0, 6).index(i).store((place < 43).where(value, 0.0).reduce(Ops.ADD, k)).end(i)
  x = data(43)
  case = Case(kernel(out), (garbage(6), x), np.pad(x, (0, 7)).reshape(5, 10)[:, :6].sum(0))
  with Context(SPEC=2):
    check(case, run_kernel(case.kernel, case.arrays, (Opt(OptOps.PADTO, 0, 8), Opt(OptOps.VECTOR, 0, 8))))


def test_an_opt_of_one_of_many_effects_looks_at_that_one(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
  """Of a stack of 200 arrays each has lanes of its own: to look through all of them for each would be quadratic."""
  loops = [loop(16, n) for n in range(40)]
  root = kernel(*[param(n, 16).index(r).store(param(40 + n, 16).index(r).load()).end(r) for n, r in enumerate(loops)])
  assert list(loops_of(root)) == list(range(40)) and next_loop_id(root) == 40
  walked: list[UOp] = []
  whole: Any = vars(Node)["toposort"]

  def counted(u: UOp) -> tuple[UOp, ...]:
    found: tuple[UOp, ...] = whole.__get__(u)
    walked.extend(found)
    return found

  monkeypatch.setattr(UOp, "toposort", property(counted))
  changed = apply_opts(root, (Opt(OptOps.SPLIT, 7, 4),), renderer.target)
  assert [n for n, (a, b) in enumerate(zip(root.src, changed.src, strict=True)) if a is not b] == [7]
  assert len(walked) < 40 and list(loops_of(changed)) == list(range(41))
