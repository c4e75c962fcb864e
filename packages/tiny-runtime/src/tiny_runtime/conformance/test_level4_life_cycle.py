"""Level 4: running out of memory, threads, leaks, opening and closing."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.errors import OutOfMemory
from tiny_uop import UOp, dtypes

F = dtypes.float32


def add(amount: float, size: int = 64) -> UOp:
  return elementwise(f"add_{int(amount)}", size, F, [F], lambda a: a + amount)


def works(target: Target) -> None:
  """One small kernel."""
  out, _ = target.run(add(1.0), [bytes(256), pack(F, range(64))])
  assert unpack(F, out) == [float(i + 1) for i in range(64)]


def test_out_of_memory_then_continue(target: Target) -> None:
  total = target.device.info.memory
  for nbytes in {2 * total if total else 1 << 60, 1 << 60}:
    with pytest.raises(OutOfMemory):
      target.device.alloc(nbytes)
    works(target)


def test_memory_can_be_filled_again_and_again(target: Target) -> None:
  """More than the device's memory in all; a device that does not get freed memory back runs out."""
  total = target.device.info.memory
  piece = total // 8 or 64 << 20
  for _ in range(12 if total else 100):
    target.device.free(target.device.alloc(piece))
  held = [target.device.alloc(piece // 4) for _ in range(4)]
  for memory in held:
    target.device.free(memory)
  works(target)


def test_many_small_allocations(target: Target) -> None:
  for _ in range(3):
    held = [target.device.alloc(1 + 97 * k) for k in range(500)]
    for memory in held:
      target.device.free(memory)
  works(target)


def test_many_programs(target: Target) -> None:
  binary = target.compiler.compile(add(3.0))
  for _ in range(200):
    target.device.load(binary)
  gc.collect()
  programs = [target.compiler.compile(add(float(k))) for k in range(20)]
  for k, one in enumerate(programs):
    out, _ = target.run_binary(one, [bytes(256), pack(F, range(64))])
    assert unpack(F, out) == [float(i + k) for i in range(64)]


def test_calls_from_several_threads(target: Target) -> None:
  """One at a time, as the contract says, but each from another thread."""
  lock, errors = threading.Lock(), []

  def work() -> None:
    try:
      for _ in range(10):
        with lock:
          works(target)
    except BaseException as error:
      errors.append(error)

  threads = [threading.Thread(target=work) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not errors, errors[0]


def test_compiling_in_several_threads(target: Target) -> None:
  kernels = [add(float(k)) for k in range(16)]
  alone = [target.compiler.compile(kernel).to_bytes() for kernel in kernels]
  with ThreadPoolExecutor(8) as pool:
    together = list(pool.map(lambda kernel: target.compiler.compile(kernel).to_bytes(), kernels))
  assert alone == together


def test_open_close_and_open_again(target: Target) -> None:
  for _ in range(3):
    other = Target(target.name, target.backend, target.origin)
    works(other)
    other.device.close()
    other.device.close()
  works(target)


def test_launch_returns_its_time(target: Target) -> None:
  device, binary = target.device, target.compiler.compile(add(1.0, 4096))
  memory = [device.alloc(4 * 4096) for _ in range(2)]
  device.write(memory[1], 0, memoryview(bytes(4 * 4096)))
  program = device.load(binary)
  sizes = [tuple(int(size) for size in group) for group in (binary.global_size, binary.local_size)]
  seconds = device.launch(program, [(m, 0) for m in memory], [], sizes[0], sizes[1], True)
  assert seconds is not None and 0 < seconds < 60
  for one in memory:
    device.free(one)


def test_launches_happen_in_order(target: Target) -> None:
  """Without waiting in between: each one sees what the one before it wrote."""
  device, size, here = target.device, 1000, UOp.range(1000, 0)
  place = UOp.param(0, F.ptr(size)).index(here)
  from tiny_runtime.conformance.kernels import kernel

  programs = [
    device.load(target.compiler.compile(sink))
    for sink in (
      kernel("double", place.store(place.load() * 2.0).end(here)),
      kernel("increment", place.store(place.load() + 1.0).end(here)),
    )
  ]
  binary = target.compiler.compile(kernel("double", place.store(place.load() * 2.0).end(here)))
  memory = device.alloc(4 * size)
  device.write(memory, 0, memoryview(bytes(4 * size)))
  sizes = [tuple(int(extent) for extent in group) for group in (binary.global_size, binary.local_size)]
  expected = 0.0
  for step in range(20):
    device.launch(programs[step % 2], [(memory, 0)], [], sizes[0], sizes[1], False)
    expected = expected * 2 if step % 2 == 0 else expected + 1
  out = bytearray(4 * size)
  device.read(memory, 0, memoryview(out))
  assert unpack(F, bytes(out)) == [expected] * size
  device.free(memory)
