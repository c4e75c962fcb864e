"""What the steps of the sum of a register tile cost: multiply-adds, and operands that come from caches."""

import math
from functools import cached_property

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.loops import size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.lower.peel import lanes_left, rows_of_last
from tiny_codegen.target import Target
from tiny_codegen.tiling.tile_facts import TileFacts
from tiny_codegen.tiling.tiles import Lanes, Rows, blocks
from tiny_uop import Ops


class StepCost(TileFacts):
  """Cycles of all steps of the sum in all tiles."""

  @cached_property
  def _work(self) -> tuple[float, float]:
    """(steps of the sum in all tiles, cycles of one if all it reads is there)."""
    lane_waste = self._computed_lanes() / self.lane_size
    row_waste = self._computed_rows() / self.row_size
    steps = self.c.outputs * self.c.length * self.inside * lane_waste * row_waste / (self.tile * self.width)
    return steps, self._whole_step

  @cached_property
  def _whole_step(self) -> float:
    """Cycles of a step of the sum of a whole tile, if all it reads is there."""
    return self._step(self.vectors, self.rows)

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
      panels_stream = lanes_from is not Lanes.DIRECT and self._delivered(lanes_from, streams(rows_from)) < math.inf
      panel = self.row_bytes if panels_stream else 0
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
    push each other out; others stay in a cache, and the next ones are asked for meanwhile (see `lower/prefetch/`)."""
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
    if not last:
      return self.lanes * whole
    left = lanes_left(size, self.lanes)
    rows = rows_of_last(self.rows, self.lanes // left)
    narrow = self._step(-(-left // self.width), rows) * self.rows / rows / self._whole_step
    return self.lanes * (whole + narrow)

  def _computed_rows(self) -> float:
    """Of all tiles, as many as take as long: the last one may be smaller, and its rows dearer."""
    size = self.row_size
    left = self._left()
    if not left:
      return blocks(self.row_loop, self.rows) * self.rows * (self.cost.clamped_rows if size % self.rows else 1.0)
    return size - left + self.rows * self._step(self.vectors, left) / self._whole_step

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


def streams(rows_from: Rows) -> bool:
  """Whether rows stream past a panel, which stays in the first cache level, also where all panels are there."""
  return rows_from is Rows.WINDOW or rows_from is Rows.BLOCK


def rate(c: SumOfProducts, target: Target) -> float:
  """Vectors that are multiplied and added in a cycle."""
  if c.instruction is not None:
    return target.cost.multiply_adds * dict(target.dot_products)[c.instruction.plain]
  return target.cost.multiply_adds * (1.0 if c.reduce.dtype.kind == "float" else target.cost.integers)
