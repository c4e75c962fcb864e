"""A program with any optimisations that fit computes what it computes without."""

from __future__ import annotations

from typing import Any

from codegen_kernels import CASES, Case, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_codegen import Capabilities, KernelOptError, Renderer, run_passes
from tiny_codegen.loops import kind, loops_of
from tiny_codegen.opts import apply_opt
from tiny_codegen.passes import PassContext
from tiny_uop import AxisType, Context, Opt, OptOps, UOp

SIZES = {
  "elementwise": (2, 40), "broadcast_bias": (2, 40), "transpose": (2, 24), "flip": (2, 24), "pad": (1, 40),
  "pad_with": (1, 40), "arange": (1, 60), "gather": (1, 40), "reduce_rows": (2, 48), "reduce_columns": (2, 48),
  "reduce_all": (2, 32), "matmul": (3, 24), "linear": (3, 24), "softmax": (2, 32), "layer_norm": (2, 32),
  "convolution": (3, 9), "argmax": (2, 40), "two_outputs": (1, 60), "integers": (2, 32), "mixed_widths": (1, 60),
  "any_of": (2, 40),
}  # fmt: skip


def before_optimising(kernel: UOp, capabilities: Capabilities) -> UOp:
  """The kernel whose loops Opts name: as the passes before `optimise` leave it."""
  seen: dict[str, UOp] = {}
  run_passes(kernel, PassContext(capabilities, ()), observe=lambda step, u: seen.update({step.name: u}))
  return seen["merge"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
  name = draw(st.sampled_from(sorted(SIZES)))
  dimensions, most = SIZES[name]
  least = 4 if name in ("arange", "gather", "pad", "pad_with", "two_outputs") else 1
  return CASES[name](*[draw(st.integers(least, most)) for _ in range(dimensions)])


AMOUNTS = {OptOps.PADTO: [2, 3, 4, 8], OptOps.BLOCK: [1, 2, 3, 4]}


@st.composite
def opts_for(draw: st.DrawFn, root: UOp, capabilities: Capabilities) -> tuple[Opt, ...]:
  """Up to five Opts, each of which fits what the ones before it have left."""
  chosen: list[Opt] = []
  slots = sorted(u.arg for u in root.toposort if u.op.name == "PARAM" and u.arg > 0)
  for _ in range(draw(st.integers(0, 5))):
    loops = [r for r in loops_of(root).values() if kind(r) in (AxisType.LOOP, AxisType.REDUCE)]
    if not loops:
      break
    axis = draw(st.sampled_from([r.arg[0] for r in loops]))
    what = draw(
      st.sampled_from(
        [
          OptOps.UPCAST,
          OptOps.UNROLL,
          OptOps.VECTOR,
          OptOps.VECTOR,
          OptOps.PADTO,
          OptOps.SWAP,
          OptOps.MERGE,
          OptOps.THREAD,
          OptOps.STAGE,
          OptOps.BLOCK,
        ]
      )
    )
    if what in (OptOps.SWAP, OptOps.MERGE):
      opt = Opt(what, axis, draw(st.sampled_from([r.arg[0] for r in loops])))
    elif what is OptOps.STAGE and slots:
      tile = draw(
        st.lists(st.sampled_from([r.arg[0] for r in loops_of(root).values()]), min_size=1, max_size=3, unique=True)
      )
      opt = Opt(what, draw(st.sampled_from(slots)), tuple(tile))
    else:
      opt = Opt(
        what,
        axis,
        draw(st.sampled_from(AMOUNTS.get(what, [0, 2, 3, 4, 8]))),
      )
    try:
      root = apply_opt(root, opt, capabilities)
    except KernelOptError:
      continue
    chosen.append(opt)
  return tuple(chosen)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_opts(data: st.DataObject, run_kernel: Any, renderer: Renderer) -> None:
  case = data.draw(cases())
  with Context(SPEC=2):
    root = before_optimising(case.kernel, renderer.capabilities)
    opts = data.draw(opts_for(root, renderer.capabilities))
    pieces = data.draw(st.integers(1, 3))
    check(case, run_kernel(case.kernel, case.arrays, opts, pieces=pieces))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
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
