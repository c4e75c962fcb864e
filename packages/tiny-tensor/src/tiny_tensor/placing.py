"""Bytes of Python into buffers."""

from __future__ import annotations

from tiny_runtime import Device, buffer_of, host_buffer
from tiny_tensor import capturing
from tiny_uop import DType, UOp


def data_buffer(data: memoryview, dtype: DType, place: str) -> UOp:
  """A BUFFER with a copy of `data`: on the device `place` if that is memory of this machine; else on HOST, for a COPY.
  Also while a TinyJit captures: it needs the COPY, to repeat it."""
  if not data.nbytes or place == "HOST" or capturing.current() is not None:
    return host_buffer(data, dtype)
  capabilities = Device.opened(place).capabilities
  if not (capabilities.host_mapped and capabilities.kernels):
    return host_buffer(data, dtype)
  uop = UOp.new_buffer(place, data.nbytes // dtype.itemsize, dtype)
  buffer_of(uop).write(data)
  return uop
