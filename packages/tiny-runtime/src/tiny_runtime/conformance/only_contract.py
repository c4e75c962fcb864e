"""Backends of which nothing but the contract can be seen, to show that shared code uses nothing else.

`with only_contract():` wraps every backend and every device that is opened, storage included. The wrappers have the
names of the protocols and no others; what a device hands out (memory, programs, graphs) is an `Opaque`, which has
nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn
from unittest.mock import patch

from tiny_runtime import devices, opened
from tiny_runtime.binary import Binary
from tiny_runtime.contract import (
  Backend,
  Compiler,
  Device,
  GraphChanges,
  GraphKernel,
  Graphs,
  GraphTimes,
  HostImport,
  HostMapped,
  Peers,
  Recordings,
  Streamed,
  Trims,
)
from tiny_runtime.plugins import plugin


class BeyondContract(Exception):
  """Shared code asked for something that the contract does not have. Not an AttributeError: nothing may catch it."""


class _Only:
  __slots__ = ("_hidden",)

  def __init__(self, hidden: Any) -> None:
    self._hidden = hidden

  def __getattr__(self, name: str) -> NoReturn:
    if name.startswith("__"):
      raise AttributeError(name)  # Python's own questions (how to pickle, to copy)
    contract = sorted(member for member in dir(type(self)) if not member.startswith("_"))
    raise BeyondContract(f"{type(self).__name__} has no {name!r} in the contract; it has {', '.join(contract)}")


class Opaque(_Only):
  """A handle. It can be held, compared by identity and given back to its device."""

  __slots__ = ("__weakref__",)

  def __getattr__(self, name: str) -> NoReturn:
    raise BeyondContract(f"a handle is opaque: there is no {name!r}, whatever the backend's own object has")


def _inner(value: Any) -> Any:
  """What is behind wrappers: of one, of those in a sequence, of a graph's call."""
  if isinstance(value, _Only):
    return value._hidden
  if isinstance(value, GraphKernel):
    return replace(value, program=value.program._hidden)
  return type(value)(map(_inner, value)) if isinstance(value, (list, tuple)) else value


def plain(binary: Binary) -> Binary:
  """A binary as it comes out of the disk cache: without whatever a compiler may have hung on it."""
  return Binary.from_bytes(binary.to_bytes())


def wrap_device(device: Device) -> Device:
  """The device with the methods of the contract, and of the capabilities that it claims."""
  if issubclass(type(device), OnlyDevice):
    return device
  record = device.info.capabilities
  claims = {
    HostMapped: record.host_mapped, HostImport: record.host_import, Peers: record.peers, Graphs: record.graphs,
    GraphTimes: record.graph_times, GraphChanges: record.graph_changes, Trims: record.trims,
    Streamed: bool(record.stream), Recordings: record.recordings,
  }  # fmt: skip
  wrapped: Device = _device_class(*(protocol for protocol, claimed in claims.items() if claimed))(device)
  return wrapped


WRAPPED: Mapping[str, Callable[[Any], Any]] = {
  "alloc": Opaque, "adopt": Opaque, "load": Opaque, "make_graph": Opaque,
  "open": wrap_device, "compiler": lambda compiler: OnlyCompiler(compiler), "compile": plain,
}  # fmt: skip
"""What becomes of a method's result."""
TIMED = ("launch", "run_graph", "copy_from")
"""Methods that give seconds if their last argument, `wait`, is true; else whatever they give counts for nothing."""


def _member(name: str, is_property: bool) -> Any:
  wrapped = WRAPPED.get(name, lambda result: result)

  def method(self: _Only, *arguments: Any) -> Any:
    result = wrapped(getattr(self._hidden, name)(*map(_inner, arguments)))
    return None if name in TIMED and not arguments[-1] else result

  return property(lambda self: getattr(self._hidden, name)) if is_property else method


def _members(*protocols: type) -> dict[str, Any]:
  """The body of a class that has the members of these protocols and no others."""
  names = {name: protocol for protocol in protocols for name in vars(protocol) if not name.startswith("_")}
  found = {name: _member(name, isinstance(vars(protocol)[name], property)) for name, protocol in names.items()}
  return {"__slots__": (), **found}


OnlyCompiler: Any = type("OnlyCompiler", (_Only,), _members(Compiler))
"""A `Compiler` and no more."""
OnlyDevice: Any = type("OnlyDevice", (_Only,), _members(Device))
"""A `Device` and no more."""
OnlyBackend: Any = type("OnlyBackend", (_Only,), _members(Backend))
"""A `Backend` and no more."""


@cache
def _device_class(*claimed: type) -> Any:
  """An OnlyDevice with the members of these protocols as well."""
  return type("OnlyDevice", (OnlyDevice,), _members(*claimed))


_wrapped: dict[int, Backend] = {}


def wrap(backend: Backend) -> Backend:
  """The backend with the methods of the contract; the same object again for the same one, since devices of one backend
  may have things in common."""
  if issubclass(type(backend), OnlyBackend):
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
