"""What the source says, by kernel: text, with no compiler. `integration/model` runs it."""

from __future__ import annotations

import re

import pytest

from tiny_runtime import Binary, CompileError
from tiny_runtime_metal import Arch, MetalCompiler
from tiny_runtime_metal.matrices import HELD
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

APPLE9 = Arch("apple9")
F = dtypes.float32


def copy(size: int, dtype: DType = F, name: str = "copy", opts: tuple[Opt, ...] | None = None) -> UOp:
  i = UOp.range(size, 0)
  store = UOp.param(0, dtype.ptr(size)).index(i).store(UOp.param(1, dtype.ptr(size)).index(i).load())
  return UOp.sink(store.end(i), arg=KernelInfo(name, opts))


def product(side: int, dtype: DType, core: int = 0) -> UOp:
  i, j, k = UOp.range(side, 0), UOp.range(side, 1), UOp.range(side, 2, AxisType.REDUCE)
  a, b = (
    UOp.param(n, dtype.ptr(side * side)).index(at).load().cast(F) for n, at in ((1, i * side + k), (2, k * side + j))
  )
  store = UOp.param(0, F.ptr(side * side)).index(i * side + j).store((a * b).reduce(Ops.ADD, k)).end(i, j)
  return UOp.sink(store, arg=KernelInfo("product", (Opt(OptOps.TC, 2, core),)))


def compiled(kernel: UOp, arch: Arch = APPLE9) -> Binary:
  binary = MetalCompiler(arch).compile(kernel)
  assert binary.code.decode() == binary.source
  return binary


def test_loops_become_threadgroups() -> None:
  binary = compiled(copy(1024))
  assert "const int gidx0 = gid.x;" in binary.source and "const int lidx0 = lid.x;" in binary.source
  groups, threads = (int(size[0].arg) for size in (binary.global_size, binary.local_size))
  assert groups * threads == 1024 and threads > 1
  assert f"[[max_total_threads_per_threadgroup({threads})]] kernel void tiny_copy(" in binary.source


def test_arguments_have_indices() -> None:
  n, i = UOp.variable("n", 1, 100), UOp.range(UOp.variable("n", 1, 100), 0)
  store = UOp.param(0, F.ptr(100)).index(i).store(UOp.param(1, F.ptr(100)).index(i).load() + n.cast(F)).end(i)
  source = compiled(UOp.sink(store, arg=KernelInfo("add"))).source
  assert (
    "tiny_add(device float* p0 [[buffer(0)]], device const float* p1 [[buffer(1)]], "
    "constant long* integers [[buffer(2)]], uint3 gid [[threadgroup_position_in_grid]], "
    "uint3 lid [[thread_position_in_threadgroup]])"
  ) in source
  assert "const long n0 = integers[0];" in source


@pytest.mark.parametrize(
  ("dtype", "vector"), [(F, "float"), (dtypes.float16, "half"), (dtypes.bfloat16, "bfloat"), (dtypes.int8, "char")]
)
def test_vectors_are_packed(dtype: DType, vector: str) -> None:
  """A place is aligned as its elements are, not as a vector of them."""
  source = compiled(copy(64, dtype, opts=(Opt(OptOps.VECTOR, 0, 4),))).source
  assert f"*(device const packed_{vector}4*)(p1 + " in source and f"*(device packed_{vector}4*)(p0 + " in source


def test_elements_of_64_bits_are_read_one_by_one() -> None:
  assert "packed" not in compiled(copy(64, dtypes.int64, opts=(Opt(OptOps.VECTOR, 0, 4),))).source


def test_functions_are_the_precise_ones() -> None:
  i = UOp.range(8, 0)
  for dtype, text in ((F, "precise::exp2(v0)"), (dtypes.float16, "(half)precise::exp2((float)v0)")):
    value = UOp.param(1, dtype.ptr(8)).index(i).load().alu(Ops.EXP2)
    assert text in compiled(UOp.sink(UOp.param(0, dtype.ptr(8)).index(i).store(value).end(i))).source


def test_infinities_have_the_type_of_what_they_meet() -> None:
  """`v > INFINITY ? v : INFINITY` would be a float where v is a half or a bfloat."""
  i = UOp.range(8, 0)
  value = UOp.param(1, dtypes.bfloat16.ptr(8)).index(i).load()
  value = (value < 0.0).where(value, value.const_like(float("inf")))
  source = compiled(UOp.sink(UOp.param(0, dtypes.bfloat16.ptr(8)).index(i).store(value).end(i))).source
  assert "((bfloat)INFINITY)" in source


def test_matrices_are_multiplied_by_a_function_of_their_types() -> None:
  source = compiled(product(16, dtypes.bfloat16, 1)).source
  assert "static void multiply_bfloat_float(" in source and "static void multiply_half_float(" not in source
  assert re.search(r"multiply_bfloat_float\(&v\d+, &v\d+, v", source)
  assert "simdgroup_matrix" not in compiled(copy(8)).source
  with pytest.raises(CompileError, match="TC"):
    compiled(product(16, dtypes.bfloat16), Arch("mac2"))


def test_where_a_thread_s_elements_of_a_matrix_stand() -> None:
  """As MLX computes it, in its own words: qid = lane / 4, fm = (qid & 4) + (lane / 2) % 4, fn = (qid & 2) * 2 + …"""
  for lane in range(32):
    qid = lane // 4
    row, column = (qid & 4) + (lane // 2) % 4, (qid & 2) * 2 + (lane % 2) * 2
    assert [HELD.place(lane, element) for element in range(2)] == [(row, column), (row, column + 1)]


def added(count: int) -> UOp:
  i = UOp.range(8, 0)
  total = UOp.param(1, F.ptr(8)).index(i).load()
  for n in range(2, count):
    total = total + UOp.param(n, F.ptr(8)).index(i).load()
  return UOp.sink(UOp.param(0, F.ptr(8)).index(i).store(total).end(i), arg=KernelInfo("many"))


def test_more_buffers_than_indices() -> None:
  """They are addresses in a table, which is a buffer."""
  assert "p30 [[buffer(30)]]" in compiled(added(31)).source
  source = compiled(added(32)).source
  assert "struct Buffers { device uchar* at[32]; };" in source
  assert "tiny_many(constant Buffers& buffers [[buffer(0)]], uint3 gid" in source
  assert "device const float* p31 = (device const float*)buffers.at[31];" in source
