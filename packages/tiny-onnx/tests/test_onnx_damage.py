"""Damaged models end in a result, or in a ModelError that somebody has written: not in an error of Python's inside."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tiny_onnx
from tiny_onnx import Limits, ModelError

LIMITS = Limits(nodes=2000, steps=2000, tensor_bytes=1 << 24, depth=16)
OPSETS = [("", 21), ("com.microsoft", 1), ("ai.onnx.ml", 4), ("own", 1)]
SIZES = [0, 1, -1, 2, 3, 127, 1 << 20, 1 << 31, 1 << 33, 1 << 62, (1 << 63) - 1, -(1 << 63)]

Feeds = dict[str, np.ndarray[Any, Any]]


def text(body: str) -> ModelProto:
  imports = ", ".join(f'"{domain}": {version}' for domain, version in OPSETS)
  return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {body}")


MODELS = [
  """g (float[N, 4] x, float[1, 2, 5, 5] im) => (float[A, B] y, float[1, 3, C, D] c)
  <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[1] s = {-1}, int64[1] from = {0}, int64[1] to = {3}> {
    h = MatMul (x, w)  r = Reshape (h, s)  z = Slice (r, from, to)  y = Softmax <axis = 0> (z)
    f = ConstantOfShape <value = float[1] {1.0}> (sizes)  sizes = Constant <value_ints = [3, 2, 3, 3]> ()
    c = Conv <pads = [1, 1, 1, 1], strides = [2, 2], auto_pad = "NOTSET"> (im, f) }""",
  """g (float[4] x, int64 n, bool b) => (float[4] y, float[A, 4] s, float[4] q, float[A, 4] e, float[4] i) {
    y, s = Loop <body = one (int64 k, bool go, float[4] v) => (bool more, float[4] u, float[4] o) {
      more = Identity (go)  u = Add (v, x)  o = Relu (u) }> (n, b, x)
    q, e = Scan <num_scan_inputs = 1, body = two (float[4] v, float[4] r) => (float[4] u, float[4] o) {
      u = Add (v, r)  o = Neg (u) }> (x, s)
    i = If <then_branch = yes () => (float[4] t) { t = Sqrt (x) }, else_branch = no () => (float[4] t) { t = Exp (y) }>
      (b) }""",
  """g (float[1, 3, 8] x, float[1, 1, 4, 4] im) => (float[A, B, C] y, float[1, 3, 8] r, float[1, 1, D, E] z, float[F] u)
  <int64[1] at = {1}, int64[3] l = {1, 8, 8}, int64[3] m = {1, 8, 2}> {
    w = ConstantOfShape <value = float[1] {0.5}> (l)  v = ConstantOfShape (m)
    q = com.microsoft.MultiHeadAttention <num_heads = 2, scale = 0.5> (x, x, x)
    r = com.microsoft.SkipLayerNormalization <epsilon = 0.1> (q, x, g)  g = Constant <value_floats = [1.0]> ()
    y, h, c = LSTM <hidden_size = 2, activations = ["Sigmoid", "Tanh", "Tanh"]> (x, w, v)
    z = Resize <mode = "linear"> (im, , k)  k = Constant <value_floats = [1.0, 1.0, 2.0, 0.5]> ()
    p = Pad <mode = "reflect"> (x, a)  a = Constant <value_ints = [0, 1, 0, 0, 0, 2]> ()
    t = Gather <axis = 1> (p, at)  u = own.twice <by = 2.0> (t) }
  <domain: "own", opset_import: ["": 21]> twice <by> (a) => (b) {
    f = Constant <value_float: float = @by> ()  c = Mul (a, f)  b = Flatten <axis = 0> (c) }""",
]


def classic() -> ModelProto:
  """A tree and a linear classifier."""
  tree: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "n_targets": 1,
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.1, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
  }  # fmt: skip
  nodes = [
    helper.make_node("Normalizer", ["x"], ["n"], norm="L2", domain="ai.onnx.ml"),
    helper.make_node("TreeEnsembleRegressor", ["n"], ["y"], domain="ai.onnx.ml", **tree),
    helper.make_node(
      "LinearClassifier", ["n"], ["c", "p"], coefficients=[0.1] * 6, intercepts=[0.0, 1.0], classlabels_ints=[0, 1],
      domain="ai.onnx.ml",
    ),
  ]  # fmt: skip
  infos: list[tuple[Any, ...]] = [("x", 1, ["N", 3]), ("y", 1, ["N", 1]), ("c", 7, ["N"]), ("p", 1, ["N", 2])]
  ports = [helper.make_tensor_value_info(*info) for info in infos]
  imports = [helper.make_opsetid(*pair) for pair in OPSETS]
  return helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=imports, ir_version=10)


def in_order(model: ModelProto) -> ModelProto:
  """The constants, which the texts above have where they are used, first."""
  nodes = sorted(model.graph.node, key=lambda node: node.op_type not in ("Constant", "ConstantOfShape"))
  copied = sorted((NodeProto.FromString(n.SerializeToString()) for n in nodes), key=lambda n: n.op_type != "Constant")
  del model.graph.node[:]
  model.graph.node.extend(copied)
  return model


def whole() -> list[tuple[ModelProto, Feeds]]:
  """Models without damage, and inputs for them."""
  first, second, third = (in_order(text(body)) for body in MODELS)
  ones = np.ones
  return [
    (first, {"x": ones((2, 4), np.float32), "im": ones((1, 2, 5, 5), np.float32)}),
    (second, {"x": ones(4, np.float32), "n": np.array(2), "b": np.array(True)}),
    (third, {"x": ones((1, 3, 8), np.float32), "im": ones((1, 1, 4, 4), np.float32)}),
    (classic(), {"x": ones((2, 3), np.float32)}),
  ]


@cache
def whole_once() -> list[tuple[bytes, Feeds]]:
  return [(model.SerializeToString(), feeds) for model, feeds in whole()]


def messages(message: Any) -> Iterator[Any]:
  """The message, and all within it."""
  yield message
  for field, value in message.ListFields():
    if field.message_type is not None:
      for inner in value if field.is_repeated else [value]:
        yield from messages(inner)


def of_kind(model: ModelProto, kind: type) -> list[Any]:
  return [m for m in messages(model) if isinstance(m, kind)]


def odd(r: random.Random, field: FieldDescriptor, old: Any) -> Any:
  """A value of a field's type that it seldom has."""
  if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64):
    return r.choice([*SIZES, old + 1])
  if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
    return r.choice([0.0, -1.0, float("nan"), float("inf"), 1e38])
  if field.type == FieldDescriptor.TYPE_BYTES:
    return r.choice([b"", b"\xff\xfe", old[:-1], old + b"\0", b"nearest"])
  if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
    return r.choice(["", "x", "y", "n", old + "x", "Relu", "If", "ai.onnx.ml"])
  return r.choice([0, 1, 2, 3, 5, 7, 8, 9, 16, 22, 99, 127])  # numbers of types


def fields(r: random.Random, model: ModelProto) -> None:
  """One field of one message left out, doubled, emptied, or with another value."""
  message = r.choice([m for m in messages(model) if m.ListFields()])
  field, value = r.choice(message.ListFields())
  kind = r.choice(["clear", "delete", "double", "set", "set"])
  if kind == "clear":
    message.ClearField(field.name)
  elif field.is_repeated:
    place = r.randrange(len(value))
    if kind == "delete":
      del value[place]
    elif kind == "double":
      value.append(value[place])
    elif field.message_type is None:
      change(value.__setitem__, place, odd(r, field, value[place]))
    else:
      value[place].Clear()
  elif field.message_type is None:
    change(message.__setattr__, field.name, odd(r, field, value))
  else:
    value.Clear()


def change(put: Callable[[Any, Any], None], place: Any, value: Any) -> None:
  try:
    put(place, value)
  except ValueError:  # out of the range of the field, of which `odd` knows the width only
    pass


def sizes(r: random.Random, model: ModelProto) -> None:
  """A tensor with other sizes than it has elements for."""
  tensor = r.choice(of_kind(model, TensorProto) or [model.graph.initializer.add()])
  dims = list(tensor.dims)
  place = r.randrange(len(dims) + 1)
  tensor.dims[:] = r.choice([
    [*dims[:place], r.choice(SIZES), *dims[place + 1 :]], [*dims, r.choice(SIZES)], dims[:-1],
    [1 << 20] * r.randint(1, 6) + r.choice([[], [0]]), [1] * 70,
  ])  # fmt: skip


def attributes(r: random.Random, model: ModelProto) -> None:
  """A node's attribute of another type or value, or one that the operator does not have."""
  node = r.choice(of_kind(model, NodeProto) or [model.graph.node.add()])
  name = r.choice([a.name for a in node.attribute] or ["axis"])
  value = r.choice([1, -1, 7, 1 << 40, 0.5, "x", "", b"\xff", [1, 2], [-1], [1.5], ["a"], [1 << 62] * 3, np.ones(2)])
  kept = [AttributeProto.FromString(a.SerializeToString()) for a in node.attribute if a.name != name]
  del node.attribute[:]
  made = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
  node.attribute.extend([*kept, helper.make_attribute(name, made)])


def names(r: random.Random, model: ModelProto) -> None:
  """Values that are missing, used twice, made twice, or made of themselves; more of them, or fewer."""
  nodes = of_kind(model, NodeProto) or [model.graph.node.add()]
  names = [name for node in nodes for name in (*node.input, *node.output)] + ["", "nowhere"]
  node = r.choice(nodes)
  side = r.choice([side for side in (node.input, node.output) if side] or [node.output])
  kind = r.choice(["set", "set", "more", "fewer"])
  if kind == "more" or not side:
    side.append(r.choice(names))
  elif kind == "set":
    side[r.randrange(len(side))] = r.choice(names)
  else:
    del side[r.randrange(len(side))]


def versions(r: random.Random, model: ModelProto) -> None:
  """Operators of versions that there are not."""
  row = r.choice(list(model.opset_import) or [model.opset_import.add()])
  row.version = r.choice([0, -1, 1, 5, 9, 99, 1 << 40, (1 << 63) - 1])
  row.domain = r.choice([row.domain, row.domain, "ai.onnx", "x"])
  model.ir_version = r.choice([model.ir_version, 0, 2, 99])


def undeliberate(error: BaseException) -> str | None:
  """What went wrong inside, where nobody has looked at what the file says; None for an error that was raised for it."""
  if "cannot be computed of" not in str(error):
    return None
  while error.__cause__ is not None:
    error = error.__cause__
  if isinstance(error, (ValueError, NotImplementedError)):
    return None
  trace = error.__traceback__
  while trace is not None and trace.tb_next is not None:
    trace = trace.tb_next
  raised = trace is not None and "tiny_tensor" in trace.tb_frame.f_code.co_filename
  return None if raised and isinstance(error, (TypeError, IndexError)) else f"{type(error).__name__}: {error}"


def run(source: Any, feeds: Feeds, check: bool) -> str | None:
  """Loads and calls. What is wrong with how that ended, None if nothing is."""
  with warnings.catch_warnings(), np.errstate(all="ignore"):
    warnings.simplefilter("ignore")
    try:
      model = tiny_onnx.load(source, limits=LIMITS, check=check, jit=False)
      model.numpy({name: x for name, x in feeds.items() if name in model.inputs})
    except ModelError as error:
      found = undeliberate(error)
      return None if found is None else f"{found}, in {error}"
    except Exception as error:
      return f"{type(error).__name__}, which is no ModelError: {error}"
  return None


def test_the_models_run_without_damage() -> None:
  for model, feeds in whole():
    found = tiny_onnx.load(model, jit=False).numpy(feeds)
    assert len(found) == len(model.graph.output)


@pytest.mark.parametrize("damage", [fields, sizes, attributes, names, versions], ids=lambda d: d.__name__)
def test_damaged_models(damage: Callable[[random.Random, ModelProto], None]) -> None:
  wrong = []
  for seed in range(100):
    r = random.Random(seed)
    model, feeds = r.choice(whole_once())
    damaged = ModelProto.FromString(model)
    for _ in range(r.choice([1, 1, 2, 3])):
      damage(r, damaged)
    if found := run(damaged.SerializeToString(), feeds, r.random() < 0.5):
      wrong.append(f"seed {seed}: {found}")
  assert not wrong, "\n".join(wrong)


WHERE = {
  "location": ["w.bin", "w.bin", "../w.bin", "", "/etc/passwd", ".", "none", "a/b", "w.bin\0", "é" * 300, "w.bin/"],
  "offset": ["0", "0", "4", "-4", "4096", "9" * 30, "x", "", "1.5"],
  "length": ["48", "48", "-1", "0", "47", "9" * 20, "x"],
}


def test_damaged_places_of_external_data(tmp_path: Path) -> None:
  """Files that are elsewhere, not there or too short; offsets that are no numbers."""
  (tmp_path / "model").mkdir()
  for folder in (tmp_path, tmp_path / "model"):
    (folder / "w.bin").write_bytes(np.arange(12, dtype=np.float32).tobytes())
  wrong, good = [], 0
  for seed in range(100):
    r = random.Random(seed)
    model, feeds = ModelProto.FromString(whole_once()[0][0]), whole_once()[0][1]
    tensor = next(t for t in model.graph.initializer if t.name == "w")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, values in WHERE.items():
      for _ in range(r.choice([1, 1, 1, 1, 0, 2])):
        tensor.external_data.add(key=key, value=r.choice(values))
    path = tmp_path / "model" / "m.onnx"
    path.write_bytes(model.SerializeToString())
    if found := run(path, feeds, r.random() < 0.5):
      wrong.append(f"seed {seed}: {found}")
    where = {entry.key: entry.value for entry in tensor.external_data}
    if where.get("location") == "w.bin" and where.get("offset", "0") == "0" and where.get("length", "48") == "48":
      good += 1
      np.testing.assert_array_equal(tiny_onnx.load(path).state_dict()["w"].numpy().reshape(-1), np.arange(12))
  assert not wrong, "\n".join(wrong)
  assert good


def test_a_name_that_is_not_utf8_is_no_file(tmp_path: Path) -> None:
  """Protobuf gives such a name as bytes."""
  model = ModelProto.FromString(whole_once()[0][0])
  tensor = next(t for t in model.graph.initializer if t.name == "w")
  tensor.ClearField("float_data")
  tensor.data_location = TensorProto.EXTERNAL
  tensor.external_data.add(key="location", value="Q" * 5)
  path = tmp_path / "m.onnx"
  path.write_bytes(model.SerializeToString().replace(b"Q" * 5, b"\xff" * 5))
  assert run(path, {}, check=False) is None
  with pytest.raises(ModelError, match="no such file"):
    tiny_onnx.load(path, check=False)
