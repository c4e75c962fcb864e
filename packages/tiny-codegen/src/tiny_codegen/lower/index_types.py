"""Pass: `index` becomes int32, or int64 for values whose bounds need it.

Where addresses have 64 bits and are computed as integers are (`Target.wide_offsets`), scalars are int64: LLVM would
extend each offset, and takes several times as long over loops whose counters it has to widen. Lanes stay int32, of
which a vector holds twice as many, and so do quotients, which take longer in 64 bits.

A target without int64 addresses no more than 2^31 elements. An offset that is in range is then known from its low 32
bits, and those of sums and products from the low bits of their operands: arithmetic that may leave int32 only where
the access does not happen (a number from memory under a gate that limits it) wraps and does no harm.
"""

from __future__ import annotations

from tiny_codegen.target import Target
from tiny_uop import DType, Ops, UOp, dtypes

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
EITHER_WIDTH = frozenset({Ops.INDEX, Ops.STORE, Ops.LOAD, Ops.END, Ops.AFTER, Ops.REDUCE, Ops.SINK, Ops.GROUP,
                          Ops.BARRIER, Ops.EXTRACT})  # fmt: skip
"""Addresses and effects, which take offsets of either width."""
QUOTIENTS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD})


def lower_index(root: UOp, target: Target) -> UOp:
  """The kernel without values of dtype index; offsets are int32 where there is no int64."""
  has_int64, choose = dtypes.int64 in target.native_dtypes, _lanes_or_wide if target.wide_offsets else _least
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    src = tuple([done[s] for s in u.src])
    if u.dtype.kind == "index" or (u.op not in EITHER_WIDTH and "index" in [s.dtype.kind for s in u.src]):
      done[u] = _lower(u, src, choose(u, src))
    elif u.op is Ops.INDEX and not has_int64:
      done[u] = u.with_src((src[0], _narrow(src[1]), *src[2:]))
    else:
      done[u] = u.with_src(src)
  return done[root]


def _is_index(u: UOp) -> bool:
  return u.dtype.kind == "index"


def _fits(u: UOp) -> bool:
  return bool(INT32_MIN <= u.vmin and u.vmax <= INT32_MAX)


def _least(u: UOp, src: tuple[UOp, ...]) -> DType:
  """The type that the arithmetic of a node is done in: the widest that it or a source needs."""
  wide = (_is_index(u) and not _fits(u)) or any(
    _is_index(s) and n.dtype.scalar() is dtypes.int64 for s, n in zip(u.src, src)
  )
  return dtypes.int64 if wide else dtypes.int32


def _lanes_or_wide(u: UOp, src: tuple[UOp, ...]) -> DType:
  """The same where only lanes and quotients are int32, if they and what they are made of fit."""
  indices = [s for s in (u, *u.src) if _is_index(s)]
  lanes = any(s.dtype.count > 1 for s in indices)
  return dtypes.int32 if (lanes or u.op in QUOTIENTS) and all(map(_fits, indices)) else dtypes.int64


def _lower(u: UOp, src: tuple[UOp, ...], chosen: DType) -> UOp:
  if u.op is Ops.CAST:
    return src[0].cast(_as(u.dtype, chosen)) if _is_index(u) else u.with_src(src)
  if u.op is Ops.EXTRACT:
    return UOp(u.op, src[0].dtype.scalar().vec(u.dtype.count), src, u.arg, u.tag)
  matched = tuple([n.cast(_as(s.dtype, chosen)) if _is_index(s) else n for s, n in zip(u.src, src)])
  return UOp(u.op, _as(u.dtype, chosen), matched, u.arg, u.tag)


def _narrow(u: UOp) -> UOp:
  """The low 32 bits of an offset."""
  if u.dtype.scalar() is not dtypes.int64:
    return u
  narrow = dtypes.int32.vec(u.dtype.count)
  if u.op in (Ops.ADD, Ops.MUL):
    return u.replace(dtype=narrow, src=tuple([_narrow(s) for s in u.src]))
  if u.op is Ops.WHERE:
    return u.replace(dtype=narrow, src=(u.src[0], *[_narrow(s) for s in u.src[1:]]))
  if u.op is Ops.CAST and u.src[0].dtype.scalar() is dtypes.int32:
    return u.src[0]
  return u.cast(narrow)


def _as(dtype: DType, chosen: DType) -> DType:
  return chosen.vec(dtype.count) if dtype.kind == "index" else dtype
