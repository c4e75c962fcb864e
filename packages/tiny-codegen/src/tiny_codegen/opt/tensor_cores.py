"""Hand-written choice of optimisations for sums of products on tensor cores.

A workgroup computes a tile of the result, each of a few subgroups of threads a part of it, with the tensor core. Both
operands are in shared memory for some steps of the sum at a time: read from memory once for the whole tile, in rows and
in vectors, and from there once per subgroup (as NVIDIA's CUTLASS does, "Efficient GEMM in CUDA"). A subgroup keeps its
part of the result in registers, which is what limits the size of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tiny_codegen.instructions.tensor_core import SWIZZLE, TensorCore
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, loops_of, size_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_codegen.matrix.tensor_cores import made_of
from tiny_codegen.opt.apply import OptList
from tiny_codegen.opt.im2col import longest
from tiny_uop import Opt, OptOps, UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class TileShape:
  """Rows and columns of the result that a workgroup has, and along how many subgroups it divides each."""

  rows: int
  columns: int
  subgroups: tuple[int, int]


SHAPES = (
  TileShape(128, 128, (2, 2)),
  TileShape(128, 64, (2, 2)),
  TileShape(64, 64, (2, 2)),
  TileShape(32, 64, (1, 2)),
  TileShape(32, 32, (1, 1)),
  TileShape(16, 64, (1, 2)),
  TileShape(16, 16, (1, 1)),
)
"""Largest first: each reads less memory for its work than the next."""
SHARED_SHAPES = (
  TileShape(128, 256, (2, 1)),
  TileShape(128, 128, (2, 1)),
  TileShape(128, 64, (2, 1)),
  TileShape(64, 64, (1, 1)),
)
"""For tensor cores that read local memory themselves: all columns in one instruction."""
ENOUGH = 120  # workgroups that keep a device busy
WASTE = 1.3  # times as many products may be computed as are needed, where sizes are no multiples
SECTORS = 64  # bytes of a row that are read at a time: a sector or two of a cache line
LEAST_SIZE = 16  # rows, columns and steps from which on a tensor core pays


def choose_tensor_core(chooser: OptList, found: SumOfProducts) -> bool:
  """Tile a sum of products for the first tensor core that takes its types; False where there is none."""
  sides = [longest(found.own_loops(operand), operand) for operand in found.operands]
  if sides[0] is None or sides[1] is None:
    return False
  depth = max(found.reduce.src[1:], key=lambda r: size_of(r))
  if any((extent(r) or 0) < LEAST_SIZE for r in (sides[0], sides[1], depth)):
    return False
  # columns are what neighbouring threads write: the loop that is adjacent in the result
  swapped = _moves(found, sides[0]) < _moves(found, sides[1])
  rows, columns = (sides[1], sides[0]) if swapped else (sides[0], sides[1])
  operands = found.operands[::-1] if swapped else found.operands
  # those for the operands' own type first; of them, those that read local memory themselves, which are for what keeps a
  # device busy with large tiles
  own = {made_of(operand.value) for operand in operands}
  cores = sorted(
    enumerate(chooser.target.tensor_cores), key=lambda each: (own != {each[1].dtype_in}, each[1].shared is None)
  )
  for place, core in cores:
    for shape in _shapes(core, size_of(rows), size_of(columns), found):
      if chooser.attempt(partial(_tile, chooser, place, core, shape, (rows, columns, depth), operands)):
        return True
  return False


def _moves(found: SumOfProducts, loop: UOp) -> int:
  """By how much the result's place moves with a loop."""
  return abs(stride(found.end.src[0].src[0].src[1], loop) or 1 << 60)


def _shapes(core: TensorCore, rows: int, columns: int, found: SumOfProducts) -> list[TileShape]:
  """Those to try, best first: the largest of which there are enough, else the smaller ones."""
  n, m, _ = core.dims

  def padded(shape: TileShape) -> float:
    return (-(-rows // shape.rows) * shape.rows) * (-(-columns // shape.columns) * shape.columns) / (rows * columns)

  shapes = SHAPES if core.shared is None else [s for s in SHARED_SHAPES if s.columns == n]
  fitting = [s for s in shapes if s.rows % (m * s.subgroups[0]) == 0 and s.columns % (n * s.subgroups[1]) == 0]
  good = [s for s in fitting if padded(s) <= WASTE]
  if not good and core.shared is None:
    good = sorted(fitting, key=padded)[:1]
  others = found.outputs / (rows * columns)

  def groups(shape: TileShape) -> float:
    return others * -(-rows // shape.rows) * -(-columns // shape.columns)

  busy = [s for s in good if groups(s) >= ENOUGH]
  return busy or (good[::-1] if core.shared is None else [])


def _tile(
  chooser: OptList, place: int, core: TensorCore, shape: TileShape, loops: Sequence[UOp], operands: Sequence[Operand]
) -> bool:
  """Take the Opts of one shape; False where one of them does not fit."""
  depth = max(core.dims[2], (SECTORS if core.shared is None else SWIZZLE) // core.dtype_in.itemsize)
  size = size_of(loops[2])
  while -(-size // depth) * depth > WASTE * size:
    if core.shared is not None:
      return False  # which wants whole rows
    if depth <= core.dims[2]:
      break
    depth //= 2
  inner = []
  for loop, amount in zip(loops, (shape.rows, shape.columns, depth)):
    if (new := chooser.split(OptOps.SPLIT, loop.arg[0], amount)) is None:
      return False
    inner.append(new)
  rows, columns, steps = inner
  for operand, whole, side in zip(operands, loops, (rows, columns)):
    # in the order of memory, so that a row is read as it stands there
    order = (steps, side) if operand.adjacent(whole) else (side, steps)
    if not chooser.take(Opt(OptOps.STAGE, operand.slot, order)):
      return False
  if not chooser.take(Opt(OptOps.TC, steps, (place, rows, columns))):
    return False
  for side, subgroups in ((rows, shape.subgroups[0]), (columns, shape.subgroups[1])):
    if subgroups > 1 and not chooser.take(Opt(OptOps.LOCAL, side, subgroups)):
      return False
  for op, side in ((OptOps.UPCAST, rows), (OptOps.UPCAST, columns), (OptOps.UNROLL, steps)):
    if side in loops_of(chooser.root) and not chooser.take(Opt(op, side, 0)):
      return False
  return chooser.fits()
