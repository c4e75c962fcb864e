"""Every elementwise op on every dtype as machine code, against `exec_alu`, the IR's own meaning of the ops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply_all, apply_in_widths, storage

from tiny_uop import DType, GroupOp, Ops, dtypes, exec_alu, truncate
from tiny_uop.truncate import from_bits, to_bits

pytestmark = pytest.mark.slow

LANES = 4
WIDTHS = (1, LANES)
FLOAT_EDGES = [
  0.0,
  -0.0,
  1.0,
  -1.0,
  0.5,
  1.5,
  -2.5,
  3.0,
  100.0,
  -7.25,
  1e-3,
  math.inf,
  -math.inf,
  math.nan,
  240.0,
  5e-8,
]
UNARY_FLOAT = (Ops.SQRT, Ops.TRUNC, Ops.NEG)
BINARY_FLOAT = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX)
BINARY_INT = (
  Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR,
)  # fmt: skip
BINARY_BOOL = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR)


def edges(dtype: DType) -> list[Any]:
  if dtype.kind == "float":
    return [truncate(dtype, v) for v in FLOAT_EDGES]
  if dtype.kind == "bool":
    return [False, True, True, False]
  low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
  values = {low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 8, 100, high // 3}
  return sorted(values | ({-1, -2, -3, -8, -100} if low else set()))


def to_array(dtype: DType, values: list[Any]) -> np.ndarray[Any, Any]:
  if dtype.kind == "float" and storage(dtype) in (np.uint8, np.uint16):
    return np.array([to_bits(dtype, v) for v in values], storage(dtype))
  return np.array(values, storage(dtype))


def from_array(dtype: DType, array: np.ndarray[Any, Any]) -> list[Any]:
  if dtype.kind == "float" and array.dtype.kind == "u":
    return [from_bits(dtype, int(b)) for b in array]
  return list(array.tolist())


def same(a: Any, b: Any) -> bool:
  return bool(a == b or (a != a and b != b))


def compare(renderer: str, ops: Iterable[Ops], dtype: DType, operands: list[list[Any]]) -> None:
  """Of operands one by one, and of vectors of them."""
  outputs = {op: dtypes.bool if op in GroupOp.Compare else dtype for op in ops}
  rows = list(zip(*operands, strict=True))
  rows += rows[:1] * (-len(rows) % LANES)
  columns = [(dtype, to_array(dtype, list(c))) for c in zip(*rows, strict=True)]
  functions = [(lambda *x, op=op: x[0].alu(op, *x[1:]), output) for op, output in outputs.items()]
  made = apply_in_widths(RENDERERS[renderer](), functions, columns, WIDTHS)
  for (op, output), *arrays in zip(outputs.items(), *made, strict=True):
    for row, *values in zip(rows, *(from_array(output, array) for array in arrays), strict=True):
      wanted = exec_alu(op, output, row)
      for lanes, value in zip(WIDTHS, values, strict=True):
        assert same(value, wanted), f"{op.name}{row} of {dtype}, {lanes} lanes: got {value!r}, expected {wanted!r}"


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_binary(dtype: DType, renderer: str) -> None:
  ops = {"float": BINARY_FLOAT, "bool": BINARY_BOOL}.get(dtype.kind, BINARY_INT)
  pairs = list(itertools.product(edges(dtype), repeat=2))
  operands = [list(c) for c in zip(*pairs, strict=True)]
  compare(renderer, (*ops, *GroupOp.Compare), dtype, operands)


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
def test_unary(dtype: DType, renderer: str) -> None:
  compare(renderer, UNARY_FLOAT, dtype, [edges(dtype)])


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
def test_shift(dtype: DType, renderer: str) -> None:
  pairs = list(itertools.product(edges(dtype), (0, 1, 3, dtype.bits - 1)))
  operands = [list(c) for c in zip(*pairs, strict=True)]
  compare(renderer, (Ops.SHL, Ops.SHR), dtype, operands)


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
def test_division_by_constants(dtype: DType, renderer: str) -> None:
  values = edges(dtype)
  values += values[:1] * (-len(values) % LANES)
  divisors = [d for d in (1, 2, 3, 7, 8, 0, -1, -2, -3) if d >= 0 or dtype.kind == "int"]
  cases = list(itertools.product((Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD), divisors))
  functions = [(lambda x, op=op, d=d: x.alu(op, x.const_like(d)), dtype) for op, d in cases]
  results = apply_in_widths(RENDERERS[renderer](), functions, [(dtype, to_array(dtype, values))], WIDTHS)
  for (op, d), *made in zip(cases, *results, strict=True):
    wanted = [exec_alu(op, dtype, (v, d)) for v in values]
    assert [m.tolist() for m in made] == [wanted] * len(WIDTHS), f"{op.name} by {d}"


def in_range(value: Any, dtype: DType) -> bool:
  """Whether a conversion is specified: NaN, infinity and what is out of an integer type's range are not."""
  if dtype.kind not in ("int", "uint") or not isinstance(value, float):
    return True
  return math.isfinite(value) and int(dtypes.min(dtype)) <= math.trunc(value) <= int(dtypes.max(dtype))


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("source", dtypes.all, ids=str)
def test_cast(source: DType, renderer: str) -> None:
  values = edges(source)
  values += values[:1] * (-len(values) % LANES)
  array = to_array(source, values)
  functions = [(lambda x, t=target: x.cast(t), target) for target in dtypes.all]
  for results in apply_in_widths(RENDERERS[renderer](), functions, [(source, array)], WIDTHS):
    for target, made in zip(dtypes.all, results, strict=True):
      for value, got in zip(values, from_array(target, made), strict=True):
        if in_range(value, target):
          assert same(got, truncate(target, value)), f"{value!r} of {source} to {target}: {got!r}"


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_bitcast(bits: int, renderer: str) -> None:
  kinds = [d for d in dtypes.all if d.bits == bits and d.kind != "bool"]
  values = np.random.default_rng(0).integers(0, 1 << bits, 64, dtype=np.uint64).astype(f"uint{bits}")
  functions = [(lambda x, t=target: x.bitcast(t.vec(x.dtype.count)), target) for target in kinds]
  for source in kinds:
    # through memory of either type, NaNs aside, bits arrive as they were
    inputs = [(source, values.view(storage(source)))]
    for results in apply_in_widths(RENDERERS[renderer](), functions, inputs, WIDTHS):
      for target, made in zip(kinds, results, strict=True):
        assert made.view(values.dtype).tolist() == values.tolist(), f"{source} to {target}"


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_where(dtype: DType, renderer: str) -> None:
  values = (edges(dtype) * 16)[:16]
  a, b = to_array(dtype, values), to_array(dtype, values[::-1])
  flags = np.arange(16) % 3 == 0
  inputs = [(dtypes.bool, flags), (dtype, a), (dtype, b)]
  function = (lambda c, x, y: c.where(x, y), dtype)
  for (made,) in apply_in_widths(RENDERERS[renderer](), [function], inputs, WIDTHS):
    assert made.tobytes() == np.where(flags, a, b).tobytes()


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_constants(dtype: DType, renderer: str) -> None:
  inputs = [(dtype, to_array(dtype, edges(dtype)[:4]))]
  functions = [(lambda x, v=value: x.const_like(v), dtype) for value in edges(dtype)]
  for value, made in zip(edges(dtype), apply_all(RENDERERS[renderer](), functions, inputs), strict=True):
    assert all(same(v, value) for v in from_array(dtype, made)), value
  lanes = tuple(edges(dtype)[:4])
  (made,) = apply_all(RENDERERS[renderer](), [(lambda x: x.const_like(lanes), dtype)], inputs, 4)
  assert all(same(a, b) for a, b in zip(from_array(dtype, made), lanes, strict=True))
