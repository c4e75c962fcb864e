"""What the representations that decompositions use stand for, as plain graphs that can be compared."""

from __future__ import annotations

from collections.abc import Callable

from tiny_codegen.decompose.wide import HALVES
from tiny_uop import DType, Ops, PtrDType, UOp, dtypes

UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def joined(root: UOp) -> UOp:
  """The graph with `low + 2**32 * high` for every 64-bit integer that has been split."""
  return _rebuilt(root, _join)


def in_bytes(root: UOp) -> UOp:
  """The graph with accesses to bytes, little-endian, for every access to memory; split integers are joined."""
  return _rebuilt(joined(root), _bytewise)


def _rebuilt(root: UOp, change: Callable[[UOp], UOp]) -> UOp:
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    done[u] = change(u.with_src(tuple([done[s] for s in u.src])))
  return done[root]


def _join(u: UOp) -> UOp:
  if u.op is not Ops.VECTORIZE or u.arg != HALVES:
    return u
  low, high = (half.cast(dtypes.uint64.vec(u.dtype.count)) for half in u.src)
  return (low | high << 32).bitcast(u.dtype)


def _bytewise(u: UOp) -> UOp:
  if u.op is Ops.LOAD:
    return _load(u)
  if u.op is Ops.GROUP:
    return UOp.group(*(s for group in u.src for s in (group.src if group.op is Ops.GROUP else (group,))))
  return _store(u) if u.op is Ops.STORE else u


def _pointer(u: UOp) -> UOp:
  assert isinstance(u.dtype, PtrDType)
  kind = dtypes.uint8.ptr(u.dtype.size * u.dtype.base.itemsize, u.dtype.space)
  return u.replace(dtype=kind, src=(_pointer(u.src[0]), *u.src[1:])) if u.op is Ops.AFTER else u.replace(dtype=kind)


def _address(index: UOp, place: int) -> UOp:
  """Of the byte `place` behind where an INDEX leads."""
  pointer = _pointer(index.src[0])
  assert isinstance(index.dtype, PtrDType)
  return UOp(Ops.INDEX, pointer.dtype, (pointer, index.src[1] * index.dtype.base.itemsize + place, *index.src[2:]))


def _load(u: UOp) -> UOp:
  scalar = u.dtype.scalar()
  lanes = [_element(u.src[0], scalar, lane * scalar.itemsize) for lane in range(u.dtype.count)]
  value = lanes[0] if len(lanes) == 1 else UOp(Ops.VECTORIZE, u.dtype, tuple(lanes))
  if len(u.src[0].src) == 2:
    return value
  other = u.src[1] if len(u.src) > 1 else UOp.const(u.dtype, 0)
  return u.src[0].src[2].where(value, other)


def _element(index: UOp, scalar: DType, place: int) -> UOp:
  """One scalar from memory; a gate is left to the caller."""
  if scalar is dtypes.bool:
    return _element(index, dtypes.uint8, place).ne(0)
  word = UNSIGNED[scalar.bits]
  bare = index.replace(src=index.src[:2])
  value = UOp.const(word, 0)
  for k in range(scalar.itemsize):
    value = value | _address(bare, place + k).load().cast(word) << 8 * k
  return value.bitcast(scalar)


def _store(u: UOp) -> UOp:
  index, value = u.src
  scalar, effects = value.dtype.scalar(), []
  for lane in range(value.dtype.count):
    one = value.extract(lane) if value.dtype.count > 1 else value
    bits = one.cast(dtypes.uint8) if scalar is dtypes.bool else one.bitcast(UNSIGNED[scalar.bits])
    for k in range(scalar.itemsize):
      address = _address(index, lane * scalar.itemsize + k)
      effects.append(address.store((bits >> 8 * k).cast(dtypes.uint8)))
  return UOp.group(*effects)
