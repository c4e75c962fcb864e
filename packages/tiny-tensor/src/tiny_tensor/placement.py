"""Names of devices, and bytes of Python into buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tiny_runtime import Device, buffer_of, host_buffer
from tiny_tensor import capturing
from tiny_uop import Devices, DType, UOp

DeviceLike: TypeAlias = str | Sequence[str] | None
"""A device, several, or None for the default one."""


def device_names(device: DeviceLike) -> tuple[str, ...]:
  """The names of devices as they are spelled everywhere. Raises ValueError for none, one named twice, or no name."""
  names = (device,) if device is None or isinstance(device, str) else tuple(device)
  found = tuple([Device.canonicalize(name) for name in names])
  if not found or len(set(found)) != len(found):
    raise ValueError(f"a tensor needs a device, or several different ones, got {device!r}")
  return found


def canonical(device: DeviceLike) -> Devices:
  """The name of a device, or a tuple of the names of several."""
  if device is None or isinstance(device, str):
    return Device.canonicalize(device)
  names = device_names(device)
  return names if len(names) > 1 else names[0]


def data_buffer(data: memoryview, dtype: DType, place: Devices) -> UOp:
  """A BUFFER with a copy of `data`: on the device `place` if that is memory of this machine; else on HOST, for a COPY.
  Also while a TinyJit captures: it needs the COPY, to repeat it."""
  if not data.nbytes or not isinstance(place, str) or place == "HOST" or capturing.current() is not None:
    return host_buffer(data, dtype)
  capabilities = Device.opened(place).capabilities
  if not (capabilities.host_mapped and capabilities.kernels):
    return host_buffer(data, dtype)
  uop = UOp.new_buffer(place, data.nbytes // dtype.itemsize, dtype)
  buffer_of(uop).write(data)
  return uop
