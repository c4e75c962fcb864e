"""`OpenDevice`: an open device with its compiler, its loaded programs and its lock.

All calls of shared code into a plugin's `Device` go through here. It lets one thread in at a time, as the contract
promises, and turns whatever the plugin raises into the closed list of errors.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from tiny_runtime.binary import Binary
from tiny_runtime.contract import (
  Backend,
  Compiler,
  Device,
  Graph,
  GraphChange,
  GraphCopy,
  GraphKernel,
  Memory,
  Program,
  Recording,
)
from tiny_runtime.counters import GlobalCounters
from tiny_runtime.errors import BackendError, Broken, DeviceLost, OutOfMemory
from tiny_runtime.plugins.plugin import describe, is_fault, shown
from tiny_runtime.profiling.recording import Told, begin, end, end_of_alloc
from tiny_uop.locks import shared_lock

T = TypeVar("T")
_numbers = count()


class Spare(Protocol):
  """Something that keeps memory only to save time."""

  def give_up(self) -> None:
    """Let go of it."""


spare: WeakSet[Spare] = WeakSet()
"""What is asked for its memory before an allocation fails."""


def _holders() -> list[Spare]:
  while True:
    try:
      return list(spare)
    except RuntimeError:  # one came in the middle, in another thread
      continue


def make_room() -> None:
  """Let go of what is kept only to save time. Twice: what the first lets go of may be memory that a device keeps."""
  for _ in range(2):
    for holder in _holders():
      holder.give_up()


class OneCall:
  """The lock of a device that is not re-entrant: the thread that has it cannot take it again."""

  def __init__(self, name: str) -> None:
    self._name = name
    self._lock = shared_lock()
    self._owner = 0  # a thread; in a forked child maybe one that there is no more

  def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
    """Raises RuntimeError in the thread that has it, which would wait for itself; where it need not be `blocking`,
    that gets False."""
    if not self._lock.acquire(blocking, timeout):
      return False
    if self._owner != (me := threading.get_ident()):
      self._owner = me
      return True
    self._lock.release()
    if not blocking:
      return False
    raise RuntimeError(
      f"{self._name} is used by a signal handler or a finaliser in the middle of a call of {self._name} in the same "
      "thread, which the device does not support: note what is to be done, and do it later"
    )

  def release(self) -> None:
    """Give it back."""
    self._owner = 0
    self._lock.release()

  def __enter__(self) -> None:
    self.acquire()

  def __exit__(self, *_: object) -> None:
    self.release()


class OpenDevice:
  """A `Device` of the contract, made safe to call from several threads. `compiler` and `backend` are None
  for storage."""

  def __init__(
    self, name: str, device: Device, compiler: Compiler | None = None, distribution: str = "",
    on_lost: Callable[[OpenDevice], None] | None = None, backend: Backend | None = None,
  ) -> None:  # fmt: skip
    self.name = name
    self.device = device
    self.compiler = compiler
    self.distribution = distribution
    self.info = device.info
    self.capabilities = device.info.capabilities
    self.backend = backend
    self.lost = ""
    self._on_lost = on_lost
    self._number = next(_numbers)
    self._reached: WeakKeyDictionary[OpenDevice, bool] = WeakKeyDictionary()
    self._lock: threading.RLock | OneCall = shared_lock() if self.capabilities.reentrant else OneCall(name)
    self._released: deque[Memory] = deque()
    self._allocations: dict[int, int] = {}
    """The numbers that profiles know memory by, by the ids of the handles."""
    if self.capabilities.trims:
      spare.add(self)  # several devices may have one memory: a GPU that is open twice, or is another plugin's too

  def alloc(self, nbytes: int, told: Told | None = None) -> Memory:
    """New memory; a zero-size buffer still gets a handle. Raises OutOfMemory after trying to make room. `told` is what
    profiles say of it."""
    start = begin()
    action = f"allocating {nbytes} bytes on {self.name}"
    try:
      memory = self._call(action, self.device.alloc, max(1, nbytes))
    except OutOfMemory:
      gc.collect()  # buffers may hang in reference cycles
      make_room()
      memory = self._call(action, self.device.alloc, max(1, nbytes))
    GlobalCounters.hold(nbytes)
    if start:
      self._allocations[id(memory)] = end_of_alloc(start, f"allocate on {self.name}", self.name, nbytes, told)
    return memory

  def release(self, memory: Memory, nbytes: int) -> None:
    """Give memory back, now or, if the device is busy, as soon as it is not. Called by the garbage collector, so it
    never waits."""
    start = begin()
    GlobalCounters.hold(-nbytes)
    self._released.append(memory)
    if self._lock.acquire(blocking=False):
      try:
        self._free_released()
      finally:
        self._lock.release()
    number = self._allocations.pop(id(memory), 0) if self._allocations else 0
    if start:
      end(start, "free", f"free on {self.name}", self.name, nbytes=nbytes, memory=number)

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    """Copy bytes in."""
    start = begin()
    self._call(f"writing {data.nbytes} bytes to {self.name}", self.device.write, memory, offset, data)
    if start:
      end(start, "write", f"write to {self.name}", self.name, nbytes=data.nbytes)

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    """Copy bytes out."""
    start = begin()
    self._call(f"reading {out.nbytes} bytes from {self.name}", self.device.read, memory, offset, out)
    if start:
      end(start, "read", f"read from {self.name}", self.name, nbytes=out.nbytes)

  def view(self, memory: Memory) -> memoryview:
    """All of `memory` as bytes, after all launches. Only where `capabilities.host_mapped`."""
    return self._call(f"mapping memory of {self.name}", self._view, memory)

  def _view(self, memory: Memory) -> memoryview:
    self.device.sync()
    view: memoryview = self.device.view(memory)  # type: ignore[attr-defined]  # claimed
    return view

  def adopt(self, data: memoryview, told: Told | None = None) -> Memory:
    """Memory of this process as the device's; released as any other. Only where `capabilities.host_import`."""
    start = begin()
    action = f"adopting {data.nbytes} bytes on {self.name}"
    memory = self._call(action, self.device.adopt, data)  # type: ignore[attr-defined]  # claimed
    GlobalCounters.hold(data.nbytes)
    if start:
      self._allocations[id(memory)] = end_of_alloc(start, f"adopt on {self.name}", self.name, data.nbytes, told)
    return memory

  def trim(self) -> None:
    """Give back memory that is kept only to save time. Only where `capabilities.trims`."""
    self._call(f"trimming {self.name}", self.device.trim)  # type: ignore[attr-defined]  # claimed

  def give_up(self) -> None:
    """See Spare. Does nothing for a device that is gone, and one that this thread is in the middle of a call of."""
    with suppress(BackendError, RuntimeError):
      self.trim()

  def load(self, binary: Binary) -> Program:
    """Make a binary launchable."""
    return self._call(f"loading kernel {binary.entry} on {self.name}", self.device.load, binary)

  def launch(
    self, name: str, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...], wait: bool,
  ) -> float | None:  # fmt: skip
    """Run a program called `name`. This is the hot path: no closures."""
    with self._lock:
      if self.lost:
        raise self._gone(f"kernel {name} on {self.name}")
      try:
        return self.device.launch(program, buffers, integers, global_size, local_size, wait)
      except BaseException as error:
        raise self._translate(error, f"kernel {name} on {self.name}") from shown(error)
      finally:
        if self._released:
          self._free_released()

  def launch_recorded(
    self, name: str, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...],
  ) -> Recording:  # fmt: skip
    """Run a program called `name`, and record what the hardware tells of it. Only where `capabilities.recordings`."""
    launch, action = self.device.launch_recorded, f"recording kernel {name} on {self.name}"  # type: ignore[attr-defined]  # claimed
    recording: Recording = self._call(action, launch, program, buffers, integers, global_size, local_size)
    return recording

  def make_graph(
    self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory], others: Sequence[OpenDevice] = ()
  ) -> Graph:
    """Prepare a list of calls. Only where `capabilities.graphs`; with calls of `others`, `shares_graphs` with each."""
    action, make = f"preparing a graph of {len(calls)} launches on {self.name}", self.device.make_graph  # type: ignore[attr-defined]  # claimed
    if not others:
      return self._call(action, make, calls, memories)
    with self._together(others, action):
      return make(calls, memories)

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, Memory]], kernels: Sequence[tuple[int, GraphKernel]],
    others: Sequence[OpenDevice] = (), wait: bool = False,
  ) -> float | None:  # fmt: skip
    """Run a graph with these changes. Gives seconds if `wait`. A hot path, as `launch` is: `with` would take twice as
    long."""
    if others:
      with self._together(others, f"a captured graph on {self.name} and {', '.join(other.name for other in others)}"):
        return self.device.run_graph(graph, memories, kernels, wait)  # type: ignore[attr-defined,no-any-return]
    lock = self._lock
    lock.acquire()
    try:
      if not self.lost:
        return self.device.run_graph(graph, memories, kernels, wait)  # type: ignore[attr-defined,no-any-return]
    except BaseException as error:
      raise self._translate(error, f"a captured graph on {self.name}") from shown(error)
    finally:
      if self._released:
        self._free_released()
      lock.release()
    raise self._gone(f"a captured graph on {self.name}")

  def change_graph(self, graph: Graph, changes: Sequence[GraphChange]) -> None:
    """Change calls of a graph. Only where `capabilities.graph_changes`."""
    self._call(f"changing a captured graph on {self.name}", self.device.change_graph, graph, changes)  # type: ignore[attr-defined]  # claimed

  def graph_times(self, graph: Graph) -> Sequence[tuple[float, float]]:
    """When each call of a graph ran in its last run that was waited for. Only where `capabilities.graph_times`."""
    return self._call(f"asking {self.name} for times", self.device.graph_times, graph)  # type: ignore[attr-defined]  # claimed

  def shares_graphs(self, other: OpenDevice) -> bool:
    """Whether one graph may have calls of both devices."""
    claimed = all(record.graphs and record.peer_graphs for record in (self.capabilities, other.capabilities))
    return claimed and self.reaches(other) and other.reaches(self)

  def reaches(self, source: OpenDevice) -> bool:
    """Whether `copy_from` can be used: both devices, or the one that they are, claim `peers`, are of one backend, and
    one reaches the other."""
    if not (self.capabilities.peers and source.capabilities.peers):
      return False
    if source is self:
      return True
    if self.backend is None or self.backend is not source.backend:
      return False
    found = self._reached.get(source)
    if found is None:
      with self._together((source,), f"asking {self.name} whether it reaches {source.name}"):
        found = self._reached[source] = bool(self.device.reaches(source.device))  # type: ignore[attr-defined]  # claimed
    return found

  def copy_from(
    self, to: tuple[Memory, int], source: OpenDevice, of: tuple[Memory, int], nbytes: int, wait: bool
  ) -> float | None:
    """Copy bytes from (memory, byte offset) of a device that this one `reaches`. Seconds if `wait`."""
    with self._together((source,), f"copying {nbytes} bytes from {source.name} to {self.name}"):
      return self.device.copy_from(*to, source.device, *of, nbytes, wait)  # type: ignore[attr-defined,no-any-return]

  @contextmanager
  def _together(self, others: Sequence[OpenDevice], action: str) -> Iterator[None]:
    """Nobody else calls this device and these others meanwhile. Locks are taken in the order in which devices were
    opened, so that two copies in opposite directions do not wait for each other."""
    everyone = in_order({self, *others})
    locks = [device._lock for device in everyone]  # `abandon` replaces them
    for lock in locks:
      lock.acquire()
    try:
      for device in everyone:
        if device.lost:
          raise device._gone(action)
      try:
        yield
      except DeviceLost as error:
        raise self._whose(error, everyone, action) from shown(error)
      except BaseException as error:
        raise self._translate(error, action) from shown(error)
    finally:
      for device in everyone:
        device._free_released()
      for lock in reversed(locks):
        lock.release()

  def _whose(self, error: DeviceLost, everyone: Sequence[OpenDevice], action: str) -> BackendError:
    """The loss of one of several devices: each that cannot be waited for is lost; this one, if all can."""
    lost: list[tuple[OpenDevice, DeviceLost]] = []
    for device in everyone:
      try:
        device.device.sync()
      except DeviceLost as found:
        lost.append((device, found))
      except Exception:  # whatever it is, it is no loss
        continue
    return [device._translate(found, action) for device, found in lost or [(self, error)]][0]

  def sync(self) -> None:
    """Wait for all launches."""
    self._call(f"waiting for {self.name}", self.device.sync)

  def close(self) -> None:
    """Close the device; whatever goes wrong then is of no use to anyone."""
    with self._lock, suppress(Exception, SystemExit):
      if not self.lost:
        self._free_released()
        self.lost = "it was closed"
        self.device.close()

  def abandon(self, why: str) -> None:
    """Give the device up without touching it; whatever has memory on it will say `why`."""
    self.lost = why

  def hold(self, seconds: float) -> bool:
    """Wait for what other threads do with the device, and keep them from doing more until `let_go`. False if that
    took too long, or this thread itself is in the middle of something."""
    with suppress(RuntimeError):
      return self._lock.acquire(timeout=seconds)
    return False

  def let_go(self) -> None:
    """After a `hold` that gave True."""
    self._lock.release()

  def _call(self, action: str, call: Callable[..., T], *arguments: Any) -> T:
    with self._lock:
      if self.lost:
        raise self._gone(action)
      try:
        return call(*arguments)
      except BaseException as error:
        raise self._translate(error, action) from shown(error)
      finally:
        if self._released:
          self._free_released()

  def _gone(self, action: str) -> DeviceLost:
    return DeviceLost(f"{action}: the device is gone with all its memory: {self.lost}. Compute the data again")

  def _translate(self, error: BaseException, action: str) -> BackendError:
    """What to raise for something that the plugin raised. Raises what is not the plugin's, as KeyboardInterrupt."""
    if not is_fault(error):
      raise error
    if isinstance(error, DeviceLost):
      self.lost = str(error)
      if self._on_lost is not None:
        self._on_lost(self)
      with suppress(Exception):
        self.device.close()
    if isinstance(error, BackendError):
      return error.within(action)
    who = self.distribution or "the backend"
    return Broken(f"{action}: {who} raised {describe(error)}, which the plugin contract does not allow")

  def _free_released(self) -> None:
    while self._released:
      try:
        memory = self._released.popleft()
      except IndexError:  # a finaliser was faster
        return
      if self.lost:
        continue
      with suppress(Exception, SystemExit):  # nobody is there to be told; the next real call will fail by itself
        self.device.free(memory)


def in_order(devices: Iterable[OpenDevice]) -> list[OpenDevice]:
  """Devices in the one order in which anyone takes the locks of several."""
  return sorted(devices, key=lambda device: device._number)
