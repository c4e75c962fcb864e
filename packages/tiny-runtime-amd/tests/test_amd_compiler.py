"""Code objects for every architecture, on any machine."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amd_code import assembly, check, compiled, directive

from tiny_codegen import compile_kernel
from tiny_runtime import CompileError
from tiny_runtime.conformance.standard import STANDARD, elementwise, matmul, sums
from tiny_runtime_amd import ARCHS, AMDCompiler, Arch, CodeObject
from tiny_runtime_amd.target import renderer
from tiny_uop import AxisType, DType, KernelInfo, Opt, OptOps, UOp, dtypes

GOLDEN = Path(__file__).parent / "golden"
HALF = matmul(32, 32, 64, dtypes.float16, dtypes.float32, dtypes.float32)
# name → kernel, architecture, optimisations: their LLVM IR, which depends on nothing but our own code
TEXTS = {
  "elementwise": (elementwise(1024, dtypes.float32), "gfx1100", [Opt(OptOps.VECTOR, 0, 4), Opt(OptOps.LOCAL, 0, 32)]),
  "sums": (sums(4, 256, 1), "gfx942", [Opt(OptOps.GROUP, 1, 64)]),
  "wmma": (HALF, "gfx1201", [Opt(OptOps.TC, 2, 0)]),
  "mfma": (HALF, "gfx950", [Opt(OptOps.TC, 2, 0)]),
}
MATRIX = {
  ("gfx1100", "float16"): "v_wmma_f32_16x16x16_f16", ("gfx1100", "bfloat16"): "v_wmma_f32_16x16x16_bf16",
  ("gfx1100", "int8"): "v_wmma_i32_16x16x16_iu8", ("gfx1201", "float16"): "v_wmma_f32_16x16x16_f16",
  ("gfx1201", "bfloat16"): "v_wmma_f32_16x16x16_bf16", ("gfx1201", "uint8"): "v_wmma_i32_16x16x16_iu8",
  ("gfx942", "float16"): "v_mfma_f32_16x16x16_f16", ("gfx942", "bfloat16"): "v_mfma_f32_16x16x16_bf16",
  ("gfx942", "int8"): "v_mfma_i32_16x16x32_i8", ("gfx942", "float64"): "v_mfma_f64_16x16x4_f64",
  ("gfx950", "float16"): "v_mfma_f32_16x16x32_f16", ("gfx950", "bfloat16"): "v_mfma_f32_16x16x32_bf16",
  ("gfx950", "int8"): "v_mfma_i32_16x16x64_i8", ("gfx90a", "float16"): "v_mfma_f32_16x16x16f16",
  ("gfx90a", "bfloat16"): "v_mfma_f32_16x16x16bf16_1k", ("gfx90a", "int8"): "v_mfma_i32_16x16x16i8",
  ("gfx90a", "float64"): "v_mfma_f64_16x16x4f64", ("gfx1151", "bfloat16"): "v_wmma_f32_16x16x16_bf16",
  ("gfx1200", "float16"): "v_wmma_f32_16x16x16_f16",
}  # fmt: skip


@pytest.mark.parametrize("arch", ["gfx1100", pytest.param("gfx942", marks=pytest.mark.nightly)])
def test_level_0(arch: str, tmp_path: Path) -> None:
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_amd.backend:AMD"]
  command += ["--level", "0", "--arch", arch]
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  passed = re.search(r"(\d+) passed", done.stdout)
  assert passed is not None and int(passed[1]) >= 15, done.stdout[-5000:]


@pytest.mark.parametrize("arch", ARCHS, ids=str)
def test_descriptors_are_what_the_assembler_text_says(arch: Arch) -> None:
  binary = compiled(sums(64, 8192, 1), arch.name)  # of several waves, which leave their sums in shared memory
  check(binary)
  kernel, text = CodeObject.parse(binary.code).kernels["sums"], assembly(binary, arch.name)
  assert kernel.local_bytes == directive(text, "group_segment_fixed_size") > 0
  assert kernel.argument_bytes == directive(text, "kernarg_size") == 16
  assert kernel.private_bytes == directive(text, "private_segment_fixed_size") == 0
  assert kernel.subgroup_size == arch.subgroup_size and kernel.wanted[-1] == "kernel arguments"
  registers = directive(text, "next_free_vgpr")
  assert (kernel.rsrc1 & 63) == -(-registers // 8) - 1  # they are given out by the eight
  assert f"amdhsa_target: amdgcn-amd-amdhsa--{arch}" in text.replace("amdhsa.target:   ", "amdhsa_target: ")


@pytest.mark.parametrize("name", TEXTS)
def test_golden_text(name: str) -> None:
  kernel, arch, opts = TEXTS[name]
  text = compile_kernel(kernel, renderer(Arch.parse(arch)), opts).src[2].arg
  path = GOLDEN / f"{name}.ll"
  if os.environ.get("UPDATE_GOLDEN"):
    path.write_text(text)
  assert text == path.read_text(), f"{path} has another text; UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize(("arch", "dtype"), MATRIX)
def test_matrix_instructions(arch: str, dtype: str) -> None:
  kind = dtypes.parse(dtype)
  total = kind if kind is dtypes.float64 else dtypes.float32 if kind.kind == "float" else dtypes.int32
  binary = compiled(matmul(32, 32, 64, kind, total, total), arch, [Opt(OptOps.TC, 2, None)])
  assert MATRIX[arch, dtype] in assembly(binary, arch)
  check(binary)


def test_wide_accesses_need_no_alignment() -> None:
  opts = [Opt(OptOps.VECTOR, 0, 4), Opt(OptOps.LOCAL, 0, 32)]
  binary = compiled(elementwise(1024, dtypes.float32), "gfx1100", opts)
  text = assembly(binary, "gfx1100")
  assert len(re.findall("global_load_b128", text)) == 3 and len(re.findall("global_store_b128", text)) == 1


@pytest.mark.parametrize("arch", ["gfx1100", "gfx950"])
@pytest.mark.parametrize("name", ["matmul_float16", "matmul_odd", "convolution", "softmax"])
def test_standard_kernels_spill_nothing(name: str, arch: str) -> None:
  binary = AMDCompiler(Arch.parse(arch)).compile(STANDARD[name]())
  check(binary)
  code = CodeObject.parse(binary.code)
  about = code.about(binary.entry)
  assert about["vgpr_spill_count"] == about["sgpr_spill_count"] == code.kernels[binary.entry].private_bytes == 0


def test_a_barrier_waits_for_shared_memory_only() -> None:
  text = assembly(compiled(sums(4, 256, 1), "gfx1100", [Opt(OptOps.GROUP, 1, 64), Opt(OptOps.LOCAL, 0, 2)]), "gfx1100")
  before = text[: text.index("s_barrier")].rsplit("ds_store", 1)[1]
  assert "lgkmcnt(0)" in before and "vmcnt" not in before and "gl0_inv" not in text


def test_a_barrier_waits_for_global_memory_that_threads_exchange_through() -> None:
  t = UOp.range(256, 0, AxisType.LOCAL)
  x, memory = UOp.param(2, dtypes.int32.ptr(256)), UOp.param(1, dtypes.int32.ptr(256))
  value = memory.after(memory.index(t).store(x.index(t).load()).barrier()).index(255 - t).load()
  kernel = UOp.sink(UOp.param(0, dtypes.int32.ptr(256)).index(t).store(value).end(t), arg=KernelInfo("reverse", ()))
  text = assembly(compiled(kernel, "gfx1100"), "gfx1100")
  stored = text[: text.index("s_barrier")].rsplit("global_store", 1)[1]
  assert "s_waitcnt_vscnt null, 0x0" in stored and "buffer_gl0_inv" in text[text.index("s_barrier") :]


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx942", "gfx950"])
def test_a_product_that_becomes_float16_keeps_the_sign_of_zero(arch: str) -> None:
  """LLVM 22 would choose V_FMA_MIXLO_F16 with +0.0 to add, and -0.0 + 0.0 is 0.0."""
  i, half, single = UOp.range(64, 0), dtypes.float16, dtypes.float32
  x, y = (UOp.param(n, half.ptr(64)).index(i).load().cast(single) for n in (1, 2))
  kernel = UOp.sink(UOp.param(0, half.ptr(64)).index(i).store((x * y).cast(half)).end(i), arg=KernelInfo("product"))
  text = assembly(compiled(kernel, arch), arch)
  assert "v_fma_mix" not in text and "v_cvt_f16_f32" in text


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint64], ids=str)
def test_an_integer_becomes_bfloat16_with_one_rounding(dtype: DType) -> None:
  """LLVM's conversion goes by way of float32, which rounds before bfloat16 does."""
  i = UOp.range(64, 0)
  made = UOp.param(1, dtype.ptr(64)).index(i).load().cast(dtypes.bfloat16)
  kernel = UOp.sink(UOp.param(0, dtypes.bfloat16.ptr(64)).index(i).store(made).end(i), arg=KernelInfo("rounded"))
  text = compiled(kernel, "gfx1100").source
  assert not re.search(r"[su]itofp i(32|64) \S+ to bfloat", text) and "fptrunc float" in text


def test_size_of_a_workgroup_is_promised() -> None:
  code = CodeObject.parse(compiled(sums(4, 256, 1), "gfx942", [Opt(OptOps.GROUP, 1, 64)]).code)
  assert code.about("sums")["max_flat_workgroup_size"] == 64


def test_names() -> None:
  with pytest.raises(ValueError, match="expected one of gfx1100, gfx1101, .*, gfx942, gfx950"):
    Arch.parse("gfx803")
  assert {arch.name: arch.version for arch in ARCHS} == {
    "gfx1100": 110000, "gfx1101": 110001, "gfx1102": 110002, "gfx1103": 110003, "gfx1150": 110500, "gfx1151": 110501,
    "gfx1200": 120000, "gfx1201": 120001, "gfx90a": 90010, "gfx942": 90402, "gfx950": 90500,
  }  # fmt: skip
  binary = compiled(elementwise(64, dtypes.float32).replace(arg=KernelInfo("a-b.c")), "gfx1100")
  assert binary.entry == "a-b.c" and "a-b.c" in CodeObject.parse(binary.code).kernels


def test_what_is_refused_has_the_kernel() -> None:
  with pytest.raises(CompileError, match="no code for this kernel") as error:
    AMDCompiler(ARCHS[0]).compile(
      UOp.sink(UOp.param(0, dtypes.float32.ptr(1)), arg=KernelInfo("x", (Opt(OptOps.TC, 9),)))
    )
  assert "PARAM" in error.value.source


def test_the_key_says_what_code_depends_on() -> None:
  assert len({AMDCompiler(arch).key for arch in ARCHS}) == len(ARCHS)
  compiler = AMDCompiler(ARCHS[0])
  assert pickle.loads(pickle.dumps(compiler)) == compiler and "llvm" in compiler.key


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8], ids=str)
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx942"])
def test_operands_are_transposed_on_their_way_to_shared_memory(arch: str, dtype: DType) -> None:
  """Neither operand is read from there number by number, whichever way it stands in memory."""
  total = dtypes.int32 if dtype is dtypes.int8 else dtypes.float32
  counts = []
  for transposed in (False, True):
    text = assembly(compiled(matmul(1024, 1024, 1024, dtype, total, total, transposed), arch), arch)
    assert "v_wmma" in text or "v_mfma" in text
    assert not re.search(r"ds_(?:load|read)_[iu](?:8|16)", text)
    counts.append(len(re.findall(r"ds_(?:load|read)\w*_b(?:64|128)", text)))
  assert counts[0] <= 2 * counts[1]
