"""Protocols of arrays: the Array API standard, DLPack, NumPy's, and Python's numbers."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from tiny_runtime import Device
from tiny_tensor.base import TensorBase
from tiny_uop import dtypes

if TYPE_CHECKING:
  import numpy

REVISIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


class InteropMixin(TensorBase):
  """The array object of the Array API standard, and the protocols of NumPy and Python."""

  __slots__ = ()

  # NumPy's operators leave tensors to ours: `np.float32(2) * t` and `array * t` are tensors. Its functions refuse them
  # (`np.sin(t)` is a TypeError): they would compute, and leave the device and the graph, where nobody asked for it.
  __array_ufunc__: ClassVar[None] = None

  def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
    """`tiny_tensor.array_api`. Raises ValueError for a revision of the standard that it does not follow."""
    if api_version is not None and api_version not in REVISIONS:
      raise ValueError(f"no namespace of revision {api_version!r} of the Array API standard: {', '.join(REVISIONS)}")
    return importlib.import_module("tiny_tensor.array_api")  # by name: it is made of Tensors, and stands above them

  def to_device(self, device: str, /, *, stream: None = None) -> Self:
    """The standard's name for `to`. Raises ValueError for a stream: copies are in the order of the program."""
    if stream is not None:
      raise ValueError(f"to_device takes no stream, got {stream!r}")
    return self.to(device)

  def __pos__(self) -> Self:
    return self

  def __abs__(self) -> Self:
    return self.abs()

  # *** numbers ***

  def _as_number(self, what: str) -> bool | int | float:
    """The value of a 0-d tensor. Raises TypeError for others."""
    if self.ndim:
      raise TypeError(f"{what} needs a tensor without axes, got shape {self.shape}: use .item(), .any() or .all()")
    return self.item()

  def __bool__(self) -> bool:
    if self.ndim:
      raise TypeError(f"the truth of a Tensor of shape {self.shape} is not defined: use .item(), .any() or .all()")
    return bool(self.item())

  def __int__(self) -> int:
    return int(self._as_number("int()"))

  def __float__(self) -> float:
    return float(self._as_number("float()"))

  def __complex__(self) -> complex:
    return complex(self._as_number("complex()"))

  def __index__(self) -> int:
    if not dtypes.is_int(self.dtype):
      raise TypeError(f"only an integer tensor can be an index, got {self.dtype.name}")
    return int(self._as_number("an index"))

  # *** memory ***

  def __dlpack_device__(self) -> tuple[int, int]:
    """(1, 0), memory of the host, where the tensor's device has that; (12, 0), a device of its own kind, elsewhere."""
    from tiny_tensor.interop import dlpack  # here and below: most programs do without

    mapped = Device.opened(self._one_device()).capabilities.host_mapped
    return (dlpack.CPU, 0) if mapped else (dlpack.EXTENSION, 0)

  def _one_device(self) -> str:
    """The device whose memory is shared. Raises BufferError where there are several."""
    if not isinstance(self.device, str):
      raise BufferError(
        f"a tensor on {', '.join(self.device)} has no memory that could be shared: put it together with "
        f".to({self.device[0]!r}) first"
      )
    return self.device

  def __dlpack__(
    self,
    *,
    stream: None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
  ) -> Any:  # types.CapsuleType, from Python 3.13 on
    """A DLPack capsule over the tensor's own memory, which is computed first. `np.from_dlpack(t)` and
    `torch.from_dlpack(t)` call this.

    The consumer sees what is written to the tensor once that is realised; the tensor, and what is computed from it
    later, sees what the consumer writes. The memory lives as long as either does. A tensor that was broadcast or
    flipped is copied; `copy` asks for a copy, or with False forbids it. Raises BufferError where the memory is not the
    host's (unless `dl_device` is (1, 0): then it is copied there), and for tensors that require a gradient.
    """
    from tiny_tensor.interop import dlpack, sharing

    if stream is not None:
      raise ValueError(f"memory of the host has no streams, got stream={stream!r}")
    if dl_device not in (None, (dlpack.CPU, 0), self.__dlpack_device__()):
      raise BufferError(f"a tensor on {self.device} can be exported to the host, (1, 0), not to {dl_device}")
    x, copied = self, copy
    if dl_device == (dlpack.CPU, 0) != self.__dlpack_device__():
      if copy is False:
        raise BufferError(f"memory of {self.device} is not the host's: it cannot be shared, only copied")
      x, copied = self.detach().to("HOST"), None
    versioned = max_version is not None and max_version[0] >= 1
    layout, owner = sharing.layout_of(x, copied)  # type: ignore[arg-type]
    if layout.read_only and not versioned:
      layout, owner = sharing.layout_of(x, True)  # type: ignore[arg-type]  # an old capsule cannot say that it is
    return dlpack.make_capsule(layout, owner, versioned)

  @classmethod
  def from_dlpack(cls, x: Any, device: str | None = None, copy: bool | None = None) -> Self:
    """A tensor over the memory of an array of another library (anything with `__dlpack__`), which it keeps alive.

    What either side writes, the other sees: of a tensor, once it is realised, and by what is computed after. Memory is
    shared where `device` (default: the default one) can work on memory of the host, and the array is writable, and
    dense in some order of its axes (a transposed one is, one with steps is not). Otherwise it is copied; `copy` asks
    for a copy, or with False forbids it: BufferError. Import memory once: two tensors over it know nothing of each
    other.
    """
    from tiny_tensor.interop.sharing import tensor_uop

    if isinstance(x, TensorBase):
      moved = x.detach().to(device) if device is not None else x.detach()
      if copy is False and moved.device != x.device:
        raise BufferError(f"a tensor on {x.device} cannot be on {moved.device} without a copy")
      return cast(Self, moved.clone() if copy else moved)
    return cls._wrap(tensor_uop(x, device, copy, cls._wrap), False)

  def __buffer__(self, flags: int, /) -> memoryview:
    """What `memoryview(t)` calls from Python 3.12 on: a copy, as `numpy()`, in the tensor's shape."""
    raw, shape = self._formatted()._read_copy()
    return self._shaped_view(raw, shape)

  # *** NumPy ***

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
    """What `np.asarray(t)` calls: a copy, as `numpy()`. Raises ValueError if that is forbidden: `np.from_dlpack(t)`
    shares memory."""
    if copy is False:
      raise ValueError("an array of a Tensor is a copy: np.from_dlpack(t) shares its memory")
    array = self.numpy()
    return array if dtype is None else array.astype(dtype, copy=False)
