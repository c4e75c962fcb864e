"""Random integer expressions of the kinds that index arithmetic and integer data are made of, over few values."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tiny_uop import DType, Ops, UOp, dtypes

_TYPES = [*[dtypes.index] * 6, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int32, dtypes.uint32, dtypes.int64]
_INDEX_BOUNDS = [
  (0, 11), (0, 7), (0, 3), (0, 1), (0, 15), (-5, 6), (-9, -2), (-1, 1), (1, 9), (2, 2), (3, 12), (-8, 7),
]  # fmt: skip
_DIVISORS = [2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 12, 16, 24, 1, 0, -1, -2, -3, -4, -6]
_FACTORS = [1, 1, 1, 2, 3, 4, 6, 8, 12, -1, -1, -2, -3, -4, 5, 7, 9, 16, 24]
_OFFSETS = [0, 0, 1, 2, 3, 4, 5, 7, 8, 12, 24, -1, -2, -3, -4, -7, -12]
_CASTS = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint32]


class Drawn(NamedTuple):
  """An expression, the leaves it is over, and what it is worth anything under (None: everywhere)."""

  expression: UOp
  leaves: tuple[UOp, ...]
  gate: UOp | None


class Maker:
  """Draws expressions of one type. What has been made may be used again, as in `x // 4 * 4 + x % 4`."""

  def __init__(self, rng: Random) -> None:
    self.rng = rng
    self.dtype: DType = rng.choice(_TYPES)
    self.leaves = self.draw_leaves()
    # what expressions are made of: the leaves, or a position as a number of the maker's type
    self.atoms = [u if u.dtype is self.dtype else u.cast(self.dtype) for u in self.leaves]
    self.made: list[UOp] = list(self.atoms)
    self.conditions: list[UOp] = []

  def draw_leaves(self) -> list[UOp]:
    rng, dtype = self.rng, self.dtype
    count = rng.choice([1, 2, 2, 3])
    if dtype.kind != "index":
      of_type = [UOp.variable("xyz"[k], *self.fixed_bounds(), dtype) for k in range(count)]
      return [
        UOp.variable("pqr"[k], *rng.choice(_INDEX_BOUNDS)) if rng.random() < 0.3 else u for k, u in enumerate(of_type)
      ]
    leaves: list[UOp] = []
    for k in range(count):
      if rng.random() < 0.5:
        leaves.append(UOp.variable("xyz"[k], *rng.choice(_INDEX_BOUNDS)))
        continue
      sizes = [u for u in leaves if u.op is Ops.VARIABLE and u.vmin > 0]
      symbolic = bool(sizes) and rng.random() < 0.6
      leaves.append(UOp.range(sizes[0] if symbolic else rng.choice([2, 3, 4, 5, 6, 8, 12]), k))
    return leaves

  def fixed_bounds(self) -> tuple[int, int]:
    """Small numbers, or those next to an end of the type, where sums wrap."""
    rng, dtype = self.rng, self.dtype
    least, most = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    width = rng.choice([0, 1, 3, 7, 11])
    low = rng.choice([0, 0, 1, 2, -4, -8, least, most - width, most // 2])
    return (low, low + width) if low >= least else (0, width)

  def constant(self, choices: list[int]) -> UOp:
    return UOp.const(self.dtype, self.rng.choice(choices))

  # *** integers ***

  def integer(self, depth: int) -> UOp:
    """An integer expression of the maker's type."""
    rng = self.rng
    if depth <= 0:
      made = rng.choice(self.made if rng.random() < 0.4 else self.atoms) if rng.random() < 0.9 else None
      return made if made is not None else self.constant(_OFFSETS)
    kinds, weights = zip(*_KINDS)
    u: UOp = rng.choices(kinds, weights)[0](self, depth - 1)
    self.made.append(u)
    return u

  def sum(self, depth: int) -> UOp:
    """Terms whose coefficients often have a factor in common."""
    rng = self.rng
    shared = rng.choice([1, 1, 2, 3, 4, 6])
    total: UOp | None = None
    for place in range(rng.choice([1, 2, 2, 3])):
      factor = rng.choice(_FACTORS) * (shared if place == 0 or rng.random() < 0.7 else 1)
      term = self.integer(depth - 1 if place else depth)
      term = term if factor == 1 else term * factor
      total = term if total is None else total + term
    assert total is not None
    return total + self.constant(_OFFSETS) if rng.random() < 0.5 else total

  def division(self, depth: int) -> UOp:
    op = self.rng.choice([Ops.FLOORDIV, Ops.FLOORMOD])
    divisor = self.constant(_DIVISORS) if self.rng.random() < 0.85 else self.rng.choice(self.atoms)
    return self.integer(depth).alu(op, divisor)

  def c_division(self, depth: int) -> UOp:
    op = self.rng.choice([Ops.TRUNCDIV, Ops.TRUNCMOD])
    divisor = self.constant(_DIVISORS) if self.rng.random() < 0.7 else self.rng.choice(self.atoms)
    return self.integer(depth).alu(op, divisor)

  def reshaped(self, depth: int) -> UOp:
    """A position of one shape as a position of another, or put together again from its parts."""
    rng = self.rng
    flat = self.integer(depth)
    for _ in range(rng.choice([1, 1, 2])):
      flat = flat * rng.choice([2, 3, 4, 6, 12]) + rng.choice(self.atoms)
    a, b = rng.choice([2, 3, 4, 6, 8, 12]), rng.choice([2, 3, 4, 5, 6])
    parts = [flat // a, flat % a, flat // a % b, flat // (a * b), flat % (a * b)]
    pairs = [
      flat // a * a + flat % a,
      (flat // a % b) * a + flat % a,
      (flat // (a * b)) * (a * b) + flat % (a * b),
      (flat // (a * b)) * b + flat // a % b,
    ]
    return rng.choice(parts if rng.random() < 0.6 else pairs)

  def product(self, depth: int) -> UOp:
    return self.integer(depth) * self.integer(0)

  def extreme(self, depth: int) -> UOp:
    left, right = self.integer(depth), self.integer(min(depth, 1))
    return left.maximum(right) if self.rng.random() < 0.6 or self.dtype.kind == "uint" else left.minimum(right)

  def selection(self, depth: int) -> UOp:
    return self.gate(min(depth, 2)).where(self.integer(depth), self.integer(min(depth, 1)))

  def bits(self, depth: int) -> UOp:
    op = self.rng.choice([Ops.AND, Ops.AND, Ops.OR, Ops.XOR])
    right = self.constant([1, 3, 7, 15, 0, 5, 12, -1]) if self.rng.random() < 0.7 else self.integer(0)
    return self.integer(depth).alu(op, right)

  def shift(self, depth: int) -> UOp:
    count = self.constant([0, 1, 2, 3]) if self.rng.random() < 0.7 else self.rng.choice(self.atoms) & 3
    return self.integer(depth).alu(self.rng.choice([Ops.SHL, Ops.SHR]), count)

  def cast(self, depth: int) -> UOp:
    u = self.integer(depth)
    if self.rng.random() < 0.2:
      return self.gate(min(depth, 1)).cast(self.dtype)
    for _ in range(self.rng.choice([1, 1, 2])):
      u = UOp(Ops.CAST, self.rng.choice([*_CASTS, u.dtype]), (u,))
    return UOp(Ops.CAST, self.dtype, (u,))

  def negation(self, depth: int) -> UOp:
    left = self.integer(depth)
    if self.rng.random() < 0.5:
      return left.alu(Ops.NEG)
    return left.alu(Ops.SUB, self.integer(min(depth, 1)))

  # *** bools ***

  def gate(self, depth: int) -> UOp:
    """A condition over integers of the maker's type."""
    rng = self.rng
    if self.conditions and rng.random() < 0.15:
      again = rng.choice(self.conditions)
      return again if rng.random() < 0.6 else again.logical_not()
    if depth <= 0 or rng.random() < 0.55:
      self.conditions.append(self.comparison(max(depth, 0)))
      return self.conditions[-1]
    left, right = self.gate(depth - 1), self.gate(depth - 1)
    kind = rng.randrange(13)
    if kind == 12:
      nested = left.where(self.comparison(0), right)
      return left.where(nested, right) if rng.random() < 0.5 else left.where(right, nested)
    if kind < 6:
      return left & right
    if kind < 8:
      return left | right
    if kind == 8:
      return left.alu(rng.choice([Ops.XOR, Ops.CMPNE, Ops.CMPEQ, Ops.ADD, Ops.MUL, Ops.MAX]), right)
    if kind == 9:
      return left.where(right, self.comparison(0) if rng.random() < 0.5 else left.const_like(rng.random() < 0.5))
    return left.logical_not()

  def comparison(self, depth: int) -> UOp:
    rng = self.rng
    left = self.integer(depth)
    right = self.constant([*_OFFSETS, 16, 20, 40]) if rng.random() < 0.6 else self.integer(min(depth, 1))
    if rng.random() < 0.15:
      left, right = right, left
    return [left < right, left < right, left >= right, left.eq(right), left.ne(right)][rng.randrange(5)]


_KINDS = [
  (Maker.sum, 30), (Maker.division, 26), (Maker.reshaped, 10), (Maker.product, 4), (Maker.extreme, 5),
  (Maker.selection, 5), (Maker.bits, 5), (Maker.shift, 4), (Maker.cast, 5), (Maker.c_division, 4), (Maker.negation, 2),
]  # fmt: skip


_LARGEST = 2**40  # of an `index`: the oracle computes in int64


def draw(rng: Random) -> Drawn:
  """One expression: an integer, a condition, or an integer under a gate."""
  while True:
    maker = Maker(rng)
    kind = rng.random()
    wants_gate = maker.dtype is dtypes.index and 0.2 <= kind < 0.4
    gate = maker.gate(rng.choice([1, 2])) if wants_gate else None
    u = maker.gate(rng.choice([1, 2, 3])) if kind < 0.2 else maker.integer(rng.choice([1, 2, 2, 3, 3, 4]))
    if all(-_LARGEST < made.vmin and made.vmax < _LARGEST for made in maker.made if made.dtype is dtypes.index):
      return Drawn(u, tuple(maker.leaves), gate)
