"""What a node may be given: how many inputs and outputs, and which attributes of which types.

`onnx.checker` looks at the same, but it does not know operators of other domains, and a caller can leave it out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from onnx import AttributeProto, NodeProto, defs

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Implementation

AFTER = "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT"
KERNELS = "LINEAR POLY RBF SIGMOID"
UPDATES = "none add mul max min"
WORDS: dict[tuple[str, str], str] = {
  ("BitShift", "direction"): "LEFT RIGHT",
  ("Cast", "round_mode"): "up down nearest",
  ("CastLike", "round_mode"): "up down nearest",
  ("CastMap", "cast_to"): "TO_FLOAT TO_STRING TO_INT64",
  ("CastMap", "map_form"): "DENSE SPARSE",
  ("CausalConvWithState", "activation"): "silu swish none",
  ("DepthToSpace", "mode"): "DCR CRD",
  ("Gelu", "approximate"): "none tanh",
  ("GridSample", "mode"): "linear bilinear nearest cubic bicubic",
  ("GridSample", "padding_mode"): "zeros border reflection",
  ("ImageDecoder", "pixel_format"): "RGB BGR Grayscale",
  ("LinearAttention", "update_rule"): "linear gated delta gated_delta",
  ("LinearClassifier", "post_transform"): AFTER,
  ("LinearRegressor", "post_transform"): AFTER,
  ("Momentum", "mode"): "nesterov standard",
  ("NegativeLogLikelihoodLoss", "reduction"): "none sum mean",
  ("Normalizer", "norm"): "MAX L1 L2",
  ("Pad", "mode"): "constant reflect edge wrap",
  ("Resize", "keep_aspect_ratio_policy"): "stretch not_larger not_smaller",
  ("Resize", "mode"): "nearest linear cubic",
  ("Resize", "nearest_mode"): "round_prefer_floor round_prefer_ceil floor ceil simple",
  ("RoiAlign", "coordinate_transformation_mode"): "half_pixel output_half_pixel",
  ("RoiAlign", "mode"): "avg max",
  ("SVMClassifier", "kernel_type"): KERNELS,
  ("SVMClassifier", "post_transform"): AFTER,
  ("SVMRegressor", "kernel_type"): KERNELS,
  ("SVMRegressor", "post_transform"): AFTER,
  ("ScatterElements", "reduction"): UPDATES,
  ("ScatterND", "reduction"): UPDATES,
  ("SoftmaxCrossEntropyLoss", "reduction"): "none sum mean",
  ("SpaceToDepth", "mode"): "DCR CRD",
  ("StringNormalizer", "case_change_action"): "LOWER UPPER NONE",
  ("TensorScatter", "mode"): "linear circular",
  ("TfIdfVectorizer", "mode"): "TF IDF TFIDF",
  ("TreeEnsembleClassifier", "post_transform"): AFTER,
  ("TreeEnsembleRegressor", "aggregate_function"): "AVERAGE SUM MIN MAX",
  ("TreeEnsembleRegressor", "post_transform"): AFTER,
  ("Upsample", "mode"): "nearest linear bilinear",
}
"""The words that attributes may be, by operator: schemas say them in their texts only."""
AUTO_PAD = "NOTSET SAME_UPPER SAME_LOWER VALID"

Option = defs.OpSchema.FormalParameterOption


def check(proto: NodeProto, schema: Any, row: Implementation | None, domain: str) -> frozenset[int]:
  """The places of inputs that need a value. Raises ModelError for a node whose inputs, outputs or attributes its
  operator does not have, as far as there is a schema or an implementation to say so."""
  try:
    _count("inputs", list(proto.input), _bounds(schema, "input"), _positions(row.function) if row else None)
    _count("outputs", list(proto.output), _bounds(schema, "output"), None)
    if schema:
      _attributes(proto, schema)
    needed = frozenset(place for place in range(len(proto.input)) if _needs_value(place, schema, row))
    for place in needed:
      checked_value(place, proto.input[place] or None)
    return needed
  except ModelError as error:
    name = f" {proto.name!r}" if proto.name else ""
    domain = f"{domain}." if domain else ""
    version = f" version {schema.since_version}" if schema else ""
    raise ModelError(
      f"node{name} ({domain}{proto.op_type}{version}) that gives {list(proto.output)}: {error}"
    ) from None


def checked_value(place: int, value: Any) -> None:
  """Raises ModelError where an input that needs a value has none."""
  if value is None:
    raise ModelError(f"input {place} has no value, and the operator needs one")


def _bounds(schema: Any, side: str) -> tuple[int, int] | None:
  return (getattr(schema, f"min_{side}"), getattr(schema, f"max_{side}")) if schema else None


def _count(what: str, names: list[str], *bounds: tuple[int, int] | None) -> None:
  for low, high in filter(None, bounds):
    if not low <= len(names) <= high:
      expected = f"at least {low}" if len(names) < low else f"at most {high}"
      raise ModelError(f"it has {len(names)} {what}, {names}, and the operator {expected}")


@cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
  """What an implementation takes besides the call."""
  return tuple(inspect.signature(function).parameters.values())[1:]


@cache
def _positions(function: Callable[..., Any]) -> tuple[int, int]:
  """How many inputs an implementation takes, at least and at most."""
  places = [p for p in _parameters(function) if p.kind is p.POSITIONAL_OR_KEYWORD]
  rest = any(p.kind is p.VAR_POSITIONAL for p in _parameters(function))
  return sum(p.default is p.empty for p in places), 1 << 31 if rest else len(places)


def _needs_value(place: int, schema: Any, row: Implementation | None) -> bool:
  """Whether an input is more than optional: exporters leave out some that a schema says are not, as the boxes of
  Resize, and implementations say with their defaults where that may be."""
  parameters = _parameters(row.function) if row else ()
  if not parameters:
    return False
  parameter = parameters[min(place, len(parameters) - 1)]
  formal = _inputs(schema) if schema else ()
  single = place < len(formal) and formal[place].option == Option.Single
  return (parameter.default is parameter.empty and single) or parameter.annotation == "Tensor"


@lru_cache(4096)
def _inputs(schema: Any) -> tuple[Any, ...]:
  return tuple(schema.inputs)


def _attributes(proto: NodeProto, schema: Any) -> None:
  """Raises ModelError for attributes that the schema does not have, or has of another type."""
  known, found = _formal(schema), set()
  for attribute in proto.attribute:
    if attribute.name not in known:
      raise ModelError(f"it has an attribute {attribute.name!r}, and the operator has {sorted(known) or 'none'}")
    if attribute.type != known[attribute.name]:
      raise ModelError(
        f"attribute {attribute.name!r} is {_title(attribute.type)}, expected {_title(known[attribute.name])}"
      )
    words = AUTO_PAD if attribute.name == "auto_pad" else WORDS.get((proto.op_type, attribute.name))
    if words is not None and attribute.s.decode("utf-8", "replace") not in words.split():
      raise ModelError(f"attribute {attribute.name!r} is {attribute.s!r}, expected one of {words}")
    if attribute.name in found:
      raise ModelError(f"attribute {attribute.name!r} is there twice")
    found.add(attribute.name)
  if missing := _needed(schema) - found:
    raise ModelError(f"attributes that the operator needs are missing: {sorted(missing)}")


@lru_cache(4096)
def _formal(schema: Any) -> dict[str, int]:
  """Attributes of a schema → their types, as AttributeProto counts them."""
  return {name: int(attribute.type.value) for name, attribute in schema.attributes.items()}


@lru_cache(4096)
def _needed(schema: Any) -> frozenset[str]:
  return frozenset(name for name, attribute in schema.attributes.items() if attribute.required)


def _title(kind: int) -> str:
  known = AttributeProto.AttributeType
  return known.Name(kind) if kind in known.values() else f"type {kind}"
