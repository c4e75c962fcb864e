"""Matrix instructions of GPUs, as data, and how they are written in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_codegen.instructions.tensor_core import MatrixLoad, SharedOperand, TensorCore
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import Memory, address
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import DType, Ops, UOp
from tiny_uop.graph import users_of
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class MatrixInstruction:
  """How a tensor core is written: an intrinsic whose operands are a thread's fragments, in pieces of one type each.

  `pieces` are the LLVM types of what a, b and c are passed as, with their bits: a fragment of 8 halves in pieces of
  ("<2 x half>", 32) is four arguments, in one of ("<8 x half>", 128) it is one. Several pieces of c come back as a
  struct. `arguments` are "a", "b" and "c" for the pieces, anything else as it stands. `convert` is an intrinsic that
  makes a piece of each float of a and b. `held` is the letter of inline assembly for a register that the result is in,
  for an instruction that LLVM would move to where the result is used, even if only some threads of a subgroup get
  there: an empty piece of assembly takes the result, which all of them have to come to.
  """

  core: TensorCore
  name: str
  pieces: tuple[tuple[str, int], tuple[str, int], tuple[str, int]]
  arguments: tuple[str, ...] = ("a", "b", "c")
  convert: str = ""
  held: str = ""


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
  made = body.call(instruction.name, _struct(piece, count), *arguments)
  if instruction.held:
    assert count == 1, "one piece is held"
    made = body.let(f'call {piece} asm "", "={instruction.held},0"({piece} {made}) convergent memory(none)')
  return _joined(body, made, piece, count, u.dtype)


def matrix_load(body: Function, u: UOp, place: tuple[str, str], name: str) -> str:
  """The operand that holds what a thread gets of a MatrixLoad, whose rows begin at a place (type, operand)."""
  load: MatrixLoad = u.arg
  name = name.format(matrices=load.matrices, transposed=".trans" if load.transposed else "")
  return _joined(body, body.call(name, _struct("i32", load.matrices), place), "i32", load.matrices, u.dtype)


def _bits(dtype: DType) -> int:
  return dtype.count * dtype.scalar().bits


def _pieces(body: Function, u: UOp, piece: str, bits: int) -> list[tuple[str, str]]:
  """A fragment as (type, operand) of its pieces."""
  count, rest = divmod(_bits(u.dtype), bits)
  assert not rest, f"{u.dtype} does not divide into pieces of {bits} bits"
  return [(piece, part) for part in body.pieces(value_type(u.dtype), body.operand(u), piece, bits, count)]


def _joined(body: Function, made: str, piece: str, count: int, dtype: DType) -> str:
  parts = [made] if count == 1 else body.members(_struct(piece, count), made, count)
  return body.joined(value_type(dtype), parts, piece, _bits(dtype) // count, count)


def _struct(piece: str, count: int) -> str:
  """The type of so many results."""
  return piece if count == 1 else f"{{ {', '.join([piece] * count)} }}"


# *** matrix instructions that read shared memory themselves, and go on while their threads do ***


SHARED = (SharedOperand(), SharedOperand())
"""What the tensor cores of a target have for `shared`: a kernel's say how its tiles stand."""


@dataclass(frozen=True)
class SharedMatrixInstruction:
  """How such a tensor core is written in the target's assembler.

  `product` is an instruction with {c} for the accumulators, {a} and {b} for descriptors of 64 bits, and {a_transposed}
  and {b_transposed} for 1 where what is adjacent does not go along the sum, else 0. `before` and `after` stand around
  those that add to the same accumulators, which wait until all but the last {pending} of such are there, as `wait` does
  on its own. A descriptor is the address >> `shift`, of which `mask` is left, with the bits that `descriptor` gives.
  """

  core: TensorCore
  product: str
  before: str
  after: str
  wait: str
  shift: int
  mask: int
  descriptor: Callable[[SharedOperand], int]


def continued(linear: UOp) -> frozenset[UOp]:
  """The MMAs of shared memory whose result is nothing but what the next one adds to."""
  users = users_of(linear.src)
  chained = {
    u.src[2] for u in linear.src
    if u.op is Ops.MMA and isinstance(u.arg, TensorCore) and u.arg.shared is not None and u.src[2].op is Ops.MMA
  }  # fmt: skip
  return frozenset(u for u in chained if len(users[u]) == 1)


def shared_product(body: Function, chain: Sequence[UOp], instruction: SharedMatrixInstruction, memory: Memory) -> str:
  """The operand that holds what a chain of MMAs has added to the first one's accumulators.

  All of it is one piece of assembler: in between nobody may touch the accumulators, and LLVM does not know that.
  """
  kind, count = value_type(chain[0].dtype), chain[0].dtype.count
  start = body.operand(chain[0].src[2])
  accumulators = [body.lane(kind, start, n) for n in range(count)]
  names = ", ".join(f"${n}" for n in range(count))
  lines = [instruction.before]
  descriptors: list[str] = []
  for u in chain:
    places = []
    for source, operand in zip(u.src[:2], u.arg.shared, strict=True):
      places.append(f"${2 * count + len(descriptors)}")
      descriptors.append(_descriptor(body, " ".join(address(body, source, memory)), operand, instruction))
    flags = {f"{name}_transposed": int(not operand.along_sum) for name, operand in zip("ab", u.arg.shared)}
    lines.append(instruction.product.format(c=f"{{{names}}}", a=places[0], b=places[1], **flags))
  lines.append(instruction.after.format(pending=chain[-1].arg.pending))
  return _assembled(body, " ".join(lines), accumulators, descriptors, kind)


def there(body: Function, place: UOp, dtype: DType, instruction: SharedMatrixInstruction, memory: Memory) -> None:
  """Wait for what is on its way to accumulators, which are at a place of a thread's own: who reads them comes behind.

  LLVM sees new values, so that it does nothing with them before.
  """
  kind = value_type(dtype)
  at = " ".join(address(body, place, memory))
  value = body.let(f"load {kind}, {at}")
  accumulators = [body.lane(kind, value, n) for n in range(dtype.count)]
  waited = _assembled(body, instruction.wait.format(pending=0), accumulators, [], kind)
  body.emit(f"store {kind} {waited}, {at}")


def _assembled(body: Function, text: str, accumulators: Sequence[str], descriptors: Sequence[str], kind: str) -> str:
  """The vector that accumulators are behind a piece of assembler that changes them."""
  count = len(accumulators)
  constraints = [*["=f"] * count, *map(str, range(count)), *["l"] * len(descriptors), "~{memory}"]
  passed = [*(f"float {a}" for a in accumulators), *(f"i64 {d}" for d in descriptors)]
  struct = f"{{ {', '.join(['float'] * count)} }}"
  made = body.let(f'call {struct} asm sideeffect "{text}", "{",".join(constraints)}"({", ".join(passed)})')
  return body.vector(kind, "float", body.members(struct, made, count))


def _descriptor(body: Function, place: str, operand: SharedOperand, instruction: SharedMatrixInstruction) -> str:
  number = body.let(f"ptrtoint {place} to i64")
  low = body.let(f"and i64 {body.let(f'lshr i64 {number}, {instruction.shift}')}, {instruction.mask}")
  return body.let(f"or i64 {low}, {instruction.descriptor(operand)}")
