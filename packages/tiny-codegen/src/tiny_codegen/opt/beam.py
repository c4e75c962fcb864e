"""Search over optimisations, timed on the device: a beam of the best lists of Opts, each varied and extended by every
Opt that fits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tiny_codegen.errors import KernelError, KernelOptError
from tiny_codegen.kernel.loops import extent, kind, loops_of
from tiny_codegen.lower.merge_loops import merge_loops
from tiny_codegen.lower.separate import separate
from tiny_codegen.lower.simplify import drop_single
from tiny_codegen.lower.split_loops import split_loops
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.neighbours import group_candidates, other_choices, other_tilings, variations
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.render.base import Renderer
from tiny_codegen.target import Target
from tiny_uop import AxisType, KernelInfo, Opt, OptOps, UOp, parse_uop, print_uop, simplify
from tiny_uop.context import debugs

Measure = Callable[[UOp], float]
Build = Callable[[UOp, Renderer, Sequence[Opt] | None], UOp]

MAX_STEPS = 8
MAX_WRITTEN_OUT = 64
TILINGS = 8  # of a sum of products, for each place in the beam
FINALISTS, ROUNDS = 4, 3
GAIN = 0.98  # a step has to win at least 2 %, which is about what timing is good for


def candidates(root: UOp, target: Target) -> Iterator[Opt]:
  """The single Opts that may fit a kernel to which some have been applied."""
  instructions = len(target.tensor_cores) + len(target.dot_products)
  for id, loop in loops_of(root).items():
    size, what = extent(loop), kind(loop)
    if what not in (AxisType.LOOP, AxisType.REDUCE):
      continue
    written_out = OptOps.UPCAST if what is AxisType.LOOP else OptOps.UNROLL
    for amount in (2, 3, 4, 8):
      if size is not None and size % amount == 0:
        yield Opt(written_out, id, amount)
    for amount in (4, 8, 16, 32, 64):
      if amount <= target.max_vector_lanes and size is not None and size % amount == 0:
        yield Opt(OptOps.VECTOR, id, amount)
    if what is AxisType.LOOP and target.has_threads:
      yield Opt(OptOps.THREAD, id, 0)
    if what is AxisType.REDUCE:
      yield from (Opt(OptOps.TC, id, place) for place in range(instructions))
    if size is not None and size % 4 and size > 8:
      yield Opt(OptOps.PADTO, id, 4 if size < 64 else 32)
  if target.has_local:
    yield from group_candidates(root, target)


@dataclass
class _Search:
  """One kernel's search: what has been timed so far."""

  kernel: UOp
  root: UOp
  renderer: Renderer
  measure: Measure
  build: Build
  timed: dict[tuple[Opt, ...], float] = field(default_factory=dict)

  def time(self, opts: tuple[Opt, ...]) -> float:
    """Seconds, the least seen; infinite where the list does not fit, compile or run."""
    if opts not in self.timed:
      self.timed[opts] = self.once(opts)
    return self.timed[opts]

  def once(self, opts: tuple[Opt, ...]) -> float:
    """One more measurement."""
    if _size(opts) > MAX_WRITTEN_OUT:
      return math.inf
    try:
      seconds = self.measure(self.build(self.kernel, self.renderer, opts))
    except (KernelOptError, KernelError, RuntimeError):
      return math.inf  # one of many candidates: it does not compile or does not run
    if debugs(str(getattr(self.kernel.arg, "name", "")), 3):
      print(f"beam     {seconds * 1e6:12.2f} µs  {listed(opts)}", file=sys.stderr)
    return seconds if math.isfinite(seconds) else math.inf

  def next_to(self, opts: tuple[Opt, ...]) -> list[tuple[Opt, ...]]:
    """The list varied, and extended by one Opt."""
    target = self.renderer.target
    try:
      further = list(candidates(simplify(apply_opts(self.root, opts, target)), target))
    except KernelOptError:
      return []
    return [*variations(self.root, opts, target), *[(*opts, opt) for opt in further]]

  def final(self, chosen: tuple[Opt, ...]) -> tuple[Opt, ...]:
    """The best of the best, timed again in turns: what else the machine did should not decide. `chosen`, what there is
    without a search, has to be beaten."""
    best = sorted([o for o in self.timed if o != chosen], key=self.time)[: FINALISTS - 1]
    for _ in range(ROUNDS):
      for opts in (chosen, *best):
        self.timed[opts] = min(self.time(opts), self.once(opts))
    first = min((chosen, *best), key=self.time)
    return first if self.time(first) < self.time(chosen) * GAIN else chosen


def beam_search(
  kernel: UOp, renderer: Renderer, measure: Measure, width: int, build: Build
) -> tuple[tuple[Opt, ...], float]:
  """The fastest Opts found, and their time in seconds: starting from none, from what the heuristics choose and, for a
  sum of products, from other tilings that the cost model thinks well of; on a target with workgroups, from what the
  heuristics choose with other sizes.

  `measure(program)` gives seconds; where it raises or gives no finite time the candidate is out.
  """
  root, target = before_opts(kernel, renderer.target), renderer.target
  search, chosen = _Search(kernel, root, renderer, measure, build), choose_opts(root, target)
  if target.has_local:
    starts = [chosen, (), *other_choices(root, target)]
  else:
    starts = [chosen, (), *other_tilings(root, target, TILINGS * width)]
  beam = sorted(dict.fromkeys(starts), key=search.time)[:width]
  for _ in range(MAX_STEPS):
    best = search.time(beam[0])
    around = [other for opts in beam if search.time(opts) < math.inf for other in search.next_to(opts)]
    beam = sorted(dict.fromkeys([*beam, *around]), key=search.time)[:width]
    if search.time(beam[0]) >= best * GAIN:
      break
  found = search.final(chosen)
  return found, search.time(found)


def before_opts(kernel: UOp, target: Target | None = None) -> UOp:
  """The kernel as the passes before `optimise` leave it, whose loops Opts name; with no target none of them is cut."""
  root = separate(drop_single(simplify(kernel)))
  return merge_loops(split_loops(root, target) if target is not None else root)


def listed(opts: Sequence[Opt]) -> str:
  """Opts as DEBUG=3 prints them."""
  return ", ".join([f"{o.op.name}({o.axis}, {o.arg})" for o in opts]) or "none"


def _size(opts: tuple[Opt, ...]) -> int:
  written_out = [o.arg for o in opts if o.op in (OptOps.UPCAST, OptOps.UNROLL) and isinstance(o.arg, int)]
  return math.prod([max(amount, 1) for amount in written_out])


# *** results as text, to be kept between processes by whoever has a place for them ***


class Notes(Protocol):
  """A place for one text about one kernel, for one target, one set of versions and settings."""

  def recall(self) -> str | None:
    """The text that `remember` was given last, maybe in another process; None if there is none."""

  def remember(self, found: str) -> None:
    """Keep a text."""


def search_opts(
  kernel: UOp, renderer: Renderer, measure: Measure, width: int, build: Build, notes: Notes | None = None
) -> tuple[Opt, ...]:
  """The Opts that an earlier search has left in `notes`, or that `beam_search` finds now and leaves there."""
  if notes is not None and (known := _known(kernel, renderer, notes.recall())) is not None:
    return known
  found, seconds = beam_search(kernel, renderer, measure, width, build)
  if notes is not None and math.isfinite(seconds):
    notes.remember(written(found, seconds))
  return found


def written(opts: tuple[Opt, ...], seconds: float) -> str:
  """The text of a result: the time in seconds on the first line, then a kernel without contents that has the Opts."""
  return f"{seconds!r}\n{print_uop(UOp.sink(arg=KernelInfo(opts=opts)))}"


def read(text: str) -> tuple[tuple[Opt, ...], float]:
  """The inverse of `written`. Raises ValueError for any other text."""
  seconds, _, rest = text.partition("\n")
  info = parse_uop(rest).arg
  if not isinstance(info, KernelInfo) or info.opts is None:
    raise ValueError(f"not the result of a search: {text!r}")
  return info.opts, float(seconds)


def _known(kernel: UOp, renderer: Renderer, text: str | None) -> tuple[Opt, ...] | None:
  """What a text says, if it says anything that fits the kernel."""
  if text is None:
    return None
  try:
    opts, _ = read(text)
    apply_opts(before_opts(kernel, renderer.target), opts, renderer.target)
  except ValueError:  # a KernelOptError is one too
    return None
  return opts
