"""A model as a device that `Tensor`s are on, by the name of a plugin's: nothing is installed, or looked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tiny_runtime import Backend, Device
from tiny_runtime.opened import OpenDevice


@contextmanager
def as_device(backend: Backend, name: str, count: int = 1) -> Iterator[list[Any]]:
  """The first devices of a backend are `name`, `name:1`, … meanwhile, and given; they are closed at the end."""
  names = [f"{name}:{n}" if n else name for n in range(count)]
  before = {each: Device._opened.pop(each) for each in names if each in Device._opened}
  devices = [backend.open(n) for n in range(count)]
  for each, device in zip(names, devices):
    Device._opened[each] = OpenDevice(each, device, backend.compiler(device.info.arch), "", None, backend)
  try:
    yield devices
  finally:
    for each in names:
      Device._opened.pop(each).close()
    Device._opened.update(before)
