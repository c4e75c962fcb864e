"""Pass: register tiles of a sum of dot products become matrix instructions of a processor, as AMX of x86 has them.

    for k: total[i, j] += dot(a[i, k], b[k, j])        # i written out, lanes j

becomes, with all of i, j and k in tiles,

    for K: for I, J: Total[I, J] += A[I, K] × B[K, J]  # I and J written out, so that each A and B is read once for all
    near[I, J] = Total[I, J]
    … near[i, j] …                                     # by vectors along j, i a loop

The accumulators stay in tile registers, and what is computed of them afterwards reads local memory. A tile's rows may
be any distance apart, but the words of a row are neighbours: of `a` along the sum, of `b` along the lanes, as packing
leaves them. Where a sum is not of this form its dot products are done one by one, if the target has them, or else as
what they mean.
"""

from __future__ import annotations

import math

from tiny_codegen.instructions.dot_product import MatrixProduct, TileRows
from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.loops import extent, in_order, kind, next_loop_id, replace_loop
from tiny_codegen.kernel.memory import next_alloc_id
from tiny_codegen.target import Target
from tiny_uop import AddrSpace, AxisType, Ops, UOp, simplify
from tiny_uop.graph import rebuild
from tiny_uop.records import dataclass


def lower_matrices(root: UOp, target: Target) -> UOp:
  """The kernel with tiles in place of words in the products of matrix instructions."""
  for u in root.toposort:
    if u.op is Ops.REDUCE and _is_words(u.src[0]):
      tiles = MatrixTiles.of(u)
      if tiles is not None and u.src[0].arg in dict(target.dot_products):
        return lower_matrices(tiles.lower(root), target)
  return _one_by_one(root, target)


def in_tiles(root: UOp) -> bool:
  """Whether all products of matrix instructions are ones that they can do."""
  return all(MatrixTiles.of(u) is not None for u in root.toposort if u.op is Ops.REDUCE and _is_words(u.src[0]))


def has_words(root: UOp) -> bool:
  """Whether there is a product of matrix instructions."""
  return any(map(_is_words, root.toposort))


def _is_words(u: UOp) -> bool:
  return u.op is Ops.MMA and isinstance(u.arg, MatrixProduct) and u.dtype.count == 1


def _one_by_one(root: UOp, target: Target) -> UOp:
  listed = dict(target.dot_products)

  def change(_: UOp, u: UOp) -> UOp | None:
    if not _is_words(u):
      return None
    return u.replace(arg=u.arg.single) if u.arg.single in listed else u.arg.meaning(*u.src)

  return rebuild(root, change)


@dataclass(frozen=True)
class MatrixTiles:
  """A sum of products of words that are read along `rows` and `lanes`, with the loop of the sum that goes through the
  words of a tile."""

  total: UOp
  rows: UOp
  lanes: UOp
  depth: UOp

  @staticmethod
  def of(total: UOp) -> MatrixTiles | None:
    """The sum as one of tiles; None if it is not of this form."""
    (a, b, c), how = total.src[0].src, total.src[0].arg
    if any(u.op is not Ops.LOAD or len(u.src) > 1 or len(u.src[0].src) > 2 for u in (a, b)) or c.op is not Ops.CONST:
      return None
    rows = _own(a, b, AxisType.UPCAST, how.rows)
    lanes = _own(b, a, AxisType.VECTOR, how.lanes)
    depth = next((r for r in total.src[1:] if (extent(r) or 1) % how.words == 0 and _step(a, r) == 1), None)
    if rows is None or lanes is None or depth is None or _step(b, lanes) != 1 or c.arg != 0:
      return None
    return None if _step(a, rows) is None or _step(b, depth) is None else MatrixTiles(total, rows, lanes, depth)

  def lower(self, root: UOp) -> UOp:
    """The kernel with this sum in tiles, which are read from local memory where it was used."""
    (a, b, _), how = self.total.src[0].src, self.total.src[0].arg
    fresh, sizes = next_loop_id(root), (extent(self.rows) or 0, extent(self.lanes) or 0)
    across, along = sizes[0] // how.rows, sizes[1] // how.lanes
    down, right = _loop(across, fresh, AxisType.UPCAST), _loop(along, fresh + 1, AxisType.UPCAST)
    steps = _loop((extent(self.depth) or 0) // how.words, self.depth.arg[0], AxisType.REDUCE)
    start = {self.rows: down * how.rows, self.lanes: right * how.lanes, self.depth: steps * how.words}

    def tile(u: UOp, loop: UOp, count: int) -> UOp:
      place = u.src[0].src[0].index(simplify(u.src[0].src[1].substitute(start)))
      return UOp(Ops.LOAD, u.dtype.vec(count), (place,), TileRows(_step(u, loop) or 0))

    kind_of_tile = how.dtype_out.vec(how.rows * how.lanes)
    factors = tile(a, self.rows, how.rows * how.words), tile(b, self.depth, how.words * how.lanes)
    product = UOp(Ops.MMA, kind_of_tile, (*factors, UOp.const(kind_of_tile, 0)), how)
    over = [r for s in self.total.src[1:] for r in ((steps,) if s is self.depth else (s,)) if r.op is Ops.RANGE]
    summed = product.reduce(Ops.ADD, *over)
    memory = UOp.alloc(next_alloc_id(root), how.dtype_out.ptr(math.prod(sizes), AddrSpace.LOCAL))
    around = in_order(self.total.ranges - {self.rows, self.lanes})
    near = memory.after(*around) if around else memory
    store = near.index(simplify((down * along + right) * how.rows * how.lanes)).store(summed)
    copies = [r for r in (down, right) if r.op is Ops.RANGE]
    filled = memory.after(store.end(*copies) if copies else store)
    # written out, what is adjacent along the rows is stored so
    of_rows = AxisType.UPCAST if _stored_along(root, self.rows, self.lanes) else AxisType.LOOP
    row, tile_row = _loop(how.rows, fresh + 2, of_rows), _loop(across, fresh + 3, AxisType.LOOP)
    lane, tile_lane = _loop(how.lanes, fresh + 4, AxisType.VECTOR), _loop(along, fresh + 5, AxisType.LOOP)
    place = ((tile_row * along + tile_lane) * how.rows + row) * how.lanes + lane
    root = root.substitute({self.total: filled.index(place).load()})
    root = _apart(root, self.rows, tile_row, row, how.rows)
    return simplify(_apart(root, self.lanes, tile_lane, lane, how.lanes))


def _stored_along(root: UOp, rows: UOp, lanes: UOp) -> bool:
  """Whether results are neighbours in memory along the rows, and not along the lanes."""
  places = [u.src[0].src[1] for u in root.toposort if u.op is Ops.STORE and {rows, lanes} <= u.ranges]
  return any(stride(at, rows) == 1 != stride(at, lanes) for at in places)


def _loop(size: int, id: int, what: AxisType) -> UOp:
  return UOp.range(size, id, what) if size > 1 else number(0)


def _apart(root: UOp, loop: UOp, outer: UOp, inner: UOp, size: int) -> UOp:
  """The kernel with a loop as two, where it still is in use: inside of all others, which the sum is computed for."""
  return replace_loop(root, loop, outer * size + inner, inside=[r for r in (outer, inner) if r.op is Ops.RANGE])


def _step(load: UOp, loop: UOp) -> int | None:
  return stride(load.src[0].src[1], loop)


def _own(load: UOp, other: UOp, wanted: AxisType, multiple: int) -> UOp | None:
  """The loop of a kind that moves one operand and not the other, if it is as long as some tiles."""
  found = [r for r in load.ranges - other.ranges if kind(r) is wanted]
  return found[0] if len(found) == 1 and (extent(found[0]) or 1) % multiple == 0 else None
