"""Staging: an operand is copied into local memory for a tile of loops, in the order in which it will be read.

`STAGE(x, a, b)` says that the values of `x` over loops a and b are computed once, at the loop level of the other
loops that `x` depends on. Lowered, it is an ALLOC, loops of its own that fill it, and a LOAD where `x` was used. On a
CPU this is packing for the cache, on a GPU a shared-memory tile; where `x` is an expression it is im2col or
dequantise-once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from tiny_codegen.errors import KernelError
from tiny_codegen.instructions.dot_product import PAIR
from tiny_codegen.instructions.tensor_core import ROW_BYTES, SWIZZLE
from tiny_codegen.kernel.expressions import row_major, stride
from tiny_codegen.kernel.interleave import Neighbours
from tiny_codegen.kernel.loops import REPLICATED, THREADS, in_order, kind, next_loop_id, size_of, substitute_simplified
from tiny_codegen.kernel.memory import gate_loads, gates_of, next_alloc_id, stored_gates, without_gate
from tiny_codegen.kernel.threads import HardwareAxis, thread_axes
from tiny_codegen.lower.skip_padding_taps import only_taps_inside, shorten_loops, steps_inside
from tiny_codegen.lower.vectorize import TURNED, WIDE
from tiny_codegen.staging.cooperative_fill import filled, is_fill, shared_fill
from tiny_codegen.staging.pack import pack_in_first_tile
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, GroupOp, Ops, UOp, dtypes, simplify
from tiny_uop.graph import rebuild, users_of
from tiny_uop.records import dataclass

MOST_UNROLLED = 4  # vectors of a row that is filled
BANKS = 16  # bytes that threads read at once without meeting in a bank, if each has its own of eight
WORD = 4  # bytes of a bank
SQUARE = 4  # rows and columns that a thread transposes
_CANONICAL = 1 << 20  # above the ids of a kernel's loops


def stage_operand(root: UOp, slot: int, tile: tuple[UOp, ...], narrow: bool = False) -> UOp | None:
  """The kernel with a STAGE over `tile` around the largest expressions that read PARAM `slot` alone: those that depend
  on all loops of the tile, or else on some; None if none does. `narrow`: what is only widened after it was read is
  kept as it was read.
  """
  reads: dict[UOp, frozenset[int]] = {}
  for u in root.toposort:
    own = frozenset({u.arg}) if u.op is Ops.PARAM else frozenset()
    reads[u] = own.union(*[reads[s] for s in u.src])

  def operand(u: UOp) -> bool:
    return (u.op is Ops.LOAD or u.op in GroupOp.Elementwise) and reads[u] == {slot} and u.dtype.kind != "index"

  found: dict[UOp, tuple[UOp, ...]] = {}
  for u, above in users_of(root.toposort).items():
    # not the value that is stored or an address: what is read from local memory has to be used in a computation
    if operand(u) and not all(operand(user) for user in above) and not any(user.op is Ops.INDEX for user in above):
      loops = tuple([r for r in tile if r in u.ranges])
      if loops:
        found[u] = loops
  whole = [u for u, loops in found.items() if len(loops) == len(tile)]
  changes: dict[UOp, UOp] = {}
  for u in whole or found:
    kept = u.src[0] if narrow and is_widening(u) else u
    changes[u] = kept.stage(*found[u]) if kept is u else u.replace(src=(kept.stage(*found[u]),))
  return root.substitute(changes) if changes else None


def is_widening(u: UOp) -> bool:
  """Whether a value is another one in a wider type, exactly."""
  return u.op is Ops.CAST and dtypes.can_lossless_cast(u.src[0].dtype.scalar(), u.dtype.scalar())


def stage_twins(root: UOp, first: UOp, second: UOp) -> UOp | None:
  """The kernel with a STAGE around the largest expressions that are computed in one loop and then again in another: the
  values that a sum goes through and that are then divided by it. They are kept once. None if there are none.
  """
  nodes = root.toposort
  renamed: dict[UOp, UOp] = {first: second}
  for u in nodes:
    if u is not first:
      renamed[u] = u.with_src(tuple([renamed[s] for s in u.src]))
  present, users = set(nodes), users_of(nodes)

  def twin(u: UOp) -> bool:
    computed = u.op in GroupOp.Elementwise and u.dtype.kind not in ("index", "bool")
    return computed and first in u.ranges and second not in u.ranges and renamed[u] in present

  changes: dict[UOp, UOp] = {}
  for u in nodes:
    if twin(u) and not all(twin(user) for user in users.get(u, ())):
      changes |= {u: u.stage(first), renamed[u]: renamed[u].stage(second)}
  return root.substitute(changes) if changes else None


def lower_stages(root: UOp, target: Target) -> UOp:
  """The kernel without STAGE, and, on a processor, with sums over windows that leave out what lies in padding."""
  staged = lower_stage(root, target)
  if target.has_local:
    return staged
  # a loop whose first tile packs has become another one: what is inside of an image along it is not known any more
  left = {u for u in staged.toposort if u.op is Ops.RANGE}
  steps = steps_inside(root, target)
  known = {r: inside for r, inside in steps.items() if inside.count.ranges | inside.first.ranges <= left}
  return only_taps_inside(shorten_loops(staged, known))


def lower_stage(root: UOp, target: Target) -> UOp:
  """The kernel without STAGE."""
  threads = thread_axes(root) if target.has_local else []
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)
  gates = () if target.has_local else tuple(stored_gates(root))
  tiles: dict[UOp, UOp] = {}
  staged: dict[UOp, UOp] = {}

  def change(u: UOp, new: UOp) -> UOp | None:
    nonlocal loop_id, alloc_id
    if u.op is not Ops.STAGE:
      return shared_fill(new, threads) if threads and is_fill(new) else None
    tile = _tile_of(new, loop_id, target, gates)
    if (same := tile.canonical()) not in tiles:
      tiles[same] = tile.fill(alloc_id, target, threads)
      loop_id, alloc_id = max(loop_id, next_loop_id(tiles[same])), alloc_id + 1
    read = tile.read(tiles[same])
    staged[read] = new.src[0]
    return read

  root = rebuild(root, change)
  return root if target.has_local else pack_in_first_tile(root, staged)


def is_roomy(root: UOp, target: Target) -> bool:
  """Whether there is clearly room for what each STAGE keeps, without a look at what it is. Windows take less than a
  place for each iteration of its loops; vectors, of which the last one need not be full, less than twice as much."""
  room = target.limits.shared_memory
  for u in root.toposort:
    if u.op is Ops.STAGE:
      loops = {*u.src[1:], *[r for r in u.src[0].ranges if kind(r) in REPLICATED]}
      if 2 * u.dtype.itemsize * math.prod([max(size_of(r), 1) for r in loops]) > room > 0:
        return False
  return True


@lru_cache(maxsize=8)
def _tile_of(stage: UOp, loop_id: int, target: Target, gates: tuple[UOp, ...]) -> Tile:
  """`Tile.of`, which is asked twice for a large STAGE: whether it fits, and when the kernel is lowered."""
  return Tile.of(stage, loop_id, target, gates=gates)


def keep_tiles(
  root: UOp, target: Target, neighbours: UOp | None = None, order: Callable[[Tile], Tile] | None = None,
  along: UOp | None = None,
) -> tuple[UOp, dict[UOp, Tile]]:  # fmt: skip
  """The kernel with what each STAGE keeps in local memory that is read by its place, so that loops over it may become
  something else, and the tile that each read is of; the pass `stage` lets threads share the work of filling it. Rows
  are a little apart, or as `order` has them, so that eight of them that are read at once are in different banks; by a
  word where the threads of loop `neighbours` read each a row of their own, element by element, so that all of them
  are. What is read in pieces along loop `along` stands along it, transposed on its way if need be."""
  loop_id, alloc_id = next_loop_id(root), next_alloc_id(root)
  tiles: dict[UOp, Tile] = {}

  def change(u: UOp, new: UOp) -> UOp | None:
    nonlocal loop_id, alloc_id
    if u.op is not Ops.STAGE:
      return None
    columns = neighbours in u.src[1:-1]
    transposed = None if along is None else Tile.of(new, loop_id, target, False).transposed(along)
    tile = transposed or Tile.of(new, loop_id, target, not columns)
    if transposed is None:
      tile = tile.apart() if columns else order(tile) if order is not None else tile.skewed()
    filled = tile.fill(alloc_id, target)
    loop_id, alloc_id = max(loop_id, next_loop_id(filled)), alloc_id + 1
    read = tile.read(filled)
    tiles[read] = tile
    return read

  return rebuild(root, change), tiles


@dataclass(frozen=True)
class TileAxis:
  """One axis of local memory: the place that the kernel reads, an expression over its loops, and the loop that fills.
  Beyond the first `needed` places nothing is read that matters."""

  place: UOp
  loop: UOp
  size: int
  needed: int


@dataclass(frozen=True)
class Tile:
  """The values that a STAGE keeps: `value` over the loops of `axes`, which fill local memory."""

  value: UOp
  axes: tuple[TileAxis, ...]
  skew: int = 0
  """Elements between one row and the next."""
  swizzle: int = 0
  """Bytes of the blocks that rows are cut into, whose pieces change places from row to row: see `SharedOperand`."""
  every: int = 1
  """Rows after which they do."""

  @staticmethod
  def of(stage: UOp, loop_id: int, target: Target, vectors: bool = True, gates: Sequence[UOp] = ()) -> Tile:
    """What a STAGE keeps. Where one of `gates` does not hold, the value does not matter."""
    value = stage.src[0]
    listed = [r for r in stage.src[1:] if r in value.ranges]
    extra = [r for r in in_order(value.ranges) if kind(r) in REPLICATED and r not in listed]
    lanes = [r for r in extra if kind(r) is AxisType.VECTOR]
    axes = []
    for place, loop in enumerate((*[r for r in extra if r not in lanes], *listed, *lanes)):
      same = AxisType.VECTOR if kind(loop) is AxisType.VECTOR else AxisType.LOOP
      # threads of a workgroup each fill their own part
      filling = loop if kind(loop) in THREADS else UOp.range(loop.src[0], loop_id + place, same)
      size = max(size_of(loop), 1)
      axes.append(TileAxis(loop, filling, size, size))
    own = {a.place: a.loop for a in axes if a.place is not a.loop}
    tile = Tile(value.substitute(own), tuple(axes))._windows(loop_id + len(axes), [g.substitute(own) for g in gates])
    tile = replace(tile, value=tile._safe())
    return tile._vector_fill(target) if vectors else tile

  @property
  def row_bytes(self) -> int:
    """Of the last axis; 1 where there is none."""
    return self.axes[-1].size * self.value.dtype.itemsize if self.axes else 1

  def skewed(self, banks: int = BANKS) -> Tile:
    """The same with rows that begin at odd multiples of 16 bytes (or of 32), which banks of 4 bytes repeat after
    128."""
    row = self.row_bytes
    if row % BANKS or len(self.axes) < 2:
      return self
    return replace(self, skew=(banks - row) % (2 * banks) // self.value.dtype.itemsize)

  def apart(self) -> Tile:
    """The same with rows that are an odd number of words long, of which a column is in as many banks."""
    size, row = self.value.dtype.itemsize, self.row_bytes if self.axes else WORD
    return replace(self, skew=WORD // size if size <= WORD and row % (2 * WORD) == 0 else 1 if size > WORD else 0)

  def swizzled(self, least: int = SWIZZLE, every: int = 0) -> Tile:
    """The same in the order of a `SharedOperand`, in blocks of 128 bytes or of less, whose pieces change places after
    so many rows (0: as fill 128 bytes); itself where rows are no multiples of `least` bytes."""
    width = next((w for w in (SWIZZLE, SWIZZLE // 2, SWIZZLE // 4) if w >= least and self.row_bytes % w == 0), 0)
    if not width or len(self.axes) != 2:
      return self
    return replace(self, swizzle=width, every=every or SWIZZLE // width)

  def transposed(self, along: UOp) -> Tile | None:
    """The same with the axis of `along` last, where what is read is adjacent along the other one; None where it cannot
    be filled so. Threads transpose squares in registers (`vectorize`): they read 4 rows, and write 4 columns.

    Eight neighbours among threads read 8 squares of the same rows; the next eight the rows below. Rows in local memory
    are 8 bytes longer than they need be, so that 32 threads write 16 different pairs of banks, and read them, too.
    """
    size = self.value.dtype.itemsize
    if len(self.axes) != 2 or size > WORD // 2 or not all(map(_plain_loop, self.axes)):
      return None
    rows, columns = self.axes
    loads = loads_of(self.value)
    whole = all(a.size == a.needed and a.size % SQUARE == 0 for a in self.axes)
    if rows.place is not along or not whole or not loads or any(map(gates_of, loads)):
      return None
    if any(stride(u.src[0].src[1], columns.loop) != 1 for u in loads):
      return None
    near = math.gcd(columns.size // SQUARE, 2 * SQUARE)
    fresh, down = 1 + max(a.loop.arg[0] for a in self.axes), rows.size // SQUARE
    squares = UOp.range(down * (columns.size // SQUARE // near), rows.loop.arg[0], AxisType.LOOP)
    neighbour = UOp.range(near, columns.loop.arg[0], AxisType.LOOP)
    column, lane = UOp.range(SQUARE, fresh, AxisType.UPCAST), UOp.range(SQUARE, fresh + 1, AxisType.VECTOR)
    across = simplify((squares // down * near + neighbour) * SQUARE + column)
    below = simplify(squares % down * SQUARE + lane)
    value = substitute_simplified(self.value, {rows.loop: below, columns.loop: across})
    axes = (
      TileAxis(columns.place, across, columns.size, columns.size),
      TileAxis(rows.place, below, rows.size, rows.size),
    )
    return Tile(value, axes, skew=2 * WORD // size)

  def _offset(self, counters: tuple[UOp, ...]) -> UOp:
    """Of a place in the box of local memory."""
    if not self.swizzle:
      return row_major(counters, self.sizes)
    (row, column), size = counters, self.value.dtype.itemsize
    width, piece = self.swizzle // size, ROW_BYTES // size
    block, inside = column // width, column % width
    swizzled = (inside // piece) ^ (row // self.every % (width // piece))
    return simplify((block * self.sizes[0] + row) * width + swizzled * piece + inside % piece)

  def canonical(self) -> UOp:
    """The value with loops numbered by their place in the tile: that of another STAGE which keeps the same."""
    loops = [r for a in self.axes for r in in_order(a.loop.ranges)]
    return self.value.substitute({r: r.replace(arg=(_CANONICAL + i, kind(r))) for i, r in enumerate(loops)})

  def fill(self, alloc_id: int, target: Target, threads: Sequence[HardwareAxis] = ()) -> UOp:
    """Local memory that has been filled, by all threads of the workgroup; the value itself where there is nothing to
    keep."""
    if not self.axes:
      return self.value
    total, available = math.prod(self.sizes), target.limits.shared_memory
    if total * self.value.dtype.itemsize > available > 0:
      raise KernelError(
        f"a STAGE of {total} × {self.value.dtype} does not fit into {available} bytes of local memory: "
        "use a smaller tile"
      )
    memory = UOp.alloc(alloc_id, self.value.dtype.ptr(total, AddrSpace.LOCAL))
    filling = tuple(dict.fromkeys([r for a in self.axes for r in in_order(a.loop.ranges)]))
    return filled(memory, self._offset(tuple([a.loop for a in self.axes])), self.value, filling, threads)

  def read(self, filled: UOp) -> UOp:
    """The value read back from what `fill` gave."""
    return filled.index(self._offset(tuple([a.place for a in self.axes]))).load() if self.axes else filled

  @property
  def sizes(self) -> tuple[int, ...]:
    """Of the box of local memory."""
    sizes = [a.size for a in self.axes]
    return (*sizes[:-1], sizes[-1] + self.skew) if sizes else ()

  def _windows(self, loop_id: int, gates: Sequence[UOp]) -> Tile:
    """Axes that the value depends on through one sum only become one: the window that a convolution slides over its
    input is kept once, not once for each place it slides to. `gates` are as in `of`."""
    tile = self
    while True:
      tile = tile._ungated(gates)
      pairs = ((a, b) for a in tile.axes for b in tile.axes if a is not b and _plain_loop(a) and _plain_loop(b))
      merged = next((m for a, b in pairs if (m := tile._window(a, b, loop_id)) is not None), None)
      if merged is None:
        return tile
      tile, changes = merged
      gates, loop_id = [simplify(g.substitute(changes)) for g in gates], loop_id + 1

  def _ungated(self, gates: Sequence[UOp]) -> Tile:
    """The same without those gates that say how much of an axis is needed: what is beyond may have any value."""
    tile = self
    for place, axis in enumerate(self.axes):
      for gate in gates:
        if gate.op is Ops.CMPLT and gate.src[0] is axis.loop and 0 < gate.src[1].vmin == gate.src[1].vmax < axis.needed:
          needed = replace(axis, needed=int(gate.src[1].vmin))
          tile = Tile(without_gate(tile.value, gate), (*tile.axes[:place], needed, *tile.axes[place + 1 :]))
          break
    return tile

  def _safe(self) -> UOp:
    """The value, that reads nothing beyond what is needed of an axis: there may be no memory there."""
    value = self.value
    for axis in self.axes:
      if axis.needed < axis.size:
        value = gate_loads(value, axis.loop, axis.loop < axis.needed)
    return value

  def _window(self, a: TileAxis, b: TileAxis, loop_id: int) -> tuple[Tile, dict[UOp, UOp]] | None:
    """One axis w = a + b·ratio in the place of two, where that is all the value depends on; and what a has become."""
    ratio = 0
    for load in loads_of(self.value):
      steps = [stride(load.src[0].src[1], axis.loop) for axis in (a, b)]
      if steps[0] is None or steps[1] is None:
        return None
      if steps[0] and steps[1] % steps[0] == 0 and steps[1]:
        ratio = steps[1] // steps[0]
    # a ratio beyond the extent would leave holes in the window
    if not 1 <= ratio <= a.size:
      return None
    if ratio == a.size and self.value.dtype is PAIR and self.axes.index(a) < self.axes.index(b):
      return None  # nothing overlaps, and rows would no longer be next to each other, as squares have them
    size = a.size + (b.size - 1) * ratio
    window = UOp.range(size, loop_id, AxisType.LOOP)
    changes = {a.loop: window - b.loop * ratio}
    value = substitute_simplified(self.value, changes)
    if b.loop in value.ranges or window not in value.ranges:
      return None
    merged = TileAxis(simplify(a.place + b.place * ratio), window, size, a.needed + (b.needed - 1) * ratio)
    later = max(a, b, key=self.axes.index)
    axes = [merged if x is later else x for x in self.axes if x is later or (x is not a and x is not b)]
    return Tile(value, tuple(axes)), changes

  def _vector_fill(self, target: Target) -> Tile:
    """The same filled in vectors, if what is read is adjacent along the last axis, as what is written is."""
    if not self.axes or not _plain_loop(self.axes[-1]):
      return self
    last = self.axes[-1]
    lanes = min(target.lanes(self.value.dtype), 1 << (last.size - 1).bit_length())
    loads = [u for u in loads_of(self.value) if last.loop in u.ranges]
    steps = {stride(u.src[0].src[1], last.loop) for u in loads}
    # every second element takes two loads: see the pass vectorize
    words = Neighbours.of(self.value, last.loop) is not None
    # with masks for lanes of any size, if only some of their numbers are there
    words = words and (not _is_gated(self.value, last.loop) or target.has_masks) and last.size % lanes == 0
    every_second = lanes >= WIDE and not _is_gated(self.value, last.loop)
    transposed = self._transposed(lanes) and not target.has_local
    if lanes < 2 or not loads or not (words or transposed or steps <= ({1, 2} if every_second else {1})):
      return self
    blocks = -(-last.size // lanes)
    lane = UOp.range(lanes, 1 + max(a.loop.arg[0] for a in self.axes), AxisType.VECTOR)
    # written out, each block has a mask that is known, and the loop around is the innermost
    written = blocks <= MOST_UNROLLED and not target.has_local
    rest = AxisType.UPCAST if written and not transposed else AxisType.LOOP
    loop = lane if blocks == 1 else UOp.range(blocks, last.loop.arg[0], rest) * lanes + lane
    value = self.value
    if blocks * lanes > last.size == last.needed:
      value = gate_loads(value, last.loop, last.loop < last.size)
    value = substitute_simplified(value, {last.loop: loop})
    if target.has_local and _is_gated(value, lane):
      return self  # lanes of which only some may happen are branches there
    return Tile(value, (*self.axes[:-1], TileAxis(last.place, loop, blocks * lanes, last.needed)))

  def _transposed(self, lanes: int) -> bool:
    """Whether what is read is adjacent along another axis, in whole blocks: the pass `vectorize` transposes these."""
    loads, last = loads_of(self.value), self.axes[-1]
    steps = {stride(u.src[0].src[1], last.loop) for u in loads}
    if last.size % lanes or not steps.isdisjoint((None, 0, 1)) or any(map(gates_of, loads)):
      return False
    others = [a for a in self.axes[:-1] if _plain_loop(a) and a.size % TURNED[0] == 0 == lanes % TURNED[0]]
    return any(all(stride(u.src[0].src[1], a.loop) == 1 for u in loads) for a in others)


def _plain_loop(axis: TileAxis) -> bool:
  return axis.loop.op is Ops.RANGE and kind(axis.loop) is AxisType.LOOP and axis.loop.src[0].op is Ops.CONST


def _is_gated(value: UOp, loop: UOp) -> bool:
  """Whether not all iterations of a loop read memory."""
  return any(loop in gate.ranges for load in loads_of(value) for gate in gates_of(load))


def loads_of(value: UOp) -> list[UOp]:
  """The LOADs in an expression."""
  return [u for u in value.toposort if u.op is Ops.LOAD]
