"""Search over optimisations, timed on the device: a beam of the best lists of Opts, each extended by every Opt that
fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tiny_codegen.errors import KernelError, KernelOptError
from tiny_codegen.heuristics import choose_opts
from tiny_codegen.loops import extent, kind, loops_of
from tiny_codegen.merge_loops import drop_single, merge_loops
from tiny_codegen.opts import apply_opts
from tiny_codegen.render.base import Capabilities, Renderer
from tiny_codegen.separate import separate
from tiny_uop import AxisType, Opt, OptOps, UOp, simplify

Measure = Callable[[UOp], float]
Build = Callable[[UOp, Renderer, Sequence[Opt] | None], UOp]

MAX_STEPS = 8
MAX_WRITTEN_OUT = 64
GAIN = 0.98  # a step has to win at least 2 %, which is about what timing is good for


def candidates(root: UOp, capabilities: Capabilities) -> Iterator[Opt]:
  """The single Opts that may fit a kernel to which some have been applied."""
  for id, loop in loops_of(root).items():
    size, what = extent(loop), kind(loop)
    if what not in (AxisType.LOOP, AxisType.REDUCE):
      continue
    written_out = OptOps.UPCAST if what is AxisType.LOOP else OptOps.UNROLL
    for amount in (2, 3, 4, 8):
      if size is not None and size % amount == 0:
        yield Opt(written_out, id, amount)
    for amount in (4, 8, 16, 32, 64):
      if amount <= capabilities.max_vector_lanes and size is not None and size % amount == 0:
        yield Opt(OptOps.VECTOR, id, amount)
    if what is AxisType.LOOP and capabilities.has_threads:
      yield Opt(OptOps.THREAD, id, 0)
    if capabilities.has_local and size is not None:
      for amount in (8, 16, 32):
        if size % amount == 0:
          yield Opt(OptOps.LOCAL if what is AxisType.LOOP else OptOps.GROUP, id, amount)
    if what is AxisType.REDUCE:
      yield from (Opt(OptOps.TC, id, place) for place in range(len(capabilities.tensor_cores)))
    if size is not None and size % 4 and size > 8:
      yield Opt(OptOps.PADTO, id, 4 if size < 64 else 32)


def beam_search(kernel: UOp, renderer: Renderer, measure: Measure, width: int, build: Build) -> tuple[Opt, ...]:
  """The fastest Opts found, starting from none and from what the heuristics choose.

  `measure(program)` gives seconds; where it raises or gives no finite time the candidate is out.
  """
  root = merge_loops(separate(drop_single(simplify(kernel))))
  timed: dict[tuple[Opt, ...], float] = {}

  def time(opts: tuple[Opt, ...]) -> float:
    if opts not in timed:
      timed[opts] = _time(kernel, renderer, measure, build, opts)
    return timed[opts]

  beam = sorted({(), choose_opts(root, renderer.capabilities)}, key=time)
  for _ in range(MAX_STEPS):
    best = time(beam[0])
    extended = [(*opts, opt) for opts in beam[:width] for opt in _fitting(root, opts, renderer.capabilities)]
    ranked = sorted(dict.fromkeys([*beam[:width], *extended]), key=time)[: max(width, 1)]
    beam = ranked
    if time(beam[0]) >= best * GAIN:
      break
  return beam[0]


def _fitting(root: UOp, opts: tuple[Opt, ...], capabilities: Capabilities) -> list[Opt]:
  try:
    return list(candidates(simplify(apply_opts(root, opts, capabilities)), capabilities))
  except KernelOptError:
    return []


def _size(opts: tuple[Opt, ...]) -> int:
  total = 1
  for opt in opts:
    if opt.op in (OptOps.UPCAST, OptOps.UNROLL) and isinstance(opt.arg, int):
      total *= max(opt.arg, 1)
  return total


def _time(kernel: UOp, renderer: Renderer, measure: Measure, build: Build, opts: tuple[Opt, ...]) -> float:
  if _size(opts) > MAX_WRITTEN_OUT:
    return math.inf
  try:
    return measure(build(kernel, renderer, opts))
  except (KernelOptError, KernelError, RuntimeError):
    return math.inf  # one of many candidates: it does not compile or does not run
