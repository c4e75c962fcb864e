"""`BLOCK(a, n)`: a long sum is taken in blocks, one after the other, around all other loops of the kernel.

What of two operands is packed for a register tile is as long as the sum. Where that is too long for a cache, each
block is a product of its own, which begins with the results that the blocks before have left in memory (Goto and van
de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008: the loop over k around the one over rows). What is
made of a sum before it is stored is made in the last block. The loop over blocks is in ORDER; others are as they were.
"""

from __future__ import annotations

import math

from tiny_codegen.errors import opt_error
from tiny_codegen.kernel.dependences import carried_loops, updates
from tiny_codegen.kernel.loops import extent, size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_uop import Accumulate, AxisType, Ops, Opt, OptOps, PtrDType, UOp
from tiny_uop.graph import rebuild

LONG_SUM, LONG_WINDOW, BLOCK = 2048, 8192, 1024
"""Terms of a sum that is worth blocks, over one loop and over several; and of a block, about: 32 lanes of so many
floats are 128 KiB."""


def block_sum(root: UOp, opt: Opt, blocks: UOp) -> UOp:
  """The kernel with a loop of its sum around all others. Raises KernelOptError where it is no kernel for that."""
  if not extent(blocks):  # a sum of no terms would never be stored
    raise opt_error(opt, f"the extent {blocks.src[0].render()} of loop {blocks.arg[0]} is not known to be 1 or more")
  store = _store_of(root, opt)
  (reduce,) = [u for u in root.toposort if u.op is Ops.REDUCE]
  block = UOp.range(blocks.src[0], blocks.arg[0], AxisType.ORDER)
  rest = tuple([r for r in reduce.src[1:] if r is not blocks])
  index, value = store.src
  # what is read comes after what the kernel itself has done, and after nothing that there is a node for
  before = index.src[0].after(UOp.group(), block)
  gate = block > 0 if len(index.src) < 3 else index.src[2] & (block > 0)
  left = before.index(index.src[1], gate).load(UOp.const(reduce.dtype, 0), reduce.dtype)
  part = (reduce.src[0].reduce(Ops.ADD, *rest) if rest else reduce.src[0]).substitute({blocks: block})
  total = part + left
  made = value.substitute({reduce: total})
  last = block.eq(block.const_like(size_of(block) - 1))
  stored = index.store(total if made is total else last.where(made, total))
  return root.with_src((stored.end(block, *root.src[0].src[1:]),))


def _store_of(root: UOp, opt: Opt) -> UOp:
  """The one STORE of a kernel whose sum may be taken in blocks. Raises KernelOptError."""
  reduces = [u for u in root.toposort if u.op is Ops.REDUCE]
  store = root.src[0].src[0] if len(root.src) == 1 and root.src[0].op is Ops.END else root
  if len(reduces) != 1 or reduces[0].arg[0] is not Ops.ADD or store.op is not Ops.STORE or store.arg is not None:
    raise opt_error(opt, "expected a kernel of one sum and one STORE that does not accumulate")
  memory = store.src[0].src[0]
  pointer = memory.dtype
  if memory.op is not Ops.PARAM or not isinstance(pointer, PtrDType) or pointer.base is not reduces[0].dtype:
    raise opt_error(opt, f"expected a result of the type of the sum, {reduces[0].dtype}, got {pointer}")
  if any(u.op is Ops.LOAD and u.src[0].src[0] is memory for u in root.toposort):
    raise opt_error(opt, "the kernel reads what it writes")
  if any(u.op is Ops.STAGE for u in root.toposort):
    raise opt_error(opt, "what is in local memory would be for all blocks: BLOCK before STAGE")
  counted = rebuild(root, lambda _, u: u.replace(arg=Accumulate(Ops.ADD)) if u.op is Ops.STORE else None)
  if carried := carried_loops(updates(counted)):
    raise opt_error(opt, f"iterations of loops {[r.arg[0] for r in carried]} may store the same element")
  return store


def block_of(found: SumOfProducts) -> Opt | None:
  """How to take a long sum in blocks: some iterations of its outermost loop that has enough. None for a sum that is not
  long, or has no such divisor."""
  least = LONG_SUM if len(found.reduce.src) == 2 else LONG_WINDOW
  if found.length < least or found.instruction is not None:
    return None
  inside = found.length
  for loop in found.reduce.src[1:]:
    if (size := extent(loop)) is None:
      return None
    inside /= size
    if inside <= BLOCK:
      most = min(int(2 * BLOCK / inside), size - 1)
      divisors = [n for n in range(1, most + 1) if size % n == 0]
      best = min(divisors, key=lambda n: abs(math.log(n * inside / BLOCK)), default=0)
      return Opt(OptOps.BLOCK, loop.arg[0], best) if best * inside >= BLOCK / 4 else None
  return None
