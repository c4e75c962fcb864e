"""The device through its contract: launches, errors, threads, what it prints."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tiny_runtime import Binary, CompileError, OutOfMemory, Unavailable
from tiny_runtime_cpu import BACKEND, CPUCompiler, CPUDevice, host_arch
from tiny_runtime_cpu.device import SHARED_COPY
from tiny_uop import AxisType, Context, KernelInfo, Ops, UOp, dtypes, evaluate

F = dtypes.float32
Sizes = tuple[int, ...]


@pytest.fixture
def device() -> Iterator[CPUDevice]:
  opened = CPUDevice()
  yield opened
  opened.close()


def scale(size: int) -> UOp:
  """out[i] = in[i] * n."""
  n, i = UOp.variable("n", 0, 10), UOp.range(size, 0)
  value = UOp.param(1, F.ptr(size)).index(i).load() * n.cast(F)
  return UOp.sink(UOp.param(0, F.ptr(size)).index(i).store(value).end(i), arg=KernelInfo("scale"))


def compiled(kernel: UOp) -> Binary:
  return CPUCompiler(host_arch()).compile(kernel)


def sizes(binary: Binary) -> tuple[Sizes, Sizes]:
  def numbers(group: tuple[UOp, ...]) -> Sizes:
    return tuple(int(str(evaluate(size, {}))) for size in group)

  return numbers(binary.global_size), numbers(binary.local_size)


@pytest.mark.parametrize("size", (1, 10, 100_000))
@pytest.mark.parametrize("threads", (1, 4))
def test_launch(device: CPUDevice, size: int, threads: int) -> None:
  binary = compiled(scale(size))
  out, data = device.alloc(4 * size), device.alloc(4 * size)
  device.write(data, 0, memoryview(struct.pack(f"{size}f", *range(size))))
  with Context(CPU_COUNT=threads):
    assert device.launch(device.load(binary), [(out, 0), (data, 0)], [3], *sizes(binary), False) is None
  got = bytearray(4 * size)
  device.read(out, 0, memoryview(got))
  assert list(struct.unpack(f"{size}f", got)) == [3.0 * i for i in range(size)]


def test_launch_checks_its_arguments(device: CPUDevice) -> None:
  binary = compiled(scale(16))
  program, out, data = device.load(binary), device.alloc(64), device.alloc(64)
  with pytest.raises(ValueError, match="takes 2 buffers and the 1 integers .*got 1 buffers and 1 integers"):
    device.launch(program, [(out, 0)], [3], *sizes(binary), False)
  with pytest.raises(ValueError, match="got 2 buffers and 0 integers"):
    device.launch(program, [(out, 0), (data, 0)], [], *sizes(binary), False)
  with pytest.raises(ValueError, match="needs 64 bytes from byte 4"):
    device.launch(program, [(out, 0), (data, 4)], [3], *sizes(binary), False)
  device.free(data)
  with pytest.raises(ValueError, match="freed"):
    device.launch(program, [(out, 0), (data, 0)], [3], *sizes(binary), False)


def test_reads_and_writes_stay_inside(device: CPUDevice) -> None:
  memory = device.alloc(10)
  for offset, size in ((0, 11), (5, 6), (-1, 2), (11, 0)):
    with pytest.raises(ValueError, match="outside this buffer of 10 bytes"):
      device.write(memory, offset, memoryview(bytes(size)))
    with pytest.raises(ValueError, match="outside this buffer of 10 bytes"):
      device.read(memory, offset, memoryview(bytearray(size)))
  device.free(memory)
  with pytest.raises(ValueError, match="freed"):
    device.read(memory, 0, memoryview(bytearray(1)))


@pytest.mark.parametrize("nbytes", (SHARED_COPY - 1, SHARED_COPY, 5 * SHARED_COPY + 3))
def test_large_copies_are_exact(device: CPUDevice, nbytes: int) -> None:
  memory = device.alloc(nbytes + 64)
  data = bytearray(random.Random(0).randbytes(nbytes))
  for source in (memoryview(data), memoryview(bytes(data))):  # the second cannot be written, so one thread copies it
    device.write(memory, 0, memoryview(bytes(nbytes + 64)))
    with Context(CPU_COUNT=3):
      device.write(memory, 7, source)
      out = bytearray(nbytes + 64)
      device.read(memory, 0, memoryview(out))
    assert out == bytes(7) + data + bytes(57)
  device.write(memory, 0, device.view(memory)[7 : 7 + nbytes])  # from the same memory, and overlapping
  assert device.view(memory)[:nbytes] == data


def test_out_of_memory() -> None:
  device = CPUDevice(memory_limit=1 << 20)
  held = device.alloc(1 << 19)
  with pytest.raises(OutOfMemory):
    device.alloc(1 << 20)
  device.free(held)
  device.alloc(1 << 20)
  device.close()


def test_kernels_that_make_no_code_are_compile_errors() -> None:
  stray = UOp.range(4, 7)
  bad = UOp.sink(UOp.param(0, F.ptr(4)).index(stray).store(1.0), arg=KernelInfo("stray"))
  with pytest.raises(CompileError) as caught:
    compiled(bad)
  assert caught.value.source
  compiled(scale(4))


def test_damaged_code_is_a_compile_error(device: CPUDevice) -> None:
  binary = compiled(scale(4))
  with pytest.raises(CompileError, match="scale"):
    device.load(replace(binary, code=b"junk"))
  with pytest.raises(CompileError, match="other"):
    device.load(replace(binary, entry="other"))


def test_compiler_is_pure_and_keyed_by_its_target() -> None:
  compiler = CPUCompiler(host_arch())
  assert pickle.loads(pickle.dumps(compiler)) == compiler
  plain = replace(host_arch(), cpu="", features="")
  assert CPUCompiler(plain).key != compiler.key
  assert str(host_arch()) in compiler.key


def test_code_for_another_machine_is_made_without_it() -> None:
  other = "aarch64-unknown-linux-gnu" if host_arch().family == "x86_64" else "x86_64-unknown-linux-gnu"
  binary = BACKEND.compiler(f"{other}::").compile(scale(64))
  assert binary.code and binary.code != compiled(scale(64)).code


def test_several_devices_have_memory_of_their_own_and_share_threads() -> None:
  found = BACKEND.probe()
  assert not isinstance(found, Unavailable) and len(found) == 8
  devices = [BACKEND.open(index) for index in (0, len(found) - 1)]
  memories = [device.alloc(8) for device in devices]
  for number, (device, memory) in enumerate(zip(devices, memories)):
    device.write(memory, 0, memoryview(bytes([number] * 8)))
  for number, (device, memory) in enumerate(zip(devices, memories)):
    out = bytearray(8)
    device.read(memory, 0, memoryview(out))
    assert out == bytes([number] * 8)
  first, last = devices
  assert isinstance(first, CPUDevice) and isinstance(last, CPUDevice) and first.pool is last.pool
  with pytest.raises(Unavailable, match="CPU:8 does not exist: there are 8"):
    BACKEND.open(8)


def test_threads_end_with_the_last_device() -> None:
  code = """
from tiny_runtime_cpu import BACKEND
first, second = BACKEND.open(0), BACKEND.open(1)
first.pool.ensure(3)
print(first.pool.workers)
first.close()
print(second.pool.workers)
second.close()
print(second.pool.workers)
"""
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
  assert (done.stdout.split(), done.stderr) == (["2", "2", "0"], "")


def busy(size: int, rounds: int) -> UOp:
  """Takes a while: `rounds` dependent steps per element."""
  i, r = UOp.range(size, 0), UOp.range(rounds, 1, AxisType.REDUCE)
  value = (UOp.param(1, F.ptr(size)).index(i).load() + r.cast(F)).sin().reduce(Ops.ADD, r)
  return UOp.sink(UOp.param(0, F.ptr(size)).index(i).store(value).end(i), arg=KernelInfo("busy"))


def test_other_python_threads_run_during_a_launch(device: CPUDevice) -> None:
  binary = compiled(busy(64, 2_000_000))
  program, out, data = device.load(binary), device.alloc(256), device.alloc(256)
  device.write(data, 0, memoryview(bytes(256)))
  ticks, stop = 0, threading.Event()

  def count() -> None:
    nonlocal ticks
    while not stop.wait(0.001):
      ticks += 1

  counter = threading.Thread(target=count)
  counter.start()
  with Context(CPU_COUNT=1):
    seconds = device.launch(program, [(out, 0), (data, 0)], [], *sizes(binary), True)
  stop.set()
  counter.join()
  assert seconds is not None and ticks >= 5, f"{ticks} ticks in {seconds} s"


def test_launch_overhead(device: CPUDevice) -> None:
  """A few microseconds of the calling thread."""
  binary = compiled(scale(16))
  program, out, data = device.load(binary), device.alloc(64), device.alloc(64)
  buffers, integers, (global_size, local_size) = [(out, 0), (data, 0)], [3], sizes(binary)
  best = 1.0
  for _ in range(5):
    start = time.thread_time()
    for _ in range(1000):
      device.launch(program, buffers, integers, global_size, local_size, False)
    best = min(best, (time.thread_time() - start) / 1000)
  assert best < 20e-6


def test_assembly_is_printed_with_debug(device: CPUDevice, capfd: pytest.CaptureFixture[str]) -> None:
  binary = compiled(scale(16))
  with Context(DEBUG=7):
    device.load(binary)
  assert "scale:" in capfd.readouterr().err
  device.load(binary)
  assert capfd.readouterr().err == ""


def test_exit_with_workers_asleep_and_spinning_is_clean() -> None:
  """The workers' code must not be unmapped under them when the interpreter ends."""
  code = """
from tiny_runtime_cpu import BACKEND
from tiny_runtime_cpu.pool import Pool
import ctypes, struct
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.target import Target
from tiny_uop import dtypes
F = dtypes.float32
kernel = elementwise("k", 1 << 16, F, [F], lambda a: a + 1.0)
Target("CPU", BACKEND, "").run(kernel, [bytes(1 << 18)] * 2)
pool = Pool(); pool.ensure(8)
"""
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "CPU_COUNT": "8"}
  for _ in range(3):
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
