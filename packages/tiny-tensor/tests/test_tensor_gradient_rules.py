"""Every row of the table of derivatives against finite differences in float64, on the reference device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from gradient_examples import EXAMPLES, Example, cases

from tiny_tensor import Context, Tensor
from tiny_tensor.autograd.rules import FORMULAS, WITHOUT_GRADIENT
from tiny_uop import Ops

Array = np.ndarray[Any, Any]
STEP = 2.0**-12


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


CASES = cases(FORMULAS)


def inputs_of(arrays: Sequence[Array]) -> list[Tensor]:
  """Tensors with memory of their own."""
  made = [Tensor(a) for a in arrays]
  for t in made:
    t.realize()
  return made


def apply(example: Example, tensors: Sequence[Tensor]) -> Tensor:
  return tensors[0]._wrap(example.build(*[t.uop for t in tensors]))


@pytest.mark.parametrize(("op", "example"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_against_finite_differences(op: Ops, example: Example) -> None:
  arrays = [np.array(a, np.float64) for a in example.inputs]
  value = apply(example, inputs_of(arrays)).numpy()
  assert value.dtype == np.float64
  weight = np.linspace(-1, 2, value.size).reshape(value.shape)

  tensors = inputs_of(arrays)
  out = apply(example, tensors)
  assert op in {u.op for u in out.uop.toposort}, "the example does not use the operation"
  found = out.gradient(*tensors, gradient=Tensor(weight))
  out.realize(*found)
  np.testing.assert_array_equal(out.numpy(), value)

  for which, a in enumerate(arrays):
    gradient = found[which].numpy()
    assert gradient.dtype == np.float64 and gradient.shape == a.shape
    for place in np.ndindex(a.shape):
      ends = []
      for step in (STEP, -STEP):
        moved = [b.copy() for b in arrays]
        moved[which][place] += step
        ends.append(float((apply(example, inputs_of(moved)).numpy() * weight).sum()))
      assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6, abs=1e-6), (which, place)


def test_every_operation_has_a_row_or_a_reason() -> None:
  assert not set(FORMULAS) & set(WITHOUT_GRADIENT)
  assert set(FORMULAS) | set(WITHOUT_GRADIENT) == set(Ops)
  assert all(WITHOUT_GRADIENT.values())


def test_an_operation_without_an_example_fails_collection(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.delitem(EXAMPLES, Ops.SIN)
  with pytest.raises(ValueError, match="SIN has a formula and no example"):
    cases(FORMULAS)


def test_a_wrong_formula_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setitem(FORMULAS, Ops.SIN, lambda g, n: (g * n,))
  with pytest.raises(AssertionError):
    test_against_finite_differences(Ops.SIN, EXAMPLES[Ops.SIN][0])


def test_targets_of_operations_without_a_gradient() -> None:
  y = Tensor([1.5, -2.5], dtype="float64")
  for t in (y.trunc(), y.detach()):
    assert [g.tolist() for g in (t * y).sum().gradient(t, y)] == [[1.5, -2.5], t.tolist()]
