"""What a driver fills in, so that `QueueDevice` makes a device of the plugin contract of it.

One queue takes submissions and runs them one after the other, each a list of commands in order. The driver says what
commands look like in memory, how the hardware is told that there are some, and how many submissions are done. All
else (order, waiting, arguments, copies from and to the host, memory that is used again, graphs, errors that name
kernels) is the base's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

from tiny_runtime.binary import Binary
from tiny_runtime.contract import DeviceInfo, Recording

Sizes: TypeAlias = tuple[int, int, int]
"""Along x, y and z."""

Prepared: TypeAlias = Any
"""A driver's own form of a list of commands, ready to be submitted any number of times."""


def three(sizes: Sequence[int]) -> Sizes:
  """Sizes of a launch along x, y and z: 1 where there are fewer."""
  x, y, z = (*sizes, 1, 1, 1)[:3]
  return x, y, z


class Kind(Enum):
  """What memory is for."""

  DEVICE = auto()
  """The device's own. The host reaches it by copies only."""
  HOST = auto()
  """The host's, which both see as it is at any time: arguments, what is on its way, signals."""
  CODE = auto()
  """As DEVICE, and the device may execute what is in it. Addresses are not used twice, because a device may have
  instructions of before in a cache."""


@dataclass(slots=True, eq=False)
class Block:
  """Memory that the device can use."""

  address: int
  """What the device calls it."""
  nbytes: int
  kind: Kind
  view: memoryview | None = None
  """The bytes themselves; of kind HOST only."""
  handle: Any = None
  """The driver's own."""
  last: int = 0
  """The last submission that is known to use it; those of graphs know themselves."""


@dataclass(slots=True, eq=False)
class Kernel:
  """A kernel as a driver knows it; a driver's own is a subclass. `image` goes to `address`, where the base puts it
  before the first launch, at a multiple of a page."""

  name: str
  image: bytes
  address: int = 0
  head: bytes = field(default=b"", kw_only=True)
  """What stands in memory before the arguments of each launch: whole words of 64 bits."""

  def placed(self) -> bytes:
    """The image as it is to be at `address`."""
    return self.image

  def variant(self, words: Sequence[int]) -> Kernel:
    """The kernel for a launch with these arguments: this one, or another of its image that takes them, too."""
    return self

  def arguments(self, launch: Launch) -> memoryview:
    """The bytes of a launch's arguments, with what stands before them."""
    return memoryview(self.head + array("Q", launch.words).tobytes())


@dataclass(slots=True, frozen=True)
class Launch:
  """A kernel with its arguments: words of 64 bits, addresses first, then integers."""

  kernel: Kernel
  words: tuple[int, ...]
  global_size: Sizes
  """Workgroups; none is 0."""
  local_size: Sizes
  """Threads of a workgroup."""


@dataclass(slots=True, frozen=True)
class Dispatch:
  """A launch whose arguments, with what stands before them, are in memory, at a multiple of
  `Hardware.argument_alignment`."""

  kernel: Kernel
  arguments: int
  global_size: Sizes
  local_size: Sizes


@dataclass(slots=True, frozen=True)
class Transfer:
  """Bytes that the queue moves without a kernel, where the hardware has a way. The two do not overlap."""

  target: int
  source: int
  nbytes: int
  ahead: bool = False
  """No submission that is under way uses the target, or writes the source: it need not wait for what is before."""


@dataclass(slots=True, frozen=True)
class Signal:
  """Tell a fence, which another queue waits at, that all commands before are done, for all to see. It may be the last
  command of a submission. A fence is in memory of kind HOST."""

  fence: int


@dataclass(slots=True, frozen=True)
class Wait:
  """Go on when a fence was signalled, and see what was written before that."""

  fence: int


Command: TypeAlias = Dispatch | Transfer | Signal | Wait
"""What a driver prepares; `Signal` and `Wait` only if it is a `PeerHardware`."""

Work: TypeAlias = Launch | Transfer
"""The same before arguments have a place."""


class Hardware(Protocol):
  """The protocol. Methods may be called from any thread, one at a time."""

  argument_alignment: int
  """Of the arguments of a kernel, in bytes."""

  @property
  def info(self) -> DeviceInfo:
    """What the device is, with `graphs` claimed."""

  # *** memory ***

  def allocate(self, nbytes: int, kind: Kind) -> Block:
    """Memory of at least `nbytes`, at a multiple of 4096. Raises OutOfMemory."""

  def release(self, block: Block) -> None:
    """Give it back. No command that uses it is under way."""

  # *** kernels ***

  def kernel(self, binary: Binary) -> Kernel:
    """Read a binary. Raises CompileError for what the device cannot run."""

  def copies(self, target: int, source: int, nbytes: int) -> Sequence[Work]:
    """What copies bytes that do not overlap, by `Transfer`s or by kernels of the driver's own, at any addresses."""

  # *** the queue ***

  def prepare(self, commands: Sequence[Command]) -> Prepared:
    """Put commands, one at least, into the hardware's words. Each is to begin when the one before it is done, and to
    see what it wrote; the first sees what the host wrote, and the host sees all when the submission is done. Raises
    ValueError for sizes that the device does not take."""

  def replace(self, prepared: Prepared, index: int, command: Command) -> None:
    """Change one command of what was prepared, which is not under way."""

  def submit(self, prepared: Prepared, timed: bool) -> None:
    """Hand commands to the hardware, behind all that it has. It counts when they are done (`completed`). Waits, by way
    of `pause`, where there is no room."""

  def completed(self) -> int:
    """How many submissions are done, of all so far. Quick: it is asked over and over."""

  def pause(self, seconds: float) -> None:
    """Sleep for so long or until something may have happened. Raises DeviceLost if the device says that it failed."""

  def seconds(self) -> float:
    """How long the last submission took, by the device's clock; it was timed, and is done."""

  def close(self, lost: bool) -> None:
    """Give everything back; with `lost`, without waiting for the device. May come twice."""


class TimedHardware(Hardware, Protocol):
  """What a driver has besides, whose `info` claims `graph_times`."""

  def times(self) -> Sequence[tuple[float, float]]:
    """When each command of the last submission, which was timed and is done, began and ended: seconds from its
    beginning, by the device's clock."""


class RecordingHardware(Hardware, Protocol):
  """What a driver has besides, whose `info` claims `recordings`."""

  def prepare_recorded(self, dispatch: Dispatch) -> Prepared:
    """As `prepare` of one dispatch, with what has the hardware record it. Raises OutOfMemory."""

  def recording(self, binary: Binary, read: Callable[[int, int], bytes]) -> Recording:
    """What was recorded by the last submission, which was prepared so, timed, and is done. `read` gives bytes of the
    device's memory, by address and size."""


class PeerHardware(Hardware, Protocol):
  """What a driver has besides, whose `info` claims `peers`. Addresses of devices that reach each other are of one
  space: no two blocks of theirs have one in common."""

  new_fence: bytes
  """What a fence holds before it is signalled. It is at a multiple of that many bytes."""
  done_fence: bytes
  """What it may hold after that: with these bytes the host lets go who waits for a device that was lost."""

  def reaches(self, source: Any) -> bool:
    """Whether this device can use memory of kind DEVICE of another one of the driver's, once it is shared."""

  def share(self, block: Block, source: Any) -> None:
    """Let this device use a block that `source` allocated, until `source` releases it. Quick where it can already.
    Raises OutOfMemory."""
