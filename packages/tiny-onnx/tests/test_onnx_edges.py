"""Operators where little is left of their inputs, and their rarer types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tiny_onnx
from tiny_onnx.ops.reduction import REDUCTIONS

ITERATIONS = """<ir_version: 10, opset_import: ["": 21]>
both (int64 n, int64[K, 3] x) => (int64[3] last, int64[A, 3] sums, string[B] words, int64[3, C] columns) {
  go = Constant <value_int = 1> ()  yes = Cast <to = 9> (go)
  start = Constant <value_ints = [0, 0, 0]> ()
  last, sums, words = Loop (n, yes, start) <
    body = one (int64 i, bool c, int64[3] s) => (bool d, int64[3] t, int64[3] u, string w) {
      d = Identity (c)  step = Add (s, i)  t = Identity (step)  u = Identity (step)
      w = Constant <value_string = "w"> ()
    }>
  end, columns = Scan <
    num_scan_inputs = 1, scan_output_axes = [-1],
    body = two (int64[3] s, int64[3] e) => (int64[3] t, int64[3] o) { t = Add (s, e)  o = Identity (t) }> (start, x)
}"""


@pytest.mark.parametrize("count", [0, 1, 2])
def test_outputs_of_iterations_are_of_their_type_even_of_none(count: int) -> None:
  model = tiny_onnx.load(onnx.parser.parse_model(ITERATIONS))
  x = np.arange(count * 3).reshape(count, 3)
  found = model.numpy(n=np.array(count), x=x)
  assert found["sums"].shape == (count, 3) and found["sums"].dtype == np.int64
  assert found["words"].shape == (count,) and found["words"].dtype == object
  np.testing.assert_array_equal(found["columns"], x.cumsum(0).T, strict=True)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64", "float32", "float64"])
def test_a_reduction_is_of_the_type_of_its_input(name: str, kind: str) -> None:
  x = np.array([[1, 2, 3], [4, 9, 16]], kind)
  expected: Any = {
    "ReduceSum": x.sum, "ReduceMax": x.max, "ReduceMin": x.min, "ReduceProd": x.prod, "ReduceL1": x.sum,
    "ReduceMean": lambda axis: x.sum(axis) / 3, "ReduceL2": lambda axis: np.sqrt((x * x).sum(axis)),
    "ReduceLogSum": lambda axis: np.log(x.sum(axis)), "ReduceSumSquare": (x * x).sum,
    "ReduceLogSumExp": lambda axis: np.log(np.exp(x).sum(axis)),
  }[name](axis=1)  # fmt: skip
  elem = helper.np_dtype_to_tensor_dtype(x.dtype)
  graph = helper.make_graph(
    [helper.make_node(name, ["x"], ["y"], axes=[1], keepdims=0)], "g",
    [helper.make_tensor_value_info("x", elem, x.shape)], [helper.make_tensor_value_info("y", elem, [2])],
  )  # fmt: skip
  found = tiny_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)).numpy(x=x)
  np.testing.assert_allclose(found["y"], expected.astype(kind), rtol=1e-6)
  assert found["y"].dtype == x.dtype


def test_one_place_of_a_resized_axis_is_the_first() -> None:
  """By `pytorch_half_pixel`, as the standard says it; its reference reads half an element before."""
  x = np.array([[[[1, 5, 2, 7]]]], np.float32)
  node = helper.make_node(
    "Resize", ["x", "", "", "n"], ["y"], mode="cubic", coordinate_transformation_mode="pytorch_half_pixel"
  )
  sizes = helper.make_tensor("n", TensorProto.INT64, [4], [1, 1, 1, 1])
  graph = helper.make_graph(
    [node], "g", [helper.make_tensor_value_info("x", 1, x.shape)],
    [helper.make_tensor_value_info("y", 1, [1, 1, 1, 1])], [sizes],
  )  # fmt: skip
  model = tiny_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8))
  assert model.numpy(x=x)["y"].item() == 1


@pytest.mark.parametrize("mode", ["max", "avg"])
def test_boxes_without_a_size_have_no_points(mode: str) -> None:
  graph = helper.make_graph(
    [helper.make_node("RoiAlign", ["x", "boxes", "n"], ["y"], mode=mode, output_height=2, output_width=3)], "g",
    [helper.make_tensor_value_info("x", 1, [1, 2, 6, 6]), helper.make_tensor_value_info("boxes", 1, ["N", 4]),
     helper.make_tensor_value_info("n", 7, ["N"])],
    [helper.make_tensor_value_info("y", 1, ["N", 2, 2, 3])],
  )  # fmt: skip
  model = tiny_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8))
  boxes = np.array([[1, 1, 4, 4], [4, 1, 1, 4], [1, 4, 4, 1], [2, 2, 2, 2]], np.float32)
  for count in (4, 0):
    found = model.numpy(x=np.ones((1, 2, 6, 6), np.float32), boxes=boxes[:count], n=np.zeros(count, np.int64))["y"]
    expected = np.zeros((4, 2, 2, 3), np.float32)
    expected[0] = 1 if mode == "avg" else found[0] if count else 0
    np.testing.assert_allclose(found, expected[:count], rtol=1e-6)
