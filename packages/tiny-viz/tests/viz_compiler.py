"""A small compiler: one kernel through two passes, one with rewrites and one by hand."""

from __future__ import annotations

from tiny_uop import KernelInfo, Ops, UOp, dtypes, simplify
from tiny_uop.observe import span


def kernel() -> UOp:
  """`out[i] = in[(i*4 + 2)//4]`."""
  i = UOp.variable("i", 0, 15)
  source, target = (UOp(Ops.PARAM, dtypes.float32.ptr(16), (), slot) for slot in (1, 0))
  value = UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.INDEX, source.dtype, (source, (i * 4 + 2) // 4)),))
  store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, target.dtype, (target, i + 0)), value))
  return UOp.sink(store, arg=KernelInfo("copy_16"))


def compile_it() -> UOp:
  """Two passes."""
  root = kernel()
  with span("kernel", "copy_16", root) as whole:
    with span("pass", "simplify", root) as work:
      root = work.gives(simplify(root))
    with span("pass", "rename", root) as work:
      root = work.gives(root.replace(arg=KernelInfo("renamed")))
    return whole.gives(root)
