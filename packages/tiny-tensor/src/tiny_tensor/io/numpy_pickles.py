"""NumPy's arrays and scalars in pickles: what `PickleReader` makes of the names that they ask for.

Arrays become Tensors, scalars Python's numbers. NumPy itself is not needed, and nothing of it is run.
"""

import struct
from typing import Any

from tiny_tensor.host import FORMATS
from tiny_tensor.io.files import are_sizes, byteswapped, check_shape, from_bytes, short
from tiny_tensor.io.pickles import Stateful
from tiny_tensor.tensor import Tensor
from tiny_uop import DType

_KINDS = {"bool": "b", "int": "i", "uint": "u", "float": "f"}
NUMPY_DTYPES: dict[str, DType] = {f"{_KINDS[d.kind]}{d.itemsize}": d for d in FORMATS}
"""The dtypes that NumPy has, by its names for them: `f4` is float32."""


class NumpyType(Stateful):
  """A `numpy.dtype`: kind and size, and the order of bytes, which comes as its state."""

  def __init__(self, name: Any, *_: Any) -> None:
    if not isinstance(name, str) or name not in NUMPY_DTYPES:
      raise ValueError(f"a NumPy dtype {short(name)}: expected one of {', '.join(NUMPY_DTYPES)}")
    self.name, self.order = name, "<"

  @property
  def dtype(self) -> DType:
    """Ours."""
    return NUMPY_DTYPES[self.name]

  def set_state(self, state: Any) -> None:
    """(version, order, …)."""
    if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
      raise ValueError("the state of a NumPy dtype is (version, order of bytes, …)")
    self.order = ">" if state[1] == ">" else "<"

  def tensor(self, raw: bytes, shape: tuple[int, ...]) -> Tensor:
    """The elements of an array, in order."""
    return from_bytes(byteswapped(raw, self.dtype.itemsize) if self.order == ">" else raw, self.dtype, shape)


def _type(value: Any) -> NumpyType:
  if not isinstance(value, NumpyType):
    raise ValueError(f"a {type(value).__name__} stands in the place of a NumPy dtype")
  return value


def _raw(data: Any, count: int, kind: NumpyType, what: str) -> bytes:
  """The bytes of elements, which Python 2 wrote as text."""
  raw = data.encode("latin1") if isinstance(data, str) else data
  if not isinstance(raw, (bytes, bytearray)) or len(raw) != count * kind.dtype.itemsize:
    size = f"{len(raw)} bytes" if isinstance(raw, (bytes, bytearray)) else f"a {type(raw).__name__}"
    raise ValueError(f"{what} of {count} {kind.dtype.name} has {size}, expected {count * kind.dtype.itemsize} bytes")
  return bytes(raw)


class NumpyArray(Stateful):
  """A `numpy.ndarray`, empty until its state comes."""

  def __init__(self, *_: Any) -> None:
    self.tensor: Tensor | None = None

  def set_state(self, state: Any) -> None:
    """(version, shape, dtype, whether the first axis is the fastest, elements)."""
    match state:
      case (int(), tuple() as shape, kind, fortran, data) if are_sizes(shape):
        self.tensor = _array(data, _type(kind), shape, bool(fortran))
      case _:
        raise ValueError("the state of a NumPy array is (version, shape, dtype, order, elements)")

  def finished(self) -> Tensor:
    """The array as a tensor."""
    if self.tensor is None:
      raise ValueError("a NumPy array has no elements")
    return self.tensor


def _array(data: Any, kind: NumpyType, shape: tuple[int, ...], fortran: bool) -> Tensor:
  count = check_shape("a NumPy array", shape)
  raw = _raw(data, count, kind, f"a NumPy array of shape {shape}")
  if not fortran:
    return kind.tensor(raw, shape)
  return kind.tensor(raw, shape[::-1]).permute(*range(len(shape) - 1, -1, -1))


def _from_buffer(data: Any, kind: Any, shape: Any, order: Any) -> Tensor:
  """`numpy._core.numeric._frombuffer`: how protocol 5 writes arrays."""
  if not are_sizes(shape):
    raise ValueError(f"a NumPy array has the shape {short(shape)}")
  return _array(data, _type(kind), shape, order == "F")


def _scalar(kind: Any, data: Any = b"") -> Any:
  """`numpy._core.multiarray.scalar`."""
  found = _type(kind)
  return struct.unpack(found.order + FORMATS[found.dtype], _raw(data, 1, found, "a NumPy scalar"))[0]


def _bytes(text: Any, encoding: Any) -> bytes:
  """`_codecs.encode`: how protocol 2 writes bytes."""
  if not isinstance(text, str) or encoding != "latin1":
    raise ValueError(f"bytes are written as text in latin1, this says {short(encoding)}")
  return text.encode("latin1")


def _no_bytes() -> bytes:
  """`bytes()`: how it writes none."""
  return b""


_CORES = ("numpy.core", "numpy._core")

NUMPY_NAMES: dict[str, Any] = {
  "_codecs encode": _bytes,
  "builtins bytes": _no_bytes,
  "__builtin__ bytes": _no_bytes,
  "numpy dtype": NumpyType,
  "numpy ndarray": None,
  **{f"{core}.multiarray _reconstruct": NumpyArray for core in _CORES},
  **{f"{core}.multiarray scalar": _scalar for core in _CORES},
  **{f"{core}.numeric _frombuffer": _from_buffer for core in _CORES},
}
