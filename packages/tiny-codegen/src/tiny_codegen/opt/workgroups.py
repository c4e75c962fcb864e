"""Hand-written choice of optimisations for a device with workgroups: many threads that run together and share memory.

1. A sum of products gets square tiles: each thread has a register tile, a workgroup a tile of those, whose operands it
   reads into shared memory together, some steps of the sum at a time (Volkov and Demmel, "Benchmarking GPUs to tune
   dense linear algebra", 2008).
2. A long reduction is shared by the threads of a workgroup (GROUP): where its loop is adjacent in memory, so that
   neighbouring threads read neighbouring elements, as many of them as one access takes; and where there are too few
   results to keep a device busy. One subgroup has a result to itself where there are enough: it needs no barrier.
3. Loops over which a reduction would be done again (the elements of a row that is normalised) go to the same threads
   that have done it together.
4. Of all other output loops the one that is adjacent in memory becomes the threads of a workgroup, and the ones around
   it while there is room.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import extent, iterations, kind, loops_of, next_loop_id, size_of
from tiny_codegen.kernel.memory import gates_of
from tiny_codegen.kernel.sum_of_products import Operand, SumOfProducts
from tiny_codegen.lower.workgroups import RECOMPUTED
from tiny_codegen.opt.apply import OptList
from tiny_codegen.opt.im2col import as_one_product
from tiny_codegen.opt.tensor_cores import choose_tensor_core
from tiny_codegen.opt.transpose import transpose_tile
from tiny_codegen.opt.vector_cost import nodes_of_body
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, Opt, OptOps, UOp
from tiny_uop.records import dataclass

WANTED = 64  # threads in a workgroup
MOST_THREADS = 256  # where one has a long sum to itself
LARGEST = 1024  # and where there are so few sums that each needs more
COLUMNS, SHARING_THREADS = 32, 16  # threads beside each other in sums of columns, and those that share one
WARP = 32  # threads that run in step on most hardware
SHORT = 8  # terms beside each other, from which on a part of a subgroup shares them: one thread's would be a sector
BUSY = 2048  # results that keep a device busy without sharing their sums
FULL = 1 << 16  # threads that keep a large device busy
ENOUGH = 128  # workgroups that do
TERMS = 4  # of a sum, that each thread should have at least
KEPT = 32  # elements of a row that a thread keeps in registers until it needs them again
SECTOR = 32  # bytes that memory gives at least
REGISTER_ROWS = (4, 2)  # rows or columns of a register tile
SIDES = (16, 8, 4)  # threads along one side of a tile
MANY = 64  # tiles that keep a device busy
STEPS = (16, 8)  # of a sum, that are in shared memory at a time
LARGE = 1 << 16  # results of which each thread may have several
UNROLLED, UNROLLED_NODES = 8, 160  # iterations of a loop that is written out, and nodes they become


@dataclass(frozen=True)
class Sizes:
  """What the choice goes by, where a search tries others: threads of a workgroup, those that share a sum (0: as many as
  pay), and of tiles of products rows and columns of a thread's, threads along a side, and steps of the sum."""

  wanted: int = WANTED
  sharing: int = 0
  registers: tuple[int, ...] = REGISTER_ROWS
  sides: tuple[int, ...] = SIDES
  steps: tuple[int, ...] = STEPS


def choose_group_opts(root: UOp, target: Target) -> tuple[Opt, ...]:
  """The optimisations for a kernel on a target with workgroups."""
  return choose_with(GroupChooser(root, target))


def choose_with(chooser: GroupChooser) -> tuple[Opt, ...]:
  """What a chooser chooses."""
  if not chooser.product() and not chooser.transpose():
    chooser.reductions()
    chooser.unroll()
    chooser.vectors()
    chooser.spread()
  return tuple(chooser.opts)


@dataclass
class GroupChooser(OptList):
  """OptList for a target with workgroups."""

  threads: int = 1
  """In a workgroup, so far."""
  sizes: Sizes = Sizes()

  def outputs(self) -> list[UOp]:
    """Output loops around all effects."""
    ends = self.root.src
    if not ends or any(e.op is not Ops.END for e in ends):
      return []
    return [r for r in ends[0].src[1:] if kind(r) is AxisType.LOOP and all(r in e.src[1:] for e in ends)]

  def most(self, amount: int) -> int:
    """So many threads, or as many as the target has along one axis."""
    return min(amount, self.target.limits.max_workgroup // self.threads, self.target.limits.max_local[0])

  def transpose(self) -> bool:
    """Read a copy that is transposed in squares; False where it is none."""
    opts = transpose_tile(self.root, self.target)
    return bool(opts) and self.attempt(lambda: self.take(*opts) and self.fits())

  # *** reductions ***

  def reductions(self) -> None:
    """GROUP on long reductions, and LOCAL on the loops that would do them again."""
    reduces = [u for u in self.root.toposort if u.op is Ops.REDUCE and iterations(u.src[1:]) > RECOMPUTED]
    outputs = self.outputs()
    again = [r for r in outputs if any(r not in u.ranges for u in reduces)]
    results = iterations(r for r in outputs if r not in again)
    shared = [(u, loop) for u in reduces if (loop := self._shared_loop(u, bool(again), results)) is not None]
    if not again and reduces and self._columns(reduces, outputs, results):
      return
    if not shared:
      return
    loops = list(dict.fromkeys(loop for _, loop in shared))
    last = self._adjacent(again) if again else None
    lanes = min(self._lanes(loop) for loop in (*loops, *([last] if last is not None else [])))
    terms = max(iterations(u.src[1:]) for u, _ in shared)
    length = max(size_of(loop) for loop in loops)
    if any((extent(loop) or 1) % lanes for loop in loops):
      lanes = 1
    amount = self._group_size(length // lanes, terms / lanes, results, lanes if again else 0)
    # the threads that have added up a row go on with its elements
    for op, loop in (*[(OptOps.GROUP, loop) for loop in loops], *([(OptOps.LOCAL, last)] if last is not None else [])):
      if lanes > 1 and (extent(loop) or 1) % lanes == 0:
        self.take(Opt(OptOps.VECTOR, loop.arg[0], lanes))
      self.split(op, loop.arg[0], amount)
    self.threads = amount
    # written out, as its sums will be, so that they go through the same registers
    if last is not None and 1 < (extent(loops_of(self.root).get(last.arg[0], last)) or 0) <= UNROLLED:
      self.take(Opt(OptOps.UPCAST, last.arg[0], 0))

  def _lanes(self, loop: UOp) -> int:
    """Elements that each thread may read, or write, in one access along a loop; 1 where they are not beside each
    other."""
    nodes = [u for u in self.root.toposort if u.op in (Ops.LOAD, Ops.STORE) and loop in u.ranges]
    adjacent = all(stride(u.src[0].src[1], loop) == 1 and not gates_of(u) for u in nodes)
    return self._of_accesses(nodes) if adjacent else 1

  def _of_accesses(self, accesses: Iterable[UOp]) -> int:
    """Elements that all of some LOADs and STOREs may read or write at once."""
    return min([self.target.lanes((u if u.op is Ops.LOAD else u.src[1]).dtype) for u in accesses], default=1)

  def _shared_loop(self, reduce: UOp, again: bool, results: float) -> UOp | None:
    """The loop of a reduction that threads should share, None if each is better off on its own."""
    loads = [u for u in reduce.src[0].toposort if u.op is Ops.LOAD]
    loops = [r for r in reduce.src[1:] if kind(r) is AxisType.REDUCE and not r.src[0].ranges]
    adjacent = [r for r in loops if any(stride(u.src[0].src[1], r) == 1 for u in loads)]
    long = [r for r in loops if size_of(r) >= (SHORT if self.target.subgroup else WARP)]
    if any(r in long for r in adjacent):
      return max((r for r in adjacent if r in long), key=lambda r: size_of(r))
    long = [r for r in long if size_of(r) >= WARP]
    if not long or not (again or results * WARP < BUSY):
      return None
    return max(long, key=lambda r: size_of(r))

  def _columns(self, reduces: list[UOp], outputs: list[UOp], results: float) -> bool:
    """LOCAL and GROUP for sums whose terms are far apart, while those of neighbouring sums are beside each other:
    neighbouring threads have neighbouring sums, and other threads a part of their terms. False for other sums."""
    loads = [u for reduce in reduces for u in reduce.src[0].toposort if u.op is Ops.LOAD]
    beside = next((r for r in outputs if any(stride(u.src[0].src[1], r) == 1 for u in loads)), None)
    common = [r for r in reduces[0].src[1:] if extent(r) is not None and all(r in u.src[1:] for u in reduces)]
    loop = max(common, key=lambda r: extent(r) or 0, default=None)
    if beside is None or loop is None or any(stride(u.src[0].src[1], r) == 1 for u in loads for r in common):
      return False
    size, terms, threads = extent(beside) or 0, extent(loop) or 0, 1
    while threads < SHARING_THREADS and results * threads < FULL and threads * 4 * TERMS <= terms:
      threads *= 2
    side, least = COLUMNS, SECTOR // max(u.dtype.itemsize for u in loads)
    while side > least and results / side < ENOUGH:
      side //= 2
    if size < side or threads == 1:
      return False
    self.split(OptOps.LOCAL, beside.arg[0], side)
    self.threads = side
    threads = self.most(threads)
    self.split(OptOps.GROUP, loop.arg[0], threads)
    self.threads *= threads
    return True

  def _group_size(self, length: int, terms: float, results: float, again: int) -> int:
    """Threads for a sum of so many terms, so many of which are along the loop that they share. What is read again, in
    pieces of `again` elements (0: nothing is), should stay in their registers."""
    amount = self.sizes.sharing
    if amount:
      return self.most(min(amount, length))
    amount = self.target.subgroup
    if amount:
      while (
        amount < LARGEST
        and amount * 2 <= length
        and ((amount * results < FULL and amount * 2 * TERMS <= terms) or length * again > amount * KEPT)
      ):
        amount *= 2
      while amount > length:
        amount //= 2
      return self.most(amount)
    amount = MOST_THREADS if results * WANTED < BUSY else WANTED
    while amount > WARP and amount * TERMS > length:
      amount //= 2
    return self.most(amount)

  def unroll(self) -> None:
    """UNROLL short reduce loops."""
    for id, loop in loops_of(self.root).items():
      size = extent(loop) or 0
      if kind(loop) is AxisType.REDUCE and 1 < size <= UNROLLED:
        if nodes_of_body(self.root, loops_of(self.root)[id]) * size <= UNROLLED_NODES:
          self.take(Opt(OptOps.UNROLL, id, 0))

  # *** outputs ***

  def vectors(self) -> None:
    """VECTOR on the adjacent loop of a large kernel without sums: each thread reads and writes as much as one access
    can, neighbours beside each other."""
    nodes, outputs = self.root.toposort, self.outputs()
    if not outputs or any(u.op in (Ops.REDUCE, Ops.STAGE) for u in nodes) or iterations(outputs) < LARGE:
      return
    loop = self._adjacent(outputs)
    accesses = [u for u in nodes if u.op in (Ops.LOAD, Ops.STORE)]
    lanes = self._of_accesses(accesses)
    steps = {stride(u.src[0].src[1], loop) for u in accesses}
    gated = any(loop in gate.ranges for u in accesses for gate in gates_of(u))
    if lanes > 1 and steps <= {0, 1} and 1 in steps and not gated and (extent(loop) or 1) % lanes == 0:
      self.take(Opt(OptOps.VECTOR, loop.arg[0], lanes))

  def spread(self) -> None:
    """LOCAL on output loops, from the one that is adjacent in memory outwards, until a workgroup has threads enough."""
    reduces = [u for u in self.root.toposort if u.op is Ops.REDUCE and iterations(u.src[1:]) > RECOMPUTED]
    free = [r for r in self.outputs() if all(r in u.ranges for u in reduces)]
    while free and self.threads * 2 <= self.sizes.wanted:
      loop = self._adjacent(free)
      amount = self.most(threads_for(size_of(loop), self._room(free)))
      free.remove(loop)
      if amount > 1 and self.split(OptOps.LOCAL, loop.arg[0], amount) is not None:
        self.threads *= amount

  def _room(self, free: list[UOp]) -> int:
    """How many results a workgroup should have of those of loops: threads enough for its size. Where several threads
    have a result together, no more than fill a subgroup, unless there are so many that all workgroups get some."""
    room = self.sizes.wanted // self.threads
    if self.threads == 1:
      return room
    fill = -(-(self.target.subgroup or WARP) // self.threads)
    return min(room, max(fill, int(iterations(free)) // ENOUGH))

  def _adjacent(self, loops: Iterable[UOp]) -> UOp:
    """The loop that moves least in memory: in what is written, else in what is read."""
    nodes = self.root.toposort

    def step(op: Ops, loop: UOp) -> float:
      found = [stride(u.src[0].src[1], loop) for u in nodes if u.op is op]
      return max((abs(s) if s else float("inf") for s in found), default=float("inf"))

    return min(loops, key=lambda r: (step(Ops.STORE, r), step(Ops.LOAD, r), -r.arg[0]))

  # *** sums of products ***

  def product(self) -> bool:
    """Tile a sum of products; False where it is none, or too small."""
    found = SumOfProducts.of(self.root)
    if found is None:
      return False
    cores = self.target.tensor_cores
    if cores and self.attempt(lambda: choose_tensor_core(self, as_one_product(self, found))):
      return True
    sides = [self._side(found, operand) for operand in found.operands]
    if sides[0] is None or sides[1] is None:
      return False
    # the side that is adjacent in the result comes first: neighbouring threads write neighbouring elements
    first = self._adjacent([sides[0], sides[1]])
    loops = sorted((sides[0], sides[1]), key=lambda r: r is not first)
    tiled = self.attempt(lambda: all(self._tile(loop.arg[0], found) for loop in loops))
    if tiled:
      self._keep_operands(found)
    return tiled

  def _side(self, found: SumOfProducts, operand: Operand) -> UOp | None:
    """The loop of an operand that one side of the tiles goes along."""
    loops = [r for r in found.own_loops(operand) if size_of(r) >= SIDES[-1]]
    return max(loops, key=lambda r: size_of(r), default=None)

  def _tile(self, loop: int, found: SumOfProducts) -> bool:
    size = int(loops_of(self.root)[loop].src[0].vmax)
    sides, registers = self.sizes.sides, self.sizes.registers
    enough = found.outputs / (sides[0] * registers[0]) ** 2 >= MANY
    side = next(s for s in sides if (s <= size and (enough or s < sides[0])) or s == sides[-1])
    if self.split(OptOps.LOCAL, loop, side) is None:
      return False
    self.threads *= side
    rest = extent(loops_of(self.root).get(loop, self.root)) if loop in loops_of(self.root) else 1
    for rows in registers:
      if rest is not None and (rest % rows == 0 or rest >= 8 * rows):
        return self.split(OptOps.UPCAST, loop, rows) is not None
    return True

  def _keep_operands(self, found: SumOfProducts) -> None:
    """Both operands in shared memory, for some steps of the sum."""
    summed = [r.arg[0] for r in found.reduce.src[1:]]
    loop = max(summed, key=lambda i: int(loops_of(self.root)[i].src[0].vmax))
    size = extent(loops_of(self.root)[loop])
    steps = next((s for s in self.sizes.steps if size is not None and size % s == 0 and size > s), None)
    if steps is not None:
      inner = (next_loop_id(self.root),)
      opts = [Opt(OptOps.SPLIT, loop, steps), *[Opt(OptOps.STAGE, o.slot, inner) for o in found.operands]]
      self.attempt(lambda: self.take(*opts) and self.fits())


def threads_for(size: int, most: int) -> int:
  """How many threads should share a loop: few of them idle, in the loop's last part or in a warp's."""
  if size <= most:
    return size
  choices = [n for n in range(max(most // 2, 1), most + 1) if size % n == 0 or n & (n - 1) == 0]

  def waste(n: int) -> float:
    return -(-size // n) * (-(-n // WARP) * WARP if n > WARP // 2 else n) / size

  return min(choices, key=lambda n: (waste(n), -n), default=most)
