"""Pass: pairs of rows of a register tile, and pairs of its lanes, become products of 2 × 2 sums (Arm: SMMLA, BFMMLA).

    row0 = Σ dot(spread(a[0]), b[0…7]),  row1 = Σ dot(spread(a[1]), b[0…7])       # words of 64 bits

becomes, with one instruction for two rows and two lanes,

    S0 = Σ MMA(a[0, 1], b[0, 1]),  S1 = Σ MMA(a[0, 1], b[2, 3]),  …               # S0: of row0, row0, row1 and row1
    row0 = S0[0], S0[1], S1[0], S1[1], …  row1 = S0[2], S0[3], S1[2], S1[3], …

Packing has two rows, and two lanes, next to each other: each is one load. A row that is left alone goes with itself. A
product that is of no tile is one of the halves of its words, or, if the target has none of those, what it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from tiny_codegen.instructions.dot_product import WORD, SquareProduct
from tiny_codegen.kernel.expressions import split_constant
from tiny_codegen.lower.reduce import by_loops, identity, products
from tiny_codegen.target import Target
from tiny_uop import Ops, UOp
from tiny_uop.graph import chain as chained
from tiny_uop.graph import rebuild

Key = tuple[tuple[UOp, int, SquareProduct], ...]


def lower_squares(root: UOp, target: Target) -> UOp:
  """The kernel with products of 2 × 2 sums, where the target has them."""
  listed = {how for how, _ in target.dot_products if isinstance(how, SquareProduct)}
  if not listed or not any(map(_is_of_words, root.toposort)):
    return root
  found: dict[UOp, UOp] = {}
  for loops, reduces in by_loops(root).items():
    alike: dict[Key, list[UOp]] = {}
    for u in reduces:
      if (steps := _steps(u)) and all(how in listed for _, _, how in steps):
        alike.setdefault(steps, []).append(u)
    for steps, rows in alike.items():
      ordered = sorted(rows, key=lambda u: _place(_scalars(u)[0]))
      for pair in zip(ordered[::2], [*ordered[1::2], ordered[-1]]):
        found |= dict(zip(pair, _squares(pair, steps, loops)))

  def change(old: UOp, u: UOp) -> UOp | None:
    if old in found:
      return found[old]
    return _alone(u) if _is_of_words(u) and u.arg in listed else None

  made = rebuild(root, change)
  return made if made is root else lower_squares(made, target)  # a factor may be made of another sum


def _is_of_words(u: UOp) -> bool:
  """Whether a node is a product of as many sums as words, and not of 2 × 2."""
  return u.op is Ops.MMA and isinstance(u.arg, SquareProduct) and u.dtype.count == u.src[0].dtype.count


def _steps(reduce: UOp) -> Key:
  """Of a row of a tile, for each product that is added in an iteration, the factor that has lanes, its place among the
  sources and the instruction; empty for any other sum."""
  found = []
  for product in products(reduce.src[0]) if reduce.dtype.count % 2 == 0 else ():
    place = next((n for n in (0, 1) if _is_spread(product.src[n])), None)
    if place is None or not _is_of_words(product) or product.src[2].op is not Ops.CONST:
      return ()
    found.append((product.src[1 - place], 1 - place, product.arg))
  return tuple(found)


def _is_spread(factor: UOp) -> bool:
  """Whether all lanes are the same word."""
  return factor.op is Ops.VECTORIZE and len(set(factor.src)) == 1


def _place(word: UOp) -> int:
  """Where a word is in memory, of those that have all else in common."""
  return split_constant(word.src[0].src[1])[1] if word.op is Ops.LOAD else 0


def _scalars(reduce: UOp) -> list[UOp]:
  """The words of a row, one for each product that is added in an iteration."""
  return [next(s.src[0] for s in product.src[:2] if _is_spread(s)) for product in products(reduce.src[0])]


def _squares(pair: Sequence[UOp], steps: Key, loops: Iterable[UOp]) -> list[UOp]:
  """Two rows, as lanes of the sums of products of 2 × 2."""
  zero = identity(Ops.ADD, pair[0].dtype.scalar().vec(4))
  words = [_both(*both) for both in zip(*map(_scalars, pair))]
  sums = []
  for first in range(0, pair[0].dtype.count, 2):
    terms = []
    for (lanes, place, how), rows in zip(steps, words):
      columns = lanes.extract(first, first + 1)
      factors = (rows, columns) if place else (columns, rows)
      terms.append(UOp(Ops.MMA, zero.dtype, (*factors, zero), how))
    sums.append(chained(Ops.ADD, terms).reduce(Ops.ADD, *loops))
  # of the other way round the rows are columns
  lanes_of_rows = ((0, 1), (2, 3)) if steps[0][1] else ((0, 2), (1, 3))
  return [_joined(sums, lanes) for lanes in lanes_of_rows]


def _both(first: UOp, second: UOp) -> UOp:
  """Two words as a vector: one load where they are neighbours."""
  if all(u.op is Ops.LOAD and len(u.src) == 1 and len(u.src[0].src) == 2 for u in (first, second)):
    (place, start), (other, end) = (split_constant(u.src[0].src[1]) for u in (first, second))
    if first.src[0].src[0] is second.src[0].src[0] and place is other and end == start + 1:
      return first.replace(dtype=first.dtype.vec(2))
  return UOp(Ops.VECTORIZE, first.dtype.vec(2), (first, second))


def _joined(vectors: Sequence[UOp], lanes: Sequence[int]) -> UOp:
  """These lanes of some vectors as one, of two vectors at a time, which are shuffles."""
  if len(vectors) == 1:
    return vectors[0].extract(*lanes)
  parts = [[v.extract(lane) for lane in lanes] for v in vectors]
  while len(parts) > 2:
    pairs = [_vector(both) for both in zip(parts[::2], parts[1::2])]
    parts = [*[[v.extract(lane) for lane in range(v.dtype.count)] for v in pairs], *parts[2 * len(pairs) :]]
  return _vector(parts)


def _vector(parts: Iterable[Iterable[UOp]]) -> UOp:
  scalars = tuple(chain.from_iterable(parts))
  return UOp(Ops.VECTORIZE, scalars[0].dtype.vec(len(scalars)), scalars)


def _alone(product: UOp) -> UOp:
  """The product by those of the halves of its words."""
  (a, b, total), how = product.src, product.arg
  for shift in (0, WORD.bits):
    halves = [(u >> shift).cast(WORD.vec(u.dtype.count)) for u in (a, b)]
    total = UOp(Ops.MMA, total.dtype, (*halves, total), how.halves)
  return total
