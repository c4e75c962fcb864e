"""Pass: sums of products of the fields of two words become dot products.

`c + Σ int32(byte t of a) * int32(byte t of b)` for t = 0…3 is `MMA(a, b, c)` of a DotProduct, where the target has it:
one instruction a lane. Such sums are how programs over packed integers are written: products of quantised weights,
whose bytes are fields of loaded words.
"""

from __future__ import annotations

from collections.abc import Iterator

from tiny_codegen.instructions.dot_product import BITS, WORD, DotProduct
from tiny_codegen.target import Target
from tiny_uop import DType, Ops, UOp, dtypes
from tiny_uop.graph import chain, operands, rebuild

Field = tuple[UOp, int, DType]


def find_dot_products(root: UOp, target: Target) -> UOp:
  """The kernel with the target's dot products of integers for sums that are written out."""
  instructions = [p for p, _ in target.dot_products if type(p) is DotProduct and p.dtype_out.kind in ("int", "uint")]
  adds = [u for u in root.toposort if u.op is Ops.ADD and u.dtype in (dtypes.int32, dtypes.uint32)]
  if not instructions or not any(s.op is Ops.MUL for u in adds for s in u.src):
    return root
  whole = set(adds).difference(s for u in adds for s in u.src)

  def change(old: UOp, u: UOp) -> UOp | None:
    return _joined(u, instructions) if old in whole else None

  return rebuild(root, change)


def _joined(total: UOp, instructions: list[DotProduct]) -> UOp | None:
  """The sum with dot products for terms that make one; None if none do."""
  rest = list(operands(total, Ops.ADD))
  found: list[tuple[UOp, UOp, DotProduct]] = []
  for instruction in instructions:
    if instruction.dtype_out is not total.dtype:
      continue
    places: dict[tuple[UOp, UOp], dict[int, UOp]] = {}
    for term in rest:
      for a, b, place in _pairs(term, instruction):
        places.setdefault((a, b), {}).setdefault(place, term)
    for (a, b), terms in places.items():
      if len(terms) == instruction.terms and all(term in rest for term in terms.values()):
        found.append((a, b, instruction))
        for term in terms.values():
          rest.remove(term)
  if not found:
    return None
  result = chain(Ops.ADD, rest) if rest else UOp.const(total.dtype, 0)
  for a, b, instruction in found:
    result = UOp(Ops.MMA, instruction.dtype_out, (a, b, result), instruction)
  return result


def _pairs(term: UOp, instruction: DotProduct) -> Iterator[tuple[UOp, UOp, int]]:
  """The words, `a` and `b` of an instruction, whose fields at one place a term multiplies, and which place that is."""
  if term.op is Ops.MUL:
    left, right = (_field(s, instruction) for s in term.src)
    for a, b in ((left, right), (right, left)):
      if a is not None and b is not None and (a[1], a[2], b[2]) == (b[1], instruction.dtype_a, instruction.dtype_b):
        yield a[0], b[0], a[1]


def _field(value: UOp, instruction: DotProduct) -> Field | None:
  """The word, the place and the type of the field of a word that a value widens."""
  bits = instruction.dtype_a.bits
  if value.op is not Ops.CAST or value.dtype is not instruction.dtype_out:
    return None
  narrow = value.src[0]
  unsigned = narrow.src[0] if narrow.op is Ops.BITCAST else narrow
  if unsigned.op is Ops.CAST and unsigned.dtype is BITS[bits]:
    dtype, word, place = narrow.dtype, unsigned.src[0], 0
  else:  # the highest field needs no cast
    dtype, word, place = BITS[bits], narrow, -1
  if word.op is Ops.SHR and word.src[1].op is Ops.CONST:
    word, place = word.src[0], int(word.src[1].arg)
  fits = word.dtype is WORD and place % bits == 0 and (dtype is narrow.dtype or place == WORD.bits - bits)
  return (word, place // bits, dtype) if fits else None
