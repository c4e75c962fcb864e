"""Random Opts: lists of them that fit a kernel, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st

from tiny_codegen import PASSES, KernelOptError, PassContext, Target, run_passes
from tiny_codegen.kernel.loops import kind, loops_of
from tiny_codegen.opt.apply import apply_opt
from tiny_uop import AxisType, Opt, OptOps, UOp

AMOUNTS = {OptOps.PADTO: [2, 3, 4, 8], OptOps.BLOCK: [1, 2, 3, 4], OptOps.TC: [0, 1]}
EVERYWHERE = [OptOps.UPCAST, OptOps.UNROLL, OptOps.PADTO, OptOps.SWAP, OptOps.MERGE, OptOps.STAGE]
OF_PROCESSORS = [*EVERYWHERE, OptOps.VECTOR, OptOps.VECTOR, OptOps.THREAD, OptOps.BLOCK]
OF_WORKGROUPS = [*EVERYWHERE, OptOps.STAGE, OptOps.LOCAL, OptOps.LOCAL, OptOps.SPLIT, OptOps.TC]


def before_optimising(kernel: UOp, target: Target, skip: Collection[str] = ()) -> UOp:
  """The kernel whose loops Opts name: as the passes before `optimise` leave it."""
  before = PASSES[: [step.name for step in PASSES].index("optimise")]
  return run_passes(kernel, PassContext(target, ()), skip, passes=before)


@st.composite
def opts_for(draw: st.DrawFn, root: UOp, target: Target) -> tuple[Opt, ...]:
  """Up to five Opts, each of which fits what the ones before it have left."""
  chosen: list[Opt] = []
  slots = sorted(u.arg for u in root.toposort if u.op.name == "PARAM" and u.arg > 0)
  for _ in range(draw(st.integers(0, 5))):
    loops = [r for r in loops_of(root).values() if kind(r) in (AxisType.LOOP, AxisType.REDUCE)]
    if not loops:
      break
    axis = draw(st.sampled_from([r.arg[0] for r in loops]))
    what = draw(st.sampled_from(OF_WORKGROUPS if target.has_local else OF_PROCESSORS))
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
      root = apply_opt(root, opt, target)
    except KernelOptError:
      continue
    chosen.append(opt)
  return tuple(chosen)
