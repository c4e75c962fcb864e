"""Proofs that accesses to memory stay in bounds.

A LOAD or STORE of n elements at INDEX(pointer, offset, gate) touches elements offset … offset + n - 1. It happens
inside loops and, in programs, between IF and ENDIF. WHERE guards nothing: both of its branches are evaluated.

Most offsets are in range by their bounds alone (`vmin`, `vmax`). The others are put to z3: is there a value for every
loop, variable and loaded number, within its bounds, with which the access happens and its offset is outside? z3 comes
with `tiny-uop[proof]`, and is imported when the first such question comes up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tiny_uop.args import KernelInfo
from tiny_uop.dtype import PtrDType, dtypes
from tiny_uop.evaluate import evaluate
from tiny_uop.graph import chain, operands
from tiny_uop.locks import shared_lock
from tiny_uop.ops import Ops
from tiny_uop.proof.exact_integers import Exact, memory_name
from tiny_uop.records import dataclass
from tiny_uop.uop import UOp

if TYPE_CHECKING:
  from tiny_uop.proof.z3_terms import Answer

TIMEOUT_MS = 20_000
_BLOCKS = frozenset({Ops.RANGE, Ops.IF})
_MOST_KEPT = 1 << 16
_proved: set[bytes] = set()  # keys of claims, which hold no nodes
_counts = {"bounds": 0, "z3": 0, "cache": 0}
_counting = shared_lock()
_lock = shared_lock()  # z3 has one context, which one thread may use at a time


@dataclass(frozen=True)
class Access:
  """A LOAD or STORE, the loops around it, and the conditions of the IFs around it."""

  node: UOp
  loops: tuple[UOp, ...]
  conditions: tuple[UOp, ...] = ()

  @property
  def pointer(self) -> PtrDType:
    dtype = self.node.src[0].dtype
    assert isinstance(dtype, PtrDType)
    return dtype

  @property
  def lanes(self) -> int:
    """How many elements of the memory it touches."""
    value = self.node if self.node.op is Ops.LOAD else self.node.src[1]
    return max(value.dtype.count // self.pointer.base.count, 1)

  @property
  def offset(self) -> UOp:
    return self.node.src[0].src[1]

  @property
  def gate(self) -> UOp | None:
    """A bool, or a vector of them, one for each element."""
    sources = self.node.src[0].src
    return sources[2] if len(sources) > 2 else None


def accesses(root: UOp) -> Iterator[Access]:
  """The accesses of a kernel or a program (LINEAR of instructions), sources before users."""
  if root.op is Ops.LINEAR:
    yield from _in_program(root)
    return
  for node in root.walk():
    if node.op in (Ops.LOAD, Ops.STORE):
      yield Access(node, tuple(sorted(node.ranges, key=lambda loop: (loop.arg[0], loop.arg[1].name))))


def _in_program(linear: UOp) -> Iterator[Access]:
  open_blocks: list[UOp] = []
  for node in linear.src:
    if node.op in _BLOCKS:
      open_blocks.append(node)
    elif node.op in (Ops.END, Ops.ENDIF):
      closed = sum(s.op in _BLOCKS for s in node.src)
      del open_blocks[len(open_blocks) - closed :]
    elif node.op in (Ops.LOAD, Ops.STORE):
      loops = tuple([b for b in open_blocks if b.op is Ops.RANGE])
      yield Access(node, loops, tuple([b.src[0] for b in open_blocks if b.op is Ops.IF]))


class ProofInfo(NamedTuple):
  """How many accesses were proved by their bounds, how many by z3, and how many had been proved by it before."""

  bounds: int
  z3: int
  cache: int


def _count(what: str) -> None:
  with _counting:
    _counts[what] += 1


def proof_info() -> ProofInfo:
  """Counters of this process."""
  return ProofInfo(**_counts)


class BoundsError(ValueError):
  """An access that is not in bounds, or that cannot be shown to be. `node` is the LOAD or STORE; `counterexample`
  gives values to loops, variables and loads with which `element` is touched (None where z3 gave no answer).
  """

  def __init__(self, message: str, node: UOp, counterexample: dict[str, int], element: int | None) -> None:
    super().__init__(message)
    self.node, self.counterexample, self.element = node, counterexample, element


@dataclass(frozen=True)
class Claim:
  """An access in exact integers: element `offset + i` for each lane i, where its gate and all conditions hold."""

  access: Access
  offset: UOp
  gates: tuple[UOp, ...]
  conditions: tuple[UOp, ...]

  @staticmethod
  def of(access: Access, exact: Exact) -> Claim:
    gates = exact.of(decided(access.gate)) if access.gate is not None else ()
    conditions = [exact.of(c)[0] for c in access.conditions]
    for loop in access.loops:
      counter = exact.of(loop)[0]
      if counter.src[0].op is not Ops.CONST or counter.src[0].arg < 1:
        conditions.append(counter < counter.src[0])  # one that may have no iterations
    return Claim(access, exact.of(decided(access.offset))[0], gates, tuple(conditions))

  def obvious(self) -> bool:
    """Whether bounds alone show it."""
    low, high = int(self.offset.vmin), int(self.offset.vmax)
    return low >= 0 and high + self.access.lanes <= self.access.pointer.size

  def outside(self) -> UOp:
    """Whether an element that is touched is not there."""
    size, last = self.access.pointer.size, self.access.lanes - 1
    if len(self.gates) > 1:
      lanes = [gate & self._beyond(self.offset + i, self.offset + i, size) for i, gate in enumerate(self.gates)]
      return chain(Ops.AND, (*self.conditions, chain(Ops.OR, lanes)))
    return chain(Ops.AND, (*self.conditions, *self.gates, self._beyond(self.offset, self.offset + last, size)))

  def _beyond(self, first: UOp, last: UOp, size: int) -> UOp:
    return (first < 0) | (last < size).logical_not()


def decided(root: UOp) -> UOp:
  """The same with each `g & f(where(g, x, y))` as `g & f(x)`: what is chosen where the gate holds is written so when
  it is simplified, and what is not known of x and of the WHERE would be two unknowns."""
  changes: dict[UOp, UOp] = {}
  for condition in root.walk(lambda u: u.dtype is not dtypes.void):
    if condition.op is Ops.AND and condition.dtype is dtypes.bool:
      clauses = dict.fromkeys(operands(condition, Ops.AND))
      chosen = {w: w.src[1] for w in condition.walk() if w.op is Ops.WHERE and w.src[0] in clauses}
      if chosen:
        changes[condition] = chain(Ops.AND, [clause.substitute(chosen) for clause in clauses])
  return root.substitute(changes) if changes else root


def prove(claim: Claim) -> dict[UOp, int | bool] | None:
  """None for a claim that holds, else values for which it does not. Raises TimeoutError where z3 has no answer and
  ImportError where there is no z3.
  """
  if claim.obvious():
    _count("bounds")
    return None
  outside = claim.outside()
  if outside.key in _proved:
    _count("cache")
    return None
  with _lock:
    answer = _ask(outside)
  if answer.unknown:
    raise TimeoutError(f"z3 gave no answer within {TIMEOUT_MS // 1000} s")
  if not answer.proved:
    return {u: v for u, v in answer.counterexample.items() if u.op is not Ops.CONST}
  if len(_proved) >= _MOST_KEPT:
    _proved.clear()
  _proved.add(outside.key)
  _count("z3")
  return None


def _ask(outside: UOp) -> Answer:
  """What z3 says about the claim that a bool expression never holds. All terms are gone when this returns: z3 counts
  references to them without a lock of its own.
  """
  from tiny_uop.proof.z3_terms import Integers, Terms

  terms = Terms(Integers())
  return terms.prove(terms.z3.Not(terms.of(outside)), TIMEOUT_MS)


def check_bounds(root: UOp, stage: str = "") -> None:
  """Prove that every access of a kernel or program is in bounds; of a schedule, every access of its kernels.

  Raises BoundsError, which shows the access, its bounds and a counter-example, and ImportError without z3. `stage` is
  for the message.
  """
  if root.op is Ops.LINEAR and any(u.op is Ops.CALL for u in root.src):
    for body in dict.fromkeys(call.src[0] for call in root.src if call.src[0].op is Ops.SINK):
      check_bounds(body, stage)
    return
  found_accesses = list(accesses(root))
  exact = Exact(access.node for access in found_accesses if access.node.op is Ops.STORE)
  name = root.arg.name if isinstance(root.arg, KernelInfo) else "kernel"
  where = f"kernel {name!r}" + (f" after {stage!r}" if stage else "")
  for access in found_accesses:
    claim = Claim.of(access, exact)
    try:
      found = prove(claim)
    except TimeoutError as error:
      raise BoundsError(_unknown_message(claim, where, error), access.node, {}, None) from None
    if found is not None:
      raise _refuted(claim, where, found)


# *** messages ***


def _head(claim: Claim, where: str, verdict: str) -> list[str]:
  access, memory, offset = claim.access, memory_name(claim.access.node.src[0]), claim.offset.render()
  lanes, size, last = access.lanes, access.pointer.size, access.lanes - 1
  count = f" of {lanes} elements" if lanes > 1 else ""
  bounds = f"0 <= {offset} < {size}" if lanes == 1 else f"0 <= {offset} and {offset} + {last} < {size}"
  gates = ", ".join(dict.fromkeys(gate.render() for gate in claim.gates)) or "none"
  return [
    f"{where}: {access.node.op.name}{count} at {memory}[{offset}] {verdict}",
    f"  expected: {bounds}, for {memory} has {size} elements of {access.pointer.base}",
    f"  gate: {'for each element its own of ' if len(claim.gates) > 1 else ''}{gates}",
    *[f"  inside: {condition.render()}" for condition in claim.conditions],
  ]


def _unknown_message(claim: Claim, where: str, error: Exception) -> str:
  return "\n".join([
    *_head(claim, where, "cannot be shown to be in bounds"),
    f"  counter-example: not known, {error}",
    "  to do: use an offset that is linear in loops and variables, or gate the access by comparisons with the offset",
  ])  # fmt: skip


def _refuted(claim: Claim, where: str, found: dict[UOp, int | bool]) -> BoundsError:
  values = {u.render(): int(v) for u, v in found.items()}
  first = int(evaluate(claim.offset, found))  # type: ignore[arg-type]  # an index expression has one value
  size, touched = claim.access.pointer.size, list(range(first, first + claim.access.lanes))
  if len(claim.gates) > 1:
    touched = [e for e, gate in zip(touched, claim.gates, strict=True) if evaluate(gate, found)]
  element = next(e for e in touched if not 0 <= e < size)
  given = f"{', '.join(f'{name} = {value}' for name, value in values.items())}: " if values else ""
  message = "\n".join([
    *_head(claim, where, "is out of bounds"),
    f"  counter-example: {given}element {element}",
    "  to do: gate the access (the third source of INDEX) or limit its offset",
  ])  # fmt: skip
  return BoundsError(message, claim.access.node, values, element)
