"""Matrix instructions of GPUs, as data, and how they are written in LLVM IR."""

from __future__ import annotations

import math

from tiny_codegen.instructions.tensor_core import MatrixLoad, TensorCore
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import DType, UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class MatrixInstruction:
  """How a tensor core is written: an intrinsic whose operands are a thread's fragments, in pieces of one type each.

  `pieces` are the LLVM types of what a, b and c are passed as, with their bits: a fragment of 8 halves in pieces of
  ("<2 x half>", 32) is four arguments, in one of ("<8 x half>", 128) it is one. Several pieces of c come back as a
  struct. `arguments` are "a", "b" and "c" for the pieces, anything else as it stands. `convert` is an intrinsic that
  makes a piece of each float of a and b.
  """

  core: TensorCore
  name: str
  pieces: tuple[tuple[str, int], tuple[str, int], tuple[str, int]]
  arguments: tuple[str, ...] = ("a", "b", "c")
  convert: str = ""


def matrix_product(body: Function, u: UOp, instruction: MatrixInstruction) -> str:
  """The operand that holds the result of an MMA."""
  split = {name: _pieces(body, s, *piece) for name, s, piece in zip("abc", u.src, instruction.pieces, strict=True)}
  if instruction.convert:
    for name in "ab":
      floats = [body.cast_bits(kind, part, "float") for kind, part in split[name]]
      split[name] = [("i32", body.call(instruction.convert, "i32", ("float", part))) for part in floats]
  arguments: list[tuple[str, str]] = []
  for argument in instruction.arguments:
    kind, _, value = argument.partition(" ")
    arguments += split[argument] if argument in split else [(kind, value)]
  piece = instruction.pieces[2][0]
  count = len(split["c"])
  made = body.call(instruction.name, piece if count == 1 else f"{{ {', '.join([piece] * count)} }}", *arguments)
  return _joined(body, made, piece, count, u.dtype)


def matrix_load(body: Function, u: UOp, place: tuple[str, str], name: str) -> str:
  """The operand that holds what a thread gets of a MatrixLoad, whose rows begin at a place (type, operand)."""
  load: MatrixLoad = u.arg
  name = name.format(matrices=load.matrices, transposed=".trans" if load.transposed else "")
  struct = "i32" if load.matrices == 1 else f"{{ {', '.join(['i32'] * load.matrices)} }}"
  return _joined(body, body.call(name, struct, place), "i32", load.matrices, u.dtype)


def _bits(dtype: DType) -> int:
  return dtype.count * dtype.scalar().bits


def _pieces(body: Function, u: UOp, piece: str, bits: int) -> list[tuple[str, str]]:
  """A fragment as (type, operand) of its pieces."""
  count, kind = _bits(u.dtype) // bits, value_type(u.dtype)
  assert count * bits == _bits(u.dtype), f"{u.dtype} does not divide into pieces of {bits} bits"
  value = body.operand(u)
  if count == 1:
    return [(piece, body.cast_bits(kind, value, piece))]
  words = f"<{count} x i{bits}>"
  value = body.cast_bits(kind, value, words)
  parts = [body.lane(words, value, n) for n in range(count)]
  return [(piece, body.cast_bits(f"i{bits}", part, piece)) for part in parts]


def _joined(body: Function, made: str, piece: str, count: int, dtype: DType) -> str:
  kind = value_type(dtype)
  if count == 1:
    return body.cast_bits(piece, made, kind)
  bits = math.prod((dtype.count, dtype.scalar().bits)) // count
  struct, words, whole = f"{{ {', '.join([piece] * count)} }}", f"<{count} x i{bits}>", f"i{bits}"
  parts = (body.cast_bits(piece, body.let(f"extractvalue {struct} {made}, {n}"), whole) for n in range(count))
  return body.cast_bits(words, body.vector(words, whole, parts), kind)
