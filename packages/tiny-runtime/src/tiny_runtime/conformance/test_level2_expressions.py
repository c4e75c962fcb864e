"""Level 2: more than one operation: each rounds by itself, but for products that may be fused; and constants.

The rule is in tiny-uop's README, "Rounding".
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest

from tiny_runtime.conformance.comparing import Case, check
from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.kernels import kernel
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.test_level2_ops import Build, Columns
from tiny_runtime.conformance.values import edge_values, pack, random_values, unpack
from tiny_uop import DType, Ops, UOp, dtypes, exec_alu, truncate
from tiny_uop.truncate import Number, to_bits

F16, BF16, F32, F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
FUSED_TYPES = (F32, F64)
RULE = "README of tiny-uop, Rounding"
CONTRACTS = (
  "a * b + c is rounded once, and Capabilities.fused_multiply_add is not claimed: either claim it, or tell the compiler"
  f" to leave products alone (-ffp-contract=off of C compilers). {RULE}"
)
NEITHER = (
  "neither what two roundings give nor, where a product may be fused, what one gives: fast-math, products of another"
  f" type than float32 and float64 that are not rounded, or a wider type in between. {RULE}"
)
SOME = (
  "some elements have the product rounded, others not: vectors and the rest behind them are compiled differently, so"
  f" that the result depends on the place. {RULE}"
)
ALGEBRA = f"no algebra on floats: operations are done in the order that is written, each rounded (no fast-math). {RULE}"
LITERAL = "how constants are written: all digits, signs of zeros, infinities and NaN, integers of 64 bits"

SUMS: dict[str, Build] = {
  "a*b+c": lambda a, b, c: a * b + c,
  "c+a*b": lambda a, b, c: c + a * b,
  "a*b-c": lambda a, b, c: a * b - c,
  "c-a*b": lambda a, b, c: c - a * b,
  "a*b+a*c": lambda a, b, c: a * b + a * c,
  "a*b*c+a": lambda a, b, c: a * b * c + a,
  "(a+b)*c+a*b": lambda a, b, c: (a + b) * c + a * b,
  "a*b+c+a": lambda a, b, c: (a * b + c) + a,
}
EXPRESSIONS: dict[str, Build] = {
  "(x+y)+z": lambda x, y, z: (x + y) + z,
  "x+(y+z)": lambda x, y, z: x + (y + z),
  "(x*y)*z": lambda x, y, z: (x * y) * z,
  "(x+y)-y": lambda x, y, z: (x + y) - y,
  "(x/y)*y": lambda x, y, z: (x / y) * y,
  "(x*y)/y": lambda x, y, z: (x * y) / y,
  "x-x": lambda x, y, z: x - x,
  "x/x": lambda x, y, z: x / x,
  "x*0": lambda x, y, z: x * 0.0,
  "x+0": lambda x, y, z: x + 0.0,
  "0-x": lambda x, y, z: x.const_like(0.0) - x,
  "x/3": lambda x, y, z: x / 3.0,
  "1/(1/x)": lambda x, y, z: x.const_like(1.0) / (x.const_like(1.0) / x),
  "(x+1e8)-1e8": lambda x, y, z: (x + 1e8) + -1e8,
  "sqrt(x)*sqrt(x)": lambda x, y, z: x.sqrt() * x.sqrt(),
  "x<y?x:y": lambda x, y, z: (x < y).where(x, y),
  "x!=x?y:z": lambda x, y, z: x.ne(x).where(y, z),
}


def rounded(dtype: DType, exact: Fraction) -> Number:
  """A fraction whose denominator is a power of two, rounded once."""
  scale = exact.denominator.bit_length() - 1
  return truncate(dtype, math.ldexp(truncate(dtype, exact.numerator), -scale))


def allowed(u: UOp, values: Mapping[UOp, Number], fuses: bool) -> set[Number]:
  """What an expression over finite numbers may give: a product that an ADD of float32 or float64 takes is rounded, or,
  where the device fuses, not."""
  if u in values:
    return {values[u]}
  if u.op is Ops.CONST:
    return {u.arg}
  sources = [allowed(s, values, fuses) for s in u.src]
  found = {exec_alu(u.op, u.dtype, arguments, u.src[0].dtype) for arguments in itertools.product(*sources)}
  if fuses and u.op is Ops.ADD and u.dtype in FUSED_TYPES:
    for product, other in ((0, 1), (1, 0)):
      if u.src[product].op is Ops.MUL:
        factors = [allowed(s, values, fuses) for s in u.src[product].src]
        for a, b, c in itertools.product(*factors, sources[other]):
          found.add(rounded(u.dtype, Fraction(a) * Fraction(b) + Fraction(c)))
  assert all(not isinstance(value, tuple) for value in found)
  return {value for value in found if not isinstance(value, tuple)}


def operands(dtype: DType, count: int) -> list[tuple[Number, Number, Number]]:
  """a, b and c, of which c is about a * b with either sign: what is left of the sum shows how the product was
  rounded."""
  chosen = random.Random(dtype.name)
  rows = []
  for _ in range(count):
    a, b = (truncate(dtype, chosen.uniform(1, 2)) for _ in range(2))
    c = truncate(dtype, a * b * chosen.choice((1, -1, -1, 1 + 2.0**-6, -0.5, chosen.uniform(-2, 2))))
    rows.append((a, b, c))
  return rows


def demand_allowed(
  target: Target, name: str, build: Build, dtype: DType, kinds: Sequence[DType], rows: Sequence[Sequence[Number]]
) -> None:
  """Raise Misbehaved where an element is nothing that the rule about rounding allows."""
  fuses = target.device.info.capabilities.fused_multiply_add
  columns = Columns("products", dtype, kinds, list(zip(*rows)), build)
  sink, kinds_seen = columns.kernel, dict[str, int]()
  leaves = [UOp.param(1 + n, dtype.ptr(1)).index(0).load() for n, dtype in enumerate(kinds)]
  whole = build(*leaves)
  for place, (value, row) in enumerate(zip(columns.run(target), rows)):
    values = dict(zip(leaves, row))
    twice, either = allowed(whole, values, False), allowed(whole, values, True)
    may = either if fuses else twice
    what, look_at = f"element {place} of {name} ({dtype}), for {', '.join(map(repr, row))}", NEITHER
    if _among(dtype, value, either):
      look_at = CONTRACTS
    expected = " or ".join(sorted(map(repr, may)))
    demand(_among(dtype, value, may), what, expected=expected, got=value, look_at=look_at, kernel=sink)
    if len(either) == 2 and _products(whole) == 1:
      kinds_seen.setdefault("rounded" if _among(dtype, value, twice) else "fused", place)
  if len(kinds_seen) > 1:
    what = (
      f"{name} ({dtype}): the product of element {kinds_seen['fused']} is fused, that of {kinds_seen['rounded']} is not"
    )
    demand(False, what, look_at=SOME, kernel=sink)


def _products(u: UOp) -> int:
  """How many products there are that an ADD may take unrounded."""
  return sum(s.op is Ops.MUL for node in u.toposort if node.op is Ops.ADD for s in node.src)


def _among(dtype: DType, value: Number, several: set[Number]) -> bool:
  return to_bits(dtype, value) in {to_bits(dtype, other) for other in several}


@pytest.mark.parametrize("dtype", (F32, F64, F16, BF16), ids=lambda d: str(d.name))
@pytest.mark.parametrize("name", SUMS)
def test_products_and_sums(target: Target, name: str, dtype: DType) -> None:
  """Every operation rounds; only a product of float32 or float64 that is added may be fused, if that is claimed, and
  then in all elements or in none."""
  demand_allowed(target, name, SUMS[name], dtype, [dtype] * 3, operands(dtype, 67))


@pytest.mark.parametrize(("narrow", "wide"), ((F32, F64), (F16, F32), (BF16, F32)), ids=lambda d: str(d.name))
def test_a_product_that_is_converted_is_rounded(target: Target, narrow: DType, wide: DType) -> None:
  """To its own type first."""
  rows = operands(narrow, 67)
  demand_allowed(target, "cast(a*b)+c", lambda a, b, c: (a * b).cast(wide) + c.cast(wide), wide, [narrow] * 3, rows)


@pytest.mark.parametrize("dtype", (F32, F64), ids=lambda d: str(d.name))
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_algebra(target: Target, oracle: Target, name: str, dtype: DType) -> None:
  """What is equal for real numbers is not for floats: nothing is reordered, cancelled, or taken for finite."""
  edges = edge_values(dtype)
  rows: list[tuple[Number, ...]] = [
    (x, y, edges[(3 * n) % len(edges)]) for n, x in enumerate(edges) for y in edges[::3]
  ]
  rows += zip(*(random_values(dtype, 100, seed) for seed in range(3)))
  columns = Columns("expression", dtype, [dtype] * 3, list(zip(*rows)), EXPRESSIONS[name])
  columns.compare(target, columns.run(oracle), ALGEBRA)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: str(d.name))
def test_constants(target: Target, dtype: DType) -> None:
  """A constant is the number that it is."""
  values = [*edge_values(dtype), *random_values(dtype, 24, 0)]
  if dtype.kind == "float":
    values += [truncate(dtype, v) for v in (1 / 3, 1e-7, 123456.789, 16777217.0)]
  out = UOp.param(0, dtype.ptr(len(values)))
  sink = kernel("constants", *(out.index(n).store(UOp.const(dtype, value)) for n, value in enumerate(values)))
  contents = [bytes(len(values) * dtype.itemsize)]
  got = unpack(dtype, target.run(sink, contents)[0])
  case = Case(target, sink, contents, 0, dtype, operands=[values])
  check(case, got, unpack(dtype, pack(dtype, values)), signed_zeros=True, look_at=LITERAL)
