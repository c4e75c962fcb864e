"""A convolution as one matrix product: the loops that move one operand alone become one loop of rows or of columns, and
the loops of the sum one loop of steps, where that makes tiles come out even.

The place in an image (batch, y, x) is then one number, of which a tile takes the next 64 whether a row of pixels ends
or not; what is read there is an expression, the window that the matrix of columns would have (im2col), and it is made
in local memory only (S. Chetlur et al., "cuDNN: efficient primitives for deep learning", 2014). The same goes for both
gradients: of the weights, places are what is summed over, and (channel, window) are columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.kernel.loops import extent, size_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_codegen.opt.apply import OptList
from tiny_uop import Opt, OptOps, UOp, simplify

TILE_SIDE, TILE_STEPS = 64, 16  # of rows and columns, and of the sum
WASTE = 1.1  # times as many products may be computed as are needed, where a loop is no multiple


def as_one_product(chooser: OptList, found: SumOfProducts) -> SumOfProducts:
  """The sum of products with loops merged where its tiles gain by it; as it is where they do not."""
  summed = [r for r in found.reduce.src[1:] if extent(r) is not None]
  merges: list[Opt] = []
  scattered = False
  for operand in found.operands:
    loops = found.own_loops(operand)
    tile = [r for r in (longest(loops, operand), longest(summed)) if r is not None]
    rows = any(operand.adjacent(r) for r in tile)
    # a tile that would go across the rows of memory goes along them when it has the loops around them, too
    along = not rows and _row(operand, loops) > _row(operand, summed)
    merges += _merges(loops, TILE_SIDE, along)
    scattered = scattered or (not rows and not along and _row(operand, summed) > 0)
  merges += _merges(summed, TILE_STEPS, scattered)

  def merge() -> bool:
    taken = chooser.take(*merges)
    chooser.root = simplify(chooser.root)
    return taken and SumOfProducts.of(chooser.root) is not None

  merged = SumOfProducts.of(chooser.root) if merges and chooser.attempt(merge) else None
  return found if merged is None else merged


def longest(loops: Sequence[UOp], operand: Operand | None = None) -> UOp | None:
  """The longest of some loops: of several the one along which an operand lies in memory, or the outermost."""
  adjacent = {r for r in loops if operand is not None and operand.adjacent(r)}
  return max(loops, key=lambda r: (size_of(r), r in adjacent, -r.arg[0]), default=None)


def _row(operand: Operand, loops: Sequence[UOp]) -> int:
  """How long the rows of memory are that the innermost of some loops goes along."""
  return (extent(loops[-1]) or 0) if loops and operand.adjacent(loops[-1]) else 0


def _merges(loops: Sequence[UOp], multiple: int, across: bool = False) -> list[Opt]:
  """MERGEs of the innermost loop with those around it until there is little waste in multiples; none where the longest
  loop alone does as well, unless it goes `across` the rows of memory."""
  most = max((extent(r) or 1 for r in loops), default=1)
  if len(loops) < 2 or (not across and _waste(most, multiple) <= WASTE):
    return []
  opts, size, last = [], extent(loops[-1]) or 1, loops[-1]
  for loop in reversed(loops[:-1]):
    if _waste(size, multiple) <= WASTE and (not across or size >= most):
      break
    opts.append(Opt(OptOps.MERGE, loop.arg[0], last.arg[0]))
    size, last = size * (extent(loop) or 1), loop
  return opts


def _waste(size: int, multiple: int) -> float:
  return -(-size // multiple) * multiple / size
