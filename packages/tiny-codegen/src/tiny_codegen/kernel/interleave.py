"""Neighbouring iterations of a loop side by side in words: how operands are given to dot-product instructions."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.instructions.dot_product import BITS, PAIR, WORD
from tiny_codegen.kernel.expressions import all_of, number, stride, terms
from tiny_codegen.kernel.loops import substitute_simplified
from tiny_codegen.kernel.memory import gates_of, pointer_type
from tiny_uop import DType, Ops, UOp, simplify
from tiny_uop.records import dataclass


def interleaved(root: UOp, value: UOp, loop: UOp, blocks: UOp, dtype: DType, kind: DType = WORD) -> UOp:
  """The values of type `dtype` that `value` has in neighbouring iterations of a loop, the first in the lowest bits of a
  word of type `kind`; `blocks` counts words. Where they are neighbours in memory, memory is read in words.
  """
  count = kind.bits // dtype.bits
  if (word := _in_memory(root, value, loop, blocks, kind, count)) is not None:
    return word
  if kind is PAIR:  # numbers are widened to half of it first: registers have more lanes then
    low, high = (interleaved(root, value, loop, blocks * 2 + half, dtype).cast(PAIR) for half in (0, 1))
    return simplify(low | high << WORD.bits)
  word = UOp.const(WORD, 0)
  for place in range(count):
    part = substitute_simplified(value, {loop: blocks * count + place})
    word = word | part.bitcast(BITS[dtype.bits]).cast(WORD) << place * dtype.bits
  return simplify(word)


def _in_memory(root: UOp, value: UOp, loop: UOp, blocks: UOp, word: DType, count: int) -> UOp | None:
  """The word as one LOAD; None where its parts are not always in one word of a buffer, or where something else reads
  the buffer."""
  if value.op is not Ops.LOAD or len(value.src) > 1 or stride(value.src[0].src[1], loop) != 1:
    return None
  place = value.src[0]
  pointer, offset = place.src[:2]
  readers = [u for u in root.toposort if pointer in u.src]
  whole = [_of_words(clause, loop, blocks, count) for clause in gates_of(value)]
  if pointer.op is not Ops.PARAM or readers != [place] or None in whole:
    return None
  kind = pointer_type(pointer)
  at = _divided(substitute_simplified(offset, {loop: blocks * count}), count)
  if at is None or kind.size % count:
    return None
  words = UOp.param(pointer.arg, word.ptr(kind.size // count, kind.space))
  return words.index(at, all_of(clause for clause in whole if clause is not None)).load()


def _of_words(clause: UOp, loop: UOp, blocks: UOp, count: int) -> UOp | None:
  """A condition that holds for all numbers of a word or for none, as one of words; None if it is none."""
  if loop not in clause.ranges:
    return clause
  known = clause.op is Ops.CMPLT and clause.src[0] is loop and clause.src[1].op is Ops.CONST
  return simplify(blocks < clause.src[1].arg // count) if known and clause.src[1].arg % count == 0 else None


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


@dataclass(frozen=True)
class Neighbours:
  """Words of a type that are put together from numbers which, over a loop, are all neighbours in memory, wherever words
  begin.

  `ends` are the conditions that only the first numbers meet: that a position, in words, is below so many numbers.
  """

  kind: DType
  first: UOp
  loop: UOp
  conditions: tuple[UOp, ...]
  ends: tuple[tuple[UOp, int], ...]

  @staticmethod
  def of(word: UOp, loop: UOp) -> Neighbours | None:
    """What a value is; None for any that is not of this form."""
    parts = _parts(word)
    if parts is None:
      return None
    first, count = parts[0].src[0], len(parts)
    if stride(first.src[1], loop) != count:
      return None
    for at, part in enumerate(parts):
      distance = simplify(part.src[0].src[1] - first.src[1])
      if part.src[0].src[0] is not first.src[0] or distance.op is not Ops.CONST or distance.arg != at:
        return None
    gates = [gates_of(part) for part in parts]
    common = [c for c in gates[0] if all(c in others for others in gates)]
    own = [[c for c in listed if c not in common] for listed in gates]
    ends = [_end([c] * count, loop) for c in common if loop in c.ranges]
    if {len(listed) for listed in own} == {1}:
      ends.append(_end([c for (c,) in own], loop))
    elif any(own):
      return None
    found = [end for end in ends if end is not None]
    conditions = tuple([c for c in common if loop not in c.ranges])
    return Neighbours(word.dtype, parts[0], loop, conditions, tuple(found)) if len(found) == len(ends) else None

  def along(self, loop: UOp) -> UOp:
    """The numbers, one after the other, as a LOAD along a loop of their own that begins where the other one does."""
    start, terms = {self.loop: number(0)}, self.kind.bits // self.first.dtype.bits
    ends = [simplify(place.substitute(start) * terms + loop) < size for place, size in self.ends]
    pointer, offset, *_ = self.first.src[0].src
    return pointer.index(simplify(offset.substitute(start) + loop), all_of([*self.conditions, *ends])).load()


def _end(conditions: Sequence[UOp], loop: UOp) -> tuple[UOp, int] | None:
  """Of conditions on the numbers of a word, in their order, the position and how many numbers there are in all."""
  known = [c for c in conditions if c.op is Ops.CMPLT and c.src[1].op is Ops.CONST and stride(c.src[0], loop) == 1]
  if not known:
    return None
  place, size = known[0].src[0], int(known[0].src[1].arg)
  # where a word is cut, its first numbers are of one word more; at the end of a vector a condition is another one
  sizes = [next((n for n in (size, size - 1, size + 1) if simplify(place < n) is c), None) for c in conditions]
  found = [n for n in sizes if n is not None]
  falling = len(found) == len(sizes) and sorted(found, reverse=True) == found and found[0] - found[-1] <= 1
  return (place, sum(found)) if falling else None


def _parts(word: UOp) -> list[UOp] | None:
  """The LOADs that a word is put together from by `interleaved`, the one in the lowest bits first."""
  found: dict[int, UOp] = {}
  stack = [(word, 0)]
  while stack:
    u, shift = stack.pop()
    if u.op is Ops.OR:
      stack += [(s, shift) for s in u.src]
    elif u.op is Ops.SHL and u.src[1].op is Ops.CONST:
      stack.append((u.src[0], shift + int(u.src[1].arg)))
    elif u.op is Ops.CAST or u.op is Ops.BITCAST:
      stack.append((u.src[0], shift))
    elif u.op is not Ops.LOAD or len(u.src) > 1 or u.dtype.count > 1:
      return None
    else:
      found[shift] = u
  bits = found[0].dtype.bits if 0 in found else word.dtype.bits
  places = sorted(found)
  return [found[n] for n in places] if bits in BITS and places == list(range(0, word.dtype.bits, bits)) else None
