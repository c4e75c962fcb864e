"""Hostile files raise ModelError: they do not crash, hang, fill the memory, or read elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_suite import cases

import tiny_onnx
from tiny_onnx import Limits, ModelError

SMALL = Limits(nodes=2000, steps=2000, tensor_bytes=1 << 22, depth=16)
NAMES = """
  test_add test_loop11 test_if test_scan9_sum test_resize_upsample_scales_cubic test_lstm_defaults
  test_conv_with_strides_padding test_gather_elements_0 test_slice test_reshape_negative_dim
  test_range_int32_type_negative_delta test_quantizelinear_axis test_sequence_map_add_2_sequences
  test_tfidfvectorizer_tf_only_bigrams_skip0 test_nonmaxsuppression_two_classes test_edge_pad
  test_ai_onnx_ml_tree_ensemble_set_membership test_attention_4d test_averagepool_2d_default test_convtranspose
  test_dft test_constantofshape_float_ones test_depthtospace_example test_tile test_onehot_with_axis
  test_expand_dim_changed
""".split()


def run(text: bytes, inputs: list[object]) -> None:
  """Loads and calls; ModelError is what may happen."""
  with warnings.catch_warnings(), np.errstate(all="ignore"):
    warnings.simplefilter("ignore")
    try:
      model = tiny_onnx.load(text, limits=SMALL, jit=False)
      model.numpy(*inputs)
    except ModelError:
      pass


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_changed_files(data: st.DataObject) -> None:
  """Models of the suite with some of their bytes changed, left out or doubled."""
  case = cases()[data.draw(st.sampled_from(NAMES))]
  text = bytearray(case.model.SerializeToString())
  for _ in range(data.draw(st.integers(1, 4))):
    at = data.draw(st.integers(0, max(len(text) - 1, 0)))
    kind = data.draw(st.sampled_from(("set", "cut", "twice")))
    if kind == "set":
      text[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
    elif kind == "cut":
      del text[at : at + data.draw(st.integers(1, 8))]
    else:
      text[at:at] = text[at : at + data.draw(st.integers(1, 16))]
  run(bytes(text), list(case.data()[0][0]))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(text: bytes) -> None:
  with pytest.raises(ModelError):
    tiny_onnx.load(text, limits=SMALL)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_attributes_and_inputs_of_any_value(data: st.DataObject) -> None:
  """Models of the suite with numbers in place of those in attributes, and inputs of other values."""
  case = cases()[data.draw(st.sampled_from(NAMES))]
  model = onnx.ModelProto()
  model.CopyFrom(case.model)
  odd = st.one_of(st.integers(-3, 9), st.sampled_from((1 << 62, -(1 << 63), (1 << 63) - 1, 1 << 31)))
  for node in model.graph.node:
    for attribute in node.attribute:
      if attribute.type == onnx.AttributeProto.INT and data.draw(st.booleans()):
        attribute.i = data.draw(odd)
      elif attribute.type == onnx.AttributeProto.INTS and data.draw(st.booleans()):
        attribute.ints[:] = [data.draw(odd) for _ in attribute.ints]
  inputs = list(case.data()[0][0])
  for i, value in enumerate(inputs):
    if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.size and data.draw(st.booleans()):
      inputs[i] = np.array([data.draw(odd) for _ in range(value.size)], np.int64).reshape(value.shape)
  run(model.SerializeToString(), inputs)


def graph(nodes: list[onnx.NodeProto], name: str = "g") -> onnx.GraphProto:
  info = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
  return helper.make_graph(nodes, name, [], [info])


def test_graphs_in_graphs_and_functions_that_call_themselves() -> None:
  zero = helper.make_node("Constant", [], ["y"], value_float=0.0)
  yes = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
  inner = graph([zero])
  for _ in range(20):
    inner = graph([yes, helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph([zero]))])
  opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
  with pytest.raises(ModelError, match=r"Limits\.depth"):
    tiny_onnx.load(helper.make_model(inner, opset_imports=opsets), limits=SMALL, check=False)
  call = helper.make_node("F", [], ["y"], domain="own")
  function = helper.make_function("own", "F", [], ["y"], [call], opsets)
  model = helper.make_model(graph([call]), functions=[function], opset_imports=opsets)
  with pytest.raises(ModelError):
    tiny_onnx.load(model, limits=SMALL)
  ends = {"F": "G", "G": "H", "H": "I", "I": "J", "J": "K", "K": ""}  # each calls the next nine times
  functions = []
  for name, below in ends.items():
    calls = [helper.make_node(below, [], [f"v{i}"], domain="own") for i in range(9)] if below else []
    functions.append(helper.make_function("own", name, [], ["y"], [*calls, zero], opsets))
  model = helper.make_model(graph([call]), functions=functions, opset_imports=opsets)
  with pytest.raises(ModelError, match=r"Limits\.nodes"):
    tiny_onnx.load(model, limits=SMALL, check=False)


def test_endless_loops_end() -> None:
  text = """<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[1] y) {
    c = Constant<value = bool {1}>()
    y = Loop<body = b (int64 i, bool go, float[1] v) => (bool more, float[1] w) {
      more = Identity(go)  w = Identity(v)
    }>(, c, x)
  }"""
  model = tiny_onnx.load(onnx.parser.parse_model(text), limits=SMALL, check=False)
  with pytest.raises(ModelError, match=r"Limits\.steps"):
    model(x=np.ones(1, np.float32))


def test_nodes_that_are_not_in_order() -> None:
  nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Constant", [], ["a"], value_float=1.0)]
  with pytest.raises(ModelError, match="onnx.checker"):
    tiny_onnx.load(helper.make_model(graph(nodes)))
