"""Operators that the backend suite has no cases of, against onnxruntime: of ai.onnx.ml, and a quantised LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tiny_onnx

onnxruntime = pytest.importorskip("onnxruntime")


def model(op_type: str, x: Any, y: list[Any], **attributes: Any) -> onnx.ModelProto:
  node = helper.make_node(op_type, ["x"], [v.name for v in y], domain="ai.onnx.ml", **attributes)
  graph = helper.make_graph([node], "one", [x], y)
  domains = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
  return helper.make_model(graph, opset_imports=domains, ir_version=9)


def both(proto: onnx.ModelProto, x: Any) -> tuple[list[Any], list[Any]]:
  session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
  return session.run(None, {"x": x}), [*tiny_onnx.load(proto).numpy(x=x).values()]


def tensor(name: str, elem: int, *shape: Any) -> Any:
  return helper.make_tensor_value_info(name, elem, shape or None)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize(
  ("classes", "likely", "kernel"), [(2, False, "RBF"), (2, True, "LINEAR"), (3, False, "POLY"), (4, True, "SIGMOID")]
)
def test_svm_classifier(classes: int, likely: bool, kernel: str, words: bool) -> None:
  draw = np.random.default_rng(classes)
  counts, pairs = [3 + n for n in range(classes)], classes * (classes - 1) // 2
  total = sum(counts)
  labels = {"classlabels_strings": [f"c{n}" for n in range(classes)]} if words else {"classlabels_ints": range(classes)}
  probabilities = {name: draw.standard_normal(pairs).tolist() for name in ("prob_a", "prob_b")} if likely else {}
  label = tensor("label", TensorProto.STRING if words else TensorProto.INT64, None)
  proto = model(
    "SVMClassifier", tensor("x", TensorProto.FLOAT, None, 5), [label, tensor("z", TensorProto.FLOAT, None, None)],
    coefficients=draw.standard_normal(total * (classes - 1)).tolist(), kernel_params=[0.3, 0.1, 2.0],
    kernel_type=kernel, rho=draw.standard_normal(pairs).tolist(), vectors_per_class=counts,
    support_vectors=draw.standard_normal(total * 5).tolist(), **labels, **probabilities,
  )  # fmt: skip
  expected, found = both(proto, draw.standard_normal((40, 5)).astype(np.float32))
  assert expected[0].tolist() == found[0].tolist()
  np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)


def test_svm_classifier_without_vectors() -> None:
  draw = np.random.default_rng(1)
  proto = model(
    "SVMClassifier", tensor("x", TensorProto.FLOAT, None, 5),
    [tensor("label", TensorProto.INT64, None), tensor("z", TensorProto.FLOAT, None, 3)],
    coefficients=draw.standard_normal(15).tolist(), classlabels_ints=[7, 8, 9], rho=[0.1], kernel_type="LINEAR",
    kernel_params=[0.0, 0.0, 0.0],
  )  # fmt: skip
  expected, found = both(proto, draw.standard_normal((40, 5)).astype(np.float32))
  np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)


def map_info(key: int, value: int) -> Any:
  kind = onnx.TypeProto()
  kind.map_type.key_type = key
  kind.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(value, []))
  return helper.make_value_info("x", kind)


def test_dict_vectorizer() -> None:
  x, y = map_info(TensorProto.STRING, TensorProto.FLOAT), [tensor("y", TensorProto.FLOAT, 1, 4)]
  proto = model("DictVectorizer", x, y, string_vocabulary=["a", "c", "b", "z"])
  (expected,), (found,) = both(proto, {"a": 4.5, "c": 8.0})
  assert found.tolist() == expected.tolist() and found.dtype == expected.dtype


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize(("cast", "to"), [("TO_FLOAT", TensorProto.FLOAT), ("TO_INT64", TensorProto.INT64)])
def test_cast_map(form: str, cast: str, to: int) -> None:
  y = [tensor("y", to, 1, None)]
  x = map_info(TensorProto.INT64, TensorProto.FLOAT)
  proto = model("CastMap", x, y, cast_to=cast, map_form=form, max_map=6)
  (expected,), (found,) = both(proto, {4: 2.5, 1: 7.0})
  assert found.tolist() == expected.tolist() and found.dtype == expected.dtype


def test_labels_of_words_come_from_captured_calls_too() -> None:
  """A classifier whose labels are words: what most exported classifiers are."""
  proto = model(
    "LinearClassifier", tensor("x", TensorProto.FLOAT, None, 3),
    [tensor("label", TensorProto.STRING, None), tensor("z", TensorProto.FLOAT, None, 3)],
    coefficients=np.arange(9).astype(float).tolist(), intercepts=[0.5, 0.0, -0.5], classlabels_strings=["a", "b", "c"],
  )  # fmt: skip
  x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
  ours = tiny_onnx.load(proto)
  expected, _ = both(proto, x)
  for _ in range(4):
    assert ours.numpy(x=x)["label"].tolist() == expected[0].tolist()


def test_a_size_that_is_not_known_may_be_minus_one() -> None:
  x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 2])
  graph = helper.make_graph(
    [helper.make_node("Relu", ["x"], ["y"])], "one", [x], [tensor("y", TensorProto.FLOAT, None, 2)]
  )
  proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
  assert tiny_onnx.load(proto, check=False).numpy([[1.0, -1.0]] * 3)["y"].shape == (3, 2)


@pytest.mark.parametrize(("direction", "each"), [("forward", False), ("bidirectional", True)])
def test_dynamic_quantize_lstm(direction: str, each: bool) -> None:
  """The codes are those of onnxruntime, so that results differ by roundings of floats only."""
  draw, sides, terms, hidden = np.random.default_rng(0), 1 + (direction == "bidirectional"), 6, 5
  scales = (sides, 4 * hidden) if each else (sides,)
  weights: dict[str, Any] = {
    "w": draw.integers(-128, 128, (sides, terms, 4 * hidden)).astype(np.int8),
    "r": draw.integers(-128, 128, (sides, hidden, 4 * hidden)).astype(np.int8),
    "b": draw.standard_normal((sides, 8 * hidden)).astype(np.float32),
    **{f"{n}_scale": (0.005 + 0.01 * draw.random(scales)).astype(np.float32) for n in "wr"},
    **{f"{n}_zero": np.zeros(scales, np.int8) for n in "wr"},
  }
  inputs = ["x", "w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
  node = helper.make_node(
    "DynamicQuantizeLSTM", inputs, ["y", "h", "c"], domain="com.microsoft", direction=direction, hidden_size=hidden
  )
  x = tensor("x", TensorProto.FLOAT, 4, 1, terms)
  outputs = [tensor(n, TensorProto.FLOAT, *[None] * rank) for n, rank in zip("yhc", (4, 3, 3))]
  graph = helper.make_graph([node], "one", [x], outputs, [numpy_helper.from_array(v, n) for n, v in weights.items()])
  domains = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
  proto = helper.make_model(graph, opset_imports=domains, ir_version=9)
  expected, found = both(proto, draw.standard_normal((4, 1, terms)).astype(np.float32))
  for e, f in zip(expected, found):
    np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scales", [(0.3, 0.7, 0.42), (0.1, 0.1, 0.02), (0.9, 0.7, 1.26), (0.11, 0.13, 0.0286)])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("op_type", ["QLinearMatMul", "QLinearConv"])
def test_quantised_results_are_those_of_onnxruntime(op_type: str, each: bool, scales: tuple[float, ...]) -> None:
  """Bit for bit: with these scales about every second result is half way between two numbers."""
  draw, (left, right, made) = np.random.default_rng(0), map(np.float32, scales)
  shapes = ((1, 4, 9, 9), (16, 4, 3, 3)) if op_type == "QLinearConv" else ((64, 4), (4, 16))
  x, w = draw.integers(0, 255, shapes[0]).astype(np.uint8), draw.integers(-8, 8, shapes[1]).astype(np.int8)
  constants: dict[str, Any] = {
    "x_scale": left, "x_zero": np.uint8(128), "w": w, "w_scale": np.full(16, right) if each else right,
    "w_zero": np.zeros(16, np.int8) if each else np.int8(0), "y_scale": made, "y_zero": np.uint8(120),
  }  # fmt: skip
  kind = tensor("x", TensorProto.UINT8, *x.shape), tensor("y", TensorProto.UINT8, *[None] * x.ndim)
  named = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
  graph = helper.make_graph([helper.make_node(op_type, ["x", *constants], ["y"])], "one", [kind[0]], [kind[1]], named)
  (expected,), (found,) = both(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), x)
  assert np.array_equal(expected, found)


@pytest.mark.parametrize("op_type", ["Conv", "MatMul", "Gemm"])
def test_quantised_graphs_are_computed_in_integers(op_type: str) -> None:
  """As onnxruntime does, bit for bit: see `tiny_onnx.qdq`."""
  draw = np.random.default_rng(0)
  shapes = {"Conv": ((1, 8, 9, 9), (16, 8, 3, 3)), "MatMul": ((6, 32), (32, 16)), "Gemm": ((6, 32), (16, 32))}[op_type]
  constants: dict[str, Any] = {
    "xs": np.float32(0.1), "xz": np.uint8(0), "w": draw.integers(-8, 8, shapes[1]).astype(np.int8),
    "ws": np.float32(0.1), "wz": np.int8(0), "ys": np.float32(0.02), "yz": np.uint8(120),
  }  # fmt: skip
  attributes: dict[str, Any] = {"transB": 1} if op_type == "Gemm" else {}
  ends = ["xs", "xz"], ["ws", "wz"], ["ys", "yz"]
  nodes = [
    helper.make_node("DequantizeLinear", ["x", *ends[0]], ["xf"]),
    helper.make_node("DequantizeLinear", ["w", *ends[1]], ["wf"]),
    helper.make_node(op_type, ["xf", "wf"], ["f"], **attributes),
    helper.make_node("QuantizeLinear", ["f", *ends[2]], ["y"]),
  ]
  x = draw.integers(0, 255, shapes[0]).astype(np.uint8)
  kind = tensor("x", TensorProto.UINT8, *x.shape), tensor("y", TensorProto.UINT8, *[None] * x.ndim)
  named = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
  proto = helper.make_model(
    helper.make_graph(nodes, "one", [kind[0]], [kind[1]], named),
    opset_imports=[helper.make_opsetid("", 20)], ir_version=9,
  )  # fmt: skip
  (expected,), (found,) = both(proto, x)
  assert np.array_equal(expected, found)
