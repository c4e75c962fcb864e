"""STOREs that accumulate: which loops run in order, which threads share, and what becomes of the update.

That results are right is for the conformance kit of tiny-runtime, on processors and on models of GPUs.
"""

from __future__ import annotations

import re

import pytest

from tiny_codegen import (
  C99,
  CDialect,
  CRenderer,
  KernelError,
  KernelOptError,
  Limits,
  LLVMRenderer,
  LLVMTarget,
  Target,
  compile_kernel,
  cpu_target,
)
from tiny_codegen.kernel.dependences import carried_loops, updates
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_uop import AddrSpace, AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes
from tiny_uop.updates import GPU_UPDATES

F, I = dtypes.float32, dtypes.int32  # noqa: E741
CPU = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+f16c")))
GROUPS = Target(
  LLVM_DTYPES, LLVM_OPS, GPU_UPDATES, has_local=True,
  limits=Limits(max_local=(64,) * 3, max_workgroup=256, shared_memory=65536),
)  # fmt: skip
COUNTERS = tuple((f"{p}idx{n}", f"llvm.{p}.{n}") for p in "gl" for n in range(3))
DEVICE = LLVMRenderer(LLVMTarget("device", GROUPS, convention="kernel", counters=COUNTERS, scopes=("agent", "near")))


def scatter(
  count: int,
  rows: int,
  columns: int,
  dtype: DType = F,
  op: Ops = Ops.ADD,
  atomic: bool = False,
  kind: AxisType = AxisType.LOOP,
) -> UOp:
  """`out[index[n]][d] op= value[n][d]`."""
  n, d = UOp.range(count, 0, kind), UOp.range(columns, 1)
  row = UOp.param(1, I.ptr(count)).index(n).load().cast(dtypes.index)
  inside = (row < 0).logical_not() & (row < rows)
  place = UOp.param(0, dtype.ptr(rows * columns)).index(row * columns + d, inside)
  value = UOp.param(2, dtype.ptr(count * columns)).index(n * columns + d).load()
  return UOp.sink(place.accumulate(op, value, atomic).end(n, d), arg=KernelInfo("scatter"))


def compiled(
  kernel: UOp, renderer: LLVMRenderer | CRenderer, opts: list[Opt] | None = None
) -> tuple[list[Opt], str, UOp]:
  with Context(SPEC=2):
    program = compile_kernel(kernel, renderer, opts)
  return list(program.src[1].arg.opts), str(program.src[2].arg), program


def sizes(program: UOp) -> tuple[int, int]:
  """Workgroups, and threads of one."""
  found = [[int(s.arg) for s in group.src] for group in program.src[3:5]]
  return found[0][0] * found[0][1] * found[0][2], found[1][0] * found[1][1] * found[1][2]


def test_columns_are_lanes_and_threads_and_rows_are_in_order() -> None:
  opts, text, _ = compiled(scatter(1000, 5000, 768), CPU)
  # a thread takes runs of a row, and goes through all rows with each
  assert [(o.op, o.axis, o.arg) for o in opts[1:]] == [(OptOps.SPLIT, 1, 4), (OptOps.THREAD, 1, 0)]
  assert (opts[0].op, opts[0].axis) == (OptOps.VECTOR, 1)
  assert "atomicrmw" not in text and re.search(r"load <\d+ x float>, ptr %v\d+", text) and "fadd <" in text


def test_padded_columns() -> None:
  opts, text, _ = compiled(scatter(1000, 5000, 771), CPU)
  assert OptOps.PADTO in {o.op for o in opts} and "atomicrmw" not in text


def test_one_column_is_in_order() -> None:
  for dtype in (F, I):
    opts, text, _ = compiled(scatter(100_000, 5000, 1, dtype), CPU)
    assert opts == [] and "atomicrmw" not in text


def test_a_kernel_may_ask_for_atomics() -> None:
  opts, text, _ = compiled(scatter(100_000, 5000, 1, F, atomic=True), CPU)
  assert [o.op for o in opts] == [OptOps.THREAD] and re.search(r"atomicrmw fadd ptr %v\d+, float %v\d+ monotonic", text)
  opts, text, _ = compiled(scatter(100, 50, 1, F, atomic=True), CPU)  # too little for threads
  assert opts == [] and "atomicrmw" not in text
  opts, text, _ = compiled(scatter(100_000, 50, 1, F, Ops.MUL, atomic=True), CPU)  # what the target has not
  assert opts == [] and "atomicrmw" not in text


def test_threads_of_a_device_share_updates_of_integers() -> None:
  for op, name in ((Ops.ADD, "add"), (Ops.MAX, "max"), (Ops.XOR, "xor")):
    _, text, program = compiled(scatter(10_000, 500, 1, I, op), DEVICE)
    assert re.search(rf'atomicrmw {name} ptr %v\d+, i32 %v\d+ syncscope\("agent"\) monotonic, align 4', text)
    groups, threads = sizes(program)
    assert groups * threads >= 10_000
  assert "atomicrmw umax" in compiled(scatter(10_000, 500, 1, dtypes.uint32, Ops.MAX), DEVICE)[1]


def test_floats_of_a_device_are_not_in_any_order() -> None:
  _, text, program = compiled(scatter(10_000, 500, 256), DEVICE)  # columns enough
  assert "atomicrmw" not in text and sizes(program)[0] * sizes(program)[1] == 256
  _, text, program = compiled(scatter(10_000, 500, 1), DEVICE)  # every element looks for what comes to it
  assert "atomicrmw" not in text and sizes(program)[0] * sizes(program)[1] >= 500


def test_threads_that_alias_have_to_be_atomic() -> None:
  with pytest.raises(KernelError, match="may change the same element .* ADD to float32 in GLOBAL memory.* atomic=True"):
    compiled(scatter(100, 50, 1, kind=AxisType.GLOBAL), DEVICE)
  with pytest.raises(
    KernelError,
    match="may change the same element by an atomic MUL .* the target does not have",
  ):
    compiled(scatter(100, 50, 1, I, Ops.MUL, True, AxisType.GLOBAL), DEVICE)
  assert "atomicrmw fadd" in compiled(scatter(100, 50, 1, atomic=True, kind=AxisType.GLOBAL), DEVICE)[1]


def test_loops_in_order_take_no_optimisations() -> None:
  for op in (OptOps.THREAD, OptOps.VECTOR, OptOps.UPCAST):
    with pytest.raises(KernelOptError, match="ORDER loop"):
      compiled(scatter(128, 50, 1), CPU, [Opt(op, 0, 4)])
  with pytest.raises(KernelOptError, match="may update the same element"):
    compiled(scatter(128, 50, 1, atomic=True), CPU, [Opt(OptOps.VECTOR, 0, 4)])


def test_which_loops_alias() -> None:
  def aliasing(*extents: int, offset: list[int], size: int = 4096, gate: int | None = None) -> set[int]:
    loops = [UOp.range(e, n) for n, e in enumerate(extents)]
    read = UOp.param(1, I.ptr(64)).index(loops[0]).load().cast(dtypes.index)
    place = read * offset[0]
    for loop, factor in zip(loops[1:], offset[1:], strict=True):
      place = place + loop * factor
    inside = None if gate is None else (read < 0).logical_not() & (read < gate)
    store = UOp.param(0, F.ptr(size)).index(place, inside).accumulate(Ops.ADD, 1.0)
    return {r.arg[0] for r in carried_loops(updates(UOp.sink(store.end(*loops), arg=KernelInfo("k"))))}

  assert aliasing(64, 8, offset=[8, 1]) == {0}  # columns
  assert aliasing(64, 9, offset=[8, 1]) == {0, 1}  # that reach into the next row
  assert aliasing(64, 8, offset=[1, 50], gate=50) == {0}  # a batch
  assert aliasing(64, 8, offset=[1, 50]) == {0, 1}  # whose places nothing bounds
  assert aliasing(64, 8, offset=[1, 50], gate=51) == {0, 1}
  assert aliasing(64, 4, 8, offset=[8, 400, 1], gate=50) == {0}
  assert aliasing(64, 4, offset=[8, 0]) == {0, 1}  # one that is not in the address at all


def test_languages_like_c() -> None:
  assert "atomic" not in compiled(scatter(100_000, 5000, 1, I), CRenderer())[1]
  text = compiled(scatter(100_000, 5000, 1, I, atomic=True), CRenderer())[1]
  assert re.search(r"__atomic_fetch_add\(&p0\[v\d+\], v\d+, __ATOMIC_RELAXED\);", text)
  near = CDialect(
    "near", GROUPS, spaces=("device", "group", ""), atomics=((Ops.ADD, "add(({space}{type}*){place}, {value})"),),
    counters=tuple((name, name) for name, _ in COUNTERS), barrier="barrier();", host=False,
  )  # fmt: skip
  t = UOp.range(8, 0, AxisType.LOCAL)
  memory = UOp.alloc(0, I.ptr(4, AddrSpace.LOCAL))
  update = memory.index(t % 4).accumulate(Ops.ADD, t.cast(I), atomic=True)
  out = UOp.param(0, I.ptr(4)).index(t, t < 4).store(memory.after(update.barrier()).index(t, t < 4).load())
  text = compiled(UOp.sink(out.end(t), arg=KernelInfo("near")), CRenderer(near))[1]
  assert re.search(r"add\(\(group int32_t\*\)&m0\[\w+\], \w+\);", text)


def test_a_dialect_that_does_not_say_how() -> None:
  with pytest.raises(NotImplementedError, match="has no atomic ADD to .*int32.*Target should have it in atomics"):
    silent = CDialect("silent", C99.target)
    compiled(scatter(100_000, 5000, 1, I, atomic=True), CRenderer(silent))


def test_a_kernel_that_goes_on_is_compiled_as_written() -> None:
  i, n = UOp.range(4096, 0), UOp.range(100_000, 1)
  bins = UOp.param(0, I.ptr(4096))
  place = UOp.param(1, dtypes.uint8.ptr(100_000)).index(n).load().cast(dtypes.index)
  update = bins.after(bins.index(i).store(0).end(i)).index(place).accumulate(Ops.ADD, 1, atomic=True)
  for renderer in (CPU, DEVICE):
    opts, text, program = compiled(UOp.sink(update.end(n), arg=KernelInfo("histogram")), renderer)
    assert opts == [] and "atomicrmw" not in text and sizes(program) == (1, 1)
