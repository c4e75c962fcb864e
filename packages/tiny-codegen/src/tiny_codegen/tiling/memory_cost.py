"""What a register tile costs besides the steps of its sum: operands that are packed, memory that is read again,
and results that are stored."""

import math

from tiny_codegen.cost_model import CACHE_LINE, LEAST_STEPS, ROOM
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, size_of
from tiny_codegen.kernel.sum_of_products import Operand
from tiny_codegen.lower.transpose_in_registers import LEAST_ROWS
from tiny_codegen.lower.vectorize import WIDE
from tiny_codegen.target import KEPT
from tiny_codegen.tiling.tile_facts import TileFacts, of_loops
from tiny_codegen.tiling.tiles import PANELS, ROW_BLOCKS, Lanes, Rows, blocks, divides, row_by_row
from tiny_uop import UOp


class MemoryCost(TileFacts):
  """Cycles of packing, reading from memory and storing."""

  def _packing(self, lanes_from: Lanes, rows_from: Rows, panels: int, images: int = 1) -> float | None:
    """Cycles for filling local memory; None where it does not fit, or is for nothing."""
    room = self.target.limits.shared_memory
    cycles, near = 0.0, 0.0
    if lanes_from is not Lanes.DIRECT:
      if any(extent(r) is None for r in self.summed):
        return None
      moving = self._moved(self.lanes_of) * self._moving_lanes()
      if lanes_from is Lanes.WHOLE and self.lanes_of.loops <= {self.lane_loop, *self.summed}:
        moving *= self.cost.each_thread
      cycles += moving
      if lanes_from is Lanes.WHOLE and self._whole() > self.caches.second * self.cost.panels_share:
        cycles += 2 * self._moved(self.lanes_of) * self.lanes_of.itemsize / CACHE_LINE * self.cost.line
      together = PANELS if rows_from is Rows.BLOCK else panels
      # in the steps of a sum, memory's time passes unnoticed
      waiting = self.cost.packed_in_first_tile if self._first_tile_packs(lanes_from) else 1.0
      cycles += self._reading(self.lanes_of, self.lane_loop, self.lanes * together) * waiting
      near += self.panel * together
    if rows_from in (Rows.WINDOW, Rows.IMAGE):
      overlap = self._overlap()
      filling = self._moved(self.rows_of) * self._moving_window() * self._computed(self.rows_of) * self._short()
      filling *= self.cost.copy_masked if self._masked(self.rows_of, self.row_loop) else 1.0
      if rows_from is Rows.WINDOW:
        near += self._window_bytes()
        size = self.row_size
        # the loops of a window that the row loop does not slide along read their part again for every place
        reading = self._reading(self.rows_of, self.row_loop, size) * overlap**0.5
        reading *= self._asked(near) if lanes_from is Lanes.WHOLE else 1.0
        cycles += (filling / overlap**0.5 + reading) * self._windows_packed(lanes_from)
      else:
        near += self._image_bytes() * images
        # panels that are packed again come from a nearer cache
        cycles += (cycles + 3 * moving) / 4 * (size_of(self.outermost) / images - 1) + filling / overlap
    elif rows_from is Rows.TILE:
      near += self.rows * self.c.length * self.rows_of.itemsize
      filling = self._moved(self.rows_of) * self._moving_tile() * self._sliding() * self._computed(self.rows_of)
      filling *= self.cost.copy_masked if self._masked(self.rows_of, self.row_loop) else 1.0
      filling *= self.cost.copy_masked if not divides(self.row_loop, self.rows) else 1.0
      filling += self._reading(self.rows_of, self.row_loop, self.rows)
      panels_passed = 1.0 if lanes_from is Lanes.WHOLE else blocks(self.lane_loop, self.lanes) / panels
      cycles += filling * self._others() * panels_passed
    elif rows_from is Rows.BLOCK:  # along the rows or along the sum, whichever is adjacent
      near += self.rows * ROW_BLOCKS * self.c.length * self.rows_of.itemsize
      filling = self._moved(self.rows_of) * self.cost.copy_block + self._reading(
        self.rows_of, self.row_loop, self.rows * ROW_BLOCKS
      )
      cycles += filling * blocks(self.lane_loop, self.lanes) / PANELS * self._others()
    return cycles if near <= room else None

  def _asked(self, near: float) -> float:
    """How much of the time that memory takes for packing a window is left where the steps of the sum ask for the next
    one (see `lower/prefetch/`), with so much local memory in all."""
    room = near + 2 * self._window_bytes() <= self.caches.second * ROOM
    as_it_is = not self.rows_of.computed or bool(self.rows_of.gates)
    return self.cost.prefetched if room and as_it_is and self.c.length >= LEAST_STEPS else 1.0

  def _moving(self, operand: Operand, loop: UOp) -> float:
    """Cycles for an element that is packed next to its neighbour along a loop."""
    if operand.step(loop) == 1:
      return self.cost.copy
    if operand.step(loop) == 2 and self.width >= WIDE:
      return self.cost.copy_every_second
    if self._run(operand) >= self.cost.transposed_run:
      return self.cost.transpose
    return self.cost.gather * (self.cost.gather_branches if self._masked(operand, loop) else 1.0)

  @of_loops
  def _moving_lanes(self) -> float:
    return self._moving(self.lanes_of, self.lane_loop)

  @of_loops
  def _moving_window(self) -> float:
    # a tap of the kernel that moves by one makes what a strided window reads adjacent
    adjacent = any(self.rows_of.step(r) == 1 for r in self.summed)
    return self.cost.copy if adjacent else self._moving_rows()

  @of_loops
  def _moving_tile(self) -> float:
    as_it_is = row_by_row(self.c, self.rows_of, self.row_loop)
    adjacent = self.slide is not None and self.rows_of.step(self.summed[-1]) == 1
    return self.cost.copy if as_it_is or adjacent else self._moving_rows()

  def _sliding(self) -> float:
    """Which part of the elements of a tile are packed where a window slides along its rows: those that several places
    of the window read, once, in whole vectors."""
    if self.slide is None:
      return 1.0
    taps = size_of(self.summed[-1])
    size = (self.rows - 1) * self.slide + taps
    return self._in_vectors(size) * size / (self.rows * taps)

  @of_loops
  def _moving_rows(self) -> float:
    return self._moving(self.rows_of, self.row_loop)

  def _storing(self, panels: int) -> float:
    """Cycles for writing the results."""
    outputs = self.c.outputs
    itemsize, row_size = self.c.reduce.dtype.itemsize, self.row_size
    if self._along_lanes():
      # whole lines of what goes past the caches are not read, so that it does not matter where they are
      touched = outputs * itemsize + self.lanes_of.nbytes + self.rows_of.nbytes
      streams = touched > KEPT and self.lanes * itemsize % CACHE_LINE == 0
      piece = int(self.c.outputs) if streams else self.lanes * panels * self.c.between
      return outputs * self.c.between / self.width + self._pieces(outputs, itemsize, piece)
    rows = self.rows * self.c.between
    if self._along_rows() and rows >= LEAST_ROWS:
      # the tiles of a row follow each other soon enough, and the next row, too
      each = self.cost.store_lines if self._whole_lines() else self.cost.store_transposed
      if (stride(self.c.end.src[0].src[0].src[1], self.lane_loop) or 0) % self.cost.same_sets == 0:
        each += self.cost.crowded_rows * rows.bit_count() / rows  # in runs of powers of two
      else:
        each += self.cost.short_rows / rows
      return outputs * each + self._pieces(outputs, itemsize, max(row_size * self.c.between, self.cost.neighbours))
    each = self.cost.scatter
    if (stride(self.c.end.src[0].src[0].src[1], self.lane_loop) or 0) % self.cost.same_sets == 0:
      each += self.cost.crowded_lanes * self.lanes
    return outputs * each + self._pieces(outputs, itemsize, rows)

  def _again(self, rows_from: Rows, panels: int) -> float:
    """Cycles for rows that are read from memory again for other panels."""
    if rows_from is not Rows.DIRECT or self.rows_of.nbytes <= self.caches.second * self.cost.small_share:
      return 0.0
    nbytes, times = self.rows_of.nbytes, blocks(self.lane_loop, self.lanes) / panels
    shared = self.lanes_of.loops & self.rows_of.loops - set(self.summed)
    together = nbytes / math.prod(size_of(r) for r in shared)
    # each row is a piece of its own; those that a window slides along follow each other
    along = 0 if self.slide is None else self.row_size * abs(self.rows_of.step(self.row_loop) or 1)
    piece = max(self.c.length, along)
    starts = nbytes / self.rows_of.itemsize / piece if together > self.caches.second else 0.0
    return times * (self.cost.line_again * nbytes / CACHE_LINE + starts * self._others() * self.cost.piece_cycles)

  def _reading(self, operand: Operand, loop: UOp, piece: int) -> float:
    """Cycles of memory for packing so many elements along a loop at a time, which are far apart if each step of the sum
    moves by more than what is fetched ahead; or for transposing it, where it is the sum whose steps are adjacent."""
    step = operand.step(loop) or 0
    if step > self.cost.near_step and any(operand.step(r) == 1 for r in self.summed):
      each = self.cost.line_aside if piece > self.cost.sides else self.cost.line
      return operand.nbytes / CACHE_LINE * each if operand.nbytes > self.caches.second else 0.0
    if not 1 <= step <= self.cost.near_step or not any(
      (operand.step(r) or 0) >= self.cost.same_sets for r in self.summed
    ):
      return 0.0
    itemsize = operand.itemsize
    return self._pieces(operand.nbytes / itemsize, itemsize, piece * step)

  def _pieces(self, elements: float, itemsize: int, piece: int) -> float:
    """Cycles of memory for elements of which so many at a time are next to each other."""
    nbytes = elements * itemsize
    cycles = elements / piece * self.cost.piece_cycles + nbytes / CACHE_LINE * self.cost.line
    return cycles if nbytes > self.caches.second else 0.0
