"""What a register tile costs: an estimate of the cycles of all that the kernel computes, packs, reads and writes.

It follows from the size of the tile and the choice of loops: what is packed, how much of it is read how often, and
where results go. `tile_facts.py` has these, `step_cost.py` what the sum costs, `memory_cost.py` the rest,
`matrix_cost.py` what differs with matrix instructions. The figures are in `cost_model.py`.
"""

import itertools
import math
from collections.abc import Iterator

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.loops import kind, size_of
from tiny_codegen.target import FEW_THREADS
from tiny_codegen.tiling.memory_cost import MemoryCost
from tiny_codegen.tiling.step_cost import StepCost, streams
from tiny_codegen.tiling.tile_facts import of_loops
from tiny_codegen.tiling.tiles import PANELS, ROW_BLOCKS, Lanes, Rows, Tiling, blocks, divides, row_by_row
from tiny_uop import AxisType

LINE_ROWS = 16
"""Rows that pay only as whole lines of results, where a window shares what they load: elsewhere fewer rows, and two
vectors of lanes, load less for each product."""


class TileCost(StepCost, MemoryCost):
  """What a register tile of one size over one choice of loops costs, for each way to read its operands."""

  def tilings(self, most: float = math.inf) -> Iterator[Tiling]:
    """Its tilings, one for each way to read the operands that fits. Of those with more cycles than `most` some may be
    left out.
    """
    lanes, ways = self.lanes, list[tuple[Lanes, Rows, float]]()
    if not self.fits:
      return
    steps = self._work[0]
    for lanes_from in Lanes:
      beside, past = (self._reading_lanes(lanes_from, rows_stream) for rows_stream in (False, True))
      # what rows cost comes on top: most tilings are too dear for what the lanes cost alone
      readings = [(rows_from, past if streams(rows_from) else beside) for rows_from in Rows]
      ways += [(lanes_from, *reading) for reading in readings if steps * reading[1] <= most]
    for lanes_from, rows_from, each in ways:
      if not self._possible(lanes_from, rows_from):
        continue
      if (computing := self._computing(lanes_from, rows_from, each)) > most:
        continue
      for panels, images in itertools.product(self._panels(lanes_from), self._images(rows_from)):
        packing = self._packing(lanes_from, rows_from, panels, images)
        if packing is not None:
          cycles = computing + packing + self._again(rows_from, panels)
          # pieces of a row follow each other only after those of the other rows of a block
          cycles += self._storing(PANELS - 1 if rows_from is Rows.BLOCK else panels)
          yield Tiling(
            cycles, self.lanes_of, self.rows_of, self.lane_loop, self.row_loop, lanes, self.rows, lanes_from, rows_from,
            panels, *self.written, images, self._once(lanes_from, rows_from),
          )  # fmt: skip

  def _once(self, lanes_from: Lanes, rows_from: Rows) -> tuple[float, float]:
    """Cycles for packing all of the lanes' and of the rows' operand once, which threads that share other loops do
    again."""
    lanes = 0.0 if lanes_from is Lanes.DIRECT else self._moved(self.lanes_of) * self._moving_lanes()
    if rows_from is Rows.DIRECT:
      each = 0.0
    elif rows_from is Rows.BLOCK:
      each = self.cost.copy_block
    elif rows_from is Rows.TILE:
      each = self._moving_tile() * self._sliding()
    else:
      each = self._moving_window() * self._short() / self._overlap()
    lines = [operand.nbytes / CACHE_LINE * self.cost.line for operand in (self.lanes_of, self.rows_of)]
    # lines that are not panels' as they are count as they are read and as they are written
    lanes += lines[0] * (1 if self.lanes_of.step(self.lane_loop) == 1 else 2)
    return lanes, self._moved(self.rows_of) * each + lines[1]

  @property
  def fits(self) -> bool:
    """Whether there are registers, rows and lanes for it."""
    wide = self.lanes > self.target.max_vector_lanes
    return self._has_registers() and not wide and self._takes_rows() and self._takes_lanes()

  @property
  def least(self) -> float:
    """Cycles that none of its tilings is below: all that the steps of the sum read is there."""
    steps, each = self._work
    return steps * each

  def _has_registers(self) -> bool:
    return self.tile + self.vectors * self.c.phases_of(self.lanes_of) + 1 <= self.target.vector_registers

  def _takes_rows(self) -> bool:
    return self.rows <= self.row_size and (self.rows < LINE_ROWS or self._whole_lines())

  def _takes_lanes(self) -> bool:
    return self.lanes < 2 * self.lane_size

  def _panels(self, lanes_from: Lanes) -> list[int]:
    """How many panels may be between two steps to other rows."""
    every = blocks(self.lane_loop, self.lanes)
    if lanes_from is not Lanes.SOME:
      return [every if lanes_from is Lanes.WHOLE else 1]
    if not divides(self.lane_loop, self.lanes):
      return []  # `peel` leaves gates in such loops
    row = self.row_bytes
    shared = self.c.outputs / (self.lane_size * self.row_size)
    least = max(self.cost.shared_passes, self.target.threads if self.target.threads > FEW_THREADS else 0)
    return [
      n
      for n in range(2, min(every // 2, self.cost.panels_row // row) + 1)
      if every % n == 0
      and n * self.panel <= self.caches.second * self.cost.panels_share
      and every // n * shared >= least
    ]

  def _images(self, rows_from: Rows) -> list[int]:
    """How many images may be packed together: panels are packed once for all of them."""
    count = size_of(self.outermost) if rows_from is Rows.IMAGE else 1
    return [
      n for n in (1, 2, 4) if n == 1 or (count % n == 0 and count // n >= self.cost.shared_images and self._together(n))
    ]

  def _together(self, images: int) -> bool:
    """Whether so many images stay in the second cache level while panels come and go. A second image saves most of
    packing panels that are larger than it, and is worth it if some has to come from beyond."""
    pair = images == 2 and self.panel > self._image_bytes()
    share = self.cost.two_images_share if pair else self.cost.images_share
    return images * self._image_bytes() + self.panel <= self.caches.second * share

  def _possible(self, lanes_from: Lanes, rows_from: Rows) -> bool:
    if self.lanes_of.slot == self.rows_of.slot and (lanes_from, rows_from) != (Lanes.DIRECT, Rows.DIRECT):
      return False  # a STAGE names its operand by the buffer, which is both here
    adjacent = bool(self._rows_adjacent())
    if rows_from is Rows.BLOCK:
      fits = divides(self.lane_loop, self.lanes * PANELS) and divides(self.row_loop, self.rows * ROW_BLOCKS)
      return fits and lanes_from is Lanes.PANEL and adjacent
    if rows_from is Rows.TILE:
      return lanes_from is Lanes.WHOLE or (lanes_from is not Lanes.DIRECT and adjacent and self.rows_of.computed)
    if (
      rows_from is Rows.DIRECT
      and self.rows > self.cost.rows_of_same_sets
      and (self.rows_of.step(self.row_loop) or 0) % self.cost.same_sets == 0
    ):
      return False  # more lines than a set has places
    if lanes_from is Lanes.WHOLE and any(kind(r) is AxisType.ORDER for r in self.lanes_of.loops):
      return False  # each part that threads take would pack all panels, in every iteration
    if rows_from is Rows.IMAGE:
      return lanes_from is Lanes.PANEL and len(self.c.own_loops(self.rows_of)) > 1
    if lanes_from is Lanes.SOME:
      return rows_from is Rows.DIRECT
    return True

  @of_loops
  def _rows_adjacent(self) -> bool:
    """Whether a tile of rows is adjacent, along the rows or along the sum."""
    return self.rows_of.step(self.row_loop) == 1 or row_by_row(self.c, self.rows_of, self.row_loop)
