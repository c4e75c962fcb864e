"""Prints a graph that has every operation, data type and kind of argument, and a digest of its keys. A program of its
own, so that other processes and other versions of Python can run it: what they print is compared.
"""

from __future__ import annotations

import hashlib
import sys

from tiny_uop import (
  Accumulate,
  AddrSpace,
  AxisType,
  KernelInfo,
  Ops,
  Opt,
  OptOps,
  ParamInfo,
  ProgramInfo,
  Stage,
  UOp,
  dtypes,
  parse_uop,
  print_uop,
)  # fmt: skip


def every_form() -> UOp:
  """Nothing here is meant to be legal: the textual form does not care."""
  literals = [
    None, True, False, 0, 1, -1, 2**63, -(2**64), 10**40, 0.0, -0.0, 1.0, -2.5, 0.1, 1e22, 1e-7, 5e-324,
    1.7976931348623157e308, float("inf"), float("-inf"), float("nan"), "", "plain",
    'quote " and \\ and / \n\t\x00\x1f\x7f', "é 漢 \U0001f600 \ud800",
    (), (1,), (1, 2), ((), ((3,), None)), dtypes.int8, dtypes.float32.vec(4), dtypes.int8.ptr(3, AddrSpace.REG),
    *AxisType, *AddrSpace, *OptOps, KernelInfo(), KernelInfo("k", ()),
    KernelInfo("k", (Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.STAGE, 2, (0, 3)), Opt(OptOps.NOLOCALS))),
    Stage(AddrSpace.LOCAL, 2), Accumulate(Ops.ADD), Accumulate(Ops.XOR, True),
    ProgramInfo("p", "llvm", (ParamInfo(0, dtypes.float32, 16, True, False),), ("n", "m")),
  ]  # fmt: skip
  scalars = [*dtypes.all, dtypes.index, dtypes.void]
  vectors = [d.vec(n) for d in (dtypes.bool, dtypes.index, dtypes.float16) for n in (2, 16)]
  pointers = [d.ptr(size, s) for d in (dtypes.float32, dtypes.uint8.vec(4)) for size in (0, 2**40) for s in AddrSpace]
  nodes = [UOp(Ops.CONST, d) for d in (*scalars, *vectors, *pointers)]
  nodes += [UOp(Ops.SINK, arg=literal, tag=literals[i - 1]) for i, literal in enumerate(literals)]
  for op in Ops:
    nodes += [UOp(op), UOp(op, dtypes.int32, (nodes[-1], nodes[-2]), op)]
  return UOp.sink(*nodes)


if __name__ == "__main__":
  text = print_uop(every_form())
  assert parse_uop(text) is every_form()
  sys.stdout.write(text)
  sys.stdout.write(f"# {hashlib.sha256(every_form().key).hexdigest()}\n")
