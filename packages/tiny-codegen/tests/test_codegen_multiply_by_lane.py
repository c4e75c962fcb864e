"""Scalars of register tiles as lanes of vectors, for processors that multiply by a lane."""

from __future__ import annotations

import re
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen_kernels import Case, check, convolution, linear, matmul
from codegen_machine import Machine

from tiny_codegen import LLVMRenderer, LLVMTarget, PassContext, compile_kernel, cpu_target
from tiny_codegen.compile import run_passes
from tiny_codegen.pipeline import PASSES
from tiny_codegen.processors import core
from tiny_codegen.render.llvm.target import BY_LANE
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

ARM = cpu_target("aarch64-unknown-linux-gnu", "neoverse-n1", ("+neon", "+dotprod"))
COST = core("x86_64", "znver5", 512).cost
BEFORE = PASSES[: [p.name for p in PASSES].index("linearise")]


def product(size: int, types: tuple[DType, DType], wide: DType, turned: bool = False) -> UOp:
  """out[i][j] = sum over k of a[i][k] * b[k][j], of a[k][i] where it is `turned`."""
  i, j, k = UOp.range(size, 0), UOp.range(size, 1), UOp.range(size, 2, AxisType.REDUCE)
  a = UOp.param(1, types[0].ptr(size * size)).index(k * size + i if turned else i * size + k).load().cast(wide)
  b = UOp.param(2, types[1].ptr(size * size)).index(k * size + j).load().cast(wide)
  out = UOp.param(0, wide.ptr(size * size)).index(i * size + j)
  return UOp.sink(out.store((a * b).reduce(Ops.ADD, k)).end(i, j), arg=KernelInfo("product"))


def assembly(kernel: UOp, target: LLVMTarget = ARM) -> str:
  """The instructions of a kernel, tabs as spaces."""
  machine = llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, target.features, opt=2)
  module = llvm.parse_assembly(str(compile_kernel(kernel, LLVMRenderer(target)).src[2].arg))
  options = llvm.create_pipeline_tuning_options(speed_level=2)
  llvm.create_pass_builder(machine, options).getModulePassManager().run(
    module, llvm.create_pass_builder(machine, options)
  )
  return str(machine.emit_assembly(module)).replace("\t", " ")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
  ("types", "wide", "lane"),
  [
    ((dtypes.float32, dtypes.float32), dtypes.float32, r" fmla v\d+\.4s, v\d+\.4s, v\d+\.s\[3\]"),
    ((dtypes.int8, dtypes.int8), dtypes.int32, r" sdot v\d+\.4s, v\d+\.16b, v\d+\.4b\[3\]"),
    ((dtypes.uint8, dtypes.uint8), dtypes.uint32, r" udot v\d+\.4s, v\d+\.16b, v\d+\.4b\[3\]"),
  ],
)
def test_arm_multiplies_by_lane(types: tuple[DType, DType], wide: DType, lane: str, turned: bool) -> None:
  """Neighbouring steps of a row, or neighbouring rows: one load for four of them, and none that spreads one."""
  text = assembly(product(64, types, wide, turned))
  assert len(re.findall(lane, text)) >= 8
  assert " ld1r " not in text and " dup " not in text


def test_long_registers_of_sve() -> None:
  """With registers of 512 bits products are those of SVE; with 256, of NEON, whose units do as much in a cycle."""
  kernel = product(64, (dtypes.float32, dtypes.float32), dtypes.float32)
  name, features = "aarch64-unknown-linux-gnu", ("+neon", "+sve")
  short, long = (cpu_target(name, "a64fx", features, scalable_bits=bits) for bits in (256, 512))
  assert re.search(r" fmla z\d+\.s", assembly(kernel, long)) and " fmla v" not in assembly(kernel, long)
  assert " fmla v" in assembly(kernel, short) and short == cpu_target(name, "a64fx", features)


def test_few_registers_are_left_as_they_are() -> None:
  """Twelve rows of two vectors and their accumulators are more than there are registers."""
  kernel = product(48, (dtypes.float32, dtypes.float32), dtypes.float32)
  eight, twelve = (
    len(_one_lane(run_passes(kernel, PassContext(ARM.target, _tile(rows)), passes=BEFORE))) for rows in (8, 12)
  )
  assert (eight, twelve) == (8 * 4, 0)


def _one_lane(root: UOp) -> set[UOp]:
  """One lane of a vector, in all lanes of another."""
  lanes = [u for u in root.toposort if u.op is Ops.EXTRACT and isinstance(u.arg, tuple) and len(u.arg) > 1]
  return {u for u in lanes if len({*u.arg}) == 1}


def _tile(rows: int) -> tuple[Opt, ...]:
  return Opt(OptOps.VECTOR, 1, 8), Opt(OptOps.UPCAST, 0, rows), Opt(OptOps.UNROLL, 2, 4)


@pytest.mark.parametrize(
  "case", [matmul(8, 32, 12), matmul(40, 48, 64), linear(16, 32, 64), convolution(8, 34, 16)], ids=str
)
def test_results_are_the_same(case: Case, renderer: LLVMRenderer) -> None:
  """Executed here, by a processor that spreads lanes with an instruction of its own."""
  arrays, program = [a.copy() for a in case.arrays], compile_kernel(case.kernel, by_lane(renderer))
  assert _one_lane(program)
  Machine().call(program, arrays, {}, 1)
  check(case, arrays)


def test_results_of_words_are_the_same(renderer: LLVMRenderer) -> None:
  """The factors of a dot product change places, but not where their types differ."""
  rng = np.random.default_rng(0)
  a, b = (rng.integers(-128, 128, (64, 64), dtype=np.int8) for _ in range(2))
  program = compile_kernel(product(64, (dtypes.int8, dtypes.int8), dtypes.int32), by_lane(renderer))
  assert _one_lane(program) or not renderer.target.dot_products
  out = np.zeros((64, 64), np.int32)
  Machine().call(program, [out, a, b], {}, 1)
  np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32))


def by_lane(renderer: LLVMRenderer) -> LLVMRenderer:
  """That of this processor, as if it were one with Arm's registers; tiles are chosen by figures that are the same
  on all processors, and give all cases scalars side by side."""
  target = replace(renderer.target, multiplies_by_lane=BY_LANE, vector_bits=128, vector_registers=32, cost=COST)
  return LLVMRenderer(replace(renderer.llvm, target=target))
