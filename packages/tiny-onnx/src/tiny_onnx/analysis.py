"""What can be said of a graph before it runs: which inputs are read as values, and what it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from tiny_onnx.graph import Graph, Node
from tiny_onnx.values import Value
from tiny_uop import GroupOp, Ops, UOp, value_nodes

BY_SHAPE = {"Shape", "Size", "SequenceLength", "OptionalHasElement"}
"""Operators whose results depend on shapes only."""


def read_names(graph: Graph) -> set[str]:
  """The names, of the graph's inputs and of graphs around, whose values are looked at while it runs: shapes, axes,
  conditions, counts. All else may be computed without looking at any element.
  """
  return _read(graph)[0]


def reads_computed_values(graph: Graph) -> bool:
  """Whether some of these values are computed on the device: what such a graph runs depends on them in every call."""
  return _read(graph)[1]


def _read(graph: Graph) -> tuple[set[str], bool]:
  wanted: set[str] = set()
  computed = False
  for node in reversed(graph.nodes):
    names, inner = _read_by(node)
    computed = computed or inner
    wanted.update(names)
    if node.call.op_type not in BY_SHAPE and wanted.intersection(node.call.outputs) and not node.constant:
      row = node.implementation
      computed = computed or row is None or not (row.host or row.raw)
      wanted.update(name for name in node.inputs if name)
  return wanted, computed


def _read_by(node: Node) -> tuple[set[str], bool]:
  places = set(node.implementation.needs) if node.implementation else set()
  names, computed = set(), False
  for graph in [*node.call.graphs.values(), *([node.function] if node.function else [])]:
    inside, looks = _read(graph)
    computed = computed or looks
    for name in inside:
      if name in graph.inputs:
        places.add(graph.inputs.index(name))  # inputs of bodies are those of the node, in its order
      elif not graph.function:
        names.add(name)
  names.update(node.inputs[i] for i in places if i < len(node.inputs) and node.inputs[i])
  return names, computed


def nodes_of(graph: Graph) -> Iterator[Node]:
  """All nodes, those of graphs within included."""
  for node in graph.nodes:
    yield node
    for inner in node.call.graphs.values():
      yield from nodes_of(inner)


def constants_of(graph: Graph) -> Iterator[Value]:
  """All weights: initialisers and values of Constant nodes, those of graphs within included."""
  yield from graph.constants.values()
  for node in graph.nodes:
    if node.call.op_type == "Constant":
      yield node.call["value"]
    for inner in node.call.graphs.values():
      yield from constants_of(inner)


def operations_of(sink: UOp) -> int:
  """Arithmetic operations of a graph of tensors as it is written: fusing kernels changes nothing about them."""
  total = 0
  for u in value_nodes(sink):
    counted = u.op in GroupOp.ALU and u.dtype.kind != "index"
    if counted or u.op is Ops.REDUCE:
      total += prod([int(s.vmax) if isinstance(s, UOp) else s for s in (u if counted else u.src[0]).shape])
  return total


def most_at_once(graph: Graph, sizes: Mapping[str, int]) -> int:
  """Bytes of the values of a graph that are needed at the same time, at most, if each is kept until its last use."""
  last = {name: place for place, node in enumerate(graph.nodes) for name in node.inputs}
  last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
  held = most = 0
  ends: dict[int, int] = {}
  for place, node in enumerate(graph.nodes):
    for name in node.call.outputs:
      size = sizes.get(name, 0)
      held += size
      end = last.get(name, place)
      ends[end] = ends.get(end, 0) + size
    most = max(most, held)
    held -= ends.pop(place, 0)
  return most


def count_ops(graph: Graph) -> Counter[str]:
  """How often each operator occurs, with the domain of those that are not ai.onnx's."""
  return Counter(f"{n.call.domain}.{n.call.op_type}".lstrip(".") for n in nodes_of(graph))
