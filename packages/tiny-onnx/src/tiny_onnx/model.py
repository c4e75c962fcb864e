"""Loading a model, and calling it."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TypeProto, ValueInfoProto

from tiny_onnx.analysis import most_at_once, operations_of, read_names, reads_computed_values
from tiny_onnx.errors import ModelError
from tiny_onnx.graph import Compiler, Graph, Node, Run
from tiny_onnx.limits import Limits
from tiny_onnx.values import (
  Host,
  Narrow,
  Value,
  elem_name,
  numpy_of,
  of_user,
  shape_of,
  size_of,
  tensor_of,
  tensors_in,
)
from tiny_onnx.weights import Weights
from tiny_tensor import JitError, Tensor, TinyJit, Variable, capturing
from tiny_uop import UOp

MOST_CAPTURED = 64
"""Captured calls that a model keeps: one for each combination of shapes and read values."""

MOST_READ = 64
"""Elements of a read input that calls are captured for."""


@dataclass(frozen=True)
class Port:
  """An input or an output of a model: its name, element type and shape.

  Sizes are numbers, names of symbolic ones, or None where the model does not say. `kind` is `tensor`, `sequence`,
  `optional` or `map`; `elem` is ONNX's number of the element type, 0 where the model does not say.
  """

  name: str
  kind: str
  elem: int
  shape: tuple[int | str | None, ...] | None

  def __str__(self) -> str:
    sizes = "…" if self.shape is None else ", ".join("?" if s is None else str(s) for s in self.shape)
    kind = "" if self.kind == "tensor" else f"{self.kind} of "
    return f"{self.name}: {kind}{elem_name(self.elem).lower()}[{sizes}]"


def port_of(info: ValueInfoProto) -> Port:
  """What a model declares of an input or output."""
  kind, proto = "tensor", info.type
  while proto.WhichOneof("value") in ("sequence_type", "optional_type"):
    which = proto.WhichOneof("value")
    kind, proto = (
      ("sequence", proto.sequence_type.elem_type)
      if which == "sequence_type"
      else ("optional", proto.optional_type.elem_type)
    )
  if proto.WhichOneof("value") == "map_type":
    return Port(info.name, "map", 0, None)
  tensor: TypeProto.Tensor = proto.tensor_type
  shape: tuple[int | str | None, ...] | None = None
  if tensor.HasField("shape"):
    # exporters have written -1 for a size that is not known
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    shape = tuple(None if isinstance(s, int) and s < 0 else s for s in sizes)
  return Port(info.name, kind, tensor.elem_type, shape)


class _Computation:
  """`computed_from` for some names, as a function. It is in slots: TinyJit compares, in each replay, what a function
  reads by name, and a model's graph stays as it was."""

  __slots__ = ("known", "labels", "model", "names")

  def __init__(self, model: Model, names: tuple[str, ...], labels: tuple[str, ...], known: dict[str, Host]) -> None:
    self.model, self.names, self.labels, self.known = model, names, labels, known

  def __call__(self, *given: Any) -> Any:
    return self.model.computed_from(given, self.names, self.labels, self.known)


class Model:
  """An ONNX model that is called as a function: `load` makes one.

  `model(x=…)`, `model({"x": …})` or `model(x, …)` in the order of `inputs` takes tensors and NumPy arrays, and gives a
  dict of the outputs by name: tensors; lists for sequences; None for optionals without a value; `Narrow` for int4,
  float4, float8 and the like; arrays for strings. Inputs that have an initialiser may be left out.
  """

  def __init__(
    self,
    proto: ModelProto,
    folder: Path | None,
    limits: Limits,
    jit: bool = True,
    sizes: Mapping[str, tuple[int, int]] | None = None,
  ) -> None:
    self.limits = limits
    self.variables: dict[str, UOp] = {name: Variable(name, *bounds) for name, bounds in (sizes or {}).items()}
    """The symbolic sizes that calls are captured for once and for all."""
    self.opsets = {o.domain: o.version for o in proto.opset_import}
    if not self.opsets and proto.ir_version < 3:
      self.opsets = {"": 1}  # before there were others
    compiler = Compiler(self.opsets, proto.functions, Weights(folder, limits), limits)
    self.graph: Graph = compiler.model_graph(proto.graph)
    initialised = self.graph.constants.keys()
    self.inputs: dict[str, Port] = {v.name: port_of(v) for v in proto.graph.input if v.name not in initialised}
    self.optional_inputs: dict[str, Port] = {v.name: port_of(v) for v in proto.graph.input if v.name in initialised}
    self.outputs: dict[str, Port] = {v.name: port_of(v) for v in proto.graph.output}
    self.read_inputs: set[str] = read_names(self.graph) & (self.inputs.keys() | self.optional_inputs.keys())
    """Inputs whose values decide shapes and branches: they are read in each call."""
    self.eager_because: str | None = None if jit else "load() was asked to"
    if jit and reads_computed_values(self.graph):
      self.eager_because = "shapes or branches depend on values that the model computes"
    """Why calls are computed node by node, None where they are captured."""
    self._captured: OrderedDict[Any, TinyJit[..., Any]] = OrderedDict()
    self._fixed, self._folded = True, False

  def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    given = self._named(args, kwargs)
    if (made := self._again(given)) is not None:
      return dict(zip(self.outputs, map(_for_user, made)))
    values = self._values(given)
    if self._fixed and not self._folded and not capturing.current():
      self.graph.fold(Run(self.limits))
      self._folded = True
    made = self._captured_call(values) if self.eager_because is None else None
    if made is None:
      made = self._computed(values)
    return dict(zip(self.outputs, map(_for_user, made)))

  def _computed(self, values: Mapping[str, Value]) -> list[Value]:
    return self.graph.compute(values, Run(self.limits))

  def _again(self, given: Mapping[str, Any]) -> list[Value] | None:
    """The outputs of a call with tensors like those of an earlier one, of which nothing has to be looked at again; None
    for any other."""
    if self.eager_because is not None or self.variables:
      return None
    tensors = []
    for name, value in given.items():
      if type(value) is not Tensor:
        return None
      uop = value.uop
      tensors.append((name, uop.shape, uop.dtype))
    key = (tuple(tensors), ())
    jit = self._captured.get(key)
    return None if jit is None else self._replayed(key, jit, tuple(given.values()))

  def _captured_call(self, values: dict[str, Value]) -> list[Value] | None:
    """The outputs by a captured call for inputs of these shapes and read values; None where there can be none."""
    bound = self._bound(values)
    tensors = {name: self._with_room(name, v, bound) for name, v in values.items() if isinstance(v, Tensor)}
    known = {name: v for name, v in values.items() if isinstance(v, Host)}
    if len(tensors) + len(known) < len(values) or not tensors or not all(_is_short(v.array) for v in known.values()):
      return None
    key = (
      tuple((name, tuple(t.shape), t.dtype) for name, t in tensors.items()),
      tuple((name, v.array.dtype.str, v.array.shape, _bytes(v.array)) for name, v in known.items()),
    )
    jit = self._captured.get(key)
    if jit is None:
      jit = self._captured[key] = TinyJit(_Computation(self, tuple(tensors), tuple(bound), known), prune=True)
      if len(self._captured) > MOST_CAPTURED:
        self._captured.popitem(last=False)
    return self._replayed(key, jit, (*tensors.values(), *bound.values()))

  def computed_from(self, given: Sequence[Any], names: Sequence[str], labels: Sequence[str], known: Any) -> Any:
    """The outputs, or the only one, of tensors by name, sizes by label, and inputs with known values. What TinyJit
    captures: it is quicker with arguments and results that are no containers."""
    sizes = dict(zip(labels, given[len(names) :]))
    cut = {name: self._cut(name, x, sizes) for name, x in zip(names, given)}
    found = self._computed({**known, **cut})
    if any(isinstance(v, Host) and v.array.dtype.kind == "O" and not v.symbolic for v in found):
      raise JitError("an output has strings, which no device holds")
    made = [tensor_of(v) if isinstance(v, Host) else v for v in found]
    return made[0] if len(made) == 1 else made

  def _replayed(self, key: Any, jit: TinyJit[..., Any], given: tuple[Any, ...]) -> list[Value] | None:
    self._captured.move_to_end(key)
    try:
      made = jit(*given)
      return [made] if len(self.outputs) == 1 else made
    except JitError as error:
      self.eager_because = str(error)
      return None

  def _bound(self, values: Mapping[str, Value]) -> dict[str, UOp]:
    """The variables with the sizes that the inputs have. Raises ModelError for sizes out of bounds, or that differ."""
    found: dict[str, int] = {}
    for name, value in values.items():
      for label, size in self._labelled(name, value):
        if found.setdefault(label, size) != size:
          raise ModelError(f"size {label!r} is {found[label]} and {size} in one call")
        low, high = int(self.variables[label].vmin), int(self.variables[label].vmax)
        if not low <= size <= high:
          raise ModelError(f"size {label!r} is {size}, and load() was told that it is from {low} to {high}")
    return {label: self.variables[label].bind(size) for label, size in found.items()}

  def _labelled(self, name: str, value: Value) -> list[tuple[str, int]]:
    shape = (self.inputs | self.optional_inputs)[name].shape or ()
    if value is None or isinstance(value, list):
      return []
    return [(s, n) for s, n in zip(shape, shape_of(value)) if isinstance(s, str) and s in self.variables]

  def _with_room(self, name: str, value: Tensor, bound: Mapping[str, UOp]) -> Tensor:
    """An input with room for the largest sizes, so that all calls have one shape."""
    shape = (self.inputs | self.optional_inputs)[name].shape
    if shape is None:
      return value
    whole = [
      int(self.variables[s].vmax) if isinstance(s, str) and s in bound else n for s, n in zip(shape, value.shape)
    ]
    if whole == list(value.shape):
      return value
    array = numpy_of(value)
    filled = np.zeros(whole, array.dtype)
    filled[tuple(slice(0, n) for n in array.shape)] = array
    return tensor_of(Host(filled))

  def _cut(self, name: str, x: Tensor, bound: Mapping[str, UOp]) -> Tensor:
    shape = (self.inputs | self.optional_inputs)[name].shape or ()
    cut = tuple(slice(0, bound[s]) if isinstance(s, str) and s in bound else slice(None) for s in shape)
    return x[cut] if any(c.stop is not None for c in cut) else x

  def numpy(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The outputs as NumPy arrays; bfloat16 and narrow numbers in dtypes of `ml_dtypes`."""
    return {
      name: value if isinstance(value, np.ndarray) else numpy_of(value) for name, value in self(*args, **kwargs).items()
    }

  def planned(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """What a call with such inputs takes, without computing it: (arithmetic operations, bytes of values that nodes give
    and that are needed at the same time, at most). A model that looks at values that it computes computes these.
    """
    nbytes: dict[str, int] = {}

    def watch(node: Node, outputs: Sequence[Value]) -> None:
      if node.call.op_type != "Constant":
        nbytes.update((n, size_of(v)) for n, v in zip(node.call.outputs, outputs) if not isinstance(v, Host))

    made = self.graph.compute(self._values(self._named(args, kwargs)), Run(self.limits, watch=watch))
    tensors = [t for value in made for t in tensors_in(value)]
    operations = operations_of(tensors[0].graph(*tensors[1:])) if tensors else 0
    return operations, most_at_once(self.graph, nbytes)

  def state_dict(self) -> dict[str, Tensor]:
    """The floating-point weights by name. What is assigned to them counts in calls from then on, which are computed
    node by node: so gradients reach them.
    """
    constants = self.graph.constants
    if self._fixed:
      read = read_names(self.graph)
      self._fixed = False
      self.graph.folded.clear()
      self.eager_because = self.eager_because or "state_dict() has given the weights away"
      for name, value in constants.items():
        if isinstance(value, Host) and value.array.dtype.kind == "f" and value.array.ndim and name not in read:
          constants[name] = value.device_value
    return {n: v for n, v in constants.items() if isinstance(v, Tensor) and v.is_floating_point()}

  def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name. Raises ModelError where there are too many."""
    given: dict[str, Any] = {}
    if len(args) == 1 and type(args[0]) is not Tensor and isinstance(args[0], Mapping):
      given.update(args[0])
    elif len(args) > len(self.inputs):
      raise ModelError(f"the model takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), and got {len(args)}")
    else:
      given.update(zip(self.inputs, args))
    given.update(kwargs)
    return given

  def _values(self, given: Mapping[str, Any]) -> dict[str, Value]:
    known = self.inputs | self.optional_inputs
    unknown, lacking = given.keys() - known.keys(), self.inputs.keys() - given.keys()
    if unknown or lacking:
      raise ModelError(
        f"the model takes {', '.join(map(str, self.inputs.values()))}"
        + (f"; not given: {', '.join(sorted(lacking))}" if lacking else "")
        + (f"; unknown: {', '.join(sorted(unknown))}" if unknown else "")
      )
    return {name: self._checked(known[name], value) for name, value in given.items()}

  def _checked(self, port: Port, given: Any) -> Value:
    value = of_user(given, port.elem if port.kind == "tensor" else 0, port.name, port.name in self.read_inputs)
    if port.kind == "tensor" and port.shape is not None and isinstance(value, (Tensor, Narrow, Host)):
      shape = value.array.shape if isinstance(value, Host) else value.shape
      wrong = len(shape) != len(port.shape) or any(
        isinstance(p, int) and isinstance(s, int) and p != s for p, s in zip(port.shape, shape)
      )
      if wrong:
        raise ModelError(f"input {port}: got shape {tuple(shape)}")
    return value


def _is_short(array: np.ndarray[Any, Any]) -> bool:
  """Whether calls are captured for a read input's values: few numbers or strings, no dict."""
  return array.size <= MOST_READ and not (array.ndim == 0 and isinstance(array.item(), dict))


def _bytes(array: np.ndarray[Any, Any]) -> Any:
  return tuple(array.reshape(-1)) if array.dtype.kind == "O" else array.tobytes()


def _for_user(value: Value) -> Any:
  if isinstance(value, list):
    return [_for_user(x) for x in value]
  if isinstance(value, Host):
    strings = value.array.dtype.kind == "O" and not value.symbolic
    return value.array if strings else value.device_value
  return value


def load(
  source: str | os.PathLike[str] | bytes | ModelProto,
  *,
  limits: Limits | None = None,
  check: bool = True,
  jit: bool = True,
  sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Model:
  """A model from a file, from bytes, or from a ModelProto.

  External data are read from the file's folder and below, and only there. `check=False` leaves out `onnx.checker`.
  Calls are captured by `TinyJit`, once for each combination of shapes and values of `read_inputs`, unless `jit`
  is False or the model looks at values that it computes. `sizes` has the bounds of symbolic sizes by name, as in
  `{"batch": (1, 32)}`: calls are captured once for all of them.
  Raises ModelError for what is no valid model or passes `limits`; UnsupportedOps, one of these, lists all operators
  that have no implementation; FileNotFoundError where there is no such file.
  """
  bounds = limits or Limits()
  folder = None
  if isinstance(source, ModelProto):
    proto = source
  else:
    if isinstance(source, bytes):
      text = source
    else:
      path = Path(source)
      if path.stat().st_size > bounds.file_bytes:
        raise ModelError(f"{path} has {path.stat().st_size} bytes, more than {bounds.file_bytes} (Limits.file_bytes)")
      text, folder = path.read_bytes(), path.resolve().parent
    if len(text) > bounds.file_bytes:
      raise ModelError(f"the model has {len(text)} bytes, more than {bounds.file_bytes} (Limits.file_bytes)")
    proto = ModelProto()
    try:
      proto.ParseFromString(text)
    except Exception as error:  # protobuf has no common class of its errors
      raise ModelError(f"this is no ONNX model: {error}") from error
  if not proto.graph.node and not proto.graph.output:
    raise ModelError("this is no ONNX model: it has no graph")
  if check:
    try:
      onnx.checker.check_model(_without_external(proto) if folder is not None else proto)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
      raise ModelError(f"onnx.checker: {error}") from error
  return Model(proto, folder, bounds, jit, sizes)


def _without_external(proto: ModelProto) -> ModelProto:
  """What the checker looks at: it would look for external data in the working directory."""
  if not any(t.data_location == onnx.TensorProto.EXTERNAL for t in proto.graph.initializer):
    return proto
  made = ModelProto()
  made.CopyFrom(proto)
  for tensor in made.graph.initializer:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
      made.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
  kept = [t for t in made.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
  copied = [onnx.TensorProto.FromString(t.SerializeToString()) for t in kept]
  del made.graph.initializer[:]
  made.graph.initializer.extend(copied)
  return made


__all__ = ["Model", "Port", "load", "tensor_of"]
