"""Whether a sum of products is done by multiply-adds, in blocks or not, or by dot-product instructions, and along which
loop."""

from __future__ import annotations

from collections.abc import Iterator

from tiny_codegen.errors import KernelOptError
from tiny_codegen.instructions.dot_product import DotProduct, steps_of
from tiny_codegen.kernel.loops import extent
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.matrix.tensor_cores import made_of
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.target import Target
from tiny_codegen.tiling.choose import best_tiling
from tiny_codegen.tiling.k_blocking import block_of
from tiny_codegen.tiling.tiles import Tiling
from tiny_uop import Opt, OptOps, UOp

Way = tuple[list[Opt], SumOfProducts, Tiling]


def best_ways(root: UOp, found: SumOfProducts, target: Target) -> list[Way]:
  """What to apply to a kernel before it is tiled, what it is then, and its best tiling; the one with the fewest cycles
  first."""
  changed = ways(root, found, target)
  tiled = [(opts, c, tiling) for opts, c in changed if (tiling := best_tiling(c, target)) is not None]
  return sorted(tiled, key=lambda way: way[2].cycles)


def ways(root: UOp, found: SumOfProducts, target: Target) -> list[tuple[list[Opt], SumOfProducts]]:
  """What may be applied to a kernel before it is tiled, nothing for one, and what it is then."""
  return [([], found), *_in_blocks(root, found, target), *_with_dot_products(root, found, target)]


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
  those count that do most at once; the ones that need no offset come first."""
  widest = max(made_of(o.value).bits for o in found.operands)
  fitting: dict[DotProduct, list[tuple[list[Opt], SumOfProducts]]] = {}
  for place, (instruction, _) in enumerate(target.dot_products, len(target.tensor_cores)):
    if widest <= instruction.dtype_a.bits:
      for opts, changed in _by(root, found, place, instruction, target):
        fitting.setdefault(changed.instruction or instruction, []).append((opts, changed))
  most = max((product.terms for product in fitting), default=0)
  best = sorted([product for product in fitting if product.terms == most], key=lambda product: product.offset)
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
