"""PyTorch's own operator samples (OpInfo) as an oracle: values, dtypes, shapes, first and second derivatives.

Every operator is covered, or stands in one of the lists of `opinfo_table.py` with a reason; a list that says what is no
longer so fails. Two samples of float32 and one of int64 of each operator run by default; all, of bool too, with
`OPINFO=all`, which is `hatch run oracle:opinfo`. The reference device runs them: it compiles fastest, and what is to be
tested is the frontend.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's test data import

import opinfo_report as report  # noqa: E402
import opinfo_table as table  # noqa: E402
from opinfo_compare import NotForUs, case_of, check_backward, check_forward, spread  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tiny_tensor import Context  # noqa: E402

EVERYTHING = os.environ.get("OPINFO") == "all"
DTYPES = ("float32", "int64", "bool")
OPS = {table.full_name(op): op for op in op_db}
LISTS = {"by design": table.BY_DESIGN, "out of scope": table.OUT_OF_SCOPE, "missing": table.MISSING}
COVERED = report.covered()


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  # compiled anew each time, so that it takes the same time each time
  with Context(DEVICE=os.environ.get("DEVICE") or "REF", CACHELEVEL=1), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def samples(name: str, dtype: str, wanted: int) -> Iterator[tuple[int, Any, bool]]:
  """Position, sample, and whether it is the last: `wanted` of those that an operator has for a dtype, or all."""
  op, kind = OPS[name], getattr(torch, dtype)
  if kind not in op.supported_dtypes("cpu") or not (wanted or EVERYTHING):
    return
  needs_grad = dtype == "float32" and op.supports_autograd and not table.of(table.FORWARD_ONLY, name)
  torch.manual_seed(0)
  # PyTorch looks at each of its callers, which costs more than all else: a thread has few
  with ThreadPoolExecutor(1) as thread:
    found = thread.submit(lambda: list(op.sample_inputs("cpu", kind, requires_grad=needs_grad))).result()
  for i in range(len(found)) if EVERYTHING else chosen(found, wanted):
    yield i, found[i], i == len(found) - 1


def chosen(found: Sequence[Any], wanted: int) -> list[int]:
  """Some spread over all samples, and the first of those of one element, where there may be nothing to compute."""
  small = [i for i, s in enumerate(found) if isinstance(s.input, torch.Tensor) and s.input.numel() == 1]
  return sorted({*spread(len(found), wanted), *small[:1]})


def check(name: str, dtype: str, sample: Any, backward: bool, second: bool) -> bool:
  """Compare one sample, with derivatives or without; whether there was anything to compare."""
  ours, op = table.resolve(name), OPS[name]
  assert ours is not None
  if table.why_left_out(name, sample, dtype):
    return False
  rtol, atol = table.of(table.TOLERANCES, name) or (1e-4, 1e-5)
  compared, shapes_only = table.of(table.COMPARED, name), name in table.SHAPES_ONLY
  smooth = dtype == "float32" and op.supports_autograd and not shapes_only and not table.of(table.FORWARD_ONLY, name)
  try:
    case = case_of(sample)
    check_forward(ours, op.op, case, rtol, atol, name in table.INT32, compared, shapes_only, name not in table.VIEWS)
    second = second and op.supports_gradgrad and name not in table.FIRST_ONLY
    if smooth and backward:
      check_backward(ours, op.op, case, 10 * rtol, 10 * atol, second, compared)
  except NotForUs:
    return False
  return True


@pytest.mark.parametrize("name", [name for name in COVERED if EVERYTHING or name not in table.SLOW])
def test_operator(name: str) -> None:
  """Forward in every dtype; first derivatives, and in the long run second ones."""
  assert table.resolve(name) is not None, f"{name} is in no list and nothing computes it"
  compared = False
  for dtype, wanted in zip(DTYPES, (2, 1, 0), strict=True):
    for i, sample, last in samples(name, dtype, wanted):
      try:
        compared |= check(name, dtype, sample, EVERYTHING or last, EVERYTHING)
      except Exception as error:
        raise AssertionError(f"{name}, {dtype} sample {i}: {error}") from error
  if EVERYTHING and OPS[name].supported_dtypes("cpu"):
    assert compared, f"no sample of {name} is compared: put it in a list that says why"


def test_lists_name_operators_once() -> None:
  seen: dict[str, str] = {}
  for what, names in LISTS.items():
    for name in names:
      assert name in OPS, f"{name}, {what}, is no operator of PyTorch {torch.__version__}"
      assert name not in seen, f"{name} is both {seen[name]} and {what}"
      seen[name] = what


@pytest.mark.parametrize("name", sorted(table.MISSING))
def test_what_is_missing_is_missing(name: str) -> None:
  assert table.resolve(name) is None, f"{name} is there: take it off the list"


@pytest.mark.parametrize(
  "names",
  [
    table.WRITTEN,
    table.LEFT_OUT,
    table.COMPARED,
    table.FORWARD_ONLY,
    table.FIRST_ONLY,
    table.TOLERANCES,
    table.INT32,
    table.SHAPES_ONLY,
    table.VIEWS,
  ],
)
def test_tables_name_covered_operators(names: Any) -> None:
  plain = {name.partition("|")[0] for name in COVERED}
  assert not [name for name in names if name not in COVERED and name not in plain]


def test_the_page_is_up_to_date() -> None:
  what_to_do = "make it anew: python integration/tests/pytorch/opinfo_report.py --write"
  assert report.PAGE.read_text(encoding="utf-8") == report.page(), what_to_do
