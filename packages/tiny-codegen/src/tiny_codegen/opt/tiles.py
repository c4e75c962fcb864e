"""How a tiling of a sum of products becomes optimisations of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tiny_codegen.errors import KernelError
from tiny_codegen.instructions.dot_product import SquareProduct
from tiny_codegen.kernel.loops import kind, loops_of, next_loop_id
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.matrix.processor_tiles import has_words, in_tiles
from tiny_codegen.opt.apply import OptList
from tiny_codegen.opt.dot_products import best_ways
from tiny_codegen.staging.stage import is_roomy, lower_stage
from tiny_codegen.tiling.choose import dot_cycles
from tiny_codegen.tiling.matrix_cost import depth_of
from tiny_codegen.tiling.tiles import PANELS, ROW_BLOCKS, Lanes, Rows, Sharing, Tiling, row_by_row, sharings
from tiny_uop import AxisType, Opt, OptOps, simplify


@dataclass
class TilingChooser(OptList):
  """OptList for a sum of products."""

  tiling: Tiling | None = None
  first: Sequence[Opt] = ()
  """What was applied before, and made the kernel's sum `tiled`."""
  tiled: SumOfProducts | None = None

  def contract(self) -> bool:
    """Tile a sum of products as `choose.py` finds best; False where the kernel is none, or lanes along the sum are
    better."""
    found = SumOfProducts.of(self.root)
    if found is None:
      return False
    most = dot_cycles(found, self.target)
    ways = [way for way in best_ways(self.root, found, self.target) if way[2].cycles <= most]
    return any(self.take_tiling(*way) for way in ways)

  def take_tiling(self, first: Sequence[Opt], found: SumOfProducts, tiling: Tiling) -> bool:
    """Tile the sum of products that the kernel is after some choices in a given way; False where that does not fit."""
    taken = self.attempt(lambda: self.take(*first) and self._tile(found, tiling) and self.fits())
    if taken:
      self.first, self.tiled, self.tiling = first, found, tiling
    return taken

  def fits(self) -> bool:
    """Whether what is to be packed fits into local memory, of which the tiling has only an estimate, and is there in
    tiles, where matrix instructions want it so."""
    if is_roomy(self.root, self.target) and not has_words(self.root):
      return True
    try:
      staged = lower_stage(simplify(self.root), self.target)  # as the passes will have it: they find it made
    except KernelError:
      return False
    return in_tiles(staged)

  def _tile(self, found: SumOfProducts, tiling: Tiling) -> bool:
    lane_loop, row_loop = tiling.lane_loop.arg[0], tiling.row_loop.arg[0]
    vectors = self.split(OptOps.VECTOR, lane_loop, tiling.lanes)
    rows = None if vectors is None else self.split(OptOps.UPCAST, row_loop, tiling.rows)
    if vectors is None or rows is None:
      return False
    panels = [r.arg[0] for r in found.end.src[1:] if r in tiling.lanes_of.loops]
    shared = [r.arg[0] for r in found.end.src[1:] if r in tiling.lanes_of.loops & tiling.rows_of.loops]
    others = [r.arg[0] for r in found.end.src[1:] if r.arg[0] not in (*panels, row_loop)]
    own = [i for i in panels if i not in shared]
    outside = [r.arg[0] for r in tiling.image_loops(found)] if tiling.rows_from is Rows.IMAGE else []
    images: tuple[int, ...] = ()
    if tiling.lanes_from is Lanes.WHOLE and tiling.rows_from in (Rows.DIRECT, Rows.TILE):
      self._reorder([*shared, *[i for i in own if i != lane_loop], *others, row_loop, lane_loop])
    elif tiling.lanes_from is Lanes.WHOLE:
      self._reorder([*shared, *[i for i in own if i != lane_loop], *others, lane_loop, row_loop])
    elif outside:
      if tiling.images > 1:
        image = self.split(OptOps.SPLIT, tiling.outermost(found).arg[0], tiling.images)
        if image is None:
          return False
        images, outside = (image,), [image, *outside]
      first = [i for i in others if i not in outside]
      self._reorder([*shared, *first, *own, *[i for i in outside if i != row_loop], row_loop])
    else:
      self._reorder([*panels, *others, row_loop])
    summed = tuple([r.arg[0] for r in found.reduce.src[1:]])
    if tiling.written is not None and tiling.steps > 1:  # before anything is packed, so that this has a place for them
      written = self.split(OptOps.UNROLL, loop := tiling.written.arg[0], tiling.steps)
      if written is None:
        return False
      at = summed.index(loop) + 1
      summed = (*summed[:at], written, *summed[at:])
    if tiling.lanes_from is Lanes.SOME and not self._several(tiling, lane_loop, [*panels, *others, row_loop], summed):
      return False
    depth = depth_of(found, tiling.rows_from is Rows.DIRECT, tiling.rows_of)
    if isinstance(found.instruction, SquareProduct):
      tile, by_row = (*summed, rows), True
    elif depth is not None:
      tile, by_row = (rows, *[i for i in summed if i != depth.arg[0]], depth.arg[0]), True
    else:
      tile = (rows, *summed) if (by_row := row_by_row(found, tiling.rows_of, tiling.row_loop)) else (*summed, rows)
    if tiling.rows_from is Rows.BLOCK:
      return self._block(tiling, tile, summed)
    if tiling.lanes_from in (Lanes.PANEL, Lanes.WHOLE):
      whole = (lane_loop, *summed) if tiling.lanes_from is Lanes.WHOLE else summed
      if not self.take(Opt(OptOps.STAGE, tiling.lanes_of.slot, self._present(whole))):
        return False
    if tiling.rows_from is not Rows.DIRECT:
      along = outside if outside else [row_loop] if tiling.rows_from is Rows.WINDOW else []
      inside = [i for i in along if i not in (*images, row_loop)]
      kept = (*images, *summed, *inside, *[i for i in along if i == row_loop], rows)
      kept = (*along, *tile) if by_row and not outside else kept
      return self.take(Opt(OptOps.STAGE, tiling.rows_of.slot, self._present(kept)))
    return True

  def _several(self, tiling: Tiling, lane_loop: int, outside: list[int], summed: tuple[int, ...]) -> bool:
    """Some panels at a time, as the innermost loop."""
    panel = self.split(OptOps.SPLIT, lane_loop, tiling.panels)
    if panel is None:
      return False
    self._reorder([*outside, panel])
    return self.take(Opt(OptOps.STAGE, tiling.lanes_of.slot, self._present((panel, *summed))))

  def _present(self, loops: tuple[int, ...]) -> tuple[int, ...]:
    """Of these loops those that the kernel still has."""
    return tuple([i for i in loops if i in loops_of(self.root)])

  def share(self, tiling: Tiling) -> float:
    """THREAD on the loop of a sum of products that is best shared. A block of its iterations stays where the loop was:
    what has been packed around it is there for all of the block. Several loops become one first, where one alone has
    too few iterations for all threads. Gives back what is lost by dividing, in parts of the time."""
    for sharing in sharings(self.root, tiling, self.target):
      if not sharing.merged:
        self._share_one(sharing)
        return sharing.cost
      if self.attempt(partial(self._share_several, sharing)):
        return sharing.cost
    return 0.0

  def _share_one(self, sharing: Sharing) -> None:
    before = [r.arg[0] for r in self.root.src[0].src[1:] if kind(r) is AxisType.LOOP]
    inside = next_loop_id(self.root)
    if self.take(Opt(OptOps.THREAD, sharing.loop, sharing.block if sharing.block > 1 else 0)) and sharing.block > 1:
      self._reorder([inside if i == sharing.loop else i for i in before])

  def _share_several(self, sharing: Sharing) -> bool:
    before = [r.arg[0] for r in self.root.src[0].src[1:] if kind(r) is AxisType.LOOP]
    inside = next_loop_id(self.root)
    if sharing.block > 1 and not self.take(Opt(OptOps.SPLIT, sharing.in_blocks, sharing.block)):
      return False
    merges = [Opt(OptOps.MERGE, sharing.loop, loop) for loop in sharing.merged]
    if not self.take(*merges, Opt(OptOps.THREAD, sharing.loop, 0)):
      return False
    if sharing.block > 1:
      self._reorder([inside if i == sharing.in_blocks else i for i in before])
    return self.fits()

  def _reorder(self, wanted: list[int]) -> None:
    """SWAP output loops until they are in an order."""
    for place in range(len(wanted)):
      current = [r.arg[0] for r in self.root.src[0].src[1:] if kind(r) is AxisType.LOOP]
      goal = [i for i in wanted if i in current]
      if place < len(goal) and current[place] != goal[place]:
        self.take(Opt(OptOps.SWAP, current[place], goal[place]))

  def _block(self, tiling: Tiling, tile: tuple[int, ...], summed: tuple[int, ...]) -> bool:
    """Several panels for several rows at a time, with both operands in local memory."""
    panel = self.split(OptOps.SPLIT, tiling.lane_loop.arg[0], PANELS)
    block = None if panel is None else self.split(OptOps.SPLIT, tiling.row_loop.arg[0], ROW_BLOCKS)
    if panel is None or block is None:
      return False
    return self.take(
      Opt(OptOps.SWAP, panel, block),
      Opt(OptOps.STAGE, tiling.lanes_of.slot, self._present((panel, *summed))),
      Opt(OptOps.STAGE, tiling.rows_of.slot, self._present((block, *tile))),
    )
