"""Lists of Opts that are like a given one: where a search begins, and where it goes on. For a target with workgroups,
these are sizes of workgroups and of tiles, threads that share a sum, and what is kept in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest

from tiny_codegen.errors import KernelOptError
from tiny_codegen.kernel.loops import extent, kind, loops_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.dot_products import Way, ways
from tiny_codegen.opt.vectors import Chooser
from tiny_codegen.opt.workgroups import GroupChooser, Sizes, choose_with
from tiny_codegen.target import Target
from tiny_codegen.tiling.choose import ranked_tilings
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


SIZED = (OptOps.VECTOR, OptOps.UPCAST, OptOps.UNROLL, OptOps.SPLIT)
"""Opts whose argument is a number of iterations."""
TRIED = 3  # times as many tilings are tried as are wanted: of some, what they pack turns out not to fit


def other_tilings(root: UOp, target: Target, count: int) -> list[tuple[Opt, ...]]:
  """Up to `count` ways to tile a sum of products, by the estimates of `choose.py`: the best of each choice of loops and
  of what is packed, then the second best of each, and so on. None for a kernel of another kind."""
  found = SumOfProducts.of(root)
  if found is None:
    return []
  changed = ways(root, found, target)
  ranked = [(opts, c, tiling) for opts, c in changed for tiling in ranked_tilings(c, target)]
  kinds: dict[tuple[object, ...], list[Way]] = {}
  for way in sorted(ranked, key=lambda way: way[2].cycles):
    first, _, tiling = way
    kind = (*first, tiling.lane_loop, tiling.row_loop, tiling.lanes_from, tiling.rows_from)
    kinds.setdefault(kind, []).append(way)
  by_rank = [way for rank in zip_longest(*kinds.values()) for way in rank if way is not None]
  lists = (opts_of(root, target, way) for way in by_rank[: count * TRIED])
  return list(islice(dict.fromkeys([opts for opts in lists if opts]), count))


def opts_of(root: UOp, target: Target, way: Way) -> tuple[Opt, ...]:
  """The optimisations that tile a sum of products in a given way, and share it between threads; none if that does not
  fit."""
  chooser = Chooser(root, target)
  if not chooser.take_tiling(*way):
    return ()
  chooser.threads()
  return tuple(chooser.opts)


def variations(root: UOp, opts: tuple[Opt, ...], target: Target) -> Iterator[tuple[Opt, ...]]:
  """The lists with one Opt taken away, or with another amount, that still fit the kernel."""
  for place, opt in enumerate(opts):
    before, after = opts[:place], opts[place + 1 :]
    changed = [(*before, *after)]
    for amount in _amounts(opt, target):
      changed.append((*_padded(before, opt, amount), replace(opt, arg=amount), *after))
    yield from _fitting(root, changed, target)
  if target.has_local:
    yield from _fitting(root, other_threads(opts), target)


def _fitting(root: UOp, lists: Iterable[tuple[Opt, ...]], target: Target) -> Iterator[tuple[Opt, ...]]:
  for opts in lists:
    try:
      apply_opts(root, opts, target)
    except KernelOptError:
      continue
    yield opts


def _amounts(opt: Opt, target: Target) -> list[int]:
  if not isinstance(opt.arg, int):
    return []
  if opt.op is OptOps.THREAD:
    return [n for n in (0, 2, 8, 2 * opt.arg, opt.arg // 2) if n not in (1, opt.arg)]
  if opt.op not in SIZED or opt.arg < 2:
    return []
  beside = () if opt.op is OptOps.VECTOR else (opt.arg - 1, opt.arg + 1)
  most = target.max_vector_lanes if opt.op is OptOps.VECTOR else 64
  return [n for n in (opt.arg // 2, 2 * opt.arg, *beside) if 2 <= n <= most]


def _padded(before: tuple[Opt, ...], opt: Opt, amount: int) -> tuple[Opt, ...]:
  """The Opts before one that gets another amount: a loop that was padded for it is padded for the new one."""
  if opt.op is OptOps.THREAD or not isinstance(opt.arg, int):
    return before
  return tuple([
    replace(o, arg=o.arg // opt.arg * amount)
    if o.op is OptOps.PADTO and o.axis == opt.axis and isinstance(o.arg, int) and o.arg % opt.arg == 0
    else o
    for o in before
  ])  # fmt: skip
