"""Where a search begins for a target with workgroups, and the Opts that belong to it: sizes of workgroups and of tiles,
threads that share a sum, what is kept in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tiny_codegen.kernel.loops import extent, kind, loops_of
from tiny_codegen.opt.workgroups import GroupChooser, Sizes, choose_with
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, Opt, OptOps, UOp

WORKGROUPS = (32, 128, 256, 512)  # of a workgroup
SHARING = (16, 32, 64, 128, 256, 512, 1024)  # that share a sum
TILES = (Sizes(registers=(8, 4, 2)), Sizes(registers=(2,)), Sizes(steps=(32,)), Sizes(steps=(8,)), Sizes(sides=(8, 4)))
STEPS = (8, 16, 32)  # of a sum, that may be kept in shared memory at a time
THREAD_OPTS = frozenset({OptOps.LOCAL, OptOps.GROUP})


def other_choices(root: UOp, target: Target) -> list[tuple[Opt, ...]]:
  """What the heuristics choose with other sizes; without tensor cores, too, where they are chosen."""
  sizes = [*(Sizes(wanted=n) for n in WORKGROUPS), *(Sizes(sharing=n) for n in SHARING), *TILES]
  found = [choose_with(GroupChooser(root, target, sizes=other)) for other in sizes]
  if target.tensor_cores:
    found.append(choose_with(GroupChooser(root, replace(target, tensor_cores=()))))
  return [opts for opts in dict.fromkeys(found) if opts]


def group_candidates(root: UOp, target: Target) -> Iterator[Opt]:
  """The single Opts for workgroups that may fit a kernel to which some have been applied."""
  loops = loops_of(root)
  for id, loop in loops.items():
    size, what = extent(loop), kind(loop)
    if what not in (AxisType.LOOP, AxisType.REDUCE) or size is None:
      continue
    for amount in (2, 4, 8, 16, 32, 64, 128, 256):
      if size % amount == 0:
        yield Opt(OptOps.LOCAL if what is AxisType.LOOP else OptOps.GROUP, id, amount)
    if what is AxisType.REDUCE:
      yield from (Opt(OptOps.SPLIT, id, steps) for steps in STEPS if size % steps == 0 and size > steps)
      if size in STEPS:
        # a part of a sum: its operands may be kept for that long
        slots = {u.src[0].src[0].arg for u in root.toposort if u.op is Ops.LOAD and loop in u.ranges}
        yield from (Opt(OptOps.STAGE, slot, (id,)) for slot in sorted(slots))


def other_threads(opts: tuple[Opt, ...]) -> Iterator[tuple[Opt, ...]]:
  """The list with half as many and with twice as many threads: the amounts that are the same change together, since
  loops that share a counter have as many iterations."""
  for amount in sorted({o.arg for o in opts if o.op in THREAD_OPTS and isinstance(o.arg, int) and o.arg > 1}):
    for other in (amount // 2, amount * 2) if amount > 2 else (amount * 2,):
      yield tuple([replace(o, arg=other) if o.op in THREAD_OPTS and o.arg == amount else o for o in opts])
