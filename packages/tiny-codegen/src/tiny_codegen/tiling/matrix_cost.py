"""What a register tile costs that matrix instructions compute: where that differs from `cost.py`.

A step of the sum, a word, is a part of an instruction here; operands are read in tiles, each row of which should be a
cache line.
"""

from tiny_codegen.instructions.dot_product import MatrixProduct
from tiny_codegen.kernel.interleave import Neighbours
from tiny_codegen.kernel.loops import extent
from tiny_codegen.kernel.memory import gates_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.tiling.cost import TileCost
from tiny_codegen.tiling.step_cost import rate
from tiny_codegen.tiling.tiles import Lanes, Rows, divides
from tiny_uop import Ops, UOp

TILE_REGISTERS = 8


def depth_of(c: SumOfProducts, rows_are_direct: bool, rows_of: object = None) -> UOp | None:
  """The loop of the sum that goes through the words of a tile: which the rows' operand is adjacent along, if it is read
  from memory; None if there is none."""
  if not isinstance(c.instruction, MatrixProduct):
    return None
  words = c.instruction.words
  loops = [r for r in c.reduce.src[1:] if (extent(r) or 1) % words == 0]
  if rows_are_direct:
    operand = next(o for o in c.operands if o is rows_of)
    loops = [r for r in loops if operand.step(r) == 1]
  return loops[-1] if loops else None


class MatrixTileCost(TileCost):
  """A TileCost whose rows and vectors are those of tiles."""

  @property
  def how(self) -> MatrixProduct:
    found = self.c.instruction
    assert isinstance(found, MatrixProduct)
    return found

  def _has_registers(self) -> bool:
    across = self.rows // self.how.rows
    return across * self.vectors + across + self.vectors <= TILE_REGISTERS

  def _takes_rows(self) -> bool:
    size = self.row_size
    return self.rows == self.how.rows or (size > self.rows // 2 and (size % self.rows == 0 or not self._as_they_are()))

  def _takes_lanes(self) -> bool:
    return self.vectors == 1 or super()._takes_lanes()  # most of a tile may be empty, where others read much memory

  def _left(self) -> int:
    return 0  # all tiles are whole

  def _streaming_rows(self, lanes_from: Lanes) -> float:
    nbytes = self.rows * self.rows_of.itemsize
    stays = nbytes * self.c.length + self.panel <= self.caches.first
    several = lanes_from in (Lanes.SOME, Lanes.WHOLE)
    return 0.0 if stays and several else nbytes * self.cost.second_idle_bytes / self.cost.matrix_rows_beyond

  def _step(self, vectors: int, rows: int) -> float:
    across = rows // self.how.rows
    reading = (across + vectors) * self.how.rows / self.cost.matrix_rows / self.how.words
    return max(rows * vectors / rate(self.c, self.target), reading, self.cost.matrix_latency / self.how.words)

  def _possible(self, lanes_from: Lanes, rows_from: Rows) -> bool:
    if lanes_from is Lanes.DIRECT or rows_from is Rows.IMAGE:
      return False
    if depth_of(self.c, False) is None or self.lanes_of.slot == self.rows_of.slot:
      return False
    if self._as_they_are():  # nothing is gained by packing rows, whose lines are used as a whole
      return rows_from is Rows.DIRECT
    if rows_from is Rows.DIRECT or (rows_from is Rows.BLOCK and not self._in_words()):
      return False
    return super()._possible(lanes_from, rows_from)

  def _as_they_are(self) -> bool:
    """Whether rows in memory are those of tiles."""
    plain = self.rows_of.value.op is Ops.LOAD and not self.rows_of.computed
    whole = divides(self.row_loop, self.how.rows) and self.rows_of.step(self.row_loop) is not None
    return plain and whole and depth_of(self.c, True, self.rows_of) is not None

  @property
  def written(self) -> tuple[UOp, int]:
    return self.summed[-1], 1

  def _packing(self, lanes_from: Lanes, rows_from: Rows, panels: int, images: int = 1) -> float | None:
    cycles = super()._packing(lanes_from, rows_from, panels, images)
    return cycles if cycles is None or lanes_from is not Lanes.WHOLE else cycles * self.cost.matrix_each_thread

  def _storing(self, panels: int) -> float:
    return super()._storing(panels) + self.cost.matrix_setup + self.c.outputs * self.cost.matrix_result

  def _windows_packed(self, lanes_from: Lanes) -> float:
    alone = self.rows_of.loops <= {self.row_loop, *self.summed}
    return self.cost.matrix_each_thread if alone else super()._windows_packed(lanes_from)

  def _moving_window(self) -> float:
    return self._moving_rows()

  def _moving_tile(self) -> float:
    return self._moving_rows()

  def _sliding(self) -> float:
    return 1.0

  def _moving_rows(self) -> float:
    """Packed rows have the words of a tile next to each other."""
    if self._in_words():
      return self.cost.copy
    gated = any(map(gates_of, self.rows_of.loads))
    squares = self.rows_of.step(self.row_loop) == 1 and divides(self.row_loop, self.rows) and not gated
    return self.cost.transpose if squares else self.cost.gather

  def _in_words(self) -> bool:
    """Whether the words of a row are in memory, one after the other, though not where words begin."""
    depth = depth_of(self.c, False)
    if depth is None:
      return False
    whole = len(self.rows_of.loads) == 1 and self.rows_of.step(depth) == 1
    return whole or Neighbours.of(self.rows_of.value, depth) is not None

  def _far_apart(self) -> float:
    return 1.0
