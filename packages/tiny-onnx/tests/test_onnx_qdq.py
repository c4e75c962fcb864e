"""Operators between DequantizeLinear and QuantizeLinear become operators of integers: examples and near misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tiny_onnx
from tiny_onnx.qdq import RULES

SHAPES = {"Conv": ((2, 3, 6, 6), (8, 3, 3, 3), 8), "MatMul": ((5, 12), (12, 8), 8), "Gemm": ((5, 12), (8, 12), 8)}


def example(
  op_type: str, relu: bool = False, bias: bool = False, each: bool = False, codes: Any = np.uint8, zero: int = 0,
  shown: bool = False, bias_scale: float = 1.0, results: int = 0,
) -> tuple[onnx.ModelProto, Any]:  # fmt: skip
  """A quantised operator as exporters write it, and an input. `shown`: its float result is an output, too. `results`:
  so many scales of the result, along its axis 1."""
  draw, (x_shape, w_shape, width) = np.random.default_rng(0), SHAPES[op_type]
  w_scale = (0.01 + 0.02 * draw.random(width)).astype(np.float32) if each else np.float32(0.02)
  constants: dict[str, Any] = {
    "xs": np.float32(0.05), "xz": codes(3), "w": draw.integers(-127, 128, w_shape).astype(np.int8), "ws": w_scale,
    "wz": np.zeros(width, np.int8) if each else np.int8(0),
    "ys": np.full(results or (), 0.3, np.float32), "yz": np.full(results or (), zero, codes),
    "b": draw.integers(-500, 500, width).astype(np.int32), "bs": np.float32(0.05) * w_scale * np.float32(bias_scale),
  }  # fmt: skip
  nodes = [
    helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
    helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
  ]
  nodes += [helper.make_node("DequantizeLinear", ["b", "bs"], ["bf"], axis=0)] if bias else []
  known: dict[str, dict[str, Any]] = {"Conv": {"pads": [1] * 4}, "Gemm": {"transB": 1}, "MatMul": {}}
  nodes.append(helper.make_node(op_type, ["xf", "wf", *["bf"] * bias], ["made"], **known[op_type]))
  nodes += [helper.make_node("Relu", ["made"], ["shown"])] if relu else []
  nodes.append(helper.make_node("QuantizeLinear", ["shown" if relu else "made", "ys", "yz"], ["y"]))
  elem = helper.np_dtype_to_tensor_dtype(np.dtype(codes))
  outputs = [helper.make_tensor_value_info("y", elem, [None] * len(x_shape))]
  outputs += [helper.make_tensor_value_info("made", TensorProto.FLOAT, [None] * len(x_shape))] if shown else []
  named = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
  inputs = [helper.make_tensor_value_info("x", elem, x_shape)]
  graph = helper.make_graph(nodes, "one", inputs, outputs, named)
  info = np.iinfo(codes)
  x = draw.integers(info.min, info.max, x_shape, endpoint=True).astype(codes)
  return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), x


def operators(model: tiny_onnx.Model) -> list[str]:
  return [node.call.op_type for node in model.graph.nodes]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize(("relu", "codes"), [(False, np.uint8), (True, np.uint8), (False, np.int8)])
def test_examples(rule: Any, relu: bool, codes: Any) -> None:
  each = rule.before != "MatMul"
  proto, x = example(rule.before, relu, bias=rule.takes_bias, each=each, codes=codes)
  model = tiny_onnx.load(proto)
  assert operators(model) == [rule.after], "what dequantised is gone"
  expected: Any = ReferenceEvaluator(proto).run(None, {"x": x})[0]  # type: ignore[index]  # it is a list
  found = model.numpy(x)["y"]
  assert found.dtype == expected.dtype
  apart = np.abs(found.astype(int) - expected.astype(int))
  assert apart.max() <= 1 and (apart > 0).mean() < 0.05, "but for ties, which floats do not see"


@pytest.mark.parametrize(
  "given",
  [
    {"op_type": "Conv", "relu": True, "zero": 7},
    {"op_type": "Conv", "shown": True},
    {"op_type": "Conv", "bias": True, "bias_scale": 2.0},
    {"op_type": "MatMul", "each": True},
    {"op_type": "Gemm", "codes": np.int16},
    {"op_type": "Conv", "results": 8},
  ],
  ids=["codes below zero", "float is an output", "bias of another scale", "scales of rows", "16 bits", "many results"],
)
def test_near_misses(given: dict[str, Any]) -> None:
  proto, x = example(**given)
  if given["op_type"] == "MatMul":  # a scale for each of the rows, 12, which are summed
    for initializer in proto.graph.initializer:
      if initializer.name in ("ws", "wz"):
        array = numpy_helper.to_array(initializer)
        initializer.CopyFrom(numpy_helper.from_array(np.resize(array, 12), initializer.name))
  model = tiny_onnx.load(proto)
  assert "QuantizeLinear" in operators(model)
  expected: Any = ReferenceEvaluator(proto).run(None, {"x": x})[0]  # type: ignore[index]  # it is a list
  assert np.abs(model.numpy(x)["y"].astype(int) - expected.astype(int)).max() <= 1
