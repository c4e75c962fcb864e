"""What PyTorch's operators refuse (OpInfo's `error_inputs`): so do ours, with an error that says what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's test data import

import opinfo_report as report  # noqa: E402
import opinfo_table as table  # noqa: E402
from opinfo_compare import PLACEMENT, NotForUs, case_of  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tiny_tensor import Context  # noqa: E402

COVERED = frozenset(report.covered())
OPS = {name: op for op in op_db if (name := table.full_name(op)) in COVERED and op.error_inputs_func is not None}
FITTING = (ValueError, TypeError, IndexError, NotImplementedError)


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE="REF"), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def numbers_only(sample: Any) -> bool:
  """Whether the sample has a number in the place of an operand: ours are methods of a tensor, and take numbers."""
  return not isinstance(sample.input, (torch.Tensor, list, tuple)) or (
    len(sample.args) == 1 and isinstance(sample.args[0], int) and not sample.kwargs
  )


def refused(op: Any) -> Iterator[tuple[int, Any, Exception]]:
  """The samples that PyTorch refuses, but for what they say of memory to write to, and how it does."""
  for i, error in enumerate(op.error_inputs("cpu")):
    sample = error.sample_input
    if sample.kwargs.keys() & set(PLACEMENT) or (op.name != "arange" and numbers_only(sample)):
      continue
    try:
      with torch.no_grad():
        op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception as raised:  # whichever PyTorch thinks fit
      yield i, sample, raised


@pytest.mark.parametrize("name", sorted(OPS))
def test_what_is_refused_there_is_refused_here(name: str) -> None:
  ours = table.resolve(name)
  assert ours is not None
  taken: list[str] = []
  for i, sample, raised in refused(OPS[name]):
    try:
      case = case_of(sample)
    except (NotForUs, ValueError):  # NumPy has no tensors of more than 64 axes
      continue
    try:
      ours(*case.ours[0], **case.ours[1])
    except FITTING as error:
      assert len(str(error)) > 10 or isinstance(error, NotImplementedError), f"{name} sample {i} says only {error}"
    else:
      taken.append(f"sample {i} gives a result, and not {str(raised).splitlines()[0]!r}")
  if name in table.TAKEN:
    assert taken, f"{name} refuses all that PyTorch does: take it off the list"
  else:
    assert not taken, f"{name}: {'; '.join(taken)}"


def test_what_is_taken_is_covered() -> None:
  assert not table.TAKEN.keys() - OPS.keys()
