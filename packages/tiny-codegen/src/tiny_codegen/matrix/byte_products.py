"""Pass: sums of products of the fields of two words become dot products.

`c + Σ int32(byte t of a) * int32(byte t of b)` for t = 0…3 is `MMA(a, b, c)` of a DotProduct, where the target has it:
one instruction a lane. Such sums are how programs over packed integers are written: products of quantised weights,
whose bytes are fields of loaded words.

Fields without a sign, as codes of weights are, times such with one: where no instruction takes these (Arm without
`i8mm`), fields below 128 are signed numbers as well, and any others are these with 128 added:

    c + Σ uint8(a)·int8(b) = c + Σ int8(a ^ 128)·int8(b) + 2 · Σ 64·int8(b)

The last sum is the same for all rows of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tiny_codegen.instructions.dot_product import BITS, SIGN_BITS, WORD, DotProduct
from tiny_codegen.target import Target
from tiny_uop import DType, Ops, UOp, dtypes
from tiny_uop.graph import chain, operands, rebuild

Field = tuple[UOp, int, DType]
"""A word, which of its fields, and the field's type."""
Fits = Callable[[Field, DType], bool]
SIGNED = DotProduct(dtypes.int8, dtypes.int8, dtypes.int32)
MIXED = DotProduct(dtypes.uint8, dtypes.int8, dtypes.int32)
HALVES_OF_SIGN = UOp.const(WORD, 0x40404040)
"""Four times 64, half of what is left out where a number without a sign is taken for one with a sign."""


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
  fitting = [how for how in instructions if how.dtype_out is total.dtype]
  offset = [MIXED] if SIGNED in fitting and MIXED not in fitting else []
  found = [
    *(pair for how in fitting for pair in _taken(rest, how, _has_type)),
    *(pair for how in fitting for pair in _taken(rest, how, _is_number_of)),
    *(pair for how in offset for pair in _taken(rest, how, _has_type)),
  ]
  if not found:
    return None
  zero = UOp.const(total.dtype, 0)
  result, added = chain(Ops.ADD, rest) if rest else zero, zero
  for a, b, how in found:
    if how in offset:
      a, how = a ^ SIGN_BITS, SIGNED
      added = UOp(Ops.MMA, how.dtype_out, (HALVES_OF_SIGN, b, added), how)
    result = UOp(Ops.MMA, how.dtype_out, (a, b, result), how)
  return result if added is zero else result + (added + added)


def _taken(rest: list[UOp], how: DotProduct, fits: Fits) -> Iterator[tuple[UOp, UOp, DotProduct]]:
  """Words whose products an instruction adds up, with fields that fit its types; their terms are taken from `rest`."""
  places: dict[tuple[UOp, UOp], dict[int, UOp]] = {}
  for term in rest:
    for a, b, place in _pairs(term, how, fits):
      places.setdefault((a, b), {}).setdefault(place, term)
  for (a, b), terms in places.items():
    if len(terms) == how.terms and all(term in rest for term in terms.values()):
      for term in terms.values():
        rest.remove(term)
      yield a, b, how


def _pairs(term: UOp, how: DotProduct, fits: Fits) -> Iterator[tuple[UOp, UOp, int]]:
  """The words, `a` and `b` of an instruction, whose fields at one place a term multiplies, and which place that is."""
  if term.op is Ops.MUL:
    left, right = (_field(s, how) for s in term.src)
    for a, b in ((left, right), (right, left)):
      if a is not None and b is not None and a[1] == b[1] and fits(a, how.dtype_a) and fits(b, how.dtype_b):
        yield a[0], b[0], a[1]


def _has_type(field: Field, dtype: DType) -> bool:
  return field[2] is dtype


def _is_number_of(field: Field, dtype: DType) -> bool:
  """Whether a field has a type, or has none of its highest bits, so that it is the same number with a sign and
  without."""
  word, place, own = field
  sign = 1 << (place + 1) * dtype.bits - 1
  return own is dtype or (own.bits == dtype.bits and not _may_be_set(word) & sign)


def _may_be_set(word: UOp) -> int:
  """The bits of a word that are not known to be 0."""
  every = (1 << WORD.bits) - 1
  if word.op is Ops.CONST:
    return int(word.arg) & every
  if word.op is Ops.AND:
    return _may_be_set(word.src[0]) & _may_be_set(word.src[1])
  if word.op in (Ops.OR, Ops.XOR):
    return _may_be_set(word.src[0]) | _may_be_set(word.src[1])
  if word.op in (Ops.SHL, Ops.SHR) and word.src[1].op is Ops.CONST:
    known, amount = _may_be_set(word.src[0]), int(word.src[1].arg)
    return known << amount & every if word.op is Ops.SHL else known >> amount
  return every


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
