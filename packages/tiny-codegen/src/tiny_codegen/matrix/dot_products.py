"""The optimisation TC, where the target has instructions for dot products; and the pass that makes up for offsets.

`REDUCE(ADD, a * b, k)` of narrow numbers becomes `REDUCE(ADD, MMA(A, B, 0), k / terms)` of words that hold neighbours
along k. To all that comes after, tiling and packing included, words are elements like any others: an operand that is
packed into local memory is there in the order in which the instruction takes it.

An instruction that multiplies numbers without a sign by such with one does a product of signed numbers all the same:
`Σ a·b = Σ (a + 128)·b - Σ 128·b`, where the last sum does not depend on the rows and is computed once for all of them.
"""

from __future__ import annotations

import math

from tiny_codegen.errors import opt_error
from tiny_codegen.instructions.dot_product import SIGN_BITS, WORD, DotProduct, steps_of
from tiny_codegen.kernel.expressions import clauses
from tiny_codegen.kernel.interleave import interleaved
from tiny_codegen.kernel.loops import is_multiple, kind, next_loop_id, size_of
from tiny_codegen.kernel.memory import gates_of
from tiny_codegen.matrix.tensor_cores import Product, Split, exactly_as, first_fitting, made_of, product_of, split_loops
from tiny_codegen.target import Target
from tiny_uop import AxisType, DType, Ops, Opt, UOp, dtypes, simplify
from tiny_uop.graph import rebuild

SHARE = 1 / 16  # of local memory, that sums over columns may take


def use_dot_product(root: UOp, opt: Opt, target: Target) -> UOp:
  """The kernel with the product that is summed over loop `opt.axis` done by dot-product instructions.

  `opt.arg` is the place of the instruction in the target's list, behind the tensor cores (None: the first that fits),
  or (place, i, j) with the output loops of the rows (i) and of the columns (j). Raises KernelOptError where none fits.
  """
  arg = opt.arg if isinstance(opt.arg, tuple) else () if opt.arg is None else (opt.arg,)
  place = arg[0] - len(target.tensor_cores) if arg else None
  listed = [instruction for instruction, _ in target.dot_products]
  if len(arg) not in (0, 1, 3) or (place is not None and not 0 <= place < len(listed)):
    names = ", ".join(map(str, listed))
    raise opt_error(opt, f"expected the place of an instruction, or (place, loop, loop); the target has {names}")
  product = product_of(root, opt, tuple(arg[1:]))
  tried = listed if place is None else listed[place : place + 1]
  return first_fitting(opt, ((instruction, _apply(root, product, instruction)) for instruction in tried))


def fitting(product: Product, instruction: DotProduct) -> tuple[UOp, UOp, DotProduct] | None:
  """The operands (the rows' first, if either will do) in the types of an instruction, and what it is to compute."""
  wrap = all(d.kind in ("int", "uint") for d in (product.reduce.dtype, instruction.dtype_out))
  if product.reduce.dtype is not instruction.dtype_out and not (wrap and product.reduce.dtype.bits == WORD.bits):
    return None
  types = instruction.dtype_a, instruction.dtype_b
  for a, b in ((product.a, product.b), (product.b, product.a)):
    first, second = exactly_as(a, types[0]), exactly_as(b, types[1])
    if first is not None and second is not None:
      return first, second, instruction
  first, second = exactly_as(product.a, dtypes.int8), exactly_as(product.b, types[1])
  if type(instruction) is not DotProduct or types[0] is not dtypes.uint8 or first is None or second is None:
    return None
  return first, second, DotProduct(*types, instruction.dtype_out, 128)


def _apply(root: UOp, product: Product, instruction: DotProduct) -> UOp | str:
  """The kernel with the instruction, or why it cannot be used."""
  found = fitting(product, instruction)
  if found is None:
    given = ", ".join(made_of(x).name for x in (product.a, product.b))
    return f"it takes neither {given}, nor gives {product.reduce.dtype.name}"
  if any(product.masks):
    return "what is summed is masked, row by row or column by column"
  steps = steps_of(instruction)
  if not is_multiple(product.depth, steps):
    size = product.depth.src[0].render()
    return f"loop {product.depth.arg[0]} has extent {size}, expected a multiple of {steps}: PADTO first"
  first, second, computed = found
  split = Split.of(product.depth, instruction.terms)

  def words(value: UOp, dtype: DType) -> UOp:
    for gate in product.gates:
      if not set(clauses(gate)) <= _conditions(value):  # else it is 0 there anyway
        value = gate.where(value, value.const_like(0))
    return interleaved(root, value, product.depth, simplify(split.start // instruction.terms), dtype, instruction.word)

  a, b = words(first, first.dtype), words(second, second.dtype)
  zero = UOp.const(computed.dtype_out, 0)
  terms = UOp(Ops.MMA, computed.dtype_out, (a ^ SIGN_BITS if computed.offset else a, b, zero), computed)
  total = terms.reduce(Ops.ADD, *split_loops(product.reduce, {product.depth: split}))
  return root.substitute({product.reduce: total.bitcast(product.reduce.dtype)})


def _conditions(value: UOp) -> set[UOp]:
  """What has to hold for a LOAD to read memory, and not to be 0."""
  return set(gates_of(value)) if value.op is Ops.LOAD and len(value.src) == 1 else set()


def lower_offsets(root: UOp, target: Target) -> UOp:
  """The kernel without offsets in dot products: a sum of its own takes away what they add, in loops of its own, so that
  it is outside of those that only the operand with the offset depends on."""
  fresh, ends = next_loop_id(root), [u for u in root.src if u.op is Ops.END]

  def change(_: UOp, u: UOp) -> UOp | None:
    nonlocal fresh
    product = u.src[0] if u.op is Ops.REDUCE else u
    if product is u or not isinstance(product.arg, DotProduct) or not product.arg.offset:
      return None
    a, b, c = product.src
    plain = product.arg.plain
    own = {r: UOp.range(r.src[0], fresh + place, kind(r)) for place, r in enumerate(u.src[1:])}
    fresh += len(own)
    too_much = UOp(Ops.MMA, c.dtype, (SIGN_BITS, b.substitute(own), c), plain).reduce(Ops.ADD, *own.values())
    inside = _inside(ends, too_much)
    near = math.prod([size_of(r) for r in inside]) * target.max_vector_lanes * c.dtype.itemsize
    if inside and near <= target.limits.shared_memory * SHARE:
      too_much = too_much.stage(*inside)
    return UOp(Ops.MMA, c.dtype, (a, b, c), plain).reduce(Ops.ADD, *u.src[1:]) - too_much

  return rebuild(root, change)


def _inside(ends: list[UOp], value: UOp) -> list[UOp]:
  """The loops of a value that are inside of others that it does not depend on: it would be computed again in each."""
  order = [r for r in ends[0].src[1:] if kind(r) is not AxisType.VECTOR] if len(ends) == 1 else []
  foreign = next((place for place, r in enumerate(order) if r not in value.ranges), len(order))
  return [r for r in order[foreign:] if r in value.ranges]


def without_dot_products(root: UOp, target: Target) -> UOp:
  """The kernel with elementwise operations for the dot products that the target has no instruction for, as a kernel may
  have them that was optimised for another target."""
  if not any(u.op is Ops.MMA for u in root.toposort):
    return root
  listed = [instruction for instruction, _ in target.dot_products]

  def change(_: UOp, u: UOp) -> UOp | None:
    foreign = u.op is Ops.MMA and isinstance(u.arg, DotProduct) and u.arg not in listed
    return u.arg.meaning(*u.src) if foreign else None

  return rebuild(root, change)
