"""The plugin CUDA on a model of NVIDIA's driver: a part of the conformance kit, tensor cores, and what its device half
does where things go wrong.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import conformance, contents, filled, sizes

from gpu_model.cuda import BACKEND, ModelBackend
from gpu_model.cuda_driver import NO_MEMORY, Model
from gpu_model.cuda_objects import Status
from gpu_model.ptx import Kernel, Module
from gpu_model.toolchain import Refused, compiler
from tiny_codegen import KernelOptError, compile_kernel
from tiny_runtime import Binary, CompileError, DeviceLost, GraphCopy, GraphKernel, OutOfMemory, Unavailable
from tiny_runtime.conformance.comparing import compare
from tiny_runtime.conformance.standard import matmul
from tiny_runtime.conformance.target import Target, reference
from tiny_runtime.conformance.values import small
from tiny_runtime_nv import CUDA, Arch, NVCompiler
from tiny_runtime_nv.cuda_graph import copy_nodes
from tiny_runtime_nv.device import CUDADevice
from tiny_runtime_nv.memory import PIECE
from tiny_runtime_nv.shared_memory import at_launch
from tiny_runtime_nv.target import PTXRenderer
from tiny_runtime_nv.tensor_cores import AMPERE, FLOAT8, HOPPER
from tiny_uop import AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

EVERY = "300"
CASES = "(level1 or level4 or level5 or random_kernel or test_cast) and not many_programs and not nothing_is_kept"
CASES += " and not leave_nothing"  # the model keeps more than a driver does, and is slow
"""Of the kit, what runs here: what a device does more than what a compiler does. `hatch run cuda-model` runs all."""
F = dtypes.float32
N = 64
PRODUCTS = (
  (dtypes.bfloat16, F), (dtypes.float16, F), (dtypes.int8, dtypes.int32), (dtypes.uint8, dtypes.int32),
  (dtypes.float64, dtypes.float64),
)  # fmt: skip


@pytest.fixture
def backend() -> ModelBackend:
  return ModelBackend()


@pytest.fixture
def device(backend: ModelBackend) -> Iterator[CUDADevice]:
  """A device that gives everything back, and does nothing that the driver's manual forbids."""
  opened = backend.open(0)
  yield opened
  opened.close()
  opened.close()
  assert backend.model.misuse == [] and backend.model.retained == 0


def scaled(name: str = "scaled", *, beyond: int = 0) -> Binary:
  """p0[i] = p1[i + beyond] * n, with n an integer of the launch."""
  i, n = UOp.range(N, 0), UOp.variable("n", 0, 9)
  place = UOp.param(1, F.ptr(N + beyond)).index(i + beyond).load()
  done = UOp.param(0, F.ptr(N)).index(i).store(place * n.cast(F)).end(i)
  return ModelBackend().compiler("sm_90a").compile(UOp.sink(done, arg=KernelInfo(name)))


def test_conformance() -> None:
  conformance("cuda", CASES, "--every", EVERY)


@pytest.mark.parametrize("core", range(len(AMPERE)), ids=lambda n: str(AMPERE[n].core))
def test_products_on_tensor_cores(core: int) -> None:
  """Each element of each fragment where it belongs, with sums that go on over several instructions."""
  target = Target("CUDA", BACKEND, "gpu_model.cuda:BACKEND")
  m, n, k = 32, 16, 64
  dtype, total = PRODUCTS[core]
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  a = UOp.param(1, dtype.ptr(m * k)).index(i * k + r).load().cast(total)
  b = UOp.param(2, dtype.ptr(k * n)).index(r * n + j).load().cast(total)
  store = UOp.param(0, total.ptr(m * n)).index(i * n + j).store((a * b).reduce(Ops.ADD, r)).end(i, j)
  kernel = UOp.sink(store, arg=KernelInfo("product", (Opt(OptOps.TC, 2, core),)))
  assert b"mma.sync" in target.compile(kernel).code
  contents = [bytes(total.itemsize * m * n), small(dtype, m * k), small(dtype, k * n, 1)]
  compare(target, reference(), kernel, contents, look_at="lanes")
  target.device.close()


def in_shared_memory(length: int) -> UOp:
  """A product of 16 rows with 16 columns, of all of which a workgroup has 128 bytes × length in shared memory."""
  opts = (Opt(OptOps.LOCAL, 0, 16), Opt(OptOps.LOCAL, 1, 16), Opt(OptOps.STAGE, 1, (2,)), Opt(OptOps.STAGE, 2, (2,)))
  return matmul(16, 16, length, F, F, F).replace(arg=KernelInfo("product", opts))


def test_more_shared_memory_than_ptx_may_ask_for(device: CUDADevice) -> None:
  target, kernel = Target("CUDA", BACKEND, "gpu_model.cuda:BACKEND"), in_shared_memory(800)
  binary = target.compile(kernel)
  assert at_launch(binary.code) == 128 * 800 and b".extern .shared" in binary.code
  given = [bytes(4 * 256), small(F, 16 * 800), small(F, 16 * 800, 1)]
  result = compare(target, reference(), kernel, given)
  target.device.close()
  program, memories = device.load(binary), [filled(device, np.frombuffer(g, np.uint8)) for g in given]
  call = GraphKernel(program, ((0, 0), (1, 0), (2, 0)), (), *sizes(binary)[:2])
  device.run_graph(device.make_graph([call], memories), [], [], wait=True)
  assert contents(device, memories[0]).tobytes() == result[0], "in a graph, too"
  few = ModelBackend().compiler("sm_90a").compile(in_shared_memory(300))
  assert at_launch(few.code) == 0 and b".extern .shared" not in few.code


def test_the_driver_wants_to_know_of_much_shared_memory(device: CUDADevice, backend: ModelBackend) -> None:
  binary = backend.compiler("sm_90a").compile(in_shared_memory(800))
  memory, launch = device.alloc(4 * 16 * 800), partial(device.launch, integers=[])
  program = device.load(binary)
  for function in program.functions:
    backend.model.thing(function, Kernel).most_at_launch = 48 << 10  # what it is before it is asked for more
  with pytest.raises(ValueError, match="INVALID_VALUE"):
    launch(program, [(memory, 0)] * 3, global_size=(1, 1, 1), local_size=(16, 16, 1), wait=False)
  program = device.load(binary)
  program.shared -= 4
  launch(program, [(memory, 0)] * 3, global_size=(1, 1, 1), local_size=(16, 16, 1), wait=False)
  with pytest.raises(DeviceLost, match=r"(reads|writes) \d+ bytes"):
    device.sync()
  backend.model.misuse.clear()


def test_copies_longer_than_a_piece(device: CUDADevice) -> None:
  data = np.random.default_rng(0).integers(0, 256, 2 * PIECE + 12345, np.uint8)
  memory = device.alloc(data.nbytes + 3)
  given = data.copy()
  device.write(memory, 3, given.data)
  given[:] = 0  # which is allowed on return
  out = np.zeros_like(data)
  device.read(memory, 3, out.data)
  assert (out == data).all()
  with pytest.raises(ValueError, match=r"bytes \[4, \d+\) are outside this memory"):
    device.write(memory, 4, data.data)


def test_launches_keep_their_order_and_memory_is_freed_behind_them(device: CUDADevice, backend: ModelBackend) -> None:
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
  with pytest.raises(ValueError, match="was freed"):
    device.launch(program, [(third, 0), (second, 0)], [1], *sizes(binary))
  with pytest.raises(ValueError, match="takes 2 buffers and 1 integers, not 1 and 0"):
    device.launch(program, [(third, 0)], [], *sizes(binary))


def test_any_thread_may_use_it(device: CUDADevice) -> None:
  memory, seen = device.alloc(4 * N), []
  device.write(memory, 0, np.ones(N, np.float32).data)
  thread = threading.Thread(target=lambda: seen.append(contents(device, memory).sum()))
  thread.start()
  thread.join()
  assert seen == [N]


def test_programs_that_nobody_holds_are_unloaded(device: CUDADevice, backend: ModelBackend) -> None:
  def loaded() -> int:
    return sum(isinstance(thing, Module) for thing in backend.model.handles.values())

  before = loaded()
  binary, memory = scaled(), device.alloc(4 * N)
  program = device.load(binary)
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
  del program
  gc.collect()
  assert loaded() == before + 1, "the launch may still need it"
  device.sync()
  assert loaded() == before


def test_out_of_memory_names_sizes_and_what_was_freed_is_there(device: CUDADevice) -> None:
  most = device.info.memory
  whole = device.alloc(most)
  with pytest.raises(
    OutOfMemory, match=f"allocating 4096 bytes: .*; 0 of {most} bytes are free, and {most} are in use"
  ):
    device.alloc(4096)
  device.free(whole)  # once the stream has come to that
  assert device.alloc(most).nbytes == most


def test_an_illegal_access_names_the_kernel_and_ends_the_process(backend: ModelBackend) -> None:
  binary, device = scaled("astray", beyond=1 << 20), backend.open(0)
  program, memory = device.load(binary), device.alloc(4 * N)
  program.needs[1] = 0  # what the contract's caller would have seen to
  device.launch(program, [(memory, 0), (memory, 0)], [1], *sizes(binary))
  message = "CUDA_ERROR_ILLEGAL_ADDRESS.*an address that is in no buffer. It was kernel tiny_astray. End this process"
  with pytest.raises(DeviceLost, match=message):
    device.sync()
  for use in (device.sync, lambda: device.alloc(1), lambda: device.load(binary)):
    with pytest.raises(DeviceLost, match="tiny_astray"):
      use()
  device.free(memory)
  device.close()
  assert "cuDevicePrimaryCtxReset_v2" not in backend.model.calls
  with pytest.raises(Unavailable, match="CUDA had a fault in this process: .*ILLEGAL_ADDRESS") as found:
    backend.open(0)
  assert "End this process" in found.value.what_to_do and backend.model.retained == 0
  assert backend.model.misuse == []


@pytest.mark.parametrize("status", [201, 214, 710, 999])
def test_a_device_that_can_be_opened_again(backend: ModelBackend, status: int) -> None:
  """The errors that cuda.h does not say that of."""
  device = backend.open(0)
  backend.model.gpus[0].broken = status
  with pytest.raises(DeviceLost) as found:
    device.sync()
  assert "End this process" not in str(found.value)
  device.close()
  again = backend.open(0)
  assert (contents(again, filled(again, np.ones(N, np.float32))) == 1).all()
  again.close()
  assert backend.model.misuse == []


def test_a_graph_that_cannot_be_changed_is_built_anew(device: CUDADevice, backend: ModelBackend) -> None:
  binary, source = scaled(), np.arange(N, dtype=np.float32)
  program, (grid, block, _) = device.load(binary), sizes(binary)
  one, two, other = filled(device, source), device.alloc(4 * N), filled(device, source + 100)
  doubled = GraphKernel(program, ((1, 0), (0, 0)), (2,), grid, block)
  graph = device.make_graph([doubled, GraphCopy((2, 0), (1, 0), 4 * N)], [one, two, device.alloc(4 * N)])
  backend.model.refuses_changes = True
  device.run_graph(graph, [(2, other)], [(0, replace(doubled, integers=(3,)))], wait=True)
  assert (contents(device, two) == 3 * source).all() and (contents(device, other) == 3 * source).all()
  assert backend.model.calls.count("cuGraphInstantiateWithFlags") == 2 + 1, "one of them with clocks"
  device.run_graph(graph, [], [(0, replace(doubled, integers=(4,)))], wait=True)
  assert (contents(device, other) == 4 * source).all()
  assert backend.model.calls.count("cuGraphInstantiateWithFlags") == 3 + 2


def test_graphs_tell_the_times_of_calls_to_who_waits(device: CUDADevice, backend: ModelBackend) -> None:
  binary, source = scaled(), np.arange(N, dtype=np.float32)
  program, (grid, block, _) = device.load(binary), sizes(binary)
  one, two = filled(device, source), device.alloc(4 * N)
  doubled = GraphKernel(program, ((1, 0), (0, 0)), (2,), grid, block)
  nothing = replace(doubled, global_size=(0, 1, 1))
  graph = device.make_graph([doubled, nothing, GraphCopy((0, 0), (1, 0), 4 * N)], [one, two])
  device.run_graph(graph, [], [], wait=False)
  assert "cuGraphAddEventRecordNode" not in backend.model.calls, "who does not ask does not pay"
  for factor in (2, 3):
    seconds = device.run_graph(graph, [], [(0, replace(doubled, integers=(factor,)))], wait=True)
    times = device.graph_times(graph)
    assert len(times) == 3 and times == sorted(times) and times[0][0] == 0 and seconds is not None
    assert all(begin < end for begin, end in times) and times[-1][1] <= seconds + 1e-6
  assert (contents(device, one) == 12 * source).all() and backend.model.misuse == []
  assert backend.model.calls.count("cuGraphAddEventRecordNode") == 4


def test_launches_that_are_too_large_say_how_large(device: CUDADevice) -> None:
  binary, memory = scaled(), device.alloc(4 * N)
  program = device.load(binary)
  with pytest.raises(
    ValueError, match=r"kernel tiny_scaled, \(1, 70000, 1\) blocks of .*INVALID_VALUE.*registers a thread"
  ):
    device.launch(program, [(memory, 0), (memory, 0)], [1], (1, 70000, 1), sizes(binary)[1], False)


def test_code_that_the_driver_refuses(device: CUDADevice) -> None:
  with pytest.raises(CompileError, match="refused kernel tiny_scaled: .*INVALID_PTX(.|\n)*ptxas fatal") as found:
    device.load(replace(scaled(), code=b"nothing of the kind"))
  assert "define ptx_kernel" in found.value.source
  foreign = scaled().code.replace(b"sm_90a", b"sm_100")
  with pytest.raises(CompileError, match="sm_100 is for a later GPU"):
    device.load(replace(scaled(), code=foreign))


def test_graphs_change_and_copy_what_overlaps(device: CUDADevice, backend: ModelBackend) -> None:
  binary, source = scaled(), np.arange(N, dtype=np.float32)
  program, (grid, block, _) = device.load(binary), sizes(binary)
  one, two, other = filled(device, source), device.alloc(4 * N), filled(device, source + 100)
  nothing = GraphKernel(program, ((1, 0), (0, 0)), (5,), (0, 1, 1), block)
  doubled = GraphKernel(program, ((1, 0), (0, 0)), (2,), grid, block)
  calls: list[GraphKernel | GraphCopy] = [
    doubled,
    nothing,
    GraphCopy((1, 4), (2, 0), 4 * N - 4),  # 2 is 1 at first, so they overlap
  ]
  graph = device.make_graph(calls, [one, two, two])
  assert (device.run_graph(graph, [], [], wait=True) or 0) > 0
  assert contents(device, two).tolist() == [0, *(2 * source[:-1]).tolist()]
  device.run_graph(graph, [(2, other)], [(0, replace(doubled, integers=(3,)))], wait=False)
  assert contents(device, two).tolist() == [0, *(source[:-1] + 100).tolist()]
  device.run_graph(graph, [(2, two), (0, other)], [(1, replace(nothing, global_size=grid))], wait=False)
  assert contents(device, two).tolist() == [500, *(5 * (source[:-1] + 100)).tolist()]
  del graph
  gc.collect()
  device.sync()
  assert not any(kind.__class__.__name__ == "CallGraph" for kind in backend.model.handles.values())


def test_long_copies_are_of_several_rows() -> None:
  nodes = copy_nodes(1000, 5 << 40, (5 << 30) // 2)
  assert [node.WidthInBytes for node in nodes] == [1 << 30, 1 << 30, 1 << 29]
  assert [node.dstDevice for node in nodes] == [1000, 1000 + (1 << 30), 1000 + (2 << 30)]
  assert [node.srcDevice - (5 << 40) for node in nodes] == [0, 1 << 30, 2 << 30]


def test_a_gpu_without_room_for_a_program() -> None:
  class Full(Model):
    """Another program has the memory."""

    def do_cuMemHostAlloc(self, place: int, size: int, flags: int) -> None:
      raise Status(NO_MEMORY)

  backend = ModelBackend()
  backend.model = Full()
  with pytest.raises(Unavailable, match="no memory left for another program"):
    backend.open(0)


def tiled(shape: tuple[int, int, int], types: tuple[DType, DType], core: int, **options: Any) -> UOp:
  """A product in tiles of 32 rows, 32 columns and 64 bytes of the sum, which are in shared memory."""
  (dtype, total), transposed, steps = types, options.get("transposed", False), 64 // types[0].itemsize
  sides = (32, 32, steps)
  padding = [Opt(OptOps.PADTO, axis, side) for axis, (size, side) in enumerate(zip(shape, sides)) if size % side]
  tiles = [Opt(OptOps.SPLIT, axis, side) for axis, side in enumerate(sides)]
  stages = [Opt(OptOps.STAGE, 1, (3, 5)), Opt(OptOps.STAGE, 2, (4, 5) if transposed else (5, 4))]
  written_out = [Opt(OptOps.UPCAST, 3, 0), Opt(OptOps.UPCAST, 4, 0), Opt(OptOps.UNROLL, 5, 0)]
  opts = (*padding, *tiles, *stages, Opt(OptOps.TC, 5, (core, 3, 4)), *written_out)
  return matmul(*shape, dtype, total, total, transposed).replace(arg=KernelInfo("tiled", opts))


def check_tiled(kernel: UOp, *words: str, offsets: tuple[int, ...] = (0, 0, 0)) -> Binary:
  """The binary of a product, which has these instructions, and whose result is that of REF."""
  target = Target("CUDA", BACKEND, "gpu_model.cuda:BACKEND")
  binary = target.compile(kernel)
  assert [word for word in words if word not in binary.code.decode()] == []
  given = [bytes(binary.params[0].size * binary.params[0].dtype.itemsize)]
  given += [small(p.dtype, p.size, seed) for seed, p in enumerate(binary.params[1:])]
  compare(target, reference(), kernel, given, offset=offsets)
  target.device.close()
  return binary


def test_tiles_are_copied_while_threads_compute() -> None:
  whole, edges = tiled((32, 32, 160), (dtypes.bfloat16, F), 0), tiled((40, 40, 72), (dtypes.bfloat16, F), 0)
  assert "cp.async.wait_group \t2" in check_tiled(whole, "cp.async.cg.shared.global").code.decode()
  check_tiled(whole, offsets=(4, 2, 2))  # buffers that no piece may be copied from
  check_tiled(edges, "cp.async.cg.shared.global")


def test_each_piece_is_copied_by_one_thread() -> None:
  """Also where a workgroup has more threads than pieces: two copies to one place would race."""
  check_tiled(matmul(16, 16, 16, F, F, F), "cp.async.cg.shared.global")


@pytest.mark.parametrize("turned", [False, True])
def test_tensor_cores_go_as_far_as_a_causal_mask(turned: bool) -> None:
  """The masked operand is zeros where it is hidden, and a tile's sum ends where all of its rows do."""
  rows, columns, steps, half = 96, 64, 96, dtypes.bfloat16
  i, j, k = UOp.range(rows, 0), UOp.range(columns, 1), UOp.range(steps, 2, AxisType.REDUCE)
  a = UOp.param(1, half.ptr(rows * steps)).index(i * steps + k).load()
  b = UOp.param(2, half.ptr(columns * steps)).index(j * steps + k if turned else k * columns + j).load()
  total = (k < i + 1).where(a.cast(F) * b.cast(F), UOp.const(F, 0.0)).reduce(Ops.ADD, k)
  store = UOp.param(0, F.ptr(rows * columns)).index(i * columns + j).store(total).end(i, j)
  opts = tiled((rows, columns, steps), (half, F), 0, transposed=turned).arg.opts
  kernel = UOp.sink(store, arg=KernelInfo("causal", opts))
  binary = check_tiled(kernel, "mma.sync", "ldmatrix", "cp.async.cg.shared.global")
  counts = [
    c for u in compile_kernel(kernel, PTXRenderer(Arch.parse("sm_90a"))).src[1].src if u.op is Ops.RANGE for c in u.src
  ]
  assert any(c.op is not Ops.CONST and c.vmax == 3 for c in counts), binary.source


def test_threads_of_a_tensor_core_take_as_many_steps() -> None:
  i, j, k, half = UOp.range(64, 0), UOp.range(32, 1), UOp.range(64, 2, AxisType.REDUCE), dtypes.bfloat16
  a, b = (UOp.param(n, half.ptr(64 * 64)).index(x * 64 + k).load().cast(F) for n, x in ((1, i), (2, j)))
  total = (k < i + 1).where(a * b, UOp.const(F, 0.0)).reduce(Ops.ADD, k)
  store = UOp.param(0, F.ptr(64 * 32)).index(i * 32 + j).store(total).end(i, j)
  opts = (Opt(OptOps.SPLIT, 0, 16), Opt(OptOps.SPLIT, 2, 16), Opt(OptOps.TC, 4, (0, 3, 1)), Opt(OptOps.LOCAL, 0, 2))
  with pytest.raises(KernelOptError, match="not all threads have as many iterations"):
    compile_kernel(UOp.sink(store, arg=KernelInfo("causal", opts)), PTXRenderer(Arch.parse("sm_90a")))


def test_what_is_read_before_its_copy_is_there_is_found(device: CUDADevice) -> None:
  target = Target("CUDA", BACKEND, "gpu_model.cuda:BACKEND")
  binary = target.compile(tiled((32, 32, 160), (dtypes.bfloat16, F), 0))
  early = replace(binary, code=binary.code.replace(b"cp.async.wait_group \t2", b"cp.async.wait_group \t3"))
  memories = [(device.alloc(p.size * p.dtype.itemsize), 0) for p in binary.params]
  device.launch(device.load(early), memories, [], *sizes(binary))
  with pytest.raises(DeviceLost, match=r"reads byte \d+ of .*, to which a copy of thread \d+ is on its way"):
    device.sync()
  target.device.close()


def of_a_warpgroup(shape: tuple[int, int, int], dtype: DType, core: int, turned: bool) -> UOp:
  """A product in tiles of 64 × 64 by 64 steps of the sum. `turned`: neither operand is adjacent along the sum."""
  m, n, k = shape
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  a = UOp.param(1, dtype.ptr(m * k)).index(r * m + i if turned else i * k + r).load().cast(F)
  b = UOp.param(2, dtype.ptr(k * n)).index(r * n + j if turned else j * k + r).load().cast(F)
  store = UOp.param(0, F.ptr(m * n)).index(i * n + j).store((a * b).reduce(Ops.ADD, r)).end(i, j)
  padding = [Opt(OptOps.PADTO, axis, 64) for axis, size in enumerate(shape) if size % 64]
  tiles = [Opt(OptOps.SPLIT, axis, 64) for axis in range(3)]
  stages = [Opt(OptOps.STAGE, 1, (5, 3) if turned else (3, 5)), Opt(OptOps.STAGE, 2, (5, 4) if turned else (4, 5))]
  opts = (*padding, *tiles, *stages, Opt(OptOps.TC, 5, (core, 3, 4)), Opt(OptOps.UNROLL, 5, 0))
  return UOp.sink(store, arg=KernelInfo("warpgroup", opts))


WGMMA = {str(m.core): number for number, m in enumerate(HOPPER, len(AMPERE) + len(FLOAT8))}


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_a_warpgroup(turned: bool) -> None:
  """Descriptors and swizzling of both directions; edges that are zeros."""
  core = WGMMA[f"m64n64k16 {'bfloat16' if turned else 'float16'} → float32"]
  kernel = of_a_warpgroup((64, 72, 136), dtypes.bfloat16 if turned else dtypes.float16, core, turned)
  check_tiled(kernel, "wgmma.mma_async", "cp.async.cg")


@pytest.mark.parametrize("aligned", [True, False])
def test_a_warpgroup_reads_wide_where_it_may(aligned: bool) -> None:
  """A sum of one step, which nothing is copied for while threads go on: as the scores of attention."""
  kernel = of_a_warpgroup((128, 128, 64), dtypes.bfloat16, WGMMA["m64n64k16 bfloat16 → float32"], False)
  text = check_tiled(kernel, "ld.global.nc.v4", offsets=(0, 0, 0) if aligned else (4, 2, 2))
  assert text.code.count(b"wgmma.fence") == 2, "one for each kernel"


@pytest.mark.parametrize("aligned", [True, False])
def test_a_step_of_a_warpgroup_is_on_its_way_while_the_next_begins(aligned: bool) -> None:
  """With four copies of near memory; what is copied to next is no longer read by then. All is there behind the loop."""
  kernel = of_a_warpgroup((64, 64, 320), dtypes.bfloat16, WGMMA["m64n64k16 bfloat16 → float32"], False)
  offsets = (0, 0, 0) if aligned else (4, 2, 2)
  text = check_tiled(kernel, "wgmma.mma_async", offsets=offsets).code.decode()
  assert re.findall(r"wgmma.wait_group.sync.aligned (\d)", text) == 2 * ["1", "0"]


@pytest.mark.parametrize(
  ("before", "after", "message"),
  [
    (b"wgmma.wait_group.sync.aligned 0;", b"", "uses an accumulator of a wgmma that is not waited for"),
    (b"wgmma.fence.sync.aligned;", b"", "a wgmma with no wgmma.fence since its accumulators were touched"),
    (b"fence.proxy.async.shared::cta;", b"", "has written with no fence.proxy.async since"),
    (b"cp.async.wait_group \t0", b"cp.async.wait_group \t1", "reads byte .* a copy of thread .* is on its way"),
  ],
)
def test_what_a_warpgroup_does_wrong_is_found(device: CUDADevice, before: bytes, after: bytes, message: str) -> None:
  target = Target("CUDA", BACKEND, "gpu_model.cuda:BACKEND")
  binary = target.compile(of_a_warpgroup((64, 64, 128), dtypes.bfloat16, WGMMA["m64n64k16 bfloat16 → float32"], False))
  assert before in binary.code
  wrong = replace(binary, code=binary.code.replace(before, after))
  memories = [(device.alloc(p.size * p.dtype.itemsize), 0) for p in binary.params]
  device.launch(device.load(wrong), memories, [], *sizes(binary))
  with pytest.raises(DeviceLost, match=message):
    device.sync()
  target.device.close()


@pytest.mark.parametrize("number", range(len(FLOAT8)))
def test_products_of_floats_of_8_bits(number: int) -> None:
  dtype = FLOAT8[number].core.dtype_in
  kernel = tiled((32, 32, 128), (dtype, F), len(AMPERE) + number, transposed=number == 0)
  words = (".version 8.4", f"m16n8k32.row.col.f32.{('e4m3', 'e5m2')[number]}.", "cp.async.cg")
  check_tiled(kernel, *words, *(["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] if number == 0 else []))


def test_float32_is_rounded_on_request_only() -> None:
  """With TF32 small numbers are exact, and what needs more than 11 bits is rounded: by at most half a unit of them."""
  kernel = tiled((32, 32, 64), (F, F), len(AMPERE) + len(FLOAT8), transposed=True)
  with pytest.raises(CompileError, match="m64n256k16 bfloat16"):  # what stands at that place without
    CUDA.compiler("sm_90a").compile(kernel)
  with Context(TF32=1):
    check_tiled(kernel, "m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32")
    compiler = CUDA.compiler("sm_90a")
    assert isinstance(compiler, NVCompiler) and compiler.tf32 and compiler.key != NVCompiler(Arch.parse("sm_90a")).key
    target = Target("CUDA", BACKEND, "gpu_model.cuda:BACKEND")
    a, b = (np.random.default_rng(seed).uniform(1, 2, (32, 64)).astype(np.float32) for seed in (0, 1))
    result = np.frombuffer(target.run(kernel, [bytes(4 * 32 * 32), a.tobytes(), b.tobytes()])[0], np.float32)
    target.device.close()
  exact = a.astype(np.float64) @ b.astype(np.float64).T
  error = np.abs(result.reshape(32, 32) / exact - 1)
  assert 1e-6 < error.max() < 2.0**-10


def as_model(*instructions: str) -> str:
  """What the model makes of instructions, as C++."""
  text = ".version 8.7\n.target sm_120\n.visible .entry k()\n{\n" + "\n".join(f"\t{i};" for i in instructions) + "\n}\n"
  return Module(text).kernels["k"].text


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
@pytest.mark.parametrize(("base", "operands"), [("add", "%r1, %rs1, %r2"), ("sub", "%r1, %rs1, %r2"),
                                                ("fma", "%r1, %rs1, %rs2, %r2")])  # fmt: skip
def test_narrow_operands_of_a_float32_sum_are_widened(base: str, operands: str, narrow: str) -> None:
  """PTX ISA 8.6, for Blackwell: all but the last are of the narrow type."""
  text = as_model(f"{base}.rn.f32.{narrow} {operands}")
  assert text.count(f"cvt<f32, {narrow}>") == operands.count("%rs") and f"{base}<f32>(" in text


def test_constants_of_predicates_are_true_and_false() -> None:
  text = as_model("mov.pred %p1, -1", "mov.pred %p2, 0", "not.pred %p3, %p1")
  assert "put(p1, true)" in text and "put(p2, false)" in text and "put(p3, !p1)" in text


@pytest.mark.parametrize("instruction", ["mul.rn.f32.f16 %r1, %rs1, %r2", "max.f32.f16 %r1, %rs1, %r2",
                                         "add.f64.f32 %rd1, %r1, %rd2", "add.rz.f32.f16 %r1, %rs1, %r2"])  # fmt: skip
def test_arithmetic_of_two_types_that_the_model_does_not_know(instruction: str) -> None:
  with pytest.raises(Refused, match="the model knows no"):
    as_model(instruction)
