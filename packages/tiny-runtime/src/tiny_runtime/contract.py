"""The contract between tiny-runtime and a backend plugin. README.md of this package is the same as a tutorial.

A backend has a pure half (`Backend`, `Compiler`, `Binary`: importable and usable with no driver present) and a
hardware half (`Device`). They are protocols: a plugin implements the methods and need not inherit from anything here.
Read `Backend` first, at the end of this file, then `Compiler`, `Device`, and what is optional when you want it.

All of it is tried by the conformance kit (`tiny_runtime.conformance`): the pure half at level 0, memory at level 1,
launches at levels 2 and 3, order and errors at level 4, and each claim of `Capabilities` at level 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tiny_runtime.binary import Binary
from tiny_runtime.errors import Unavailable
from tiny_uop import UOp
from tiny_uop.records import dataclass

API: tuple[int, int] = (1, 10)
"""Version of this contract. The major is also in the entry-point group's name. A plugin's `api` must have this major,
and a minor not above."""

Memory: TypeAlias = Any
"""A device's handle of one allocation, opaque to shared code. Whatever `alloc` returned."""

Program: TypeAlias = Any
"""A device's handle of one loaded binary, opaque to shared code. Whatever `load` returned."""

Graph: TypeAlias = Any
"""A device's handle of a list of launches, opaque to shared code. Whatever `make_graph` returned."""


class Measure(Protocol):
  """What a searching compiler (`BEAM`) is given for one kernel: it times candidates on a device that the compiler need
  not know, and keeps what the search found, so that the next process need not search. (`recall` and `remember`: since
  1.2.)"""

  def __call__(self, binary: Binary) -> float:
    """Seconds that one launch of a candidate takes. Raises BackendError where it does not run."""

  def recall(self) -> str | None:
    """What `remember` was given for this kernel, in any process, under the same key of the compiler, versions and
    settings; None if nothing was. Any text may come back: one that makes no sense is as good as none."""

  def remember(self, found: str) -> None:
    """Keep the result of a search, as text."""


@dataclass(frozen=True)
class Capabilities:
  """What a device can do beyond the required methods. Shared code asks this record and never compares device names.

  `dtypes` are the names of the types that programs can load, store and compute with. Every claim made here is tested
  by the conformance kit.
  """

  kernels: bool = True
  """`load` and `launch` work. False: storage only."""
  dtypes: frozenset[str] = frozenset()
  """Names of the data types that kernels may use, e.g. `frozenset({"bool", "int32", "float32"})`."""
  local_memory: int = 0
  """Bytes of memory shared by a workgroup. 0: no workgroups, so no LOCAL loops and no BARRIER."""
  max_local_size: int = 1
  """Most threads in one workgroup."""
  threads: int = 0
  """Without workgroups: how many threads share the outermost loop of a kernel, about. 0: few, for which a kernel whose
  sums are long need not be two, so that they share the terms as well. (Since 1.10.)"""
  atomics: frozenset[str] = frozenset()
  """Updates of memory that threads may make at once, e.g. `"GLOBAL ADD int32"`: in which memory (GLOBAL or LOCAL), by
  which operation of a STORE's Accumulate, of which type; `tiny_uop.updates` makes them. (Since 1.4.)"""
  fused_multiply_add: bool = False
  """Programs may take the product of `a*b + c`, of float32 and float64, unrounded: README of tiny-uop, "Rounding".
  False: every product is rounded. (Since 1.5.)"""
  host_mapped: bool = False
  """Implements `HostMapped`: copies to and from the host need no staging buffer."""
  host_import: bool = False
  """Implements `HostImport`: memory of this process becomes the device's without a copy. (Since 1.3.)"""
  persistent: bool = False
  """Memory has contents before anything is written to it, as a file has; reading it first is no error."""
  graphs: bool = False
  """Implements `Graphs`: a list of launches is one submission."""
  peers: bool = False
  """Implements `Peers`: copies from another device of the same backend do not go through the host. (Since 1.4.)"""
  survives_fork: bool = False
  """Memory, programs and graphs are this process's own, with nothing behind them that a forked child would not have:
  there it has copies of them all, as they are between two calls, and goes on with these. Where it is not claimed, the
  child's first use opens the device anew, and buffers of the parent are a DeviceLost there. (Since 1.5.)"""
  reentrant: bool = False
  """A method may be called while one of the same thread is under way, by a signal handler or by a finaliser that the
  garbage collector calls: at every point where Python code of the plugin can be interrupted so, it may be. What was
  under way goes on as if nothing had been. Where it is not claimed, whoever does it gets a RuntimeError. (Since
  1.5.)"""
  peer_graphs: bool = False
  """With `graphs` and `peers`: a graph may have calls of several devices; see `Graphs`. (Since 1.4.)"""
  graph_times: bool = False
  """With `graphs`: implements `GraphTimes`, for profiles. (Since 1.6.)"""
  trims: bool = False
  """Implements `Trims`: memory that is kept only to save time goes back to the system on demand. (Since 1.7.)"""
  graph_changes: bool = False
  """With `graphs`: implements `GraphChanges`: many calls of a graph change at once. (Since 1.7.)"""
  recordings: bool = False
  """Implements `Recordings`: the hardware records what the waves of a launch do, and counts. (Since 1.8.)"""
  native: tuple[str, ...] = ()
  """Forms of programs that come from elsewhere: a kernel that is one NATIVE, whose NativeCode has one of them. The
  compiler takes it if it was made for an arch that this device runs, and raises CompileError naming both if not. The
  first is the form of `Binary.code`. (Since 1.9.)"""
  stream: str = ""
  """Implements `Streamed`: whose API the stream of its launches belongs to, "cuda" for CUDA's driver. Other libraries
  put work of their own between launches there. (Since 1.7.)"""


@dataclass(frozen=True)
class DeviceInfo:
  """What an open device is."""

  name: str
  """Canonical name, as the user writes it: `AMD`, `AMD:1`."""
  arch: str
  """What `Backend.compiler` takes: code compiled for one arch runs on every device that has it."""
  memory: int
  """Bytes of memory on the device; 0 if not known."""
  capabilities: Capabilities


@runtime_checkable
class Compiler(Protocol):
  """Kernel UOp → Binary. Pure: needs no device, can be pickled, and gives the same bytes for the same kernel, also when
  several threads compile at once."""

  @property
  def key(self) -> str:
    """All that the output depends on besides the kernel: target, flags, versions of tools. Part of the cache key.

    The same in every process. Asked for with each kernel: what takes long to find out is found out once.
    """

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Compile a kernel-level SINK. Raises CompileError with the source. `measure`, if given, times candidates on the
    device. A kernel that is one NATIVE comes only where `Capabilities.native` has its form."""


@runtime_checkable
class Device(Protocol):
  """One open piece of hardware. Methods may be called from any thread, one at a time; but see
  `Capabilities.reentrant`."""

  @property
  def info(self) -> DeviceInfo:
    """What this is; constant while open."""

  def alloc(self, nbytes: int) -> Memory:
    """New memory of any size `nbytes` ≥ 1, contents undefined, aligned for any access. Gives any object, which only
    this device looks into. Raises OutOfMemory where there is no room, and stays usable."""

  def free(self, memory: Memory) -> None:
    """Give memory back. Called once per `alloc`; launches that use it may still be running, so wait for them or
    defer."""

  def write(self, memory: Memory, offset: int, data: memoryview) -> None:
    """Copy `data` in at byte `offset`, after all launches so far. Any number of bytes at any place inside of the
    memory; `data` is contiguous, may be read-only, and may be reused on return."""

  def read(self, memory: Memory, offset: int, out: memoryview) -> None:
    """Fill `out`, which is contiguous, from byte `offset`, after all launches so far have finished."""

  def load(self, binary: Binary) -> Program:
    """Make a binary launchable; done once per binary. Gives any object; it is dropped when nothing holds it, which is
    when the driver's part of it is to be released."""

  def launch(
    self, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...], wait: bool,
  ) -> float | None:  # fmt: skip
    """Run a program after all launches before it.

    `buffers` are (memory, byte offset) in the order of `Binary.params`: element 0 of the buffer is at that byte, which
    is aligned for the element and for no more. One memory may come several times. `integers` are in the order of
    `Binary.variables`; one may need 64 bits. `global_size` counts workgroups per axis and `local_size` the threads of
    one: `Binary`'s expressions, evaluated. The sequences may be reused on return.

    With `wait`, returns the seconds it took once it is done; otherwise may return None at once. Raises DeviceLost if
    the device died, of this launch or one before it.
    """

  def sync(self) -> None:
    """Wait for all launches."""

  def close(self) -> None:
    """Give everything back. Nothing is called after it; calling it twice is allowed."""


@runtime_checkable
class Trims(Protocol):
  """Optional, claimed by `Capabilities.trims`: memory that was freed, and is kept for the next allocation."""

  def trim(self) -> None:
    """Give back to the system what no allocation has, or can be read again. Launches may still be running."""


@runtime_checkable
class HostMapped(Protocol):
  """Optional, claimed by `Capabilities.host_mapped`: memory that the host can address."""

  def view(self, memory: Memory) -> memoryview:
    """All of `memory` as bytes (format "B"): the memory itself, no copy. Shared code calls `sync` before it looks, and
    sees what launches wrote then. Writable where the device runs kernels. Valid until the memory is freed."""


@runtime_checkable
class HostImport(Protocol):
  """Optional, claimed by `Capabilities.host_import`: memory of this process that programs work on where it is."""

  def adopt(self, data: memoryview) -> Memory:
    """A handle of `data`, bytes (format "B"), contiguous, writable, at any address: what launches write is seen in it,
    and they see what the host wrote before. Keeps `data` until the handle is freed, and then drops it."""


@dataclass(frozen=True, slots=True)
class GraphKernel:
  """A launch in a graph: what `Device.launch` takes, with memories by their position in the graph's list."""

  program: Program
  buffers: tuple[tuple[int, int], ...]
  """(position in the list of memories, byte offset), in the order of `Binary.params`."""
  integers: tuple[int, ...]
  global_size: tuple[int, ...]
  """If a size is 0, there is nothing to run."""
  local_size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphCopy:
  """`nbytes` ≥ 1 bytes from one memory of the device to another or the same, as memmove."""

  target: tuple[int, int]
  """(position in the list of memories, byte offset)."""
  source: tuple[int, int]
  nbytes: int


@runtime_checkable
class Graphs(Protocol):
  """Optional, claimed by `Capabilities.graphs`: launches prepared once, then run as one submission, in order.

  Where `Capabilities.peer_graphs` is claimed as well, a graph may be of several devices of the backend, which all claim
  it and reach each other (`Peers.reaches`): the one whose methods are called, and others. A call runs on the device
  that loaded its program, over memories of that device; a GraphCopy is between any two. Calls that are of different
  devices and have no memory in common may run at the same time; else they run in order. A run comes after all launches
  so far on all of these devices, and what comes later on any of them comes after it. Nobody calls the others
  meanwhile.
  """

  def make_graph(self, calls: Sequence[GraphKernel | GraphCopy], memories: Sequence[Memory]) -> Graph:
    """Prepare a list of calls over `memories`. The graph is dropped when nothing holds it; whoever made it keeps
    programs and memories alive and does not free them while it may be run. Two positions may name one memory."""

  def run_graph(
    self, graph: Graph, memories: Sequence[tuple[int, Memory]], kernels: Sequence[tuple[int, GraphKernel]], wait: bool
  ) -> float | None:
    """Run all calls, after all launches before. First change the graph, for this and later runs: `memories` are
    (position, the memory to use there), `kernels` (index of a call, the same program and buffers with other integers
    and sizes). Both are empty in the usual case, which should cost as little as one launch. `wait` and errors: see
    `Device.launch`."""


@runtime_checkable
class Streamed(Protocol):
  """Optional, claimed by `Capabilities.stream`: the launches are in a stream of an API that others can call."""

  def enter_stream(self) -> int:
    """Let this thread call the API for this device; gives the handle of the stream, always the same. What is put there
    runs after all launches so far and before those to come. Raises DeviceLost."""

  def address_of(self, memory: Memory) -> int:
    """Where a memory is, as the API and its kernels have it: the same until it is freed."""


@dataclass(frozen=True)
class GraphChange:
  """Other integers and sizes for `calls` of a graph, by their indices, all of one program."""

  calls: tuple[int, ...]
  integers: tuple[int, ...]
  global_size: tuple[int, ...]
  local_size: tuple[int, ...]


@runtime_checkable
class GraphChanges(Protocol):
  """Optional, claimed by `Capabilities.graph_changes`: the layers of a model launch one kernel many times, with the
  same values of variables."""

  def change_graph(self, graph: Graph, changes: Sequence[GraphChange]) -> None:
    """From the next run on, the calls of each change have these integers and sizes, as if `run_graph` were given each
    of them. The same calls come together again and again, so to change them should cost as little as to change
    one."""


@runtime_checkable
class GraphTimes(Protocol):
  """Optional, claimed by `Capabilities.graph_times`: when each call of a graph ran."""

  def graph_times(self, graph: Graph) -> Sequence[tuple[float, float]]:
    """Of the last `run_graph` with `wait`, the seconds from its beginning to the begin and to the end of each call, in
    their order; both the same for a call without anything to run. Asked for after each such run, if at all: to tell
    them must cost no other run anything, and that one little. What is given stays as it is, and is looked at later:
    a sequence may be made of what was noted then."""


@dataclass(frozen=True)
class Recording:
  """What the hardware recorded of one launch, in the vendor's own form; `tiny_viz` reads AMD's."""

  arch: str
  """Of the device."""
  code: bytes
  """The code object that ran, and the name of the `kernel` in it."""
  kernel: str
  seconds: float
  """That the kernel took, as for `Device.launch`."""
  traces: tuple[tuple[int, bytes], ...]
  """Thread traces: the number of a shader engine, and its packets."""
  counters: bytes
  """Performance counters, 64 bits each."""
  layout: tuple[tuple[str, str, int, dict[str, int]], ...]
  """What they are: name, the block that counts, the byte at which its values begin, and the parts of the GPU of which
  there is one each, the largest first: `{"xcc": 8, "se": 4}`."""


@runtime_checkable
class Recordings(Protocol):
  """Optional, claimed by `Capabilities.recordings`: launches of which the hardware records what each wave did."""

  def launch_recorded(
    self, program: Program, buffers: Sequence[tuple[Memory, int]], integers: Sequence[int],
    global_size: tuple[int, ...], local_size: tuple[int, ...],
  ) -> Recording:  # fmt: skip
    """As `Device.launch` with `wait`, on its own: nothing else runs meanwhile. Raises OutOfMemory where there is no
    room for what is recorded."""


@runtime_checkable
class Peers(Protocol):
  """Optional, claimed by `Capabilities.peers`: copies between devices of one backend, which nothing waits for."""

  def reaches(self, source: Any) -> bool:
    """Whether `copy_from` can be used with this other device, which the same backend opened and which is open: what
    does not can be copied by way of the host. Does once what is needed for it, and is called before the first copy;
    the answer holds for as long as both devices are open."""

  def copy_from(
    self, memory: Memory, offset: int, source: Any, source_memory: Memory, source_offset: int, nbytes: int, wait: bool
  ) -> float | None:
    """Copy `nbytes` ≥ 1 bytes, at any places, from a memory of `source` to a memory of this device. `source` is a
    device that it reaches, or this device itself: then it is as memmove, also from one memory to itself.

    It comes after all launches so far on both devices, and whatever comes later on either of them (launches, reads,
    writes, frees) comes after it. Nobody calls the other device meanwhile. `wait`: see `Device.launch`. Raises
    DeviceLost if either device died; shared code asks both, by `sync`, which it was.
    """


@runtime_checkable
class Backend(Protocol):
  """What an entry point in the group `tiny_runtime.backends.v1` names (or a class of it that takes no arguments).

  Importing its module must work on any machine, with no driver present and no side effect.
  """

  @property
  def api(self) -> tuple[int, int]:
    """The version of this contract that the plugin was written for, as numbers of its own: `(1, 0)`."""

  @property
  def ir(self) -> tuple[int, int]:
    """Lowest and highest version of the IR (`tiny_uop.IR_VERSION`) that its compiler understands: `(1, 1)`."""

  def probe(self) -> Sequence[str] | Unavailable:
    """The arch of each usable device, in index order; or why there is none, returned, not raised. Quick; must not
    hold the device."""

  def open(self, index: int) -> Device:
    """Open device `index` of those that `probe` lists. Raises Unavailable."""

  def compiler(self, arch: str) -> Compiler:
    """The compiler for an arch that `probe` listed or the plugin documents. Needs no device."""
