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
    count = total // WORD
    if count == 1:
      return [value if kind == "i32" else body.let(f"bitcast {kind} {value} to i32")]
    vector = f"<{count} x i32>"
    whole = value if kind == vector else body.let(f"bitcast {kind} {value} to {vector}")
    return [body.let(f"extractelement {vector} {whole}, i32 {n}") for n in range(count)]
  one, words = scalar_type(u.dtype), []
  for lane in range(u.dtype.count):
    scalar = value if u.dtype.count == 1 else body.let(f"extractelement {kind} {value}, i32 {lane}")
    narrow = one if one[0] == "i" else f"i{u.dtype.scalar().bits}"
    scalar = scalar if narrow == one else body.let(f"bitcast {one} {scalar} to {narrow}")
    words.append(body.let(f"zext {narrow} {scalar} to i32"))
  return words


def _value(body: Function, u: UOp, words: list[str]) -> str:
  kind = value_type(u.dtype)
  if _together(u):
    if len(words) == 1:
      return words[0] if kind == "i32" else body.let(f"bitcast i32 {words[0]} to {kind}")
    vector, joined = f"<{len(words)} x i32>", "poison"
    for n, word in enumerate(words):
      joined = body.let(f"insertelement {vector} {joined}, i32 {word}, i32 {n}")
    return joined if kind == vector else body.let(f"bitcast {vector} {joined} to {kind}")
  one, joined = scalar_type(u.dtype), "poison"
  narrow = one if one[0] == "i" else f"i{u.dtype.scalar().bits}"
  for lane, word in enumerate(words):
    scalar = body.let(f"trunc i32 {word} to {narrow}")
    scalar = scalar if narrow == one else body.let(f"bitcast {narrow} {scalar} to {one}")
    if u.dtype.count == 1:
      return scalar
    joined = body.let(f"insertelement {kind} {joined}, {one} {scalar}, i32 {lane}")
  return joined
