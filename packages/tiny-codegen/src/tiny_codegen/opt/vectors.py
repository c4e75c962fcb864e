"""Hand-written choice of optimisations, for a processor with vectors and threads.

A sum of products of two operands is tiled as `choose.py` finds best, a transpose as `transpose.py` does, a row
times a matrix reads some rows of it at a time. Other kernels get

1. short loops that pick one of several values written out;
2. vectors: the loops whose lanes save most instructions (`vector_cost.py`), one for each part of the kernel;
3. rows of overlapping windows, as those of depthwise convolutions and pools: written out, what they share is read once;
4. else a register tile: in a reduction, output loops over which an operand is reused are written out, as far as
   accumulators fit into registers;
5. and small reduce loops unrolled.

Then threads share the outermost output loop that is long enough, if there is enough work.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, iterations, kind, loops_of, size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.tiles import TilingChooser
from tiny_codegen.opt.transpose import transpose_copy
from tiny_codegen.opt.vector_cost import Cost, nodes_of_body
from tiny_codegen.opt.workgroups import choose_group_opts
from tiny_codegen.staging.stage import stage_twins
from tiny_codegen.target import FEW_THREADS, KEPT, Target
from tiny_codegen.tiling.choose import ranked_tilings
from tiny_codegen.tiling.tiles import EVEN_ENOUGH, Rows
from tiny_uop import AxisType, GroupOp, Ops, Opt, OptOps, PtrDType, UOp, dtypes, simplify

THREAD_WORK = 32768
TRIED = 3  # tilings that read their operands alike
LESS = 0.93  # of an estimate: so much better, another tiling is worth its division among threads
SHARES = 8  # of a thread, with which the division among many is even enough
THREAD_BLOCK = 64
MAX_CHOICES = 20000
MAX_NODES = 1200  # of a loop body that has been written out: more costs compile time and instruction cache
UNROLL_BODY = 160
COLUMN = 64  # terms of a sum of a column
MOST_PIECES = 16
CHOICES = {AxisType.LOOP: (3, OptOps.UPCAST), AxisType.REDUCE: (2, OptOps.UNROLL)}  # the least iterations, and how
MOST_TAPS = 16  # of a window, along the loop whose places are written out
MOST_NEW, MOST_NEW_OF_FEW = 0.5, 0.7  # of a window that the one before did not read; the same where places are few
MOST_PRODUCTS = 64  # of windows that are written out: more than registers hold factors for
SHORT = 14  # places: all of them are written out, and none has to ask whether its window leaves the image
PLACES = 4, 8  # of a longer loop: where windows are written out, and where a loop over the other taps stays
LINES_OF_ROW = 3  # of results, in cache lines: longer ones have fewer rows beside them
VECTORS_OF_THREAD = 4  # vectors of a row that a thread takes where another loop has to run in order
KEEP_LEAST = 16  # elements of a row
TILE_ROWS = (8, 6, 5, 4, 7, 3, 2)
MANY_PARTS = 16  # of a kernel
FEW = 4  # how many times more bytes are read once than are read again for each row
STREAMS = 4  # rows that are read side by side: memory has more than one page at work
FAR = 4096  # bytes from a row to the next, at least
ROWS, PIECE = 8, 256  # of a matrix that are read together, and how much of each


def choose_opts(root: UOp, target: Target) -> tuple[Opt, ...]:
  """The optimisations for a kernel; none for a target that has neither vectors nor threads nor workgroups."""
  return choose(root, target)[0]


def choose(root: UOp, target: Target) -> tuple[tuple[Opt, ...], UOp]:
  """The same, and the kernel with them applied."""
  if target.has_local:
    opts = choose_group_opts(root, target)
    return opts, apply_opts(root, opts, target)
  chooser = Chooser(root, target)
  if target.vector_bits:
    if not chooser.contract() and not chooser.take_transposed() and not chooser.row_times_matrix():
      chooser.keep()
      chooser.choices()
      chooser.vectors()
      if not chooser.windows():
        chooser.tile()
        chooser.unroll()
  if target.has_threads:
    chooser.threads()
    if chooser.lost > EVEN_ENOUGH and target.threads > FEW_THREADS:
      chooser = chooser.shared_better(root)
  return tuple(chooser.opts), chooser.root


def touched(nodes: tuple[UOp, ...]) -> int:
  """The bytes of a kernel's arrays."""
  arrays = [u.dtype for u in nodes if u.op is Ops.PARAM]
  return sum(p.size * p.base.itemsize for p in arrays if isinstance(p, PtrDType))


def past_caches(nodes: tuple[UOp, ...]) -> bool:
  """Whether a kernel touches more memory than caches keep."""
  return touched(nodes) > KEPT


@dataclass
class Chooser(TilingChooser):
  """Choices for any kernel."""

  blocks: dict[int, int] = field(default_factory=dict)  # of padded loops: iterations that a thread takes at a time
  registers: int = 1  # vector registers that one value takes
  side_by_side: int | None = None  # the loop over rows that are read so
  lost: float = 0.0  # by dividing a tiled sum of products among threads, in parts of its time

  def take_transposed(self) -> bool:
    """Read a copy that is transposed in squares; False where it is none."""
    opts = transpose_copy(self.root, self.target)
    return bool(opts) and self.take(*opts)

  # *** a row times a matrix ***

  def row_times_matrix(self) -> bool:
    """Some ROWS of the matrix at a time, PIECE after PIECE: column after column, each row is on a page of its own, and
    only a few elements of it are read."""
    ends, lanes = self.root.src, self.target.lanes(dtypes.float32) * 4
    reduces = [u for u in self.root.toposort if u.op is Ops.REDUCE]
    if len(ends) != 1 or ends[0].op is not Ops.END or len(reduces) != 1:
      return False
    if len(ends[0].src) != 2 or len(reduces[0].src) != 2:
      return False
    (product, row), column = reduces[0].src, ends[0].src[1]
    size, terms = extent(column) or 0, extent(row) or 0
    if reduces[0].arg[0] is not Ops.ADD or product.op is not Ops.MUL or kind(column) is not AxisType.LOOP:
      return False
    if size % PIECE or terms % ROWS or terms < COLUMN:
      return False
    if any(u.op is not Ops.LOAD or u.dtype != dtypes.float32 for u in product.src):
      return False
    steps = {(stride(u.src[0].src[1], column), stride(u.src[0].src[1], row)) for u in product.src}
    if not any(across == 1 and down is not None and down * 4 >= FAR for across, down in steps) or (0, 1) not in steps:
      return False
    split = [Opt(OptOps.SPLIT, column.arg[0], PIECE)] if size > PIECE else []
    inner = max(loops_of(self.root)) + 1 if split else column.arg[0]
    block = max(loops_of(self.root)) + len(split) + 1
    return self.take(
      *split, Opt(OptOps.BLOCK, row.arg[0], ROWS), Opt(OptOps.VECTOR, inner, lanes), Opt(OptOps.UNROLL, block, 0)
    )

  # *** values that are needed again ***

  def keep(self) -> None:
    """STAGE the exponentials of a row that are summed and then used again, as softmax does."""
    nodes = self.root.toposort
    if not any(u.op in GroupOp.Transcendental for u in nodes):
      return
    loops = [r for r in loops_of(self.root).values() if kind(r) in (AxisType.LOOP, AxisType.REDUCE)]
    most = self.target.limits.shared_memory // 2 // 4  # elements: half of local memory is for other reads
    for first in loops:
      size = extent(first)
      if kind(first) is not AxisType.REDUCE or size is None or not KEEP_LEAST <= size <= most:
        continue
      for second in loops:
        if second is not first and extent(second) == size:
          staged = stage_twins(self.root, first, second)
          kept = [u.src[0] for u in staged.toposort if u.op is Ops.STAGE] if staged is not None else []
          if any(u.op in GroupOp.Transcendental for value in kept for u in value.toposort if first in u.ranges):
            self.take(Opt(OptOps.STAGE, None, (first.arg[0], second.arg[0])))

  # *** choices ***

  def choices(self) -> None:
    """UPCAST or UNROLL short loops whose counter picks one of several values, as in what is put together of pieces
    (and in sums over the fields of a byte): each copy then computes the one that it needs, and what they have in common
    is computed once."""
    nodes = self.root.toposort
    picks = [u.src[0] for u in nodes if u.op is Ops.WHERE and len(u.src[0].ranges) == 1]
    for loop in loops_of(self.root).values():
      size = extent(loop)
      least, write_out = CHOICES.get(kind(loop), (MOST_PIECES + 1, OptOps.UPCAST))
      if size is not None and least <= size <= MOST_PIECES:
        conditions = {u for u in picks if loop in u.ranges}
        if len(conditions) >= size - 1 and nodes_of_body(self.root, loop) * size <= MAX_NODES:
          self.take(Opt(write_out, loop.arg[0], 0))

  # *** vectors ***

  def vectors(self) -> None:
    """Choose VECTOR axes: one, with those that the parts of the kernel it does not reach add to it. Where there are
    many, each has its own."""
    self.side_by_side = self._streams()
    parts = [UOp.sink(part) for part in self.root.src]
    if len(parts) <= MANY_PARTS:
      self._vectors_of(self.root, frozenset())
      return
    uses = Counter(r for part in parts for r in loops_of(part).values())
    for part in parts:
      self._vectors_of(part, frozenset(r for r, count in uses.items() if count > 1))

  def _vectors_of(self, root: UOp, shared: frozenset[UOp]) -> None:
    cost, loops = Cost(root), [r for r in loops_of(root).values() if r not in shared]
    nodes = cost.nodes
    sizes = {r: size_of(r) for r in loops if kind(r) in (AxisType.LOOP, AxisType.REDUCE)}
    native = {r: self._native(nodes, r) for r in sizes}
    # a short loop fills part of a register
    native = {r: min(n, 1 << max(sizes[r] - 1, 1).bit_length()) for r, n in native.items()}
    lanes = {r: size / -(-size // native[r]) for r, size in sizes.items() if native[r] > 1 and size > 2}
    if len(lanes) * len(nodes) > MAX_CHOICES:  # a very large kernel: only its last loops, mostly the innermost
      lanes = dict(list(lanes.items())[-4:])
    near = {r: frozenset().union(*[u.ranges for u in nodes if r in u.ranges]) for r in lanes}
    best: dict[UOp, float] = {}
    least = cost.scalar() * 0.8
    for first in lanes:
      chosen, total = self._complete(cost, first, lanes, near)
      if total < least:
        best, least = chosen, total
    for axis in best:
      amount = native[axis] * self._width(nodes, axis, native[axis], sizes[axis])
      padding: list[Opt] = []
      if extent(axis) is None or sizes[axis] % amount:
        outermost = all(e.op is Ops.END and e.src[1] is axis for e in root.src)
        block = THREAD_BLOCK if outermost and sizes[axis] >= THREAD_BLOCK * amount * 4 else 1
        self.blocks[axis.arg[0]] = block
        padding = [Opt(OptOps.PADTO, axis.arg[0], amount * block)]
      if self.take(*padding, Opt(OptOps.VECTOR, axis.arg[0], amount)) and self._gathered(nodes, axis):
        self._write_out_row(axis, -(-sizes[axis] // amount))

  @staticmethod
  def _gathered(nodes: tuple[UOp, ...], axis: UOp) -> bool:
    """Whether a sum adds up rows, along `axis`, whose places are read from memory, as those of an embedding are."""
    for reduce in nodes:
      if reduce.op is Ops.REDUCE and axis not in reduce.src[1:]:
        for u in reduce.src[0].toposort:
          if u.op is Ops.LOAD and stride(place := u.src[0].src[1], axis) == 1:
            if any(n.op is Ops.LOAD and n.ranges & frozenset(reduce.src[1:]) for n in place.toposort):
              return True
    return False

  def _write_out_row(self, axis: UOp, vectors: int) -> None:
    """UPCAST what is left of a row, as far as accumulators fit into registers: its place is computed once then, and
    memory has all of its lines to bring, not the same row again after all others."""
    most = min(vectors, self.target.vector_registers * 3 // 4 // self.registers)
    if most > 1:
      most = min(most, MAX_NODES // nodes_of_body(self.root, loops_of(self.root)[axis.arg[0]]))
    amount = next((n for n in range(most, 1, -1) if vectors % n == 0), 0)
    if amount and self.take(Opt(OptOps.UPCAST, axis.arg[0], amount)):
      self.registers *= amount

  @staticmethod
  def _complete(
    cost: Cost, first: UOp, lanes: dict[UOp, float], near: dict[UOp, frozenset[UOp]]
  ) -> tuple[dict[UOp, float], float]:
    """Axes to go with a first one, and what the kernel costs with all of them."""
    chosen = {first: lanes[first]}
    least = cost.vector(chosen)
    while True:
      others = [r for r in lanes if all(r not in near[c] for c in chosen)]
      totals = [(cost.vector({**chosen, r: lanes[r]}), r.arg[0], r) for r in others]
      if not totals or min(totals)[0] >= least * 0.98:
        return chosen, least
      least, _, axis = min(totals)
      chosen[axis] = lanes[axis]

  def _native(self, nodes: tuple[UOp, ...], axis: UOp) -> int:
    """Lanes of a register of the widest type computed with inside the loop."""
    inside = [
      u.dtype
      for u in nodes
      if axis in u.ranges and u.dtype.kind not in ("void", "index", "bool") and u.op is not Ops.INDEX
    ]
    inside += [u.src[1].dtype for u in nodes if u.op is Ops.STORE and axis in u.ranges]
    return min([self.target.lanes(d) for d in inside], default=1)

  def _width(self, nodes: tuple[UOp, ...], axis: UOp, native: int, size: int) -> int:
    """Registers per value: several hide the latency of accumulators, and make for fewer loop iterations."""
    body = sum(u.op in GroupOp.Elementwise and axis in u.ranges and u.dtype.kind != "index" for u in nodes)
    heavy = any(u.op in GroupOp.Transcendental or u.op is Ops.THREEFRY for u in nodes if axis in u.ranges)
    reduces = [u for u in nodes if u.op is Ops.REDUCE]
    # sums of columns read as much of a row as they can: the next row is far away
    far = all(axis in u.ranges and iterations(u.src[1:]) >= COLUMN for u in reduces)
    columns = bool(reduces) and far and size >= native * 4 * 16  # enough of them to be shared between threads
    reduced = columns or any(axis in u.src[1:] for u in reduces)
    # a register tile has accumulators enough
    tiled = reduced and not columns and self._reused()
    # what is kept is added up from local memory: in as many chains as a value has registers
    kept = any(u.op is Ops.STAGE and axis in u.src[1:] for u in nodes) and self.target.vector_registers >= 32
    if self.side_by_side is not None:
      most = 2  # lines of each row at a time
    elif self._gathered(nodes, axis):
      most = 1 if size % native else 4  # of padded rows the last vector is one of its own
    elif body > 24 or tiled or self._scattered(nodes, axis):
      most = 1
    elif heavy:
      most = 4 if kept else 1
    else:
      most = 4 if reduced else 2
    while most > 1 and (
      size < native * most or (size % (native * most) and (size % native == 0 or size < native * most * 4))
    ):
      most //= 2
    most = min(most, max(1, self.target.max_vector_lanes // native))
    self.registers = max(self.registers, most)
    return most

  @staticmethod
  def _scattered(nodes: tuple[UOp, ...], axis: UOp) -> bool:
    """Whether all that sums read along an axis lies far apart: each lane is a load of its own, and values of several
    registers take as many times more of them."""
    summed = {r for u in nodes if u.op is Ops.REDUCE for r in u.src[1:]}
    loads = [u for u in nodes if u.op is Ops.LOAD and axis in u.ranges and not summed.isdisjoint(u.ranges)]
    return bool(loads) and all(stride(u.src[0].src[1], axis) not in (0, 1) for u in loads)

  # *** windows ***

  def windows(self) -> bool:
    """UPCAST some places of an output loop whose windows overlap, and UNROLL the taps: all if they are few, else those
    along the loop. False where there are no such windows."""
    reduces = [u for u in self.root.toposort if u.op is Ops.REDUCE]
    if len(reduces) != 1:
      return False
    vectors = {opt.axis for opt in self.opts if opt.op is OptOps.VECTOR}
    taps = [r for r in reduces[0].src[1:] if kind(r) is AxisType.REDUCE and 2 < (extent(r) or 0) <= MOST_TAPS]
    offsets = [u.src[0].src[1] for u in reduces[0].src[0].toposort if u.op is Ops.LOAD]
    # the share of a window that the place before does not have, the loop, and the taps along it
    best: tuple[float, UOp, UOp] | None = None
    for loop in loops_of(self.root).values():
      if kind(loop) is not AxisType.LOOP or loop.arg[0] in vectors or loop not in reduces[0].ranges:
        continue
      for offset in offsets:
        for tap in taps:
          step, next_tap = stride(offset, loop), stride(offset, tap)
          if step and next_tap and step % next_tap == 0:
            share = abs(step // next_tap) / (extent(tap) or 1)  # backwards, too, as a flipped kernel is read
            best = min(best or (1.0, loop, tap), (share, loop, tap), key=lambda found: found[0])
    products = iterations(reduces[0].src[1:])
    few = best is not None and size_of(best[1]) * products <= MOST_PRODUCTS
    if best is None or best[0] > (MOST_NEW_OF_FEW if few else MOST_NEW):
      return False
    _, loop, along = best
    room = PLACES[products * PLACES[0] > MOST_PRODUCTS] // (2 if self._waits_for_lines() else 1)
    places = self._places(loop, room)
    if places is None or not self.take(*places[1], Opt(OptOps.UPCAST, loop.arg[0], places[0])):
      return False
    for tap in reversed(reduces[0].src[1:]):
      if (extent(loops_of(self.root)[tap.arg[0]]) or 0) > 1 and (tap is along or products * places[0] <= MOST_PRODUCTS):
        self.take(Opt(OptOps.UNROLL, tap.arg[0], 0))
    return True

  def _waits_for_lines(self) -> bool:
    """Whether windows wait for memory, and each vector of results fills lines of a row of more than LINES_OF_ROW: with
    half as many rows of an image to be read and of results to be written side by side, 3×3 windows of 112² take 0.6 to
    0.8 of their time with AVX2, but those of 28² with AVX-512 1.1 times as long (Zen 4)."""
    end, store = self.root.src[0], self.root.src[0].src[0]
    if store.op is not Ops.STORE or touched(self.root.toposort) <= self.target.cost.in_caches:
      return False
    place, size = store.src[0].src[1], store.src[1].dtype.itemsize
    steps = [(r, stride(place, r)) for r in end.src[1:]]
    lanes = next((size_of(r) for r, step in steps if kind(r) is AxisType.VECTOR and step == 1), 1)
    vectors = next((size_of(r) for r, step in steps if kind(r) is AxisType.LOOP and step == lanes), 1)
    return lanes * size >= CACHE_LINE and vectors * lanes * size > LINES_OF_ROW * CACHE_LINE

  def _places(self, loop: UOp, room: int) -> tuple[int, list[Opt]] | None:
    """How many places of windows are written out, and what has to be done for that: all if they are few."""
    size, body = extent(loop) or 0, nodes_of_body(self.root, loop)
    most = min(SHORT, self.target.vector_registers // 2)
    room = size if size <= most and size * body <= MAX_NODES else min(room, most, MAX_NODES // body)
    if size < 2 or room < 2:
      return None
    rows = min(range(room, room // 2, -1), key=lambda n: -size % n)
    return rows, [Opt(OptOps.PADTO, loop.arg[0], rows)] if size % rows else []

  # *** register tiles ***

  def tile(self) -> None:
    """UPCAST output loops over which operands of a reduction are reused: two of them to a square tile, or one. Where
    there is nothing but one array to be read, some of its rows, side by side; and where nothing is reused, sums that
    have one register each."""
    if self.side_by_side is not None:
      self.take(Opt(OptOps.UPCAST, self.side_by_side, STREAMS))
      return
    loops = [loop for loop in self._reused()[:2] if not self._streams_past(loop)]
    room = max(self.target.vector_registers * 3 // 4 // self.registers, 1)
    for place, loop in enumerate(loops):
      square = math.isqrt(room - 1) + 1 if place + 1 < len(loops) else room
      rows = self._rows(loops_of(self.root)[loop.arg[0]], square)
      if rows is not None:
        amount, padding = rows
        if self.take(*padding, Opt(OptOps.UPCAST, loop.arg[0], amount)):
          room //= amount
    if not loops and self.registers == 1 and touched(self.root.toposort) >= self.target.cost.chained_bytes:
      self._chains()

  def _chains(self) -> None:
    """UPCAST the output loop whose sums read the nearest memory, where a sum over lanes has one register only: each of
    its additions waits for the one before, and a short run of memory ends before the next is asked for."""
    end, places = self.root.src[0], list[UOp]()
    for reduce in [u for u in self.root.toposort if u.op is Ops.REDUCE]:
      lanes = frozenset(r for r in reduce.src[1:] if kind(r) is AxisType.VECTOR)
      loads = [u for u in reduce.src[0].toposort if u.op is Ops.LOAD and not u.ranges.isdisjoint(lanes)]
      if not loads or iterations(reduce.src[1:]) < self.target.cost.chained_additions * iterations(lanes):
        return
      if any(stride(u.src[0].src[1], r) != 1 for u in loads for r in lanes):
        return
      places += [u.src[0].src[1] for u in loads]
    if len(self.root.src) != 1 or end.op is not Ops.END or not places:
      return
    outer = [r for r in end.src[1:] if kind(r) is AxisType.LOOP and all(r in place.ranges for place in places)]
    steps = {r: abs(step) for r in outer if (step := stride(places[0], r)) is not None}
    loop = min(steps, key=lambda r: (steps[r], r.arg[0]), default=None)
    size = extent(loop) if loop is not None else None
    if loop is None or size is None:
      return
    body, threads = nodes_of_body(self.root, loop), self.target.threads
    for count in self.target.cost.chains:
      parts = size // count
      even = parts % threads == 0 or parts >= threads * SHARES
      if size % count == 0 and even and count * body <= MAX_NODES and count <= self.target.vector_registers // 2:
        self.take(Opt(OptOps.UPCAST, loop.arg[0], count))
        return

  def _streams_past(self, loop: UOp) -> bool:
    """Whether nearly all bytes that reductions read depend on a loop: a few numbers that each vector read is combined
    with are all that a tile of its rows would reuse, and memory would have to deliver several rows side by side."""
    lanes = {r: size_of(r) for r in loops_of(self.root).values() if kind(r) is AxisType.VECTOR}
    if not lanes:
      return False
    read = {True: 0, False: 0}
    for reduce in [u for u in self.root.toposort if u.op is Ops.REDUCE]:
      for u in reduce.src[0].toposort:
        if u.op is Ops.LOAD and u.ranges & frozenset(reduce.src[1:]):
          read[loop in u.ranges] += u.dtype.itemsize * math.prod([n for r, n in lanes.items() if r in u.ranges])
    return read[False] * FEW < read[True]

  def _streams(self) -> int | None:
    """The loop over the rows of a single array that is larger than caches, of which each is reduced to one number; None
    where a kernel is anything else."""
    nodes = self.root.toposort
    loads = [u for u in nodes if u.op is Ops.LOAD]
    reduces = [u for u in nodes if u.op is Ops.REDUCE]
    if len(loads) != 1 or len(reduces) != 1 or len(reduces[0].src) != 2 or not past_caches(nodes):
      return None
    index, row = loads[0].src[0], reduces[0].src[1]
    outer = [r for r in index.src[1].ranges if kind(r) is AxisType.LOOP]
    if stride(index.src[1], row) != 1 or len(outer) != 1 or len(index.src) > 2:
      return None
    size, far = extent(outer[0]) or 0, (stride(index.src[1], outer[0]) or 0) * loads[0].dtype.itemsize
    enough = STREAMS * (self.target.threads if self.target.threads > FEW_THREADS else 16)
    return int(outer[0].arg[0]) if far >= FAR and size % STREAMS == 0 and size >= enough else None

  def _reused(self) -> list[UOp]:
    """Output loops by how many loads in reductions do not depend on them, most first."""
    nodes = self.root.toposort
    reduces = [u for u in nodes if u.op is Ops.REDUCE]
    saved: dict[UOp, float] = {}
    vectors = {opt.axis for opt in self.opts if opt.op is OptOps.VECTOR}
    for loop in loops_of(self.root).values():
      if kind(loop) is not AxisType.LOOP or loop.src[0].ranges or loop.arg[0] in vectors:
        continue
      for reduce in reduces:
        loads = [u for u in reduce.src[0].toposort if u.op is Ops.LOAD and u.ranges & frozenset(reduce.src[1:])]
        same = sum(iterations(u.ranges) for u in loads if loop not in u.ranges)
        if same and loop in reduce.ranges:
          saved[loop] = saved.get(loop, 0.0) + same
    return sorted(saved, key=lambda r: (-saved[r], r.arg[0]))

  def _rows(self, loop: UOp, room: int) -> tuple[int, list[Opt]] | None:
    size, body = extent(loop), nodes_of_body(self.root, loop)
    if size is None:
      return None
    fitting = [n for n in TILE_ROWS if n <= room and n * body <= MAX_NODES]
    divisors = [n for n in fitting if size % n == 0]
    if divisors and (divisors[0] >= 4 or size < 16):
      return divisors[0], []
    if 4 in fitting and size >= 16:
      return 4, [Opt(OptOps.PADTO, loop.arg[0], 4)]
    return (divisors[0], []) if divisors else None

  # *** small loops ***

  def unroll(self) -> None:
    """UNROLL short reduce loops, innermost first."""
    for reduce in [u for u in self.root.toposort if u.op is Ops.REDUCE]:
      for loop in reversed(reduce.src[1:]):
        current = loops_of(self.root).get(loop.arg[0])
        if current is None or kind(current) is not AxisType.REDUCE or (size := extent(current)) is None or size > 8:
          continue
        if any(u.op is Ops.STAGE and current in u.src[1:] for u in self.root.toposort):
          continue  # local memory that two loops share is read by both in one order
        if nodes_of_body(self.root, current) * size <= UNROLL_BODY or size <= 1:
          self.take(Opt(OptOps.UNROLL, current.arg[0], 0))

  # *** threads ***

  def shared_better(self, root: UOp) -> Chooser:
    """Choices with another tiling of the kernel, whose time with its division among many threads is less by the
    estimates; these, if there is none. Tilings that are alike divide alike: a few of each kind are tried."""
    assert self.tiling is not None and self.tiled is not None
    best, tried = self, Counter[object]()
    enough = self.tiling.cycles * (1 + self.lost) * LESS
    for tiling in ranked_tilings(self.tiled, self.target):
      if best.tiling is None or tiling.cycles >= min(best.tiling.cycles * (1 + best.lost), enough):
        break
      kind = (tiling.lane_loop, tiling.row_loop, tiling.lanes_from, tiling.rows_from)
      if tried[kind] >= TRIED:
        continue
      tried[kind] += 1
      other = Chooser(root, self.target)
      if other.take_tiling(self.first, self.tiled, tiling):
        other.threads()
        if tiling.cycles * (1 + other.lost) < min(best.tiling.cycles * (1 + best.lost), enough):
          best = other
    return self.in_pieces(root) if best is self else best

  def in_pieces(self, root: UOp) -> Chooser:
    """Choices with a tiling that reads its operands in the same way, where all rows are packed together, of the kernel
    with the loop over rows in pieces, if that divides better among threads: they cannot share what is inside of a
    packed window."""
    assert self.tiling is not None
    best, loop, alike = self, self.tiling.row_loop, self.tiling.reads
    enough = self.tiling.cycles * (1 + self.lost) * LESS
    for pieces in (2, 4) if self.tiling.rows_from is Rows.WINDOW and extent(loop) is not None else ():
      if size_of(loop) % pieces:
        continue
      first = (*self.first, Opt(OptOps.SPLIT, loop.arg[0], size_of(loop) // pieces))
      tiled = SumOfProducts.of(simplify(apply_opts(root, first, self.target)))
      ranked = ranked_tilings(tiled, self.target) if tiled is not None else []
      same = next((t for t in ranked if t.reads == alike and t.row_loop.arg[0] not in loops_of(root)), None)
      other = Chooser(root, self.target)
      if tiled is not None and same is not None and other.take_tiling(first, tiled, same):
        other.threads()
        if same.cycles * (1 + other.lost) < enough:
          best, enough = other, same.cycles * (1 + other.lost)
    return best

  def threads(self) -> None:
    """THREAD on an outer loop when the kernel is worth it."""
    nodes = self.root.toposort
    if Cost(self.root).scalar() < THREAD_WORK:
      return
    if self.tiling is not None:
      self.lost = self.share(self.tiling)
      return
    ends = self.root.src
    if any(e.op is not Ops.END for e in ends):
      return
    common = [r for r in ends[0].src[1:] if kind(r) is AxisType.LOOP and all(r in e.src[1:] for e in ends)]
    # such that it can go in front of others without a reduction being computed again in each of its iterations
    summed = [u.ranges for u in nodes if u.op is Ops.REDUCE]
    movable = [r for place, r in enumerate(common) if all(r in s or s.isdisjoint(common[:place]) for s in summed)]
    long = [r for r in movable if r.src[0].vmax >= 16] or sorted(movable, key=lambda r: -size_of(r))
    if self.target.threads > FEW_THREADS and self._two_loops(common, long, movable):
      return
    for loop in long:
      if (piece := self._piece(loop)) and self.take(
        Opt(OptOps.SPLIT, loop.arg[0], piece), Opt(OptOps.THREAD, loop.arg[0], 0)
      ):
        return
      if self._in_order(common[: common.index(loop) + 1], summed):
        return
      if loop.src[0].vmax > 1 and self.take(Opt(OptOps.THREAD, loop.arg[0], self.blocks.get(loop.arg[0], 0))):
        return

  def _in_order(self, loops: list[UOp], summed: list[frozenset[UOp]]) -> bool:
    """THREAD on a loop and the short ones around it as one, so that memory is walked through in the order that it has:
    with the images inside of a loop over channels, each next step would be on other pages. False for a loop with none
    around it, and where a sum that depends on some of them would be computed again for the others."""
    if len(loops) < 2 or any(extent(r) is None or r.arg[0] in self.blocks for r in loops):
      return False
    if any(not s.isdisjoint(loops) and not s.issuperset(loops) for s in summed):
      return False
    numbers = [r.arg[0] for r in loops]
    merges = [Opt(OptOps.MERGE, outer, inner) for outer, inner in zip(numbers[-2::-1], numbers[:0:-1], strict=True)]
    return self.take(*merges, Opt(OptOps.THREAD, numbers[0], 0))

  def _two_loops(self, common: list[UOp], long: list[UOp], movable: list[UOp]) -> bool:
    """THREAD on two loops as one, the one that would be shared and the next around or inside of it, where that alone
    has too few iterations for all threads."""
    loop = long[0] if long else None
    if loop is None or loop.src[0].vmax >= self.target.threads * SHARES:
      return False
    place = common.index(loop)
    for outer, inner in ((place - 1, place), (place, place + 1)):
      if 0 <= outer and inner < len(common) and all(common[n] in movable for n in (outer, inner)):
        axis = common[outer].arg[0]
        if self.take(Opt(OptOps.MERGE, axis, common[inner].arg[0]), Opt(OptOps.THREAD, axis, 0)):
          return True
    return False

  def _piece(self, loop: UOp) -> int:
    """How many iterations of a loop inside of one that runs in order stay inside of it, so that a thread that goes
    through all of those has a run of memory in each; 0: the loop is not inside of one, or too short."""
    order = self.root.src[0].src[1:]
    size = extent(loop)
    if size is None or not any(kind(r) is AxisType.ORDER for r in order[: order.index(loop)]):
      return 0
    return next((n for n in range(VECTORS_OF_THREAD, size) if size % n == 0), 0)
