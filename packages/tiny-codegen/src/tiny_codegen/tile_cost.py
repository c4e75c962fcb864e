"""What a register tile costs: an estimate of the cycles of all that the kernel computes, packs, reads and writes.

The numbers that it is made of are in `tile_figures.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import wraps

from tiny_codegen import tile_figures as figures
from tiny_codegen.contraction import Contraction, Operand
from tiny_codegen.loops import extent, stride
from tiny_codegen.render.base import KEPT, Capabilities
from tiny_codegen.tiles import PANELS, ROW_BLOCKS, Lanes, Rows, Tiling, blocks, divides, row_by_row
from tiny_codegen.turn import LEAST
from tiny_uop import Ops, UOp
from tiny_uop.records import dataclass


def of_loops(compute: Callable[[Plan], float]) -> Callable[[Plan], float]:
  """A figure of a Plan that is the same for all sizes: computed once for a choice of loops."""
  name = compute.__name__

  @wraps(compute)
  def found(plan: Plan) -> float:
    known = plan.known
    if name not in known:
      known[name] = compute(plan)
    return known[name]

  return found


@dataclass(frozen=True)
class Plan:
  """One size of register tile over one choice of loops. `known` is what plans over the same loops share."""

  c: Contraction
  target: Capabilities
  lanes_of: Operand
  rows_of: Operand
  lane_loop: UOp
  row_loop: UOp
  width: int
  vectors: int
  rows: int
  known: dict[str, float]

  def tilings(self, most: float = math.inf) -> Iterator[Tiling]:
    """Its tilings, one for each way to read the operands that fits. Of those with more cycles than `most` some may be
    left out.
    """
    lanes = self.width * self.vectors
    if not self._has_registers() or lanes > self.target.max_vector_lanes:
      return
    if not self._takes_rows() or not self._takes_lanes():
      return
    for lanes_from, rows_from in itertools.product(Lanes, Rows):
      if not self._possible(lanes_from, rows_from) or (computing := self._computing(lanes_from, rows_from)) > most:
        continue
      for panels, images in itertools.product(self._panels(lanes_from), self._images(rows_from)):
        packing = self._packing(lanes_from, rows_from, panels, images)
        if packing is not None:
          cycles = computing + packing + self._again(rows_from, panels)
          # pieces of a row follow each other only after those of the other rows of a block
          cycles += self._storing(PANELS - 1 if rows_from is Rows.BLOCK else panels)
          yield Tiling(
            cycles, self.lanes_of, self.rows_of, self.lane_loop, self.row_loop, lanes, self.rows, lanes_from, rows_from,
            panels, self.steps, images,
          )  # fmt: skip

  def _has_registers(self) -> bool:
    return self.rows * self.vectors + self.vectors + 1 <= self.target.vector_registers

  def _takes_rows(self) -> bool:
    return self.rows <= int(self.row_loop.src[0].vmax)

  def _takes_lanes(self) -> bool:
    return self.lanes < 2 * int(self.lane_loop.src[0].vmax)

  def _panels(self, lanes_from: Lanes) -> list[int]:
    """How many panels may be between two steps to other rows."""
    every = blocks(self.lane_loop, self.lanes)
    if lanes_from is not Lanes.SOME:
      return [every if lanes_from is Lanes.WHOLE else 1]
    if not divides(self.lane_loop, self.lanes):
      return []  # `peel` leaves gates in such loops
    shared = self.c.outputs / (int(self.lane_loop.src[0].vmax) * int(self.row_loop.src[0].vmax))
    return [
      n
      for n in range(2, every // 2 + 1)
      if every % n == 0
      and n * self.panel <= self.target.caches.second * figures.WHOLE
      and every // n * shared >= figures.SHARED_PASSES
    ]

  def _images(self, rows_from: Rows) -> list[int]:
    """How many images may be packed together: panels are packed once for all of them."""
    count = int(self.outermost.src[0].vmax) if rows_from is Rows.IMAGE else 1
    room = self.target.caches.second * figures.TOGETHER - self.panel
    return [
      n
      for n in (1, 2, 4)
      if n == 1 or (count % n == 0 and count // n >= figures.SHARED_IMAGES and n * self._image_bytes() <= room)
    ]

  @property
  def lanes(self) -> int:
    return self.width * self.vectors

  @property
  def panel(self) -> float:
    """Bytes of one packed panel."""
    return self.lanes * self.c.length * self.lanes_of.value.dtype.itemsize

  def _computing(self, lanes_from: Lanes, rows_from: Rows) -> float:
    lane_waste = self._computed_lanes() / int(self.lane_loop.src[0].vmax)
    size = int(self.row_loop.src[0].vmax)
    row_waste = blocks(self.row_loop, self.rows) * self.rows / size * (figures.OVERHANG if size % self.rows else 1.0)
    tile = self.rows * self.vectors
    steps = self.c.outputs * self.c.length * lane_waste * row_waste / (tile * self.width)
    each = self._step(self.vectors)
    near = self.target.caches.first * figures.FIRST_LEVEL
    if lanes_from is Lanes.DIRECT:
      if self.lanes_of.step(self.lane_loop) != 1:
        each += self.lanes * figures.GATHER
      elif any((self.lanes_of.step(r) or 0) >= figures.SAME_SETS for r in self.summed):
        each *= figures.FAR if self.panel > near else figures.SPREAD
      elif self.panel > near:
        each *= figures.SPREAD
      each *= (figures.COMPUTED if self.lanes_of.computed else 1.0) * (figures.PADDED if lane_waste > 1 else 1.0)
    else:
      delivered = self._delivered(lanes_from, rows_from)
      nbytes = self.lanes * self.lanes_of.value.dtype.itemsize
      each = max(each, nbytes / delivered) + (nbytes / figures.FILLING if delivered < math.inf else 0.0)
      each *= self._outside(self.panel)
      each *= 1.0 + (figures.PARTIAL / blocks(self.lane_loop, self.lanes) if lane_waste > 1 else 0.0)
    each += self._streaming_rows(lanes_from) / figures.FILLING
    packed = {Rows.WINDOW: self._window_bytes, Rows.IMAGE: self._image_bytes}.get(rows_from)
    if packed is not None and packed() > near:
      streams = lanes_from is not Lanes.DIRECT and self._delivered(lanes_from, rows_from) < math.inf
      panel = self.lanes * self.lanes_of.value.dtype.itemsize if streams else 0
      each = max(each, (panel + figures.CACHE_LINE / self._taps()) / figures.SECOND_LEVEL)
    if rows_from is Rows.WINDOW:
      each *= self._from_second() if self._window_bytes() > near else 1.0
      each *= self._leaving(self._window_bytes())
    elif rows_from is Rows.IMAGE:
      each *= self._from_second() * self._leaving(self._image_bytes())
    elif rows_from is Rows.DIRECT:
      each *= figures.COMPUTED if self.rows_of.computed else self._far_apart()
    return steps * each

  def _step(self, vectors: int) -> float:
    """Cycles of a step of the sum, if all it reads is there: a multiply-add is four cycles long, and a scalar has to be
    spread over a register, once for all the steps that are written out."""
    steps = self.steps
    scalars = self.rows if self.slide is None else ((self.rows - 1) * self.slide + steps) / steps
    loads = scalars + vectors
    wide = max(self.target.vector_bits * self.target.multiply_adds / figures.WIDE - 1.0, 0.0)
    products = max(self.rows * vectors / rate(self.c, self.target), loads / self.target.loads, 4.0)
    return products + figures.LOOP / steps + figures.LOAD * wide * loads

  @property
  def steps(self) -> int:
    """Steps of the last loop of the sum that are written out: all that a window slides along, if their vectors fit into
    registers, as many as divide it of others."""
    size, tile = extent(self.summed[-1]), self.rows * self.vectors
    if size is None or self.c.reduce.src[0].op not in (Ops.MUL, Ops.MMA):
      return 1
    if self.slide is not None:
      fits = tile + size * self.vectors + 2 <= self.target.vector_registers
      return size if size <= figures.TAPS and fits else 1
    return next((n for n in (4, 3, 2) if size % n == 0 and n * tile <= figures.WRITTEN_OUT), 1)

  @property
  def slide(self) -> int | None:
    """By how many steps of the last loop of the sum a row is ahead of the one before, where they read the same; None
    where they do not."""
    row, step = (abs(self.rows_of.step(r) or 0) for r in (self.row_loop, self.summed[-1]))
    slides = 0 < step <= row < step * int(self.summed[-1].src[0].vmax) and row % step == 0
    return row // step if slides else None

  def _computed_lanes(self) -> float:
    """Of all panels: the last one may be narrower (see `peel`), and its lanes dearer."""
    whole, last = divmod(int(self.lane_loop.src[0].vmax), self.lanes)
    vectors = self.vectors
    while last and vectors % 2 == 0 and vectors // 2 * self.width >= last:
      vectors //= 2
    return self.lanes * (whole + (self._step(vectors) / self._step(self.vectors) if last else 0.0))

  def _streaming_rows(self, lanes_from: Lanes) -> float:
    """Bytes of rows for a step that come from beyond the first level: none if a tile of them stays for other panels."""
    nbytes = self.rows * self.rows_of.value.dtype.itemsize / self._overlap()
    stays = nbytes * self.c.length <= self.target.caches.first * figures.FIRST_LEVEL
    return 0.0 if stays and lanes_from in (Lanes.SOME, Lanes.WHOLE) else nbytes

  def _delivered(self, lanes_from: Lanes, rows_from: Rows) -> float:
    """Bytes of panels that a cycle brings: from the first cache level if the rows stream past one that stays there."""
    one = lanes_from is Lanes.PANEL or (lanes_from is Lanes.WHOLE and rows_from in (Rows.WINDOW, Rows.BLOCK))
    if lanes_from is Lanes.WHOLE and self._whole() > self.target.caches.second * figures.WHOLE:
      if one and self._whole() > self.target.caches.second:
        return figures.SECOND_LEVEL / 3
      return figures.SECOND_LEVEL / 2 if one else figures.LAST_LEVEL
    return math.inf if one and self.panel <= self.target.caches.first * figures.FIRST_LEVEL else figures.SECOND_LEVEL

  @property
  def outermost(self) -> UOp:
    """The loop that moves the rows' operand farthest."""
    return max(self.c.own_loops(self.rows_of), key=lambda r: abs(self.rows_of.step(r) or 1 << 62))

  @property
  def summed(self) -> tuple[UOp, ...]:
    return self.c.reduce.src[1:]

  def _packing(self, lanes_from: Lanes, rows_from: Rows, panels: int, images: int = 1) -> float | None:
    """Cycles for filling near memory; None where it does not fit, or is for nothing."""
    room = self.target.shared_memory_bytes
    cycles, near = 0.0, 0.0
    if lanes_from is not Lanes.DIRECT:
      if any(extent(r) is None for r in self.summed):
        return None
      moving = self._moved(self.lanes_of) * self._moving_lanes()
      cycles += moving
      if lanes_from is Lanes.WHOLE and self._whole() > self.target.caches.second * figures.WHOLE:
        cycles += (
          2 * self._moved(self.lanes_of) * self.lanes_of.value.dtype.itemsize / figures.CACHE_LINE * figures.LINE
        )
      together = PANELS if rows_from is Rows.BLOCK else panels
      cycles += self._reading(self.lanes_of, self.lane_loop, self.lanes * together)
      near += self.panel * together
    if rows_from in (Rows.WINDOW, Rows.IMAGE):
      overlap = self._overlap()
      filling = self._moved(self.rows_of) * self._moving_window() * self._computed(self.rows_of) * self._short()
      filling *= figures.MASKED if self._masked(self.rows_of, self.row_loop) else 1.0
      if rows_from is Rows.WINDOW:
        near += self._window_bytes()
        size = int(self.row_loop.src[0].vmax)
        # the loops of a window that the row loop does not slide along read their part again for every place
        reading = self._reading(self.rows_of, self.row_loop, size) * overlap**0.5
        cycles += (filling / overlap**0.5 + reading) * self._windows_packed(lanes_from)
      else:
        near += self._image_bytes() * images
        # panels that are packed again come from a nearer cache
        cycles += (cycles + 3 * moving) / 4 * (int(self.outermost.src[0].vmax) / images - 1) + filling / overlap
    elif rows_from is Rows.TILE:
      near += self.rows * self.c.length * self.rows_of.value.dtype.itemsize
      filling = self._moved(self.rows_of) * self._moving_tile()
      filling *= self._computed(self.rows_of)
      filling *= figures.MASKED if self._masked(self.rows_of, self.row_loop) else 1.0
      filling *= figures.MASKED if not divides(self.row_loop, self.rows) else 1.0
      filling += self._reading(self.rows_of, self.row_loop, self.rows)
      panels_passed = 1.0 if lanes_from is Lanes.WHOLE else blocks(self.lane_loop, self.lanes) / panels
      cycles += filling * self._others() * panels_passed
    elif rows_from is Rows.BLOCK:  # along the rows or along the sum, whichever is adjacent
      near += self.rows * ROW_BLOCKS * self.c.length * self.rows_of.value.dtype.itemsize
      filling = self._moved(self.rows_of) * figures.COPY_BLOCK + self._reading(
        self.rows_of, self.row_loop, self.rows * ROW_BLOCKS
      )
      cycles += filling * blocks(self.lane_loop, self.lanes) / PANELS * self._others()
    return cycles if near <= room else None

  @of_loops
  def _short(self) -> float:
    """How many times as much as its elements a row of a window costs to be packed: vectors have more lanes than are
    needed, and each row is an iteration of its own."""
    last, row = int(self.summed[-1].src[0].vmax), int(self.row_loop.src[0].vmax)
    size = row if self.slide is None else (row - 1) * self.slide + last
    return (-(-size // self.width) + figures.ROW) * self.width / size

  def _windows_packed(self, lanes_from: Lanes) -> float:
    """How often the window of each row is."""
    # what depends on nothing else is packed once, before everything
    once = lanes_from is Lanes.WHOLE or self.rows_of.loops <= {self.row_loop, *self.summed}
    return (1 if once else blocks(self.lane_loop, self.lanes)) * self._others()

  @of_loops
  def _others(self) -> float:
    """Iterations of the loops around that move only the lanes' operand, but for the one with the lanes."""
    return math.prod(int(r.src[0].vmax) for r in self.c.own_loops(self.lanes_of) if r is not self.lane_loop)

  def _from_second(self) -> float:
    """What rows cost that come from the second cache level: less if each is read for many places of a window."""
    return 1.0 + (figures.SECOND - 1.0) / self._overlap()

  def _leaving(self, nbytes: float) -> float:
    """What rows cost that do not stay in the second cache level, less if each is read for many places of a window; of
    those that just do not fit, most still do."""
    return 1.0 + (self._outside(nbytes) - 1.0) / self._overlap()

  def _outside(self, nbytes: float) -> float:
    """What it costs to read so many bytes again and again, of which the second cache level has only a part."""
    outside = min(max(nbytes / self.target.caches.second - figures.WHOLE, 0.0) / (1.0 - figures.WHOLE), 1.0)
    return 1.0 + outside * (figures.FAR - 1.0)

  @of_loops
  def _overlap(self) -> float:
    """How often the windows of the rows' operand read an element."""
    return max(self.rows_of.elements / max(self.rows_of.nbytes / self.rows_of.main.dtype.itemsize, 1.0), 1.0)

  @of_loops
  def _image_bytes(self) -> float:
    images = int(self.outermost.src[0].vmax)
    return self.rows_of.elements / self._overlap() / images * self.rows_of.value.dtype.itemsize

  def _moved(self, operand: Operand) -> float:
    """Elements that are packed; words count as often as what they are put together from."""
    return operand.elements * (len(operand.loads) if self.c.instruction else 1)

  def _computed(self, operand: Operand) -> float:
    return figures.COMPUTED if operand.computed else 1.0

  def _moving(self, operand: Operand, loop: UOp) -> float:
    """Cycles for an element that is packed next to its neighbour along a loop."""
    if operand.step(loop) == 1:
      return figures.COPY
    if self._run(operand) >= figures.TURN_LEAST:
      return figures.TURN
    return figures.GATHER * (figures.BRANCHES if self._masked(operand, loop) else 1.0)

  def _masked(self, operand: Operand, loop: UOp) -> bool:
    """Whether some iterations of a loop read nothing, and vectors have no registers for that."""
    gates = [u.src[0].src[2] for u in operand.loads if len(u.src[0].src) > 2]
    return self.target.vector_bits < figures.MASK_REGISTERS and any(loop in gate.ranges for gate in gates)

  @of_loops
  def _moving_lanes(self) -> float:
    return self._moving(self.lanes_of, self.lane_loop)

  @of_loops
  def _moving_window(self) -> float:
    # a tap of the kernel that moves by one makes what a strided window reads adjacent
    adjacent = any(self.rows_of.step(r) == 1 for r in (self.row_loop, *self.summed))
    return figures.COPY if adjacent else figures.GATHER

  @of_loops
  def _moving_tile(self) -> float:
    as_it_is = row_by_row(self.c, self.rows_of, self.row_loop)
    return figures.COPY if as_it_is else self._moving_rows()

  @of_loops
  def _moving_rows(self) -> float:
    return self._moving(self.rows_of, self.row_loop)

  def _run(self, operand: Operand) -> int:
    """Steps of the sum that are next to each other in an operand, one after the other."""
    run, steps = 1, {operand.step(r): int(r.src[0].vmax) for r in self.summed}
    while run in steps:
      run *= steps.pop(run)
    return run

  def _whole(self) -> float:
    return self.panel * blocks(self.lane_loop, self.lanes)

  def _possible(self, lanes_from: Lanes, rows_from: Rows) -> bool:
    if self.lanes_of.slot == self.rows_of.slot and (lanes_from, rows_from) != (Lanes.DIRECT, Rows.DIRECT):
      return False  # a STAGE names its operand by the buffer, which is both here
    adjacent = self.rows_of.step(self.row_loop) == 1 or row_by_row(self.c, self.rows_of, self.row_loop)
    if rows_from is Rows.BLOCK:
      fits = divides(self.lane_loop, self.lanes * PANELS) and divides(self.row_loop, self.rows * ROW_BLOCKS)
      return fits and lanes_from is Lanes.PANEL and adjacent
    if rows_from is Rows.TILE:
      return lanes_from is Lanes.WHOLE or (lanes_from is not Lanes.DIRECT and adjacent and self.rows_of.computed)
    if (
      rows_from is Rows.DIRECT
      and self.rows > figures.MANY
      and (self.rows_of.step(self.row_loop) or 0) % figures.SAME_SETS == 0
    ):
      return False  # more lines than a set has places
    if rows_from is Rows.IMAGE:
      return lanes_from is Lanes.PANEL and len(self.c.own_loops(self.rows_of)) > 1
    if lanes_from is Lanes.SOME:
      return rows_from is Rows.DIRECT
    return True

  def _far_apart(self) -> float:
    """What it costs that each step of the sum reads from other cache lines, a few elements of each: nothing as long as
    the lines stay in the cache for the next rows."""
    steps = {r: self.rows_of.step(r) or 0 for r in self.summed}
    if abs(self.rows_of.step(self.row_loop) or 1 << 62) > 4 or any(s < 4 * self.rows for s in steps.values()):
      return 1.0
    span = max(s * int(r.src[0].vmax) for r, s in steps.items()) * self.rows_of.value.dtype.itemsize
    small = self.target.caches.second * figures.SMALL
    return 1.0 if span <= small / 2 else figures.SPREAD if span <= 4 * small else figures.FAR

  @of_loops
  def _taps(self) -> float:
    """Steps of the sum that read the rows of a tile from one cache line, more or less."""
    near = figures.CACHE_LINE // self.rows_of.value.dtype.itemsize
    return math.prod(int(r.src[0].vmax) for r in self.summed if 0 < abs(self.rows_of.step(r) or 0) < near)

  @of_loops
  def _window_bytes(self) -> float:
    """Near memory for one pass over the row loop: a summed loop that slides over the rows adds little."""
    loops = {*self.summed, self.row_loop} & self.rows_of.loops
    steps = {r: self.rows_of.step(r) or 0 for r in loops}
    step = steps.get(self.row_loop, 0)
    slides = [r for r in self.summed if r in loops and steps[r] <= step <= steps[r] * (int(r.src[0].vmax) - 1)]
    span = 1.0
    for loop in loops.difference(slides):
      span *= int(loop.src[0].vmax)
    return span * 1.25 * self.rows_of.value.dtype.itemsize

  @of_loops
  def _along_lanes(self) -> bool:
    """Whether results along the lanes are adjacent."""
    return self._stored(self.lane_loop)

  @of_loops
  def _along_rows(self) -> bool:
    return self._stored(self.row_loop)

  def _stored(self, loop: UOp) -> bool:
    return stride(self.c.end.src[0].src[0].src[1], loop) == 1

  def _storing(self, panels: int) -> float:
    """Cycles for writing the results."""
    outputs = self.c.outputs
    itemsize, row_size = self.c.reduce.dtype.itemsize, int(self.row_loop.src[0].vmax)
    if self._along_lanes():
      # whole lines of what goes past the caches are not read, so that it does not matter where they are
      touched = outputs * itemsize + self.lanes_of.nbytes + self.rows_of.nbytes
      streams = touched > KEPT and self.lanes * itemsize % figures.CACHE_LINE == 0
      piece = int(self.c.outputs) if streams else self.lanes * panels
      return outputs / self.width + self._pieces(outputs, itemsize, piece)
    if self._along_rows() and self.rows >= LEAST:
      # the tiles of a row follow each other soon enough, and the next row, too
      return outputs * figures.TURNED + self._pieces(outputs, itemsize, max(row_size, figures.NEIGHBOURS))
    return outputs * figures.SCATTER + self._pieces(outputs, itemsize, self.rows)

  def _again(self, rows_from: Rows, panels: int) -> float:
    """Cycles for rows that are read from memory again for other panels."""
    if rows_from is not Rows.DIRECT or self.rows_of.nbytes <= self.target.caches.second * figures.SMALL:
      return 0.0
    nbytes, times = self.rows_of.nbytes, blocks(self.lane_loop, self.lanes) / panels
    shared = self.lanes_of.loops & self.rows_of.loops - set(self.summed)
    together = nbytes / math.prod(int(r.src[0].vmax) for r in shared)
    # each row is a piece of its own
    starts = nbytes / self.rows_of.value.dtype.itemsize / self.c.length if together > self.target.caches.second else 0.0
    return times * (figures.AGAIN * nbytes / figures.CACHE_LINE + starts * self._others() * figures.PIECE)

  def _reading(self, operand: Operand, loop: UOp, piece: int) -> float:
    """Cycles of memory for packing so many elements along a loop at a time, which are far apart if each step of the sum
    moves by more than what is fetched ahead; or for turning it, where it is the sum whose steps are adjacent."""
    step = operand.step(loop) or 0
    if step > figures.NEAR and any(operand.step(r) == 1 for r in self.summed):
      each = figures.ASIDE if piece > figures.SIDES else figures.LINE
      return operand.nbytes / figures.CACHE_LINE * each if operand.nbytes > self.target.caches.second else 0.0
    if not 1 <= step <= figures.NEAR or not any((operand.step(r) or 0) >= figures.SAME_SETS for r in self.summed):
      return 0.0
    itemsize = operand.value.dtype.itemsize
    return self._pieces(operand.nbytes / itemsize, itemsize, piece * step)

  def _pieces(self, elements: float, itemsize: int, piece: int) -> float:
    """Cycles of memory for elements of which so many at a time are next to each other."""
    nbytes = elements * itemsize
    return (
      elements / piece * figures.PIECE + nbytes / figures.CACHE_LINE * figures.LINE
      if nbytes > self.target.caches.second
      else 0.0
    )


def rate(c: Contraction, target: Capabilities) -> float:
  """Vectors that are multiplied and added in a cycle."""
  if c.instruction is not None:
    return target.multiply_adds * dict(target.dot_products)[c.instruction.plain]
  return target.multiply_adds * (1.0 if c.reduce.dtype.kind == "float" else figures.INTEGERS)
