"""PyTorch's checkpoints: what `torch.save` writes, read without PyTorch and without running anything in them.

The format is a pickle of the objects in which each storage (the memory of tensors) is a persistent id, and the storages
as raw bytes: since PyTorch 1.6 files of a zip archive, before that behind the pickle.
"""

import io
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_tensor.io import files
from tiny_tensor.io.archives import zip_files
from tiny_tensor.io.numpy_pickles import NUMPY_NAMES
from tiny_tensor.io.pickles import Costly, PickleReader
from tiny_tensor.naming import known_as
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # of the format before zip archives
_STORAGES = {
  "Bool": dtypes.bool, "Char": dtypes.int8, "Byte": dtypes.uint8, "Short": dtypes.int16, "Int": dtypes.int32,
  "Long": dtypes.int64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Float": dtypes.float32,
  "Double": dtypes.float64,
}  # fmt: skip
_DTYPE_NAMES = {d.name: d for d in dtypes.all if not d.name.startswith("fp8")} | {
  "float8_e4m3fn": dtypes.fp8e4m3, "float8_e5m2": dtypes.fp8e5m2, "half": dtypes.float16, "float": dtypes.float32,
  "double": dtypes.float64, "short": dtypes.int16, "int": dtypes.int32, "long": dtypes.int64,
}  # fmt: skip


def _naturals(values: Any, what: str) -> tuple[int, ...]:
  if not files.are_sizes(values) or len(values) > files.MOST_AXES:
    raise ValueError(f"{what} {files.short(values)}: expected a tuple of numbers, 0 or more, {files.MOST_AXES} at most")
  return tuple(values)


def _covering(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int] | None:
  """The axes that are not repeated, outermost in memory first, if they cover a whole part of it, as they do most often;
  else None."""
  axes = sorted((i for i, s in enumerate(shape) if s > 1 and strides[i]), key=lambda i: -strides[i])
  count = 1
  for i in reversed(axes):
    if strides[i] != count:
      return None
    count *= shape[i]
  return axes


def _cost(arguments: tuple[Any, ...]) -> int:
  """The time of `_rebuild`, in bytes of a pickle that take as long: strided elements are found by a graph of many
  nodes."""
  match arguments:
    case (_, _, tuple(shape), tuple(strides), *_) if len(shape) == len(strides) <= files.MOST_AXES and all(
      type(v) is int for v in (*shape, *strides)
    ):
      return 64 * (1 + len(shape)) if 0 not in shape and _covering(shape, strides) is None else 0
  return 0  # it is refused


def _strided(flat: Tensor, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
  """Element (i, j, …) is `flat[offset + i * strides[0] + j * strides[1] + …]`."""
  if 0 in shape:
    return Tensor.empty(*shape, dtype=flat.dtype, device=flat.device)
  axes = _covering(shape, strides)
  count = math.prod(shape[i] for i in axes or ())
  if axes is None:  # by places of 64 bits, since a storage can have more elements than int32 counts
    place = Tensor(offset, dtype=dtypes.int64)
    for i, (size, stride) in enumerate(zip(shape, strides, strict=True)):
      place = place + (Tensor.arange(size, dtype=dtypes.int64) * stride).reshape(
        *(-1 if i == j else 1 for j in range(len(shape)))
      )
    return files.in_memory(flat)[place.expand(*shape)]
  if axes == sorted(axes) and count == math.prod(shape):
    return files.part_of(flat, offset, count, shape)
  part = files.in_memory(flat[offset : offset + count]).reshape(*(shape[i] for i in axes))
  part = part.permute(*(axes.index(i) for i in sorted(axes))) if axes else part
  return part.reshape(*(shape[i] if i in axes else 1 for i in range(len(shape)))).expand(*shape)


def _rebuild(flat: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
  """`torch._utils._rebuild_tensor_v2`: a view of a storage. What follows is about gradients, which no file has."""
  if not isinstance(flat, Tensor) or flat.ndim != 1:
    raise ValueError(f"a tensor is to be made of a {type(flat).__name__}, expected a storage")
  (offset,) = _naturals((offset,), "a tensor has the offset")
  shape, strides = _naturals(shape, "a tensor has the shape"), _naturals(strides, "a tensor has the strides")
  if len(shape) != len(strides):
    raise ValueError(f"a tensor of shape {shape} has the strides {strides}: expected as many")
  files.check_shape("a tensor", shape)
  last = offset + sum((s - 1) * stride for s, stride in zip(shape, strides, strict=True))
  if 0 not in shape and last >= flat.numel():
    raise ValueError(
      f"a tensor of shape {shape} with strides {strides} from element {offset} on reaches element {last} of a storage "
      f"of {flat.numel()}"
    )
  return _strided(flat, offset, shape, strides)


def _rebuild_typed(
  flat: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> Tensor:
  """`torch._utils._rebuild_tensor_v3`: the storage has bytes, the dtype says what they are."""
  if not isinstance(dtype, DType) or not isinstance(flat, Tensor) or flat.dtype is not dtypes.uint8:
    raise ValueError(
      f"a tensor of {files.short(dtype)} is to be made of {files.short(flat)}, expected a dtype and a storage of bytes"
    )
  if flat.numel() % dtype.itemsize:
    raise ValueError(f"a storage of {flat.numel()} bytes holds no whole number of {dtype.name}")
  return _rebuild(flat if dtype is dtypes.uint8 else flat.bitcast(dtype), offset, shape, strides)


def _parameter(data: Any, *_: Any) -> Any:
  if not isinstance(data, Tensor):
    raise ValueError(f"a parameter is to be made of a {type(data).__name__}, expected a tensor")
  return data


def _size(sizes: Any) -> tuple[int, ...]:
  return _naturals(tuple(sizes) if isinstance(sizes, list) else sizes, "a size is")


def _device(kind: Any, index: Any = None) -> str:
  if not isinstance(kind, str) or not isinstance(index, (int, type(None))):
    raise ValueError(f"a device is (name, number) {files.short((kind, index))}, expected text and an integer")
  return kind if index is None else f"{kind}:{index}"


class _Storage:
  """A class of storages: its dtype."""

  def __init__(self, dtype: DType) -> None:
    self.dtype = dtype


_NAMES: dict[str, Any] = {
  **NUMPY_NAMES,
  "collections OrderedDict": OrderedDict,
  "builtins set": set,
  "__builtin__ set": set,
  "torch Size": _size,
  "torch device": _device,
  "torch._utils _rebuild_tensor": Costly(_rebuild, _cost),
  "torch._utils _rebuild_tensor_v2": Costly(_rebuild, _cost),
  "torch._utils _rebuild_tensor_v3": Costly(_rebuild_typed, _cost),
  "torch._utils _rebuild_parameter": _parameter,
  "torch._utils _rebuild_parameter_with_state": _parameter,
  "torch.storage UntypedStorage": _Storage(dtypes.uint8),
  **{f"{m} {name}Storage": _Storage(d) for name, d in _STORAGES.items() for m in ("torch", "torch.cuda")},
  **{f"torch {name}": dtype for name, dtype in _DTYPE_NAMES.items()},
}


def _storage_id(identity: Any) -> tuple[DType, str, int, Any]:
  """(dtype, key, elements, part) of a persistent id."""
  match identity:
    case ("storage", _Storage(dtype=dtype), str(key), _, int(count), *rest) if 0 <= count < 1 << 63 and len(rest) <= 1:
      return dtype, key, count, rest[0] if rest else None
  raise ValueError(f"persistent id {files.short(identity)}: expected ('storage', class, key, place, elements)")


@known_as(fn="t")
def torch_load(t: Tensor | str | Path) -> Any:
  """The object that `torch.save` wrote to a file, given by its path or as a tensor of its bytes: for a model most often
  the tensors by name.

  Tensors are views of the mapped file where they lie there in order and not compressed, as they do in most files; they
  share memory as they did, and gradients are not asked for whatever the file says. `torch.Size` becomes a tuple, a
  device text. The pickle in the file may make containers, numbers, text and tensors: ValueError, with the name of
  what it asks for, the file and the offset, for anything else, and for a file that is truncated or contradicts itself.
  """
  whole = files.as_bytes(t)
  head = bytes(files.whole_bytes(whole)[:4])
  with files.valid("PyTorch", t):
    return _load_zip(whole) if head == b"PK\x03\x04" else _load_legacy(whole)


def _load_zip(whole: Tensor) -> Any:
  archive = zip_files(whole)
  pickled = [name for name in archive if name.count("/") == 1 and name.endswith("/data.pkl")]
  if len(pickled) != 1:
    raise ValueError(f"the zip archive has {len(pickled)} files NAME/data.pkl, expected one")
  folder = pickled[0].removesuffix("data.pkl")
  order = bytes(archive[f"{folder}byteorder"].data) if f"{folder}byteorder" in archive else b"little"
  if order != b"little":
    raise ValueError(f"its numbers are {files.short(order)}-endian: only little-endian files are read")
  storages: dict[str, Tensor] = {}

  def storage(identity: Any) -> Tensor:
    dtype, key, count, _ = _storage_id(identity)
    if key not in storages:
      if f"{folder}data/{key}" not in archive:
        raise ValueError(f"storage {key!r} is not in the archive")
      file = archive[f"{folder}data/{key}"]
      if len(file.data) != count * dtype.itemsize:
        raise ValueError(
          f"storage {key!r}, {count} of {dtype.name}, takes {count * dtype.itemsize} bytes, "
          f"at byte {file.at} of the archive lie {len(file.data)}"
        )
      storages[key] = file.tensor(0, dtype, (count,))
    return _checked(storages[key], dtype, key)

  return PickleReader(io.BytesIO(archive[pickled[0]].data), _NAMES, storage).load()


def _checked(flat: Tensor, dtype: DType, key: str) -> Tensor:
  if flat.dtype is not dtype:
    raise ValueError(f"storage {key!r} is of {flat.dtype.name} in one place and of {dtype.name} in another")
  return flat


def _load_legacy(whole: Tensor) -> Any:
  file = files.TensorIO(whole)

  def read(storage: Callable[[Any], Any] = _storage_id) -> Any:
    return PickleReader(file, _NAMES, storage).load()

  if bytes(files.whole_bytes(whole)[:1]) != b"\x80" or read() != _MAGIC:
    raise ValueError("it begins neither as a zip archive nor with the number of the format before PyTorch 1.6")
  protocol, system = read(), read()
  if protocol != _PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
    raise ValueError(f"protocol {files.short(protocol)} of {files.short(system)}: expected {_PROTOCOL}, little-endian")
  start = file.tell()
  sizes: dict[str, tuple[DType, int]] = {}

  def measure(identity: Any) -> Tensor:
    dtype, key, count, _ = _storage_id(identity)
    sizes[key] = (dtype, count)
    return Tensor.empty(count, dtype=dtype)  # its elements come behind the pickle: it is read again when they are found

  read(measure)
  keys = read()
  flats = _legacy_storages(whole, file, keys, sizes)
  file.seek(start)

  def storage(identity: Any) -> Tensor:
    dtype, key, _, part = _storage_id(identity)
    flat = _checked(flats[key], dtype, key)
    return flat if part is None else _rebuild(flat, part[1], (part[2],), (1,))

  return read(storage)


def _legacy_storages(
  whole: Tensor, file: files.TensorIO, keys: Any, sizes: dict[str, tuple[DType, int]]
) -> dict[str, Tensor]:
  """The storages behind the pickles: of each the count of its elements, and these."""
  if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys) or set(sizes) - set(keys):
    raise ValueError(f"the list of storages at byte {file.tell()} does not have all that the tensors lie in")
  flats: dict[str, Tensor] = {}
  for key in keys:
    at = file.tell()
    if key not in sizes:
      raise ValueError(f"storage {files.short(key)} at byte {at} has no tensor, so that its dtype is not known")
    dtype, expected = sizes[key]
    count = int.from_bytes(file.read(8), "little")
    end = at + 8 + count * dtype.itemsize
    if count != expected or end > whole.numel():
      raise ValueError(
        f"storage {key!r} at byte {at} has {count} elements and ends at byte {end}; expected {expected} elements, "
        f"the file has {whole.numel()} bytes"
      )
    flats[key] = files.tensor_at(whole, at + 8, dtype, (count,))
    file.seek(end)
  return flats
