"""Loops, memory, gates and control flow of rendered programs, built by hand as the pipeline leaves them."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, host, info_of, run_linear

from tiny_codegen.render import C99, CRenderer, LLVMRenderer
from tiny_codegen.render.llvm.target import GENERIC, cpu_target
from tiny_uop import AddrSpace, AxisType, DType, Ops, ParamInfo, ProgramInfo, UOp, dtypes

AVX512 = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")))

I32, F32 = dtypes.int32, dtypes.float32


def number(value: int | tuple[int, ...]) -> UOp:
  return UOp.const(I32 if isinstance(value, int) else I32.vec(len(value)), value)


def loop(size: int | UOp, id: int, kind: AxisType = AxisType.LOOP) -> UOp:
  return UOp.range(size, id, kind, I32)


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
  return UOp.param(slot, dtype.ptr(size))


def linear(*roots: UOp) -> UOp:
  return UOp(Ops.LINEAR, src=UOp.sink(*roots).toposort)


def floats(size: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
  return np.arange(1, size + 1, dtype=np.float32)


every_renderer = pytest.mark.parametrize("name", RENDERERS)


@every_renderer
def test_reduction_in_a_register(name: str) -> None:
  i, k = loop(3, 0), loop(5, 1)
  register = UOp.alloc(0, F32.ptr(1, AddrSpace.REG))
  start = register.after(i).index(number(0)).store(UOp.const(F32, 0))
  inside = register.after(start, k).index(number(0))
  step = inside.store(inside.load() + param(1, 15).index(i * 5 + k).load()).end(k)
  total = register.after(step).index(number(0)).load()
  program = linear(param(0, 3).index(i).store(total).end(i))
  out, a = np.zeros(3, np.float32), floats(15)
  run_linear(RENDERERS[name](), program, [out, a])
  assert out.tolist() == a.reshape(3, 5).sum(1).tolist()


def test_neighbours_are_so_far_from_one_address() -> None:
  """Where offsets are as wide as addresses, a sum that is nothing but an offset is part of the address; one under a
  scalar gate, which chooses between offsets, is written all the same."""
  i = UOp.range(UOp.const(dtypes.int64, 4), 0, AxisType.LOOP, dtypes.int64)
  row, gate = i * 4, i < UOp.const(dtypes.int64, 3)
  read = [param(1, 16).index(row + k).load() for k in range(3)]
  read.append(param(1, 16).index(row + 3, gate).load(UOp.const(F32, 0)))
  program = linear(param(0, 16).index(row + 2).store(read[0] + read[1] * read[2] + read[3]).end(i))
  renderer = LLVMRenderer(cpu_target("x86_64"))
  text = renderer.render(program, info_of(program))
  assert text.count("add nsw i64") == 2  # the counter's next value, and what the gate chooses
  out, a = np.zeros(16, np.float32), floats(16)
  run_linear(RENDERERS["host"](), program, [out, a])
  want = out.copy()
  rows = a.reshape(4, 4)
  want.reshape(4, 4)[:, 2] = rows[:, 0] + rows[:, 1] * rows[:, 2] + rows[:, 3] * (np.arange(4) < 3)
  assert out.tolist() == want.tolist()


@every_renderer
@pytest.mark.parametrize("lanes", [2, 4, 7])
def test_wide_access(name: str, lanes: int) -> None:
  i, size = loop(4, 0), 4 * lanes
  value = param(1, size).index(i * lanes).load(dtype=F32.vec(lanes))
  reversed_ = value.extract(*range(lanes - 1, -1, -1))
  program = linear(param(0, size).index(i * lanes).store(reversed_ + value).end(i))
  out, a = np.zeros(size, np.float32), floats(size)
  run_linear(RENDERERS[name](), program, [out, a])
  rows = a.reshape(4, lanes)
  assert out.tolist() == (rows + rows[:, ::-1]).ravel().tolist()


@every_renderer
def test_vectorize_and_extract_one(name: str) -> None:
  a = [param(1, 4).index(number(k)).load() for k in (3, 1, 2)]
  vector = UOp(Ops.VECTORIZE, F32.vec(3), tuple(a))
  splat = vector.extract(1).broadcast(3)
  out = np.zeros(3, np.float32)
  run_linear(RENDERERS[name](), linear(param(0, 3).index(number(0)).store(vector + splat)), [out, floats(4)])
  assert out.tolist() == [6.0, 4.0, 5.0]


@every_renderer
@pytest.mark.parametrize("dtype", [F32, dtypes.bool, dtypes.int8, dtypes.float64], ids=str)
def test_gated_scalars(name: str, dtype: DType) -> None:
  i = loop(8, 0)
  gate = (i < 5) & (i > 1)
  # outside the gate the offset is far out of bounds
  place = gate.where(i, number(1 << 28))
  value = param(1, 8, dtype).index(place, gate).load(UOp.const(dtype, 1))
  program = linear(param(0, 8, dtype).index(place, i < 4).store(value).end(i))
  kind = np.dtype(dtype.name)
  out, a = np.zeros(8, kind), (np.arange(8) % 3).astype(kind)
  with pytest.raises(ValueError, match="before it is computed"):
    RENDERERS[name]().render(UOp(Ops.LINEAR, src=program.src[5:]), info_of(program))
  inside = linear(param(0, 8, dtype).index(i, (i < 4) & (i > 0)).store(value).end(i))
  run_linear(RENDERERS[name](), inside, [out, a])
  assert out.tolist() == [kind.type(0), kind.type(1), *a[2:4].tolist(), *[kind.type(0)] * 4]


@every_renderer
@pytest.mark.parametrize("dtype", [F32, dtypes.bool, dtypes.int64], ids=str)
def test_gated_vectors(name: str, dtype: DType) -> None:
  i, kind = loop(3, 0), np.dtype(dtype.name)
  lane = UOp(Ops.VECTORIZE, I32.vec(4), (i,) * 4) * 4 + number((0, 1, 2, 3))
  gate = lane < 10
  other = UOp.const(dtype.vec(4), (1, 0, 1, 0))
  value = param(1, 10, dtype).index(i * 4, gate).load(other, dtype=dtype.vec(4))
  program = linear(param(0, 12, dtype).index(i * 4).store(value).end(i))
  out, a = np.zeros(12, kind), (np.arange(10) % 3).astype(kind)
  run_linear(RENDERERS[name](), program, [out, a])
  assert out.tolist() == [*a.tolist(), kind.type(1), kind.type(0)]
  stored = linear(param(0, 12, dtype).index(i * 4, lane < 6).store(UOp.const(dtype.vec(4), 1)).end(i))
  out = np.zeros(12, kind)
  run_linear(RENDERERS[name](), stored, [out])
  assert out.tolist() == [kind.type(k < 6) for k in range(12)]


@every_renderer
def test_scalar_gate_of_a_vector(name: str) -> None:
  i = loop(3, 0)
  large = param(1, 8).index(i * 4, i < 2).load(UOp.const(F32.vec(4), 9), dtype=F32.vec(4))
  small = param(2, 2).index(i * 4, i < 0).load(UOp.const(F32.vec(4), 5), dtype=F32.vec(4))
  out = np.zeros(12, np.float32)
  program = linear(param(0, 12).index(i * 4, i > 0).store(large + small).end(i))
  run_linear(RENDERERS[name](), program, [out, floats(8), floats(2)])
  assert out.tolist() == [0, 0, 0, 0, 10, 11, 12, 13, 14, 14, 14, 14]


@every_renderer
@pytest.mark.parametrize("gated", [False, True])
def test_gather_and_scatter(name: str, gated: bool) -> None:
  places = number((7, 0, 3, 5))
  gate = UOp.const(dtypes.bool.vec(4), (True, False, True, True)) if gated else None
  value = param(1, 8).index(places, gate).load(UOp.const(F32.vec(4), -1), dtype=F32.vec(4))
  program = linear(param(0, 8).index(number((1, 2, 6, 0)), gate).store(value))
  out = np.zeros(8, np.float32)
  run_linear(RENDERERS[name](), program, [out, floats(8)])
  assert out.tolist() == ([6, 8, 0, 0, 0, 0, 4, 0] if gated else [6, 8, 1, 0, 0, 0, 4, 0])


@every_renderer
def test_pieces_of_a_thread_loop(name: str) -> None:
  t, i = loop(10, 0, AxisType.THREAD), loop(2, 1)
  program = linear(param(0, 20).index(t * 2 + i).store((t * 2 + i).cast(F32)).end(i).end(t))
  out = np.full(20, -1, np.float32)
  run_linear(RENDERERS[name](), program, [out], pieces=(2, 5, 9))
  assert out.tolist() == [-1] * 4 + list(range(4, 18)) + [-1] * 2


@every_renderer
def test_without_a_thread_loop_the_first_piece_does_all(name: str) -> None:
  i = loop(4, 0)
  place = param(0, 4).index(i)
  program, out = linear(place.store(place.load() + 1.0).end(i)), np.zeros(4, np.float32)
  run_linear(RENDERERS[name](), program, [out], pieces=(0, 1, 2, 3))
  assert out.tolist() == [1, 1, 1, 1]


@every_renderer
@pytest.mark.parametrize("dtype", [I32, dtypes.int64], ids=str)
def test_variables(name: str, dtype: DType) -> None:
  n, start = UOp.variable("n", 0, 8, dtype), UOp.variable("a_start", -100, 100, dtype)
  i = UOp.range(n, 0, AxisType.LOOP, dtype)
  program = linear(param(0, 8, dtypes.int64).index(i).store((start + i).cast(dtypes.int64)).end(i))
  for count in (0, 3, 8):
    out = np.full(8, 77, np.int64)
    # in the order of names
    run_linear(RENDERERS[name](), program, [out], [-40, count])
    assert out.tolist() == [-40 + k for k in range(count)] + [77] * (8 - count)


@every_renderer
def test_branches(name: str) -> None:
  i = loop(6, 0)
  condition = (i & 1).eq(0)
  begin = UOp(Ops.IF, dtypes.void, (condition,))
  place = param(0, 6).index(i)
  effect = place.store(UOp.const(F32, 3))
  finish = UOp(Ops.ENDIF, dtypes.void, (begin,))
  order = [u for u in UOp.sink(i, condition, place).toposort if u.op is not Ops.SINK]
  program = UOp(Ops.LINEAR, src=(*order, begin, UOp.const(F32, 3), effect, finish, finish.end(i)))
  out = np.zeros(6, np.float32)
  run_linear(RENDERERS[name](), program, [out])
  assert out.tolist() == [3, 0, 3, 0, 3, 0]


@every_renderer
def test_near_memory(name: str) -> None:
  """A tile of vectors: written in one loop, read backwards in the next."""
  tile = UOp.alloc(3, F32.vec(4).ptr(5, AddrSpace.LOCAL))
  i, j = loop(5, 0), loop(5, 1)
  fill = tile.index(i).store(param(1, 20).index(i * 4).load(dtype=F32.vec(4))).end(i)
  value = tile.after(fill.barrier()).index(4 - j).load()
  program = linear(param(0, 20).index(j * 4).store(value).end(j))
  out, a = np.zeros(20, np.float32), floats(20)
  run_linear(RENDERERS[name](), program, [out, a])
  assert out.tolist() == a.reshape(5, 4)[::-1].ravel().tolist()


@every_renderer
def test_counters_are_loops_where_there_is_no_hardware(name: str) -> None:
  x, y = UOp.special(2, "gidx0", I32), UOp.special(3, "lidx0", I32)
  program = linear(param(0, 6).index(x * 3 + y).store((x * 10 + y).cast(F32)))
  out = np.zeros(6, np.float32)
  run_linear(RENDERERS[name](), program, [out])
  assert out.tolist() == [0, 1, 2, 10, 11, 12]
  barrier = linear(param(0, 6).index(x * 3 + y).store((x * 10 + y).cast(F32)).barrier())
  with pytest.raises(NotImplementedError, match="barrier"):
    RENDERERS[name]().render(barrier, info_of(barrier))


def test_text_is_the_same_every_time() -> None:
  i = loop(4, 0)
  program = linear(param(0, 4).index(i).store(param(1, 4).index(i).load().sqrt()).end(i))
  for renderer in (LLVMRenderer(), CRenderer(), host()):
    assert renderer.render(program, info_of(program)) == renderer.render(program, info_of(program))


def test_device_convention() -> None:
  """Another calling convention, address spaces and counters are data."""
  from dataclasses import replace

  target = replace(
    GENERIC,
    name="device",
    convention="amdgpu_kernel",
    spaces=(1, 3, 5),
    counters=(("gidx0", "llvm.amdgcn.workgroup.id.x"), ("lidx0", "llvm.amdgcn.workitem.id.x")),
    barrier=("fence syncscope(\"workgroup\") release", "call void @llvm.amdgcn.s.barrier()"),
  )  # fmt: skip
  x = UOp.special(2, "lidx0", I32)
  tile = UOp.alloc(0, F32.ptr(16, AddrSpace.LOCAL))
  fill = tile.index(x).store(UOp.const(F32, 1))
  program = linear(param(0, 16).index(x).store(tile.after(fill.barrier()).index(x).load()))
  text = LLVMRenderer(target).render(program, info_of(program))
  assert "define amdgpu_kernel void @test(ptr addrspace(1) noalias %p0)" in text
  assert "@test.local0 = internal addrspace(3) global [16 x float]" in text
  assert "call range(i32 0, 2) i32 @llvm.amdgcn.workitem.id.x()" in text and "s.barrier" in text
  missing = linear(param(0, 16).index(UOp.special(2, "gidx2", I32)).store(UOp.const(F32, 1)))
  with pytest.raises(NotImplementedError, match="gidx2"):
    LLVMRenderer(target).render(missing, info_of(missing))


@pytest.mark.parametrize("space", [AddrSpace.GLOBAL, AddrSpace.LOCAL])
def test_a_barrier_orders_the_memory_that_threads_exchange_through(space: AddrSpace) -> None:
  """Of global memory, only where a thread reads there what another has written: of such a buffer no compiler may take
  it that nobody else writes."""
  from dataclasses import replace

  every, local = "barrier(every);", "barrier(local);"
  dialect = replace(C99, counters=(("lidx0", "lid"),), barrier=every, local_barrier=local)
  target = replace(
    GENERIC,
    convention="ptx_kernel",
    spaces=(1, 3, 5),
    counters=(("lidx0", "lid"),),
    barrier=(f"call {every}",),
    local_barrier=(f"call {local}",),
  )
  x = UOp.special(2, "lidx0", I32)
  memory = param(1, 16) if space is AddrSpace.GLOBAL else UOp.alloc(0, F32.ptr(16, AddrSpace.LOCAL))
  there = memory.index(x).store(param(2, 16).index(x).load()).barrier()
  out = param(0, 16).index(x).store(memory.after(there).index(1 - x).load() + param(2, 16).index(x).load())
  program = linear(out)
  written = [0, 1] if space is AddrSpace.GLOBAL else [0]
  params = tuple([ParamInfo(n, F32, 16, n in written, n == 2) for n in (*written, 2)])
  info = ProgramInfo("test", "device", params, ())
  in_c, in_llvm = CRenderer(dialect).render(program, info), LLVMRenderer(target).render(program, info)
  meant, other = (every, local) if space is AddrSpace.GLOBAL else (local, every)
  for text in (in_c, in_llvm):
    assert meant in text and other not in text
  assert "float* restrict p0" in in_c and "noalias %p0" in in_llvm and "readonly" in in_llvm
  if space is AddrSpace.GLOBAL:
    before = param(1, 16).index(1 - x).load()
    read = UOp.alloc(1, F32.ptr(1, AddrSpace.REG)).index(number(0)).store(before).barrier()
    later = linear(param(1, 16).after(read).index(x).store(param(2, 16).index(x).load()))
    assert every in CRenderer(dialect).render(later, replace(info, params=params[1:]))
    assert "float* p1" in in_c and "ptr addrspace(1) %p1" in in_llvm


@pytest.mark.parametrize("renderer", [LLVMRenderer(), CRenderer(C99)], ids=["llvm", "c"])
def test_what_is_missing_is_named(renderer: LLVMRenderer | CRenderer) -> None:
  x = param(1, 4).index(number(0)).load()
  for value, words in ((x.sin(), "SIN"), (x.exp2(), "EXP2"), (x.cast(dtypes.fp8e5m2).cast(F32), "fp8e5m2")):
    program = linear(param(0, 4).index(number(0)).store(value))
    with pytest.raises(NotImplementedError, match=words):
      renderer.render(program, info_of(program))
  program = linear(param(0, 4).index(number(0)).store(x))
  with pytest.raises(ValueError, match="slot"):
    renderer.render(program, ProgramInfo("test", "test", (), ()))
  unclosed = linear(param(0, 4).index(loop(4, 0)).store(UOp.const(F32, 0)))
  with pytest.raises(ValueError, match="never closed"):
    renderer.render(unclosed, info_of(unclosed))
  variable = linear(param(0, 4).index(UOp.variable("n", 0, 3, I32)).store(UOp.const(F32, 0)))
  with pytest.raises(ValueError, match="'n'"):
    renderer.render(variable, ProgramInfo("test", "test", info_of(variable).params, ()))


def test_strict_floats() -> None:
  """No fast-math flags but for maxima of zeros: sums keep their order, NaN and signed zeros their meaning."""
  i = loop(4, 0)
  a, b = (param(k, 4).index(i).load() for k in (1, 2))
  text = host().render(linear(param(0, 4).index(i).store(a * b + a.maximum(b)).end(i)), info_of(
    linear(param(0, 4).index(i).store(a * b + a.maximum(b)).end(i))))  # fmt: skip
  assert not {"fast", "nnan", "ninf", "reassoc", "contract", "arcp", "afn"} & set(text.split())
  assert all("@llvm.maximum." in line for line in text.splitlines() if " nsz " in line)


def test_maxima_are_three_instructions_and_magnitudes_positive() -> None:
  i = loop(4, 0)
  x = param(1, 4).index(i).load()
  program = linear(param(0, 4).index(i).store(x.maximum(x.alu(Ops.NEG))).end(i))
  assert " nsz " not in host().render(program, info_of(program))
  program = linear(param(0, 4).index(i).store(x.maximum(param(2, 4).index(i).load())).end(i))
  assert "call nsz float @llvm.maximum.f32" in host().render(program, info_of(program))


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("dtype", [F32, dtypes.int64, dtypes.float16])
def test_known_gates_that_open_the_first_lanes_are_shorter_loads(count: int, dtype: DType) -> None:
  """LLVM has no instruction for some masks that it knows, and ends the process. Or it does not know them: where there
  are mask registers, a vector of 3 or 7 is not loaded in pieces."""
  gate = UOp.const(dtypes.bool.vec(8), tuple(lane < count for lane in range(8)))
  place = param(1, count, dtype).index(number(0), gate)
  loaded = place.load(UOp.const(dtype.vec(8), 9), dtype=dtype.vec(8))
  program = linear(param(0, 8, dtype).index(number(0)).store(loaded))
  name = next(name for name in RENDERERS if "host" in name)
  numpy_dtype = {F32: np.float32, dtypes.int64: np.int64, dtypes.float16: np.float16}[dtype]
  out, a = np.zeros(8, numpy_dtype), np.arange(1, count + 1, dtype=numpy_dtype)
  run_linear(RENDERERS[name](), program, [out, a])
  assert out.tolist() == [*a.tolist(), *[9] * (8 - count)]
  texts = [renderer.render(program, info_of(program)).splitlines() for renderer in (RENDERERS[name](), AVX512)]
  calls = [[line for line in text if "= call" in line and "masked.load" in line] for text in texts]
  assert not any("i1 true" in line for lines in calls for line in lines)
  assert len(calls[1]) == (count > 1 and dtype is not dtypes.float16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("dtype", [F32, dtypes.int64, dtypes.float16])
def test_known_gates_that_open_the_first_lanes_are_shorter_stores(count: int, dtype: DType) -> None:
  """LLVM writes 32 bits under a mask that it knows to be of one lane of 16."""
  gate = UOp.const(dtypes.bool.vec(4), tuple(lane < count for lane in range(4)))
  value = param(1, 4, dtype).index(number(0)).load(dtype=dtype.vec(4))
  program = linear(param(0, 6, dtype).index(number(1), gate).store(value))
  name = next(name for name in RENDERERS if "host" in name)
  numpy_dtype = {F32: np.float32, dtypes.int64: np.int64, dtypes.float16: np.float16}[dtype]
  out, a = np.full(6, 9, numpy_dtype), np.arange(1, 5, dtype=numpy_dtype)
  run_linear(RENDERERS[name](), program, [out, a])
  assert out.tolist() == [9, *a[:count].tolist(), *[9] * (5 - count)]
  assert "masked.store" not in RENDERERS[name]().render(program, info_of(program))
