"""Copies between GPUs on the models: that what the plugins leave out is found, and what happens where a device is lost.

What is right is tried by the kit (`test_level5_peers`), which `test_gpu_model_cuda.py` and `test_gpu_model_kfd.py` run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_model import cuda, kfd
from gpu_model.as_device import as_device
from gpu_model.cuda_driver import Model
from gpu_model.kfd_backend import ModelBackend as KFDBackend
from gpu_model.toolchain import compiler
from tiny_runtime import Binary, DeviceLost, GlobalCounters
from tiny_runtime.hcq import QueueDevice
from tiny_runtime.opened import OpenDevice
from tiny_runtime_nv import peers
from tiny_runtime_nv.device import CUDADevice
from tiny_runtime_nv.driver import DriverError
from tiny_tensor import Tensor, TinyJit
from tiny_uop import KernelInfo, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

N = 64
I = dtypes.int32  # noqa: E741


def increment() -> UOp:
  """p0[i] = p0[i] + 1."""
  i = UOp.range(N, 0)
  place = UOp.param(0, I.ptr(N)).index(i)
  return UOp.sink(place.store(place.load() + 1).end(i), arg=KernelInfo("increment"))


def launch(device: Any, memory: Any, binary: Binary) -> None:
  sizes = [tuple(int(u.arg) for u in part) for part in (binary.global_size, binary.local_size)]
  device.launch(device.load(binary), [(memory, 0)], (), *sizes, False)


def numbers_in(device: Any, memory: Any) -> list[int]:
  out = bytearray(4 * N)
  device.read(memory, 0, memoryview(out))
  return memoryview(out).cast("i").tolist()


def filled(device: Any, value: int) -> Any:
  memory = device.alloc(4 * N)
  device.write(memory, 0, memoryview(value.to_bytes(4, "little") * N))
  return memory


# *** CUDA ***


@pytest.fixture
def model() -> Model:
  return Model(gpus=2)


@pytest.fixture
def gpus(model: Model) -> Iterator[tuple[CUDADevice, CUDADevice]]:
  """Two devices that give everything back, and do nothing that the driver's manual forbids."""
  backend = cuda.ModelBackend()
  backend.model = model
  pair = backend.open(0), backend.open(1)
  assert pair[0].reaches(pair[1]) and pair[1].reaches(pair[0])
  yield pair
  for device in pair:
    device.close()
  assert model.misuse == [] and model.retained == 0


def copy_amid_launches(one: CUDADevice, two: CUDADevice) -> list[int]:
  """What arrives of a 6, which is a 5 before and a 7 after; the source is the first to be waited for."""
  binary = cuda.BACKEND.compiler("sm_90a").compile(increment())
  target, source = filled(one, 0), filled(two, 5)
  two.sync()
  launch(two, source, binary)
  one.copy_from(target, 0, two, source, 0, 4 * N, False)
  launch(two, source, binary)
  two.sync()
  return numbers_in(one, target)


def test_streams_wait_for_each_other_and_the_host_for_none(model: Model, gpus: tuple[CUDADevice, CUDADevice]) -> None:
  one, two = gpus
  assert copy_amid_launches(one, two) == [6] * N
  target, source = filled(one, 0), filled(two, 5)
  model.calls.clear()
  one.copy_from(target, 0, two, source, 0, 4 * N, False)
  told = ["cuCtxSetCurrent", "cuEventRecord", "cuCtxSetCurrent", "cuStreamWaitEvent"]
  assert model.calls == [*told, "cuCtxSetCurrent", "cuMemcpyPeerAsync", *told]
  assert numbers_in(one, target) == [5] * N


@pytest.mark.parametrize(("left_out", "arrives"), [("target", 5), ("source", 7)])
def test_a_stream_that_does_not_wait_is_found(
  gpus: tuple[CUDADevice, CUDADevice], monkeypatch: pytest.MonkeyPatch, left_out: str, arrives: int
) -> None:
  one, two = gpus
  here = one if left_out == "target" else two
  wait = peers.wait_for

  def forgetful(device: CUDADevice, other: CUDADevice, what: str) -> None:
    if device is not here:
      wait(device, other, what)

  monkeypatch.setattr("tiny_runtime_nv.device.wait_for", forgetful)
  if left_out == "target":  # nobody has waited for the source
    binary = cuda.BACKEND.compiler("sm_90a").compile(increment())
    target, source = filled(one, 0), filled(two, 5)
    two.sync()
    launch(two, source, binary)
    one.copy_from(target, 0, two, source, 0, 4 * N, False)
    assert numbers_in(one, target) == [arrives] * N
  else:
    assert copy_amid_launches(one, two) == [arrives] * N


def test_gpus_without_a_way_are_not_reached() -> None:
  backend = cuda.ModelBackend(gpus=3, apart=[(0, 2)])
  one, two, three = (backend.open(n) for n in range(3))
  assert [one.reaches(two), one.reaches(three), three.reaches(one), two.reaches(three)] == [True, False, False, True]
  memory, source = filled(one, 0), filled(three, 1)
  with pytest.raises(DriverError, match="an address that is in no buffer|ILLEGAL_ADDRESS"):
    one.driver("cuCtxSetCurrent", one.context)
    one.driver("cuMemcpyPeerAsync", memory.address, one.context, source.address, three.context, 4, one.stream)
    one.driver("cuStreamSynchronize", one.stream)
  for device in (one, two, three):
    device.close()


def test_a_gpu_that_was_opened_twice(gpus: tuple[CUDADevice, CUDADevice]) -> None:
  """It has two streams then, and one pool."""
  again = CUDADevice(gpus[0].driver, 0, cuda.HOPPER)
  assert again.reaches(gpus[0]) and copy_amid_launches(again, gpus[0]) == [6] * N
  for memory in list(again.allocated):
    again.free(memory)
  again.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_which_gpu_was_lost(lost: int) -> None:
  backend = cuda.ModelBackend(gpus=2)
  pair = [OpenDevice(f"CUDA:{n}", backend.open(n), None, "", None, backend) for n in range(2)]
  one, two = pair
  assert one.reaches(two)
  memory, source = filled(one.device, 0), filled(two.device, 5)
  for opened in pair:
    opened.sync()
  backend.model.gpus[lost].broken = 719
  with pytest.raises(DeviceLost, match="copying 4 bytes from CUDA:1 to CUDA:0: CUDA(:1)?: .*crashed"):
    one.copy_from((memory, 0), two, (source, 0), 4, True)
  assert [bool(opened.lost) for opened in pair] == [lost == 0, lost == 1]
  well = pair[1 - lost]
  assert numbers_in(well.device, (source, memory)[lost]) == [(5, 0)[lost]] * N
  for opened in pair:
    opened.close()


# *** AMD ***


@pytest.fixture
def machine() -> KFDBackend:
  return KFDBackend(gpus=2)


@pytest.fixture
def amd(machine: KFDBackend) -> Iterator[tuple[QueueDevice, QueueDevice]]:
  """Two devices that give everything back, and do nothing that KFD or the packet processor would refuse."""
  pair = machine.open(0), machine.open(1)
  assert pair[0].reaches(pair[1]) and pair[1].reaches(pair[0])
  yield pair
  for device in pair:
    device.close()
  assert machine.model.misuse == [] and machine.model.left() == []


def test_memory_is_mapped_to_a_second_gpu_once(machine: KFDBackend, amd: tuple[QueueDevice, QueueDevice]) -> None:
  one, two = amd
  target, source = filled(one, 0), filled(two, 5)
  one.copy_from(target, 0, two, source, 0, 4 * N, False)
  buffer = machine.model.buffers[source.block.handle.handle]
  assert buffer.mapped == {*machine.model.gpus} and numbers_in(one, target) == [5] * N
  machine.model.requests.clear()
  one.copy_from(target, 4, two, source, 0, 4, False)
  two.free(source)
  again = filled(two, 6)  # in the same place, which is mapped already
  one.copy_from(target, 0, two, again, 0, 4, False)
  assert numbers_in(one, target) == [6, *[5] * (N - 1)]
  assert {*machine.model.requests} <= {"WAIT_EVENTS"}
  two.free(again)
  two.pool.trim()  # which KFD refuses for memory that is mapped to anyone
  assert source.block.handle.handle not in machine.model.buffers


def test_the_host_waits_for_neither_queue(machine: KFDBackend, amd: tuple[QueueDevice, QueueDevice]) -> None:
  one, two = amd
  binary = machine.compiler("gfx942").compile(increment())
  target, source = filled(one, 0), filled(two, 5)
  launch(two, source, binary)
  taken = [queue.taken for queue in machine.model.queues.values()]
  one.copy_from(target, 0, two, source, 0, 4 * N, False)
  launch(two, source, binary)
  assert [queue.taken for queue in machine.model.queues.values()] == taken
  assert numbers_in(two, source) == [7] * N and numbers_in(one, target) == [6] * N


@pytest.mark.parametrize("linked", ["io_links", "p2p_links"])
def test_gpus_that_nothing_connects_are_not_reached(linked: str) -> None:
  machine = KFDBackend(gpus=3, apart=[(0, 2)], linked=linked)
  one, two, three = (machine.open(n) for n in range(3))
  assert [one.reaches(two), one.reaches(three), three.reaches(one), two.reaches(three)] == [True, False, False, True]
  for device in (one, two, three):
    device.close()
  assert machine.model.misuse == [] and machine.model.left() == []


def test_a_way_that_is_listed_and_cannot_be_gone(machine: KFDBackend) -> None:
  """As where a GPU's memory is behind a window of 256 MiB."""
  machine.model.apart = {(0, 1), (1, 0)}
  one, two = machine.open(0), machine.open(1)
  before = len(machine.model.buffers)
  assert not one.reaches(two) and len(machine.model.buffers) == before
  one.close()
  two.close()
  assert machine.model.misuse == [] and machine.model.left() == []


def test_memory_that_is_not_mapped_is_found(machine: KFDBackend, monkeypatch: pytest.MonkeyPatch) -> None:
  one, two = machine.open(0), machine.open(1)
  assert one.reaches(two)
  monkeypatch.setattr("tiny_runtime_amd.memory.Memories.share", lambda self, block, gpu: None)
  target, source = filled(one, 0), filled(two, 5)
  one.copy_from(target, 0, two, source, 0, 4 * N, False)
  with pytest.raises(DeviceLost, match="an address|memory"):
    one.sync()
  assert isinstance(machine.model, kfd.Model) and machine.model.wrong
  one.close()
  two.close()


# *** programs ***


def steps(devices: tuple[str, ...], count: int) -> list[list[float]]:
  """What a captured program that sums over a batch in pieces, and keeps a sum, gives for each batch."""
  weight = Tensor([0.5, -0.25], device=devices[0]).shard(devices).realize()

  @TinyJit
  def step(x: Tensor) -> Tensor:
    return weight.assign(weight * 0.5 + x.sum(0)).realize()

  batches = [[[float((n + 3 * k + i) % 4) for i in range(2)] for k in range(4)] for n in range(count)]
  return [step(Tensor(batch, device=devices[0]).shard(devices, 0).realize()).tolist() for batch in batches]


@pytest.mark.parametrize("family", [pytest.param("CUDA", marks=pytest.mark.nightly), "AMD"])
def test_training_on_several_gpus_copies_from_gpu_to_gpu(family: str) -> None:
  backend: cuda.ModelBackend | KFDBackend = cuda.ModelBackend(gpus=2) if family == "CUDA" else KFDBackend(gpus=2)
  names = (family, f"{family}:1")
  with as_device(backend, family, 2):
    GlobalCounters.reset()
    assert steps(names, 5) == steps(("REF", "REF:1"), 5)
    assert GlobalCounters.peer_bytes > 0 and GlobalCounters.host_bytes == 0
  kept = "left behind: 0 allocations, ['Module'], 0 pinned"  # for the next use of the kernels
  assert {*backend.model.misuse} <= {kept}
