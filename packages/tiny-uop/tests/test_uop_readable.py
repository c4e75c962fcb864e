"""Graphs as formulas for people: short, in order, and for any graph at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from uop_graphs import graphs

from tiny_uop import AxisType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes
from tiny_uop.text.readable import readable

i, k = UOp.range(64, 0), UOp.range(256, 1, AxisType.REDUCE)
x = UOp.param(1, dtypes.float32.ptr(64 * 256)).index(i * 256 + k).load()
out = UOp.param(0, dtypes.float32.ptr(64)).index(i)
KERNEL = UOp.sink(out.store((x * x).reduce(Ops.ADD, k)).end(i), arg=KernelInfo("squares", (Opt(OptOps.UPCAST, 0, 4),)))


def test_a_kernel() -> None:
  assert readable(KERNEL) == (
    "kernel squares with UPCAST(0, 4)\n"
    "  p0: ptr<float32, 64, global>\n"
    "  p1: ptr<float32, 16384, global>\n"
    "  r0 < 64 (loop), r1 < 256 (reduce)\n"
    "  t0 = p1[r0*256 + r1]\n"
    "  for r0: p0[r0] = sum(t0*t0 for r1)\n"
  )


def test_gates() -> None:
  value = UOp.param(1, dtypes.float32.ptr(9)).index(i, i < 9).load(UOp.const(dtypes.float32, -1.0))
  kernel = UOp.sink(UOp.param(0, dtypes.float32.ptr(64)).index(i, i < 10).store(value).end(i), arg=KernelInfo("gated"))
  assert readable(kernel).splitlines()[-1] == "  for r0: p0[r0 if r0 < 10] = p1[r0 if r0 < 9 else -1.0]"


def test_a_tensor_graph() -> None:
  b = UOp(Ops.BUFFER, dtypes.int32, (UOp(Ops.DEVICE, arg="CPU"),), (7, 12))
  t = b.reshape((3, 4)) + 1
  assert readable(UOp.sink(b.assign((t * t).reshape((12,))))).splitlines() == [
    "graph", "  b7: int32[12] on CPU", "  t0 = reshape(b7, (3, 4)) + expand(reshape(1, (1, 1)), (3, 4))  # int32[3, 4]",
    "  after(b7, b7 = reshape(t0*t0, (12,)))",
  ]  # fmt: skip


def test_a_program_is_indented_by_its_loops() -> None:
  load, add = out.load(), out.load() + 1
  store = out.store(add)
  program = UOp(Ops.LINEAR, src=(i.src[0], i, out.src[0], out, load, add, store, store.end(i)), arg=KernelInfo("inc"))
  assert readable(program).splitlines()[-3:] == ["  for r0:", "    t0 = p0[r0]", "    p0[r0] = t0 + 1.0"]


def test_a_schedule_names_its_kernels() -> None:
  a, b = (UOp(Ops.BUFFER, dtypes.float32, (UOp(Ops.DEVICE, arg="CPU"),), (n, 64 * n)) for n in (1, 256))
  v = UOp.variable("n", 1, 9).bind(5)
  lines = readable(UOp(Ops.LINEAR, src=(UOp(Ops.CALL, src=(KERNEL, a, b, v)),) * 2)).splitlines()
  assert lines[:2] == ["# 0", "kernel squares with UPCAST(0, 4)"] and lines.count("# 0") == 1
  assert lines[-6:] == ["schedule", "  b1: float32[64] on CPU", "  b256: float32[16384] on CPU",
                        "  n: index from 1 to 9", "  0: squares(b1, b256, n)", "  0: squares(b1, b256, n)"]  # fmt: skip


def test_long_formulas_are_cut_into_named_parts() -> None:
  u = UOp.variable("first", 0, 9)
  for n in range(60):
    u = u + UOp.variable(f"variable{n}", 0, 9)
  assert max(len(line) for line in readable(u).splitlines()) < 130


def test_deep_and_shared_graphs() -> None:
  u = square = UOp.variable("x", 0, 1)
  for _ in range(20_000):
    u = u + 1
  for _ in range(200):
    square = square * square
  assert len(readable(u * square)) < 200_000
  place = UOp.param(0, dtypes.int32.ptr(1))
  for _ in range(200):
    place = UOp(Ops.INDEX, place.dtype, (place, place))
  assert len(readable(place)) < 100_000


@settings(max_examples=60)
@given(graphs())
def test_any_graph(graph: UOp) -> None:
  assert readable(graph)
  assert readable(UOp(Ops.LINEAR, src=graph.toposort)) and readable(UOp(Ops.SINK, src=graph.toposort))


@pytest.mark.parametrize("op", Ops)
def test_every_operation_without_sources(op: Ops) -> None:
  assert readable(UOp(op)) and readable(UOp(Ops.LINEAR, src=(UOp(op),))) and UOp(op).render()
