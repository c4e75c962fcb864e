"""Tensor cores as data: one matrix instruction, and which thread holds which elements of its operands.

A thread holds a *fragment*, a vector, of each operand. Where its elements stand in the matrix is written in digits:
the number of a thread (or of an element within its fragment) is split into digits of a mixed radix, least significant
first, and each digit moves the place by so many rows and columns per unit. In the layout of an accumulator of NVIDIA's
m16n8k16, `threads=((4, 0, 2), (8, 1, 0))` says that `thread % 4` counts pairs of columns and `thread // 4` rows, and
`elements=((2, 0, 1), (2, 8, 0))` that neighbours are in neighbouring columns and the second pair eight rows below.
"""

from __future__ import annotations

import itertools
import math

from tiny_uop import DType, register_arg, sint
from tiny_uop.records import dataclass

Digit = tuple[int, int, int]


@register_arg
@dataclass(frozen=True)
class Fragment:
  """Where a thread's elements of one operand stand: digits (size, rows per unit, columns per unit) of the number of
  the thread and of the element, least significant first.
  """

  threads: tuple[Digit, ...]
  elements: tuple[Digit, ...]

  @property
  def count(self) -> int:
    """Elements per thread."""
    return math.prod(size for size, _, _ in self.elements)

  def place(self, thread: sint, element: sint) -> tuple[sint, sint]:
    """(row, column) of an element of a thread."""
    rows: list[sint] = []
    columns: list[sint] = []
    for number, digits in ((thread, self.threads), (element, self.elements)):
      for size, down, right in digits:
        digit, number = number % size, number // size
        rows += [digit * down] if down else []
        columns += [digit * right] if right else []
    return sum(rows), sum(columns)


MATRIX = 8
"""Rows of a matrix that a MatrixLoad loads."""
ROW_BYTES, PIECE_BYTES = 16, 4
"""Of a matrix that a MatrixLoad loads: bytes of a row, and of the piece of it that a thread gets."""


@register_arg
@dataclass(frozen=True)
class MatrixLoad:
  """Argument of a LOAD of local memory that the 32 threads of a warp execute together (NVIDIA's ldmatrix).

  It loads 1, 2 or 4 matrices of 8 rows of 16 bytes. Thread t gives the place where row t % 8 of matrix t / 8 begins
  (those behind the last give any row again), and gets, of each matrix in turn, 4 bytes: of row t / 4, those number
  t % 4. `transposed`, for elements of 2 bytes: of column t / 4, rows 2 · (t % 4) and the one below.
  """

  matrices: int
  transposed: bool = False


SWIZZLE = 128
"""Bytes of a row of local memory that a tensor core reads itself."""


@register_arg
@dataclass(frozen=True)
class SharedOperand:
  """An operand that a tensor core reads from shared memory itself, from the place on that its source points to.

  What is adjacent there goes along the sum (`along_sum`), or along the rows of A or the columns of B. It stands in
  blocks of 128 bytes by all of the other direction; from one block to the next are `block` bytes. Of the eight pieces
  of 16 bytes in row r of a block, piece p is where p ^ (r % 8) would be, so that eight rows of one piece, and eight
  pieces of a row, are in different banks. Local memory begins at a multiple of 8 rows.
  """

  along_sum: bool = True
  block: int = 0


@register_arg
@dataclass(frozen=True)
class TensorCore:
  """A matrix instruction D = A × B + C that `threads` neighbouring threads of a workgroup execute together.

  `dims` is (N, M, K): A is M × K, B is K × N, C and D are M × N. `dtype_in` is the type of A and B, `dtype_out` that of
  C and D. `a`, `b` and `c` (which D shares) say where fragments stand. Raises ValueError where they do not cover the
  matrices: each place of A and B by at least one thread, each place of C by exactly one. `shared`: A and B are no
  values but places in shared memory, and nobody has fragments of them. Of those, `pending`: so many iterations of a
  loop around a program's MMA may still be on their way when its threads go on; all of them are there behind the loop.
  """

  dims: tuple[int, int, int]
  threads: int
  dtype_in: DType
  dtype_out: DType
  a: Fragment
  b: Fragment
  c: Fragment
  shared: tuple[SharedOperand, SharedOperand] | None = None
  pending: int = 0

  def __post_init__(self) -> None:
    n, m, k = self.dims
    fragments = (("a", self.a, m, k), ("b", self.b, k, n), ("c", self.c, m, n))
    for name, fragment, rows, columns in fragments if self.shared is None else fragments[2:]:
      threads = math.prod(size for size, _, _ in fragment.threads)
      if threads != self.threads:
        raise ValueError(f"{self}: fragment {name} is spread over {threads} threads, expected {self.threads}")
      places = [fragment.place(t, e) for t, e in itertools.product(range(self.threads), range(fragment.count))]
      if set(places) != set(itertools.product(range(rows), range(columns))):
        raise ValueError(f"{self}: fragment {name} does not cover the places of a matrix of {rows} × {columns}")
      if name == "c" and len(places) != rows * columns:
        raise ValueError(f"{self}: {len(places)} elements hold the {rows * columns} places of fragment c, not one each")

  @property
  def elements(self) -> tuple[int, int, int]:
    """Elements per thread of a, b and c."""
    return self.a.count, self.b.count, self.c.count

  def __str__(self) -> str:
    n, m, k = self.dims
    return f"m{m}n{n}k{k} {self.dtype_in.name} → {self.dtype_out.name}"
