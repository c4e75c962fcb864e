"""The device half, on whatever driver is found: PoCL, where the package was installed with its extra `test`."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tiny_runtime import Binary, CompileError, DeviceLost, OutOfMemory, Unavailable
from tiny_runtime_opencl import BACKEND, Arch
from tiny_uop import AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

cl = pytest.importorskip("pyopencl")
find_devices = pytest.importorskip("tiny_runtime_opencl.machine").find_devices
F = dtypes.float32


@pytest.fixture(scope="module")
def arch() -> Arch:
  found = BACKEND.probe()
  if isinstance(found, Unavailable):
    pytest.skip(str(found))
  return Arch.parse(found[0])


@pytest.fixture
def device(arch: Arch) -> Iterator[Any]:
  opened = BACKEND.open(0)
  yield opened
  opened.close()


def in_child(code: str, **env: str) -> subprocess.CompletedProcess[str]:
  everything = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **env}
  return subprocess.run([sys.executable, "-c", code], env=everything, capture_output=True, text=True, timeout=120)


def floats(*values: float) -> bytes:
  return array("f", values).tobytes()


def read(device: Any, memory: Any, count: int) -> list[float]:
  out = bytearray(4 * count)
  device.read(memory, 0, memoryview(out))
  return list(memoryview(out).cast("f"))


def sums(rows: int, columns: int, opts: tuple[Opt, ...]) -> UOp:
  """out[i] = sum of row i."""
  i, r = UOp.range(rows, 0), UOp.range(columns, 1, AxisType.REDUCE)
  value = UOp.param(1, F.ptr(rows * columns)).index(i * columns + r).load().reduce(Ops.ADD, r)
  return UOp.sink(UOp.param(0, F.ptr(rows)).index(i).store(value).end(i), arg=KernelInfo("sums", opts))


def run(device: Any, arch: Arch, kernel: UOp, outputs: int, *inputs: bytes) -> tuple[Binary, list[float]]:
  binary = BACKEND.compiler(str(arch)).compile(kernel)
  memory = [device.alloc(4 * outputs), *(device.alloc(len(data)) for data in inputs)]
  for one, data in zip(memory[1:], inputs):
    device.write(one, 0, memoryview(data))
  sizes = [tuple(int(s.arg) for s in group) for group in (binary.global_size, binary.local_size)]
  device.launch(device.load(binary), [(m, 0) for m in memory], [], *sizes, True)
  return binary, read(device, memory[0], outputs)


def test_importing_needs_neither_driver_nor_pyopencl() -> None:
  code = "import sys; sys.modules['pyopencl'] = None\nimport tiny_runtime_opencl as o\nprint(o.BACKEND.probe())"
  done = in_child(code)
  assert done.returncode == 0, done.stderr
  assert "pyopencl cannot be imported" in done.stdout and "pip install --force-reinstall pyopencl" in done.stdout


def test_without_a_driver_it_says_what_to_do() -> None:
  code = "from tiny_runtime_opencl import BACKEND; print(repr(BACKEND.probe()))"
  done = in_child(code, OCL_ICD_VENDORS="/nowhere", OPENCL_VENDOR_PATH="/nowhere")
  assert "no OpenCL driver" in done.stdout and "tiny-runtime-opencl[pocl]" in done.stdout, done.stderr


def test_a_driver_that_does_not_know_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
  """Which an old PoCL on a new processor is: it finds the device and builds nothing."""
  if not find_devices():
    pytest.skip("there is no OpenCL driver")
  monkeypatch.setattr("tiny_runtime_opencl.machine.refusal", lambda device: "error: unknown target CPU 'generic'")
  found = BACKEND.probe()
  assert isinstance(found, Unavailable)
  assert "builds no kernel: error: unknown target CPU 'generic'" in str(found) and "newer" in found.what_to_do
  with pytest.raises(Unavailable, match="builds no kernel"):
    BACKEND.open(0)


def test_threads_add_up_in_local_memory(device: Any, arch: Arch) -> None:
  data = floats(*range(64 * 3))
  binary, got = run(device, arch, sums(3, 64, (Opt(OptOps.GROUP, 1, 16),)), 3, data)
  assert "__local float" in binary.source and "barrier(CLK_LOCAL_MEM_FENCE)" in binary.source
  assert [int(s.arg) for s in binary.local_size] == [16, 1, 1]
  assert got == [float(sum(range(64 * row, 64 * (row + 1)))) for row in range(3)]


def test_a_source_that_does_not_compile(device: Any, arch: Arch) -> None:
  binary = BACKEND.compiler(str(arch)).compile(sums(3, 4, ()))
  wrong = binary.source.replace("get_group_id", "get_no_such_id")
  with pytest.raises(CompileError, match="get_no_such_id") as caught:
    device.load(Binary(wrong.encode(), *[getattr(binary, f) for f in list(Binary.__dataclass_fields__)[1:]]))
  assert caught.value.source == wrong and "sums" in str(caught.value)


def test_out_of_memory_leaves_it_usable(device: Any, arch: Arch) -> None:
  most = find_devices()[0].max_mem_alloc_size
  for nbytes in (most + 4096, device.info.memory + 1, 1 << 60):
    with pytest.raises(OutOfMemory, match=str(nbytes)):
      device.alloc(nbytes)
  assert device.used == 0
  assert run(device, arch, sums(2, 2, ()), 2, floats(1, 2, 3, 4))[1] == [3.0, 7.0]


@pytest.mark.parametrize("code", [-2, -14, -36, -9999])
def test_a_device_that_is_gone(device: Any, arch: Arch, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
  binary = BACKEND.compiler(str(arch)).compile(sums(2, 2, ()))
  program, memory = device.load(binary), [(device.alloc(16), 0) for _ in range(2)]

  record = SimpleNamespace(code=lambda: code, routine=lambda: "clEnqueueNDRangeKernel", what=lambda: "")

  def enqueue(*arguments: Any) -> None:
    raise cl.LogicError(record)

  monkeypatch.setattr(cl, "enqueue_nd_range_kernel", enqueue)
  with pytest.raises(DeviceLost, match="kernel sums: clEnqueueNDRangeKernel says"):
    device.launch(program, memory, [], (2, 1, 1), (1, 1, 1), False)


def test_nothing_to_run(device: Any, arch: Arch) -> None:
  program = device.load(BACKEND.compiler(str(arch)).compile(sums(2, 2, ())))
  memory = [(device.alloc(16), 0) for _ in range(2)]
  assert device.launch(program, memory, [], (0, 1, 1), (1, 1, 1), True) == 0.0


def test_wrong_arguments_are_named(device: Any, arch: Arch) -> None:
  program = device.load(BACKEND.compiler(str(arch)).compile(sums(2, 2, ())))
  memory = device.alloc(8)
  with pytest.raises(ValueError, match=r"kernel sums takes 2 buffers .* got 1 buffers"):
    device.launch(program, [(memory, 0)], [], (2, 1, 1), (1, 1, 1), False)
  with pytest.raises(ValueError, match=r"bytes \[0, 16\) are outside this memory of 8 bytes"):
    device.launch(program, [(memory, 0), (memory, 0)], [], (2, 1, 1), (1, 1, 1), False)
  device.free(memory)
  with pytest.raises(ValueError, match="was freed"):
    device.write(memory, 0, memoryview(b"1234"))


def test_the_record_is_the_device_s(device: Any, arch: Arch) -> None:
  found = find_devices()[0]
  claims = device.info.capabilities
  assert (claims.local_memory, claims.max_local_size) == (found.local_mem_size, found.max_work_group_size)
  assert ("float64" in claims.dtypes) == ("cl_khr_fp64" in found.extensions)
  assert Arch.parse(device.info.arch) == arch


def test_types_that_it_has_or_lacks() -> None:
  def load(dtype: DType) -> UOp:
    return UOp.sink(UOp.param(0, dtype.ptr(1)).index(0).store(UOp.param(1, dtype.ptr(1)).index(0).load() * 3.0))

  emulated = BACKEND.compiler("gpu fp64 local=4096 group=4 sizes=4x4x4").compile(load(dtypes.float16)).source
  native = BACKEND.compiler("gpu fp16 local=4096 group=4 sizes=4x4x4").compile(load(dtypes.float16)).source
  assert "half" not in emulated and "half" in native


class Stopwatch:
  """Times candidates on a device, and keeps what was found: a Measure."""

  def __init__(self, device: Any) -> None:
    self.device, self.timed, self.found = device, dict[str, float](), ""

  def __call__(self, binary: Binary) -> float:
    memory = [self.device.alloc(p.size * p.dtype.itemsize) for p in binary.params]
    sizes = [tuple(int(s.arg) for s in group) for group in (binary.global_size, binary.local_size)]
    seconds = self.device.launch(self.device.load(binary), [(m, 0) for m in memory], [], *sizes, True)
    for one in memory:
      self.device.free(one)
    self.timed[binary.source] = float(seconds)
    return float(seconds)

  def recall(self) -> str | None:
    return self.found or None

  def remember(self, found: str) -> None:
    self.found = found


def test_a_search_times_candidates_on_the_device(device: Any, arch: Arch) -> None:
  i, floats = UOp.range(8, 0), F.ptr(8)
  store = UOp.param(0, floats).index(i).store(UOp.param(1, floats).index(i).load() * 2.0).end(i)
  kernel, compiler, watch = UOp.sink(store, arg=KernelInfo("double")), BACKEND.compiler(str(arch)), Stopwatch(device)
  with Context(BEAM=2):
    best = compiler.compile(kernel, watch)
    assert best.source in watch.timed and len(watch.timed) >= 3
    assert all(0 < seconds < 1 for seconds in watch.timed.values())
    again = Stopwatch(device)
    again.found = watch.found
    assert compiler.compile(kernel, again) == best and not again.timed  # found before
