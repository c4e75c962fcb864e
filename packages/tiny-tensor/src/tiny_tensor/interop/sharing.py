"""Tensors and arrays of other libraries over the same memory: from tensors to DLPack's layouts, and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tiny_runtime import Device, adopted_buffer, buffer_of
from tiny_tensor import capturing
from tiny_tensor.base import only_stored
from tiny_tensor.interop.dlpack import CPU, HOST_TYPES, VERSION, Layout, address_of, open_capsule
from tiny_tensor.placement import data_buffer
from tiny_tensor.realize import realize_tensors
from tiny_tensor.shapes import contiguous_strides
from tiny_tensor.strides import strides_of
from tiny_uop import UOp

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor

Wrap: TypeAlias = Callable[[UOp], Any]


def layout_of(t: Tensor, copy: bool | None) -> tuple[Layout, object]:
  """Where the elements of a tensor are in memory of the host, and what keeps them there. Computes the tensor.

  Without `copy`, it gets memory that no independent tensor has, so that a write reaches it and its views alone. Raises
  BufferError where the host cannot address it, and, if `copy` is False, where strides cannot tell its order.
  """
  capturing.check_readable("sharing the memory of a Tensor")
  shape = tuple(int(s) for s in t.shape)
  if 0 in shape:
    return Layout(0, t.dtype, shape, contiguous_strides(shape), is_copied=bool(copy)), None
  if not copy:
    if t.requires_grad:
      raise BufferError(f"{t!r} requires a gradient, which would not know of writes: share t.detach()")
    t._own_storage()
    realize_tensors([t])
  found = None if copy else strides_of(t.uop)
  # torch.from_dlpack ends the process where a stride is negative
  if found is None or any(s < 0 for s in found[2]):
    if copy is False:
      raise BufferError(f"{t!r} repeats elements, has them backwards, or in an order that only a copy can have")
    t = (t.detach().to(None) if only_stored(t.uop) else t.detach().clone()).contiguous().realize()
    found = strides_of(t.uop)
    copy = True
  assert found is not None, "a new buffer is in order"
  buffer, (_, offset, strides) = buffer_of(found[0]), found
  if not buffer.opened.capabilities.host_mapped:
    raise BufferError(f"the host cannot address memory of {t.device}: move the tensor with .to('CPU') first")
  view = buffer.look()
  address = address_of(view) + offset * t.dtype.itemsize
  return Layout(address, t.dtype, shape, strides, view.readonly, bool(copy)), (buffer, view)


def capsule_of(x: Any, copy: bool | None) -> object:
  """The DLPack capsule of an object, of whichever version it gives. Raises TypeError where it has none, BufferError
  where its memory is not the host's and it does not copy there."""
  if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
    raise TypeError(f"from_dlpack takes an object with __dlpack__ and __dlpack_device__, got {type(x).__name__}")
  wanted: dict[str, Any] = {"max_version": VERSION}
  kind = x.__dlpack_device__()[0]
  if kind not in HOST_TYPES:
    if copy is False:
      raise BufferError(f"memory of DLPack device type {int(kind)} is not the host's: it cannot be shared, only copied")
    wanted["dl_device"] = (CPU, 0)
  try:
    return x.__dlpack__(**wanted, **({} if copy is None else {"copy": copy}))
  except TypeError:  # from before DLPack 1.0
    if kind not in HOST_TYPES:
      raise BufferError(f"memory of DLPack device type {int(kind)} is not the host's: copy it there first") from None
    return x.__dlpack__()


def tensor_uop(x: Any, device: str | None, copy: bool | None, wrap: Wrap) -> UOp:
  """The graph for an object with DLPack: a view of its memory, or of a copy. Raises BufferError if `copy` is False and
  there has to be one."""
  name = Device.canonicalize(device)
  layout, owner = open_capsule(capsule_of(x, copy))
  if 0 in layout.shape:
    return UOp.const(layout.dtype, 0).filling(layout.shape)
  order = dense_order(layout)
  why = ""
  if capturing.current() is not None:
    why = "TinyJit captures the program"
  elif not Device.opened(name).capabilities.host_import:
    why = f"{name} cannot work on memory of the host"
  elif layout.read_only:
    why = "it is read-only"
  elif order is None or layout.address % layout.dtype.itemsize:
    why = f"its strides {layout.strides} leave gaps, or it is not aligned"
  if why and copy is False:
    raise BufferError(f"a {type(x).__name__} of shape {layout.shape} cannot be shared with {name}: {why}")
  start, count = span(layout)
  memory = (ctypes.c_ubyte * (count * layout.dtype.itemsize)).from_address(start)
  memory.keeper = owner  # type: ignore[attr-defined]  # a memoryview keeps its array, and that its attributes
  data = memoryview(memory).cast("B")
  if not (why or copy):
    return arranged(adopted_buffer(name, data, layout.dtype), layout, order, wrap)
  flat = data_buffer(data, layout.dtype, name)
  flat = flat if flat.device == name else flat.copy_to(name)
  return arranged(flat, layout, order, wrap)


def span(layout: Layout) -> tuple[int, int]:
  """(address of the first byte, number of elements) of the memory from an array's lowest element to its highest."""
  reach = [s * (n - 1) for n, s in zip(layout.shape, layout.strides, strict=True)]
  low = sum(r for r in reach if r < 0)
  return layout.address + low * layout.dtype.itemsize, sum(map(abs, reach)) + 1


def dense_order(layout: Layout) -> tuple[int, ...] | None:
  """The axes from the outermost to the innermost in memory; None where there are gaps between elements."""
  order = sorted(range(len(layout.shape)), key=lambda a: (layout.shape[a] != 1, -abs(layout.strides[a])))
  expected = contiguous_strides(tuple(layout.shape[a] for a in order))
  fits = all(layout.shape[a] == 1 or abs(layout.strides[a]) == e for a, e in zip(order, expected, strict=True))
  return tuple(order) if fits else None


def arranged(flat: UOp, layout: Layout, order: tuple[int, ...] | None, wrap: Wrap) -> UOp:
  """The array that lies in `flat`, a vector of the elements of its span."""
  backwards = [a for a, s in enumerate(layout.strides) if s < 0 and layout.shape[a] > 1]
  if order is not None:
    lying: UOp = flat.reshape(tuple(layout.shape[a] for a in order))
    return lying.permute(tuple(order.index(a) for a in range(len(order)))).flip(backwards)
  steps = [abs(s) for s in layout.strides]
  spread: UOp = wrap(flat).as_strided(layout.shape, steps).contiguous().uop
  return spread.flip(backwards)
