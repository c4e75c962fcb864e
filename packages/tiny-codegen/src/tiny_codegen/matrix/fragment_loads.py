"""Fragments of tensor cores that a warp loads from local memory together."""

from __future__ import annotations

from collections.abc import Callable

from tiny_codegen.instructions.tensor_core import (
  MATRIX,
  PIECE_BYTES,
  ROW_BYTES,
  Digit,
  Fragment,
  MatrixLoad,
  TensorCore,
)
from tiny_codegen.kernel.expressions import factor, stride
from tiny_codegen.kernel.memory import gate_of
from tiny_codegen.staging.stage import Tile
from tiny_uop import AddrSpace, Ops, PtrDType, UOp, simplify, sint

LANES = 32
BYTES_OF_WORD = 4


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
  operand: UOp,
  layout: Fragment,
  thread: UOp,
  down: UOp,
  right: UOp,
  at: Callable[[UOp, sint, sint], UOp],
  tile: Tile | None,
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
  if factor(index.src[1]) * size % ROW_BYTES:
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
