"""The plugin AMD on a model of Linux's KFD: a part of the conformance kit, and what its device half does where things
go wrong.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import conformance, contents, copied_to_any_place, filled, sizes

from gpu_model.kfd import Model
from gpu_model.kfd_backend import ModelBackend
from gpu_model.kfd_objects import GPU_ID, Misuse, Refusal
from gpu_model.toolchain import compiler
from tiny_runtime import Binary, CompileError, DeviceLost, GraphKernel, OutOfMemory, Unavailable
from tiny_runtime.hcq import QueueDevice
from tiny_runtime.hcq.programs import Program
from tiny_runtime.opened import OpenDevice
from tiny_runtime_amd import AMD, CodeObject, aql, hardware, queue
from tiny_runtime_amd.faults import queue_error
from tiny_runtime_amd.hardware import AMDHardware
from tiny_runtime_amd.kfd import KFDError
from tiny_runtime_amd.memory import Memories
from tiny_runtime_amd.scratch import Scratch
from tiny_uop import Context, KernelInfo, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

EVERY = "300"
CASES = "(level1 or level4 or level5 or random_kernel or test_cast) and not many_programs and not nothing_is_kept"
CASES += " and not leave_nothing"  # the model keeps more than a driver does, and is slow
"""Of the kit, what runs here: what a device does more than what a compiler does. `hatch run amd-model` runs all."""
F = dtypes.float32
N = 64


@pytest.fixture
def backend() -> ModelBackend:
  return ModelBackend()


@pytest.fixture
def device(backend: ModelBackend) -> Iterator[QueueDevice]:
  """A device that gives everything back, and does nothing that KFD or the packet processor would refuse."""
  opened = backend.open(0)
  yield opened
  opened.close()
  opened.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def driver(device: QueueDevice) -> AMDHardware:
  assert isinstance(device.hardware, AMDHardware)
  return device.hardware


def scaled(name: str = "scaled", *, beyond: int = 0, arch: str = "gfx942") -> Binary:
  """p0[i] = p1[i + beyond] * n, with n an integer of the launch."""
  i, n = UOp.range(N, 0), UOp.variable("n", 0, 9)
  place = UOp.param(1, F.ptr(N + beyond)).index(i + beyond).load()
  done = UOp.param(0, F.ptr(N)).index(i).store(place * n.cast(F)).end(i)
  return AMD.compiler(arch).compile(UOp.sink(done, arg=KernelInfo(name)))


def with_private(binary: Binary, nbytes: int) -> Binary:
  """The same, which says that each thread needs private memory."""
  code = CodeObject.parse(binary.code)
  place = code.kernels[binary.entry].place
  old = code.image[place : place + 64]
  assert binary.code.count(old) == 1
  return replace(binary, code=binary.code.replace(old, old[:4] + struct.pack("<I", nbytes) + old[8:]))


def test_conformance() -> None:
  conformance("kfd_backend", CASES, "--every", EVERY, QUEUE_TIMEOUT="60")


# *** memory ***


@pytest.mark.parametrize("to", [0, 1, 5, 64])
def test_copies_at_any_place(device: QueueDevice, to: int) -> None:
  """Bytes up to a word, pieces of 4 KiB, the rest."""
  copied_to_any_place(device, to, (1, 3, 4, 4095, 4096, 4099, 4 * 4096 + 7))


def test_copies_on_the_device_whose_places_differ(device: QueueDevice) -> None:
  """No words are in common then: bytes."""
  copier = driver(device).copier
  assert [launch.kernel.name for launch in copier(0x1000, 0x2000, 8200)] == ["copy_wide", "copy_bytes"]
  assert [launch.kernel.name for launch in copier(0x1003, 0x2003, 8200)] == ["copy_bytes", "copy_wide", "copy_bytes"]
  assert [launch.kernel.name for launch in copier(0x1001, 0x2000, 8200)] == ["copy_bytes"]
  assert [launch.words[2] for launch in copier(0, 1 << 41, (1 << 31) + 5)] == [1 << 18, 1 << 18, 5]


def test_copies_longer_than_a_piece(device: QueueDevice) -> None:
  data = np.random.default_rng(0).integers(0, 256, (4 << 20) + 12345, np.uint8)
  memory = device.alloc(data.nbytes + 3)
  device.write(memory, 3, data.data)
  out = np.zeros_like(data)
  device.read(memory, 3, out.data)
  assert (out == data).all()


def test_out_of_memory_names_sizes_and_what_was_freed_is_there(device: QueueDevice, backend: ModelBackend) -> None:
  left = backend.model.memory - backend.model.used
  whole = device.alloc(left)
  with pytest.raises(OutOfMemory, match=f"4096 bytes asked for, of .*Cannot allocate.*; {left} bytes are in use"):
    device.alloc(4096)
  device.free(whole)
  assert (contents(device, filled(device, np.ones(N, np.float32))) == 1).all()


def test_no_addresses_left(device: QueueDevice, monkeypatch: pytest.MonkeyPatch) -> None:
  def full(nbytes: int) -> int:
    raise OSError(errno.ENOMEM, "mmap")

  with monkeypatch.context() as patch:
    patch.setattr(driver(device).process.system, "reserve", full)
    with pytest.raises(OutOfMemory, match="no addresses for"):
      device.alloc(1 << 20)
  device.alloc(1 << 20)


def mailbox(device: QueueDevice) -> int:
  faults = driver(device).faults
  assert faults is not None
  return faults.mailbox


def test_a_gpu_interrupts_when_it_has_finished_something() -> None:
  """Its memory for events is made once in a process, is mapped to each GPU, and stays."""
  backend = ModelBackend(gpus=2)
  for _ in range(2):
    devices = [backend.open(n) for n in range(2)]
    before = backend.model.interrupted
    for device in devices:
      assert (contents(device, filled(device, np.arange(N, dtype=np.float32))) == np.arange(N)).all()
    assert backend.model.interrupted > before + 2
    mailboxes = [mailbox(device) for device in devices]
    page = backend.model.buffers[backend.model.event_page]
    assert all(page.address <= place < page.address + page.size for place in mailboxes) and len({*mailboxes}) == 2
    assert page.mapped == {*backend.model.gpus}
    for device in devices:
      device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def test_where_kfd_takes_no_memory_for_events_the_host_sleeps() -> None:
  backend = ModelBackend()
  backend.model.interrupts = False
  device = backend.open(0)
  assert mailbox(device) == 0
  assert (contents(device, filled(device, np.arange(N, dtype=np.float32))) == np.arange(N)).all()
  device.close()
  assert backend.model.interrupted == 0 and backend.model.misuse == [] and backend.model.left() == []


def test_an_event_in_another_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
  backend = ModelBackend()
  original = Memories.event_page

  def beside(self: Memories) -> tuple[int, int]:
    page = original(self)
    assert page is not None
    return page[0] + 8, page[1]

  monkeypatch.setattr(Memories, "event_page", beside)
  with pytest.raises(Unavailable, match="is no place for event"):
    backend.open(0)


def test_memory_that_one_device_keeps_is_there_for_another_of_the_same_gpu(backend: ModelBackend) -> None:
  one, two = (OpenDevice(name, backend.open(0), None, "", None, backend) for name in ("AMD", "AMD again"))
  size = backend.model.memory * 5 // 8
  kept = one.alloc(size)
  one.device.free(kept)  # which its pool keeps
  assert backend.model.used > size
  two.device.free(two.alloc(size))
  one.device.free(one.alloc(size))
  one.close()
  with pytest.raises(OutOfMemory):
    two.alloc(backend.model.memory)
  two.trim()
  assert backend.model.used < size
  two.close()
  assert backend.model.misuse == [] and backend.model.left() == []


# *** launches ***


def test_launches_keep_their_order_and_count_seconds(device: QueueDevice) -> None:
  binary = scaled()
  program, source = device.load(binary), np.arange(N, dtype=np.float32)
  first = filled(device, source)
  second, third = device.alloc(4 * N), device.alloc(4 * N)
  device.launch(program, [(second, 0), (first, 0)], [2], *sizes(binary))
  device.launch(program, [(third, 0), (second, 0)], [3], *sizes(binary))
  device.free(second)  # still to be read
  assert (contents(device, third) == source * 6).all()
  seconds = device.launch(program, [(third, 0), (first, 0)], [1], *sizes(binary, wait=True))
  assert seconds is not None and 0 < seconds < 10
  calls = [GraphKernel(program, ((0, 0), (1, 0)), (2,), *sizes(binary)[:2])] * 3
  graph = device.make_graph(calls, [third, first])
  assert 0 < (device.run_graph(graph, (), (), True) or 0) < 10
  assert (contents(device, third) == 2 * source).all()


def test_a_ring_that_is_shorter_than_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
  """And more kernels than have clocks."""
  monkeypatch.setattr(queue, "PACKETS", 64)
  monkeypatch.setattr(queue, "CLOCKS", 16)
  backend, binary = ModelBackend(), scaled()
  device = backend.open(0)
  program, one = device.load(binary), filled(device, np.ones(N, np.float32))
  graph = device.make_graph([GraphKernel(program, ((0, 0), (0, 0)), (1,), *sizes(binary)[:2])] * 200, [one])
  seconds = device.run_graph(graph, (), (), True)
  times = device.graph_times(graph)
  assert len(times) == 200 and times == sorted(times) and seconds is not None and 0 < times[-1][1] <= seconds + 1e-9
  assert all(begin < end for begin, end in times)
  assert (contents(device, one) == 1).all() and backend.model.processor.launched.count("scaled") > 60
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def test_code_is_where_none_was_before_and_goes_with_its_program(device: QueueDevice, backend: ModelBackend) -> None:
  binary, memory = scaled(), device.alloc(4 * N)
  device.sync()
  before, seen = len(backend.model.buffers), set()
  for _ in range(3):
    program = device.load(binary)
    seen.add(program.kernel.address)
    device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
    del program
    gc.collect()
    assert len(backend.model.buffers) > before, "the launch may still need it"
    device.sync()
    assert len(backend.model.buffers) == before
  assert len(seen) == 3


def test_private_memory_grows(device: QueueDevice, backend: ModelBackend) -> None:
  binary, memory = scaled(), filled(device, np.ones(N, np.float32))
  for nbytes, most in ((100, 100), (500, 500), (20, 500)):
    private = with_private(binary, nbytes)
    program = device.load(private)
    device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
    assert (contents(device, memory) == 1).all() and backend.model.processor.private == most
  with pytest.raises(CompileError, match="scaled: 500000 bytes of private memory a thread are more than this GPU has"):
    device.load(with_private(binary, 500000))


def test_waves_of_32_threads() -> None:
  backend = ModelBackend(gpu="gfx1100")
  assert backend.probe() == ["gfx1100"]
  device, binary = backend.open(0), scaled(arch="gfx1100")
  source = np.arange(N, dtype=np.float32)
  memory = filled(device, source)
  for private, n in ((0, 2), (100, 3), (300, 1)):
    program = device.load(with_private(binary, private) if private else binary)
    device.launch(program, [(memory, 0), (memory, 0)], [n], *sizes(binary))
  assert (contents(device, memory) == 6 * source).all() and backend.model.processor.private == 300
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def test_private_memory_by_a_buffer() -> None:
  """Kernels for gfx90a find it by a descriptor that the queue has."""
  backend = ModelBackend(gpu="gfx90a")
  assert backend.probe() == ["gfx90a"]
  device, binary = backend.open(0), scaled(arch="gfx90a")
  source = np.arange(N, dtype=np.float32)
  memory = filled(device, source)
  for nbytes, n in ((0, 3), (100, 2), (300, 1)):
    program = device.load(with_private(binary, nbytes) if nbytes else binary)
    device.launch(program, [(memory, 0), (memory, 0)], [n], *sizes(binary))
  assert (contents(device, memory) == 6 * source).all() and backend.model.processor.private == 300
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


@pytest.mark.parametrize("index", range(4))
def test_a_wrong_buffer_of_private_memory(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
  backend = ModelBackend(gpu="gfx90a")
  device, binary = backend.open(0), scaled(arch="gfx90a")
  memory, right = filled(device, np.ones(N, np.float32)), Scratch.words

  def words(scratch: Scratch, address: int) -> tuple[int, ...]:
    return tuple(word + 1024 * (n == index) for n, word in enumerate(right(scratch, address)))

  monkeypatch.setattr(Scratch, "words", words)
  program = device.load(with_private(binary, 100))
  with pytest.raises(KFDError, match="misuse: a buffer of private memory"):
    device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
    device.sync()
  device.close()


def test_launches_that_are_too_large_say_how_large(device: QueueDevice) -> None:
  binary, memory = scaled(), device.alloc(4 * N)
  program = device.load(binary)
  for groups, threads in (((1 << 30, 1, 1), sizes(binary)[1]), ((1, 1, 1), (32, 32, 2))):
    with pytest.raises(
      ValueError, match=r"kernel scaled, \(.*\) workgroups of \(.*\) threads: a workgroup has \d+ at most"
    ):
      device.launch(program, [(memory, 0), (memory, 0)], [1], groups, threads, False)
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))


def test_code_that_is_not_for_this_device(device: QueueDevice) -> None:
  binary = scaled()
  other = AMD.compiler("gfx1100").compile(
    UOp.sink(UOp.param(0, F.ptr(1)).index(0).store(UOp.const(F, 1.0)), arg=KernelInfo("other"))
  )
  for wrong, message in (
    (replace(binary, code=b"nothing of the kind"), "is no code object"),
    (replace(binary, entry="another"), "without kernel another: it has scaled"),
    (replace(binary, variables=()), "takes 24 bytes of arguments, not 16"),
    (other, "is for waves of 32 threads"),
  ):
    with pytest.raises(CompileError, match=message) as found:
      device.load(wrong)
    assert "define amdgpu_kernel" in found.value.source


# *** faults ***


def launched_astray(device: QueueDevice) -> Program:
  """A kernel that goes astray is under way."""
  binary = scaled("astray", beyond=1 << 20)
  program, memory = device.load(binary), device.alloc(4 * N)
  program.needs[1] = 0  # what the contract's caller would have seen to
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
  return program


def test_a_fault_names_kernel_and_address(backend: ModelBackend, monkeypatch: pytest.MonkeyPatch) -> None:
  device = backend.open(0)
  launched_astray(device)
  message = "AMD: waiting: a kernel used an address that is in no buffer: about 0x[0-9a-f]+000. It was kernel astray"
  with pytest.raises(DeviceLost, match=message):
    device.sync()
  for use in (device.sync, lambda: device.alloc(1), lambda: device.load(scaled())):
    with pytest.raises(DeviceLost, match="astray"):
      use()
  assert "reads 4 bytes" in backend.model.wrong
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []
  monkeypatch.setattr(hardware, "ANSWER", 0.05)
  with pytest.raises(Unavailable, match="does nothing that is put into it. End this process"):
    backend.open(0)
  assert backend.model.left() == []


def test_a_fault_of_another_gpu_is_none(device: QueueDevice, backend: ModelBackend) -> None:
  backend.model.raise_event(8, struct.pack("<IIIIQII", 1, 0, 0, 0, 0x1000, GPU_ID + 1, 0))
  assert (contents(device, filled(device, np.ones(N, np.float32))) == 1).all()


@pytest.mark.parametrize(
  ("kind", "data", "message"),
  [
    (8, struct.pack("<IIIIQII", 1, 0, 0, 0, 0x1000, GPU_ID, 1), "its memory had an error that could not be corrected"),
    (8, struct.pack("<IIIIQII", 0, 1, 0, 0, 0x1000, GPU_ID, 0), "wrote to memory that is only to be read: 0x1000"),
    (8, struct.pack("<IIIIQII", 0, 0, 1, 0, 0x1000, GPU_ID, 0), "jumped to where no code is: 0x1000"),
    (3, struct.pack("<IIII", 0, 0, 1, GPU_ID), "reset, because it did not answer, and its memory is lost"),
    (3, struct.pack("<IIII", 0, 1, 0, GPU_ID), "reset, because its memory had an error"),
    (3, bytes(16), "the GPU was reset"),
  ],
)
def test_what_the_driver_tells(backend: ModelBackend, kind: int, data: bytes, message: str) -> None:
  device = backend.open(0)
  backend.model.raise_event(kind, data)
  backend.model.hangs = True
  binary, memory = scaled(), device.alloc(4 * N)
  with pytest.raises(DeviceLost, match=message):
    device.launch(device.load(binary), [(memory, 0), (memory, 0)], [1], *sizes(binary, wait=True))
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def test_a_gpu_that_hangs_is_given_up(backend: ModelBackend) -> None:
  device, binary = backend.open(0), scaled("endless")
  program, memory = device.load(binary), device.alloc(4 * N)
  device.sync()
  backend.model.hangs = True
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
  with Context(QUEUE_TIMEOUT=1), pytest.raises(DeviceLost, match="nothing was finished for 1 seconds.*kernel endless"):
    device.sync()
  device.close()
  assert backend.model.left() == []


def test_a_queue_that_stops_says_why(backend: ModelBackend) -> None:
  device, binary = backend.open(0), scaled()
  program, memory = device.load(binary), device.alloc(4 * N)
  device.sync()
  program.kernel.descriptor = replace(program.kernel.descriptor, private_bytes=64)  # type: ignore[attr-defined]
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
  with pytest.raises(DeviceLost, match="stopped the queue with error 0x1: a kernel needs more private memory"):
    device.sync()
  device.close()
  assert backend.model.left() == []


@pytest.mark.parametrize(
  ("exception", "message"),
  [(4, "an instruction that the GPU does not know"), (5, "used an address"), (2, "a trap"), (22, "more registers")],
)
def test_exceptions_of_a_queue_are_told(backend: ModelBackend, exception: int, message: str) -> None:
  """KFD writes them to where the area for waves says, and sets an event: nobody waits for QUEUE_TIMEOUT."""
  device, binary = backend.open(0), scaled("bad")
  program, memory = device.load(binary), device.alloc(4 * N)
  device.sync()
  backend.model.raises = exception
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
  with pytest.raises(DeviceLost, match=f"exception {1 << (exception - 1):#x}: .*{message}.*kernel bad"):
    device.sync()
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


@pytest.mark.parametrize(
  ("code", "message"),
  [
    (0x200, "private memory of more than its share"),
    (0x401, "more private memory than the queue has, .*waves of 32"),
    (0x20000000, "used an address"),
    (0x40000000, "an instruction that the GPU does not know"),
    (0x80000000, "came to a trap"),
  ],
)
def test_errors_of_a_queue_in_words(code: int, message: str) -> None:
  assert re.search(f"error {code:#x}: .*{message}", str(queue_error(code)))


def test_a_linux_that_tells_of_no_exceptions() -> None:
  """Before 6.5; and another library in this process may have asked already."""
  for change in ({"runtime": False}, {"runtime_enabled": True}):
    backend = ModelBackend()
    vars(backend.model).update(change)
    device = backend.open(0)
    assert (contents(device, filled(device, np.ones(N, np.float32))) == 1).all()
    device.close()
    assert "RUNTIME_ENABLE" in backend.model.requests and backend.model.misuse == []


# *** opening ***


class Refusing(Model):
  """One that refuses a request."""

  def __init__(self, request: str, number: int) -> None:
    super().__init__()

    def refuse(given: Any) -> None:
      raise Refusal(number)

    setattr(self, f"do_{request}", refuse)


@pytest.mark.parametrize(
  ("model", "reason", "what_to_do"),
  [
    (Model(major=2), "Linux has KFD 2.14", "a version of tiny-runtime-amd"),
    (Refusing("ACQUIRE_VM", errno.EBUSY), "cannot share its addresses", "Another library in this process"),
    (Refusing("CREATE_QUEUE", errno.ENOSPC), r"CREATE_QUEUE\(.*No space", "dmesg"),
    (Refusing("CREATE_EVENT", errno.ENOSPC), r"CREATE_EVENT", "dmesg"),
    (Refusing("ALLOC_MEMORY_OF_GPU", errno.ENOMEM), "no memory left for another program", "rocm-smi"),
  ],
)
def test_what_cannot_be_opened_says_why(model: Model, reason: str, what_to_do: str) -> None:
  backend = ModelBackend()
  backend.model = backend.processes.system = model
  backend.places = model.places
  backend.processes.path = model.places.kfd
  with pytest.raises(Unavailable, match=reason) as found:
    backend.open(0)
  assert what_to_do in found.value.what_to_do and model.left() == []


def test_what_was_begun_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
  """The second event, and the doorbell."""
  backend = ModelBackend()
  model, create = backend.model, backend.model.do_CREATE_EVENT

  def once(given: Any) -> None:
    if model.events:
      raise Refusal(errno.ENOSPC)
    create(given)

  with monkeypatch.context() as patch:
    patch.setattr(model, "do_CREATE_EVENT", once)
    with pytest.raises(Unavailable, match="CREATE_EVENT"):
      backend.open(0)
  assert model.left() == []

  def no_doorbells(descriptor: int, nbytes: int, offset: int, address: int = 0) -> int:
    if address:
      return address
    raise OSError(errno.EINVAL, "no doorbells")

  monkeypatch.setattr(model, "map", no_doorbells)
  with pytest.raises(Unavailable, match="KFD gives no doorbell: no doorbells"):
    backend.open(0)
  assert model.left() == [] and model.misuse == []


def test_a_forked_process_begins_anew(backend: ModelBackend, monkeypatch: pytest.MonkeyPatch) -> None:
  first = backend.processes.get()
  assert backend.processes.get() is first
  monkeypatch.setattr(os, "getpid", lambda: first.pid + 1)
  second = backend.processes.get()
  assert second is not first and second.kfd.descriptor != first.kfd.descriptor


def test_two_devices_share_a_process(backend: ModelBackend) -> None:
  one, two = backend.open(0), backend.open(0)
  for device in (one, two, one):
    assert (contents(device, filled(device, np.full(N, 7, np.float32))) == 7).all()
  one.close()
  assert (contents(two, filled(two, np.full(N, 7, np.float32))) == 7).all()
  two.close()
  assert backend.model.misuse == [] and backend.model.left() == []


# *** the model finds what it is to find ***


def misused(backend: ModelBackend, device: QueueDevice) -> str:
  """What the model says of the last submission."""
  with pytest.raises((DeviceLost, OSError)):
    device.sync()
  device.lost = DeviceLost("it was")
  device.close()
  return backend.model.misuse[0]


@pytest.mark.parametrize(
  ("place", "content", "message"),
  [
    (0, struct.pack("<H", 2 | 1 << 8 | 2 << 11), "does not see what the host wrote"),
    (0, struct.pack("<H", 2 | 1 << 8 | 2 << 9 | 1 << 11), "would not see what was written"),
    (0, struct.pack("<H", 4 | 1 << 8 | 2 << 9), "packet of type 4"),
    (0, struct.pack("<H", 1 << 8 | 2 << 9), "packet of AMD's own"),
    (0, struct.pack("<H", 1), "is invalid"),
    (2, struct.pack("<H", 1), "with setup 1"),
    (4, struct.pack("<H", 63), "in workgroups of"),
    (28, struct.pack("<I", 5), ""),
    (32, struct.pack("<Q", 64), "64 bytes at 0x40 are in no buffer"),
    (40, struct.pack("<Q", 8), "arguments at 0x8|at 0x8 are in no buffer"),
    (56, struct.pack("<Q", 72), "at 0x48 are in no buffer"),
  ],
)
def test_the_model_refuses_packets(place: int, content: bytes, message: str) -> None:
  backend, binary = ModelBackend(), scaled()
  device = backend.open(0)
  program, memory = device.load(binary), device.alloc(4 * N)
  device.sync()
  call = program.call([(memory, 0), (memory, 0)], [1], *sizes(binary)[:2])
  prepared = driver(device).prepare([device._command(call)])
  assert isinstance(prepared, bytearray) and len(prepared) == aql.PACKET
  if not message:  # a packet that is as it should be
    prepared[place : place + len(content)] = content
    device.timeline.submit(prepared, ())
    device.sync()
    device.close()
    assert backend.model.misuse == []
    return
  prepared[place : place + len(content)] = content
  device.timeline.submit(prepared, ())
  assert re.search(message, misused(backend, device))


def test_the_model_refuses_doorbells_and_memory(backend: ModelBackend) -> None:
  device, memory = backend.open(0), None
  aql_queue = driver(device).queue
  assert aql_queue is not None
  aql_queue.doorbell[0] += 5
  device.timeline.submitted += 1
  assert "the doorbell was rung for packet" in misused(backend, device)
  model = Model()
  with pytest.raises(Misuse, match="are in no buffer"):
    model.buffer_at(GPU_ID, 4096)
  assert memory is None
