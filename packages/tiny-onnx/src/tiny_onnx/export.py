"""A function of tensors as an ONNX model: its graph, node by node, in operators of the standard.

Elementwise operations broadcast as ONNX does; a sum of products of views is an Einsum. What the standard has no
operator for is listed at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from tiny_onnx.errors import ModelError
from tiny_onnx.values import ELEM_TYPES, elem_of, numpy_of, shape_of
from tiny_tensor import Tensor, dtypes
from tiny_uop import GroupOp, Ops, UOp

OPSET = 21
OPSET_OF_BITCAST = 26
PASSED = {Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY, Ops.CUSTOM_GRADIENT}
"""Operations whose value is that of their first source."""

LEAVES = {Ops.BUFFER, Ops.CONST, Ops.AFTER, Ops.CALL}
"""Operations whose sources are no values of the graph; kernels that are called are none that ONNX has."""

SIMPLE = {
  Ops.ADD: "Add", Ops.SUB: "Sub", Ops.MUL: "Mul", Ops.FDIV: "Div", Ops.TRUNCDIV: "Div", Ops.CMPLT: "Less",
  Ops.CMPEQ: "Equal", Ops.WHERE: "Where", Ops.NEG: "Neg", Ops.EXP: "Exp", Ops.LOG: "Log", Ops.SIN: "Sin",
  Ops.COS: "Cos", Ops.SQRT: "Sqrt", Ops.FLOORMOD: "Mod",
}  # fmt: skip
"""Operations that are one operator on all dtypes that they occur with."""

BITS = {Ops.AND: ("And", "BitwiseAnd"), Ops.OR: ("Or", "BitwiseOr"), Ops.XOR: ("Xor", "BitwiseXor")}
REDUCTIONS = {Ops.ADD: "ReduceSum", Ops.MUL: "ReduceProd", Ops.MAX: "ReduceMax"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def export(
  function: Callable[..., Any], inputs: Mapping[str, Tensor], path: str | os.PathLike[str] | None = None
) -> ModelProto:
  """The model of `function(*inputs)`, with the names and shapes of `inputs`; written to `path` if one is given.

  The function returns a tensor, a sequence of them, or a dict by name. Tensors that it uses besides its inputs become
  weights. Its graph is taken as it stands for these shapes: what the function does in Python is not part of it. The
  model passes `onnx.checker`. Raises ModelError for operations that the standard has no operator for (random numbers)
  and for symbolic sizes.
  """
  given = {name: x.detach().clone().realize() for name, x in inputs.items()}
  made = function(*given.values())
  if isinstance(made, Tensor):
    made = {"output": made}
  outputs: dict[str, Tensor] = (
    dict(made) if isinstance(made, Mapping) else {f"output{i}": t for i, t in enumerate(made)}
  )
  if twice := sorted(outputs.keys() & given.keys()):
    raise ModelError(f"inputs and outputs have different names, found {', '.join(twice)} as both")
  writer = Writer({x.uop: name for name, x in given.items()})
  names = {name: writer.value(t.uop) for name, t in outputs.items()}
  if writer.missing:
    raise ModelError(f"ONNX has no operators for {', '.join(sorted(writer.missing))}: compute these outside")
  for name, value in names.items():
    writer.nodes.append(helper.make_node("Identity", [value], [name]))
  graph = helper.make_graph(writer.nodes, "graph", _infos(given), _infos(outputs), writer.weights)
  version = 10 if writer.opset == OPSET else 13
  opsets = [helper.make_opsetid("", writer.opset)]
  model = helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="tiny-onnx")
  onnx.checker.check_model(model, full_check=True)
  if path is not None:
    onnx.save(model, path)
  return model


def _infos(tensors: Mapping[str, Tensor]) -> list[onnx.ValueInfoProto]:
  return [helper.make_tensor_value_info(name, elem_of(t), list(shape_of(t))) for name, t in tensors.items()]


class Writer:
  """Nodes and weights, and the names of values that are written already."""

  def __init__(self, inputs: Mapping[UOp, str]) -> None:
    self.names: dict[UOp, str] = dict(inputs)
    self.nodes: list[NodeProto] = []
    self.weights: list[TensorProto] = []
    self.constants: dict[tuple[Any, ...], str] = {}
    self.missing: set[str] = set()
    self.opset = OPSET

  def value(self, u: UOp) -> str:
    """The name of a value, with the shape that it has here."""
    stack = [u]
    while stack:
      node = stack[-1]
      waiting = [
        s for s in node.src if s not in self.names and node.op not in LEAVES and s.dtype.kind not in ("void", "index")
      ]
      if node in self.names or not waiting:
        stack.pop()
        if node not in self.names:
          self.names[node] = self.written(node)
      else:
        stack.extend(waiting)
    return self.names[u]

  def is_value(self, u: UOp) -> bool:
    return u.op not in (Ops.STORE, Ops.SINK, Ops.VARIABLE, Ops.BIND) and u.dtype.kind not in ("void", "index")

  def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
    name = f"v{len(self.nodes)}"
    self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
    return name

  def constant(self, array: np.ndarray[Any, Any], elem: int | None = None) -> str:
    """An initialiser, one for each value."""
    elem = elem or int(helper.np_dtype_to_tensor_dtype(array.dtype))
    key = (elem, array.shape, array.tobytes())
    if key not in self.constants:
      name = f"c{len(self.constants)}"
      self.constants[key] = name
      self.weights.append(helper.make_tensor(name, elem, array.shape, array.reshape(-1).tolist()))
    return self.constants[key]

  def ints(self, numbers: Sequence[Any]) -> str:
    return self.constant(np.array(list(numbers), np.int64))

  def number(self, u: UOp, value: float) -> str:
    """A number of a value's dtype, without axes."""
    return self.constant(np.array(value), ELEM_TYPES[u.dtype])

  def operand(self, u: UOp, plain: bool) -> tuple[str, tuple[Any, ...]]:
    """(name, shape) of what broadcasts to a value: a number, or with `plain` what it was before EXPAND."""
    root = u
    while root.op in (Ops.RESHAPE, Ops.EXPAND):
      root = root.src[0]
    if root.op is Ops.CONST:
      return self.number(root, root.arg), ()
    if plain and u.op is Ops.EXPAND and len(u.src[0].shape) == len(u.shape):
      return self.names[u.src[0]], tuple(u.src[0].shape)
    return self.names[u], tuple(u.shape)

  def operands(self, u: UOp) -> list[str]:
    """Sources of an elementwise operation, expanded only where broadcasting would not give its shape."""
    for plain in (True, False):
      found = [self.operand(s, plain) for s in u.src]
      if np.broadcast_shapes(*[shape for _, shape in found]) == tuple(u.shape):
        return [name for name, _ in found]
    return [self.names[s] for s in u.src]

  def written(self, u: UOp) -> str:
    """Writes a value whose sources are written. Says in `missing` what there is no operator for."""
    if u.dtype not in ELEM_TYPES or not all(isinstance(s, int) for s in u.shape):
      self.missing.add(f"{u.op.name} of {u.dtype.name} and shape {u.shape}")
      return ""
    if u.op is Ops.BUFFER:
      name = f"w{len(self.weights)}"
      array = numpy_of(Tensor(u))
      self.weights.append(onnx.numpy_helper.from_array(array, name))
      return name
    if u.op is Ops.CONST:
      return self.number(u, u.arg)
    if u.op in PASSED:
      return self.names[u.src[0]]
    if (moved := self.movement(u)) is not None:
      return moved
    if u.op is Ops.REDUCE:
      return self.reduction(u)
    if u.op in GroupOp.Elementwise:
      return self.elementwise(u, self.operands(u))
    self.missing.add(f"{u.op.name} of {u.dtype.name}")
    return ""

  def movement(self, u: UOp) -> str | None:
    if u.op not in (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP):
      return None
    source, rank = self.names[u.src[0]], len(u.shape)
    if u.op is Ops.RESHAPE:
      return self.node("Reshape", [source, self.ints(u.shape)], allowzero=1)
    if u.op is Ops.EXPAND:
      return self.node("Expand", [source, self.ints(u.shape)])
    if u.op is Ops.PERMUTE:
      return self.node("Transpose", [source], perm=list(u.arg))
    if u.op is Ops.FLIP:
      axes = list(u.arg)
      ends = [self.ints([number] * len(axes)) for number in (-1, -(1 << 62), -1)]
      return self.node("Slice", [source, ends[0], ends[1], self.ints(axes), ends[2]])
    pairs = [(u.arg[2 * i], u.arg[2 * i + 1]) for i in range(rank)]
    first, second = self.ints([a for a, _ in pairs]), self.ints([b for _, b in pairs])
    if u.op is Ops.SHRINK:
      return self.node("Slice", [source, first, second])
    return self.node("Pad", [source, self.ints([a for a, _ in pairs] + [b for _, b in pairs])])

  def reduction(self, u: UOp) -> str:
    kind, axes = u.arg
    if kind is Ops.ADD and u.src[0].op is Ops.MUL and (made := self.product(u, u.src[0], axes)) is not None:
      return made
    return self.node(REDUCTIONS[kind], [self.names[u.src[0]], self.ints(axes)], keepdims=1)

  def product(self, u: UOp, times: UOp, axes: Sequence[int]) -> str | None:
    """A sum of products as an Einsum: each factor has the letters of the axes along which it is not expanded."""
    if u.dtype.kind != "float" or len(times.shape) > len(LETTERS):
      return None
    names: list[str] = []
    terms: list[str] = []
    for factor in times.src:
      source = factor.src[0] if factor.op is Ops.EXPAND else factor
      shape: Sequence[Any] = source.shape
      if len(source.shape) != len(times.shape) or self.operand(factor, True)[1] == ():
        return None
      kept = [i for i, (a, b) in enumerate(zip(source.shape, times.shape)) if a == b and b != 1]
      name = self.names[source]
      if len(kept) < len(source.shape):
        name = self.node("Reshape", [name, self.ints([shape[i] for i in kept])])
      names.append(name)
      terms.append("".join(LETTERS[i] for i in kept))
    out = "".join(LETTERS[i] for i in range(len(times.shape)) if i not in axes and times.shape[i] != 1)
    if any(not t for t in terms) or set(out) - set("".join(terms)):
      return None
    made = self.node("Einsum", names, equation=f"{','.join(terms)}->{out}")
    return self.node("Reshape", [made, self.ints(u.shape)])

  def elementwise(self, u: UOp, inputs: list[str]) -> str:
    if u.op in SIMPLE:
      return self.node(SIMPLE[u.op], inputs)
    if u.op is Ops.CAST:
      return self.node("Cast", inputs, to=ELEM_TYPES[u.dtype])
    if u.op is Ops.BITCAST and u.dtype.itemsize == u.src[0].dtype.itemsize:
      self.opset = OPSET_OF_BITCAST
      return self.node("BitCast", inputs, to=ELEM_TYPES[u.dtype])
    if u.op in BITS:
      return self.node(BITS[u.op][u.dtype is not dtypes.bool], inputs)
    if u.op is Ops.MAX:
      return self.node("Or" if u.dtype is dtypes.bool else "Max", inputs)
    if u.op is Ops.CMPNE:
      return self.node("Not", [self.node("Equal", inputs)])
    if u.op is Ops.TRUNCMOD:
      return self.node("Mod", inputs, fmod=1)
    if u.op is Ops.FLOORDIV:
      return self.node("Div", [self.node("Sub", [inputs[0], self.node("Mod", inputs)]), inputs[1]])
    if u.op is Ops.TRUNC:
      return self.node("Mul", [self.node("Sign", inputs), self.node("Floor", [self.node("Abs", inputs)])])
    if u.op is Ops.EXP2:
      return self.node("Pow", [self.number(u, 2.0), *inputs])
    if u.op is Ops.LOG2:
      return self.node("Mul", [self.node("Log", inputs), self.number(u, 1 / math.log(2))])
    if u.op is Ops.LDEXP:  # in two steps, as 2ⁿ alone may be too large
      half = self.node("Floor", [self.node("Mul", [inputs[1], self.number(u, 0.5)])])
      powers = [self.node("Pow", [self.number(u, 2.0), n]) for n in (half, self.node("Sub", [inputs[1], half]))]
      return self.node("Mul", [self.node("Mul", [inputs[0], powers[0]]), powers[1]])
    if u.op in (Ops.SHL, Ops.SHR) and u.dtype.kind == "uint":
      return self.node("BitShift", inputs, direction="LEFT" if u.op is Ops.SHL else "RIGHT")
    self.missing.add(f"{u.op.name} of {u.dtype.name}")
    return ""
