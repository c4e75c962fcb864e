"""The first versions of operators, which the backend suite has no cases of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs, helper

import tiny_onnx
from tiny_onnx.registry import find

RNG = np.random.default_rng(0)


def computed(op: str, opset: int, inputs: dict[str, Any], outputs: int = 1, **attributes: Any) -> list[Any]:
  """The outputs of a node in a model of an opset."""
  names = [f"y{i}" for i in range(outputs)]
  graph = helper.make_graph(
    [helper.make_node(op, list(inputs), names, **attributes)],
    "graph",
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in inputs.items()],
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["?"]) for name in names],
  )
  model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
  return list(tiny_onnx.load(model, check=False).numpy(inputs).values())


def floats(*shape: int) -> Any:
  return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("opset", [1, 3])
def test_recurrent_operators_before_version_7(op: str, gates: int, opset: int) -> None:
  inputs = {"x": floats(5, 2, 3), "w": floats(1, gates * 4, 3), "r": floats(1, gates * 4, 4), "b": floats(1, gates * 8)}
  outputs = 3 if op == "LSTM" else 2
  old = computed(op, opset, inputs, outputs, hidden_size=4, output_sequence=1)
  for a, b in zip(old, computed(op, 7, inputs, outputs, hidden_size=4), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_pools_by_norms_of_any_power() -> None:
  x = floats(1, 2, 4, 6)
  (found,) = computed("LpPool", 1, {"x": x}, kernel_shape=[2, 3], strides=[2, 3], p=1.5)
  windows = np.abs(x.reshape(1, 2, 2, 2, 2, 3)) ** 1.5
  np.testing.assert_allclose(found, windows.sum((3, 5)) ** (1 / 1.5), rtol=1e-5)
  (found,) = computed("GlobalLpPool", 1, {"x": x}, p=3.0)
  np.testing.assert_allclose(found, (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3), rtol=1e-5)


def test_upsample_by_two_factors() -> None:
  x = floats(1, 2, 3, 4)
  (found,) = computed("Upsample", 1, {"x": x}, height_scale=2.0, width_scale=3.0)
  np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(3, 3))
  (found,) = computed("Upsample", 1, {"x": x}, height_scale=2.0, width_scale=2.0, mode="bilinear")
  (same,) = computed("Upsample", 7, {"x": x}, scales=[1.0, 1.0, 2.0, 2.0], mode="linear")
  np.testing.assert_allclose(found, same, rtol=1e-6)


def test_every_version_of_every_operator_of_the_standard_has_an_implementation() -> None:
  """Its own, or the body that its schema has."""
  schemas: list[Any] = [*defs.get_all_schemas_with_history()]  # the stubs lack functions
  lacking = [
    f"{s.name} {s.since_version}"
    for s in schemas
    if s.domain == "" and find("", s.name, s.since_version) is None and not s.deprecated
    if not (s.has_function or s.has_context_dependent_function)
  ]
  assert lacking == []
