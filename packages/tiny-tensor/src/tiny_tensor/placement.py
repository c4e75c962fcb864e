"""Names of devices, and bytes of Python into buffers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, overload

from tiny_runtime import Device, buffer_of, host_buffer
from tiny_tensor import capturing
from tiny_uop import Cut, Devices, DType, Shape, Sharding, UOp, even_bounds

DeviceLike: TypeAlias = str | Sequence[str] | None
"""A device, several, or None for the default one."""


class DeviceMesh(Sequence[str]):
  """Devices in a grid with named axes: `DeviceMesh({"data": 2, "model": 2}, ("CPU", "CPU:1", "CPU:2", "CPU:3"))`.

  It is a sequence of names, the last axis the fastest, and can stand where a tensor takes several devices. What
  `Tensor.shard` does with it besides is to cut several axes. Raises ValueError if the sizes do not multiply to the
  number of devices.
  """

  def __init__(self, axes: Mapping[str, int], devices: Sequence[str]) -> None:
    self.axes = dict(axes)
    """The size of each axis, by name."""
    self._devices = tuple(devices)
    if any(n < 1 for n in self.axes.values()) or math.prod(self.axes.values()) != len(self._devices):
      raise ValueError(f"a mesh {self.axes} has {math.prod(self.axes.values())} places for {len(devices)} devices")

  def __len__(self) -> int:
    return len(self._devices)

  @overload
  def __getitem__(self, index: int) -> str: ...
  @overload
  def __getitem__(self, index: slice) -> Sequence[str]: ...
  def __getitem__(self, index: int | slice) -> str | Sequence[str]:
    return self._devices[index]

  def __iter__(self) -> Iterator[str]:
    return iter(self._devices)

  def __repr__(self) -> str:
    return f"{type(self).__name__}({self.axes}, {self._devices})"


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


def sharding_on(devices: DeviceLike, axis: int | Mapping[str, int] | None, shape: Shape) -> Sharding:
  """The layout that `Tensor.shard` gives a value of a shape, which says the errors."""
  names, grid = device_names(devices), devices.axes if isinstance(devices, DeviceMesh) else {}
  wanted = axis if isinstance(axis, Mapping) else {} if axis is None else dict.fromkeys(grid or ("",), axis)
  for name, number in wanted.items():
    if name not in (grid or ("",)):
      raise KeyError(f"no axis {name!r} in {devices!r}: expected one of {', '.join(grid) or 'a DeviceMesh'}")
    if not -len(shape) <= number < len(shape):
      raise IndexError(f"axis {number} of a tensor of {len(shape)} axes")
  sizes = {name: n for name, n in grid.items() if n > 1} or {"": len(names)}
  along: dict[int, list[int]] = {}  # axes of the grid, by the axis that is in pieces along them
  for place, name in enumerate(sizes):
    if name in wanted and sizes[name] > 1:
      along.setdefault(wanted[name] % len(shape), []).append(place)
  counts = tuple(sizes.values())
  cuts = [even_cut(shape, i, places, math.prod([counts[p] for p in places])) for i, places in along.items()]
  return Sharding(names, grid=counts if len(counts) > 1 else ()).with_cuts(cuts)


def even_cut(shape: Shape, axis: int, along: Sequence[int], count: int) -> Cut:
  """An axis in pieces as equal as can be. Raises ValueError for one that is too short, or of symbolic size."""
  size = shape[axis]
  if not isinstance(size, int):
    raise ValueError(f"axis {axis} of shape {shape} has a symbolic size, so that pieces of it have none")
  if size < count:
    raise ValueError(
      f"axis {axis} of shape {shape} is shorter than the {count} devices that are to have pieces of it: shard another "
      "axis, or axis=None for a copy on each"
    )
  return Cut(axis, even_bounds(size, count), tuple(along))


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
