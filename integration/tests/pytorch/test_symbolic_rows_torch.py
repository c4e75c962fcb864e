"""The operators of `test_ops_torch` over axes whose size is a Variable: what they give with numbers, and its gradients.

All axes of one size become symbolic together, for each size of a row, bound to the largest, to 1, and between these.
Arguments are views of larger tensors or stored by themselves; programs run eagerly and captured by TinyJit. A few rows
run in CI, all of them under `nightly`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_ops_torch import ROWS
from torch_rows import Row

from tiny_tensor import Context, JitError, Tensor, TinyJit, Variable

MOST = 1000  # elements of an argument

NEED_NUMBERS = {
  "diagonal": (3, 4, 5),
  "diagonal-1": (3, 5),
  "diag": (4,),
  "einsum_trace": (4,),
  "interpolate": (4, 6),
  "interpolate_corners": (4, 6),
  "interpolate_nearest": (4, 6),
  "interpolate_exact": (4, 6),
  "unpool": (4, 6),
  "nonzero": (3, 4, 5),
  "masked_select": (3, 4),
  "split": (5,),
  "chunk": (7,),
  "topk": (7,),
  "attention": (4,),
  # channels and kernels
  "conv": (3, 4),
  "conv_pad": (2, 3, 4, 5),
  "conv_stride": (2, 3, 4),
  "conv_stride3": (2,),
  "conv_dilation": (2, 3),
  "conv_groups": (2, 3, 4, 6),
  "conv_depthwise": (3, 4),
  "conv1d": (3, 4),
  "conv3d": (2, 3),
  "conv_transpose": (3, 4),
  "conv_transpose_stride": (2, 3, 4),
  "conv_transpose_groups": (2, 4),
}
"""Of which rows which sizes have to be numbers: an operator says so with a TypeError, and TinyJit with a JitError."""

BY_VALUE = {"expand", "squeeze"}
"""Rows that name a size, or ask whether one is 1: an expression is not that number, whatever it is bound to."""


def name_of(row: Row) -> str:
  """The operator of a row, without the shapes."""
  return row.name.partition("-(")[0]


def sizes(row: Row) -> list[int]:
  """The sizes of which a row has axes."""
  return sorted({s for shape in row.shapes for s in shape if s > 1})


CASES = [
  pytest.param(row, size, id=f"{row.name}-{size}")
  for row in ROWS
  if all(0 < np.prod(shape) <= MOST for shape in row.shapes) and name_of(row) not in BY_VALUE
  for size in sizes(row)
]


def part(base: Tensor, size: int, n: Any) -> Tensor:
  """The beginning of a tensor along all axes of this size."""
  return base[tuple(slice(None, n) if s == size else slice(None) for s in base.shape)]


def program(row: Row, size: int, stored: bool, bases: list[Tensor], n: Any) -> list[Tensor]:
  """The result for the first `n` entries of the axes of this size, and the gradients of a weighted sum of it."""
  arguments = [part(base, size, n) for base in bases]
  if stored:
    arguments = [(a.detach() * 1).contiguous().realize().requires_grad_(row.grad) for a in arguments]
  out = row.ours(*arguments)
  found = [out]
  if row.grad and out.requires_grad:
    weights = (out.detach() * 3).sin() + 0.7
    found += (out * weights).sum().gradient(*(arguments if stored else bases), materialize_grads=True)
  alone = [t for t in found if 0 not in t.shape]
  if alone:
    alone[0].realize(*alone[1:])
  return found


def arrays(tensors: list[Tensor]) -> list[Any]:
  return [t.numpy() for t in tensors]


def bases_of(row: Row) -> list[Tensor]:
  return [Tensor(d, requires_grad=row.grad).realize() for d in row.data()]


def expectations(row: Row, size: int, stored: bool) -> dict[int, list[Any]]:
  """The results with numbers, by the number; without those for which the operator raises."""
  found = {}
  for value in dict.fromkeys((size, 1, (size + 1) // 2)):
    try:
      found[value] = arrays(program(row, size, stored, bases_of(row), value))
    except Exception:
      continue
  return found


def check(row: Row, size: int, stored: bool, captured: bool) -> None:
  expected = expectations(row, size, stored)
  if size not in expected:
    pytest.skip("the sizes of this row belong together")
  run: Callable[..., list[Tensor]] = lambda bases, n: program(row, size, stored, bases, n)  # noqa: E731
  f = TinyJit(run) if captured else run
  values = [*expected, *expected] if captured else [*expected]
  for value in values:
    bound = Variable("n", min(expected), size).bind(value)
    try:
      got = arrays(f(bases_of(row), bound))
    except (TypeError, JitError) as error:
      if size not in NEED_NUMBERS.get(name_of(row), ()) or not re.search("symbolic|bound to|reads a value", str(error)):
        raise
      pytest.skip("this size has to be a number")
    assert len(got) == len(expected[value])
    for number, (a, b) in enumerate(zip(got, expected[value], strict=True)):
      what = f"{'gradient' if number else 'result'} {number} with n={value}"
      assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.shape} {a.dtype}, expected {b.shape} {b.dtype}"
      np.testing.assert_allclose(a, b, rtol=row.tolerance, atol=row.tolerance, err_msg=what)


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.mark.parametrize(("row", "size"), CASES[::41])
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("stored", [False, True], ids=["views", "stored"])
def test_some_rows(row: Row, size: int, stored: bool, captured: bool) -> None:
  if stored and captured:
    pytest.skip("under nightly")
  check(row, size, stored, captured)


@pytest.mark.nightly
@pytest.mark.parametrize(("row", "size"), CASES)
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("stored", [False, True], ids=["views", "stored"])
@pytest.mark.parametrize("device", ["REF", "CPU"])
def test_all_rows(row: Row, size: int, stored: bool, captured: bool, device: str) -> None:
  with Context(DEVICE=device):
    check(row, size, stored, captured)
