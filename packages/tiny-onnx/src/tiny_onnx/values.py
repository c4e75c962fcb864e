"""What flows along the edges of a model: tensors, arrays on the host, narrow numbers, sequences, nothing.

* `Tensor`: everything that is computed on the device.
* `Host`: a NumPy array that is known before anything runs (shapes, constants) or that no device holds (strings). Arrays
  of shapes may have elements that are symbolic, as an array of objects.
* `Narrow`: numbers of fewer bits than any dtype of the device has, or of a format it lacks: int4, float4, float8, ….
* a list: a sequence. `None`: an optional without a value, or an input that is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tiny_onnx.errors import ModelError
from tiny_tensor import Tensor, dtypes
from tiny_uop import DType, UOp

T = TensorProto

MOST_OF_AN_ARRAY = 1 << 24
"""Elements of arrays that operators make on the host: places to read from, weights of a resize."""

V = TypeVar("V")


def elem_name(elem: int) -> str:
  """The name of an element type: `FLOAT`, `INT4`, …"""
  return TensorProto.DataType.Name(elem) if elem in TensorProto.DataType.values() else f"type {elem}"


class ByElem(dict[int, V]):
  """A table by element type. Raises ModelError for an element type that it does not have."""

  def __missing__(self, elem: int) -> V:
    raise ModelError(f"element type {elem_name(elem)}: expected one of {', '.join(map(elem_name, self))}")


DTYPES: dict[int, DType] = ByElem({
  T.FLOAT: dtypes.float32, T.DOUBLE: dtypes.float64, T.FLOAT16: dtypes.float16, T.BFLOAT16: dtypes.bfloat16,
  T.INT8: dtypes.int8, T.INT16: dtypes.int16, T.INT32: dtypes.int32, T.INT64: dtypes.int64, T.UINT8: dtypes.uint8,
  T.UINT16: dtypes.uint16, T.UINT32: dtypes.uint32, T.UINT64: dtypes.uint64, T.BOOL: dtypes.bool,
})  # fmt: skip
"""Element types of ONNX that tensors have."""

ELEM_TYPES = {dtype: elem for elem, dtype in DTYPES.items()}

ARRAY_DTYPES: dict[int, np.dtype[Any]] = ByElem({
  **{elem: np.dtype(ml_dtypes.bfloat16 if d is dtypes.bfloat16 else d.name) for elem, d in DTYPES.items()},
  T.STRING: np.dtype(object),
  T.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn), T.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
  T.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2), T.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
  T.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu), T.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
  T.INT4: np.dtype(ml_dtypes.int4), T.UINT4: np.dtype(ml_dtypes.uint4),
  T.INT2: np.dtype(ml_dtypes.int2), T.UINT2: np.dtype(ml_dtypes.uint2),
})  # fmt: skip
"""Element types of ONNX → NumPy's."""

NARROW_INTS: dict[int, tuple[int, int, DType]] = {
  T.INT4: (-8, 7, dtypes.int8), T.UINT4: (0, 15, dtypes.uint8),
  T.INT2: (-2, 1, dtypes.int8), T.UINT2: (0, 3, dtypes.uint8),
}  # fmt: skip
"""Integers of less than a byte → (least, greatest, the dtype that holds one each)."""

NARROW_FLOATS: dict[int, int] = {
  T.FLOAT8E4M3FN: 8, T.FLOAT8E4M3FNUZ: 8, T.FLOAT8E5M2: 8, T.FLOAT8E5M2FNUZ: 8, T.FLOAT8E8M0: 8, T.FLOAT4E2M1: 4,
}  # fmt: skip
"""Floats of a byte or less → their bits."""

NATIVE_FLOAT8 = {dtypes.fp8e4m3: T.FLOAT8E4M3FN, dtypes.fp8e5m2: T.FLOAT8E5M2}


def elem_of_array(array: np.ndarray[Any, Any]) -> int:
  """The element type of a NumPy array. Raises ModelError for one that ONNX does not have."""
  if array.dtype.kind in "OUST":
    return int(T.STRING)
  found = {d: elem for elem, d in ARRAY_DTYPES.items()}.get(array.dtype.newbyteorder("="))
  if found is None:
    raise ModelError(f"ONNX has no element type for NumPy's {array.dtype}: convert the array first")
  return found


class Host:
  """An array on the host, with the tensor made of it when one is needed."""

  __slots__ = ("_tensor", "array")

  def __init__(self, array: np.ndarray[Any, Any]) -> None:
    self.array = array
    self._tensor: Tensor | Narrow | None = None

  @property
  def device_value(self) -> Tensor | Narrow:
    """The same value on the device, made once."""
    if self._tensor is None:
      self._tensor = to_device(self.array)
    return self._tensor

  @property
  def elem(self) -> int:
    return int(T.INT64) if self.symbolic else elem_of_array(self.array)

  @property
  def symbolic(self) -> bool:
    """Whether elements are symbolic: sizes of axes that change from call to call."""
    return self.array.dtype.kind == "O" and any(isinstance(x, UOp) for x in self.array.flat)

  def __repr__(self) -> str:
    return f"Host({self.array!r})"


class Narrow:
  """Numbers of a format that no dtype of the device has, one in each element of `codes`.

  Integers are held as they are, in int8 or uint8; floats by their bits, in uint8. `numpy()` gives an array of the
  package `ml_dtypes`.
  """

  __slots__ = ("codes", "elem")

  def __init__(self, codes: Tensor, elem: int) -> None:
    self.codes, self.elem = codes, elem

  @property
  def shape(self) -> tuple[Any, ...]:
    """The sizes of the axes."""
    return self.codes.shape

  def numpy(self) -> np.ndarray[Any, Any]:
    """A copy of the values, in a dtype of `ml_dtypes`."""
    codes = self.codes.numpy()
    target = ARRAY_DTYPES[self.elem]
    return codes.astype(target) if self.elem in NARROW_INTS else codes.view(target)

  def realize(self) -> Narrow:
    """Computes the values, and returns itself."""
    self.codes.realize()
    return self

  def __repr__(self) -> str:
    return f"Narrow({elem_name(self.elem)}, shape {self.shape})"


Value: TypeAlias = Tensor | Host | Narrow | list[Any] | None


def to_device(array: np.ndarray[Any, Any]) -> Tensor | Narrow:
  """A NumPy array on the device. Raises ModelError for strings, which are on no device."""
  if array.dtype.kind == "O" and all(isinstance(x, (int, UOp)) for x in array.flat):
    return of_sizes(array)
  elem = elem_of_array(array)
  if elem == T.STRING:
    raise ModelError("strings are not on the device: an operator that computes with numbers was given some")
  if elem in NARROW_FLOATS:
    return Narrow(Tensor(np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)), elem)
  if elem in NARROW_INTS:
    return Narrow(Tensor(array.astype(NARROW_INTS[elem][2].name)), elem)
  if elem == T.BFLOAT16:
    return Tensor(np.ascontiguousarray(array).view(np.uint16).reshape(array.shape)).bitcast(dtypes.bfloat16)
  return Tensor(np.ascontiguousarray(array).reshape(array.shape))


def of_sizes(array: np.ndarray[Any, Any]) -> Tensor:
  """An int64 tensor of sizes, some of which are symbolic."""
  if array.ndim == 0:
    return Tensor.full((), array.item(), dtype=dtypes.int64)
  flat = [Tensor.full((1,), x, dtype=dtypes.int64) for x in array.flat]
  return (flat[0].cat(*flat[1:]) if len(flat) > 1 else flat[0]).reshape(array.shape)


def of_user(value: Any, elem: int, name: str, read: bool = False) -> Value:
  """What was given for an input, as a value. Raises ModelError where its element type is not the declared one."""
  if value is None or isinstance(value, (Host, Narrow)):
    return value
  if isinstance(value, (list, tuple)) and not elem:
    return [of_user(x, 0, name) for x in value]
  if isinstance(value, dict):
    return Host(boxed(value))
  if isinstance(value, Tensor):
    if value.dtype in NATIVE_FLOAT8:
      return Narrow(value.bitcast(dtypes.uint8), NATIVE_FLOAT8[value.dtype])
    found = ELEM_TYPES[value.dtype]
  else:
    array = np.asarray(value, dtype=object if elem == T.STRING else None)
    if not hasattr(value, "dtype") and elem and elem != T.STRING:
      array = np.asarray(value, ARRAY_DTYPES[elem])  # Python's numbers have no type of their own
    found = elem_of_array(array)
    value = Host(array.astype(object)) if found == T.STRING else Host(np.array(array)) if read else to_device(array)
  if elem and found != elem:
    raise ModelError(
      f"input {name!r} has element type {elem_name(found)}, and the model takes {elem_name(elem)}: cast it"
    )
  checked: Value = Host(host_of(value)) if read and isinstance(value, Tensor) else value
  return checked


def numpy_of(value: Any) -> Any:
  """A value as NumPy has it: an array, a list of these, or None."""
  if value is None or isinstance(value, dict):
    return value
  if isinstance(value, list):
    return [numpy_of(x) for x in value]
  if isinstance(value, Host):
    return tensor_of(value).numpy() if value.symbolic else value.array
  if isinstance(value, Tensor) and value.dtype is dtypes.bfloat16:
    return value.bitcast(dtypes.uint16).numpy().view(ml_dtypes.bfloat16)
  return value.numpy()


def tensor_of(value: Value) -> Tensor:
  """A value as a tensor. Raises ModelError where it is none."""
  if isinstance(value, Host):
    value = value.device_value
  if isinstance(value, Tensor):
    return value
  raise ModelError(f"expected a tensor, found {describe(value)}")


def elem_of(value: Value) -> int:
  """The element type of a value; of a sequence, that of its first element; 0 where there is none."""
  if isinstance(value, Tensor):
    return ELEM_TYPES[value.dtype]
  if isinstance(value, (Host, Narrow)):
    return value.elem
  return elem_of(value[0]) if value else 0


def shape_of(value: Value) -> tuple[Any, ...]:
  """The shape of a tensor, an array or narrow numbers."""
  if isinstance(value, Host):
    return value.array.shape
  if isinstance(value, (Tensor, Narrow)):
    return tuple(value.shape)
  raise ModelError(f"expected a tensor, found {describe(value)}")


def tensors_in(value: Value) -> list[Tensor]:
  """The tensors that a value is made of: those of a sequence, the codes of narrow numbers."""
  if isinstance(value, list):
    return [t for x in value for t in tensors_in(x)]
  return [value.codes if isinstance(value, Narrow) else value] if isinstance(value, (Narrow, Tensor)) else []


def size_of(value: Value) -> int:
  """The bytes of a value; a symbolic size counts at its largest."""
  if isinstance(value, Host):
    return int(value.array.nbytes)
  sizes = [[int(s.vmax) if isinstance(s, UOp) else s for s in t.shape] for t in tensors_in(value)]
  return sum(math.prod(s) * t.dtype.itemsize for s, t in zip(sizes, tensors_in(value)))


def describe(value: Value) -> str:
  """A value in words, for errors."""
  if value is None:
    return "nothing"
  if isinstance(value, list):
    return f"a sequence of {len(value)}"
  return f"{elem_name(elem_of(value))} of shape {shape_of(value)}"


def host_of(value: Value) -> np.ndarray[Any, Any]:
  """The array of a value, which is computed if it is a tensor. What asks for it depends on values in every call."""
  if isinstance(value, Host):
    return value.array
  found = numpy_of(value)
  if not isinstance(found, np.ndarray):
    raise ModelError(f"expected a tensor, found {describe(value)}")
  return found


def ints_of(value: Value) -> list[Any]:
  """The integers of a tensor of one axis or none, as Python has them; symbolic ones stay."""
  return [x if isinstance(x, UOp) else int(x) for x in host_of(value).reshape(-1)]


@cache
def narrow_values(elem: int) -> np.ndarray[Any, Any]:
  """The float32 values of all codes of a narrow float."""
  codes = np.arange(1 << NARROW_FLOATS[elem], dtype=np.uint8)
  return codes.view(ARRAY_DTYPES[elem]).astype(np.float32)


def checked_count(count: Any, what: str) -> Any:
  """`count`, of elements of an array on the host. Raises ModelError for more than a model has any use for."""
  if not isinstance(count, UOp) and count > MOST_OF_AN_ARRAY:
    raise ModelError(f"{what}: {count} elements, and at most {MOST_OF_AN_ARRAY} are possible here")
  return count


def checked_rank(value: Value, rank: int, what: str) -> tuple[Any, ...]:
  """The shape of `value`. Raises ModelError for another number of axes."""
  shape = shape_of(value)
  if len(shape) != rank:
    raise ModelError(f"{what}: {rank} axes were expected, found shape {shape}")
  return shape


def boxed(value: Any) -> np.ndarray[Any, Any]:
  """One object, a symbolic size or a dict, as an array without axes: NumPy's functions give it bare."""
  made = np.empty((), object)
  made[()] = value
  return made


def sizes_array(sizes: Sequence[Any]) -> np.ndarray[Any, Any]:
  """Sizes of axes as an array: int64, or objects where one is symbolic."""
  if any(isinstance(s, UOp) for s in sizes):
    array = np.empty(len(sizes), object)
    array[:] = list(sizes)
    return array
  return np.array(list(sizes), np.int64)
