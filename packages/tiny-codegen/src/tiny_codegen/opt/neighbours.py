"""Lists of Opts that are like a given one: where a search begins, and where it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest

from tiny_codegen.errors import KernelOptError
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.dot_products import Way, ways
from tiny_codegen.opt.vectors import Chooser
from tiny_codegen.opt.workgroup_neighbours import other_threads
from tiny_codegen.target import Target
from tiny_codegen.tiling.choose import ranked_tilings
from tiny_uop import Opt, OptOps, UOp

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
