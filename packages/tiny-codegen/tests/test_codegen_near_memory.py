"""Choices for kernels that go on with what they have left in memory of their own."""

from __future__ import annotations

from tiny_codegen import LLVMRenderer
from tiny_codegen.opt.near_memory import choose_near_memory, is_independent
from tiny_codegen.opt.optimise import optimise
from tiny_uop import AddrSpace, AxisType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, simplify

CPU = LLVMRenderer().target
LANES = CPU.lanes(dtypes.float32)


def products(kind: AxisType = AxisType.LOOP) -> UOp:
  """Blocks of 64 columns of a product: each is made in near memory, and then stored in another order."""
  a, b = (UOp.param(n, dtypes.float32.ptr(64 * 64 * 8)) for n in (1, 2))
  near = UOp.alloc(0, dtypes.float32.ptr(64 * 64, AddrSpace.LOCAL))
  block, i, j, k = UOp.range(8, 0), UOp.range(64, 1, kind), UOp.range(64, 2), UOp.range(64, 3, AxisType.REDUCE)
  total = (a.index(i * 64 + k).load() * b.index((k * 8 + block) * 64 + j).load()).reduce(Ops.ADD, k)
  made = near.after(near.after(block).index(i * 64 + j).store(total).end(i, j))
  i, j = UOp.range(64, 4), UOp.range(64, 5)
  out = UOp.param(0, dtypes.float32.ptr(64 * 64 * 8)).index((block * 64 + j) * 64 + i)
  stored = out.store(made.index(i * 64 + j).load()).end(i, j).end(block)
  return simplify(UOp.sink(stored, arg=KernelInfo("products")))


def test_nests_get_lanes_and_register_tiles() -> None:
  opts = choose_near_memory(products(), CPU)[0]
  assert Opt(OptOps.VECTOR, 2, 4 * LANES) in opts and Opt(OptOps.UPCAST, 1, 4) in opts
  # what is read along one loop and stored along the other is transposed in registers
  assert Opt(OptOps.VECTOR, 4, 16) in opts and Opt(OptOps.UPCAST, 5, 16) in opts
  assert opts[-1].op is OptOps.THREAD and opts[-1].axis == 0


def test_given_choices_are_taken() -> None:
  assert optimise(products(), CPU, ()).arg.opts == ()
  assert optimise(products(), CPU, None).arg.opts == choose_near_memory(products(), CPU)[0]


def test_only_independent_iterations() -> None:
  near = UOp.alloc(0, dtypes.float32.ptr(65, AddrSpace.LOCAL))
  x, i, n = UOp.param(1, dtypes.float32.ptr(64)), UOp.range(64, 1), UOp.range(4, 0)
  inside = near.after(n)
  own = inside.index(i).store(inside.index(i).load() + x.index(i).load()).end(i)
  before = inside.index(i + 1).store(inside.index(i).load() + x.index(i).load()).end(i)
  twice = inside.index(i + UOp.range(2, 2)).store(x.index(i).load()).end(i, UOp.range(2, 2))
  same = inside.index(0).store(inside.index(0).load() + x.index(i).load()).end(i)
  assert [is_independent(nest) for nest in (own, before, same, twice)] == [True, False, False, False]
