"""The group `nccl` on the model of CUDA, with a recorder in the place of libnccl: what each rank calls, in which order,
and that the ranks' calls fit each other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpu_model import cuda
from gpu_model.as_device import as_device
from gpu_model.toolchain import compiler
from tiny_dist.groups.local import LocalGroup
from tiny_dist.groups.nccl import ID_BYTES, Library, NcclError, NcclGroup, UniqueId
from tiny_dist.ranks import World
from tiny_runtime import use_communicator
from tiny_tensor import Tensor

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

Call = tuple[Any, ...]


class Recorder:
  """NCCL's functions for one rank: notes what is called, and moves nothing."""

  def __init__(self, rank: int) -> None:
    self.rank, self.calls = rank, list[Call]()
    self.fails = ""

  def find(self, name: str) -> Callable[..., int]:
    def function(*arguments: Any) -> int:
      if name == "ncclGetUniqueId":
        ctypes.memmove(arguments[0], b"i" * ID_BYTES, ID_BYTES)
      elif name == "ncclCommInitRank":
        arguments[0]._obj.value = 0xC0 + self.rank
        arguments = (arguments[1], bytes(arguments[2]), arguments[3])
      values = tuple([a.value if isinstance(a, ctypes.c_void_p) else a for a in arguments if not hasattr(a, "_obj")])
      self.calls.append((name, *values))
      return 3 if name == self.fails else 0

    return function


class Over(LocalGroup):
  """The other group, of one of two ranks: what is broadcast is there already."""

  size = 2

  def __init__(self, rank: int) -> None:
    self.rank = rank

  def all_gather(self, out: memoryview, data: memoryview, counts: Any) -> None:
    out[:] = bytes(data) * 2  # the comparison of graphs: the other rank says the same

  def broadcast(self, data: memoryview, root: int) -> None:
    data[:] = b"i" * len(data)


@pytest.fixture
def gpus() -> Iterator[list[Any]]:
  with as_device(cuda.ModelBackend(gpus=2), "CUDA", 2) as devices:
    yield devices
    use_communicator(None)


def run(rank: int, program: Callable[[tuple[str, ...]], None]) -> list[Call]:
  """What a rank calls in a program over two ranks, whose GPUs are those of the model."""
  recorder = Recorder(rank)
  use_communicator(World("nccl", NcclGroup(Over(rank), Library(recorder.find))))
  program(("CUDA@=0", "CUDA:1@1") if rank == 0 else ("CUDA@0", "CUDA:1@=1"))
  return recorder.calls


def program(devices: tuple[str, ...]) -> None:
  x = Tensor([[float(i + k) for k in range(6)] for i in range(5)]).shard(devices, 0).realize()  # 3 and 2 rows
  (x.sum(0) + 1).realize()  # small: all partial results to all
  (x * 2).shard(devices, 1).realize()  # rows to columns
  x.contiguous().shard(devices).realize()  # pieces of different lengths to all


def test_calls_fit_each_other(gpus: list[Any]) -> None:
  logs = [run(rank, program) for rank in range(2)]
  names = [[call[0] for call in log] for log in logs]
  assert names[0][1:] == names[1] and names[0][0] == "ncclGetUniqueId"  # rank 0 makes the identity, no one else
  for rank, (log, device) in enumerate(zip(logs, gpus)):
    begun = next(call for call in log if call[0] == "ncclCommInitRank")
    assert begun == ("ncclCommInitRank", 2, b"i" * ID_BYTES, rank)
    moves = [call for call in log if call[0] in ("ncclAllGather", "ncclSend", "ncclRecv")]
    assert moves and all(call[-2:] == (0xC0 + rank, device.enter_stream()) for call in moves)
  gathers = [[call[3:5] for call in log if call[0] == "ncclAllGather"] for log in logs]
  assert gathers[0] == gathers[1] == [(24, 1)]  # six floats, as bytes
  for me, other in ((0, 1), (1, 0)):
    sent = [call[2] for call in logs[me] if call[0] == "ncclSend" and call[4] == other]
    got = [call[2] for call in logs[other] if call[0] == "ncclRecv" and call[4] == me]
    assert sent == got and len(sent) == 2, (sent, got)


def test_an_error_has_a_name(gpus: list[Any]) -> None:
  recorder = Recorder(0)
  recorder.fails = "ncclAllGather"
  use_communicator(World("nccl", NcclGroup(Over(0), Library(recorder.find))))
  with pytest.raises(NcclError, match="ncclAllGather fails with status 3: NCCL_DEBUG=WARN says why"):
    (Tensor.ones(4, 2).contiguous().shard(("CUDA@=0", "CUDA:1@1"), 0).realize().sum(0) + 1).realize()


def test_the_identity_is_passed_by_value() -> None:
  assert ctypes.sizeof(UniqueId) == ID_BYTES
