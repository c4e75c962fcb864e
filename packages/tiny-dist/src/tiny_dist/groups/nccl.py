"""NCCL by ctypes, on the stream of a device CUDA: what is in the memory of GPUs goes from GPU to GPU. All else, and the
identity by which the ranks find each other, goes over another group (MPI).

Names, types and numbers are those of `nccl.h` 2.32. The library is that of the wheel `nvidia-nccl-cu12` or `-cu13`,
else the system's. NCCL only moves bytes here: sums are made by kernels, as everywhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tiny_dist.groups.protocol import Group, Unusable
from tiny_dist.start import Start
from tiny_runtime import Buffer
from tiny_uop import Collective

UINT8 = 1  # ncclUint8
ID_BYTES = 128
_TODO = "pip install nvidia-nccl-cu12 (or -cu13), beside a driver of NVIDIA"


class UniqueId(ctypes.Structure):
  """`ncclUniqueId`: passed by value."""

  _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


_P, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
FUNCTIONS: dict[str, tuple[Any, ...]] = {
  "ncclGetVersion": (ctypes.POINTER(_INT),),
  "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
  "ncclCommInitRank": (ctypes.POINTER(_P), _INT, UniqueId, _INT),
  "ncclAllGather": (_P, _P, _SIZE, _INT, _P, _P),
  "ncclSend": (_P, _SIZE, _INT, _INT, _P, _P),
  "ncclRecv": (_P, _SIZE, _INT, _INT, _P, _P),
  "ncclGroupStart": (),
  "ncclGroupEnd": (),
  "ncclCommGetAsyncError": (_P, ctypes.POINTER(_INT)),
  "ncclCommAbort": (_P,),
  "ncclCommDestroy": (_P,),
}
"""The functions that are called, with the types of their arguments; each gives a status, 0 for success."""


class NcclError(RuntimeError):
  """A function of NCCL has failed."""


class Library:
  """NCCL's functions, each of which raises NcclError where it fails. `find` gives a function by its name."""

  def __init__(self, find: Callable[[str], Callable[..., int]]) -> None:
    self._find = find

  def __call__(self, name: str, *arguments: Any) -> None:
    """Call a function. Raises NcclError with its name and status."""
    if status := self._find(name)(*arguments):
      raise NcclError(f"{name} fails with status {status}: NCCL_DEBUG=WARN says why")


def library() -> Library:
  """The NCCL of this machine. Raises Unusable."""
  loaded = None
  for path in _paths():
    try:
      loaded = ctypes.CDLL(path)
      break
    except OSError:
      continue
  if loaded is None:
    raise Unusable(f"there is no libnccl.so.2 here. {_TODO}")
  for name, types in FUNCTIONS.items():
    function = getattr(loaded, name)
    function.argtypes, function.restype = types, _INT
  return Library(lambda name: getattr(loaded, name))


def _paths() -> list[str]:
  try:
    spec = find_spec("nvidia.nccl")
  except ModuleNotFoundError:
    spec = None
  folders = list(spec.submodule_search_locations or ()) if spec is not None else []
  return [*[str(Path(folder) / "lib" / "libnccl.so.2") for folder in folders], "libnccl.so.2"]


class NcclGroup:
  """The ranks of another group, which have a GPU each."""

  def __init__(self, over: Group, functions: Library) -> None:
    self._over, self._call = over, functions
    self.rank, self.size = over.rank, over.size
    self._communicator: ctypes.c_void_p | None = None
    # all else goes over the other group
    self.all_gather, self.all_to_all, self.broadcast = over.all_gather, over.all_to_all, over.broadcast
    self.send, self.recv, self.barrier = over.send, over.recv, over.barrier
    self.all_reduce, self.reduce_scatter = over.all_reduce, over.reduce_scatter

  def split(self, ranks: Sequence[int]) -> Group:
    """See `Group`."""
    return NcclGroup(self._over.split(ranks), self._call)

  def abort(self, code: int) -> None:
    """See `Group`."""
    if self._communicator is not None:
      self._call("ncclCommAbort", self._communicator)
    self._over.abort(code)

  def close(self) -> None:
    """See `Group`."""
    if self._communicator is not None:
      self._call("ncclCommDestroy", self._communicator)
      self._communicator = None
    self._over.close()

  def takes(self, buffer: Buffer) -> bool:
    """See `OnDevice`: memory of devices whose launches are in a stream of CUDA."""
    return buffer.opened.capabilities.stream == "cuda"

  def on_device(self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]) -> None:
    """See `OnDevice`. All of a bucket is one group of calls, which NCCL makes one kernel of."""
    device: Any = inputs[0].opened.device
    stream = device.enter_stream()
    communicator = self._ready()
    self._call("ncclGroupStart")
    for k, (result, data) in enumerate(zip(results, inputs, strict=True)):
      size = data.dtype.itemsize
      sent, received = ([n * size for n in counts[k]] for counts in (what.sent, what.received))
      out, own = _address(device, result.to_write()), _address(device, data.to_read())
      same = what.kind in ("all_gather", "broadcast")
      if same and len(set(sent)) == 1:
        self._call("ncclAllGather", own, out, sent[0], UINT8, communicator, stream)
      else:
        self._exchange(same, out, received, own, sent, stream)
    self._call("ncclGroupEnd")

  def _exchange(
    self, same: bool, out: int, received: Sequence[int], own: int, sent: Sequence[int], stream: Any
  ) -> None:  # fmt: skip
    """To and from each rank a part: `same` for the same to all, which are then as many bytes as this one has."""
    start, place = 0, 0
    for rank in range(self.size):
      nbytes = sent[self.rank] if same else sent[rank]
      if nbytes and (rank != self.rank or received[rank]):
        self._call("ncclSend", own + (0 if same else start), nbytes, UINT8, rank, self._communicator, stream)
      if received[rank]:
        self._call("ncclRecv", out + place, received[rank], UINT8, rank, self._communicator, stream)
      start, place = start + nbytes, place + received[rank]

  def _ready(self) -> ctypes.c_void_p:
    """The communicator, made when it is first needed: with the context of the device."""
    if self._communicator is None:
      name = UniqueId()
      if self.rank == 0:
        self._call("ncclGetUniqueId", ctypes.byref(name))
      data = bytearray(bytes(name))
      self._over.broadcast(memoryview(data), 0)
      made = _P()
      self._call("ncclCommInitRank", ctypes.byref(made), self.size, UniqueId.from_buffer_copy(data), self.rank)
      self._communicator = made
    return self._communicator


def _address(device: Any, place: tuple[Any, int]) -> int:
  memory, offset = place
  return int(device.address_of(memory)) + offset


class _Nccl:
  def probe(self, start: Start) -> str:
    """See `Fabric`."""
    version = _INT()
    library()("ncclGetVersion", ctypes.byref(version))
    return f"NCCL {version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}, over another group"

  def open(self, start: Start) -> Group:
    """See `Fabric`."""
    functions = library()
    from tiny_dist.groups.discovery import opened

    return NcclGroup(opened(start, "" if start.size == 1 else "mpi")[1], functions)


FABRIC = _Nccl()
"""The entry point."""
