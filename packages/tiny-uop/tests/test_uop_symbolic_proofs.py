"""Proofs: an expression and its simplified form are equal for all integers, not only those that a random test meets.

Each rule is proved by itself in `test_uop_rule_cases`; here they work together, on variables whose bounds are too wide
to help.
"""

import pytest

from tiny_uop import DType, UOp, dtypes, simplify
from tiny_uop.testing import check_same_value

HUGE = 2**62  # bounds this wide keep the rules that go by bounds out of the way
a, b, c = (UOp.variable(name, -HUGE, HUGE) for name in "abc")
small, digit = UOp.variable("small", 0, 3), UOp.variable("digit", 0, 9)

EXPRESSIONS = [
  (a * 12 + b * 4 + 7) // 4, (a * 12 + b * 4 + 7) % 4, (a // 3 - 7) // 5, (a % 30) // 6, (a % 30) % 15,
  (a * 13 + b * 25) % 12, (a - 1) // 2, (a * 4 + small) // 8, (a * 4 + small) % 8,
  (a * 10 + digit - 3) // 10, (a * 10 - digit) // 10, (a * 20 + digit * 2 + 1) // 20, (a * 8 + small * 2 + 1) % 16,
  (a // 12) * 24 + (a % 12) * 2 + b, (a // 12) * 12 + (a // 4 % 3) * 4 + a % 4, (a * 5 // 4) * 4 + (a * 5) % 4,
  ((a + 3) // 4) * 4 + (a + 3) % 4, (a // 2) * 4 + (a % 2) * 2, (a + b) % 7 * 3 + (a + b) // 7 * 21,
  ((a * 3 + b) % 8 + c * 8) % 8, (a % 4 + b * 4) // 4, ((a % 8) * 2 + small % 2) // 16, (a * 9 + 5) // 3 % 3,
  a % 7 // 7 + a % 1, a // -12 % 5, a % -12 // 4,
]  # fmt: skip
CONDITIONS = [
  a * 4 - small < 8, a + 3 < b * 2 + 5, a * 2 < b * 4 + 6, (a * 2 + b * 4).eq(6),
  (a * 2).ne(b * 2 + 2), a - b < a + b, a * 10 + digit < 30, (a * 10 + digit).eq(b * 10 + digit),
  ((a < 3) | (a < 3)) & (a >= 1), (a // 3 < 4).logical_not(), a * -1 < b * -1,
]  # fmt: skip
SELECTIONS = [
  (a < 4).where((a >= 0).where(a % 4, 7), 9), (a < 5).where(-((-a).maximum(-5)), 0), (a < b).logical_not().where(a, b),
  ((a < 8) & (a >= 0)).where(a // 8 + a % 8, b), (a + b < 5).where((a + b).maximum(5), c),
  (a < 3).where((a < 4).where(1, b), c),
  ((a >= 16) & (a < 32)).where((a + 16) // 32 + a % 16, 0),
]  # fmt: skip


@pytest.mark.parametrize("u", [*EXPRESSIONS, *CONDITIONS, *SELECTIONS], ids=lambda u: u.render())
def test_proof(u: UOp) -> None:
  simple = simplify(u)
  assert simple is not u
  check_same_value(u, simple)


@pytest.mark.parametrize("divisor", range(1, 9))
@pytest.mark.parametrize("factor", [*range(-8, 9), 12, 24])
def test_divisions_of_products_for_all_integers(divisor: int, factor: int) -> None:
  for offset in (-5, 0, 3):
    for u in ((a * factor + offset) // divisor, (a * factor + offset) % divisor):
      check_same_value(u, simplify(u))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 8, 16, 100, 127])
def test_arithmetic_that_wraps(divisor: int, dtype: DType) -> None:
  x = UOp.variable("x", int(dtypes.min(dtype)), int(dtypes.max(dtype)), dtype)
  for u in (
    (x * 2) // divisor, (x * 4 + 3) % divisor, (x + 100) // divisor, (x + 100) < 50, x * 2 < 9, (x + 3).eq(divisor),
    (x // divisor) // 3, (x % divisor) // 2, (x // divisor) * divisor + x % divisor, (x * divisor) // divisor,
    x + x * 3 - x, (x * 16 + 5) % 16, (x + 7).ne(x * 2), (x // 16 % 4) * 16 + x % 16,
  ):  # fmt: skip
    check_same_value(u, simplify(u))
