"""The plugin METAL on a model of Metal: the conformance kit, matrices of SIMD-groups, and what its device half does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_model_devices import conformance
from gpu_model_kernels import SMALL, check_on, product, some

from gpu_model.framework import Model
from gpu_model.machine import Options
from gpu_model.metal import BACKEND, ModelBackend, ModelDevice
from gpu_model.toolchain import compiler
from tiny_runtime import Binary, CompileError, DeviceLost, GraphCopy, GraphKernel, OutOfMemory, Unavailable
from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.target import Target, reference
from tiny_runtime.conformance.values import small
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

EVERY = "60"
"""Of the cases of each test of the kit, which of them run here. `hatch run gpu-model` runs all, in three minutes."""
F = dtypes.float32


@pytest.fixture
def device() -> Iterator[ModelDevice]:
  """A device whose objects have to be gone at the end."""
  opened = BACKEND.open(0)
  yield opened
  opened.close()
  opened.close()
  assert opened.messages.held == []


def copy(size: int, name: str = "copy", threads: int = 4) -> UOp:
  i, floats = UOp.range(size, 0), dtypes.float32.ptr(size)
  store = UOp.param(0, floats).index(i).store(UOp.param(1, floats).index(i).load()).end(i)
  return UOp.sink(store, arg=KernelInfo(name, (Opt(OptOps.LOCAL, 0, threads),)))


def compiled(kernel: UOp) -> Binary:
  return BACKEND.compiler("apple9").compile(kernel)


def launch(device: ModelDevice, binary: Binary, wait: bool = False, threads: int = 4) -> None:
  program = device.load(binary)
  memories = [device.alloc(64), device.alloc(64)]
  try:
    device.launch(program, [(memory, 0) for memory in memories], [], (4, 1, 1), (threads, 1, 1), wait)
  finally:
    for memory in memories:
      device.free(memory)


def test_the_conformance_kit(tmp_path: Path) -> None:
  report = tmp_path / "report.json"
  cases = "(level2 or level3 or graphs) and not within_one_memory and not sum_of_many"
  conformance("metal", cases, "--report", str(report), "--every", EVERY)
  done = json.loads(report.read_text())["cases"]
  assert {case["level"] for case in done if case["outcome"] == "passed"} == {2, 3, 5}


# *** matrices ***


@pytest.mark.parametrize("core", range(3))
@pytest.mark.parametrize("shape", some([(13, 9, 11), (8, 8, 8), (24, 16, 40)], 3), ids=str)
def test_products_of_matrices(core: int, shape: tuple[int, int, int]) -> None:
  """Each element of each fragment where it belongs, with sums that go on over several matrices, and what is padded."""
  kernel = product(shape, (8, 8, 8), ((dtypes.float16, dtypes.bfloat16, F)[core], F), core)
  assert "simdgroup_multiply_accumulate" in check_on(BACKEND, kernel)


def test_products_of_matrices_under_a_causal_mask() -> None:
  kernel = product((24, 16, 32), (8, 8, 8), (dtypes.float16, F), 0, causal=True)
  assert "simdgroup_multiply_accumulate" in check_on(BACKEND, kernel)


# *** the device half ***


def test_newer_systems_and_older_ones() -> None:
  """The options of macOS 15, those before, and a system whose language has no bfloat."""
  for system, arch in (((15, 1), "apple9"), ((14, 0), "apple9"), ((13, 6), "apple9 metal3.0")):
    backend = ModelBackend(system=system)
    assert backend.probe() == [arch]
    opened = backend.open(0)
    launch(opened, backend.compiler(arch).compile(copy(16)), wait=True)
    opened.close()
  assert isinstance(found := ModelBackend(system=(12, 7)).probe(), Unavailable) and "macOS 12.7" in found.reason


def test_families() -> None:
  assert ModelBackend(family=1007).probe() == ["apple7"] and ModelBackend(family=2002).probe() == ["mac2"]
  assert isinstance(found := ModelBackend(family=1006).probe(), Unavailable)
  assert "a model of a GPU, of no family that is supported (apple10" in found.reason


def test_probing_holds_nothing() -> None:
  model = Model()
  backend = ModelBackend()
  backend.connect = lambda: model
  backend.probe()
  with pytest.raises(Unavailable, match="METAL:1 does not exist: there are 1, numbered from 0"):
    backend.open(1)
  assert model.held == []


def test_everything_is_given_back(device: ModelDevice) -> None:
  for n in range(3):
    launch(device, compiled(copy(16, f"copy{n}")), wait=n == 1)
  device.sync()
  assert sorted(device.messages.held) == ["Gpu", "Queue"]


def test_an_access_that_must_not_be_names_the_kernel_and_the_cause(device: ModelDevice) -> None:
  """The error comes where the launch is waited for; the device goes on."""
  binary = compiled(copy(16, "too_far"))
  binary = replace(binary, code=binary.code.replace(b"p1[", b"p1[1 + "))
  launch(device, binary)
  with pytest.raises(DeviceLost, match=r"kernel too_far on METAL: it touched memory outside .* thread \(3, 0, 0\)"):
    device.sync()
  launch(device, compiled(copy(16)), wait=True)


def test_what_the_driver_refuses_is_shown(device: ModelDevice) -> None:
  binary = compiled(copy(16))
  with pytest.raises(CompileError, match="(?s)Metal's compiler refused kernel copy:\n.*nonsense") as caught:
    device.load(replace(binary, code=binary.code.replace(b"gid.x", b"nonsense")))
  assert "nonsense" in caught.value.source
  with pytest.raises(CompileError, match="no function tiny_other"):
    device.load(replace(binary, entry="other"))


def test_arguments_that_do_not_fit(device: ModelDevice) -> None:
  with pytest.raises(ValueError, match="launched with 8 × 1 × 1 threads .* room for 4"):
    launch(device, compiled(copy(16)), threads=8)
  program, memory = device.load(compiled(copy(16))), device.alloc(60)
  with pytest.raises(ValueError, match="buffer 0 of kernel copy: .* outside this memory of 60 bytes"):
    device.launch(program, [(memory, 0), (memory, 0)], [], (1, 1, 1), (4, 1, 1), False)
  with pytest.raises(ValueError, match="takes 2 buffers"):
    device.launch(program, [(memory, 0)], [], (1, 1, 1), (4, 1, 1), False)
  device.free(memory)
  with pytest.raises(ValueError, match="buffer 0 of kernel copy: this memory of 60 bytes was freed"):
    device.launch(program, [(memory, 0), (memory, 0)], [], (1, 1, 1), (4, 1, 1), False)


def test_a_failing_graph_names_its_kernels(device: ModelDevice) -> None:
  binaries = [compiled(copy(16, f"copy{n}")) for n in range(6)]
  far = replace(binaries[5], code=binaries[5].code.replace(b"p1[", b"p1[1 + "))
  programs = [device.load(binary) for binary in (*binaries[:5], far)]
  memories = [device.alloc(64), device.alloc(64)]
  calls = [GraphKernel(program, ((0, 0), (1, 0)), (), (4, 1, 1), (4, 1, 1)) for program in programs]
  graph = device.make_graph([*calls, GraphCopy((0, 1), (0, 0), 63)], memories)
  with pytest.raises(
    DeviceLost, match="a captured graph with kernels copy0, copy1, copy2, copy3 and 2 others on METAL"
  ):
    device.run_graph(graph, [], [], True)
  with pytest.raises(ValueError, match="outside this memory of 64 bytes"):
    device.make_graph([GraphCopy((0, 2), (1, 0), 63)], memories)
  for memory in memories:
    device.free(memory)


def test_memory_ends(device: ModelDevice) -> None:
  half = device.info.memory // 2
  held = [device.alloc(half), device.alloc(half - 64)]
  with pytest.raises(OutOfMemory, match="65 bytes asked for, 64 of"):
    device.alloc(65)
  with pytest.raises(OutOfMemory, match="in one piece"):
    device.alloc(half + 1)
  for memory in held:
    device.free(memory)
  launch(device, compiled(copy(16)), wait=True)


def test_more_launches_than_a_queue_takes(device: ModelDevice) -> None:
  program, (to, of) = device.load(compiled(copy(16))), (device.alloc(64), device.alloc(64))
  for _ in range(100):
    device.launch(program, [(to, 0), (of, 0)], [], (4, 1, 1), (4, 1, 1), False)
  assert len(device.pending) <= 48
  seconds = device.launch(program, [(to, 0), (of, 0)], [], (4, 1, 1), (4, 1, 1), True)
  assert seconds is not None and 0 < seconds < 10 and not device.pending
  device.free(to)
  device.free(of)


@pytest.mark.parametrize("dtype", [F, dtypes.float16, dtypes.int8], ids=str)
def test_either_order_of_threads_gives_the_same(dtype: DType) -> None:
  """A sum that a threadgroup shares, with the last thread first."""
  i, r = UOp.range(3, 0), UOp.range(100, 1, AxisType.REDUCE)
  total = UOp.param(1, dtype.ptr(300)).index(i * 100 + r).load().reduce(Ops.ADD, r)
  kernel = UOp.sink(
    UOp.param(0, dtype.ptr(3)).index(i).store(total).end(i), arg=KernelInfo("sums", (Opt(OptOps.GROUP, 1, 4),))
  )
  for backwards in (False, True):
    target = Target("METAL", ModelBackend(Options(backwards=backwards)), "gpu_model.metal:BACKEND")
    compare(target, reference(), kernel, [bytes(3 * dtype.itemsize), small(dtype, 300)], look_at="barriers")
    target.device.close()


@pytest.mark.parametrize("count", [31, 40])
def test_kernels_with_many_buffers(count: int) -> None:
  """By index, and as addresses in a table; with a variable, which comes behind either."""
  i, n = UOp.range(8, 0), UOp.variable("n", 1, 9)
  total = n.cast(F)
  for slot in range(1, count):
    total = total + UOp.param(slot, F.ptr(8)).index(i).load() * float(slot)
  kernel = UOp.sink(UOp.param(0, F.ptr(8)).index(i).store(total).end(i), arg=KernelInfo("many"))
  target = Target("METAL", BACKEND, "gpu_model.metal:BACKEND")
  contents = [small(F, 8, slot) for slot in range(count)]
  compare(target, reference(), kernel, contents, {"n": 5}, offset=[4 * (slot % 3) for slot in range(count)])
  target.device.close()


# *** what the heuristics choose ***


@pytest.mark.parametrize("name", some(SMALL, 2))
def test_standard_kernels_with_what_the_heuristics_choose(name: str) -> None:
  """Right, with no race, no barrier that some threads miss, and no access outside, whatever the optimisations are."""
  check_on(BACKEND, SMALL[name](), tolerance=64)
