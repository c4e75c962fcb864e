"""The LLVM IR that tiny-runtime-amd writes, run on the model: results, races, bounds, barriers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_model_kernels import SMALL, check_on, product, some

from gpu_model.amd import GFX942, GFX950, GFX1100, GFX1201
from gpu_model.llvm import LLVMBackend
from gpu_model.llvm_source import LLVMSource
from gpu_model.toolchain import Refused, compiler
from tiny_runtime import DeviceLost
from tiny_runtime.conformance.standard import elementwise
from tiny_uop import dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

ARCHS = {backend.arch: backend for backend in (GFX1100, GFX1201, GFX942, GFX950)}
CORES = [(name, n) for name, backend in ARCHS.items() for n in range(len(backend.target.matrices))]


@pytest.mark.parametrize(("arch", "number"), some(CORES, 3))
def test_matrix_instructions(arch: str, number: int) -> None:
  """Two matrices along each side and half of one more: each element goes where the table of fragments says."""
  backend = ARCHS[arch]
  instruction = backend.target.matrices[number]
  n, m, k = instruction.core.dims
  types = instruction.core.dtype_in, instruction.core.dtype_out
  kernel = product((2 * m, n + n // 2, 2 * k), (m, n, k), types, number)
  assert f"@{instruction.name}(" in check_on(backend, kernel)


@pytest.mark.parametrize("backend", [GFX942, GFX1100], ids=lambda b: str(b.arch))
def test_matrix_instructions_under_a_causal_mask(backend: LLVMBackend) -> None:
  instruction = backend.target.matrices[0]
  n, m, k = instruction.core.dims
  types = instruction.core.dtype_in, instruction.core.dtype_out
  kernel = product((2 * m, n, 3 * k), (m, n, k), types, 0, causal=True)
  assert f"@{instruction.name}(" in check_on(backend, kernel)


@pytest.mark.parametrize("name", some(SMALL, 3))
@pytest.mark.parametrize("backend", some([GFX942, GFX1100], 2), ids=lambda b: str(b.arch))
def test_standard_kernels_with_what_the_heuristics_choose(name: str, backend: LLVMBackend) -> None:
  check_on(backend, SMALL[name](), tolerance=64)


@pytest.mark.parametrize("backend", [GFX1100], ids=lambda b: str(b.arch))
def test_what_a_kernel_must_not_do_is_found(backend: LLVMBackend) -> None:
  binary = backend.compiler(backend.arch).compile(elementwise(16, dtypes.int32))
  place = "ptr addrspace(1) %p2, i32 %"
  far = replace(binary, source=binary.source.replace(f"inbounds i32, {place}", f"i64, {place}"))
  assert far.source != binary.source
  device = backend.open(0)
  memories = [(device.alloc(64), 0) for _ in range(4)]
  program = device.load(far)
  with pytest.raises(DeviceLost, match="elementwise: thread .* reads 4 bytes at byte 64 of p2, which has 64"):
    device.launch(program, memories, [], (1, 1, 1), (16, 1, 1), True)


def test_what_is_no_kernel_is_refused() -> None:
  with pytest.raises(Refused, match="no function is a kernel"):
    LLVMSource("define void @f() {\n}", GFX942.target)
