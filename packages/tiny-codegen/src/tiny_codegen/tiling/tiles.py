"""Register tiles of a sum of products, and where their operands are read from: see `choose.py`."""

from __future__ import annotations

from enum import Enum

from tiny_codegen.kernel.loops import size_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_uop import UOp
from tiny_uop.records import dataclass

# where rows are packed in blocks: panels that share them, and register tiles in a block
PANELS, ROW_BLOCKS = 4, 8


class Lanes(Enum):
  """Where the operand with the lanes is read from."""

  DIRECT = "memory"
  PANEL = "local memory, a panel at a time, in the outermost loop"
  SOME = "local memory, several panels at a time, in the outermost loop"
  WHOLE = "local memory, all panels"


class Rows(Enum):
  """Where the operand with the rows is read from."""

  DIRECT = "memory"
  WINDOW = "local memory: what all rows of the row loop read, which may overlap"
  IMAGE = "local memory: what all rows of all its loops but the outermost read"
  TILE = "local memory: what one register tile reads, for the panels at hand"
  BLOCK = "local memory: what several register tiles read, for several panels"


@dataclass(frozen=True)
class Tiling:
  """A way to tile a sum of products. `cycles` is the estimate for one core."""

  cycles: float
  lanes_of: Operand
  rows_of: Operand
  lane_loop: UOp
  row_loop: UOp
  lanes: int
  rows: int
  lanes_from: Lanes
  rows_from: Rows
  panels: int = 1  # that are packed together, where it is SOME of them
  written: UOp | None = None  # the loop of the sum of which steps are written out
  steps: int = 1  # that are
  images: int = 1  # that are packed together, where rows are from an IMAGE

  def image_loops(self, c: SumOfProducts) -> list[UOp]:
    """The loops of an IMAGE: all that move only the rows' operand, but the one that moves it farthest."""
    return [r for r in c.own_loops(self.rows_of) if r is not self.outermost(c)]

  def outermost(self, c: SumOfProducts) -> UOp:
    """The loop over images."""
    return farthest(c, self.rows_of)


def farthest(c: SumOfProducts, operand: Operand) -> UOp:
  """Of the loops that move only this operand that which moves it farthest."""
  return max(c.own_loops(operand), key=lambda r: abs(operand.step(r) or 1 << 62))


def row_by_row(c: SumOfProducts, operand: Operand, row_loop: UOp) -> bool:
  """Whether an operand has the steps of the sum next to each other, and rows far apart: it is packed in this order."""
  last, step = c.reduce.src[-1], abs(operand.step(row_loop) or 0)
  return operand.step(last) == 1 and step >= size_of(last) > 1


def blocks(loop: UOp, amount: int) -> int:
  """Iterations of a loop, so many at a time."""
  return -(-size_of(loop) // amount)


def divides(loop: UOp, amount: int) -> bool:
  return size_of(loop) % amount == 0
