"""What a group of processes can do, on raw bytes; and what a plugin publishes.

A fabric is an object that an entry point of the group `tiny_dist.groups.v1` names, for example in `pyproject.toml`:

    [project.entry-points."tiny_dist.groups.v1"]
    fast = "my_package:FABRIC"

Every operation is called by all ranks of a group, in the same order; buffers are C-contiguous bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from tiny_dist.start import Start
from tiny_runtime import Buffer
from tiny_uop import Collective


class Unusable(Exception):
  """A fabric cannot be used here. The message says why, and what to do."""


class Group(Protocol):
  """Ranks `0 … size - 1`, of which this process is one."""

  rank: int
  size: int

  def all_gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> None:
    """`out` becomes the `data` of all ranks, one after the other. `counts[i]` are the bytes that rank i has."""

  def all_to_all(self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]) -> None:
    """Sends `sent[i]` bytes of `data` to rank i, one part after the other, and puts `received[i]` from it in `out`.
    Where `received` has 0 for this rank itself, its own part stays where it is."""

  def broadcast(self, data: memoryview, root: int) -> None:
    """`data` becomes what it is on rank `root`."""

  def send(self, data: memoryview, to: int) -> None:
    """Sends bytes to one rank, which has to call `recv`."""

  def recv(self, data: memoryview, of: int) -> None:
    """Receives as many bytes as there are in `data` from one rank."""

  def all_reduce(self, data: memoryview, dtype: str, op: str) -> None:
    """`data` becomes the combination ("sum", "max", "min") of what all ranks have, element by element of `dtype` (a
    name of `tiny_uop.dtypes`). The order of a sum is the fabric's own. Raises ValueError for types it has none for."""

  def reduce_scatter(self, out: memoryview, data: memoryview, dtype: str, op: str, counts: Sequence[int]) -> None:
    """As `all_reduce`, of which rank i gets `counts[i]` bytes in `out`."""

  def barrier(self) -> None:
    """Waits until all ranks have come here."""

  def split(self, ranks: Sequence[int]) -> Group:
    """The group of some ranks of this one, in that order. Only these call it."""

  def abort(self, code: int) -> None:
    """Ends all processes, those included that wait for others."""

  def close(self) -> None:
    """Ends the use of it. All ranks call it."""


@runtime_checkable
class Overlapping(Protocol):
  """What a group can do besides that carries out collectives while the program goes on. Each method begins what its
  namesake in `Group` does, and gives a function that waits until it is done. Until then `out` and `data` are its own.
  Several may be under way: they end in the order in which they began, on all ranks."""

  def begin_all_gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> Callable[[], None]:
    """See `Group.all_gather`."""

  def begin_all_to_all(
    self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]
  ) -> Callable[[], None]:
    """See `Group.all_to_all`."""

  def begin_broadcast(self, data: memoryview, root: int) -> Callable[[], None]:
    """See `Group.broadcast`."""

  def begin_send_recv(self, out: memoryview, data: memoryview) -> Callable[[], None]:
    """Of a group of two ranks: sends `data` to the other one and receives `out` from it. Either may be empty."""


@runtime_checkable
class OnDevice(Protocol):
  """What a group can do besides, whose fabric reaches the memory of devices."""

  def takes(self, buffer: Buffer) -> bool:
    """Whether it reaches the memory of a buffer."""

  def on_device(self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]) -> None:
    """Puts a collective in the stream of the buffers' device: "all_gather" or "broadcast", "all_to_all" or
    "send_recv", of bytes."""


class Fabric(Protocol):
  """What a plugin publishes. Importing it must need nothing that may be missing."""

  def probe(self, start: Start) -> str:
    """Says in words what is used ("MPICH 5.0.2"). Raises Unusable."""

  def open(self, start: Start) -> Group:
    """The group of all processes that were started together. Raises Unusable."""
