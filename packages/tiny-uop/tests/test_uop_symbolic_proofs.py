"""Proofs: z3 shows that an expression and its simplified form are equal for all integers, not only those that a random
test meets.

FLOORDIV and FLOORMOD by positive constants are z3's div and mod (both Euclidean, which for positive divisors is
rounding down).
"""

from typing import Any

import pytest
import z3

from tiny_uop import Ops, UOp, dtypes, evaluate, simplify

HUGE = 2**62  # bounds this wide keep the rules that go by bounds out of the way
a, b, c = (UOp.variable(name, -HUGE, HUGE) for name in "abc")
small, digit = UOp.variable("small", 0, 3), UOp.variable("digit", 0, 9)


def to_z3(root: UOp, constraints: list[Any]) -> Any:
  """An index or bool expression as a z3 term; the bounds of its variables go to `constraints`."""
  terms: dict[UOp, Any] = {}
  for u in root.toposort:
    s = [terms[x] for x in u.src]
    if u.op is Ops.CONST:
      terms[u] = z3.BoolVal(u.arg) if u.dtype is dtypes.bool else z3.IntVal(u.arg)
    elif u.op is Ops.VARIABLE:
      name, low, high = u.arg
      terms[u] = z3.Int(name)
      constraints += [terms[u] >= low, terms[u] <= high]
    elif u.op in (Ops.FLOORDIV, Ops.FLOORMOD):
      assert u.src[1].op is Ops.CONST and u.src[1].arg > 0, "the proofs are about positive constants"
      terms[u] = s[0] / s[1] if u.op is Ops.FLOORDIV else s[0] % s[1]
    else:
      terms[u] = _OPERATIONS[u.op](*s)
  return terms[root]


_OPERATIONS: dict[Ops, Any] = {
  Ops.ADD: lambda x, y: x + y,
  Ops.MUL: lambda x, y: x * y,
  Ops.MAX: lambda x, y: z3.If(x >= y, x, y),
  Ops.CMPLT: lambda x, y: x < y,
  Ops.CMPEQ: lambda x, y: x == y,
  Ops.CMPNE: lambda x, y: x != y,
  Ops.AND: lambda x, y: z3.And(x, y),
  Ops.OR: lambda x, y: z3.Or(x, y),
  Ops.WHERE: lambda cond, x, y: z3.If(cond, x, y),
}


def prove_equal(u: UOp, simple: UOp) -> None:
  constraints: list[Any] = []
  solver = z3.Solver()
  solver.set("timeout", 20_000)
  difference = to_z3(u, constraints) != to_z3(simple, constraints)
  solver.add(*constraints, difference)
  result = solver.check()
  assert result == z3.unsat, f"{u.render()} → {simple.render()}: {result} {solver.model() if result == z3.sat else ''}"


EXPRESSIONS = [
  (a * 12 + b * 4 + 7) // 4, (a * 12 + b * 4 + 7) % 4, (a * 6 + 3) // 4, (a * 6 + 3) % 4, (a * -6 + 5) // 9,
  (a // 3) // 5, (a // 3 + 2) // 5, (a // 3 - 7) // 5, (a % 12) // 4, (a % 12) % 4, (a % 30) // 6, (a % 30) % 15,
  (a + 24) % 12, (a * 13 + b * 25) % 12, (a - 1) // 2, (a * -1) // 4, (a * -1) % 4, (a * 4 + small) // 4,
  (a * 4 + small) % 4, (a * 4 + small) // 8, (a * 4 + small) % 8, (a * 10 + digit) // 30, (a * 10 + digit - 3) // 10,
  (a * 10 + digit) % 30, (a * 10 - digit) // 10, (a * 20 + digit * 2 + 1) // 20, (a * 8 + small * 2 + 1) % 16,
  (a // 12) * 12 + a % 12, (a // 12) * 24 + (a % 12) * 2 + b, (a // 12) * 12 + (a // 4 % 3) * 4 + a % 4,
  (a // 4 % 3) * 4 + a % 4, (a * 5 // 4) * 4 + (a * 5) % 4, ((a + 3) // 4) * 4 + (a + 3) % 4, (a // 2) * 4 + (a % 2) *
  2,
  (a + b) % 7 * 3 + (a + b) // 7 * 21, ((a * 3 + b) % 8 + c * 8) % 8, (digit * 7) // 6, (digit * 11) % 10,
  (a % 4 + b * 4) // 4, ((a % 8) * 2 + small % 2) // 16, (a * 9 + 5) // 3 % 3, a % 7 // 7 + a % 1,
]  # fmt: skip
CONDITIONS = [
  a * 4 < 9, a * 4 < 8, a * -3 < 7, a * 4 + small < 8, a * 4 + small < 9, a * 4 - small < 8, a // 4 < 2, a // 4 < -3,
  a + 3 < b * 2 + 5, a * 2 < b * 4 + 6, a > 3, a >= b, (a * 2).eq(7), (a * 2 + b * 4).eq(6), (a * 2).ne(b * 2 + 2),
  (a + b).eq(a + 3), a - b < a + b, a * 10 + digit < 30, a * 10 + digit < 35, (a * 10 + digit).eq(b * 10 + digit),
  (a < 5) & (a < 3) & (b < 2), ((a < 3) | (a < 3)) & (a >= 1), (a // 3 < 4).logical_not(), a * -1 < b * -1,
]  # fmt: skip
SELECTIONS = [
  (a < 4).where((a >= 0).where(a % 4, 7), 9), (a < 5).where(-((-a).maximum(-5)), 0), (a < b).logical_not().where(a, b),
  ((a < 8) & (a >= 0)).where(a // 8 + a % 8, b), (a + b < 5).where((a + b).maximum(5), c), (a < 3).where((a <
  4).where(1, b), c),
  (a.eq(4)).where(a * b, 0), ((a >= 16) & (a < 32)).where((a + 16) // 32 + a % 16, 0),
]  # fmt: skip


@pytest.mark.parametrize("u", [*EXPRESSIONS, *CONDITIONS, *SELECTIONS], ids=lambda u: u.render())
def test_proof(u: UOp) -> None:
  prove_equal(u, simplify(u))


def test_the_prover_finds_errors() -> None:
  with pytest.raises(AssertionError, match="sat"):
    prove_equal((a * 4 + 3) // 4, a + 1)


@pytest.mark.parametrize("divisor", range(1, 9))
@pytest.mark.parametrize("factor", [*range(-8, 9), 12, 24])
def test_divisions_of_products_for_all_integers(divisor: int, factor: int) -> None:
  for offset in (-5, 0, 3):
    for u in ((a * factor + offset) // divisor, (a * factor + offset) % divisor):
      prove_equal(u, simplify(u))


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 8, 16, 100, 127])
def test_int8_exhaustively(divisor: int) -> None:
  """Wrapping arithmetic: every value of an 8-bit variable."""
  for dtype, low in ((dtypes.int8, -128), (dtypes.uint8, 0)):
    x = UOp.variable("x", low, low + 255, dtype)
    for u in (
      (x * 2) // divisor, (x * 4 + 3) % divisor, (x + 100) // divisor, (x + 100) < 50, x * 2 < 9, (x + 3).eq(divisor),
      (x // divisor) // 3, (x % divisor) // 2, (x // divisor) * divisor + x % divisor, (x * divisor) // divisor, x + x *
      3 - x,
      (x * 16 + 5) % 16, (x + 7).ne(x * 2), (x // 16 % 4) * 16 + x % 16,
    ):  # fmt: skip
      simple = simplify(u)
      for value in range(low, low + 256):
        assert evaluate(simple, {x: value}) == evaluate(u, {x: value}), (u.render(), simple.render(), value)
