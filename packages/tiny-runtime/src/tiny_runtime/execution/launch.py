"""Launches: one CALL of a schedule, made ready to run any number of times."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from tiny_runtime.binary import IR_ONLY, Binary, Sizes, not_for
from tiny_runtime.buffer import Buffer, buffer_of
from tiny_runtime.compile_cache import compile_cached, kernel_name, settings_key
from tiny_runtime.contract import Memory, Program
from tiny_runtime.counters import GlobalCounters
from tiny_runtime.errors import Unavailable
from tiny_runtime.execution.collectives import CollectiveLaunch
from tiny_runtime.execution.measure import measure_on
from tiny_runtime.execution.printing import print_binary, print_launch
from tiny_runtime.opened import OpenDevice
from tiny_runtime.profiling.recording import begin, end, recorded
from tiny_runtime.units import short
from tiny_uop import Ops, UOp, collective_of, native_of
from tiny_uop.context import BEAM, CACHELEVEL, DEBUG
from tiny_uop.locks import shared_lock, undivided
from tiny_uop.node import forget
from tiny_uop.origins import Origin, origins_of


class Loaded:
  """A kernel compiled and loaded on one device, with its launch sizes computed as far as they are known."""

  __slots__ = ("_fixed", "_last", "_sizes", "binary", "key", "name", "opened", "program", "uses")

  def __init__(self, opened: OpenDevice, binary: Binary, program: Program, kernel: UOp) -> None:
    self.opened = opened
    self.key = kernel.key[:8].hex()
    """What profiles and traces know the kernel by."""
    self.binary = binary
    self.program = program
    self.name = binary.entry
    # a parameter that is neither read nor written was optimised away; it still needs memory to point to
    self.uses = [(p.slot, p.read, p.written or not p.read) for p in binary.params]
    """(number of the argument, whether it is read, whether it is written)."""
    sizes = (*binary.global_size, *binary.local_size, binary.ops, binary.nbytes)
    symbolic = any(size.variables for size in sizes)
    self._sizes = binary.sizes_by_values() if symbolic else binary.sizes
    self._fixed = None if symbolic else binary.sizes({})
    self._last: tuple[list[int], Sizes] | None = None

  def sizes(self, values: Mapping[str, int]) -> Sizes:
    """Global size, local size, operations and bytes for these values of the variables."""
    if self._fixed is not None:
      return self._fixed
    # the layers of a model launch one kernel many times, with the same values
    given, last = [values[name] for name in self.binary.variables], self._last
    if last is None or last[0] != given:
      self._last = last = given, self._sizes(values)
    return last[1]


_loaded: WeakKeyDictionary[UOp, dict[tuple[str, str], Loaded]] = WeakKeyDictionary()
_lock = shared_lock()


def load_kernel(kernel: UOp, opened: OpenDevice) -> Loaded:
  """The kernel, compiled and loaded on a device; at once if it was before. Raises CompileError; Unavailable on
  storage."""
  key = (opened.name, settings_key())
  found = _loaded.get(kernel, {}).get(key) if CACHELEVEL >= 1 else None
  if found is not None and found.opened is opened:
    return found
  if opened.compiler is None:
    reason = f"kernel {kernel_name(kernel)} has its buffers on {opened.name}, which only stores bytes"
    raise Unavailable(reason, "Copy them to a device that runs kernels first")
  if (native := native_of(kernel)) is not None and native.arg.form not in opened.capabilities.native:
    forms = " or ".join(opened.capabilities.native) or IR_ONLY
    raise not_for(native.arg, f"{forms} ({opened.name}, {opened.info.arch})")
  start = begin()
  with undivided:
    timer = measure_on(opened) if BEAM >= 1 else None
    binary = compile_cached(kernel, opened.compiler, opened.distribution, timer, opened.name)
    print_binary(kernel, binary)
    made = Loaded(opened, binary, opened.load(binary), kernel)
  if start:
    end(start, "load", made.name, opened.name, key=made.key)
  with _lock:
    _loaded.setdefault(kernel, {})[key] = made
  forget(kernel)  # it is in every schedule and captured graph, which only ask which one it is
  return made


def new_kernels(calls: Iterable[UOp]) -> list[UOp]:
  """Those of some CALLs whose kernel no device has loaded."""
  kernels = [call for call in calls if call.op is Ops.CALL and call.src[0].op is Ops.SINK]
  return [call for call in kernels if call.src[0] not in _loaded and not is_made(call.src[0])]


def is_made(kernel: UOp) -> bool:
  """Whether there is nothing to compile: a collective, or a program from elsewhere."""
  return collective_of(kernel) is not None or native_of(kernel) is not None


class Values:
  """The integers of a launch, and its sizes: global size, local size, operations and bytes. Launches may share them."""

  __slots__ = ("integers", "sizes")
  integers: list[int]
  sizes: Sizes


class KernelLaunch:
  """A kernel with its buffers and the values of its variables."""

  __slots__ = ("buffers", "loaded", "origins", "uses", "values")

  def __init__(
    self, loaded: Loaded, buffers: Sequence[Buffer], values: Mapping[str, int], origins: tuple[Origin, ...] = ()
  ) -> None:
    self.loaded, self.origins = loaded, origins
    self.buffers = list(buffers)
    """In the order of the CALL's arguments."""
    self.uses = loaded.uses
    self.values = Values()
    self.bind(values)

  def bind(self, values: Mapping[str, int]) -> None:
    """Use other values for the variables, in all launches that share them. Raises ValueError if one is missing."""
    binary = self.loaded.binary
    if missing := [name for name in binary.variables if name not in values]:
      raise ValueError(
        f"kernel {self.loaded.name} needs a value for variable {', '.join(missing)}; given: {dict(values)}"
      )
    self.values.integers = [values[name] for name in binary.variables]
    self.values.sizes = self.loaded.sizes(values)

  @property
  def integers(self) -> list[int]:
    """The values of its variables."""
    return self.values.integers

  @property
  def sizes(self) -> Sizes:
    """Global size, local size, operations and bytes."""
    return self.values.sizes

  @property
  def name(self) -> str:
    """What profiles and DEBUG call it."""
    return self.loaded.name

  @property
  def variables(self) -> tuple[str, ...]:
    """Names of the variables that it uses."""
    return self.loaded.binary.variables

  def devices(self) -> set[OpenDevice]:
    """What it runs on."""
    return {self.loaded.opened}

  def reads(self) -> list[int]:
    """Which arguments the kernel reads."""
    return [slot for slot, read, _ in self.uses if read]

  def writes(self) -> list[int]:
    """Which arguments the kernel writes."""
    return [slot for slot, _, written in self.uses if written]

  def memory(self) -> list[tuple[Memory, int]]:
    """(memory, byte offset) of the arguments, in the order of the binary's parameters; written from now on.

    Raises RuntimeError for reading what was never written or was freed.
    """
    loaded, buffers = self.loaded, self.buffers
    try:
      # reads first: a kernel that updates a buffer in place must find something there
      for slot, read, _ in self.uses:
        if read:
          buffers[slot].to_read()
      return [buffers[slot].to_write() if written else buffers[slot].to_read() for slot, _, written in self.uses]
    except RuntimeError as error:
      error.add_note(f"as an argument of kernel {loaded.name} on {loaded.opened.name}")
      raise

  def run(self, wait: bool = False, count: bool = True) -> float | None:
    """Launch. `wait`: until it is done; gives the seconds that it took. `count`: in GlobalCounters. RuntimeError for
    reading what was never written; DeviceLost, OutOfMemory or Broken if the device fails."""
    start = begin()
    loaded, memory = self.loaded, self.memory()
    global_size, local_size, ops, nbytes = self.sizes
    seconds = 0.0 if wait else None
    debug = DEBUG.value
    recording = None
    if 0 not in global_size and start and recorded(loaded.opened.capabilities):
      recording = loaded.opened.launch_recorded(
        loaded.name, loaded.program, memory, self.integers, global_size, local_size
      )
      seconds = recording.seconds
    elif 0 not in global_size:
      seconds = loaded.opened.launch(
        loaded.name, loaded.program, memory, self.integers, global_size, local_size, wait or debug >= 2 or start > 0
      )  # fmt: skip
    if start:
      end(
        start, "kernel", loaded.name, loaded.opened.name, seconds, ops, nbytes, 1, self.origins, key=loaded.key,
        recording=recording,
      )  # fmt: skip
    if count:
      GlobalCounters.count(1, ops, nbytes, seconds or 0.0)
    if debug >= 2:
      print_launch(loaded.opened.name, loaded.name, seconds or 0.0, ops, nbytes)
    return seconds if wait else None


class CopyLaunch:
  """A copy of one buffer's contents into another, on any two devices: directly, where one reaches the other."""

  __slots__ = ("buffers", "origins")
  variables: tuple[str, ...] = ()

  def __init__(self, target: Buffer, source: Buffer, origins: tuple[Origin, ...] = ()) -> None:
    self.buffers, self.origins = [target, source], origins
    if target.nbytes != source.nbytes:
      raise ValueError(
        f"cannot copy {source!r} ({source.nbytes} bytes) to {target!r} ({target.nbytes} bytes): the sizes differ"
      )

  @property
  def sizes(self) -> Sizes:
    """As those of a kernel: no grid, no operations, and the bytes read and written."""
    return (), (), 0, 2 * self.buffers[0].nbytes

  @property
  def name(self) -> str:
    """What profiles and DEBUG call it."""
    return f"copy from {self.buffers[1].device}"

  def bind(self, values: Mapping[str, int]) -> None:
    """A copy has no variables."""

  def devices(self) -> set[OpenDevice]:
    """Those of target and source."""
    return {buffer.opened for buffer in self.buffers}

  def reads(self) -> list[int]:
    """Which arguments are read."""
    return [1]

  def writes(self) -> list[int]:
    """Which arguments are written."""
    return [0]

  def memory(self) -> list[tuple[Memory, int]]:
    """(memory, byte offset) of target and source; the target is written from now on. RuntimeError as for kernels."""
    target, source = self.buffers
    read = source.to_read()
    return [target.to_write(), read]

  def run(self, wait: bool = False, count: bool = True) -> float | None:
    """Copy; `wait` and `count` as for a kernel. RuntimeError for copying what was never written."""
    profiled = begin()
    target, source = self.buffers
    nbytes, debug, seconds = target.nbytes, DEBUG.value >= 2, 0.0
    timed = wait or debug or profiled > 0
    start = time.perf_counter()
    direct = target.opened.reaches(source.opened)
    if not nbytes:
      target.to_write()
    elif direct:
      read = source.to_read()
      seconds = target.opened.copy_from(target.to_write(), source.opened, read, nbytes, timed) or 0.0
    else:
      # the source's lock is given back before the target's is taken, so two copies in opposite directions cannot block
      # each other
      data = source.look()
      target.opened.write(*target.to_write(), data)
      if wait or profiled:
        target.opened.sync()
      seconds = time.perf_counter() - start if timed else 0.0
    way = self.way(direct)
    if profiled:
      name = f"copy from {source.device}{way}"
      end(profiled, "copy", name, target.opened.name, seconds, 0, 2 * nbytes, origins=self.origins)
    if count:
      GlobalCounters.count(1, 0, 2 * nbytes, seconds)
      if way:
        GlobalCounters.count_copy(target.nbytes, direct)
    if debug:
      print_launch(target.opened.name, f"copy {short(nbytes)} from {source.device}{way}", seconds, 0, 2 * nbytes)
    return seconds if wait else None

  def way(self, direct: bool) -> str:
    """How a copy between two devices that compute goes. Empty for any other copy."""
    target, source = self.buffers
    if target.device == source.device or not all(device.capabilities.kernels for device in self.devices()):
      return ""
    return ", peer" if direct else ", by host"


Launch = KernelLaunch | CopyLaunch | CollectiveLaunch


def prepare(call: UOp) -> Launch:
  """One CALL of a schedule made ready: compiled, loaded, its buffers found (not yet allocated)."""
  if call.op is not Ops.CALL:
    raise TypeError(f"a schedule is made of CALLs, got {call!r}")
  body, *arguments = call.src
  values = {uop.src[0].arg[0]: uop.unbind()[1] for uop in arguments if uop.op is Ops.BIND}
  buffers = [buffer_of(uop) for uop in arguments if uop.op is not Ops.BIND]
  if body.op is Ops.COPY:
    if len(buffers) != 2:
      raise ValueError(f"a copy takes a target and a source, got {len(buffers)} buffers")
    return CopyLaunch(buffers[0], buffers[1], origins_of(call))
  if body.op is not Ops.SINK:
    raise TypeError(f"the body of a CALL is a kernel SINK or a COPY, got {body!r}")
  if (collective := collective_of(body)) is not None:
    return CollectiveLaunch(collective.arg, buffers, origins_of(call))
  name = kernel_name(body)
  if not buffers:
    raise ValueError(f"kernel {name} is called without buffers, so no device is known to run it")
  if others := [b for b in buffers if b.device != buffers[0].device]:
    raise ValueError(
      f"kernel {name} has buffers on {buffers[0].device} and {others[0].device}; copy them to one device first"
    )
  launch = KernelLaunch(load_kernel(body, buffers[0].opened), buffers, values, origins_of(call))
  check_sizes(name, launch)
  return launch


def check_sizes(name: str, launch: KernelLaunch) -> None:
  """Raise ValueError where a buffer is smaller than the kernel takes it to be; the access would go astray."""
  for info in launch.loaded.binary.params:
    if info.slot >= len(launch.buffers):
      raise ValueError(f"kernel {name} takes a buffer for PARAM {info.slot}, the CALL gives {len(launch.buffers)}")
    buffer, needed = launch.buffers[info.slot], info.size * info.dtype.scalar().itemsize
    if buffer.nbytes < needed:
      raise ValueError(
        f"kernel {name}: PARAM {info.slot} needs {needed} bytes ({info.size} × {info.dtype.name}), got {buffer!r}"
      )
