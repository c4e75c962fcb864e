"""Sequences and optionals: lists and None."""

from __future__ import annotations

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.control import stacked
from tiny_onnx.ops.shape import axis_in, is_text, moved
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Host, Value, host_of, ints_of, shape_of, tensor_of


def listed(value: Value) -> list[Value]:
  if not isinstance(value, list):
    raise ModelError("a sequence was expected, found a tensor")
  return value


def place_in(sequence: list[Value], position: Value, more: int = 0) -> int:
  place = ints_of(position)[0]
  if not -len(sequence) - more <= place < len(sequence) + more:
    raise ModelError(f"position {place} is out of range for a sequence of {len(sequence)}")
  return place + len(sequence) if place < 0 else int(place)


@op("SequenceConstruct", 11, raw=True)
def sequence_construct(call: Call, *values: Value) -> tuple[Value]:
  return (list(values),)


@op("SequenceEmpty", 11, raw=True)
def sequence_empty(call: Call) -> tuple[Value]:
  return ([],)


@op("SequenceAt", 11, raw=True, needs=(1,))
def sequence_at(call: Call, sequence: Value, position: Value) -> Value:
  return listed(sequence)[place_in(listed(sequence), position)]


@op("SequenceInsert", 11, raw=True, needs=(2,))
def sequence_insert(call: Call, sequence: Value, value: Value, position: Value = None) -> tuple[Value]:
  made = [*listed(sequence)]
  made.insert(len(made) if position is None else place_in(made, position, 1), value)
  return (made,)


@op("SequenceErase", 11, raw=True, needs=(1,))
def sequence_erase(call: Call, sequence: Value, position: Value = None) -> tuple[Value]:
  made = [*listed(sequence)]
  del made[-1 if position is None else place_in(made, position)]
  return (made,)


@op("SequenceLength", 11, raw=True)
def sequence_length(call: Call, sequence: Value) -> Value:
  return Host(np.array(len(listed(sequence)), np.int64))


@op("ConcatFromSequence", 11, raw=True)
def concat_from_sequence(call: Call, sequence: Value) -> Value:
  parts = listed(sequence)
  if not parts:
    raise ModelError("a sequence of none has nothing to concatenate")
  if call["new_axis"]:
    return stacked(parts, axis_in(call["axis"], len(shape_of(parts[0])) + 1))
  axis = axis_in(call["axis"], len(shape_of(parts[0])))
  if all(isinstance(p, Host) for p in parts):
    return Host(np.concatenate([host_of(p) for p in parts], axis))
  tensors = [tensor_of(p) for p in parts]
  return tensors[0].cat(*tensors[1:], dim=axis) if len(tensors) > 1 else tensors[0]


@op("SplitToSequence", 11, raw=True, needs=(1,))
def split_to_sequence(call: Call, x: Value, split: Value = None) -> tuple[Value]:
  axis = axis_in(call["axis"], len(shape_of(x)))
  length, keep = shape_of(x)[axis], bool(call["keepdims"])
  if split is None:
    sizes = [1] * length
  else:
    keep = True
    given = ints_of(split)
    sizes = given if shape_of(split) else [min(given[0], length - i) for i in range(0, length, max(given[0], 1))]
  ends = np.cumsum([0, *sizes])
  if ends[-1] != length:
    raise ModelError(f"parts {sizes} do not fill an axis of size {length}")
  cuts = [(slice(None),) * axis + (slice(int(a), int(b)) if keep else int(a),) for a, b in zip(ends, ends[1:])]
  if is_text(x):
    return ([Host(np.asarray(host_of(x)[cut])) for cut in cuts],)
  return ([moved(x, lambda t, cut=cut: t[cut]) for cut in cuts],)


@op("Optional", 15, raw=True)
def optional(call: Call, value: Value = None) -> Value:
  return value


@op("OptionalHasElement", 15, raw=True)
def optional_has_element(call: Call, value: Value = None) -> Value:
  return Host(np.array(value is not None))


@op("OptionalGetElement", 15, raw=True)
def optional_get_element(call: Call, value: Value) -> tuple[Value]:
  if value is None:
    raise ModelError("the optional has no element")
  return (value,)
