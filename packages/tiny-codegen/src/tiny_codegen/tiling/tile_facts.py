"""A register tile of a sum of products: its size, its loops, and what it reads, in elements, bytes and steps.

What that costs is in `step_cost.py` and `memory_cost.py`.
"""

import math
from collections.abc import Callable
from functools import cached_property, wraps
from typing import TypeVar

from tiny_codegen.cost_model import CACHE_LINE, CostModel
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, size_of
from tiny_codegen.kernel.memory import gates_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_codegen.lower.peel import rows_left
from tiny_codegen.lower.skip_padding_taps import has_room, share_inside
from tiny_codegen.target import CacheSizes, Target
from tiny_codegen.tiling.tiles import Lanes, blocks, divides, farthest
from tiny_uop import Ops, UOp
from tiny_uop.records import dataclass

T = TypeVar("T", bound="TileFacts")


def of_loops(compute: Callable[[T], float]) -> Callable[[T], float]:
  """A figure of a tile that is the same for all sizes: computed once for a choice of loops."""
  name = compute.__name__

  @wraps(compute)
  def found(tile: T) -> float:
    known = tile.known
    if name not in known:
      known[name] = compute(tile)
    return known[name]

  return found


@dataclass(frozen=True)
class TileFacts:
  """A register tile of one size over one choice of loops. `known` and `taps` are what those over the same loops
  share."""

  c: SumOfProducts
  target: Target
  lanes_of: Operand
  rows_of: Operand
  lane_loop: UOp
  row_loop: UOp
  width: int
  vectors: int
  rows: int
  known: dict[str, float]
  taps: dict[UOp, tuple[float, tuple[UOp, ...]]]

  @property
  def cost(self) -> CostModel:
    return self.target.cost

  @property
  def caches(self) -> CacheSizes:
    return self.target.caches

  @property
  def near(self) -> float:
    """Bytes of the first cache level that a panel may take to stay there."""
    return self.caches.first * self.cost.first_share

  @property
  def lanes(self) -> int:
    return self.width * self.vectors

  @property
  def row_bytes(self) -> int:
    """Bytes of the lanes of one step of the sum."""
    return self.lanes * self.lanes_of.itemsize * self.c.phases_of(self.lanes_of)

  @property
  def panel(self) -> float:
    """Bytes of one packed panel."""
    return self.row_bytes * self.c.length

  @property
  def tile(self) -> int:
    """Vectors of results that are summed side by side."""
    return self.rows * self.vectors * self.c.phases

  @cached_property
  def written(self) -> tuple[UOp, int]:
    """The loop of the sum of which steps are written out, and how many: all that a window slides along, if their
    vectors fit into registers, else those of another loop, of which each reads elements of its own; as many as divide
    it of others."""
    last, tile = self.summed[-1], self.tile
    if self.c.reduce.src[0].op not in (Ops.MUL, Ops.MMA) or extent(last) is None:
      return last, 1
    if self.slide is None:
      return last, self._part(last)
    # where multiply-adds do not spread scalars themselves, one that is being spread has a register, too
    spare = self.cost.spare_registers + (not self.target.has_masks)
    taps = size_of(last)
    vectors = taps * self.vectors * self.c.phases_of(self.lanes_of)
    if taps <= self.cost.window_steps and tile + vectors + spare <= self.target.vector_registers:
      return last, taps
    apart = [r for r in self.summed[-2::-1] if extent(r) is not None and not self._slides(r)]
    if len(self.summed) > 2:  # a loop of a few taps alone would begin again and again
      return next(((r, steps) for r in apart if (steps := self._apart(r)) > 1), (last, 1))
    return last, 1

  @cached_property
  def inside(self) -> float:
    """Which part of the steps of the sum is left where windows leave out padding: see `skip_padding_taps`."""
    return math.prod(self._tap(r)[0] for r in self.summed if r is not self._all_written)

  @cached_property
  def gates_left(self) -> list[UOp]:
    """The gates of rows that are neither gone then nor known for each row: those of a tile that has all rows."""
    gone = {g for r in self.summed if r is not self._all_written for g in self._tap(r)[1]}
    whole = self.rows == extent(self.row_loop)
    known = {r for r in (self.row_loop, self._all_written) if whole and r is not None}
    return [gate for gate in self.rows_of.gates if gate not in gone and not gate.ranges <= known]

  @property
  def _all_written(self) -> UOp | None:
    """The loop of which all steps are written out, if there is one."""
    loop, steps = self.written
    return loop if steps == extent(loop) else None

  def _tap(self, loop: UOp) -> tuple[float, tuple[UOp, ...]]:
    if not has_room(self.tile, self.target):
      return 1.0, ()
    if loop not in self.taps:
      self.taps[loop] = share_inside(self.c.reduce, loop, (self.lane_loop, self.row_loop))
    return self.taps[loop]

  def _apart(self, loop: UOp) -> int:
    """Steps of a loop that are written out which share no elements: all of a window's, if they are not too many."""
    size, tile = size_of(loop), self.tile
    return size if size <= self.cost.window_steps and size * tile <= self.cost.window_written_out else self._part(loop)

  def _part(self, loop: UOp) -> int:
    """Steps of a long loop that are written out."""
    size, tile = size_of(loop), self.tile
    return next((n for n in (4, 3, 2) if size % n == 0 and n * tile <= self.cost.written_out), 1)

  @property
  def slide(self) -> int | None:
    """By how many steps of the last loop of the sum a row is ahead of the one before, where they read the same; None
    where they do not."""
    return self._slides(self.summed[-1])

  def _slides(self, loop: UOp) -> int | None:
    """The same for another loop of the sum."""
    row, step = (abs(self.rows_of.step(r) or 0) for r in (self.row_loop, loop))
    slides = 0 < step <= row < step * size_of(loop) and row % step == 0
    return row // step if slides else None

  @property
  def lane_size(self) -> int:
    """Iterations of the loop that becomes lanes."""
    return size_of(self.lane_loop)

  @property
  def row_size(self) -> int:
    """Iterations of the loop that becomes rows."""
    return size_of(self.row_loop)

  @property
  def outermost(self) -> UOp:
    """The loop that moves the rows' operand farthest."""
    return farthest(self.c, self.rows_of)

  @property
  def summed(self) -> tuple[UOp, ...]:
    return self.c.reduce.src[1:]

  @of_loops
  def _short(self) -> float:
    """How many times as much as its elements a row of a window costs to be packed: vectors have more lanes than are
    needed, and each row is an iteration of its own."""
    last, row = size_of(self.summed[-1]), self.row_size
    size = row if self.slide is None else (row - 1) * self.slide + last
    return self._in_vectors(size)

  def _in_vectors(self, size: int) -> float:
    """How many times as much a row of so many elements costs to be packed as its elements."""
    return (-(-size // self.width) + self.cost.row_start) * self.width / size

  @of_loops
  def _others(self) -> float:
    """Iterations of the loops around that move only the lanes' operand, but for the one with the lanes."""
    return math.prod(size_of(r) for r in self.c.own_loops(self.lanes_of) if r is not self.lane_loop)

  @of_loops
  def _overlap(self) -> float:
    """How often the windows of the rows' operand read an element."""
    return max(self.rows_of.elements / max(self.rows_of.nbytes / self.rows_of.main.dtype.itemsize, 1.0), 1.0)

  @of_loops
  def _image_bytes(self) -> float:
    images = size_of(self.outermost)
    return self.rows_of.elements / self._overlap() / images * self.rows_of.itemsize

  def _left(self) -> int:
    """The rows of the last tile if it is a smaller one, or 0."""
    return rows_left(self.row_size, self.rows)

  def _first_tile_packs(self, lanes_from: Lanes) -> bool:
    """Whether panels are packed in the steps of a sum: see `staging/pack.py`."""
    return lanes_from is not Lanes.DIRECT and blocks(self.row_loop, self.rows) > 1 and bool(self._read_in_order())

  @of_loops
  def _read_in_order(self) -> bool:
    """Whether tiles of one loop read whole panels, which are in order in memory."""
    in_order = all(stride(u.src[0].src[1], self.lane_loop) in (0, 1) for u in self.lanes_of.loads)
    gated = any(r in self.summed for gate in self.lanes_of.gates for r in gate.ranges)
    one = self.c.own_loops(self.rows_of) == [self.row_loop]
    return in_order and one and not gated and self.c.instruction is None

  def _windows_packed(self, lanes_from: Lanes) -> float:
    """How often the window of each row is."""
    # what depends on nothing else is packed once, before everything
    if self._one_window():
      return self.cost.each_thread * self._others()
    return (1 if lanes_from is Lanes.WHOLE else blocks(self.lane_loop, self.lanes)) * self._others()

  def _one_window(self) -> bool:
    """Whether there is one window for all that the kernel computes."""
    return self.rows_of.loops <= {self.row_loop, *self.summed}

  def _moved(self, operand: Operand) -> float:
    """Elements that are packed; words count as often as what they are put together from."""
    return operand.elements * (len(operand.loads) if self.c.instruction else 1)

  def _computed(self, operand: Operand) -> float:
    return self.cost.computed if operand.computed else 1.0

  def _masked(self, operand: Operand, loop: UOp) -> bool:
    """Whether some iterations of a loop read nothing, and vectors have no registers for that."""
    return not self.target.has_masks and any(loop in gate.ranges for u in operand.loads for gate in gates_of(u))

  def _run(self, operand: Operand) -> int:
    """Steps of the sum that are next to each other in an operand, one after the other."""
    run, steps = 1, {operand.step(r): size_of(r) for r in self.summed}
    while run in steps:
      run *= steps.pop(run)
    return run

  def _whole(self) -> float:
    return self.panel * blocks(self.lane_loop, self.lanes)

  def _sets(self, nbytes: int) -> float:
    """Which part of the sets of the first cache level lines are in that a panel reads from where they are."""
    itemsize = self.lanes_of.itemsize
    step = math.gcd(*[(self.lanes_of.step(r) or 0) * itemsize for r in self.summed], self.cost.way)
    return min(max(nbytes, CACHE_LINE) / step, 1.0)

  @of_loops
  def _taps(self) -> float:
    """Steps of the sum that read the rows of a tile from one cache line, more or less."""
    near = CACHE_LINE // self.rows_of.itemsize
    return math.prod(size_of(r) for r in self.summed if 0 < abs(self.rows_of.step(r) or 0) < near)

  @of_loops
  def _window_bytes(self) -> float:
    """Local memory for one pass over the row loop: a summed loop that slides over the rows adds little."""
    loops = {*self.summed, self.row_loop} & self.rows_of.loops
    steps = {r: self.rows_of.step(r) or 0 for r in loops}
    step = steps.get(self.row_loop, 0)
    slides = [r for r in self.summed if r in loops and steps[r] <= step <= steps[r] * (size_of(r) - 1)]
    span = 1.0
    for loop in loops.difference(slides):
      span *= size_of(loop)
    return span * 1.25 * self.rows_of.itemsize

  @of_loops
  def _along_lanes(self) -> bool:
    """Whether results along the lanes are adjacent."""
    return self.c.between <= 2 and self._stored(self.lane_loop)

  @of_loops
  def _along_rows(self) -> bool:
    return self._stored(self.row_loop)

  def _whole_lines(self) -> bool:
    """Whether the rows of a tile, along which a window slides, are whole cache lines of the results, and it is a
    square."""
    lines = self.rows * self.c.reduce.dtype.itemsize % CACHE_LINE == 0 and divides(self.row_loop, self.rows)
    square = self.lanes == self.width and self.c.between == 1
    return lines and square and self.slide is not None and bool(self._along_rows())

  def _stored(self, loop: UOp) -> bool:
    return stride(self.c.end.src[0].src[0].src[1], loop) == self.c.between
