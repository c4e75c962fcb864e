"""Weights of a model: arrays in the file, and external data beside it, mapped and copied to the device when used."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto, numpy_helper

from tiny_onnx.errors import ModelError
from tiny_onnx.limits import Limits
from tiny_onnx.values import ARRAY_DTYPES, DTYPES, Host, Value, elem_name
from tiny_tensor import Tensor, dtypes

MOST_AXES = 64
"""Axes of a NumPy array."""

MOST_ELEMENTS_OF_A_CONSTANT = 1024
"""Elements of a constant that is known on the host."""


class Weights:
  """The tensors of a model file, by name. `folder` is where its external data lie; None for a model given as bytes."""

  def __init__(self, folder: Path | None, limits: Limits) -> None:
    self.folder, self.limits = folder, limits

  def value(self, proto: TensorProto) -> Value:
    """An initialiser, or the tensor of an attribute. Small ones are known on the host, as shapes and scales are."""
    if proto.data_location == TensorProto.EXTERNAL:
      return self._external(proto)
    host = host_of_proto(proto, self.limits)
    large = host.array.size > MOST_ELEMENTS_OF_A_CONSTANT and proto.data_type != TensorProto.STRING
    return host.device_value if large else host

  def _external(self, proto: TensorProto) -> Value:
    """A tensor whose bytes lie in another file, mapped. Raises ModelError for files outside of the model's folder."""
    where = {entry.key: entry.value for entry in proto.external_data}
    name = os.fsdecode(where.get("location", ""))  # what is not UTF-8 is read as bytes
    if self.folder is None:
      raise ModelError(f"{proto.name!r} lies in the file {name!r}: give load() the path of the model, not its bytes")
    path = inside(self.folder, name)
    size = byte_size(proto, self.limits)
    try:
      offset, length = int(where.get("offset", 0)), int(where.get("length", size))
    except ValueError as error:
      raise ModelError(f"{proto.name!r}: offset and length of external data are numbers, found {where}") from error
    if not (0 <= offset and length == size and offset + size <= path.stat().st_size):
      raise ModelError(
        f"{proto.name!r} needs {size} bytes at {offset} of {name!r}, of {path.stat().st_size} bytes; length is {length}"
      )
    if proto.data_type not in DTYPES or size <= MOST_ELEMENTS_OF_A_CONSTANT:
      with path.open("rb") as file:
        file.seek(offset)
        filled = TensorProto()
        filled.CopyFrom(proto)
        filled.data_location = TensorProto.DEFAULT
        filled.raw_data = file.read(size)
      return host_of_proto(filled, self.limits)
    dtype = DTYPES[proto.data_type]
    raw = Tensor(path)[offset : offset + size]
    typed = raw.to(None).bitcast(dtypes.uint8 if dtype is dtypes.bool else dtype).reshape(tuple(proto.dims))
    return typed != 0 if dtype is dtypes.bool else typed


def inside(folder: Path, name: str) -> Path:
  """The file of this name in a folder. Raises ModelError for one that is elsewhere, by `..`, links or a full path."""
  if not name or "\0" in name or Path(name).is_absolute() or ".." in name.replace("\\", "/").split("/"):
    raise ModelError(f"external data {name!r}: a relative path inside of the model's folder was expected")
  root = folder.resolve()
  try:
    path = (folder / name).resolve()
    found = path.is_file()
  except OSError as error:  # a name that is too long, links that go in circles
    raise ModelError(f"external data {name!r}: {error.strerror}") from error
  if not path.is_relative_to(root):
    raise ModelError(f"external data {name!r} lies outside of the model's folder")
  if not found:
    raise ModelError(f"external data {name!r}: there is no such file in {root}")
  return path


def byte_size(proto: TensorProto, limits: Limits) -> int:
  """The bytes that a tensor's shape and element type ask for."""
  if proto.data_type not in ARRAY_DTYPES:
    raise ModelError(
      f"tensor {proto.name!r} has element type {elem_name(proto.data_type)}, which tiny-onnx does not have"
    )
  if any(d < 0 for d in proto.dims):
    raise ModelError(f"tensor {proto.name!r} has a negative size: {list(proto.dims)}")
  kind = elem_name(proto.data_type)
  bits = 4 if kind in ("INT4", "UINT4", "FLOAT4E2M1") else 2 if kind in ("INT2", "UINT2") else 0
  if len(proto.dims) > MOST_AXES:
    raise ModelError(f"tensor {proto.name!r} has {len(proto.dims)} axes, and at most {MOST_AXES} are possible")
  if math.prod(max(d, 1) for d in proto.dims) > limits.tensor_bytes:  # of which some may be beside a size of 0
    raise ModelError(
      f"tensor {proto.name!r} of shape {list(proto.dims)} passes {limits.tensor_bytes} bytes (Limits.tensor_bytes)"
    )
  count = math.prod(proto.dims)
  size = (count * bits + 7) // 8 if bits else count * ARRAY_DTYPES[proto.data_type].itemsize
  if size > limits.tensor_bytes:
    raise ModelError(f"tensor {proto.name!r} has {size} bytes, more than {limits.tensor_bytes} (Limits.tensor_bytes)")
  return size


def host_of_proto(proto: TensorProto, limits: Limits) -> Host:
  """The array of a tensor in the file. Raises ModelError where its data do not fill its shape."""
  size = byte_size(proto, limits)
  if proto.data_location == TensorProto.EXTERNAL:
    raise ModelError(f"tensor {proto.name!r} lies in another file, which only initialisers of the model may")
  if proto.data_type == TensorProto.STRING:
    if len(proto.string_data) != math.prod(proto.dims):
      raise ModelError(f"tensor {proto.name!r}: {len(proto.string_data)} strings for shape {list(proto.dims)}")
    words = [s.decode("utf-8", "replace") for s in proto.string_data]
    strings = np.empty(len(words), object)
    strings[:] = words
    return Host(strings.reshape(tuple(proto.dims)))
  if proto.HasField("raw_data") and len(proto.raw_data) != size:
    raise ModelError(
      f"tensor {proto.name!r} has {len(proto.raw_data)} bytes, and its shape {list(proto.dims)} needs {size}"
    )
  try:
    array: np.ndarray[Any, Any] = numpy_helper.to_array(proto)
  except (ValueError, TypeError, OverflowError, AttributeError) as error:
    raise ModelError(f"tensor {proto.name!r}: its data do not fill its shape {list(proto.dims)}: {error}") from error
  return Host(array)


def dense_of(proto: SparseTensorProto, limits: Limits) -> np.ndarray[Any, Any]:
  """A sparse tensor (values, and indices of one or all axes) as an array."""
  shape = tuple(proto.dims)
  values, indices = host_of_proto(proto.values, limits).array, host_of_proto(proto.indices, limits).array
  whole = TensorProto(name=proto.values.name, data_type=proto.values.data_type, dims=shape)
  byte_size(whole, limits)
  made = np.zeros(math.prod(shape), values.dtype)
  flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
  if flat.size and not (0 <= flat.min() and flat.max() < made.size):
    raise ModelError(f"sparse tensor {proto.values.name!r} has indices outside of its shape {shape}")
  made[flat] = values
  return made.reshape(shape)
