"""PTX for every architecture, on any machine."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_codegen import SharedOperand, compile_kernel
from tiny_runtime import CompileError
from tiny_runtime.conformance.standard import STANDARD, elementwise, matmul, sums
from tiny_runtime_nv import ARCHS, Arch, NVCompiler
from tiny_runtime_nv.entries import are_aligned, entries
from tiny_runtime_nv.target import PTXRenderer
from tiny_runtime_nv.tensor_cores import AMPERE, FLOAT8, HOPPER, TF32, TURING, shared_descriptor
from tiny_runtime_nv.waits import waits_first
from tiny_uop import DType, KernelInfo, Opt, OptOps, UOp, dtypes

GOLDEN = Path(__file__).parent / "golden"
MATMUL = matmul(32, 16, 64, dtypes.bfloat16, dtypes.float32, dtypes.float32)
# name → kernel, architecture, optimisations: their LLVM IR, which depends on nothing but our own code
TEXTS = {
  "elementwise": (elementwise(1024, dtypes.float32), "sm_80", [Opt(OptOps.VECTOR, 0, 4), Opt(OptOps.LOCAL, 0, 32)]),
  "sums": (sums(4, 256, 1), "sm_90a", [Opt(OptOps.GROUP, 1, 32)]),
  "tensor_core": (MATMUL, "sm_90a", [Opt(OptOps.TC, 2, 0)]),
}


def ptx(kernel: UOp, arch: str, opts: list[Opt] | None = None) -> str:
  made = Arch.parse(arch)
  return NVCompiler(made).assemble(compile_kernel(kernel, PTXRenderer(made), opts)).code.decode()


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_level_0(arch: str, tmp_path: Path) -> None:
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_nv.backend:CUDA"]
  command += ["--level", "0", "--arch", arch]
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  passed = re.search(r"(\d+) passed", done.stdout)
  assert passed is not None and int(passed[1]) >= 15, done.stdout[-5000:]


@pytest.mark.parametrize("arch", ARCHS, ids=str)
def test_architectures(arch: Arch) -> None:
  text = ptx(elementwise(64, dtypes.float16), arch.name)
  assert (
    f".target {arch}" in text and f".version {arch.ptx / 10}" in text and ".visible .entry tiny_elementwise(" in text
  )
  assert Arch.parse(str(arch)) is arch and Arch.of(*arch.capability) is arch


def test_which_architecture_a_gpu_gets() -> None:
  assert str(Arch.of(8, 7)) == "sm_86" and str(Arch.of(10, 3)) == "sm_100" and str(Arch.of(12, 1)) == "sm_120"
  assert str(Arch.of(9, 5)) == "sm_89"  # what sm_90a can do no other has
  assert Arch.of(7, 0) is None
  with pytest.raises(ValueError, match="expected one of sm_75, sm_80"):
    Arch.parse("sm_70")


@pytest.mark.parametrize("name", TEXTS)
def test_golden_text(name: str) -> None:
  kernel, arch, opts = TEXTS[name]
  text = compile_kernel(kernel, PTXRenderer(Arch.parse(arch)), opts).src[2].arg
  path = GOLDEN / f"{name}.ll"
  if os.environ.get("UPDATE_GOLDEN"):
    path.write_text(text)
  assert text == path.read_text(), f"{path} has another text; UPDATE_GOLDEN=1 writes it anew"


def test_wide_accesses_only_where_buffers_are_aligned() -> None:
  """Without that the hardware traps: there is a kernel with the same accesses for buffers that are not."""
  text = ptx(elementwise(1024, dtypes.float32), "sm_80", [Opt(OptOps.VECTOR, 0, 4)])
  assert entries(text.encode(), "tiny_elementwise") == ("tiny_elementwise", "tiny_elementwise_aligned")
  assert text.count("ld.global.nc.v4") == 3 and text.count("st.global.v4") == 1
  assert text.count("ld.global.nc.b32") == 12 and text.count("st.global.b32") == 4
  plain, aligned = text.split(".entry tiny_elementwise_aligned(")
  assert ".v4" not in plain and "ld.global.nc.b32" not in aligned and "setp" not in text, "neither looks at addresses"
  assert are_aligned([32, 48]) and are_aligned([]) and not are_aligned([32, 8])
  # a row of 6 floats is aligned to 8 bytes only
  i, j, floats = UOp.range(4, 0), UOp.range(4, 1), dtypes.float32.ptr(24)
  rows = UOp.param(0, floats).index(i * 6 + j).store(UOp.param(1, floats).index(i * 6 + j).load()).end(i, j)
  text = ptx(UOp.sink(rows, arg=KernelInfo("rows")), "sm_80", [Opt(OptOps.VECTOR, 1, 4)])
  assert ".v4" not in text and text.count("ld.global.nc.v2") == 2


def test_neighbours_are_joined_where_buffers_are_aligned() -> None:
  """A thread's results of a tensor core are in pairs: one access each, but no more is claimed than was looked at."""
  text = ptx(matmul(128, 128, 64, dtypes.bfloat16, dtypes.float32, dtypes.bfloat16), "sm_90a")
  plain, aligned = text.split(".entry tiny_matmul_aligned(")
  pairs = aligned.count("st.global.b32")
  assert pairs > 0 and "st.global.b16" not in aligned and plain.count("st.global.b16") == 2 * pairs
  i, j, floats = UOp.range(4, 0), UOp.range(2, 1), dtypes.float32.ptr(64)
  wide = UOp.param(0, floats).index(i * 2 + j).store(UOp.param(1, floats).index(i * 2 + j).load()).end(i, j)
  scalar = UOp.param(0, floats).index(i * 4 + 32).store(UOp.param(1, floats).index(i * 4 + 32).load()).end(i)
  made = compile_kernel(
    UOp.sink(wide, scalar, arg=KernelInfo("both")), PTXRenderer(Arch.parse("sm_80")), [Opt(OptOps.VECTOR, 1, 2)]
  )
  body = str(made.src[2].arg).split("void @tiny_both_aligned")[1]
  assert "align 8" in body


def test_large_elementwise_kernels_are_accessed_in_vectors() -> None:
  for dtype, lanes in ((dtypes.float32, 4), (dtypes.float16, 8)):
    program = compile_kernel(elementwise(1 << 16, dtype), PTXRenderer(Arch.parse("sm_90a")))
    assert Opt(OptOps.VECTOR, 0, lanes) in program.src[1].arg.opts
    assert ptx(elementwise(1 << 16, dtype), "sm_90a").count("ld.global.nc.v4.b32") == 3
  small = compile_kernel(elementwise(1 << 10, dtypes.float32), PTXRenderer(Arch.parse("sm_90a")))
  assert all(o.op is not OptOps.VECTOR for o in small.src[1].arg.opts)


def test_tensor_cores_of_an_architecture() -> None:
  assert ptx(MATMUL, "sm_80", [Opt(OptOps.TC, 2, 0)]).count("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") >= 1
  half = matmul(32, 16, 64, dtypes.float16, dtypes.float32, dtypes.float32)
  assert "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" in ptx(half, "sm_75", [Opt(OptOps.TC, 2, 0)])
  for dtype, kind in ((dtypes.int8, "s8"), (dtypes.uint8, "u8")):
    kernel = matmul(32, 16, 64, dtype, dtypes.int32, dtypes.int32)
    assert f"row.col.s32.{kind}.{kind}.s32" in ptx(kernel, "sm_89", [Opt(OptOps.TC, 2, None)])
  double = matmul(16, 16, 16, dtypes.float64, dtypes.float64, dtypes.float64)
  assert "mma.sync.aligned.m8n8k4.row.col.f64" in ptx(double, "sm_80", [Opt(OptOps.TC, 2, None)])


@pytest.mark.parametrize("instruction", [*AMPERE, *TURING, *FLOAT8, TF32], ids=lambda i: i.name)
def test_fragments_hold_neighbours_in_a_word(instruction: object) -> None:
  """The manual's words of a and b are numbers that are neighbours along the sum, lowest first."""
  core = instruction.core  # type: ignore[attr-defined]
  size = max(1, 32 // core.dtype_in.bits)
  for thread, first in itertools.product(range(32), range(0, core.a.count, size)):
    row, column = core.a.place(thread, first)
    assert [core.a.place(thread, first + n) for n in range(size)] == [(row, column + n) for n in range(size)]
  for thread, first in itertools.product(range(32), range(0, core.b.count, size)):
    row, column = core.b.place(thread, first)
    assert [core.b.place(thread, first + n) for n in range(size)] == [(row + n, column) for n in range(size)]


def test_layouts_of_bytes_are_those_of_the_ptx_manual() -> None:
  """PTX ISA, "Matrix fragments for mma.m16n8k32", .u8 and .s8."""
  core = AMPERE[2].core
  for lane in range(32):
    group, in_group = lane >> 2, lane % 4
    for i in range(16):
      row = group if i < 4 or 8 <= i < 12 else group + 8
      assert core.a.place(lane, i) == (row, in_group * 4 + (i & 3) + (16 if i >= 8 else 0))
    for i in range(8):
      assert core.b.place(lane, i) == (in_group * 4 + (i & 3) + (16 if i >= 4 else 0), group)


def test_size_of_a_workgroup_is_promised() -> None:
  assert ".reqntid 32, 1, 1" in ptx(sums(4, 256, 1), "sm_80", [Opt(OptOps.GROUP, 1, 32)])


def test_names_that_ptx_does_not_know() -> None:
  kernel = elementwise(64, dtypes.float32).replace(arg=KernelInfo("a-b.c"))
  binary = NVCompiler(Arch.parse("sm_80")).compile(kernel)
  assert binary.entry == "tiny_a_b_c" and ".entry tiny_a_b_c(" in binary.code.decode()


def test_what_is_refused_has_the_kernel() -> None:
  with pytest.raises(CompileError, match="no code for this kernel") as error:
    NVCompiler(Arch.parse("sm_80")).compile(
      UOp.sink(UOp.param(0, dtypes.float32.ptr(1)), arg=KernelInfo("x", (Opt(OptOps.TC, 9),)))
    )
  assert "PARAM" in error.value.source


def test_the_key_says_what_code_depends_on() -> None:
  keys = {NVCompiler(arch).key for arch in ARCHS}
  assert len(keys) == len(ARCHS) and all("llvm" in key for key in keys)
  compiler = NVCompiler(ARCHS[0])
  assert pickle.loads(pickle.dumps(compiler)) == compiler


@pytest.mark.parametrize("name", ["softmax", "matmul_odd", "convolution"])
def test_standard_kernels_use_no_local_memory(name: str) -> None:
  """A thread's arrays have to become registers."""
  text = NVCompiler(Arch.parse("sm_90a")).compile(STANDARD[name]()).code.decode()
  assert ".local" not in text and "call" not in text


def test_layouts_of_tf32_are_those_of_the_ptx_manual() -> None:
  """PTX ISA, "Matrix fragments for mma.m16n8k8", .tf32."""
  core = TF32.core
  for lane in range(32):
    group, in_group = lane >> 2, lane % 4
    places = [(group, in_group), (group + 8, in_group), (group, in_group + 4), (group + 8, in_group + 4)]
    assert [core.a.place(lane, i) for i in range(4)] == places
    assert [core.b.place(lane, i) for i in range(2)] == [(in_group, group), (in_group + 4, group)]


def test_layouts_of_a_warpgroup_are_those_of_the_ptx_manual() -> None:
  """PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16", matrix D."""
  for instruction in HOPPER:
    core = instruction.core
    n = core.dims[0]
    for thread, i in itertools.product(range(128), range(n // 2)):
      row = 16 * (thread // 32) + thread % 32 // 4 + (8 if i % 4 >= 2 else 0)
      assert core.c.place(thread, i) == (row, i // 4 * 8 + thread % 4 * 2 + i % 2)


def test_descriptors_of_shared_memory() -> None:
  """PTX ISA, "Matrix Descriptor Format": leading and stride dimension's offsets in units of 16 bytes, swizzling 1."""
  for operand, leading in ((SharedOperand(True, 8192), 1), (SharedOperand(False, 8192), 512)):
    bits = shared_descriptor(operand)
    assert bits & 0x3FFF == 0 and bits >> 16 & 0x3FFF == leading and bits >> 32 & 0x3FFF == 64
    assert bits >> 49 & 7 == 0 and bits >> 62 == 1


def products(size: int, dtype: DType, arch: str = "sm_90a") -> str:
  made = Arch.parse(arch)
  return NVCompiler(made).compile(matmul(size, size, size, dtype, dtypes.float32, dtype)).code.decode()


def test_large_products_are_done_by_warpgroups() -> None:
  text = products(4096, dtypes.bfloat16)
  plain, aligned = text.split(".entry tiny_matmul_aligned(")
  for body in (plain, aligned):
    assert body.count("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16") == 4, "four steps"
    assert len(re.findall(r"\bbra\b", body)) == 1, "nothing but the loop"
  assert aligned.count("st.global.b32") == 64 and "st.global.b16" not in aligned, "two results of 16 bits in each"
  # of four copies of shared memory one is read, and three are on their way
  before, loop = aligned[: aligned.index("$L__BB1_1:")], aligned[aligned.index("$L__BB1_1:") :]
  copies = loop.count("cp.async.cg")
  assert before.count("cp.async.cg") == 3 * copies and loop.index("wgmma.mma") < loop.index("bar.sync")
  assert loop.index("bar.sync") < loop.index("cp.async.cg") and loop[: loop.index("bra")].count("bar.sync") == 1
  assert text.startswith("// shared memory at launch: 196608 bytes") and ".align 1024 .b8 tiny_matmul_shared[]" in text
  assert ".reqntid 128, 2, 1" in text and "fence.proxy.async.shared::cta" in text
  # one step is on its way while the next begins; nobody touches accumulators before the last has come
  assert re.search(r"wgmma\.fence[^\n]*wgmma\.commit_group\.sync\.aligned; wgmma\.wait_group\.sync\.aligned 1;", text)
  assert aligned.rindex("wgmma.wait_group.sync.aligned 0;") > aligned.rindex("wgmma.wait_group.sync.aligned 1;")
  assert aligned.rindex("wgmma.wait_group.sync.aligned 0;") < aligned.index("st.global")
  assert "m64n64k16.f32.f16.f16" in products(1024, dtypes.float16), "smaller tiles, so that there are enough"
  assert "wgmma" not in products(512, dtypes.float16), "which a few of them would not keep busy"
  other = products(4096, dtypes.bfloat16, "sm_100")
  assert "wgmma" not in other and "mma.sync" in other and "ldmatrix" in other, "Hopper has it, and nobody else"


def test_operands_come_by_copies_and_by_warps() -> None:
  text = products(4096, dtypes.bfloat16, "sm_80")
  assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in text and "m8n8.x2.trans.shared.b16" in text
  assert "cp.async.cg.shared.global" in text and "cp.async.wait_group \t2" in text
  # a buffer that is not aligned is read element by element, and stored
  plain = text[text.index("cp.async.wait_group") : text.index("cp.async.cg.shared.global")]
  assert "ld.global.nc.b16" in text and "st.shared.v4.b32" in plain
  turing = NVCompiler(Arch.parse("sm_75")).compile(
    matmul(1024, 1024, 1024, dtypes.float16, dtypes.float32, dtypes.float16)
  )
  assert b"cp.async" not in turing.code and b"ldmatrix" in turing.code


def test_a_later_version_of_ptx_for_what_needs_it_only() -> None:
  kernel = matmul(256, 256, 256, dtypes.fp8e4m3, dtypes.float32, dtypes.float32, transposed=True)
  for arch, plain in (("sm_89", "7.8"), ("sm_90a", "8.0")):
    text = ptx(kernel, arch)
    assert ".version 8.4" in text and "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" in text
    assert f".version {plain}" in ptx(MATMUL, arch)
  assert "e4m3" not in ptx(kernel, "sm_86"), "which has none for floats of 8 bits"


def test_float32_is_never_rounded_without_asking() -> None:
  kernel = matmul(512, 512, 512, dtypes.float32, dtypes.float32, dtypes.float32)
  for arch in ARCHS:
    plain, rounded = NVCompiler(arch).compile(kernel), NVCompiler(arch, tf32=True).compile(kernel)
    assert b"mma" not in plain.code and (b"tf32" in rounded.code) == (arch.capability >= (8, 0))


def test_waits_come_first_in_their_blocks() -> None:
  wait = "\t// begin inline asm\n\twgmma.wait_group.sync.aligned 0;\n\t// end inline asm\n"
  moved, load = "\tshl.b32 \t%r1, %r2, 18;\n\tmov.b32 \t%r3, 0;\n", "\tld.global.b32 \t%r1, [%rd1];\n"
  assert waits_first(f"$L__BB0_1:\n{moved}{wait}\tret;\n") == f"$L__BB0_1:\n{wait}{moved}\tret;\n"
  branch = "\t@%p2 bra \t$L__BB0_1;\n"
  assert waits_first(f"{load}{branch}{moved}{wait}\tret;\n") == f"{load}{branch}{wait}{moved}\tret;\n"
  for same in (f"$L__BB0_1:\n{load}{wait}", f"$L__BB0_1:\n{wait}{moved}", f"{moved}{wait}", f"$L__BB0_1:\n{moved}"):
    assert waits_first(same) == same
