"""How the threads of a wave exchange values, as data, and how that is written in LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.text import scalar_type, value_type
from tiny_uop import UOp
from tiny_uop.records import dataclass

WORD = 32  # bits


@dataclass(frozen=True)
class Exchange:
  """How a thread gets a word of 32 bits from the thread whose number differs in one bit.

  `mask` is that bit. `instructions` are right-hand sides of LLVM IR, the last of which gives the word; {x} stands for
  this thread's own word, {0}, {1}, … for what the first, the second, … gave.
  """

  mask: int
  instructions: tuple[str, ...]


def shuffled(body: Function, u: UOp, exchanges: Sequence[Exchange]) -> str | None:
  """The operand that holds a SHUFFLE's result; None where the target has no exchange for a bit of its mask."""
  known = {e.mask: e.instructions for e in exchanges}
  bits = [1 << n for n in range(int(u.arg).bit_length()) if u.arg >> n & 1]
  if any(bit not in known for bit in bits):
    return None
  words = _words(body, u.src[0])
  for bit in bits:
    words = [_word(body, word, known[bit]) for word in words]
  return _value(body, u, words)


def _word(body: Function, word: str, instructions: Sequence[str]) -> str:
  made: list[str] = []
  for text in instructions:
    made.append(body.let(text.format(*made, x=word)))
  return made[-1]


def _together(u: UOp) -> int:
  """The bits of a value that goes in whole words, 0 for one whose lanes go in a word each."""
  bits = int(scalar_type(u.dtype)[1:]) if u.dtype.kind == "bool" else u.dtype.scalar().bits
  return bits * u.dtype.count if bits * u.dtype.count % WORD == 0 else 0


def _words(body: Function, u: UOp) -> list[str]:
  kind, value = value_type(u.dtype), body.operand(u)
  if total := _together(u):
    return body.pieces(kind, value, "i32", WORD, total // WORD)
  one, words = scalar_type(u.dtype), []
  for lane in range(u.dtype.count):
    scalar = value if u.dtype.count == 1 else body.lane(kind, value, lane)
    narrow = one if one[0] == "i" else f"i{u.dtype.scalar().bits}"
    words.append(body.let(f"zext {narrow} {body.cast_bits(one, scalar, narrow)} to i32"))
  return words


def _value(body: Function, u: UOp, words: list[str]) -> str:
  kind = value_type(u.dtype)
  if _together(u):
    return body.joined(kind, words, "i32", WORD, len(words))
  one = scalar_type(u.dtype)
  narrow = one if one[0] == "i" else f"i{u.dtype.scalar().bits}"
  lanes = (body.cast_bits(narrow, body.let(f"trunc i32 {word} to {narrow}"), one) for word in words)
  return next(lanes) if u.dtype.count == 1 else body.vector(kind, one, lanes)
