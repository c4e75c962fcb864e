"""The simplifier never changes a value, and what it gives is stable: random expressions of every kind of node that
it looks at.
"""

from typing import Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_uop import DType, Ops, UOp, dtypes, evaluate, simplify

Drawn: TypeAlias = tuple[UOp, list[dict[UOp, int]]]
Kind = Literal["any", "index", "gate"]
_TYPES = [dtypes.index, dtypes.index, dtypes.index, dtypes.int8, dtypes.uint8, dtypes.int32]
_CONSTANTS = [1, 2, 3, 4, 6, 8, 12, 5, 7, 16, 0, -1, -2, -4]
# variables of fixed bounds, so that two expressions drawn apart have the same ones
_INDEX = tuple(UOp.variable(name, low, high) for name, low, high in (("x", 0, 11), ("y", -5, 6), ("z", 0, 3)))


class _Maker:
  def __init__(self, draw: st.DrawFn, dtype: DType, variables: tuple[UOp, ...]) -> None:
    self.draw, self.dtype, self.variables = draw, dtype, variables

  def constant(self) -> UOp:
    return UOp.const(self.dtype, self.draw(st.sampled_from(_CONSTANTS)))

  def integer(self, depth: int) -> UOp:
    draw = self.draw
    if depth == 0:
      return draw(st.sampled_from(self.variables)) if draw(st.integers(0, 3)) else self.constant()
    kind = draw(st.integers(0, 13))
    left = self.integer(depth - 1)
    if kind < 3:
      return left + self.integer(depth - 1)
    if kind == 12:
      return left.alu(draw(st.sampled_from([Ops.TRUNCDIV, Ops.TRUNCMOD])), self.constant())
    if kind == 13:
      return left.cast(draw(st.sampled_from([dtypes.int8, dtypes.uint8, dtypes.int32]))).cast(self.dtype)
    if kind == 11:
      return self.gate(depth - 1).where(left, self.integer(depth - 1))
    operations = [Ops.MUL, Ops.MUL, Ops.FLOORDIV, Ops.FLOORDIV, Ops.FLOORMOD, Ops.FLOORMOD, Ops.MAX, Ops.AND]
    right = self.constant() if draw(st.integers(0, 4)) else self.integer(depth - 1)
    return left.alu(operations[kind - 3], right)

  def gate(self, depth: int) -> UOp:
    kind = self.draw(st.integers(0, 7))
    if depth <= 0 or kind < 4:
      left, right = self.integer(max(depth - 1, 0)), self.integer(max(depth - 1, 0))
      return [left < right, left >= right, left.eq(right), left.ne(right)][kind % 4]
    left, right = self.gate(depth - 1), self.gate(depth - 1)
    return [left & right, left & right, left | right, left.logical_not()][kind - 4]


@st.composite
def expressions(draw: st.DrawFn, kind: Kind = "any") -> Drawn:
  """An expression of `kind` ("gate": bool, over index variables) and a few values of its variables."""
  dtype = draw(st.sampled_from(_TYPES)) if kind == "any" else dtypes.index
  variables = _INDEX
  if kind == "any":
    ends = [
      (draw(st.integers(0 if dtype.kind == "uint" else -8, 4)), draw(st.sampled_from([0, 1, 3, 7, 11, 30])))
      for _ in range(3)
    ]
    variables = tuple(UOp.variable(n, low, low + more, dtype) for n, (low, more) in zip("xyz", ends, strict=True))
  maker = _Maker(draw, dtype, variables)
  wants_gate = kind == "gate" or (kind == "any" and draw(st.integers(0, 3)) == 0)
  u = maker.gate(3) if wants_gate else maker.integer(draw(st.integers(1, 4)))
  environment = st.fixed_dictionaries({v: st.integers(v.arg[1], v.arg[2]) for v in variables})
  return u, draw(st.lists(environment, min_size=4, max_size=4))


@settings(max_examples=400, deadline=None)
@given(expressions())
def test_values_are_kept(drawn: Drawn) -> None:
  u, environments = drawn
  simple = simplify(u)
  for env in environments:
    value = evaluate(u, env)
    assert evaluate(simple, env) == value, (u.render(), simple.render(), env)
    assert u.vmin <= value <= u.vmax and simple.vmin <= value <= simple.vmax


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_simplified_is_stable(drawn: Drawn) -> None:
  simple = simplify(drawn[0])
  assert simplify(simple) is simple, simple.render()


@settings(max_examples=150, deadline=None)
@given(expressions(kind="index"), expressions(kind="gate"))
def test_under_a_gate(drawn: Drawn, gate_drawn: Drawn) -> None:
  """Where the gate holds the expression keeps its value; the gate itself keeps its value everywhere."""
  u, environments = drawn
  gate = simplify(gate_drawn[0])
  pointer = UOp.param(0, dtypes.float32.ptr(1000))
  address = simplify(pointer.index(u, gate))
  # a gate that always holds is gone
  offset, kept = address.src[1], address.src[2] if len(address.src) == 3 else UOp.const(dtypes.bool, True)
  for env in environments:
    holds = evaluate(gate, env)
    assert evaluate(kept, env) == holds
    if holds:
      assert evaluate(offset, env) == evaluate(u, env)
