"""Programs for processors other than this one: they compile, and need no library."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace

import llvmlite.binding as llvm
import pytest
from codegen_elementwise import info_of, lower

from tiny_codegen.processors import CORES
from tiny_codegen.render import LLVMRenderer, cpu_target
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

TARGETS = {
  "x86-64": ("x86_64-unknown-linux-gnu", "x86-64", ()),
  "x86-64-v3": ("x86_64-unknown-linux-gnu", "haswell", ("+sse4.1", "+avx", "+avx2", "+fma", "+f16c", "+bmi2")),
  "avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512",
             ("+sse4.1", "+avx", "+avx2", "+fma", "+f16c", "+avx512f", "+avx512vl", "+avx512bw", "+avx512dq")),
  "arm64": ("aarch64-unknown-linux-gnu", "generic", ("+neon",)),
  "apple": ("arm64-apple-macosx14.0.0", "apple-m1", ()),
}  # fmt: skip
FLOAT_OPS = (*GroupOp.Transcendental, Ops.SQRT, Ops.TRUNC)


def renderer(name: str) -> LLVMRenderer:
  return LLVMRenderer(cpu_target(*TARGETS[name]))


def calls(name: str, function: UOp) -> set[str]:
  """The functions that the machine code of one value calls."""
  made = renderer(name)
  linear = UOp(Ops.LINEAR, src=lower(made, UOp.sink(function)).toposort)
  module = llvm.parse_assembly(made.render(linear, info_of(linear)))
  module.verify()
  target = llvm.Target.from_triple(made.llvm.triple)
  machine = target.create_target_machine(
    cpu=made.llvm.cpu, features=made.llvm.features, opt=2, reloc="pic", codemodel="default"
  )
  builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
  builder.getModulePassManager().run(module, builder)
  found = re.findall(r"^\s*(?:callq?|bl|jmp|b)\s+([A-Za-z_][\w.@]*)", machine.emit_assembly(module), re.MULTILINE)
  return {f for f in found if not f.startswith((".L", "LBB"))}


def store(value: UOp, slot: int = 0) -> UOp:
  place = UOp.param(slot, value.dtype.scalar().ptr(64)).index(UOp.const(dtypes.int32, 0))
  return place.store(value)


def calls_of_any(name: str, values: Sequence[UOp]) -> set[str]:
  """The functions that the machine code of these values calls: one program, so one run of a compiler."""
  return calls(name, UOp.group(*(store(value, 16 + slot) for slot, value in enumerate(values))))


def load(dtype: DType, slot: int, lanes: int) -> UOp:
  place = UOp.param(slot, dtype.ptr(64)).index(UOp.const(dtypes.int32, 0))
  return place.load(dtype=dtype.vec(lanes))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
def test_float_operations_call_nothing(name: str, dtype: DType) -> None:
  for lanes in (1, 8):
    a, b = load(dtype, 1, lanes), load(dtype, 2, lanes)
    assert not calls_of_any(name, [*(a.alu(op) for op in FLOAT_OPS), a + b, a / b, a.maximum(b), a * b + a])


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("source", dtypes.all, ids=str)
def test_conversions_call_nothing(name: str, source: DType) -> None:
  value = load(source, 1, 4)
  stores = [UOp.param(2 + slot, d.ptr(64)).index(0).store(value.cast(d)) for slot, d in enumerate(dtypes.all)]
  assert not calls(name, UOp.group(*stores))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
def test_integer_operations_call_nothing(name: str, dtype: DType) -> None:
  for lanes in (1, 4):
    a, b = load(dtype, 1, lanes), load(dtype, 2, lanes)
    assert not calls_of_any(name, [a // b, a % b, a * b, a.maximum(b)])


def test_capabilities_follow_from_features() -> None:
  assert not renderer("x86-64").target.has_fma and renderer("x86-64-v3").target.has_fma
  assert renderer("avx512").target.vector_bits == 512 and renderer("avx512").target.vector_registers == 32
  assert dtypes.float16 not in renderer("x86-64").target.native_dtypes
  assert dtypes.float16 in renderer("arm64").target.native_dtypes
  assert renderer("x86-64-v3").target.lanes(dtypes.float32) == 8
  assert cpu_target("riscv64-linux").target.vector_bits == 128


def test_figures_are_those_of_a_processor_or_of_others_like_it() -> None:
  features = ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+avx512bf16")
  intel, later, zen, narrow = (
    cpu_target("x86_64-linux-gnu", name, listed)
    for name, listed in (
      ("sapphirerapids", features),
      ("not-known-yet", features),
      ("znver5", features),
      ("znver5", ()),
    )
  )
  assert later.target == intel.target and later.target.cost == CORES["x86", 512].cost
  assert zen.target.cost == CORES["znver5", 512].cost and narrow.target.cost == CORES["x86", 128].cost
  assert [t.dots[-1].rate for t in (intel, zen)] == [0.25, 1.0]
  arm = cpu_target("aarch64-linux-gnu", "znver5-of-another-maker")
  assert arm.target.cost == CORES["arm", 128].cost


def test_a_call_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
  """Rounding on a processor without the instruction, if it were not decomposed."""
  made = renderer("x86-64")
  wrong = replace(made.llvm.target, native_ops=made.llvm.target.native_ops | {Ops.TRUNC})
  monkeypatch.setattr(sys.modules[__name__], "renderer", lambda name: LLVMRenderer(replace(made.llvm, target=wrong)))
  x = load(dtypes.float32, 1, 1)
  assert any("trunc" in f for f in calls_of_any("x86-64", [x + x, x.trunc(), x * x]))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.uint8, dtypes.float32])
def test_masked_loads_are_kept_in_registers_that_every_processor_with_their_instructions_has(dtype: DType) -> None:
  """LLVM ends the process where it has no registers for what an `asm` takes: skylake-avx512 has none of halves."""
  integers = dtypes.int32.vec(16)
  i = UOp.range(2, 0, dtype=dtypes.int32)
  lanes = UOp(Ops.VECTORIZE, integers, (i * 16,) * 16) + UOp.const(integers, tuple(range(16)))
  place = UOp.param(1, dtype.ptr(20)).index(i * 16, lanes.alu(Ops.CMPLT, UOp.const(integers, (20,) * 16)))
  loaded = place.load(UOp.const(dtype.vec(16), 0), dtype=dtype.vec(16))
  store = UOp.param(0, dtype.ptr(32)).index(i * 16).store(loaded).end(i)
  linear = UOp(Ops.LINEAR, src=UOp.sink(store).toposort)
  kinds = set(re.findall(r'call <\d+ x (\w+)> asm ""', renderer("avx512").render(linear, info_of(linear))))
  assert kinds == {"float" if dtype is dtypes.float32 else "i32"}
