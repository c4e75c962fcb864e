"""Creation functions. `device` is a name such as "CPU"; None is the default device."""

from __future__ import annotations

from typing import Any, Literal

from tiny_tensor.array_api.operands import Array, shape_tuple
from tiny_tensor.base import Scalar
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

__all__ = [
  "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
  "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def asarray(obj: Any, /, *, dtype: DType | None = None, device: str | None = None, copy: bool | None = None) -> Array:
  """An array of a tensor, a number, nested sequences (of arrays, too), or of what has the buffer protocol, DLPack or
  NumPy's interface.

  A tensor with nothing to change is given back itself, but for `copy=True`. Of others there is a copy always: with
  `copy=False` that is a ValueError, and `from_dlpack` is what shares memory.
  """
  if isinstance(obj, Tensor):
    moved = obj if device is None else obj.to(device)
    out = moved if dtype is None else moved.cast(dtype)
    if out is not obj and copy is False:
      raise ValueError(f"asarray cannot convert {obj!r} to {dtype} on {device} without a copy")
    return out.clone() if out is obj and copy else out
  if copy is False:
    raise ValueError(f"asarray copies a {type(obj).__name__}: use from_dlpack to share its memory")
  if isinstance(obj, (list, tuple)) and has_arrays(obj):
    return asarray(joined(obj), dtype=dtype, device=device)
  if isinstance(obj, (bytes, bytearray)) or not hasattr(obj, "__array_interface__"):
    obj = plain_data(obj)
  out = obj if isinstance(obj, Tensor) else Tensor(obj, device=device, dtype=dtype)
  return out if out is not obj else asarray(out, dtype=dtype, device=device)


def plain_data(obj: Any) -> Any:
  """Data for Tensor's constructor: DLPack and buffers as tensors, others as they are."""
  if isinstance(obj, (bool, int, float, list, tuple)):
    return obj
  if hasattr(obj, "__dlpack__"):
    return Tensor.from_dlpack(obj, copy=True)
  try:
    view = memoryview(obj)
  except TypeError:
    return obj
  return Tensor(view.tobytes(), dtype=buffer_dtype(view)).reshape(view.shape)


def buffer_dtype(view: memoryview) -> DType:
  """The dtype of a buffer's elements. Raises TypeError for a format that no tensor has."""
  letters = {"bool": "?", "int": "bhilqn", "uint": "BHILQN", "float": "efd"}
  letter = view.format.lstrip("@=<")
  for dtype in dtypes.all:
    if letter in letters[dtype.kind] and dtype.itemsize == view.itemsize:
      return dtype
  raise TypeError(f"no data type for a buffer of format {view.format!r}")


def has_arrays(obj: Any) -> bool:
  """Whether nested sequences hold arrays somewhere."""
  return isinstance(obj, Tensor) or (isinstance(obj, (list, tuple)) and any(map(has_arrays, obj)))


def joined(obj: Any) -> Array:
  """Nested sequences that hold arrays as one array."""
  if isinstance(obj, (list, tuple)):
    parts = [joined(o) for o in obj]
    return parts[0].stack(*parts[1:]) if parts else Tensor([])
  return obj if isinstance(obj, Tensor) else Tensor(obj)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
  """An array that shares memory with `x` where it can: see `Tensor.from_dlpack`."""
  return Tensor.from_dlpack(x, device=device, copy=copy)


def arange(
  start: int | float,
  /,
  stop: int | float | None = None,
  step: int | float = 1,
  *,
  dtype: DType | None = None,
  device: str | None = None,
) -> Array:
  """`start`, `start + step`, … before `stop`; `arange(n)` is 0 to n-1."""
  return Tensor.arange(start, stop, step, dtype=dtype, device=device)


def full(
  shape: int | tuple[int, ...], fill_value: Scalar, *, dtype: DType | None = None, device: str | None = None
) -> Array:
  """All elements `fill_value`, whose dtype is the default."""
  return Tensor.full(shape_tuple(shape), fill_value, dtype=dtype, device=device)


def zeros(shape: int | tuple[int, ...], *, dtype: DType | None = None, device: str | None = None) -> Array:
  """Zeros of the default float, unless `dtype` is given."""
  return Tensor.full(shape_tuple(shape), 0, dtype=dtype or dtypes.default_float, device=device)


def ones(shape: int | tuple[int, ...], *, dtype: DType | None = None, device: str | None = None) -> Array:
  """Ones of the default float, unless `dtype` is given."""
  return Tensor.full(shape_tuple(shape), 1, dtype=dtype or dtypes.default_float, device=device)


def empty(shape: int | tuple[int, ...], *, dtype: DType | None = None, device: str | None = None) -> Array:
  """Zeros: memory that nothing was written to is an error to read (`Tensor.empty`)."""
  return zeros(shape, dtype=dtype, device=device)


def full_like(x: Array, /, fill_value: Scalar, *, dtype: DType | None = None, device: str | None = None) -> Array:
  """`full` of the shape, dtype and device of `x`."""
  return Tensor.full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Array, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
  """`zeros` of the shape, dtype and device of `x`."""
  return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
  """`ones` of the shape, dtype and device of `x`."""
  return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
  """`empty` of the shape, dtype and device of `x`."""
  return zeros_like(x, dtype=dtype, device=device)


def eye(
  n_rows: int,
  n_cols: int | None = None,
  /,
  *,
  k: int = 0,
  dtype: DType | None = None,
  device: str | None = None,
) -> Array:
  """`(n_rows, n_cols)` with ones on the diagonal that lies `k` above the main one."""
  columns = n_rows if n_cols is None else n_cols
  kind = dtype or dtypes.default_float
  if n_rows == 0 or columns == 0:
    return zeros((n_rows, columns), dtype=kind, device=device)
  seed = Tensor.full((), 0, dtypes.int32, device)
  return (seed._count_up(n_rows).unsqueeze(-1) + k).eq(seed._count_up(columns)).cast(kind)


def linspace(
  start: int | float,
  stop: int | float,
  /,
  num: int,
  *,
  dtype: DType | None = None,
  device: str | None = None,
  endpoint: bool = True,
) -> Array:
  """`num` values from `start` to `stop`, which is the last one, or with `endpoint=False` the one after that."""
  if endpoint:
    return Tensor.linspace(start, stop, num, dtype=dtype, device=device)
  return Tensor.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Array, indexing: Literal["xy", "ij"] = "xy") -> tuple[Array, ...]:
  """Coordinates of a grid, one array per vector; with "xy" the first two axes are swapped."""
  if indexing not in ("xy", "ij"):
    raise ValueError(f"indexing must be 'xy' or 'ij', got {indexing!r}")
  return arrays[0].meshgrid(*arrays[1:], indexing=indexing) if arrays else ()


def tril(x: Array, /, *, k: int = 0) -> Array:
  """The lower triangle of the last two axes: zeros above the diagonal `k`."""
  return x.tril(k)


def triu(x: Array, /, *, k: int = 0) -> Array:
  """The upper triangle of the last two axes: zeros below the diagonal `k`."""
  return x.triu(k)
