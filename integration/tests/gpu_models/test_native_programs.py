"""Programs for one kind of device as kernels of a graph: machine code on AMD, PTX on CUDA, LLVM IR on CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asm_kernels import N, doubling

from gpu_model import cuda
from gpu_model.as_device import as_device
from gpu_model.kfd_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_asm_amd import Program as AMDProgram
from tiny_runtime import CompileError
from tiny_runtime.profiling.recording import profile
from tiny_runtime_cpu import host_arch
from tiny_tensor import Tensor, TinyJit
from tiny_tensor.func import NativeCode, grad
from tiny_uop import Context, is_kernel

needs_a_compiler = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")


def doubled(chip: str) -> AMDProgram:
  """p0[i] = p1[i] * 2, in machine code."""
  return doubling(chip).program(N // 32, 32, ops=N)


def run(x: Tensor, program: object, **more: Any) -> Tensor:
  return Tensor.empty(*x.shape).custom_kernel(x, fxn=lambda *_: program, **more)[0]


@pytest.fixture
def amd() -> Iterator[ModelBackend]:
  backend = ModelBackend(gpu="gfx1100", machine_code=True)
  with as_device(backend, "AMD"), Context(DEVICE="AMD"):
    yield backend
  assert backend.model.misuse == [] and backend.model.left() == []


@needs_a_compiler
def test_machine_code_is_a_kernel_among_others(amd: ModelBackend) -> None:
  """It is scheduled, captured, profiled and has a gradient as other kernels do."""
  program = doubled("gfx1100")

  def f(x: Tensor) -> Tensor:
    return run(x + 1, program, grad_fxn=lambda g, out, x: (None, g * 2)) - 3

  step, numbers = TinyJit(lambda x: f(x).realize()), np.arange(N, dtype=np.float32)
  with profile() as found:
    for n in range(4):
      np.testing.assert_array_equal(step(Tensor(numbers + n).realize()).numpy(), (numbers + n + 1) * 2 - 3)
  assert [r.name for r in found.records if r.kind == "kernel"].count("doubled") == 2, "then it is captured"
  graphs = [r for r in found.records if r.kind == "graph"]
  assert len(graphs) == 2 and all(r.kernels == 3 for r in graphs)
  names = [item.ast.arg.name for item in f(Tensor(numbers)).schedule() if is_kernel(item.ast)]
  assert len(names) == 3 and names[1] == "doubled"
  np.testing.assert_array_equal(grad(lambda x: f(x).sum())(Tensor(numbers)).numpy(), np.full(N, 2, np.float32))


@needs_a_compiler
def test_a_program_of_another_device_is_refused(amd: ModelBackend) -> None:
  x = Tensor(np.zeros(N, np.float32)).realize()
  expected = r"program 'doubled' is code-object for gfx1101; this device takes code-object for gfx1100"
  with pytest.raises(CompileError, match=expected):
    run(x, doubled("gfx1101")).realize()
  with pytest.raises(CompileError, match="'doubled' is said to be for gfx1100, and its metadata say for gfx1101"):
    run(x, replace(doubled("gfx1101"), arch="gfx1100")).realize()
  with pytest.raises(CompileError, match="'doubled' is code-object for gfx1100; this device takes .*tiny-uop.*REF"):
    Tensor.empty(N, device="REF").custom_kernel(x.to("REF"), fxn=lambda *_: doubled("gfx1100"))[0].realize()
  with pytest.raises(CompileError, match="takes 16 bytes of arguments, not 24"):
    Tensor.empty(N).custom_kernel(x, x + 1, fxn=lambda *_: doubled("gfx1100"))[0].realize()
  with pytest.raises(CompileError, match="is no code object"):
    run(x, replace(doubled("gfx1100"), code=b"none")).realize()


PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry squares(.param .u64 squares_param_0, .param .u64 squares_param_1)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<5>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.s32 %r3, %r1, 16, %r2;
  mul.wide.s32 %d1, %r3, 4;
  ld.param.u64 %d2, [squares_param_0];
  ld.param.u64 %d3, [squares_param_1];
  add.s64 %d4, %d2, %d1;
  ld.global.f32 %f1, [%d4];
  mul.rn.f32 %f2, %f1, %f1;
  add.s64 %d4, %d3, %d1;
  st.global.f32 [%d4], %f2;
  ret;
}
"""


@needs_a_compiler
def test_ptx() -> None:
  """Arguments in the program's order, results where it has them; PTX runs on later GPUs than it was written for."""
  program = NativeCode("ptx", "sm_80", PTX, "squares", (N // 16,), (16,), (1,))
  numbers = np.arange(N, dtype=np.float32)
  with as_device(cuda.ModelBackend(), "CUDA"), Context(DEVICE="CUDA"):
    x = Tensor(numbers).realize()
    found = x.custom_kernel(Tensor.empty(N), fxn=lambda *_: program)[1] + 1
    np.testing.assert_array_equal(found.numpy(), numbers * numbers + 1)
    with pytest.raises(CompileError, match="'squares' is ptx for sm_120; this device takes ptx for sm_90a or older"):
      x.custom_kernel(Tensor.empty(N), fxn=lambda *_: replace(program, arch="sm_120"))[1].realize()


IR = """
define void @halves(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
  %next = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %buffers
  %x = load ptr, ptr %next
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [%begin, %0], [%more, %loop]
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %half = fmul float %value, 0.5
  %to = getelementptr float, ptr %out, i64 %i
  store float %half, ptr %to
  %more = add i64 %i, 1
  %again = icmp slt i64 %more, %end
  br i1 %again, label %loop, label %done
done:
  ret void
}
"""


def test_llvm_ir() -> None:
  program = NativeCode("llvm-ir", host_arch().family, IR, "halves", (N,), (1,), (0,))
  with Context(DEVICE="CPU"):
    x = Tensor(np.arange(N, dtype=np.float32))
    np.testing.assert_array_equal(run(x + 1, program).numpy(), (np.arange(N) + 1) / 2)
    with pytest.raises(CompileError, match="LLVM refused program 'halves'"):
      run(x, replace(program, code=IR.replace("fmul", "mul"))).realize()
    with pytest.raises(CompileError, match="is llvm-ir for none; this device takes object for .* or llvm-ir for"):
      run(x, replace(program, arch="none")).realize()
