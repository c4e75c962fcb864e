"""Nodes that no operator has: with other inputs, outputs and attributes than its schema says."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import AttributeProto, NodeProto, defs, helper

import tiny_onnx
from tiny_onnx import ModelError

NAMES = {
  "Einsum.equation", "Gradient.y", "RegexFullMatch.pattern", "StringNormalizer.locale", "StringSplit.delimiter",
  "CategoryMapper.default_string", "LabelEncoder.default_string", "Constant.value_string",
}  # fmt: skip
"""Attributes that are any text."""
AT_CALLS = {"GRU.direction", "LSTM.direction", "RNN.direction", "Resize.coordinate_transformation_mode"}
"""Attributes that are looked at in each call."""

VALUES: dict[int, Any] = {
  AttributeProto.INT: 1, AttributeProto.FLOAT: 0.5, AttributeProto.STRING: "x", AttributeProto.INTS: [1],
  AttributeProto.FLOATS: [0.5], AttributeProto.STRINGS: ["x"],
  AttributeProto.TENSOR: helper.make_tensor("t", 1, [1], [1.0]),
  AttributeProto.GRAPH: helper.make_graph([], "g", [], []),
  AttributeProto.TYPE_PROTO: helper.make_tensor_type_proto(1, [1]),
}  # fmt: skip


def kind_of(attribute: Any) -> int:
  """The type of a schema's attribute, as AttributeProto counts it."""
  return int(attribute.type.value)


def schemas() -> list[Any]:
  """The latest version of each operator of the domains that have schemas and are here."""
  found = [s for s in defs.get_all_schemas() if s.domain in ("", "ai.onnx.ml") and not s.deprecated]
  return [s for s in found if all(kind_of(a) in VALUES for a in s.attributes.values())]


def node(schema: Any, *, count: Any = None, outputs: Any = None, **changed: Any) -> NodeProto:
  """A node as a schema says, but for what is changed; None leaves an attribute out."""
  given = {n: VALUES[kind_of(a)] for n, a in schema.attributes.items() if a.required} | changed
  made = helper.make_node(
    schema.name, [f"i{k}" for k in range(schema.min_input if count is None else count)],
    [f"o{k}" for k in range(max(schema.min_output, 1) if outputs is None else outputs)], "it", domain=schema.domain,
  )  # fmt: skip
  made.attribute.extend(helper.make_attribute(n, v) for n, v in given.items() if v is not None)
  return made


def load(schema: Any, made: NodeProto) -> None:
  imports = [helper.make_opsetid(schema.domain, schema.since_version)]
  if schema.domain:
    imports.append(helper.make_opsetid("", 21))
  inputs = [helper.make_empty_tensor_value_info(name) for name in made.input]
  graph = helper.make_graph([made], "g", inputs, [helper.make_empty_tensor_value_info(name) for name in made.output])
  tiny_onnx.load(helper.make_model(graph, opset_imports=imports), check=False)


def accepted(schema: Any, made: NodeProto) -> bool:
  try:
    load(schema, made)
  except ModelError as error:
    assert "node 'it'" in str(error) and schema.name in str(error)
    return False
  return True


def test_numbers_of_inputs_and_outputs() -> None:
  wrong = []
  for schema in schemas():
    for what, least, most in (("count", schema.min_input, schema.max_input), ("outputs", 1, schema.max_output)):
      for number in {least - 1, most + 1} - {-1, 0 if what == "outputs" else -1}:
        if number < 100 and accepted(schema, node(schema, **{what: number})):
          wrong.append(f"{schema.name}, {what} {number}")
  assert not wrong, wrong


def test_types_of_attributes() -> None:
  wrong = []
  for schema in schemas():
    for name, attribute in schema.attributes.items():
      other = "x" if kind_of(attribute) != AttributeProto.STRING else [0.5]
      if accepted(schema, node(schema, **{name: other})):
        wrong.append(f"{schema.name}.{name}: {other!r}")
      if attribute.required and accepted(schema, node(schema, **{name: None})):
        wrong.append(f"{schema.name}.{name} is missing")
    if accepted(schema, node(schema, nobody_has_it=1)):
      wrong.append(schema.name)
  assert not wrong, wrong


def test_words_that_mean_nothing() -> None:
  """A mode that nobody knows is not taken for another one: also of operators that a later version of onnx brings."""
  wrong = []
  for schema in schemas():
    for name, attribute in schema.attributes.items():
      title = f"{schema.name}.{name}"
      if kind_of(attribute) == AttributeProto.STRING and title not in NAMES | AT_CALLS:
        if accepted(schema, node(schema, **{name: "nonsense"})):
          wrong.append(title)
        word = helper.get_attribute_value(attribute.default_value) if attribute.default_value.type else None
        if word is not None:
          load(schema, node(schema, **{name: word.decode()} | words_needed(schema)))
  assert not wrong, wrong


def words_needed(schema: Any) -> dict[str, Any]:
  """The required words of an operator, of which the schema says none."""
  return {n: "LEFT" for n, a in schema.attributes.items() if a.required and schema.name == "BitShift"}


@pytest.mark.parametrize("version", [0, -1, 1 << 40])
def test_versions_that_are_none(version: int) -> None:
  info = [helper.make_tensor_value_info(n, 1, [1]) for n in "xy"]
  graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
  model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
  with pytest.raises(ModelError, match=f"version {version}"):
    tiny_onnx.load(model, check=False)
  del model.opset_import[:]
  with pytest.raises(ModelError, match="opset_import has no version of domain ''"):
    tiny_onnx.load(model, check=False)
