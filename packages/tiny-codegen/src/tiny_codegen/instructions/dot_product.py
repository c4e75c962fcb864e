"""Dot-product instructions as data: in each lane of a vector, a few products of narrow numbers are added to a wide one.

Such are AVX-512's VPDPBUSD and VDPBF16PS, and NEON's SDOT, UDOT, USDOT and BFDOT.
"""

from __future__ import annotations

from dataclasses import replace

from tiny_uop import DType, UOp, dtypes, register_arg
from tiny_uop.records import dataclass

WORD = dtypes.uint32
PAIR = dtypes.uint64
"""Two words."""
BITS = {8: dtypes.uint8, 16: dtypes.uint16}
SIGN_BITS = UOp.const(WORD, 0x80808080)
"""Of four numbers of 8 bits: adding 128 to each is flipping these."""


@register_arg
@dataclass(frozen=True)
class DotProduct:
  """`d = c + Σ (a[t] - offset) · b[t]` in each lane, as the `arg` of `MMA(a, b, c)`.

  The terms of `a` and of `b`, which have types `dtype_a` and `dtype_b`, stand in one word of 32 bits per lane, the
  first in the lowest bits; `c` and `d` have `dtype_out`. An instruction has no `offset`: that writes down a product of
  other numbers than those that the instruction takes, and `lower_offsets` puts it right. Raises ValueError for types of
  other sizes.
  """

  dtype_a: DType
  dtype_b: DType
  dtype_out: DType
  offset: int = 0

  def __post_init__(self) -> None:
    if self.dtype_a.bits != self.dtype_b.bits or self.dtype_a.bits not in BITS or self.dtype_out.bits != WORD.bits:
      raise ValueError(f"{self}: expected two types of 8 bits, or of 16, and a result of {WORD.bits} bits")

  @property
  def word(self) -> DType:
    """The type that holds the terms of a lane."""
    return WORD

  @property
  def terms(self) -> int:
    """Products that are added in each lane."""
    return self.word.bits // self.dtype_a.bits

  @property
  def plain(self) -> DotProduct:
    """The instruction, without an offset."""
    return replace(self, offset=0)

  def meaning(self, a: UOp, b: UOp, c: UOp) -> UOp:
    """The same from elementwise operations. Integers wrap, as those of the instruction do; floats are rounded after
    each addition, an instruction may round less often."""
    total = c
    for term in range(self.terms):
      first, second = (_term(x, term, d).cast(self.dtype_out) for x, d in ((a, self.dtype_a), (b, self.dtype_b)))
      total = total + (first - self.offset if self.offset else first) * second
    return total

  def __str__(self) -> str:
    return f"dot{self.terms} {self.dtype_a.name} · {self.dtype_b.name} → {self.dtype_out.name}"


def _term(word: UOp, term: int, dtype: DType) -> UOp:
  return (word >> term * dtype.bits).cast(BITS[dtype.bits]).bitcast(dtype.vec(word.dtype.count))


# *** matrix instructions of processors ***
# Matrix instructions of processors as data: dot products of all rows of one tile with all columns of another.
#
# Such are AMX's TDPBF16PS and TDPBSSD. A tile is a register of some rows of words of 32 bits.


@register_arg
@dataclass(frozen=True)
class MatrixProduct(DotProduct):
  """A dot product that one instruction does for `rows` × `lanes` sums and `words` steps of each.

  As the `arg` of an `MMA(a, b, c)` whose sources are words it means what a DotProduct does, so that all that is known
  of those holds: a sum of them is tiled and packed alike. The pass `matrix_tiles` then makes `MMA(A, B, C)` of tiles:
  vectors of rows × words, of words × lanes and of rows × lanes elements, row by row.
  """

  rows: int = 16
  lanes: int = 16
  words: int = 16

  @property
  def steps(self) -> int:
    """Products that are added to each sum at once."""
    return self.terms * self.words

  @property
  def single(self) -> DotProduct:
    """The same for one sum and one step."""
    return DotProduct(self.dtype_a, self.dtype_b, self.dtype_out, self.offset)

  def __str__(self) -> str:
    return f"m{self.rows}n{self.lanes}k{self.steps} {self.dtype_a.name} · {self.dtype_b.name} → {self.dtype_out.name}"


@register_arg
@dataclass(frozen=True)
class TileRows:
  """Argument of a LOAD of a tile: from one row to the next are `stride` elements."""

  stride: int


@register_arg
@dataclass(frozen=True)
class SquareProduct(DotProduct):
  """A dot product that one instruction does for two rows and two columns, of terms of 64 bits: Arm's SMMLA, UMMLA,
  USMMLA and BFMMLA.

  As the `arg` of an `MMA(a, b, c)` of as many sums as words it means what a DotProduct does, with words of 64 bits: a
  sum of them is tiled and packed alike, so that two rows, or two columns, are one register. The pass `square_products`
  then makes `MMA(A, B, C)` of two words, two words and four sums: those of the first word of A with both of B, and
  those of the second.
  """

  @property
  def word(self) -> DType:
    return PAIR

  @property
  def halves(self) -> DotProduct:
    """The same for words of 32 bits, of which each word here is two."""
    return DotProduct(self.dtype_a, self.dtype_b, self.dtype_out, self.offset)

  def meaning(self, a: UOp, b: UOp, c: UOp) -> UOp:
    if c.dtype.count == 2 * a.dtype.count:
      a, b = a.extract(0, 0, 1, 1), b.extract(0, 1, 0, 1)
    return super().meaning(a, b, c)


def steps_of(instruction: DotProduct) -> int:
  """Of how many terms a sum is a multiple that an instruction does."""
  return instruction.steps if isinstance(instruction, MatrixProduct) else instruction.terms
