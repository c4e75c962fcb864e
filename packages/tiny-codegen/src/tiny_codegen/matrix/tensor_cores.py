"""The optimisation TC: a matrix product becomes instructions of a tensor core.

`REDUCE(ADD, a * b, k)` inside output loops i (of a alone) and j (of b alone) is computed tile by tile. The loops are
split by the descriptor; the tile goes to a LOCAL loop of its threads, each of which loads its fragments as vectors.
What is left of the reduction is `REDUCE(ADD, MMA(a, b, 0), k)` of vectors, in which the pass `reduce` lets the
instruction itself add to the accumulator; every store is written out for the elements of a thread's result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from tiny_codegen.errors import opt_error
from tiny_codegen.instructions.tensor_core import (
  MATRIX,
  PIECE_BYTES,
  ROW_BYTES,
  SWIZZLE,
  Digit,
  Fragment,
  MatrixLoad,
  SharedOperand,
  TensorCore,
)
from tiny_codegen.kernel.expressions import clauses, divisor, number, stride
from tiny_codegen.kernel.loops import (
  LOOP_LISTS,
  THREADS,
  extent,
  is_multiple,
  kind,
  loops_of,
  named_loop,
  next_loop_id,
  substitute_simplified,
)
from tiny_codegen.kernel.memory import filled_in_each, gate_of, gates_of
from tiny_codegen.lower.skip_masked_sums import bound
from tiny_codegen.staging.stage import SQUARE, Tile, is_widening, keep_tiles
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, DType, Ops, Opt, PtrDType, UOp, dtypes, simplify, sint
from tiny_uop.graph import rebuild
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Product:
  """A sum of products: `a` depends on loop `rows` and not on `columns`, `b` the other way round. What is summed is 0
  where one of the `gates` does not hold, which both factors are for. `masks` are conditions of rows and of columns, as
  causal attention has: where one does not hold its factor is taken as 0."""

  reduce: UOp
  a: UOp
  b: UOp
  gates: tuple[UOp, ...]
  masks: tuple[tuple[UOp, ...], tuple[UOp, ...]]
  rows: UOp
  columns: UOp
  depth: UOp


def use_tensor_core(root: UOp, opt: Opt, target: Target) -> UOp:
  """The kernel with the product that is summed over loop `opt.axis` done by a tensor core.

  `opt.arg` is the place of the tensor core in `target.tensor_cores` (None: the first that fits), or (place, rows,
  columns) with the ids of the output loops where there is a choice. Raises KernelOptError where none fits.
  """
  cores, loops = _candidates(root, opt, target)
  root = without_gates(root)
  depth = loops_of(root).get(-1 if opt.axis is None else opt.axis)

  def made(core: TensorCore) -> UOp | str:
    along = None if target.matrix_loads else along_sum(core, depth)
    with_tiles, tiles = keep_tiles(root, target, order=_order(core, depth, target), along=along)
    product = product_of(with_tiles, opt, loops)
    reason = _misfit(product, core, target)
    reason = reason or (_not_shared(product, core, tiles) if core.shared is not None else None)
    return reason or _kept_in_part(with_tiles, product) or _apply(with_tiles, product, core, target, tiles)

  return first_fitting(opt, ((core, made(core)) for core in cores))


def along_sum(core: TensorCore, depth: UOp | None) -> UOp | None:
  """The loop of the sum, if neighbours of a thread's numbers, four at least, go along it in both operands."""

  def goes_along(layout: Fragment, down: int, right: int) -> bool:
    row, column = layout.place(0, 0)
    places = [layout.place(0, n) for n in range(SQUARE)]
    return layout.count % SQUARE == 0 and places == [(row + n * down, column + n * right) for n in range(SQUARE)]

  return depth if core.shared is None and goes_along(core.a, 0, 1) and goes_along(core.b, 1, 0) else None


def first_fitting(opt: Opt, tried: Iterable[tuple[object, UOp | str]]) -> UOp:
  """The kernel with the first instruction that can be used; of others there is a reason instead. Raises
  KernelOptError."""
  misfits = []
  for instruction, made in tried:
    if isinstance(made, UOp):
      return made
    misfits.append(f"{instruction}: {made}")
  raise opt_error(opt, "; ".join(misfits))


def _order(core: TensorCore, depth: UOp | None, target: Target) -> Callable[[Tile], Tile] | None:
  """How tiles of the operands of a tensor core stand in local memory; None: with rows a little apart."""
  if core.shared is not None:
    return Tile.swizzled
  if depth is None or not target.matrix_loads or core.threads != LANES:
    return None
  return fragment_order(core, depth)


def _candidates(root: UOp, opt: Opt, target: Target) -> tuple[tuple[TensorCore, ...], tuple[int, ...]]:
  """The tensor cores to try, and the ids of the output loops if they are given."""
  cores = target.tensor_cores
  if not cores:
    raise opt_error(opt, "the target lists no tensor cores")
  if not target.has_local:
    raise opt_error(opt, "the target has no workgroups")
  nest = _closed_together(root, opt)
  if any(u.op is Ops.MMA and not nest.isdisjoint(u.ranges) for u in root.toposort):
    raise opt_error(opt, "the kernel uses tensor cores already")
  # the threads of a tensor core have to be neighbours, so theirs is the first counter
  if shared := [i for i, r in loops_of(root).items() if kind(r) in THREADS and r in nest]:
    raise opt_error(opt, f"loops {shared} are shared by the threads of a workgroup already: TC comes first")
  arg = opt.arg if isinstance(opt.arg, tuple) else () if opt.arg is None else (opt.arg,)
  if len(arg) not in (0, 1, 3):
    raise opt_error(opt, "expected a tensor core, or (tensor core, loop of the rows, loop of the columns)")
  if arg and not 0 <= arg[0] < len(cores):
    raise opt_error(opt, f"the target has no tensor core {arg[0]}: it lists {', '.join(map(str, cores))}")
  return (cores[arg[0] : arg[0] + 1] if arg else cores), tuple(arg[1:])


def _closed_together(root: UOp, opt: Opt) -> frozenset[UOp]:
  """The loops that are closed where the sum over loop `opt.axis` is stored. Of a kernel that is written as nests in
  order, threads run each nest by itself."""
  depth = loops_of(root).get(-1 if opt.axis is None else opt.axis)
  around = frozenset([r for u in root.toposort if u.op is Ops.REDUCE and depth in u.src[1:] for r in u.ranges])
  ends = [u for u in root.toposort if u.op is Ops.END and not around.isdisjoint(u.src[1:])]
  effects = {u: u.src[0].src if u.src[0].op is Ops.GROUP else u.src[:1] for u in ends}
  nests = [u for u in ends if all(s.op is Ops.STORE for s in effects[u])]
  return frozenset([r for u in nests or ends for r in u.src[1:]])


def without_gates(root: UOp) -> UOp:
  """The kernel with sums of products that have no gate where both factors are 0 behind it: they are staged loads, and
  what is staged has the gate."""

  def change(_: UOp, u: UOp) -> UOp | None:
    if u.op is not Ops.REDUCE or not _is_padded(u.src[0]):
      return None
    gate, product = u.src[0].src[:2]
    inside = _narrow(product)
    if inside.op is Ops.MUL and all(set(clauses(gate)) <= _gates_of_staged(s) for s in inside.src):
      return u.replace(src=(product, *u.src[1:]))
    return None

  return rebuild(root, change)


def _narrow(value: UOp) -> UOp:
  """A value before it was widened."""
  return _narrow(value.src[0]) if is_widening(value) else value


def _gates_of_staged(factor: UOp) -> set[UOp]:
  """The clauses without which a staged load is 0."""
  factor = _narrow(factor)
  load = factor.src[0] if factor.op is Ops.STAGE else factor
  staged = factor.op is Ops.STAGE and load.op is Ops.LOAD and len(load.src) == 1
  return set(gates_of(load)) if staged else set()


# *** recognition ***


def product_of(root: UOp, opt: Opt, wanted: tuple[int, ...]) -> Product:
  depth = named_loop(root, opt, AxisType.REDUCE)
  closers = closers_of(root, depth)
  if len(closers) != 1 or closers[0].op is not Ops.REDUCE:
    names = ", ".join(u.op.name for u in closers)
    raise opt_error(opt, f"loop {opt.axis} belongs to {names}, expected one REDUCE")
  reduce = closers[0]
  found = _factors(reduce)
  if found is None:
    raise opt_error(opt, f"expected the sum of a product, got REDUCE({reduce.arg[0].name}, {reduce.src[0].op.name})")
  (a, b), gates = found
  rows, columns = _output_loops(root, opt, a, b, wanted)
  if rows not in a.ranges:
    a, b = b, a
  conditions = [c for gate in gates for c in clauses(gate)]
  if any(rows in c.ranges and columns in c.ranges for c in conditions):
    raise opt_error(opt, f"what is summed is gated by loop {rows.arg[0]} and loop {columns.arg[0]} together")
  of_rows, of_columns = (tuple([c for c in conditions if r in c.ranges]) for r in (rows, columns))
  of_both = tuple([c for c in conditions if c not in of_rows and c not in of_columns])
  return Product(reduce, a, b, of_both, (of_rows, of_columns), rows, columns, depth)


def closers_of(root: UOp, loop: UOp) -> list[UOp]:
  return [u for u in root.toposort if u.op in LOOP_LISTS and loop in u.src[1:]]


def _factors(reduce: UOp) -> tuple[tuple[UOp, UOp], tuple[UOp, ...]] | None:
  """Both factors of the product that is summed, and the gates where it is 0; None if it is something else.

  A product that is made in a narrower float type than the sum counts: the tensor core does not round it, which is
  closer to the truth.
  """
  value, gates = reduce.src[0], []
  while True:
    if _is_padded(value):
      gates.append(value.src[0])
      value = value.src[1]
    elif is_widening(value) and dtypes.is_float(value.src[0].dtype):
      value = value.src[0]
    else:
      break
  if reduce.arg[0] is not Ops.ADD or value.op is not Ops.MUL or value.dtype.count > 1:
    return None
  return (value.src[0], value.src[1]), tuple(gates)


def _output_loops(root: UOp, opt: Opt, a: UOp, b: UOp, wanted: tuple[int, ...]) -> tuple[UOp, UOp]:
  """The loops of rows and columns: those asked for, or the innermost that one factor alone depends on."""
  order = list(dict.fromkeys(r for u in root.toposort if u.op is Ops.END for r in u.src[1:]))
  output = [r for r in order if kind(r) is AxisType.LOOP and (not wanted or r.arg[0] in wanted)]
  alone = [[r for r in output if r in x.ranges and r not in y.ranges] for x, y in ((a, b), (b, a))]
  if not all(alone):
    asked = f" among loops {wanted}" if wanted else ""
    raise opt_error(opt, f"expected an output loop{asked} for each factor that the other does not depend on")
  pair = sorted((alone[0][-1], alone[1][-1]), key=lambda r: wanted.index(r.arg[0]) if wanted else order.index(r))
  for closer in closers_of(root, pair[0]) + closers_of(root, pair[1]):
    if closer.op is not Ops.END or not all(r in closer.src[1:] for r in pair):
      ids = " and ".join(str(r.arg[0]) for r in pair)
      raise opt_error(opt, f"{closer.op.name} names one of loops {ids}: expected them around the same effects only")
  return pair[0], pair[1]


# *** does it fit? ***


def _misfit(product: Product, core: TensorCore, target: Target) -> str | None:
  """Why a tensor core cannot do it, None if it can."""
  if product.reduce.dtype is not core.dtype_out:
    return f"the sum is a {product.reduce.dtype.name}, expected {core.dtype_out.name}"
  for factor in (product.a, product.b):
    if exactly_as(factor, core.dtype_in) is None:
      given = factor.src[0] if factor.op is Ops.CAST else factor
      return f"a factor is a {given.dtype.name}, expected {core.dtype_in.name}"
  natural = core.dtype_in in target.native_dtypes or core.dtype_in.itemsize == 1  # bytes are moved as they are
  if not natural or core.dtype_out not in target.native_dtypes:
    return f"the target has no registers of {core.dtype_in.name} or of {core.dtype_out.name}"
  if core.threads > target.limits.max_workgroup or core.threads > target.limits.max_local[0]:
    most = min(target.limits.max_workgroup, target.limits.max_local[0])
    return f"{core.threads} threads, the target has workgroups of up to {most}"
  n, m, k = core.dims
  for name, loop, multiple in (("rows", product.rows, m), ("columns", product.columns, n), ("sum", product.depth, k)):
    if not is_multiple(loop, multiple):
      size = loop.src[0].render()
      return f"loop {loop.arg[0]} ({name}) has extent {size}, expected a multiple of {multiple}: PADTO first"
  return None


def _kept_in_part(root: UOp, product: Product) -> str | None:
  """What is kept in local memory is there for all of a tile at once: why it is not, None if it is."""
  for loop in (product.rows, product.columns, product.depth):
    if filled_in_each(root, loop):
      return f"each iteration of loop {loop.arg[0]} fills the same local memory: STAGE has to be over that loop, too"
  return None


def exactly_as(factor: UOp, dtype: DType) -> UOp | None:
  """A factor as a value of another type, if that is exact."""
  if factor.dtype is dtype:
    return factor
  if is_widening(factor) and dtypes.can_lossless_cast(factor.src[0].dtype, dtype):
    return factor.src[0].cast(dtype)
  if _is_padded(factor) and (inside := exactly_as(factor.src[1], dtype)) is not None:
    return factor.src[0].where(inside, inside.const_like(0))
  return None


def made_of(factor: UOp) -> DType:
  """The type of the numbers that a factor is made of, before they are converted and padded with 0."""
  while factor.op is Ops.CAST or _is_padded(factor):
    factor = factor.src[0 if factor.op is Ops.CAST else 1]
  return factor.dtype


def _is_padded(value: UOp) -> bool:
  return value.op is Ops.WHERE and value.src[2].op is Ops.CONST and value.src[2].arg == 0


def _not_shared(product: Product, core: TensorCore, tiles: dict[UOp, Tile]) -> str | None:
  """Why a tensor core that reads its operands from local memory cannot, None if it can."""
  if product.gates or any(product.masks):
    return "what is summed is gated, expected operands that are 0 where there is nothing"
  for factor, loops in ((product.a, (product.rows, product.depth)), (product.b, (product.columns, product.depth))):
    tile = tiles.get(operand) if (operand := exactly_as(factor, core.dtype_in)) is not None else None
    if tile is None or tile.swizzle != SWIZZLE or {a.place for a in tile.axes} != set(loops):
      return f"a factor is not in local memory in rows of a multiple of {SWIZZLE} bytes: STAGE first"
  return None


# *** rewriting ***


@dataclass(frozen=True)
class Split:
  """A loop cut into tiles: where the tile starts, and the loops (one or none) over the tiles."""

  start: UOp
  loops: tuple[UOp, ...]

  @staticmethod
  def of(loop: UOp, size: int) -> Split:
    tiles = UOp.range(simplify(loop.src[0] // size), loop.arg[0], kind(loop))
    if tiles.src[0].op is Ops.CONST and tiles.src[0].arg == 1:
      return Split(number(0), ())
    return Split(tiles * size, (tiles,))


def _apply(root: UOp, product: Product, core: TensorCore, target: Target, tiles: dict[UOp, Tile]) -> UOp:
  n, m, k = core.dims
  splits = {r: Split.of(r, size) for r, size in ((product.rows, m), (product.columns, n), (product.depth, k))}
  thread = UOp.range(core.threads, next_loop_id(root), AxisType.LOCAL)

  def as_bits(value: UOp) -> UOp:
    """Floats of 8 bits, which the target may not compute with, as bytes."""
    if core.dtype_in in target.native_dtypes:
      return value
    return value.bitcast(dtypes.uint8.vec(value.dtype.count) if value.dtype.count > 1 else dtypes.uint8)

  def fragment(value: UOp, layout: Fragment, down: UOp, right: UOp, masks: tuple[UOp, ...]) -> UOp:
    operand = exactly_as(value, core.dtype_in)
    assert operand is not None
    places = _places(layout, thread, splits, down, right)

    def masked(elements: list[UOp]) -> UOp:
      for mask in masks:
        conditions = [substitute_simplified(mask, at) for at in places]
        elements = [c.where(e, e.const_like(0)) for c, e in zip(conditions, elements)]
      vector = UOp(Ops.VECTORIZE, elements[0].dtype.vec(len(elements)), tuple(elements))
      return as_bits(vector if len(elements) > 1 else elements[0])

    if not product.gates and target.matrix_loads and core.threads == LANES:

      def at(x: UOp, row: sint, column: sint) -> UOp:
        return substitute_simplified(x, {down: splits[down].start + row, right: splits[right].start + column})

      if (loaded := matrix_load(operand, layout, thread, down, right, at, tiles.get(operand))) is not None:
        return masked([loaded.extract(n) for n in range(layout.count)]) if masks else as_bits(loaded)
    for gate in product.gates:
      operand = gate.where(operand, operand.const_like(0))
    return masked([substitute_simplified(operand, at) for at in places])

  def in_place(value: UOp, side: UOp) -> tuple[UOp, SharedOperand]:
    operand = exactly_as(value, core.dtype_in)
    assert operand is not None
    tile = tiles[operand]
    starts = {side: splits[side].start, product.depth: splits[product.depth].start}
    along_sum = tile.axes[-1].place is product.depth
    return substitute_simplified(operand.src[0], starts), SharedOperand(along_sum, tile.sizes[0] * SWIZZLE)

  if core.shared is None:
    a = fragment(product.a, core.a, product.rows, product.depth, product.masks[0])
    b = fragment(product.b, core.b, product.depth, product.columns, product.masks[1])
  else:
    (a, of_a), (b, of_b) = in_place(product.a, product.rows), in_place(product.b, product.columns)
    core = replace(core, shared=(of_a, of_b))
  dtype = core.dtype_out.vec(core.c.count)
  tile = UOp(Ops.MMA, dtype, (a, b, UOp.const(dtype, 0)), core)
  total = tile.reduce(Ops.ADD, *split_loops(product.reduce, splits))
  places = _places(core.c, thread, splits, product.rows, product.columns)

  def written_out(end: UOp) -> UOp:
    elements = [total.extract(e) if core.c.count > 1 else total for e in range(core.c.count)]
    copies = [substitute_simplified(end.src[0], {product.reduce: e, **at}) for e, at in zip(elements, places)]
    return UOp.group(*copies).end(*split_loops(end, splits), thread)

  root = root.substitute({end: written_out(end) for end in closers_of(root, product.rows)})
  around = (product.rows, product.columns, product.depth)
  return root.substitute(limited_loops(product.reduce.src[1:], around, (*product.masks[0], *product.masks[1])))


def _places(layout: Fragment, thread: UOp, splits: dict[UOp, Split], down: UOp, right: UOp) -> list[dict[UOp, UOp]]:
  """For each element of a thread the values of the loops that go down and right."""
  found = []
  for element in range(layout.count):
    row, column = layout.place(thread, element)
    found.append({down: splits[down].start + row, right: splits[right].start + column})
  return found


def split_loops(closer: UOp, splits: dict[UOp, Split]) -> list[UOp]:
  return [new for r in closer.src[1:] for new in (splits[r].loops if r in splits else (r,))]


# *** masks ***
# How far the sum of a tile goes whose terms a mask of positions hides: no further than any of its rows needs.
#
# The mask `k < row + 1` of causal attention, in steps of 32 for tiles of 128 rows `step * 32 + k < tile * 128 + row +
# 1`, can hold only where `step * 32 < tile * 128 + 128`: there are no more steps than that. All threads of a workgroup
# have to take as many, so loops that the limit depends on are not for threads (`check_workgroup`).


def limited_loops(loops: Sequence[UOp], tile: Collection[UOp], masks: Sequence[UOp]) -> dict[UOp, UOp]:
  """For each of the `loops` of a sum that a mask ends early, the same with fewer iterations; `tile` are the loops over
  what is computed together."""
  changes: dict[UOp, UOp] = {}
  for mask in masks:
    for loop in loops:
      size = extent(loop)
      most = _most(mask, loop, tile) if loop not in tile and loop not in changes and size is not None else None
      if size is not None and most is not None and most.ranges.isdisjoint(loops):
        needed = simplify(most.maximum(number(0)).minimum(number(size)))
        if extent(shorter := UOp.range(needed, *loop.arg)) != size:
          changes[loop] = shorter
  return changes


def _most(mask: UOp, loop: UOp, tile: Collection[UOp]) -> UOp | None:
  """The iterations after which a mask holds nowhere in a tile; None where that is unknown."""
  if mask.op is not Ops.CMPLT or mask.src[0].dtype.kind != "index":
    return None
  left, right = mask.src
  step = stride(simplify(left - right), loop)
  if step is None or step <= 0:
    return None
  limit = simplify(right - left + loop * step)  # loop * step < limit
  most = bound(limit, least=False, tile=tile)
  if most is None or any(kind(r) is not AxisType.LOOP for r in most.ranges):
    return None
  return simplify((most + (step - 1)) // step)


# *** fragments ***
# Fragments of tensor cores that a warp loads from local memory together.


LANES = 32
BYTES_OF_WORD = 4
Placing = Callable[[UOp, sint, sint], UOp]
"""An operand at a row and a column of a fragment."""


def fragment_order(core: TensorCore, depth: UOp) -> Callable[[Tile], Tile]:
  """How a tile has to stand in local memory so that the threads of a warp read fragments of it, and copies of 16 bytes
  write it, without two of them in one bank.

  Loaded as matrices: eight rows of 16 bytes. Element by element, where what is adjacent does not go along the sum:
  eight neighbours of each of four rows, which are next to each other, or for bytes four apart.
  """

  def order(tile: Tile) -> Tile:
    size = tile.value.dtype.itemsize
    along = bool(tile.axes) and tile.axes[-1].place is depth
    if tile.value.dtype is not core.dtype_in or size > BYTES_OF_WORD and along:
      return tile.skewed()
    if along or size == BYTES_OF_WORD // 2:
      moved = tile.swizzled(2 * ROW_BYTES)
    else:
      moved = tile.swizzled(4 * ROW_BYTES, every=4) if size == 1 else tile.skewed(2 * ROW_BYTES)
    return moved if moved.swizzle or moved.skew else tile.skewed()

  return order


def matrix_load(
  operand: UOp, layout: Fragment, thread: UOp, down: UOp, right: UOp, at: Placing, tile: Tile | None
) -> UOp | None:
  """A fragment of `operand`, over loops `down` and `right`, as a LOAD of all threads; None where it is no such thing.

  Each thread's elements have to be pieces of 4 bytes along one direction, as the manual's figures for ldmatrix have
  them, and one of the directions adjacent in local memory. `at(x, row, column)` is x at a place of the fragment; `tile`
  is what is read, if that is known.
  """
  if operand.op is not Ops.LOAD or gate_of(operand) is not None or operand.arg is not None:
    return None
  pointer, size = operand.src[0].dtype, operand.dtype.itemsize
  matrices = _matrices(layout, PIECE_BYTES // size)
  if matrices is None or not isinstance(pointer, PtrDType) or pointer.space is not AddrSpace.LOCAL:
    return None
  by_columns, digits = matrices
  along, across = (right, down) if by_columns else (down, right)
  offset = operand.src[0].src[1]
  if tile is not None and tile.swizzle:
    place = tile.axes[-1].place
    steps = (1 if place is along else None), (1 if place is across else None)
  else:
    steps = stride(offset, along), stride(offset, across)
  if steps[0] == 1:
    transposed = False
  elif steps[1] == 1 and size == 2:
    transposed = True
  else:
    return None
  count = 1 << len(digits)
  row, column = Fragment((), digits).place(0, thread // MATRIX % count)
  # the rows that are loaded go across where they are not transposed, else along
  if transposed == by_columns:
    column = column + thread % MATRIX
  else:
    row = row + thread % MATRIX
  index = simplify(at(operand.src[0], row, column))
  if divisor(index.src[1]) * size % ROW_BYTES:
    return None
  return UOp(Ops.LOAD, operand.dtype.vec(layout.count), (index,), MatrixLoad(count, transposed))


def _matrices(layout: Fragment, piece: int) -> tuple[bool, tuple[Digit, ...]] | None:
  """(whether pieces of so many elements go along columns, the digits of the elements that count matrices) of a fragment
  whose matrices are loaded whole; None for another."""
  for by_columns in (True, False):

    def towards(size: int, step: int, along: bool, by_columns: bool = by_columns) -> Digit:
      return (size, 0, step) if along == by_columns else (size, step, 0)

    inside = (towards(piece, 1, True),) if piece > 1 else ()
    if layout.threads != (towards(4, piece, True), towards(MATRIX, 1, False)):
      continue
    digits = layout.elements[len(inside) :]
    if layout.elements[: len(inside)] == inside and len(digits) <= 2 and all(size == 2 for size, _, _ in digits):
      return by_columns, digits
  return None
