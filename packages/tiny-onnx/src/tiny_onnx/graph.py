"""Graphs of a model, made ready to be computed: names resolved, versions and attributes known, bodies compiled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, defs, helper

import tiny_onnx.ops  # noqa: F401  the table of implementations is filled
from tiny_onnx.errors import ModelError, UnsupportedOps
from tiny_onnx.limits import Limits
from tiny_onnx.qdq import with_integers
from tiny_onnx.registry import Call, Implementation, find
from tiny_onnx.signatures import check, checked_value
from tiny_onnx.values import Host, Narrow, Value, boxed, describe, elem_of, shape_of, tensor_of
from tiny_onnx.weights import Weights, dense_of, host_of_proto
from tiny_tensor import Tensor
from tiny_tensor.jit import JitError
from tiny_uop import UOp

MOST_ON_HOST = 4096
"""Elements of an array that is computed on the host; larger ones are computed on the device."""

MOST_OF_A_MESSAGE = 400
"""Characters that an error says of a node's inputs and attributes."""

OF_SCHEMAS = frozenset((schema.domain, schema.name) for schema in defs.get_all_schemas())
WITH_SCHEMAS = frozenset(domain for domain, _ in OF_SCHEMAS)
"""Operators that have a schema, and their domains: what they do depends on the version that a model imports."""

UNDONE = (JitError, ModelError)
"""Errors that go to the caller as they are."""


class Scope:
  """Values by name, those of the graphs around included."""

  __slots__ = ("around", "values")

  def __init__(self, around: Scope | None = None) -> None:
    self.values: dict[str, Value] = {}
    self.around = around

  def __getitem__(self, name: str) -> Value:
    scope: Scope | None = self
    while scope is not None:
      if name in scope.values:
        return scope.values[name]
      scope = scope.around
    raise ModelError(f"value {name!r} is used before anything computes it: nodes have to be in topological order")


@dataclass
class Run:
  """One call of a model."""

  limits: Limits
  steps: int = 0
  watch: Callable[[Node, Sequence[Value]], None] | None = None

  def step(self) -> None:
    self.steps += 1
    if self.steps > self.limits.steps:
      raise ModelError(
        f"one call computed more than {self.limits.steps} nodes (Limits.steps): is there an endless loop?"
      )


@dataclass
class Node:
  """A node with its implementation, or with the function that is its body."""

  call: Call
  inputs: tuple[str, ...]
  implementation: Implementation | None
  body: Callable[[Sequence[Value]], Graph] | None = None
  """The graph of a function, for these inputs."""
  function: Graph | None = None
  """That graph, where it is the same for all inputs."""
  constant: bool = False
  """Whether every input is a constant of the model."""
  needed: frozenset[int] = frozenset()
  """Places of the inputs that need a value."""

  def __str__(self) -> str:
    return f"node {self.call.name!r} ({self.call.op_type} version {self.call.version})"


@dataclass
class Graph:
  """Inputs, constants, nodes in order, outputs."""

  name: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  nodes: list[Node]
  constants: dict[str, Value] = field(default_factory=dict)
  function: bool = False
  """Whether this is the body of a function."""
  folded: dict[str, Value] = field(default_factory=dict)
  """Values that depend on constants only, computed once."""
  declared: tuple[TypeProto, ...] = ()
  """What the file says of the outputs; of a function's it says nothing."""

  def compute(
    self, inputs: Mapping[str, Value] | Sequence[Value], run: Run, around: Scope | None = None
  ) -> list[Value]:
    """The outputs for these inputs, by name or in order."""
    scope = Scope(around)
    scope.values.update(self.constants)
    scope.values.update(self.folded)
    if not isinstance(inputs, Mapping):
      if len(inputs) > len(self.inputs):
        raise ModelError(f"graph {self.name!r} takes {len(self.inputs)} inputs, and got {len(inputs)}")
      inputs = dict(zip(self.inputs, [*inputs, *[None] * (len(self.inputs) - len(inputs))]))
    scope.values.update(inputs)
    for node in self.nodes:
      if node.call.outputs and all(name in self.folded for name in node.call.outputs if name):
        continue
      self._step(node, scope, run)
    if self.function:
      return [scope.values.get(name) for name in self.outputs]  # a body leaves out outputs that nobody takes
    return [scope[name] for name in self.outputs]

  def _step(self, node: Node, scope: Scope, run: Run) -> None:
    run.step()
    inputs = [scope[name] if name else None for name in node.inputs]
    try:
      outputs = evaluate(node, inputs, run, scope)
    except UNDONE as error:
      if isinstance(error, ModelError) and not getattr(error, "placed", False):
        placed = ModelError(f"{node}: {error}")
        placed.placed = True  # type: ignore[attr-defined]
        raise placed from error
      raise
    except Exception as error:
      failed = ModelError(f"{node} cannot be computed of {_given(node, inputs)}: {type(error).__name__}: {error}")
      failed.placed = True  # type: ignore[attr-defined]
      raise failed from error
    if run.watch is not None:
      run.watch(node, outputs)
    for name, value in zip(node.call.outputs, outputs):
      if name:
        scope.values[name] = value

  def fold(self, run: Run) -> None:
    """Computes what depends on constants only, once: transposed weights, numbers of quantised ones, shapes."""
    scope = Scope()
    scope.values.update(self.constants)
    for node in self.nodes:
      if node.constant and all(name in scope.values for name in node.inputs if name):
        self._step(node, scope, run)
        made = {name: scope.values[name] for name in node.call.outputs if name in scope.values}
        for value in made.values():
          if isinstance(value, (Tensor, Narrow)):
            value.realize()
        self.folded.update(made)
    self.upload()

  def upload(self) -> None:
    """Copies constants to the device, so that no captured call does it again and again."""
    values = [*self.constants.values(), *self.folded.values()]
    for node in self.nodes:
      values += [v for v in node.call.attributes.values() if isinstance(v, Host)]
      for graph in [*node.call.graphs.values(), *([node.function] if node.function else [])]:
        graph.upload()
    for value in values:
      if isinstance(value, Host) and value.array.dtype.kind not in "OUST":
        value.device_value.realize()
      elif isinstance(value, Tensor):
        value.realize()


def _given(node: Node, inputs: Sequence[Value]) -> str:
  """The inputs and attributes of a node in words, for errors of which the operator says no more."""
  values = ", ".join(f"{name or 'nothing'}: {describe(x)}" for name, x in zip(node.inputs, inputs)) or "no inputs"
  attributes = {name: x for name, x in node.call.attributes.items() if x is not None}
  text = f"{values}; attributes {attributes}" if attributes else values
  return text if len(text) <= MOST_OF_A_MESSAGE else f"{text[:MOST_OF_A_MESSAGE]}…"


def evaluate(node: Node, inputs: list[Value], run: Run, scope: Scope) -> list[Value]:
  """The outputs of a node."""
  row = node.implementation
  if row is None:
    assert node.body is not None
    body = node.body(inputs)
    return body.compute(inputs, run)
  call = replace(node.call, run=run, scope=scope) if node.call.graphs or row.scoped else node.call
  found: Any
  for place in node.needed:
    checked_value(place, inputs[place])
  given = [x for x in inputs if x is not None]
  if row.host is not None and given and all(_small(x) for x in given):
    found = row.host(call, *[x.array if isinstance(x, Host) else None for x in inputs])
  elif row.raw:
    found = row.function(call, *inputs)
  elif row.moves and any(isinstance(x, Narrow) for x in given):
    kind = next(x.elem for x in given if isinstance(x, Narrow))
    found = row.function(call, *[x.codes if isinstance(x, Narrow) else _tensor(x) for x in inputs])
    found = tuple(Narrow(x, kind) for x in (found if isinstance(found, tuple) else (found,)))
  else:
    found = row.function(call, *[_tensor(x) for x in inputs])
  outputs = [_value(x) for x in (found if isinstance(found, tuple) else (found,))]
  if len(outputs) < len([name for name in call.outputs if name]):
    raise ModelError(f"gives {len(outputs)} outputs, and the node names {len(call.outputs)}")
  for value in outputs:
    if isinstance(value, Tensor):
      check_size(value, run.limits)
  return outputs


def check_size(value: Tensor, limits: Limits) -> None:
  """Raises ModelError for a tensor that is larger than the limit, also along axes beside one of size 0."""
  sizes = [int(s.vmax) if isinstance(s, UOp) else s for s in shape_of(value)]
  largest = math.prod(max(s, 1) for s in sizes) * value.dtype.itemsize
  if largest > limits.tensor_bytes:
    raise ModelError(
      f"a tensor of shape {tuple(value.shape)} has more than {limits.tensor_bytes} bytes (Limits.tensor_bytes)"
    )


def _small(value: Value) -> bool:
  return isinstance(value, Host) and (value.array.size <= MOST_ON_HOST or value.array.dtype.kind == "O")


def _tensor(value: Value) -> Tensor | None:
  return None if value is None else tensor_of(value)


def _value(found: Any) -> Value:
  if isinstance(found, UOp):
    found = boxed(found)
  if isinstance(found, (np.ndarray, np.generic)):
    array = np.asarray(found)
    numbers = array.dtype.kind == "O" and array.size > 0 and all(type(x) is int for x in array.flat)
    return Host(array.astype(np.int64) if numbers else array)  # what is no longer symbolic
  value: Value = found
  return value


class Compiler:
  """Makes graphs of a model ready. One object per model: it counts nodes, and collects operators that are missing."""

  def __init__(
    self, opsets: Mapping[str, int], functions: Iterable[FunctionProto], weights: Weights, limits: Limits
  ) -> None:
    self.opsets = _opsets(opsets.items())
    self.functions = {(_domain(f.domain), f.name, f.overload): f for f in functions}
    self.weights, self.limits = weights, limits
    self.count = 0
    self.missing: dict[tuple[str, str, int], list[str]] = defaultdict(list)

  def model_graph(self, graph: GraphProto) -> Graph:
    """The graph of the model. Raises UnsupportedOps with all operators that are missing."""
    made = self.graph(graph, self.opsets, 0, frozenset())
    self.check_missing()
    return made

  def check_missing(self) -> None:
    if self.missing:
      rows = [(domain, name, version, nodes) for (domain, name, version), nodes in self.missing.items()]
      self.missing = defaultdict(list)
      raise UnsupportedOps(rows)

  def graph(self, graph: GraphProto, opsets: Mapping[str, int], depth: int, constant: frozenset[str]) -> Graph:
    self._deeper(depth)
    constants: dict[str, Value] = {t.name: self.weights.value(t) for t in graph.initializer}
    for row in graph.sparse_initializer:
      constants[row.values.name] = Host(dense_of(row, self.limits))
    outputs = tuple(v.name for v in graph.output)
    nodes = self.nodes(graph.node, opsets, depth, set(constants) | constant)
    return Graph(
      graph.name, tuple(v.name for v in graph.input), outputs, with_integers(nodes, outputs, constants), constants,
      declared=tuple(v.type for v in graph.output),
    )  # fmt: skip

  def nodes(self, protos: Iterable[NodeProto], opsets: Mapping[str, int], depth: int, constant: set[str]) -> list[Node]:
    made = []
    for index, proto in enumerate(protos):
      self.count += 1
      if self.count > self.limits.nodes:
        raise ModelError(f"the model has more than {self.limits.nodes} nodes (Limits.nodes)")
      node = self.node(proto, index, opsets, depth, constant)
      if node.constant:
        constant.update(name for name in node.call.outputs if name)
      made.append(node)
    return made

  def node(self, proto: NodeProto, index: int, opsets: Mapping[str, int], depth: int, constant: set[str]) -> Node:
    domain, name = _domain(proto.domain), proto.name or f"{proto.op_type}_{index}"
    local = self.functions.get((domain, proto.op_type, proto.overload))
    opset = opsets.get(domain)
    if opset is None and local is None and domain in WITH_SCHEMAS:
      raise ModelError(
        f"node {name!r} ({proto.op_type}): opset_import has no version of domain {domain!r}: {dict(opsets)}"
      )
    schema = None if local is not None or opset is None else _schema(proto.op_type, opset, domain)
    version = schema.since_version if schema else opset or 1
    later = schema is None and (domain, proto.op_type) in OF_SCHEMAS  # it is there in another version only
    row = None if local is not None or later else find(domain, proto.op_type, version)
    needed = frozenset[int]() if local is not None else check(proto, schema, row, domain)
    attributes = dict(_defaults(schema)) if schema else {}
    graphs: dict[str, Graph] = {}
    for attribute in proto.attribute:
      if attribute.type == AttributeProto.GRAPH:
        graphs[attribute.name] = self.graph(attribute.g, opsets, depth + 1, frozenset(constant))
      elif attribute.type != AttributeProto.GRAPHS:
        attributes[attribute.name] = attribute_value(attribute, self.weights, self.limits)
    call = Call(name, proto.op_type, domain, version, attributes, tuple(proto.output), graphs)
    inputs = tuple(proto.input)
    fixed = not graphs and (row is None or not row.random) and all(x in constant for x in inputs if x)
    node = Node(call, inputs, row, constant=fixed, needed=needed)
    if row is not None:
      return node
    if local is not None:
      body = self.function(local, proto, opsets, depth)
      node.function, node.body = body, lambda _: body
    elif schema is not None and schema.has_function:
      body = self.function(_body(schema, opset or 1), proto, {**opsets}, depth, attributes)
      node.function, node.body = body, lambda _: body
    elif schema is not None and schema.has_context_dependent_function:
      node.body = self._by_context(schema, proto, opset or 1, opsets, depth, attributes)
    else:
      self.missing[domain, proto.op_type, version].append(name)
    return node

  def _by_context(
    self, schema: Any, proto: NodeProto, opset: int, opsets: Mapping[str, int], depth: int,
    attributes: Mapping[str, Any],
  ) -> Callable[[Sequence[Value]], Graph]:  # fmt: skip
    """The body of a function that depends on the types of its inputs: made when these are known, once for each."""
    made: dict[bytes, Graph] = {}

    def body(inputs: Sequence[Value]) -> Graph:
      types = [type_of(x).SerializeToString() for x in inputs]
      key = b"|".join(types)
      if key not in made:
        version = max((v for v in schema.context_dependent_function_opset_versions if v <= opset), default=opset)
        text = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
        if not text:
          raise ModelError(f"{proto.op_type} has no body for inputs of these types: {[*map(elem_of, inputs)]}")
        function = FunctionProto()
        function.ParseFromString(text)
        made[key] = self.function(function, proto, opsets, depth, attributes)
        self.check_missing()
      return made[key]

    return body

  def function(
    self, function: FunctionProto, proto: NodeProto, opsets: Mapping[str, int], depth: int,
    defaults: Mapping[str, Any] | None = None,
  ) -> Graph:  # fmt: skip
    """The body of a function, with the attributes of the node that calls it."""
    self._deeper(depth + 1)
    inner = {"": opsets.get("", defs.onnx_opset_version())} | _opsets(
      (o.domain, o.version) for o in function.opset_import
    )
    given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in proto.attribute}
    for name, value in (defaults or {}).items():
      if name not in given and value is not None and name in function.attribute:
        given[name] = helper.make_attribute(name, value)
    nodes = [_with_attributes(node, given) for node in function.node]
    return Graph(
      function.name,
      tuple(function.input),
      tuple(function.output),
      self.nodes(nodes, inner, depth + 1, set()),
      function=True,
    )

  def _deeper(self, depth: int) -> None:
    if depth > self.limits.depth:
      raise ModelError(f"graphs and functions are nested deeper than {self.limits.depth} (Limits.depth)")


def _body(schema: Any, opset: int) -> FunctionProto:
  version = max((v for v in schema.function_opset_versions if v <= opset), default=schema.since_version)
  text = schema.get_function_with_opset_version(version)
  function = FunctionProto()
  function.ParseFromString(text)
  return function


def _domain(domain: str) -> str:
  return "" if domain == "ai.onnx" else domain


def _opsets(imports: Iterable[tuple[str, int]]) -> dict[str, int]:
  """Domain → version of its operators. Raises ModelError for a number that is no version."""
  found: dict[str, int] = {}
  for domain, version in imports:
    if not 1 <= version < 1 << 31:
      raise ModelError(f"opset_import: domain {domain!r} has version {version}, expected 1 or a later one")
    found[_domain(domain)] = version
  return found


@lru_cache(4096)
def _schema(name: str, opset: int, domain: str) -> Any:
  """The schema that holds for an operator in an opset, None if there is none. Stubs lack the bodies of functions."""
  try:
    return defs.get_schema(name, opset, domain)
  except (defs.SchemaError, TypeError):  # a name that is not UTF-8 is read as bytes
    return None


def _defaults(schema: Any) -> Iterable[tuple[str, Any]]:
  for name, attribute in schema.attributes.items():
    if attribute.default_value.type != AttributeProto.UNDEFINED:
      yield name, _plain(helper.get_attribute_value(attribute.default_value))


def _plain(value: Any) -> Any:
  if isinstance(value, bytes):
    return value.decode("utf-8", "replace")
  if isinstance(value, Iterable) and not isinstance(value, str):
    return [_plain(x) for x in value]
  return value


def attribute_value(attribute: AttributeProto, weights: Weights, limits: Limits) -> Any:
  """An attribute as Python has it: numbers, strings, lists of them, Host for a tensor."""
  if attribute.type == AttributeProto.TENSOR:
    return weights.value(attribute.t)
  if attribute.type == AttributeProto.TENSORS:
    return [host_of_proto(t, limits) for t in attribute.tensors]
  if attribute.type == AttributeProto.SPARSE_TENSOR:
    return Host(dense_of(attribute.sparse_tensor, limits))
  if attribute.type == AttributeProto.TYPE_PROTO:
    return attribute.tp
  return _plain(helper.get_attribute_value(attribute))


def _with_attributes(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
  """A node of a function with references to the function's attributes replaced by what is given for them."""
  made = NodeProto()
  made.CopyFrom(node)
  kept = []
  for attribute in made.attribute:
    if attribute.ref_attr_name:
      if attribute.ref_attr_name not in given:
        continue
      value = AttributeProto()
      value.CopyFrom(given[attribute.ref_attr_name])
      value.name = attribute.name
      kept.append(value)
    else:
      if attribute.type == AttributeProto.GRAPH:
        inner = [_with_attributes(n, given) for n in attribute.g.node]
        del attribute.g.node[:]
        attribute.g.node.extend(inner)
      kept.append(attribute)
  copied = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
  del made.attribute[:]
  made.attribute.extend(copied)
  return made


def type_of(value: Value) -> TypeProto:
  """The type of a value as ONNX has it."""
  if value is None:
    return TypeProto()
  if isinstance(value, list):
    inner = type_of(value[0]) if value else TypeProto()
    return helper.make_sequence_type_proto(inner)
  sizes = [None if isinstance(s, UOp) else s for s in shape_of(value)]
  return helper.make_tensor_type_proto(elem_of(value), sizes)


__all__ = ["Compiler", "Graph", "Node", "Run", "Scope", "check_size", "evaluate", "onnx", "type_of"]
