"""Backends of which nothing but the contract can be seen, to show that shared code uses nothing else.

`with only_contract():` wraps every backend and every device that is opened, storage included. The wrappers have the
names of the protocols and no others; what a device hands out (memory, programs, graphs) is an `Opaque`, which has
nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn
from unittest.mock import patch

from tiny_runtime import devices, opened
from tiny_runtime.binary import Binary
from tiny_runtime.contract import Backend, Compiler, Device, DeviceInfo, GraphCopy, GraphKernel, Measure
from tiny_runtime.errors import Unavailable
from tiny_runtime.plugins import plugin
from tiny_uop import UOp


class BeyondContract(Exception):
  """Shared code asked for something that the contract does not have. Not an AttributeError: nothing may catch it."""


class Opaque:
  """A handle. It can be held, compared by identity and given back to its device."""

  __slots__ = ("_hidden", "__weakref__")

  def __init__(self, hidden: Any) -> None:
    self._hidden = hidden

  def __getattr__(self, name: str) -> NoReturn:
    raise BeyondContract(f"a handle is opaque: there is no {name!r}, whatever the backend's own object has")


class _Only:
  __slots__ = ("_hidden",)

  def __init__(self, hidden: Any) -> None:
    self._hidden = hidden

  def __getattr__(self, name: str) -> NoReturn:
    if name.startswith("__"):
      raise AttributeError(name)  # Python's own questions (how to pickle, to copy)
    contract = sorted(member for member in dir(type(self)) if not member.startswith("_"))
    raise BeyondContract(f"{type(self).__name__} has no {name!r} in the contract; it has {', '.join(contract)}")


class OnlyCompiler(_Only):
  """A `Compiler` and no more."""

  __slots__ = ()

  @property
  def key(self) -> str:
    return str(self._hidden.key)

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    return plain(self._hidden.compile(kernel, measure))


def plain(binary: Binary) -> Binary:
  """A binary as it comes out of the disk cache: without whatever a compiler may have hung on it."""
  return Binary.from_bytes(binary.to_bytes())


class OnlyDevice(_Only):
  """A `Device` and no more."""

  __slots__ = ()

  @property
  def info(self) -> DeviceInfo:
    info: DeviceInfo = self._hidden.info
    return info

  def alloc(self, nbytes: int) -> Opaque:
    return Opaque(self._hidden.alloc(nbytes))

  def free(self, memory: Opaque) -> None:
    self._hidden.free(memory._hidden)

  def write(self, memory: Opaque, offset: int, data: memoryview) -> None:
    self._hidden.write(memory._hidden, offset, data)

  def read(self, memory: Opaque, offset: int, out: memoryview) -> None:
    self._hidden.read(memory._hidden, offset, out)

  def load(self, binary: Binary) -> Opaque:
    return Opaque(self._hidden.load(binary))

  def launch(
    self,
    program: Opaque,
    buffers: Sequence[tuple[Opaque, int]],
    integers: Sequence[int],
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    wait: bool,
  ) -> float | None:
    inner = [(memory._hidden, offset) for memory, offset in buffers]
    seconds: float | None = self._hidden.launch(program._hidden, inner, integers, global_size, local_size, wait)
    return seconds if wait else None

  def sync(self) -> None:
    self._hidden.sync()

  def close(self) -> None:
    self._hidden.close()


class _Mapped:
  __slots__ = ()

  def view(self: Any, memory: Opaque) -> memoryview:
    view: memoryview = self._hidden.view(memory._hidden)
    return view


class _Importing:
  __slots__ = ()

  def adopt(self: Any, data: memoryview) -> Opaque:
    return Opaque(self._hidden.adopt(data))


class _Peers:
  __slots__ = ()

  def reaches(self: Any, source: OnlyDevice) -> bool:
    return bool(self._hidden.reaches(source._hidden))

  def copy_from(
    self: Any, memory: Opaque, offset: int, source: OnlyDevice, source_memory: Opaque, source_offset: int, nbytes: int,
    wait: bool,
  ) -> float | None:  # fmt: skip
    places = (memory._hidden, offset, source._hidden, source_memory._hidden, source_offset)
    seconds: float | None = self._hidden.copy_from(*places, nbytes, wait)
    return seconds if wait else None


class _Graphs:
  __slots__ = ()

  def make_graph(self: Any, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Opaque]) -> Opaque:
    inner = [_inner_call(call) for call in calls]
    return Opaque(self._hidden.make_graph(inner, [memory._hidden for memory in memories]))

  def run_graph(
    self: Any,
    graph: Opaque,
    memories: Sequence[tuple[int, Opaque]],
    kernels: Sequence[tuple[int, GraphKernel]],
    wait: bool,
  ) -> float | None:
    changed = [(position, memory._hidden) for position, memory in memories]
    calls = [(index, _inner_call(call)) for index, call in kernels]
    seconds: float | None = self._hidden.run_graph(graph._hidden, changed, calls, wait)
    return seconds if wait else None


@cache
def _device_class(*extras: type) -> type[OnlyDevice]:
  return type("OnlyDevice", (OnlyDevice, *extras), {"__slots__": ()})


def _inner_call(call: GraphKernel | GraphCopy) -> GraphKernel | GraphCopy:
  return replace(call, program=call.program._hidden) if isinstance(call, GraphKernel) else call


def wrap_device(device: Device) -> Device:
  """The device with the methods of the contract, and of the capabilities that it claims."""
  if isinstance(device, OnlyDevice):
    return device
  record = device.info.capabilities
  claims = (
    (record.host_mapped, _Mapped), (record.host_import, _Importing), (record.peers, _Peers), (record.graphs, _Graphs),
  )  # fmt: skip
  return _device_class(*(extra for claimed, extra in claims if claimed))(device)


class OnlyBackend(_Only):
  """A `Backend` and no more."""

  __slots__ = ()

  @property
  def api(self) -> tuple[int, int]:
    major, minor = self._hidden.api
    return major, minor

  @property
  def ir(self) -> tuple[int, int]:
    lowest, highest = self._hidden.ir
    return lowest, highest

  def probe(self) -> Sequence[str] | Unavailable:
    found: Sequence[str] | Unavailable = self._hidden.probe()
    return found

  def open(self, index: int) -> Device:
    return wrap_device(self._hidden.open(index))

  def compiler(self, arch: str) -> Compiler:
    return OnlyCompiler(self._hidden.compiler(arch))


_wrapped: dict[int, OnlyBackend] = {}


def wrap(backend: Backend) -> Backend:
  """The backend with the methods of the contract; the same object again for the same one, since devices of one backend
  may have things in common."""
  if isinstance(backend, OnlyBackend):
    return backend
  return _wrapped.setdefault(id(backend), OnlyBackend(backend))


@contextmanager
def only_contract() -> Iterator[None]:
  """All devices that are opened inside of this are wrapped, and closed at its end. Those that are open already are out
  of sight until then."""
  load: Callable[[plugin.Plugin], Backend | None] = plugin.Plugin.load
  require: Callable[[plugin.Plugin], Backend] = plugin.Plugin.require
  make = opened.OpenDevice.__init__

  def loaded(self: plugin.Plugin) -> Backend | None:
    found = load(self)
    return None if found is None else wrap(found)

  def opening(self: opened.OpenDevice, name: str, device: Device, *rest: Any) -> None:
    make(self, name, wrap_device(device), *rest)  # storage has no plugin

  registry = devices.Device._opened
  before = dict(registry)
  registry.clear()
  try:
    with (
      patch.object(plugin.Plugin, "load", loaded),
      patch.object(plugin.Plugin, "require", lambda self: wrap(require(self))),
      patch.object(opened.OpenDevice, "__init__", opening),
    ):
      yield
  finally:
    devices.Device.close()
    registry.update(before)
