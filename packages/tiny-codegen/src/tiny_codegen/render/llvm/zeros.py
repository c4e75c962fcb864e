"""Gated elements that are read from zeros where their gates are false.

`lower_gates` reads element 0 there and selects afterwards. An element that is multiplied with a vector would be spread
over a register as it is read; with something between, that takes instructions in the units that multiply. Where zero is
selected, the address of a zero is instead, as soon as the gate is known: outside of the loops it does not depend on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tiny_codegen.kernel.memory import element_of
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.text import memory_type, value_type
from tiny_uop import Ops, UOp

NAME = "@zeros"
LARGEST = 8
"""Bytes of an element."""


class Zeros:
  """What a program reads so. `values` are the WHEREs that select, by the LOAD that makes them needless."""

  def __init__(self, linear: Sequence[UOp]) -> None:
    users = Counter(s for u in linear for s in u.src)
    self.values = {u: u.src[1] for u in linear if u.op is Ops.WHERE and _or_zero(u) and users[u.src[1]] == 1}
    self.loads = {load: _Choice.of(where) for where, load in self.values.items()}
    self.conditions: dict[UOp, dict[_Choice, None]] = {}
    for choice in self.loads.values():
      self.conditions.setdefault(choice.condition, {})[choice] = None
    self.places: dict[_Choice, str] = {}

  @property
  def globals(self) -> list[str]:
    """The zeros themselves."""
    return [f"{NAME} = private constant [{LARGEST} x i8] zeroinitializer, align {LARGEST}"] if self.loads else []

  def gate(self, body: Function, u: UOp) -> None:
    """Choose where to read, now that a condition is known."""
    for choice in self.conditions.get(u, ()):
      self.places[choice] = choice.place(body)

  def load(self, body: Function, u: UOp) -> str:
    """What such a LOAD reads."""
    buffer, offset = u.src[0].src[:2]
    element = memory_type(element_of(buffer))
    choice = self.loads[u]
    place = self.places.get(choice) or choice.place(body)
    address = body.let(
      f"getelementptr inbounds {element}, ptr {place}, {value_type(offset.dtype)} {body.operand(offset)}"
    )
    return body.let(f"load {value_type(u.dtype)}, ptr {address}, align {u.dtype.itemsize}")


@dataclass(frozen=True)
class _Choice:
  """Where to read: in the buffer where the condition is true, in zeros where it is false; or, inverted, the other way
  around. It is the condition that chooses the offset, as a LOAD comes after that and perhaps before its gate."""

  condition: UOp
  buffer: UOp
  inverted: bool

  @staticmethod
  def of(where: UOp) -> _Choice:
    buffer, offset = where.src[1].src[0].src[:2]
    return _Choice(offset.src[0], buffer, offset.src[0] is not where.src[0])

  def place(self, body: Function) -> str:
    buffer = body.operand(self.buffer)
    yes, no = (NAME, buffer) if self.inverted else (buffer, NAME)
    return body.let(f"select i1 {body.operand(self.condition)}, ptr {yes}, ptr {no}")


def _or_zero(where: UOp) -> bool:
  """Whether a WHERE selects what an element of a parameter is, or zero where another one is read that is safe."""
  gate, load, other = where.src
  if load.op is not Ops.LOAD or load.dtype.count != 1 or load.dtype.kind == "bool" or load.dtype.itemsize > LARGEST:
    return False
  buffer, offset = load.src[0].src[:2]
  known = _is_zero(other) and gate.op is not Ops.CONST
  plain = buffer.op is Ops.PARAM and len(load.src) == 1 and len(load.src[0].src) == 2
  return known and plain and _is_safe(offset, gate)


def _is_safe(offset: UOp, gate: UOp) -> bool:
  """Whether an offset is 0 where a gate is false."""
  if offset.op is not Ops.WHERE:
    return False
  condition, yes, no = offset.src
  inverse = gate.op is Ops.CMPNE and gate.src[1].op is Ops.CONST and gate.src[1].arg is True
  return (condition is gate and _is_zero(no)) or (inverse and condition is gate.src[0] and _is_zero(yes))


def _is_zero(u: UOp) -> bool:
  return u.op is Ops.CONST and u.arg == 0 and math.copysign(1.0, u.arg) > 0
