"""Operators of elements on zeros of both signs, the limits of float32, infinities and NaN, and on tensors without axes
or elements, against PyTorch. With `OPINFO=all`, which is `hatch run oracle:opinfo`, in float64 as well.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's test data import

import opinfo_report as report  # noqa: E402
import opinfo_table as table  # noqa: E402
from opinfo_compare import compute, flat, values_of  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo  # noqa: E402

from tiny_tensor import Context, Tensor  # noqa: E402

COVERED = frozenset(report.covered()) - table.SHAPES_ONLY.keys()
# the samples of the others bring arguments that have no name here
LEFT = ("nn.functional.prelu", *[f"polygamma|polygamma_n_{n}" for n in (1, 2, 3, 4)])
OPS = {
  name: op
  for op in op_db
  if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))
  and (name := table.full_name(op)) in COVERED
  and name not in LEFT
  and torch.float32 in op.supported_dtypes("cpu")
}
DTYPES = ("float32", "float64") if os.environ.get("OPINFO") == "all" else ("float32",)


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE="REF", CACHELEVEL=1), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def extremes(dtype: str) -> Any:
  """Numbers at the edges of functions and of a dtype."""
  limits = np.finfo(dtype)
  ends = [float(limits.tiny), float(limits.max), float(np.inf)]
  return np.array(
    [0, 0.5, 1, 2, 3.5, 88, 104, 1e-3, 1e5, *ends, *[-v for v in (0.0, 0.5, 1.0, 2.5, *ends)], np.nan], dtype
  )


def both(op: Any, name: str, arrays: list[Any], dtype: str) -> Iterator[tuple[Any, Any]]:
  """Each result of ours and of PyTorch's."""
  ours = table.resolve(name)
  assert ours is not None
  kwargs: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
  if isinstance(op, UnaryUfuncInfo):
    kwargs = op.sample_kwargs("cpu", getattr(torch, dtype), torch.from_numpy(arrays[0]))
  expected = flat(op.op(*map(torch.from_numpy, arrays), **kwargs[0]))
  found = flat(ours(*map(Tensor, arrays), **kwargs[0]))
  compute(found)
  yield from ((values_of(a), values_of(b)) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes(name: str, dtype: str) -> None:
  op, values = OPS[name], extremes(dtype)
  arrays = [values] if isinstance(op, UnaryUfuncInfo) else [a.copy() for a in np.meshgrid(values, values)]
  if "polynomial" in name:  # the other operand is a degree, a number of steps
    arrays[1] = np.where(np.abs(arrays[1]) <= 100, arrays[1], 3).astype(dtype)
  wrong: list[str] = []
  for got, expected in both(op, name, arrays, dtype):
    same = np.isclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=1e-6, equal_nan=True)
    for place in list(zip(*np.nonzero(~same), strict=True))[:5]:
      at = ", ".join(str(a[place]) for a in arrays)
      wrong.append(f"of {at} it is {expected[place]}, got {got[place]}")
  if dtype == "float64" and name == "float_power":  # which is pow there
    name = "pow"
  if name not in table.EXTREMES:
    assert not wrong, f"{name}: {'; '.join(wrong)}"
  elif dtype == "float32":
    assert wrong, f"{name} is right everywhere: take it off the list"


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_no_axes_and_no_elements(shape: tuple[int, ...]) -> None:
  for name, op in OPS.items():
    arrays = [np.full(shape, 0.5, np.float32) for _ in range(1 if isinstance(op, UnaryUfuncInfo) else 2)]
    for got, expected in both(op, name, arrays, "float32"):
      assert got.shape == expected.shape, f"{name} of shape {shape}: {got.shape}"
      np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=1e-6, err_msg=name
      )


def test_what_differs_is_covered() -> None:
  assert not table.EXTREMES.keys() - OPS.keys()
