"""Operators between DequantizeLinear and QuantizeLinear, as static quantisation writes them, become those of integers.

    DequantizeLinear(x), DequantizeLinear(w) → Conv → Relu → QuantizeLinear      becomes      QLinearConv(x, w)

The sum is one of products of bytes then, for which processors have instructions, and no float tensor is made. Rules say
which operator becomes which; each holds where scales and zero points are constants, and codes have 8 bits. Results are
those of onnxruntime, which does the same; they differ from computing the nodes as they stand by roundings of floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tiny_onnx.registry import find
from tiny_onnx.values import Host, Value

if TYPE_CHECKING:
  from tiny_onnx.graph import Node

MICROSOFT = "com.microsoft"
BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


@dataclass(frozen=True)
class Rule:
  """An operator of floats, and the operator of integers that it becomes."""

  name: str
  before: str
  after: str
  domain: str
  version: int
  fits: Callable[[Node, Sequence[Any]], bool]
  """Whether attributes allow it: the node, and the axis of the weights' scales, None for one scale."""
  takes_bias: bool


def _conv_fits(node: Node, axes: Sequence[Any]) -> bool:
  return axes[0] is None and axes[1] in (None, 0)


def _matmul_fits(node: Node, axes: Sequence[Any]) -> bool:
  return axes == [None, None]


def _gemm_fits(node: Node, axes: Sequence[Any]) -> bool:
  call = node.call
  plain = call.get("alpha", 1.0) == 1.0 and call.get("beta", 1.0) == 1.0 and not call.get("transA", 0)
  return plain and axes[0] is None and axes[1] in (None, 1 - call.get("transB", 0))


RULES = (
  Rule("convolution_of_codes", "Conv", "QLinearConv", "", 10, _conv_fits, True),
  Rule("product_of_codes", "MatMul", "QLinearMatMul", "", 10, _matmul_fits, False),
  Rule("product_of_codes_with_bias", "Gemm", "QGemm", MICROSOFT, 1, _gemm_fits, True),
)


def with_integers(nodes: list[Node], outputs: Sequence[str], constants: Mapping[str, Value]) -> list[Node]:
  """The nodes of a graph after the rules. `outputs` are the graph's, `constants` its initialisers by name."""
  if not any(node.call.op_type == "DequantizeLinear" for node in nodes):
    return nodes
  made = _Rewriting(nodes, outputs, constants)
  return made.without_unused([made.node(n) for n in nodes])


class _Rewriting:
  def __init__(self, nodes: list[Node], outputs: Sequence[str], constants: Mapping[str, Value]) -> None:
    self.constants, self.outputs = constants, outputs
    self.makers = {name: node for node in nodes for name in node.call.outputs if name}
    self.users = Counter(name for node in nodes for name in node.inputs)
    self.users.update(outputs)
    inner = any(node.call.graphs or node.body is not None for node in nodes)
    self.hidden = inner
    """Whether graphs in nodes may use values, too: then nothing is taken away."""

  def node(self, node: Node) -> Node:
    """A QuantizeLinear as what it and the nodes before it become; any other node as it is."""
    if node.call.op_type != "QuantizeLinear" or node.call.domain or len(node.inputs) < 3:
      return node
    made = self._single(node.inputs[0])
    relu = made is not None and made.call.op_type == "Relu" and not made.call.domain
    if relu and made is not None:
      made = self._single(made.inputs[0])
    zero, scale = self._zero(node), self._scale(node)
    if made is None or made.call.domain or zero is None or scale is None or scale.size * zero.size != 1:
      return node
    if relu and int(zero.min()) != np.iinfo(zero.dtype).min:
      return node  # codes below the zero point stand for what Relu makes 0
    for rule in RULES:
      if rule.before == made.call.op_type and (inputs := self._inputs(rule, made)) is not None:
        return self._made(rule, made, node, inputs)
    return node

  def _made(self, rule: Rule, made: Node, node: Node, inputs: list[str]) -> Node:
    row = find(rule.domain, rule.after, rule.version)
    call = replace(
      made.call, op_type=rule.after, domain=rule.domain, version=rule.version, outputs=node.call.outputs, graphs={}
    )
    result = [node.inputs[1], node.inputs[2]]
    codes, bias = inputs[:6], inputs[6:]
    order = [*codes, *bias, *result] if rule.after == "QGemm" else [*codes, *result, *bias]
    return replace(made, call=call, inputs=tuple(order), implementation=row, body=None, function=None)

  def _inputs(self, rule: Rule, made: Node) -> list[str] | None:
    """Codes, scales and zero points of both operands, and the codes of a bias; None where the rule does not hold."""
    sides = [self._dequantized(name) for name in made.inputs[:2]]
    if len(made.inputs) < 2 or any(side is None for side in sides):
      return None
    axes: list[Any] = []
    found: list[str] = []
    scales: list[np.ndarray[Any, Any]] = []
    for side in sides:
      assert side is not None
      scale, zero = self._scale(side), self._zero(side)
      if scale is None or zero is None or len(side.inputs) < 3:
        return None
      axes.append(side.call.get("axis", 1) if scale.size > 1 else None)
      found += side.inputs[:3]
      scales.append(scale)
    if not rule.fits(made, axes):
      return None
    bias = made.inputs[2] if len(made.inputs) > 2 else ""
    if not bias:
      return [*found, ""] if rule.after == "QGemm" else found
    side = self._dequantized(bias)
    if not rule.takes_bias or side is None or (factor := self._scale(side)) is None:
      return None
    offset = self._array(side.inputs[2]) if len(side.inputs) > 2 else None
    expected = scales[0].reshape(-1) * scales[1].reshape(-1)
    same = factor.size in (1, expected.size) and np.allclose(factor.reshape(-1), expected, rtol=1e-4, atol=0)
    codes = self._array(side.inputs[0])
    if codes is None or codes.dtype != np.int32 or not same or (offset is not None and offset.any()):
      return None
    return [*found, side.inputs[0]]

  def _single(self, name: str) -> Node | None:
    """What makes a value that only one node uses."""
    return self.makers.get(name) if self.users[name] == 1 else None

  def _dequantized(self, name: str) -> Node | None:
    node = self.makers.get(name)
    plain = node is not None and node.call.op_type == "DequantizeLinear" and not node.call.domain
    return node if plain and node is not None and not node.call.get("block_size", 0) else None

  def _array(self, name: str) -> np.ndarray[Any, Any] | None:
    value = self.constants.get(name)
    return value.array if isinstance(value, Host) else None

  def _scale(self, node: Node) -> np.ndarray[Any, Any] | None:
    scale = self._array(node.inputs[1]) if len(node.inputs) > 1 else None
    return scale if scale is not None and scale.dtype == np.float32 else None

  def _zero(self, node: Node) -> np.ndarray[Any, Any] | None:
    """The zero point of 8 bits; None where it is no constant, or of another type."""
    zero = self._array(node.inputs[2]) if len(node.inputs) > 2 else None
    return zero if zero is not None and zero.dtype in BYTES else None

  def without_unused(self, nodes: list[Node]) -> list[Node]:
    """The nodes but for those that the rules have left without users."""
    if self.hidden:
      return nodes
    used, kept = Counter(self.outputs), []
    for node in reversed(nodes):
      before = any(self.users[name] for name in node.call.outputs)
      if before and not any(used[name] for name in node.call.outputs):
        continue
      used.update(node.inputs)
      kept.append(node)
    return kept[::-1]
