"""Pass: long sums of floats are summed in blocks, so that rounding errors grow with the logarithm of their length.

An accumulator that n terms are added to one after the other is off by up to n roundings. Here a long loop becomes
blocks of blocks, each with an accumulator of its own (pairwise summation with more than pairs: N. J. Higham, "Accuracy
and Stability of Numerical Algorithms", 2002, section 4.2). Short loops inside it, such as those over the window of a
convolution, share the accumulator of a block. The sums of a register tile fill the registers already, so that their
blocks are longer: what a block costs is then lost among its products. What goes through the same loop as such a sum
does so in the same blocks.
"""

from __future__ import annotations

import math

from tiny_codegen.instructions.dot_product import MatrixProduct
from tiny_codegen.instructions.tensor_core import TensorCore
from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.loops import extent, kind, next_loop_id, size_of, substitute_simplified
from tiny_codegen.lower.reduce import by_loops, is_tile, products
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.graph import rebuild
from tiny_uop.records import dataclass

LONG = 128  # iterations that one accumulator may take
LONG_IN_TILES = 1024


@dataclass(frozen=True)
class Lengths:
  """Iterations that one accumulator may take, and those of a block where there are more."""

  most: int
  block: int
  block_of_many: int  # where there are more than `many`
  many: int

  def over(self, written: int) -> Lengths:
    """The same for iterations of so many steps."""
    return Lengths(*[max(n // written, 1) for n in (self.most, self.block, self.block_of_many, self.many)])


ALONE, IN_REGISTERS = Lengths(LONG, 32, 64, 2048), Lengths(LONG_IN_TILES, 256, 512, 2048)


def pairwise_sum(root: UOp, target: Target) -> UOp:
  """The kernel with long sums of floats in blocks."""
  wanted = {loops: lengths for loops, lengths in _lengths(root, target).items() if _is_long(loops, lengths)}
  if not wanted:
    return root
  blocks = Blocks(next_loop_id(root))

  def change(u: UOp, new: UOp) -> UOp | None:
    lengths = wanted.get(u.src[1:]) if u.op is Ops.REDUCE else None
    return None if lengths is None else blocks.of(new, lengths)

  return rebuild(root, change)


def _lengths(root: UOp, target: Target) -> dict[tuple[UOp, ...], Lengths]:
  """The loops of sums of floats, other than those of matrix instructions, with how long their blocks are to be."""
  found = {}
  for loops, reduces in by_loops(root).items():
    sums = any(u.arg[0] is Ops.ADD and u.dtype.kind == "float" for u in reduces)
    if sums and not any(isinstance(u.src[0].arg, (TensorCore, MatrixProduct)) for u in reduces):
      # an iteration of which several steps have been written out adds as many numbers
      written = max(len(products(u.src[0])) for u in reduces) or 1
      found[loops] = IN_REGISTERS.over(written) if is_tile(reduces, target) else ALONE
  return found


def _is_long(loops: tuple[UOp, ...], lengths: Lengths) -> bool:
  return (
    math.prod(map(size_of, loops)) > lengths.most and bool(loops) and all(kind(r) is AxisType.REDUCE for r in loops)
  )


class Blocks:
  """Loops cut into blocks, the same for all sums over a loop."""

  def __init__(self, fresh: int) -> None:
    self.fresh = fresh
    self.cut: dict[tuple[UOp, int], tuple[UOp, UOp, UOp | None]] = {}

  def of(self, reduce: UOp, lengths: Lengths) -> UOp:
    """The sum with an accumulator for as many of its inner loops as one may take, and for each level of the others."""
    value, op = reduce.src[0], reduce.arg[0]
    inner: tuple[UOp, ...] = ()
    for loop in reversed(reduce.src[1:]):
      value, inner = self.over(value, loop, inner, op, lengths)
    return value.reduce(op, *inner)

  def over(
    self, value: UOp, loop: UOp, inner: tuple[UOp, ...], op: Ops, lengths: Lengths
  ) -> tuple[UOp, tuple[UOp, ...]]:
    """(a value, the loops that are left to sum it over) once `loop` is around `inner`."""
    count, taken = extent(loop) or 0, max(math.prod(map(size_of, inner)), 1)
    if count * taken <= lengths.most:
      return value, (loop, *inner)
    block_size = lengths.block if count * taken < lengths.many else lengths.block_of_many
    size = 1 << (math.ceil(block_size / taken) - 1).bit_length()  # a power of two
    if size == 1 or count <= size:  # the inner loops fill an accumulator
      return self.over(value.reduce(op, *inner), loop, (), op, lengths) if inner else (value, (loop,))
    blocks, block, rest = self.parts(loop, size)
    whole = substitute_simplified(value, {loop: blocks * size + block}).reduce(op, block, *inner)
    whole, outer = self.over(whole, blocks, (), op, lengths)
    if rest is None:
      return whole, outer
    start = int(blocks.src[0].arg) * size
    return whole.reduce(op, *outer).alu(
      op, substitute_simplified(value, {loop: rest + start}).reduce(op, rest, *inner)
    ), ()

  def parts(self, loop: UOp, size: int) -> tuple[UOp, UOp, UOp | None]:
    """(the loop over blocks of this size, the one inside a block, the one over the rest)."""
    if (loop, size) not in self.cut:
      count = extent(loop) or 0
      sizes = [count // size, size, count % size]
      made = [UOp.range(number(s), self.fresh + i, AxisType.REDUCE) for i, s in enumerate(sizes)]
      self.fresh += len(made)
      self.cut[loop, size] = (made[0], made[1], made[2] if sizes[2] else None)
    return self.cut[loop, size]
