"""Every rule of forward mode against finite differences in float64, on the examples of `gradient_examples`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gradient_examples import EXAMPLES, Example
from test_tensor_gradient_rules import CASES, STEP, Array, apply, inputs_of

from tiny_tensor import Context, Tensor
from tiny_tensor.autograd import forward as forward_module
from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.autograd.forward import RULES, push_forward
from tiny_tensor.autograd.rules import FORMULAS
from tiny_tensor.autograd.tracing import TransformError
from tiny_uop import Ops


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_every_operation_with_a_gradient_has_a_rule_and_an_example() -> None:
  assert RULES.keys() == FORMULAS.keys()
  assert {op for _, op, _ in CASES} == RULES.keys()


def directions(arrays: list[Array]) -> list[Array]:
  """Numbers for every element, few of them alike and all of few bits, as the inputs are."""
  return [(((np.arange(a.size) * 5 + 3) % 17 - 8) / 8).reshape(a.shape) for a in arrays]


@pytest.mark.parametrize("example", [case[2] for case in CASES], ids=[case[0] for case in CASES])
def test_against_finite_differences(example: Example) -> None:
  arrays = [np.array(a, np.float64) for a in example.inputs]
  along = directions(arrays)

  tensors, tangents = inputs_of(arrays), inputs_of(along)
  out = apply(example, tensors)
  (found,) = push_forward([out.uop], {x.uop: t.uop for x, t in zip(tensors, tangents, strict=True)})
  assert found is not None
  tangent = out._wrap(found)
  out.realize(tangent)
  ends = [apply(example, inputs_of([a + s * d for a, d in zip(arrays, along, strict=True)])).numpy()
          for s in (STEP, -STEP)]  # fmt: skip
  np.testing.assert_allclose(tangent.numpy(), (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("example", [case[2] for case in CASES], ids=[case[0] for case in CASES])
def test_both_modes_agree_one_input_at_a_time(example: Example) -> None:
  """⟨w, J·t⟩ = ⟨Jᵀ·w, t⟩, with the other inputs fixed: a rule may be given no tangent for some of its sources."""
  arrays = [np.array(a, np.float64) for a in example.inputs]
  along = directions(arrays)
  for which in range(len(arrays)):
    tensors, t = inputs_of(arrays), Tensor(along[which]).realize()
    out = apply(example, tensors)
    weight = Tensor(directions([np.zeros(tuple(int(s) for s in out.shape))])[0])
    (found,) = push_forward([out.uop], {tensors[which].uop: t.uop})
    (gradient,) = out.gradient(tensors[which], gradient=weight, materialize_grads=True)
    pulled = (gradient * t).sum()
    pushed = (out._wrap(found) * weight).sum() if found is not None else pulled.const_like(0)
    Tensor.realize(pushed, pulled, out)
    assert pushed.item() == pytest.approx(pulled.item(), rel=1e-9, abs=1e-9)


def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setitem(forward_module.RULES, Ops.CAST, lambda n, ts: None if ts[0] is None else ts[0].cast(n.dtype) * 2)
  with pytest.raises(AssertionError):
    test_against_finite_differences(EXAMPLES[Ops.CAST][0])


def test_a_derivative_that_is_not_linear_has_no_forward_mode() -> None:
  x = Tensor([1.0, 2.0]).realize()
  squared = with_gradient(
    (x.uop,), (x.uop,), lambda gs, inputs, results: (None if gs[0] is None else gs[0] * gs[0],), "odd"
  )
  with pytest.raises(TransformError, match="'odd' is not linear"):
    push_forward(squared, {x.uop: x.uop})
