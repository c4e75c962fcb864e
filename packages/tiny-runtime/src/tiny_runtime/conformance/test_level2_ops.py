"""Level 2: every elementwise operation on every type it is defined for, over the edge values of the type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

from tiny_runtime.conformance.comparing import Case, check
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.operations import ROWS, Row, operand_types, tolerance
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import (
  edge_values,
  nan_patterns,
  near_limits,
  pack,
  random_values,
  roundings,
  unpack,
)
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes
from tiny_uop.truncate import Number, from_bits

CASES = [(op, dtype) for op, row in sorted(ROWS.items(), key=lambda item: item[0].name) for dtype in row.types]
CASTS = list(itertools.permutations(dtypes.all, 2))
BITCASTS = [(a, b) for a, b in CASTS if a.itemsize == b.itemsize and dtypes.bool not in (a, b)]
ROUNDED = [(a, b) for a, b in CASTS if b.kind == "float" and a is not dtypes.bool and roundings(a, b)]
NARROWED = [(a, b) for a, b in CASTS if a.kind == "float" and b.kind in ("float", "bool")]
ONCE = "a number is rounded once: not to a type in between, as where int64 or float64 becomes float32 on its way"
NAN = "adding to the bits of a NaN, or cutting some off, makes a number or an infinity of it: ask whether it is one"
CONVERSION = "how a conversion is written: float to integer toward zero, integers wrap, to a float to nearest even"


def ids(pairs: Sequence[tuple[object, object]]) -> list[str]:
  return ["-".join(getattr(part, "name", str(part)) for part in pair) for pair in pairs]


def require(target: Target, *types: DType) -> None:
  """Skip a case whose types the device does not claim."""
  if not target.claims(*(t.name for t in types)):
    pytest.skip(f"{target.name} does not claim {', '.join(t.name for t in types)}")


class Columns:
  """An elementwise kernel over columns of operands, and the comparison of its results."""

  def __init__(self, kernel: UOp, dtype: DType, types: Sequence[DType], operands: Sequence[Sequence[Number]]) -> None:
    self.kernel, self.dtype, self.operands = kernel, dtype, operands
    nothing = bytes(len(operands[0]) * dtype.itemsize)
    self.contents = [nothing, *(pack(t, column) for t, column in zip(types, operands))]

  def run(self, side: Target) -> list[Number]:
    return unpack(self.dtype, side.run(self.kernel, self.contents)[0])

  def compare(self, target: Target, want: Sequence[Number], row: Row | None = None, look_at: str = "") -> None:
    case = Case(target, self.kernel, self.contents, 0, self.dtype, operands=self.operands)
    allowed = tolerance(row, self.dtype) if row is not None else 0
    zeros = row.signed_zeros if row is not None else self.dtype.kind == "float"
    check(case, self.run(target), want, allowed, zeros, look_at or (row.look_at if row is not None else ""))


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=ids(CASES))
def test_op(target: Target, oracle: Target, op: Ops, dtype: DType) -> None:
  row, types = ROWS[op], operand_types(op, dtype)
  require(target, *types)
  values = [row.values(t) if t is dtype else edge_values(t) for t in types]
  drawn = zip(*(random_values(t, row.drawn, place) for place, t in enumerate(types)))
  rows = [combination for combination in (*itertools.product(*values), *drawn) if row.accept(dtype, *combination)]
  if op in (Ops.SHL, Ops.SHR):
    rows = [r for r in rows if r[1] < dtype.bits]
  result = dtypes.bool if op in GroupOp.Compare else dtype
  kernel = elementwise(f"{op.name.lower()}_{dtype.name}", len(rows), result, types, row.build)
  columns = Columns(kernel, result, types, list(zip(*rows)))
  columns.compare(target, columns.run(oracle), row)


def _specified(source: DType, dtype: DType, value: Number) -> bool:
  """Whether the conversion of this value is specified: not for floats outside of an integer type's range."""
  if source.kind != "float" or dtype.kind not in ("int", "uint"):
    return True
  return value == value and abs(value) != float("inf") and dtypes.min(dtype) <= int(value) <= dtypes.max(dtype)


@pytest.mark.parametrize(("source", "dtype"), CASTS, ids=ids(CASTS))
def test_cast(target: Target, oracle: Target, source: DType, dtype: DType) -> None:
  require(target, source, dtype)
  # all values go through, so that one that traps is found; only the specified ones are compared
  values = list(edge_values(source))
  if source.kind == "float" and dtype.kind in ("int", "uint"):
    values += near_limits(source, dtype)
  kernel = elementwise(f"cast_{source.name}_{dtype.name}", len(values), dtype, [source], lambda a: a.cast(dtype))
  columns = Columns(kernel, dtype, [source], [values])
  keep = [_specified(source, dtype, value) for value in values]
  got, want = ([v for v, kept in zip(columns.run(side), keep) if kept] for side in (target, oracle))
  compared = [v for v, kept in zip(values, keep) if kept]
  case = Case(target, kernel, columns.contents, 0, dtype, operands=[compared])
  check(case, got, want, signed_zeros=dtype.kind == "float", look_at=CONVERSION)


@pytest.mark.parametrize(("source", "dtype"), BITCASTS, ids=ids(BITCASTS))
def test_bitcast(target: Target, oracle: Target, source: DType, dtype: DType) -> None:
  require(target, source, dtype)
  # the bits of a NaN are not kept by everything that moves floats
  values = [value for value in edge_values(source) if value == value]
  kernel = elementwise(f"bitcast_{source.name}_{dtype.name}", len(values), dtype, [source], lambda a: a.bitcast(dtype))
  columns = Columns(kernel, dtype, [source], [values])
  columns.compare(target, columns.run(oracle), look_at="a bitcast keeps the bits: it is no conversion of the number")


@pytest.mark.parametrize("dtype", dtypes.fp8s, ids=lambda d: str(d.name))
def test_fp8_is_decoded_exactly(target: Target, dtype: DType) -> None:
  """All 256 patterns."""
  require(target, dtype, dtypes.float32)
  kernel = elementwise(f"decode_{dtype.name}", 256, dtypes.float32, [dtype], lambda a: a.cast(dtypes.float32))
  patterns = [from_bits(dtype, pattern) for pattern in range(256)]
  columns = Columns(kernel, dtypes.float32, [dtype], [patterns])
  columns.contents[1] = bytes(range(256))
  columns.compare(target, patterns, look_at="the table of the format: fp8e4m3 has no infinities, fp8e5m2 has")


@pytest.mark.parametrize(("source", "dtype"), ROUNDED, ids=ids(ROUNDED))
def test_rounding_to_nearest_even(target: Target, oracle: Target, source: DType, dtype: DType) -> None:
  """At, just below and just above halfway between two numbers, subnormal and largest ones included: once, to nearest,
  ties to even. A type in between, which the number is rounded to first, is one rounding too many."""
  require(target, source, dtype)
  values = roundings(source, dtype)
  kernel = elementwise(f"round_{source.name}_{dtype.name}", len(values), dtype, [source], lambda a: a.cast(dtype))
  columns = Columns(kernel, dtype, [source], [values])
  columns.compare(target, columns.run(oracle), look_at=f"{ONCE}. {CONVERSION}")


@pytest.mark.parametrize(("source", "dtype"), NARROWED, ids=ids(NARROWED))
def test_nan_stays_nan(target: Target, source: DType, dtype: DType) -> None:
  """Whatever its bits are, a NaN is converted to a NaN, and to True."""
  require(target, source, dtype)
  patterns = nan_patterns(source)
  kernel = elementwise(f"nan_{source.name}_{dtype.name}", len(patterns), dtype, [source], lambda a: a.cast(dtype))
  columns = Columns(kernel, dtype, [source], [[math.nan] * len(patterns)])
  columns.contents[1] = b"".join(pattern.to_bytes(source.itemsize, "little") for pattern in patterns)
  columns.compare(target, [math.nan if dtype.kind == "float" else True] * len(patterns), look_at=NAN)
