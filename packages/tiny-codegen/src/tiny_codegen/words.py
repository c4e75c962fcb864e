"""Neighbouring iterations of a loop side by side in words: how operands are given to dot-product instructions."""

from __future__ import annotations

from functools import reduce
from operator import and_

from tiny_codegen.dot_product import BITS, WORD
from tiny_codegen.loops import clauses, number, stride, substitute_simplified, terms
from tiny_uop import DType, Ops, PtrDType, UOp, simplify


def words_of(root: UOp, value: UOp, loop: UOp, blocks: UOp, dtype: DType) -> UOp:
  """The values of type `dtype` that `value` has in neighbouring iterations of a loop, the first in the lowest bits of a
  word of 32 bits; `blocks` counts words. Where they are neighbours in memory, memory is read in words.
  """
  count = WORD.bits // dtype.bits
  if (word := _in_memory(root, value, loop, blocks, count)) is not None:
    return word
  word = UOp.const(WORD, 0)
  for place in range(count):
    part = substitute_simplified(value, {loop: blocks * count + place})
    word = word | part.bitcast(BITS[dtype.bits]).cast(WORD) << place * dtype.bits
  return simplify(word)


def _in_memory(root: UOp, value: UOp, loop: UOp, blocks: UOp, count: int) -> UOp | None:
  """The word as one LOAD; None where its parts are not always in one word of a buffer, or where something else reads
  the buffer."""
  if value.op is not Ops.LOAD or len(value.src) > 1 or stride(value.src[0].src[1], loop) != 1:
    return None
  place = value.src[0]
  pointer, offset, *gates = place.src
  readers = [u for u in root.toposort if pointer in u.src]
  whole = [_of_words(clause, loop, blocks, count) for gate in gates for clause in clauses(gate)]
  if pointer.op is not Ops.PARAM or readers != [place] or None in whole:
    return None
  assert isinstance(pointer.dtype, PtrDType)
  at = _divided(substitute_simplified(offset, {loop: blocks * count}), count)
  if at is None or pointer.dtype.size % count:
    return None
  words = UOp.param(pointer.arg, WORD.ptr(pointer.dtype.size // count, pointer.dtype.space))
  known = [clause for clause in whole if clause is not None]
  return words.index(at, *([reduce(and_, known)] if known else [])).load()


def _of_words(clause: UOp, loop: UOp, blocks: UOp, count: int) -> UOp | None:
  """A condition that holds for all numbers of a word or for none, as one of words; None if it is none."""
  if loop not in clause.ranges:
    return clause
  if (
    clause.op is Ops.CMPLT
    and clause.src[0] is loop
    and clause.src[1].op is Ops.CONST
    and clause.src[1].arg % count == 0
  ):
    return simplify(blocks < clause.src[1].arg // count)
  return None


def _divided(offset: UOp, by: int) -> UOp | None:
  """offset / by, if it is a sum of loops times multiples of `by`."""
  total = number(0)
  for term in terms(offset):
    if term.op is Ops.CONST and term.arg % by == 0:
      total = total + term.arg // by
    elif term.op is Ops.MUL and term.src[1].op is Ops.CONST and term.src[1].arg % by == 0:
      total = total + term.src[0] * (term.src[1].arg // by)
    else:
      return None
  return simplify(total)
