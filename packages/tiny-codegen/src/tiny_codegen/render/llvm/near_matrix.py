"""Matrix instructions that read shared memory themselves, and go on while their threads do, in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_codegen.instructions.tensor_core import NearMatrix, TensorCore
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import Memory, address
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import DType, Ops, UOp
from tiny_uop.graph import users_of
from tiny_uop.records import dataclass

NEAR = (NearMatrix(), NearMatrix())
"""What the tensor cores of a target have for `near`: a kernel's say how its tiles stand."""


@dataclass(frozen=True)
class NearInstruction:
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
  descriptor: Callable[[NearMatrix], int]


def continued(linear: UOp) -> frozenset[UOp]:
  """The MMAs of shared memory whose result is nothing but what the next one adds to."""
  users = users_of(linear.src)
  chained = {
    u.src[2] for u in linear.src
    if u.op is Ops.MMA and isinstance(u.arg, TensorCore) and u.arg.near is not None and u.src[2].op is Ops.MMA
  }  # fmt: skip
  return frozenset(u for u in chained if len(users[u]) == 1)


def near_product(body: Function, chain: Sequence[UOp], instruction: NearInstruction, memory: Memory) -> str:
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
    for source, near in zip(u.src[:2], u.arg.near, strict=True):
      places.append(f"${2 * count + len(descriptors)}")
      descriptors.append(_descriptor(body, source, near, instruction, memory))
    flags = {f"{name}_transposed": int(not near.along_sum) for name, near in zip("ab", u.arg.near)}
    lines.append(instruction.product.format(c=f"{{{names}}}", a=places[0], b=places[1], **flags))
  lines.append(instruction.after.format(pending=chain[-1].arg.pending))
  return _assembled(body, " ".join(lines), accumulators, descriptors, kind)


def there(body: Function, place: UOp, dtype: DType, instruction: NearInstruction, memory: Memory) -> None:
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
  return body.vector(kind, "float", (body.let(f"extractvalue {struct} {made}, {n}") for n in range(count)))


def _descriptor(body: Function, source: UOp, near: NearMatrix, instruction: NearInstruction, memory: Memory) -> str:
  number = body.let(f"ptrtoint {' '.join(address(body, source, memory))} to i64")
  low = body.let(f"and i64 {body.let(f'lshr i64 {number}, {instruction.shift}')}, {instruction.mask}")
  return body.let(f"or i64 {low}, {instruction.descriptor(near)}")
