"""Level 2: every elementwise operation on every type it is defined for, over the edge values of the type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from itertools import compress

import pytest

from tiny_runtime.conformance.comparing import Case, check
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.operations import ROWS, operand_types, tolerance
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


Build = Callable[..., UOp]


class Columns:
  """An elementwise kernel over columns of operands, and the comparison of its results."""

  def __init__(
    self,
    name: str,
    dtype: DType,
    types: Sequence[DType],
    operands: Sequence[Sequence[Number]],
    build: Callable[..., UOp],
  ) -> None:
    self.kernel = elementwise(name, len(operands[0]), dtype, types, build)
    self.dtype, self.operands = dtype, operands
    self.contents = [bytes(len(operands[0]) * dtype.itemsize), *map(pack, types, operands)]

  def run(self, side: Target) -> list[Number]:
    return unpack(self.dtype, side.run(self.kernel, self.contents)[0])

  def compare(
    self, target: Target, want: Sequence[Number], look_at: str, tolerance: float = 0, signed_zeros: bool | None = None,
    keep: Sequence[bool] | None = None,
  ) -> None:  # fmt: skip
    """Raise Misbehaved where the target gives other results; with `keep`, of those rows. Zeros of floats have signs,
    if nothing else is said."""
    kept = [True] * len(want) if keep is None else keep
    got, want, *operands = ([*compress(each, kept)] for each in (self.run(target), want, *self.operands))
    zeros = self.dtype.kind == "float" if signed_zeros is None else signed_zeros
    case = Case(target, self.kernel, self.contents, 0, self.dtype, operands=operands)
    check(case, got, want, tolerance, zeros, look_at)


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=ids(CASES))
def test_op(target: Target, oracle: Target, op: Ops, dtype: DType) -> None:
  row, types = ROWS[op], operand_types(op, dtype)
  values = [row.values(t) if t is dtype else edge_values(t) for t in types]
  drawn = zip(*(random_values(t, row.drawn, place) for place, t in enumerate(types)))
  rows = [combination for combination in (*itertools.product(*values), *drawn) if row.accept(dtype, *combination)]
  if op in (Ops.SHL, Ops.SHR):
    rows = [r for r in rows if r[1] < dtype.bits]
  result = dtypes.bool if op in GroupOp.Compare else dtype
  columns = Columns(f"{op.name.lower()}_{dtype.name}", result, types, list(zip(*rows)), row.build)
  columns.compare(target, columns.run(oracle), row.look_at, tolerance(row, result), row.signed_zeros)


def _specified(source: DType, dtype: DType, value: Number) -> bool:
  """Whether the conversion of this value is specified: not for floats outside of an integer type's range. Types of
  fewer than 32 bits have that of int32, and wrap."""
  if source.kind != "float" or dtype.kind not in ("int", "uint"):
    return True
  wide = dtype if dtype.bits >= 32 else dtypes.int32
  return math.isfinite(value) and dtypes.min(wide) <= int(value) <= dtypes.max(wide)


@pytest.mark.parametrize(("source", "dtype"), CASTS, ids=ids(CASTS))
def test_cast(target: Target, oracle: Target, source: DType, dtype: DType) -> None:
  # all values go through, so that one that traps is found; only the specified ones are compared
  values = list(edge_values(source))
  if source.kind == "float" and dtype.kind in ("int", "uint"):
    values += near_limits(source, dtype)
  columns = Columns(f"cast_{source.name}_{dtype.name}", dtype, [source], [values], lambda a: a.cast(dtype))
  keep = [_specified(source, dtype, value) for value in values]
  columns.compare(target, columns.run(oracle), CONVERSION, keep=keep)


@pytest.mark.parametrize(("source", "dtype"), BITCASTS, ids=ids(BITCASTS))
def test_bitcast(target: Target, oracle: Target, source: DType, dtype: DType) -> None:
  # the bits of a NaN are not kept by everything that moves floats
  values = [value for value in edge_values(source) if value == value]
  columns = Columns(f"bitcast_{source.name}_{dtype.name}", dtype, [source], [values], lambda a: a.bitcast(dtype))
  columns.compare(target, columns.run(oracle), "a bitcast keeps the bits: it is no conversion of the number")


@pytest.mark.parametrize("dtype", dtypes.fp8s, ids=lambda d: str(d.name))
def test_fp8_is_decoded_exactly(target: Target, dtype: DType) -> None:
  """All 256 patterns."""
  patterns, single = [from_bits(dtype, pattern) for pattern in range(256)], dtypes.float32
  columns = Columns(f"decode_{dtype.name}", single, [dtype], [patterns], lambda a: a.cast(single))
  columns.contents[1] = bytes(range(256))
  columns.compare(target, patterns, "the table of the format: fp8e4m3 has no infinities, fp8e5m2 has")


@pytest.mark.parametrize(("source", "dtype"), ROUNDED, ids=ids(ROUNDED))
def test_rounding_to_nearest_even(target: Target, oracle: Target, source: DType, dtype: DType) -> None:
  """At, just below and just above halfway between two numbers, subnormal and largest ones included: once, to nearest,
  ties to even. A type in between, which the number is rounded to first, is one rounding too many."""
  values = roundings(source, dtype)
  columns = Columns(f"round_{source.name}_{dtype.name}", dtype, [source], [values], lambda a: a.cast(dtype))
  columns.compare(target, columns.run(oracle), f"{ONCE}. {CONVERSION}")


@pytest.mark.parametrize(("source", "dtype"), NARROWED, ids=ids(NARROWED))
def test_nan_stays_nan(target: Target, source: DType, dtype: DType) -> None:
  """Whatever its bits are, a NaN is converted to a NaN, and to True."""
  patterns = nan_patterns(source)
  nans = [math.nan] * len(patterns)
  columns = Columns(f"nan_{source.name}_{dtype.name}", dtype, [source], [nans], lambda a: a.cast(dtype))
  columns.contents[1] = b"".join(pattern.to_bytes(source.itemsize, "little") for pattern in patterns)
  columns.compare(target, nans if dtype.kind == "float" else [True] * len(patterns), NAN)
