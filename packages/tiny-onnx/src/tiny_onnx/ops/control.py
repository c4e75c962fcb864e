"""If, Loop and Scan: graphs within graphs, computed as often as values say."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.shape import axis_in, moved
from tiny_onnx.registry import Call, op
from tiny_onnx.values import ARRAY_DTYPES, Host, Narrow, Value, host_of, shape_of, tensor_of
from tiny_tensor import Tensor

STEPS_BEFORE_COMPUTING = 8
"""Iterations after which carried values are computed: graphs of many iterations in one become slow to schedule."""


def truth(value: Value) -> bool:
  return bool(host_of(value).reshape(-1)[0])


def body_of(call: Call, name: str) -> Any:
  graph = call.graphs.get(name)
  if graph is None:
    raise ModelError(f"the attribute {name!r} is a graph")
  return graph


def compute(call: Call, name: str, inputs: list[Value]) -> list[Value]:
  assert call.run is not None
  found: list[Value] = body_of(call, name).compute(inputs, call.run, call.scope)
  return found


@op("If", raw=True, needs=(0,))
def if_(call: Call, condition: Value) -> tuple[Value, ...]:
  return tuple(compute(call, "then_branch" if truth(condition) else "else_branch", []))


def computed(values: list[Value]) -> None:
  """Computes carried values, so that the next iteration starts from buffers."""
  tensors = [v.codes if isinstance(v, Narrow) else v for v in values if isinstance(v, (Tensor, Narrow))]
  for tensor in tensors:
    tensor.realize()


def stacked(parts: list[Value], axis: int = 0) -> Value:
  """Values, one at least, as one with a new axis."""
  if all(isinstance(p, Host) for p in parts):
    return Host(np.stack([host_of(p) for p in parts], axis))
  tensors = [tensor_of(p) for p in parts]
  return tensors[0].stack(*tensors[1:], dim=axis) if len(tensors) > 1 else tensors[0].unsqueeze(axis)


def scanned(parts: list[Value], axis: int, body: Any, place: int) -> Value:
  """An output of the body, of all iterations. Of none it has no elements, and the type and the sizes that the body
  declares, 0 for a size that it leaves open."""
  if parts:
    return stacked(parts, axis_in(axis, len(shape_of(parts[0])) + 1))
  declared = body.declared[place].tensor_type
  if declared.elem_type not in ARRAY_DTYPES:
    raise ModelError(f"no iteration computed {body.outputs[place]!r}, and the body does not declare its type")
  sizes = [max(d.dim_value, 0) for d in declared.shape.dim]
  sizes.insert(axis_in(axis, len(sizes) + 1), 0)
  return Host(np.zeros(sizes, ARRAY_DTYPES[declared.elem_type]))


@op("Loop", raw=True, needs=(0, 1))
def loop(call: Call, count: Value = None, condition: Value = None, *carried: Value) -> tuple[Value, ...]:
  """`count` and `condition` end the loop; what the body gives besides the carried values is stacked."""
  body = body_of(call, "body")
  most = None if count is None else int(host_of(count).reshape(-1)[0])
  going = condition is None or truth(condition)
  state, made = list(carried), [[] for _ in range(len(body.outputs) - 1 - len(carried))]  # type: list[Value], list[list[Value]]
  step = 0
  while going and (most is None or step < most):
    assert call.run is not None
    call.run.step()
    found = compute(call, "body", [Host(np.array(step, np.int64)), Host(np.array(going)), *state])
    going, state, scans = truth(found[0]), found[1 : 1 + len(state)], found[1 + len(state) :]
    for whole, part in zip(made, scans):
      whole.append(part)
    step += 1
    if step % STEPS_BEFORE_COMPUTING == 0:
      computed(state)
  return *state, *[scanned(parts, 0, body, i + 1 + len(carried)) for i, parts in enumerate(made)]


def slice_at(x: Value, axis: int, place: int) -> Value:
  cut = (slice(None),) * axis + (place,)
  if isinstance(x, Host):
    return Host(np.asarray(x.array[cut]))
  return moved(x, lambda t: t[cut])


def flipped(x: Value, axis: int) -> Value:
  return Host(np.flip(x.array, axis)) if isinstance(x, Host) else moved(x, lambda t: t.flip(axis))


def scan_count(call: Call, inputs: tuple[Value, ...]) -> int:
  """How many of the inputs are scanned."""
  count = int(call["num_scan_inputs"])
  if not 1 <= count <= len(inputs):
    raise ModelError(f"num_scan_inputs is {count}, and there are {len(inputs)} inputs")
  return count


@op("Scan", 9, raw=True)
def scan(call: Call, *inputs: Value) -> tuple[Value, ...]:
  """The body over slices of the last inputs, with the first ones carried."""
  body, count = body_of(call, "body"), scan_count(call, inputs)
  states = len(inputs) - count
  state, rows = list(inputs[:states]), list(inputs[states:])
  outputs = len(body.outputs) - states
  axes = [axis_in(a, len(shape_of(r))) for a, r in zip(call.get("scan_input_axes", [0] * count), rows)]
  backwards = call.get("scan_input_directions", [0] * count)
  rows = [flipped(r, a) if back else r for r, a, back in zip(rows, axes, backwards)]
  made: list[list[Value]] = [[] for _ in range(outputs)]
  lengths = {shape_of(r)[a] for r, a in zip(rows, axes)}
  if len(lengths) != 1:
    raise ModelError(f"inputs that are scanned have one length, found {sorted(lengths)}")
  for step in range(lengths.pop()):
    found = compute(call, "body", [*state, *[slice_at(r, a, step) for r, a in zip(rows, axes)]])
    state = found[:states]
    for whole, part in zip(made, found[states:]):
      whole.append(part)
    if (step + 1) % STEPS_BEFORE_COMPUTING == 0:
      computed(state)
  out_axes = call.get("scan_output_axes", [0] * outputs)
  joined = [scanned(parts, a, body, states + i) for i, (parts, a) in enumerate(zip(made, out_axes))]
  turned = call.get("scan_output_directions", [0] * outputs)
  return *state, *[
    flipped(x, axis_in(a, len(shape_of(x)))) if back else x for x, a, back in zip(joined, out_axes, turned)
  ]


@op("Scan", 8, raw=True)
def scan_of_batches(call: Call, lengths: Value, *inputs: Value) -> tuple[Value, ...]:
  """As it was in version 8: every input has a batch axis in front, and each of the batch may end at its own length."""
  body, count = body_of(call, "body"), scan_count(call, inputs)
  states = len(inputs) - count
  batch = shape_of(inputs[0])[0]
  whole = shape_of(inputs[states])[1]
  ends = [whole] * batch if lengths is None else [int(n) for n in host_of(lengths)]
  directions = call.get("directions", [0] * count)
  results: list[list[Value]] = []
  for b in range(batch):
    state = [slice_at(x, 0, b) for x in inputs[:states]]
    rows = [slice_at(x, 0, b) for x in inputs[states:]]
    made: list[list[Value]] = [[] for _ in range(len(body.outputs) - states)]
    for step in range(ends[b]):
      places = [ends[b] - 1 - step if back else step for back in directions]
      found = compute(call, "body", [*state, *[slice_at(r, 0, p) for r, p in zip(rows, places)]])
      state = found[:states]
      for kept, part in zip(made, found[states:]):
        kept.append(part)
    scans = [scanned(parts, 0, body, states + i) for i, parts in enumerate(made)]
    if ends[b] < whole:
      scans = [tensor_of(s).pad(((0, whole - ends[b]), *[(0, 0)] * (len(shape_of(s)) - 1))) for s in scans]
    results.append([*state, *scans])
  return tuple(scanned([r[i] for r in results], 0, body, i) for i in range(len(body.outputs)))
