"""What a register tile costs that products of 2 × 2 sums compute (Arm: SMMLA, BFMMLA): where that differs from
`cost.py`.

A vector is two words here, of two lanes or of two rows, and an accumulator two lanes of two rows. Two rows are one load
if they are next to each other, as packing has them.
"""

from __future__ import annotations

from tiny_codegen.tiling.cost import TileCost
from tiny_codegen.tiling.tiles import Lanes, Rows

ROW_REGISTERS = 2
"""Registers that hold two rows each: that which is multiplied and the next one."""


class SquareTileCost(TileCost):
  """A TileCost whose rows come in pairs."""

  def _has_registers(self) -> bool:
    accumulators = self.rows // 2 * self.vectors * self.c.phases
    lanes = self.vectors * self.c.phases_of(self.lanes_of)
    return accumulators + lanes + ROW_REGISTERS <= self.target.vector_registers

  def _takes_rows(self) -> bool:
    return self.rows % 2 == 0 and super()._takes_rows()

  def _by_lane(self, vectors: int, rows: int) -> bool:
    return True

  def _step(self, vectors: int, rows: int) -> float:
    each = super()._step(vectors, rows)
    return max(each, self.cost.float_squares_latency) if self.c.reduce.dtype.kind == "float" else each

  def _possible(self, lanes_from: Lanes, rows_from: Rows) -> bool:
    together = rows_from is not Rows.DIRECT or self.rows_of.step(self.row_loop) == 1
    return together and super()._possible(lanes_from, rows_from)

  def _moving_tile(self) -> float:
    return self._moving_rows()
