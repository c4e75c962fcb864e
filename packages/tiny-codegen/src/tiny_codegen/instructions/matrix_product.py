"""Matrix instructions of processors as data: dot products of all rows of one tile with all columns of another.

Such are AMX's TDPBF16PS and TDPBSSD. A tile is a register of some rows of words of 32 bits.
"""

from __future__ import annotations

from tiny_codegen.instructions.dot_product import DotProduct
from tiny_uop import register_arg
from tiny_uop.records import dataclass


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


def steps_of(instruction: DotProduct) -> int:
  """Of how many terms a sum is a multiple that an instruction does."""
  return instruction.steps if isinstance(instruction, MatrixProduct) else instruction.terms
