"""Random graphs for tests of the textual form and of diffs. They share nodes; nothing says that they are legal."""

from __future__ import annotations

from hypothesis import strategies as st

from tiny_uop import (
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
)  # fmt: skip

records = st.sampled_from([
  KernelInfo("k"), KernelInfo("a\n\"b\"", (Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.SWAP, 1, (2, 3)))),
  ProgramInfo("p", "llvm", (ParamInfo(0, dtypes.float32, 16, True, False),), ("n",)), Stage(AddrSpace.REG, 2),
  *AxisType, *Ops, *OptOps, *AddrSpace,
])  # fmt: skip
scalars = [*dtypes.all, dtypes.index]
widths = st.integers(2, 4096)
vectors = st.builds(lambda dtype, width: dtype.vec(width), st.sampled_from(scalars), widths)
memory_vectors = st.builds(lambda dtype, width: dtype.vec(width), st.sampled_from(dtypes.all), widths)
values = st.one_of(st.sampled_from([*scalars, dtypes.void]), vectors)
pointers = st.builds(
  lambda dtype, size, space: dtype.ptr(size, space),
  st.one_of(st.sampled_from(dtypes.all), memory_vectors), st.integers(0, 10**15), st.sampled_from(list(AddrSpace)),
)  # fmt: skip
all_dtypes = st.one_of(values, pointers)
floats = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308]))
atoms = st.one_of(st.none(), st.booleans(), st.integers(), floats, st.text(), all_dtypes, records)
literals = st.recursive(atoms, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12)


@st.composite
def graphs(draw: st.DrawFn, size: int = 12) -> UOp:
  """Up to `size` nodes of any operation, type and argument."""
  nodes: list[UOp] = []
  for _ in range(draw(st.integers(1, size))):
    src = tuple(draw(st.lists(st.sampled_from(nodes), max_size=3))) if nodes else ()
    nodes.append(
      UOp(draw(st.sampled_from(list(Ops))), draw(all_dtypes), src, draw(literals), draw(st.none() | st.text()))
    )
  return nodes[-1]


@st.composite
def edited(draw: st.DrawFn, graph: UOp) -> UOp:
  """The graph with some nodes changed, put in or taken out, and all above them rebuilt."""
  new: dict[UOp, UOp] = {}
  for node in graph.toposort:
    again = node.replace(src=tuple([new[s] for s in node.src]))
    kind = draw(st.sampled_from(["keep", "keep", "keep", "arg", "op", "dtype", "wrap", "drop", "swap"]))
    if kind == "arg":
      again = again.replace(arg=draw(st.integers(0, 3)))
    elif kind == "op":
      again = again.replace(op=draw(st.sampled_from(list(Ops))))
    elif kind == "dtype":
      again = again.replace(dtype=draw(st.sampled_from(scalars)))
    elif kind == "wrap":
      again = UOp(Ops.CAST, dtypes.int64, (again,))
    elif kind == "drop" and again.src:
      again = again.src[0]
    elif kind == "swap":
      again = again.replace(src=again.src[::-1])
    new[node] = again
  return new[graph]
