"""Whether a sum of products is done by multiply-adds, in blocks or not, or by dot-product instructions, and along which
loop."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tiny_codegen.errors import KernelOptError
from tiny_codegen.instructions.dot_product import DotProduct, steps_of
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.matrix.tensor_cores import made_of
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.target import Target
from tiny_codegen.tiling.choose import best_tiling
from tiny_codegen.tiling.k_blocking import block_of
from tiny_codegen.tiling.tiles import Tiling
from tiny_uop import AxisType, Opt, OptOps, UOp

MOST_PHASES = 8  # of a transposed convolution: more accumulators than that leave no rows to a tile
Way = tuple[list[Opt], SumOfProducts, Tiling]


def best_ways(root: UOp, found: SumOfProducts, target: Target) -> list[Way]:
  """What to apply to a kernel before it is tiled, what it is then, and its best tiling; the one with the fewest cycles
  first."""
  changed = ways(root, found, target)
  tiled = [(opts, c, tiling) for opts, c in changed if (tiling := best_tiling(c, target)) is not None]
  return sorted(tiled, key=lambda way: way[2].cycles)


def ways(root: UOp, found: SumOfProducts, target: Target) -> list[tuple[list[Opt], SumOfProducts]]:
  """What may be applied to a kernel before it is tiled, nothing for one, and what it is then."""
  return [
    ([], found), *_in_phases(root, found, target), *_in_blocks(root, found, target),
    *_with_dot_products(root, found, target),
  ]  # fmt: skip


def _in_phases(root: UOp, found: SumOfProducts, target: Target) -> list[tuple[list[Opt], SumOfProducts]]:
  """A short loop whose results lie between those of another one, as the phases of a transposed convolution, written out
  in each tile: what is stored are rows then, where it would be every second element. Others that both operands depend
  on come with it, where that makes a tile of few rows larger."""
  loops = [r for r in found.end.src[1:] if kind(r) is AxisType.LOOP and extent(r) is not None]
  steps = {stride(found.end.src[0].src[0].src[1], r): r for r in loops}
  phase = steps.get(1)
  if phase is None or size_of(phase) > MOST_PHASES or (along := steps.get(size_of(phase))) is None:
    return []
  a, b = found.operands
  if not any(phase in o.loops and along not in o.loops for o in (a, b)):
    return []  # no filter that each phase has for itself: both are taps, as in the gradient of a convolution
  others = [r for r in loops if r in a.loops & b.loops and r is not phase and size_of(r) <= MOST_PHASES]
  changed = []
  for written in ([phase], [phase, *others]) if others else ([phase],):
    if math.prod(map(size_of, written)) <= MOST_PHASES:
      opts = [Opt(OptOps.UPCAST, r.arg[0], 0) for r in written]
      kernel = SumOfProducts.of(apply_opts(root, tuple(opts), target))
      changed += [(opts, kernel)] if kernel is not None else []
  return changed


def _in_blocks(root: UOp, found: SumOfProducts, target: Target) -> list[tuple[list[Opt], SumOfProducts]]:
  """A long sum in blocks."""
  if (opt := block_of(found)) is None:
    return []
  try:
    changed = SumOfProducts.of(apply_opts(root, (opt,), target))
  except KernelOptError:
    return []
  return [([opt], changed)] if changed is not None else []


def _with_dot_products(root: UOp, found: SumOfProducts, target: Target) -> list[tuple[list[Opt], SumOfProducts]]:
  """Optimisations that make dot products of the sum, and the kernel with them. Of the instructions that take its types
  those count of the narrowest; the ones that need no offset come first."""
  widest = max(made_of(o.value).bits for o in found.operands)
  fitting: dict[DotProduct, list[tuple[list[Opt], SumOfProducts]]] = {}
  for place, (instruction, _) in enumerate(target.dot_products, len(target.tensor_cores)):
    if widest <= instruction.dtype_a.bits:
      for opts, changed in _by(root, found, place, instruction, target):
        fitting.setdefault(changed.instruction or instruction, []).append((opts, changed))
  least = min((product.dtype_a.bits for product in fitting), default=0)
  best = sorted([p for p in fitting if p.dtype_a.bits == least], key=lambda p: p.offset)
  return [way for product in best for way in fitting[product]]


def _by(
  root: UOp, found: SumOfProducts, place: int, instruction: DotProduct, target: Target
) -> Iterator[tuple[list[Opt], SumOfProducts]]:
  """The same for one instruction: along each loop, and with each operand as the rows."""
  outputs = [r.arg[0] for o in found.operands for r in found.own_loops(o)[:1]]
  if len(outputs) < 2:
    return
  steps = steps_of(instruction)
  for depth in _along(found, steps):
    for rows, columns in (outputs, outputs[::-1]):
      opts = [Opt(OptOps.TC, depth.arg[0], (place, rows, columns))]
      if (extent(depth) or 0) % steps:
        opts.insert(0, Opt(OptOps.PADTO, depth.arg[0], steps))
      try:
        changed = SumOfProducts.of(apply_opts(root, tuple(opts), target))
      except KernelOptError:
        return
      if changed is not None:
        yield opts, changed


def _along(found: SumOfProducts, steps: int) -> list[UOp]:
  """The loops of the sum that words can be made along: those that they divide; or else the longest, to be padded."""
  loops = [r for r in found.reduce.src[1:] if extent(r) is not None]
  return [r for r in loops if (extent(r) or 0) % steps == 0] or sorted(loops, key=lambda r: -(extent(r) or 0))[:1]
