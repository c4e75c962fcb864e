"""`Device`: the registry of devices by name. `Device["CPU:1"]`, `Device.DEFAULT`, `Device.canonicalize("cpu")`."""

from __future__ import annotations

import atexit
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from inspect import getattr_static

from tiny_runtime import contract, system
from tiny_runtime.errors import Broken, Unavailable, printable
from tiny_runtime.opened import OpenDevice, in_order, make_room
from tiny_runtime.plugins.discovery import find, plugins
from tiny_runtime.plugins.known import DEFAULT_ORDER, FALLBACK, OWNERS
from tiny_runtime.plugins.plugin import Plugin, State, attributed
from tiny_runtime.storage import BUILT_IN
from tiny_uop.context import DEBUG, DEVICE
from tiny_uop.locks import PATIENCE, around_forks, shared_lock, undivided

MEMBERS = ("info", "alloc", "free", "write", "read", "load", "launch", "sync", "close")
PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?::([0-9]+))?")


def _try_first(found: Sequence[Plugin]) -> None:
  from tiny_runtime.plugins.trial import try_first  # late: importing this package tries nothing

  try_first(found)


def brief_arch(arch: str) -> str:
  """An arch for people: a list of flags, `+avx,-amx`, is counted."""
  parts = [(part, part.split(",")) for part in arch.split(":")]
  flags = [len(names) > 1 and all(name[:1] in "+-" for name in names) for _, names in parts]
  return ":".join([f"{len(names)} flags" if flag else part for (part, names), flag in zip(parts, flags)])


class Devices:
  """All devices of this process, opened when first asked for. The one instance is `tiny_runtime.Device`."""

  def __init__(self) -> None:
    self._lock = shared_lock()
    self._opened: dict[str, OpenDevice] = {}
    self._held: list[OpenDevice] = []
    self._default = ""
    self._warned: set[str] = set()

  @property
  def DEFAULT(self) -> str:
    """The device used where none is named: the setting DEVICE, else the first usable one of `DEFAULT_ORDER`. Raises
    Unavailable."""
    if DEVICE.value:
      return self.canonicalize(DEVICE.value)
    if not self._default:
      with undivided:
        self._default = self._choose()
    return self._default

  @DEFAULT.setter
  def DEFAULT(self, name: str) -> None:
    DEVICE.value = self.canonicalize(name) if name else ""

  def canonicalize(self, device: str | None) -> str:
    """The one spelling of a device's name: `cpu:0` → `CPU`, `CPU:1` stays, None → `DEFAULT`. Raises ValueError for
    what is not a name.

    Looks at the spelling only: a schedule may name a device that this machine does not have.
    """
    if device is None:
      return self.DEFAULT
    device, at, rank = device.partition("@")  # of a device of another process, its rank: see `tiny_uop.Sharding`
    if at:
      return f"{self.canonicalize(device)}@{rank}"
    family, _, rest = device.partition(":")
    by_path = (storage := BUILT_IN.get(family.upper())) is not None and storage.by_path
    if by_path and rest:
      return f"{family.upper()}:{rest}"
    match = None if by_path else PATTERN.fullmatch(device)
    if match is None:
      raise ValueError(
        f"{device!r} is not a device name; expected NAME, NAME:index or DISK:/path, for example CPU or CPU:1"
      )
    index = int(match[2] or 0)
    return f"{match[1].upper()}:{index}" if index else match[1].upper()

  @property
  def default(self) -> contract.Device:
    """The device that `DEFAULT` names, opened if it is not yet."""
    return self[self.DEFAULT]

  def get_available_devices(self) -> Iterator[str]:
    """The names of the plugins whose first device can be used here. Looks at each, in the order of their names."""
    found = plugins()
    _try_first(list(found.values()))
    for name in sorted(found):
      if found[name].probe() is State.READY:
        yield name

  def __getitem__(self, name: str) -> contract.Device:
    """The device, opened if it is not yet. Raises Unavailable, Incompatible or Broken, saying what to do."""
    return self.opened(name).device

  def opened(self, name: str) -> OpenDevice:
    """As `Device[name]`, with its compiler and lock: what the rest of this package uses."""
    found = self._opened.get(name)
    if found is not None:
      return found
    name = self.canonicalize(name)
    family = name.partition(":")[0]
    if family not in BUILT_IN:  # tried and imported before there is a lock: see `Plugin.load`
      with undivided:
        plugin = find(family)
        _try_first([plugin])
        plugin.require()
    with undivided, self._lock:
      if name in self._opened:
        return self._opened[name]
      made = self._open(name)
      kept = self._opened.setdefault(name, made)  # a finaliser or signal handler may have opened it since
    if kept is not made:
      made.close()
    return kept

  def compiler(self, name: str, arch: str) -> contract.Compiler:
    """The compiler of device `name` for an arch; neither needs to be present on this machine."""
    plugin = find(self.canonicalize(name).partition(":")[0])
    backend = plugin.load()
    if backend is None:
      raise plugin.error()
    return self._compiler(plugin, backend, arch)

  def storage(self, name: str) -> contract.Capabilities | None:
    """What built-in storage can do, by its canonical name; None for any other device. Opens nothing."""
    found = BUILT_IN.get(name.partition(":")[0])
    return None if found is None else found.capabilities

  def open_names(self) -> tuple[str, ...]:
    """Names of the devices that are open."""
    return tuple(self._opened)

  def trim(self) -> None:
    """Give back to the system what open devices keep only to save time: memory of buffers that are gone, results of
    captured graphs that nobody holds, pages of mapped files that were read; and what this process's heap has of memory
    that was freed. What comes next takes new memory, which costs more than the old. Devices that cannot
    (`Capabilities.trims`) keep theirs."""
    make_room()
    system.trim_heap()

  def close(self) -> None:
    """Close every device. Their buffers are lost; the next use opens them again."""
    with self._lock:
      while self._opened:
        self._opened.popitem()[1].close()

  def before_fork(self) -> None:
    """Let other threads finish what they do with devices that the child goes on with."""
    surviving = [opened for opened in list(self._opened.values()) if opened.capabilities.survives_fork]
    self._held = [opened for opened in in_order(surviving) if opened.hold(PATIENCE)]

  def after_fork(self, in_child: bool) -> None:
    """In a forked child: give up devices opened by the parent that do not survive it. Their threads and driver contexts
    were not copied with it, so a launch would hang; using their buffers is an error instead, and the next use opens the
    device afresh."""
    while self._held:
      self._held.pop().let_go()
    lost = [o for o in self._opened.items() if not o[1].capabilities.survives_fork] if in_child else []
    for name, opened in lost:
      del self._opened[name]
      opened.abandon("it was opened before this process was forked")

  def _open(self, name: str) -> OpenDevice:
    family, _, rest = name.partition(":")
    if (storage := BUILT_IN.get(family)) is not None:
      return OpenDevice(name, storage(name))
    plugin = find(family)
    backend = plugin.require()
    index = int(rest or 0)
    if index >= len(plugin.archs):
      raise Unavailable(
        f"device {name!r} does not exist: {family} has {len(plugin.archs)}, numbered from 0", f"Use {family}"
      )
    with attributed(f"opening {name}", plugin.distribution, plugin.distribution):
      device = backend.open(index)
    lacking = [member for member in MEMBERS if getattr_static(device, member, None) is None]
    if lacking:
      raise Broken(
        f"opening {name}: {plugin.distribution} gave a {type(device).__name__}, which has no {', '.join(lacking)}"
      )
    if DEBUG >= 1:
      print(
        printable(f"device   {name:<8} {plugin.distribution}: {brief_arch(device.info.arch)}")[:120], file=sys.stderr
      )
    compiler = self._compiler(plugin, backend, device.info.arch)
    for other in plugin.refused:
      warnings.warn(f"{other.error()}", RuntimeWarning, stacklevel=4)
    return OpenDevice(name, device, compiler, plugin.distribution, self._forget, backend)

  def _compiler(self, plugin: Plugin, backend: contract.Backend, arch: str) -> contract.Compiler:
    with attributed(f"compiler of {plugin.name} for {arch!r}", plugin.distribution, plugin.distribution):
      return backend.compiler(arch)

  def _forget(self, device: OpenDevice) -> None:
    if self._opened.get(device.name) is device:
      del self._opened[device.name]

  def _choose(self) -> str:
    found = plugins()
    _try_first([found[name] for name in DEFAULT_ORDER if name in found])
    tried: list[Plugin] = []
    for name in DEFAULT_ORDER:
      if name not in found:
        continue
      if found[name].probe() is State.READY:
        self._warn([p for p in tried if p.state is not State.UNAVAILABLE], name)
        return name
      tried.append(found[name])
    why = "".join(f"\n  {p.name} ({p.distribution}): {p.reason}" for p in tried)
    others = [name for name in found if name not in DEFAULT_ORDER]
    todo = "see `python -m tiny_runtime`" if FALLBACK in found else f"pip install {OWNERS[FALLBACK]}"
    if others:
      todo += f", or set DEVICE to one of those installed ({', '.join(others)})"
    raise Unavailable(f"no device is usable{':' if why else ''}{why}" if why else "no device is installed", todo)

  def _warn(self, passed_over: list[Plugin], chosen: str) -> None:
    for plugin in passed_over:
      if plugin.name in self._warned:
        continue
      self._warned.add(plugin.name)
      warnings.warn(f"{plugin.error()}\nUsing {chosen} instead", RuntimeWarning, stacklevel=4)


Device = Devices()
"""The devices of this process: `Device[name]` is one, open; `Device.DEFAULT` the name of the one used where none
is given, `Device.canonicalize(name)` a name's one spelling."""
atexit.register(Device.close)
around_forks(Device.before_fork, Device.after_fork)
