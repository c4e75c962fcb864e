"""The device NV on a model of NVIDIA's kernel driver: what its device half does, and says where things go wrong. The
conformance kit is in test_gpu_model_nv_kit.py."""

from __future__ import annotations

import errno
import gc
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import contents, copied_to_any_place, filled, sizes

from gpu_model.nv.cubin import assemble
from gpu_model.nv.errors import Refusal, Status
from gpu_model.nv.gpus import VERSIONS
from gpu_model.nv.model import Model
from gpu_model.nv_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_runtime import Binary, CompileError, DeviceLost, GraphCopy, GraphKernel, OutOfMemory, Unavailable
from tiny_runtime.hcq import Kind, QueueDevice
from tiny_runtime_nv import Arch
from tiny_runtime_nv.kernel_driver.compiler import CubinCompiler
from tiny_runtime_nv.kernel_driver.hardware import NVHardware
from tiny_runtime_nv.kernel_driver.tables import constant
from tiny_uop import Context, KernelInfo, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

F = dtypes.float32
N = 64
CHIPS = {"TU102": "sm_75", "GA102": "sm_86", "AD102": "sm_89", "GH100": "sm_90a", "GB202": "sm_120"}


@pytest.fixture
def backend() -> Iterator[ModelBackend]:
  made = ModelBackend("GH100")
  yield made
  made.model.end()


@pytest.fixture
def device(backend: ModelBackend) -> Iterator[QueueDevice]:
  """A device that gives everything back, and does nothing that the driver or the GPU would refuse."""
  backend.processes.get().code.take(1)  # addresses of code are the process's
  before = backend.model.left()
  opened = backend.open(0)
  yield opened
  opened.close()
  opened.close()
  model = backend.model
  assert model.misuse == [] and model.refused == [] and model.xids == [] and model.left() == before
  assert all(gpu.used == 0 for gpu in model.gpus) and model.host_used == 0


def driver(device: QueueDevice) -> NVHardware:
  assert isinstance(device.hardware, NVHardware)
  return device.hardware


def kernel(name: str, *, beyond: int = 0, times: int = 1) -> UOp:
  """p0[i] = p1[i + beyond] * n * times, with n an integer of the launch."""
  i, n = UOp.range(N, 0), UOp.variable("n", 0, 9)
  place = UOp.param(1, F.ptr(N + beyond)).index(i + beyond).load()
  return UOp.sink(UOp.param(0, F.ptr(N)).index(i).store(place * (n * times).cast(F)).end(i), arg=KernelInfo(name))


def scaled(name: str = "scaled", *, arch: str = "sm_90a", **how: int) -> Binary:
  return CubinCompiler(Arch.parse(arch), assembler=assemble).compile(kernel(name, **how))


def ones() -> np.ndarray[Any, np.dtype[np.float32]]:
  return np.ones(N, np.float32)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chip", CHIPS)
def test_every_generation_and_driver(chip: str, version: str) -> None:
  machine = ModelBackend(chip, version=version)
  assert machine.probe() == [CHIPS[chip]]
  device = machine.open(0)
  binary = scaled(arch=CHIPS[chip])
  source, target = filled(device, ones()), device.alloc(4 * N)
  device.launch(device.load(binary), [(target, 0), (source, 0)], [3], *sizes(binary))
  assert (contents(device, target) == 3).all()
  device.close()
  assert machine.model.misuse == [] and machine.model.xids == []
  machine.model.end()


# *** memory ***


@pytest.mark.parametrize("to", [0, 1, 5, 64])
def test_copies_at_any_place(device: QueueDevice, to: int) -> None:
  copied_to_any_place(device, to, (1, 3, 4096, 4099, (4 << 20) + 12345))  # the last is longer than a piece


def test_long_copies_are_several(device: QueueDevice) -> None:
  made = driver(device).copies(0, 1 << 41, (5 << 30) + 3)
  assert [copy.nbytes for copy in made] == [2 << 30, 2 << 30, (1 << 30) + 3]
  assert [copy.source - (1 << 41) for copy in made] == [copy.target for copy in made] == [0, 2 << 30, 4 << 30]


def test_out_of_memory_names_sizes_and_what_was_freed_is_there(device: QueueDevice, backend: ModelBackend) -> None:
  gpu = backend.model.gpus[0]
  whole = device.alloc(gpu.memory - gpu.used - (4 << 20))
  with pytest.raises(OutOfMemory, match=r"asked for: .*status 0x51, there is no memory left; \d+ bytes are in use"):
    device.alloc(16 << 20)
  device.free(whole)
  assert (contents(device, filled(device, ones())) == 1).all()
  backend.model.refused.clear()


def test_no_addresses_left(device: QueueDevice, monkeypatch: pytest.MonkeyPatch) -> None:
  def full(nbytes: int, address: int = 0) -> int:
    raise OSError(errno.ENOMEM, "mmap")

  with monkeypatch.context() as patch:
    patch.setattr(driver(device).system, "reserve", full)
    with pytest.raises(OutOfMemory, match="no addresses for"):
      device.alloc(1 << 20)
  device.alloc(1 << 20)


def test_the_hosts_memory_goes_around_what_is_there(device: QueueDevice) -> None:
  memories = driver(device).memories
  assert memories is not None
  first = memories.allocate(4096, Kind.HOST)
  memories.lowest = first.address  # as if it had come around
  second = memories.allocate(4096, Kind.HOST)
  assert first.address != second.address and max(first.address, second.address) < 1 << 40
  memories.release(first)
  memories.release(second)


# *** kernels, order, graphs ***


def test_launches_keep_their_order_and_count_seconds(device: QueueDevice) -> None:
  binary = scaled()
  program, a, b = device.load(binary), filled(device, ones()), device.alloc(4 * N)
  grid, group, _ = sizes(binary)
  for n in (2, 3, 4):
    device.launch(program, [(b, 0), (a, 0)], [n], grid, group, False)
    a, b = b, a
  seconds = device.launch(program, [(b, 0), (a, 0)], [5], grid, group, True)
  assert seconds is not None and seconds > 0
  assert (contents(device, b) == 120).all()


def test_more_submissions_than_the_ring_has_entries(device: QueueDevice, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime_nv.kernel_driver.channel.TAILS", 8)
  binary = scaled()
  program, a = device.load(binary), filled(device, ones())
  out = device.alloc(4 * N)
  for n in range(40):
    device.launch(program, [(out, 0), (a, 0)], [n % 10], *sizes(binary))
  assert (contents(device, out) == 9).all()


def test_a_graph_is_one_submission(device: QueueDevice) -> None:
  """A row of calls, launches and copies by turns, is two entries of the ring: words, and the tail that counts."""
  binary = scaled()
  program, memories = device.load(binary), [filled(device, ones()), device.alloc(4 * N), device.alloc(4 * N)]
  grid, group, _ = sizes(binary)
  calls: list[Any] = []
  for _ in range(4):
    calls += [
      GraphKernel(program, ((1, 0), (0, 0)), (2,), grid, group), GraphKernel(program, ((2, 0), (1, 0)), (3,), grid,
      group), GraphCopy((0, 0), (2, 0), 4 * N),
    ]  # fmt: skip
  graph = device.make_graph(calls, memories)
  channel = driver(device).channel
  assert channel is not None
  before, submitted = channel.written, channel.submitted
  device.run_graph(graph, (), (), False)
  assert (channel.written - before, channel.submitted - submitted) == (2, 1)
  device.run_graph(graph, (), (), False)  # while the first is under way
  assert (contents(device, memories[0]) == 6.0**8).all()
  device.run_graph(graph, [(1, device.alloc(4 * N))], [(0, replace(calls[0], integers=(1,)))], True)
  assert (contents(device, memories[0]) == 6.0**11 * 3).all()
  times = device.graph_times(graph)
  assert len(times) == 12 and all(0 <= begin <= end for begin, end in times)
  assert all(one[1] <= two[0] + 1e-9 for one, two in zip(times, times[1:]))


def test_code_is_where_none_was_before_and_goes_with_its_program(device: QueueDevice, backend: ModelBackend) -> None:
  binary = scaled()
  places = []
  for _ in range(3):
    program = device.load(binary)
    places.append(program.kernel.address)
    target = device.alloc(4 * N)
    device.launch(program, [(target, 0), (filled(device, ones()), 0)], [2], *sizes(binary))
    assert (contents(device, target) == 2).all()
    del program
    gc.collect()
    device.sync()
  assert len(set(places)) == 3


def test_the_entry_for_aligned_buffers_is_taken_where_they_are(device: QueueDevice) -> None:
  """Of a cubin with two entries; here they differ in what they compute."""
  binary, twice = scaled(), scaled("twice", times=2)
  compilers = CubinCompiler(Arch.parse("sm_90a"), assembler=lambda ptx, arch: ptx.encode())
  texts = [compilers.compile(kernel(name, times=times)).code.decode() for name, times in (("scaled", 1), ("twice", 2))]
  second = texts[1][texts[1].index(".visible .entry") :].replace(twice.entry, f"{binary.entry}_aligned")
  program = device.load(replace(binary, code=assemble(texts[0] + second, "sm_90a")))
  source, target = device.alloc(4 * N + 64), device.alloc(4 * N + 64)
  device.write(source, 0, np.ones(N + 16, np.float32).data.cast("B"))
  for first, expected in ((0, 6), (4, 3), (16, 6), (8, 3)):
    device.launch(program, [(target, first), (source, first)], [3], *sizes(binary))
    assert (contents(device, target)[first // 4 :][:N] == expected).all()
  graph = device.make_graph([GraphKernel(program, ((1, 4), (0, 0)), (5,), *sizes(binary)[:2])], [source, target])
  device.run_graph(graph, (), (), False)
  assert (contents(device, target)[1 : N + 1] == 5).all()
  call = GraphKernel(program, ((1, 16), (0, 16)), (5,), *sizes(binary)[:2])
  device.run_graph(graph, (), [(0, call)], False)
  assert (contents(device, target)[4 : N + 4] == 10).all()


def with_stack(binary: Binary, nbytes: int) -> Binary:
  """The same, which says that each thread needs local memory."""
  place = binary.code.index(b"\x04\x12\x08\x00") + 8
  return replace(binary, code=binary.code[:place] + struct.pack("<I", nbytes) + binary.code[place + 4 :])


def test_local_memory_grows() -> None:
  """Memory for every thread that may run at once, set up anew for a kernel that needs more; small ones keep it. The
  model wants as much as the launch says."""
  machine = ModelBackend("GH100", memory=8 << 30)
  device = machine.open(0)
  hardware, plain = driver(device), scaled()
  source, out = filled(device, ones()), device.alloc(4 * N)
  for nbytes, expected in ((256, 256), (64, 256), (4096, 4096)):
    program = device.load(with_stack(plain, nbytes))
    device.launch(program, [(out, 0), (source, 0)], [nbytes % 7], *sizes(plain))
    assert (contents(device, out) == nbytes % 7).all()
    assert hardware.local_bytes == expected + 0x240 and hardware.local is not None
    gpu = hardware.gpu
    assert hardware.local.nbytes >= hardware.local_bytes * 32 * gpu.warps * gpu.processors * gpu.pairs
  device.close()
  assert machine.model.misuse == [] and machine.model.xids == []
  machine.model.end()


def test_launches_that_are_too_large_say_how_large(device: QueueDevice) -> None:
  binary = scaled()
  program, memory = device.load(binary), filled(device, ones())
  with pytest.raises(ValueError, match=r"kernel tiny_scaled, \(1, 70000, 1\) blocks of .*a grid"):
    device.launch(program, [(memory, 0), (memory, 0)], [1], (1, 70000, 1), (N, 1, 1), False)
  with pytest.raises(ValueError, match=r"is for blocks of \(\d+, 1, 1\) threads, not \(7, 1, 1\)"):
    device.launch(program, [(memory, 0), (memory, 0)], [1], (1, 1, 1), (7, 1, 1), False)


def test_code_that_is_not_for_this_device(device: QueueDevice) -> None:
  binary = scaled()
  for code, message in (
    (b"nonsense", "is no cubin: no ELF file"),
    (scaled(arch="sm_80").code, "is for sm_80, and this GPU runs code for sm_90a"),
    (scaled("another").code, "without kernel tiny_scaled: it has tiny_another"),
  ):
    with pytest.raises(CompileError, match=message):
      device.load(replace(binary, code=code))


# *** what goes wrong ***


def launch_and_wait(device: QueueDevice, times: int) -> None:
  """Launches, each of which the host waits for."""
  binary = scaled()
  program = device.load(binary)
  source, target = filled(device, ones()), device.alloc(4 * N)
  for n in range(times):
    device.launch(program, [(target, 0), (source, 0)], [n % 10], *sizes(binary))
    assert (contents(device, target) == n % 10).all()
  device.free(source)
  device.free(target)


def test_who_waits_is_interrupted_and_nobody_else(device: QueueDevice, backend: ModelBackend) -> None:
  (gpu,) = backend.model.gpus
  launch_and_wait(device, 1)
  hardware = driver(device)
  first = gpu.interrupts
  assert first > 0
  for _ in range(5):
    hardware.submit(hardware.prepare([]), False)
  assert gpu.interrupts == first, "nobody waits yet"
  hardware._channel.ask()
  hardware._channel.ask()
  while hardware.completed() < hardware.submitted:
    hardware.pause(1e-3)
  assert gpu.interrupts == first + 1
  assert hardware.interrupts is not None and hardware.interrupts.missed == 0


def test_interrupts_that_never_come_are_not_waited_for(device: QueueDevice, backend: ModelBackend) -> None:
  backend.model.deaf = True
  launch_and_wait(device, 10)
  (gpu,) = backend.model.gpus
  asked = gpu.interrupts
  launch_and_wait(device, 5)
  interrupts = driver(device).interrupts
  assert interrupts is not None and not interrupts.come and gpu.interrupts == asked


@pytest.mark.parametrize(
  "name", ["NV_ESC_ALLOC_OS_EVENT", "NV01_EVENT_OS_EVENT", "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION"]
)
def test_without_interrupts_the_host_sleeps(name: str) -> None:
  machine = ModelBackend("GH100")
  refuse(machine.model, name)
  if name.startswith("NV_ESC_"):
    machine.model.fails[name.removeprefix("NV_ESC_")] = -errno.EPERM
  device = machine.open(0)
  assert driver(device).interrupts is None
  launch_and_wait(device, 3)
  device.close()
  assert machine.model.misuse == [] and machine.model.of_events == {} and machine.model.gpus[0].interrupts == 0
  machine.model.end()


def test_the_ring_has_room_for_an_interrupt_after_each_submission(device: QueueDevice) -> None:
  hardware = driver(device)
  prepared = hardware.prepare([])
  for _ in range(2500):
    hardware.submit(prepared, True)
    hardware._channel.ask()
  while hardware.completed() < hardware.submitted:
    hardware.pause(1e-3)


def test_a_fault_names_kernel_and_address_and_it_can_be_opened_again(backend: ModelBackend) -> None:
  device = backend.open(0)
  binary = scaled("beyond", beyond=1 << 30)
  program = device.load(replace(binary, params=scaled().params))
  source, target = filled(device, ones()), device.alloc(4 * N)
  device.launch(program, [(target, 0), (source, 0)], [3], *sizes(binary))
  with pytest.raises(
    DeviceLost, match=r"error 31 \(Xid 31 in `dmesg`\): a kernel used an address that is in no buffer: 0x\w+"
  ):
    device.sync()
  with pytest.raises(DeviceLost, match="kernel tiny_beyond"):
    device.alloc(4)
  device.close()
  again = backend.open(0)
  assert (contents(again, filled(again, ones())) == 1).all()
  again.close()
  assert backend.model.misuse == []


def test_a_gpu_that_hangs_is_given_up(backend: ModelBackend) -> None:
  device = backend.open(0)
  backend.model.hangs = True
  with Context(QUEUE_TIMEOUT=1), pytest.raises(DeviceLost, match=r"nothing was finished for 1 seconds"):
    filled(device, ones())
    device.sync()
  device.close()


def test_a_gpu_that_falls_off_the_bus_is_lost(backend: ModelBackend) -> None:
  device = backend.open(0)
  memory = filled(device, ones())
  device.sync()
  backend.model.lose(0)
  with pytest.raises(DeviceLost, match="error 79 .*fell off the bus"):
    contents(device, memory)
  device.close()
  with pytest.raises(Unavailable, match="fell off the bus"):
    backend.open(0)


REQUESTS = (
  "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2", "NV01_DEVICE_0", "NV20_SUBDEVICE_0",
  "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", "NV2080_CTRL_CMD_GR_GET_INFO", "FERMI_VASPACE_A", "UVM_INITIALIZE",
  "UVM_REGISTER_GPU", "UVM_REGISTER_GPU_VASPACE", "NV01_MEMORY_SYSTEM", "UVM_CREATE_EXTERNAL_RANGE",
  "UVM_MAP_EXTERNAL_ALLOCATION", "KEPLER_CHANNEL_GROUP_A", "FERMI_CONTEXT_SHARE_A", "HOPPER_CHANNEL_GPFIFO_A",
  "HOPPER_COMPUTE_A", "HOPPER_DMA_COPY_A", "UVM_REGISTER_CHANNEL", "HOPPER_USERMODE_A", "RM_MAP_MEMORY",
  "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN",
)  # fmt: skip


def refuse(model: Model, name: str) -> None:
  """Let the driver refuse objects of a class, a command, or a request."""
  kind = "cmd" if "_CTRL_CMD_" in name else "hClass"
  try:
    number = constant(name)
  except KeyError:
    number = -1
  if name.startswith("UVM_") or number < 0:
    model.fails[name] = Status.INSUFFICIENT_PERMISSIONS
    return
  request = "do_RM_CONTROL" if kind == "cmd" else "do_RM_ALLOC"
  before = getattr(model.resources, request)

  def refusing(given: Any, descriptor: int) -> None:
    if given[kind] == number:
      raise Refusal(Status.INSUFFICIENT_PERMISSIONS, "a test")
    before(given, descriptor)

  setattr(model.resources, request, refusing)


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_refused_is_named_and_what_was_begun_is_undone(name: str) -> None:
  machine = ModelBackend("GH100")
  refuse(machine.model, name)
  with pytest.raises(Unavailable, match=r"may not do that"):
    machine.open(0)
  left = machine.model.left()
  kept = ["2 files", "1 clients"] if machine.processes.current is not None else []
  if machine.processes.current is not None and not machine.processes.current.gpus:
    kept[0] = "1 files"  # that of the GPU is closed
  assert left == kept and machine.model.misuse == []
  machine.model.end()


def test_requests_that_the_system_refuses() -> None:
  for name, message in (("CARD_INFO", "lists no GPUs"), ("UVM_INITIALIZE", "NV cannot be opened")):
    machine = ModelBackend("GH100")
    machine.model.fails[name] = -errno.EPERM
    with pytest.raises(Unavailable, match=f"{message}: .*Operation not permitted"):
      machine.open(0)
    machine.model.end()


def test_a_gpu_that_is_lost_has_no_memory(backend: ModelBackend) -> None:
  device = backend.open(0)
  backend.model.lose(0)
  with pytest.raises(DeviceLost, match="fell off the bus"):
    device.alloc(1 << 20)
  device.close()


def test_an_old_driver_is_said(backend: ModelBackend, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime_nv.kernel_driver.process.OLDEST", 600)
  found = backend.probe()
  assert isinstance(found, Unavailable) and "version 580" in str(found) and "600 is the first" in str(found)


def test_there_is_no_such_gpu(backend: ModelBackend) -> None:
  with pytest.raises(Unavailable, match="there is no NV:1: 1 GPUs can be used"):
    backend.open(1)


def test_a_forked_process_begins_anew(backend: ModelBackend, monkeypatch: pytest.MonkeyPatch) -> None:
  first = backend.processes.get()
  assert backend.processes.get() is first
  monkeypatch.setattr(os, "getpid", lambda: first.pid + 1)
  assert backend.processes.get() is not first


def test_two_gpus_and_one_twice() -> None:
  machine = ModelBackend("GH100", "AD102")
  assert machine.probe() == ["sm_90a", "sm_89"]
  devices = [machine.open(index) for index in (0, 1, 0)]
  assert [device.info.name for device in devices] == ["NV", "NV:1", "NV"]
  for n, device in enumerate(devices):
    binary = scaled(arch=device.info.arch)
    out = device.alloc(4 * N)
    device.launch(device.load(binary), [(out, 0), (filled(device, ones()), 0)], [n + 2], *sizes(binary))
    assert (contents(device, out) == n + 2).all()
  for device in devices:
    device.close()
  assert machine.model.misuse == [] and machine.model.xids == []
  machine.model.end()


def test_gpus_reach_each_other_where_there_is_a_way() -> None:
  machine = ModelBackend("GH100", "GH100", "GH100", apart=[(0, 2)])
  first, second, third = (machine.open(n) for n in range(3))
  assert first.reaches(second) and second.reaches(first) and not first.reaches(third) and third.reaches(second)
  source, target = filled(second, 3 * ones()), filled(first, ones())
  first.copy_from(target, 0, second, source, 0, 4 * N, False)
  assert (contents(first, target) == 3).all()
  second.free(source)
  second.close()  # what the first had mapped of it goes, too
  assert (contents(first, target) == 3).all()
  first.close()
  third.close()
  model = machine.model
  assert model.misuse == [] and model.xids == [] and all(gpu.used == 0 for gpu in model.gpus)
  model.end()
