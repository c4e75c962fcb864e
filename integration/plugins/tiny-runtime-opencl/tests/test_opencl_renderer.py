"""OpenCL C, without a driver: what the text says, and launch sizes."""

from __future__ import annotations

import pickle
import re

import pytest

from tiny_runtime import Binary, CompileError
from tiny_runtime_opencl import Arch, OpenCLCompiler
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

GPU = Arch("gpu", local=65536, group=256, sizes=(256, 256, 64), fp16=True, fp64=True, fma=True, exact=True)
F = dtypes.float32


def copy(size: int, dtype: DType = F, name: str = "copy", opts: tuple[Opt, ...] | None = None) -> UOp:
  i = UOp.range(size, 0)
  store = UOp.param(0, dtype.ptr(size)).index(i).store(UOp.param(1, dtype.ptr(size)).index(i).load())
  return UOp.sink(store.end(i), arg=KernelInfo(name, opts))


def compile_for(arch: Arch, kernel: UOp) -> Binary:
  return OpenCLCompiler(arch).compile(kernel)


def sizes(binary: Binary) -> tuple[list[int], list[int]]:
  return [int(s.arg) for s in binary.global_size], [int(s.arg) for s in binary.local_size]


@pytest.mark.parametrize("arch", [GPU, Arch("cpu"), Arch("accelerator", 32768, 64, (64, 1, 1), exact=True)])
def test_arch_is_text_and_back(arch: Arch) -> None:
  assert Arch.parse(str(arch)) == arch


@pytest.mark.parametrize("text", ["gpu fp65", "gpu local=many", "gpu sizes=1x2", "gpu fp64=1"])
def test_arch_names_the_word_it_does_not_know(text: str) -> None:
  with pytest.raises(ValueError, match=f"{text.split()[1]!r} is none of"):
    Arch.parse(text)


def test_loops_become_workgroups_of_threads() -> None:
  binary = compile_for(GPU, copy(1024))
  assert "const int gidx0 = get_group_id(0);" in binary.source
  assert "const int lidx0 = get_local_id(0);" in binary.source
  groups, threads = sizes(binary)
  assert groups[0] * threads[0] == 1024 and threads[0] > 1
  assert f"reqd_work_group_size({threads[0]}, 1, 1)" in binary.source


def test_a_device_without_local_memory_has_no_workgroups() -> None:
  binary = compile_for(Arch("cpu"), copy(1024))
  assert "get_group_id" not in binary.source and sizes(binary) == ([1, 1, 1], [1, 1, 1])


def test_buffers_begin_at_an_offset() -> None:
  source = compile_for(GPU, copy(8)).source
  assert "__global uchar* p0_memory, long p0_offset, __global uchar* p1_memory, long p1_offset" in source
  assert "__global const float* restrict p1 = (__global const float* restrict)(p1_memory + p1_offset);" in source


def test_vectors_are_loaded_and_stored_as_such() -> None:
  source = compile_for(GPU, copy(64, opts=(Opt(OptOps.VECTOR, 0, 4),))).source
  assert "vload4(0, p1 + " in source and "vstore4((float4)(" in source


def test_names_that_mean_something_in_opencl_c() -> None:
  for name in ("double", "select", "kernel", "a-b c"):
    binary = compile_for(GPU, copy(8, name=name))
    assert binary.entry == name and f" {name}(" not in binary.source
    assert re.search(r"void tiny_\w+\(", binary.source)


def test_extensions_follow_the_arch() -> None:
  assert "cl_khr_fp16" in compile_for(GPU, copy(8, dtypes.float16)).source
  assert "cl_khr_fp16" not in compile_for(Arch("gpu", fp64=True), copy(8, dtypes.float16)).source
  with pytest.raises(CompileError, match="float64"):
    compile_for(Arch("gpu"), _sum(dtypes.float64))


def _sum(dtype: DType) -> UOp:
  r = UOp.range(64, 0, AxisType.REDUCE)
  total = UOp.param(1, dtype.ptr(64)).index(r).load().reduce(Ops.ADD, r)
  return UOp.sink(UOp.param(0, dtype.ptr(1)).index(0).store(total), arg=KernelInfo("sum"))


def test_literals_of_64_bits() -> None:
  value = UOp.param(1, dtypes.int64.ptr(1)).index(0).load() + (1 << 40)
  source = compile_for(GPU, UOp.sink(UOp.param(0, dtypes.int64.ptr(1)).index(0).store(value))).source
  assert f"{1 << 40}L" in source and "LL" not in source


def test_compilers_pickle_and_keys_name_the_arch() -> None:
  compiler = OpenCLCompiler(GPU)
  assert pickle.loads(pickle.dumps(compiler)).compile(copy(64)).to_bytes() == compiler.compile(copy(64)).to_bytes()
  assert str(GPU) in compiler.key and compiler.key != OpenCLCompiler(Arch("gpu")).key
