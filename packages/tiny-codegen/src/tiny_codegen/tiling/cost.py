"""What a register tile costs: an estimate of the cycles of all that the kernel computes, packs, reads and writes.

It follows from the size of the tile and the choice of loops: what is packed, how much of it is read how often, and
where results go. The figures that it is made of are in `cost_model.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from typing import TypeVar

from tiny_codegen.cost_model import CACHE_LINE, LEAST_STEPS, ROOM, CostModel
from tiny_codegen.instructions.dot_product import MatrixProduct
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.interleave import Neighbours
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.memory import gates_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_codegen.lower.peel import lanes_left, rows_left, rows_of_last
from tiny_codegen.lower.skip_padding_taps import has_room, share_inside
from tiny_codegen.lower.transpose_in_registers import LEAST_ROWS
from tiny_codegen.lower.vectorize import WIDE
from tiny_codegen.target import FEW_THREADS, KEPT, CacheSizes, Target
from tiny_codegen.tiling.tiles import PANELS, ROW_BLOCKS, Lanes, Rows, Tiling, blocks, divides, farthest, row_by_row
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass

T = TypeVar("T", bound="TileCost")


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
class TileCost:
  """What a register tile of one size over one choice of loops costs. `known` and `taps` are what those over the same
  loops share."""

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

  def _stored(self, loop: UOp) -> bool:
    return stride(self.c.end.src[0].src[0].src[1], loop) == self.c.between

  # *** what it costs ***

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
      readings = [(rows_from, past if _streams(rows_from) else beside) for rows_from in Rows]
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
            panels, *self.written, images,
          )  # fmt: skip

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
    return self.rows <= self.row_size

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

  @cached_property
  def _work(self) -> tuple[float, float]:
    """(steps of the sum in all tiles, cycles of one if all it reads is there)."""
    lane_waste = self._computed_lanes() / self.lane_size
    row_waste = self._computed_rows() / self.row_size
    steps = self.c.outputs * self.c.length * self.inside * lane_waste * row_waste / (self.tile * self.width)
    return steps, self._step(self.vectors, self.rows)

  def _reading_lanes(self, lanes_from: Lanes, rows_stream: bool) -> float:
    """Cycles of a step of the sum with what it takes to read its lanes, where rows stream past a panel or do not."""
    each = self._work[1]
    if lanes_from is Lanes.DIRECT:
      if self.lanes_of.step(self.lane_loop) != 1:
        each += self.lanes * self.cost.gather
      else:
        each = self._where_it_is(each)
      plain = self.lanes_of.value.op is Ops.LOAD and self.target.has_masks
      each *= (self.cost.gated if plain else self.cost.computed) if self.lanes_of.computed else 1.0
    else:
      delivered = self._delivered(lanes_from, rows_stream)
      nbytes = self.row_bytes
      each = max(each, nbytes / delivered) + (nbytes / self.cost.second_idle_bytes if delivered < math.inf else 0.0)
      each *= self._outside(self.panel) * self._partial()
    return each

  def _computing(self, lanes_from: Lanes, rows_from: Rows, each: float) -> float:
    """Cycles of all steps of the sum, of which one takes `each` with its lanes."""
    each += self._streaming_rows(lanes_from) / self.cost.second_idle_bytes
    packed = {Rows.WINDOW: self._window_bytes, Rows.IMAGE: self._image_bytes}.get(rows_from)
    if packed is not None and packed() > self.near:
      streams = lanes_from is not Lanes.DIRECT and self._delivered(lanes_from, _streams(rows_from)) < math.inf
      panel = self.row_bytes if streams else 0
      each = max(each, (panel + CACHE_LINE / self._taps()) / self.cost.second_bytes)
    if rows_from is Rows.WINDOW:
      each *= self._from_second() if self._window_bytes() > self.near and not self._one_window() else 1.0
      each *= self._leaving(self._window_bytes())
    elif rows_from is Rows.IMAGE:
      each *= self._from_second() * self._leaving(self._image_bytes())
    elif rows_from is Rows.DIRECT:
      each *= self._from_memory()
    each += (self.cost.tile + self.cost.tile_vector * self.tile) / self.c.length
    return self._work[0] * each

  def _where_it_is(self, each: float) -> float:
    """Cycles of a step of the sum whose lanes are read from memory. Where steps are far apart, lines of the same sets
    push each other out; others stay in a cache, and the next ones are asked for meanwhile (see `lower/prefetch.py`)."""
    nbytes = self.row_bytes
    far = [step for r in self.summed if (step := abs(self.lanes_of.step(r) or 0)) >= self.cost.same_sets]
    spread, beyond = self.cost.scattered
    if any((self.lanes_of.step(r) or 0) * self.lanes_of.itemsize % CACHE_LINE for r in self.summed):
      each *= self.cost.crossing
    if not far:
      if self.panel > self.near * self._sets(nbytes):
        each = max(each, nbytes / self.cost.second_bytes) + nbytes / self.cost.second_idle_bytes
      return each * (spread if self.panel > self.near else 1.0)
    crowded = nbytes <= CACHE_LINE or any(step % (self.cost.same_sets // 2) == 0 for step in far)
    if crowded or self.c.length < self.cost.prefetched_steps:
      return each * (beyond if self.panel > self.near else spread)
    if 2 * self.panel > self.near:  # what lies far apart shares sets with all else, so that some of it is pushed out
      out = self.cost.far_lines if self.panel > self.near else self._waits()
      each = max(each, nbytes / self.cost.second_bytes) + nbytes / self.cost.second_idle_bytes * out
    return each * self._outside(2 * self.panel)

  def _step(self, vectors: int, rows: int) -> float:
    """Cycles of a step of the sum, if all it reads is there: a scalar has to be spread over a register, once for all
    the steps that are written out."""
    loop, steps = self.written
    # a window that slides along what is written out reads each element once
    share = self.slide if loop is self.summed[-1] else None
    scalars = rows if share is None else ((rows - 1) * share + steps) / steps
    by_lane = self._by_lane(vectors, rows)
    scalars += (self.c.phases_of(self.rows_of) - 1) * (1 if share is not None else scalars)
    loads = scalars / (self.width if by_lane else 1) + vectors * self.c.phases_of(self.lanes_of)
    spread = scalars * self.cost.word_products if self.c.instruction is not None and not by_lane else 0.0
    multiplying = (rows * vectors * self.c.phases + spread) / rate(self.c, self.target)
    products = max(multiplying, loads / self.cost.loads, self.cost.latency)
    return products + self.cost.loop / steps + self.cost.load_cycles * loads

  def _by_lane(self, vectors: int, rows: int) -> bool:
    """Whether scalars are lanes of vectors: see `multiply_by_lane`. Neighbouring steps need a vector for each row."""
    product = self.c.instruction
    if (self.c.reduce.dtype if product is None else product.dtype_a) not in self.target.multiplies_by_lane:
      return False
    adjacent = self.rows_of.step(self.row_loop) == 1
    registers = rows * vectors * self.c.phases + (-(-rows // self.width) if adjacent else rows)
    steps = self.rows_of.step(self.summed[-1]) == 1 and self.written[1] % self.width == 0
    return (adjacent or steps) and registers < self.target.vector_registers

  def _computed_lanes(self) -> float:
    """Of all panels: the last one may be narrower (see `peel`), and its lanes dearer."""
    size = self.lane_size
    whole, last = divmod(size, self.lanes)
    left = lanes_left(size, self.lanes)
    rows = rows_of_last(self.rows, self.lanes // left) if last else self.rows
    narrow = self._step(-(-left // self.width), rows) * self.rows / rows / self._step(self.vectors, self.rows)
    return self.lanes * (whole + (narrow if last else 0.0))

  def _computed_rows(self) -> float:
    """Of all tiles, as many as take as long: the last one may be smaller, and its rows dearer."""
    size = self.row_size
    left = self._left()
    if not left:
      return blocks(self.row_loop, self.rows) * self.rows * (self.cost.clamped_rows if size % self.rows else 1.0)
    return size - left + self.rows * self._step(self.vectors, left) / self._step(self.vectors, self.rows)

  def _partial(self) -> float:
    """What packed lanes cost of which some are beyond the end, if they are so few that the block is no narrower."""
    beyond = -self.lane_size % self.lanes
    return 1.0 + self.cost.partial_panel / blocks(self.lane_loop, self.lanes) if 0 < beyond < self.lanes // 2 else 1.0

  def _streaming_rows(self, lanes_from: Lanes) -> float:
    """Bytes of rows for a step that come from beyond the first level: none if a tile of them stays for other panels."""
    nbytes = self.rows * self.rows_of.itemsize / self._overlap()
    stays = nbytes * self.c.length <= self.near
    return 0.0 if stays and lanes_from in (Lanes.SOME, Lanes.WHOLE) else nbytes

  def _delivered(self, lanes_from: Lanes, rows_stream: bool) -> float:
    """Bytes of panels that a cycle brings: from the first cache level if the rows stream past one that stays there."""
    one = lanes_from is Lanes.PANEL or (lanes_from is Lanes.WHOLE and rows_stream)
    if lanes_from is Lanes.WHOLE and self._whole() > self.caches.second * self.cost.panels_share:
      if one and self._whole() > self.caches.second:
        return self.cost.beyond_second_bytes
      return self.cost.filled_second_bytes if one else self.cost.last_bytes
    return math.inf if one and self.panel <= self.near else self.cost.second_bytes

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

  def _from_second(self) -> float:
    """What rows cost that come from the second cache level: less if each is read for many places of a window."""
    return 1.0 + (self.cost.from_second - 1.0) / self._overlap()

  def _leaving(self, nbytes: float) -> float:
    """What rows cost that do not stay in the second cache level, less if each is read for many places of a window; of
    those that just do not fit, most still do."""
    return 1.0 + (self._outside(nbytes) - 1.0) / self._overlap()

  def _outside(self, nbytes: float) -> float:
    """What it costs to read so many bytes again and again, of which the second cache level has only a part."""
    outside = min(max(nbytes / self.caches.second - self.cost.panels_share, 0.0) / (1.0 - self.cost.panels_share), 1.0)
    return 1.0 + outside * (self.cost.beyond[0] - 1.0)

  def _asked(self, near: float) -> float:
    """How much of the time that memory takes for packing a window is left where the steps of the sum ask for the next
    one (see `lower/prefetch.py`), with so much local memory in all."""
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

  def _from_memory(self) -> float:
    """What rows cost that are read from there."""
    if self.rows_of.computed and not self.rows_of.gates:
      return self.cost.computed
    if any(self.row_loop not in gate.ranges for gate in self.gates_left):
      return self.cost.gated
    return self._far_apart() * (self.cost.gated_edges if self.gates_left else 1.0)

  def _far_apart(self) -> float:
    """What it costs that each step of the sum reads from other cache lines, a few elements of each: nothing as long as
    the lines stay in the cache for the next rows."""
    steps = {r: self.rows_of.step(r) or 0 for r in self.summed}
    row, (spread, beyond) = abs(self.rows_of.step(self.row_loop) or 1 << 62), self.cost.scattered
    span = max(s * size_of(r) for r, s in steps.items()) * self.rows_of.itemsize
    if row > 4 or any(s < 4 * self.rows * self.vectors for s in steps.values()):
      # a window with a stride uses a part of each line, if for all its taps
      strided = row > 1 and self.slide is not None and span > self.caches.second * self.cost.two_images_share
      return 1.0 + (self.cost.beyond[1] - 1.0) / size_of(self.summed[-1]) if strided else 1.0
    small = self.caches.second * self.cost.small_share
    return 1.0 if span <= small / 2 else spread if span <= 4 * small else beyond

  def _waits(self) -> float:
    """Which part of the time that a line takes from a farther cache a core loses."""
    return min((self.cost.scattered[0] - 1.0) / self.cost.waiting, 1.0)

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
      each = self.cost.store_transposed
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
    # each row is a piece of its own
    starts = nbytes / self.rows_of.itemsize / self.c.length if together > self.caches.second else 0.0
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


def _streams(rows_from: Rows) -> bool:
  """Whether rows stream past a panel, which stays in the first cache level, also where all panels are there."""
  return rows_from is Rows.WINDOW or rows_from is Rows.BLOCK


def rate(c: SumOfProducts, target: Target) -> float:
  """Vectors that are multiplied and added in a cycle."""
  if c.instruction is not None:
    return target.cost.multiply_adds * dict(target.dot_products)[c.instruction.plain]
  return target.cost.multiply_adds * (1.0 if c.reduce.dtype.kind == "float" else target.cost.integers)


# *** tiles of matrix instructions ***
# What a register tile costs that matrix instructions compute: where that differs from `cost.py`.
#
# A step of the sum, a word, is a part of an instruction here; operands are read in tiles, each row of which should be a
# cache line.


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
