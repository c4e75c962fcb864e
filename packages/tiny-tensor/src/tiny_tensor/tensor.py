"""`Tensor`: the class that users see, its constructor and the dtype shorthands."""

from __future__ import annotations

import builtins
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, NoReturn

from tiny_tensor.base import DTypeLike, TensorBase, const_uop, to_dtype
from tiny_tensor.custom_kernel import CustomKernelMixin
from tiny_tensor.host import BYTES, FORMATS, flatten_nested, infer_dtype, is_block, pack, plain, shape_of_nested
from tiny_tensor.interop.pickling import PickleMixin
from tiny_tensor.interop.protocols import InteropMixin
from tiny_tensor.methods.assign import AssignMixin
from tiny_tensor.methods.conv import ConvMixin
from tiny_tensor.methods.creation import CreationMixin
from tiny_tensor.methods.devices import DeviceMixin
from tiny_tensor.methods.elementwise import ElementwiseMixin
from tiny_tensor.methods.functions import FunctionMixin
from tiny_tensor.methods.gather_scatter import GatherScatterMixin
from tiny_tensor.methods.gradient import GradientMixin
from tiny_tensor.methods.hashing import HashMixin
from tiny_tensor.methods.indexing import IndexingMixin
from tiny_tensor.methods.joining import JoinMixin
from tiny_tensor.methods.math import MathMixin
from tiny_tensor.methods.matmul import MatmulMixin
from tiny_tensor.methods.movement import MovementMixin
from tiny_tensor.methods.neural import NeuralMixin
from tiny_tensor.methods.quantiles import QuantileMixin
from tiny_tensor.methods.random import RandomMixin
from tiny_tensor.methods.realization import RealizationMixin
from tiny_tensor.methods.reduce import ReduceMixin
from tiny_tensor.methods.scan import ScanMixin
from tiny_tensor.methods.sort import SortMixin
from tiny_tensor.methods.statistics import StatisticsMixin
from tiny_tensor.naming import unary
from tiny_tensor.placement import DeviceLike, canonical, data_buffer
from tiny_tensor.pytorch_names import add_names
from tiny_uop import Devices, DType, UOp, dtypes


def array_dtype(data: Any) -> DType:
  """The dtype of a NumPy array. Raises TypeError for one that no tensor can have."""
  name = str(data.dtype.name)
  if name not in {d.name for d in dtypes.all}:
    raise TypeError(f"no tensor dtype for NumPy dtype {name!r}: convert the array first")
  return dtypes.parse(name)


def host_data(data: Any, dtype: DType | None, place: Devices) -> tuple[UOp, tuple[int, ...], DType]:
  """(BUFFER, shape, dtype as given or inferred) of bytes, a NumPy array or nested lists. The BUFFER has another dtype
  where Python has no format for it, and where an array has another one.
  """
  if isinstance(data, BYTES):
    kind, raw = dtype or dtypes.uint8, memoryview(data)
    if not raw.c_contiguous:
      raw = memoryview(raw.tobytes())
    if raw.nbytes % kind.itemsize:
      raise ValueError(f"{raw.nbytes} bytes are no whole number of {kind.name} ({kind.itemsize} bytes each)")
    return data_buffer(raw, kind, place), (raw.nbytes // kind.itemsize,), kind
  if hasattr(data, "__array_interface__"):
    kind = array_dtype(data)
    if data.dtype.byteorder == ">":
      data = data.astype(data.dtype.newbyteorder("<"))
    simple = kind in FORMATS and data.flags.c_contiguous
    raw = memoryview(data if simple else data.tobytes())
    return data_buffer(raw, kind, place), tuple(builtins.int(s) for s in data.shape), dtype or kind
  shape, values = shape_of_nested(data), list(flatten_nested(data))
  if any(map(is_block, dict(zip(map(type, values), values, strict=True)).values())):
    return blocks_data(values, shape, dtype, place)
  numbers = [plain(v) for v in values]
  kind = dtype or infer_dtype(numbers)
  packed = kind if kind in FORMATS else dtypes.float32
  return data_buffer(memoryview(pack(numbers, packed)), packed, place), shape, kind


def blocks_data(
  values: Sequence[Any], shape: tuple[int, ...], dtype: DType | None, place: Devices
) -> tuple[UOp, tuple[int, ...], DType]:
  """`host_data` of what lists hold, some of it arrays or bytes. The dtype is what those of the arrays promote to."""
  if all(isinstance(v, BYTES) for v in values):
    raw = b"".join(map(bytes, values))
    buffer, (count,), kind = host_data(raw, dtype, place)
    rows = shape[:-1]
    if shape[-1] % kind.itemsize:
      raise ValueError(f"{shape[-1]} bytes are no whole number of {kind.name} ({kind.itemsize} bytes each)")
    return buffer, (*rows, count // math.prod(rows)), kind
  import numpy as np  # there are arrays

  arrays = [v for v in values if hasattr(v, "__array_interface__")]
  numbers = [plain(v) for v in values if not hasattr(v, "__array_interface__")]
  kind = dtypes.promote(*[array_dtype(v) for v in arrays], *([infer_dtype(numbers)] if numbers else []))
  if numbers or any(v.dtype != arrays[0].dtype for v in arrays):
    packed = np.dtype(FORMATS.get(kind, "f"))
    values = [np.asarray(v).astype(packed) for v in values]
  buffer, _, _ = host_data(np.concatenate([np.ravel(v) for v in values]), None, place)
  return buffer, shape, dtype or kind


def file_uop(path: os.PathLike[str], dtype: DType | None) -> UOp:
  """All of a file, mapped: bytes, or elements of `dtype`."""
  found = os.path.abspath(path)
  raw = UOp.new_buffer(f"DISK:{found}", os.stat(found).st_size, dtypes.uint8)
  return raw if dtype is None else raw.bitcast(dtype)


class Tensor(
  CustomKernelMixin, PickleMixin, InteropMixin, NeuralMixin, AssignMixin, ConvMixin, CreationMixin, DeviceMixin,
  ElementwiseMixin, GatherScatterMixin, GradientMixin, HashMixin, IndexingMixin, JoinMixin, FunctionMixin, MathMixin,
  MatmulMixin, MovementMixin, QuantileMixin, RandomMixin, RealizationMixin, ReduceMixin, ScanMixin, SortMixin,
  StatisticsMixin,
):  # fmt: skip
  """A lazily computed n-dimensional array, on a device, that can be differentiated.

  `Tensor(data)` takes a number, nested lists or tuples (of numbers, arrays, Tensors or bytes), bytes (uint8, or of
  `dtype`), a NumPy array, a tensor of PyTorch or another library (what has `__dlpack__`; it is copied), a range, a
  `pathlib.Path` (the bytes of the file, mapped; with `device` copied there), None (no elements) or a tensor-level UOp.
  dtypes are inferred as bool, `dtypes.default_int` and `dtypes.default_float` unless given. Several devices get the
  same values each; `shard` makes pieces. Raises ValueError for ragged lists, OverflowError for integers that do not fit
  in the default, TypeError for other data.
  """

  __slots__ = ()
  training: ClassVar[builtins.bool] = False

  def __init__(
    self, data: Any = None, device: DeviceLike = None, dtype: DTypeLike | None = None,
    requires_grad: builtins.bool | None = None,
  ) -> None:  # fmt: skip
    kind = None if dtype is None else to_dtype(dtype)
    uop = data_uop(data, device, kind)
    self.uop, self.requires_grad, self._history, self.grad = uop, None, False, None
    self._begin_life()
    self.requires_grad_(requires_grad)

  def __dir__(self) -> Iterable[str]:
    """Without PyTorch's names for what is here by another."""
    return [name for name in super().__dir__() if name not in PYTORCH_NAMES]

  @classmethod
  @contextmanager
  def train(cls, mode: builtins.bool = True) -> Iterator[None]:
    """`with Tensor.train():` sets `Tensor.training` in the block; also a decorator."""
    before = Tensor.training
    Tensor.training = mode
    try:
      yield
    finally:
      Tensor.training = before

  @classmethod
  def from_url(cls, url: str, gunzip: builtins.bool = False, *, sha256: str | None = None, **kwargs: Any) -> Tensor:
    """The bytes of a file that `download.fetch` brings here, mapped. `kwargs` are those of `Tensor`."""
    from tiny_tensor.io.download import fetch

    return cls(fetch(url, gunzip=gunzip, sha256=sha256), **kwargs)

  def size(self, dim: builtins.int | None = None) -> Any:
    """The shape, or the size of axis `dim`."""
    return self.shape if dim is None else self.shape[dim]

  # *** dtype shorthands: last, since their names hide the built-in types in the rest of the class ***

  float = unary("Cast to float32.", lambda x: x._as_dtype(dtypes.float32))
  double = unary("Cast to float64.", lambda x: x._as_dtype(dtypes.float64))
  half = unary("Cast to float16.", lambda x: x._as_dtype(dtypes.float16))
  bfloat16 = unary("Cast to bfloat16.", lambda x: x._as_dtype(dtypes.bfloat16))
  int = unary("Cast to int32.", lambda x: x._as_dtype(dtypes.int32))
  short = unary("Cast to int16.", lambda x: x._as_dtype(dtypes.int16))
  long = unary("Cast to int64.", lambda x: x._as_dtype(dtypes.int64))
  bool = unary("Whether elements are not zero.", lambda x: x._as_bool())


def is_foreign(data: Any) -> bool:
  """Whether `data` is a tensor of another library, whose memory DLPack shows."""
  return hasattr(data, "__dlpack__") and not hasattr(data, "__array_interface__") and not isinstance(data, TensorBase)


def data_uop(data: Any, device: DeviceLike, dtype: DType | None) -> UOp:
  """The graph for constructor arguments."""
  if isinstance(data, TensorBase):
    moved = data.to(device) if device is not None else data
    return moved._as_dtype(dtype).uop if dtype is not None else moved.uop
  if isinstance(data, (UOp, os.PathLike)):
    uop = file_uop(data, dtype) if isinstance(data, os.PathLike) else data
    uop = uop.cast(dtypes.default_int) if uop.dtype == dtypes.index else uop
    if device is not None:
      uop = Tensor._wrap(uop).to(device).uop
    return uop if dtype is None else uop.cast(dtype)
  if is_foreign(data):
    return data_uop(Tensor.from_dlpack(data.detach() if hasattr(data, "detach") else data, copy=True), device, dtype)
  if isinstance(data, range):
    data = list(data)
  first = data
  while isinstance(first, (list, tuple)) and first:
    first = first[0]
  if first is not data and (isinstance(first, TensorBase) or is_foreign(first)):
    return data_uop(Tensor.stack(*[Tensor(part) for part in data]), device, dtype)
  if data is None:
    return const_uop(0, dtype or dtypes.default_float, (0,), canonical(device))
  if isinstance(data, (bool, int, float)) and not hasattr(data, "__array_interface__"):
    kind = dtype or infer_dtype([data])
    return const_uop(data, kind, (), canonical(device))
  if not isinstance(data, (*BYTES, list, tuple)) and not hasattr(data, "__array_interface__"):
    raise TypeError(
      f"cannot make a Tensor of {type(data).__name__} {data!r:.40}: "
      "expected numbers, lists, bytes, a NumPy array or a Path"
    )
  name = canonical(device)
  buffer, shape, kind = host_data(data, dtype, name)
  if 0 in shape:
    return const_uop(0, kind, shape, name)
  return (buffer if buffer.device == name else buffer.copy_to(name)).reshape(shape).cast(kind)


class _ThisModule(ModuleType):
  """Its name is that of `torch.tensor`."""

  def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{self.__name__} is a module. Here: Tensor(data), where PyTorch has torch.tensor(data)")


sys.modules[__name__].__class__ = _ThisModule


PYTORCH_NAMES = add_names(Tensor)
"""Attributes of tensors that work by another name, or say what to write."""
