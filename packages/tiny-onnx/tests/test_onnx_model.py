"""Models are loaded, called by name, and refused with reasons."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tiny_onnx
from tiny_onnx import Limits, ModelError, UnsupportedOps
from tiny_tensor import Tensor


def parsed(text: str) -> onnx.ModelProto:
  return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')


SMALL = """g (float[N, 3] x, float[3] b) => (float[N, 3] y, float s) {
  h = Add(x, b)  y = Relu(h)  s = ReduceSum<keepdims = 0>(y)
}"""


def test_inputs_by_name_and_in_order(tmp_path: Path) -> None:
  path = tmp_path / "m.onnx"
  onnx.save(parsed(SMALL), path)
  model = tiny_onnx.load(path)
  assert [str(p) for p in model.inputs.values()] == ["x: float[N, 3]", "b: float[3]"]
  assert list(model.outputs) == ["y", "s"]
  x, b = np.array([[1, -5, 3]], np.float32), np.ones(3, np.float32)
  for found in (
    model(x=x, b=b),
    model({"x": Tensor(x), "b": b}),
    model(x, b),
    tiny_onnx.load(path.read_bytes())(x, b=b),
  ):
    assert found["y"].tolist() == [[2, 0, 4]] and found["s"].item() == 6


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "int4"])
def test_numbers_of_ml_dtypes_keep_their_shape(kind: str) -> None:
  name = {"float8_e4m3fn": "float8e4m3fn"}.get(kind, kind)
  for shape, sizes in (((), ""), ((2, 1), "[2, 1]")):
    model = tiny_onnx.load(parsed(f"g ({name}{sizes} x) => ({name}{sizes} y) {{ y = Identity(x) }}"), check=False)
    x = np.ones(shape, getattr(ml_dtypes, kind))
    found = model.numpy(x=x)["y"]
    assert found.shape == shape and found.dtype == x.dtype and (found == x).all()


def test_what_is_wrong_with_a_call_is_named() -> None:
  model = tiny_onnx.load(parsed(SMALL))
  x, b = np.ones((2, 3), np.float32), np.ones(3, np.float32)
  with pytest.raises(ModelError, match="not given: b"):
    model(x=x)
  with pytest.raises(ModelError, match="unknown: c"):
    model(x=x, b=b, c=b)
  with pytest.raises(ModelError, match="DOUBLE, and the model takes FLOAT"):
    model(x=x.astype(np.float64), b=b)
  with pytest.raises(ModelError, match=r"b: float\[3\]: got shape \(4,\)"):
    model(x=x, b=np.ones(4, np.float32))


def test_all_missing_operators_are_listed_at_once() -> None:
  nodes = [
    helper.make_node("Strange", ["x"], ["a"], "n1", domain="far"),
    helper.make_node("Odd", ["a"], ["y"], "n2", domain="far"),
  ]
  info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
  model = helper.make_model(
    helper.make_graph(nodes, "g", info[:1], info[1:]),
    opset_imports=[helper.make_opsetid("far", 3), helper.make_opsetid("", 21)],
  )
  with pytest.raises(UnsupportedOps) as caught:
    tiny_onnx.load(model)
  assert caught.value.missing == [("far", "Strange", 3, ["n1"]), ("far", "Odd", 3, ["n2"])]


def test_a_shape_that_is_an_input_is_read_in_each_call() -> None:
  model = tiny_onnx.load(parsed("g (float[6] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }"))
  x = np.arange(6, dtype=np.float32)
  assert [model(x=x, s=np.array(s))["y"].shape for s in ((2, 3), (3, 2), (6, 1))] == [(2, 3), (3, 2), (6, 1)]


def external(folder: Path, location: str, **more: str) -> Path:
  w = numpy_helper.from_array(np.arange(2000, dtype=np.float32), "w")
  (folder / "w.bin").write_bytes(w.raw_data)
  w.ClearField("raw_data")
  w.data_location = TensorProto.EXTERNAL
  for key, value in ({"location": location} | more).items():
    entry = w.external_data.add()
    entry.key, entry.value = key, value
  info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2000]) for n in "xy"]
  graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", info[:1], info[1:], [w])
  path = folder / "m.onnx"
  path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
  return path


def test_external_data_lie_in_the_folder(tmp_path: Path) -> None:
  folder = tmp_path / "model"
  folder.mkdir()
  model = tiny_onnx.load(external(folder, "w.bin"))
  assert np.array_equal(model(x=np.ones(2000, np.float32))["y"].numpy(), np.arange(2000) + 1)
  assert model.state_dict().keys() == {"w"}
  (tmp_path / "secret.bin").write_bytes(bytes(8000))
  (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
  for location in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "none.bin", "", "..\\secret.bin"):
    with pytest.raises(ModelError, match="external data"):
      tiny_onnx.load(external(folder, location))
  for more in ({"offset": "4"}, {"offset": "-4"}, {"length": "9000"}, {"offset": "x"}):
    with pytest.raises(ModelError):
      tiny_onnx.load(external(folder, "w.bin", **more))


def test_limits() -> None:
  with pytest.raises(ModelError, match=r"Limits\.nodes"):
    tiny_onnx.load(parsed(SMALL), limits=Limits(nodes=2))
  with pytest.raises(ModelError, match=r"Limits\.steps"):
    tiny_onnx.load(parsed(SMALL), limits=Limits(steps=2))(x=np.ones((1, 3), np.float32), b=np.ones(3, np.float32))
  grown = parsed("g (int64[2] s) => (float[A, B] y) { y = ConstantOfShape(s) }")
  with pytest.raises(ModelError, match=r"Limits\.tensor_bytes"):
    tiny_onnx.load(grown)(s=np.array([1 << 30, 1 << 30]))


def test_calls_are_captured_for_each_shape_and_read_value() -> None:
  model = tiny_onnx.load(parsed("g (float[N, 6] x, int64[2] s) => (float[A, B] y) { h = Relu(x)  y = Reshape(h, s) }"))
  assert model.read_inputs == {"s"}
  for shape in ((2, 3), (2, 3), (2, 3), (3, 2), (6, 1), (2, 3)):
    x = np.random.default_rng(0).standard_normal((1, 6)).astype(np.float32)
    found = model(x=x, s=np.array(shape))["y"]
    assert np.array_equal(found.numpy(), np.maximum(x, 0).reshape(shape))
  assert model.eager_because is None


def test_a_model_that_looks_at_its_own_values_is_computed_node_by_node() -> None:
  model = tiny_onnx.load(parsed("g (float[N] x) => (int64[1, M] y) { h = Relu(x)  y = NonZero(h) }"))
  for x, expected in (([1, -1, 2], [[0, 2]]), ([-1, 5, 2], [[1, 2]]), ([1, 1, 1], [[0, 1, 2]])):
    assert model(x=np.array(x, np.float32))["y"].tolist() == expected
  assert model.eager_because is not None


def test_weights_are_trained_through_the_state_dict() -> None:
  text = "g (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {0.5, -0.5}> { y = MatMul(x, w) }"
  model = tiny_onnx.load(parsed(text))
  x = np.array([[1, 2], [3, 4]], np.float32)
  assert model(x=x)["y"].tolist() == [[-0.5], [-0.5]]
  w = model.state_dict()["w"]
  w.requires_grad_()
  (model(x=x)["y"] ** 2).sum().backward()
  assert w.grad is not None and w.grad.tolist() == [[-4], [-6]]
  w.assign(w.detach() * 0)
  assert model(x=x)["y"].tolist() == [[0], [0]]


def test_symbolic_sizes_are_captured_once() -> None:
  text = """g (float[N, L, 4] x, float[4, 2] w) => (float[N, K] y) {
    shape = Shape(x)  zero = Constant<value_int = 0>()  n = Gather(shape, zero)
    axes = Constant<value_ints = [0]>()  front = Unsqueeze(n, axes)
    rest = Constant<value_ints = [-1]>()  sizes = Concat<axis = 0>(front, rest)
    h = MatMul(x, w)  y = Reshape(h, sizes)
  }"""
  model = tiny_onnx.load(parsed(text), sizes={"N": (1, 6), "L": (1, 5)})
  w = np.arange(8, dtype=np.float32).reshape(4, 2)
  for n, length in ((1, 1), (2, 3), (6, 5), (4, 2), (2, 3)):
    x = np.random.default_rng(n).standard_normal((n, length, 4)).astype(np.float32)
    found = model.numpy(x=x, w=w)["y"]
    np.testing.assert_allclose(found, (x @ w).reshape(n, -1), rtol=1e-5)
  assert model.eager_because is None and len(model._captured) == 1
  with pytest.raises(ModelError, match="'N' is 7"):
    model(x=np.ones((7, 1, 4), np.float32), w=w)
