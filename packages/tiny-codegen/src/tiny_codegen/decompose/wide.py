"""64-bit integers on two 32-bit halves, for targets without them: in memory two neighbouring words, in registers two
values.

While the rules run, a value that has been split is a node `VECTORIZE(low, high)` of its 64-bit type, marked by its
argument; every user takes it apart, so none is left. These rules stand first in their table: bounds of a split node
mean nothing to other rules.
"""

from __future__ import annotations

from collections.abc import Callable

from tiny_codegen.decompose import halves as h
from tiny_codegen.decompose.arithmetic import MADE_OF_OTHERS, place_in, to
from tiny_codegen.decompose.halves import Halves
from tiny_uop import DType, GroupOp, Ops, PtrDType, Samples, UOp, UPat, dtypes, rule

HALVES = "halves"  # the argument of a split value
_WIDE = (dtypes.int64, dtypes.uint64)


def _is_wide(u: UOp) -> bool:
  return u.dtype.scalar() in _WIDE


def _split(u: UOp) -> Halves | None:
  """The halves of a value that has been split."""
  return Halves(*u.src) if u.op is Ops.VECTORIZE and u.arg == HALVES else None


def _join(value: Halves, like: UOp) -> UOp:
  return UOp(Ops.VECTORIZE, like.dtype, tuple(value), HALVES)


def _constant(u: UOp) -> UOp:
  lanes = u.arg if isinstance(u.arg, tuple) else (u.arg,) * u.dtype.count
  kind = dtypes.uint32.vec(u.dtype.count)
  low, high = (tuple([v >> shift & 0xFFFFFFFF for v in lanes]) for shift in (0, 32))
  words = [UOp.const(kind, w if u.dtype.count > 1 else w[0]) for w in (low, high)]
  return _join(Halves(words[0], words[1]), u)


def _words(pointer: UOp) -> UOp:
  """The same memory seen as twice as many 32-bit words."""
  assert isinstance(pointer.dtype, PtrDType)
  base = pointer.dtype.base
  kind = dtypes.uint32.ptr(2 * pointer.dtype.size * base.count, pointer.dtype.space)
  if pointer.op is Ops.AFTER:
    return UOp(Ops.AFTER, kind, (_words(pointer.src[0]), *pointer.src[1:]))
  return pointer.replace(dtype=kind)


def _place(index: UOp, count: int, lane: int, word: int) -> UOp:
  """Address of one word of one lane of an access to `count` lanes."""
  assert isinstance(index.dtype, PtrDType)
  offset = index.src[1].extract(lane) if index.src[1].dtype.count > 1 else index.src[1]
  gate = tuple([g.extract(lane) if g.dtype.count > 1 else g for g in index.src[2:]])
  each = index.dtype.base.count
  step = lane if index.src[1].dtype.count == 1 else 0
  pointer = _words(index.src[0])
  return UOp(Ops.INDEX, pointer.dtype, (pointer, offset * (2 * each) + (2 * step + word), *gate))


def _load(u: UOp) -> UOp | None:
  other = _split(u.src[1]) if len(u.src) > 1 else None
  if len(u.src) > 1 and other is None:
    return None
  count, words = u.dtype.count, []
  for word in (0, 1):
    lanes = []
    for lane in range(count):
      alternative = () if other is None else (other[word].extract(lane) if count > 1 else other[word],)
      lanes.append(UOp(Ops.LOAD, dtypes.uint32, (_place(u.src[0], count, lane, word), *alternative)))
    words.append(lanes[0] if count == 1 else UOp(Ops.VECTORIZE, dtypes.uint32.vec(count), tuple(lanes)))
  return _join(Halves(words[0], words[1]), u)


def _store(index: UOp, value: UOp) -> UOp | None:
  if (split := _split(value)) is None:
    return None
  count, effects = value.dtype.count, []
  for lane in range(count):
    for word in (0, 1):
      part = split[word].extract(lane) if count > 1 else split[word]
      effects.append(_place(index, count, lane, word).store(part))
  return UOp.group(*effects)


def _of_halves(replacement: Callable[..., UOp]) -> Callable[[UOp], UOp | None]:
  """A rule's replacement of a node and the halves of its sources, once all have been split."""

  def replaced(u: UOp) -> UOp | None:
    found = [_split(s) for s in u.src]
    return None if None in found else replacement(u, *found)

  return replaced


_COMPUTE: dict[Ops, Callable[[Halves, Halves, bool], Halves]] = {
  Ops.ADD: lambda a, b, signed: h.add(a, b),
  Ops.SUB: lambda a, b, signed: h.add(a, h.negate(b)),
  Ops.MUL: lambda a, b, signed: h.multiply(a, b),
  Ops.AND: lambda a, b, signed: Halves(a.low & b.low, a.high & b.high),
  Ops.OR: lambda a, b, signed: Halves(a.low | b.low, a.high | b.high),
  Ops.XOR: lambda a, b, signed: Halves(a.low ^ b.low, a.high ^ b.high),
  Ops.SHL: lambda a, b, signed: h.shift_left(a, b.low),
  Ops.SHR: lambda a, b, signed: h.shift_right(a, b.low, signed),
  Ops.MAX: lambda a, b, signed: h.select(h.less(a, b, signed), b, a),
  Ops.TRUNCDIV: lambda a, b, signed: (h.divide_signed(a, b) if signed else h.divide(a, b))[0],
  Ops.TRUNCMOD: lambda a, b, signed: (h.divide_signed(a, b) if signed else h.divide(a, b))[1],
}


@_of_halves
def _compute(u: UOp, a: Halves, b: Halves) -> UOp:
  return _join(_COMPUTE[u.op](a, b, u.dtype.kind == "int"), u)


@_of_halves
def _negate(u: UOp, a: Halves) -> UOp:
  return _join(h.negate(a), u)


@_of_halves
def _compare(u: UOp, a: Halves, b: Halves) -> UOp:
  if u.op is Ops.CMPLT:
    return h.less(a, b, u.src[0].dtype.kind == "int")
  return h.equal(a, b) if u.op is Ops.CMPEQ else h.equal(a, b).logical_not()


def _where(u: UOp, c: UOp, a: UOp, b: UOp) -> UOp | None:
  yes, no = _split(a), _split(b)
  return None if yes is None or no is None else _join(h.select(c, yes, no), u)


@_of_halves
def _lanes(u: UOp, *pairs: Halves) -> UOp:
  """VECTORIZE of split scalars."""
  kind = dtypes.uint32.vec(u.dtype.count)
  return _join(Halves(*(UOp(Ops.VECTORIZE, kind, words) for words in zip(*pairs))), u)


@_of_halves
def _extract(u: UOp, value: Halves) -> UOp:
  lanes = u.arg if isinstance(u.arg, tuple) else (u.arg,)
  return _join(Halves(*(half.extract(*lanes) for half in value)), u)


def _widen(u: UOp, x: UOp) -> UOp | None:
  """CAST to 64 bits."""
  if _is_wide(x):
    split = _split(x)
    return None if split is None else _join(split, u)
  if x.dtype.kind == "float":
    single = x if x.dtype.bits >= 32 else to(x, dtypes.float32)
    return _join(h.from_float(single), u)
  return _join(h.extend(x), u)


def _narrow(u: UOp, x: UOp) -> UOp | None:
  """CAST from 64 bits."""
  if (split := _split(x)) is None:
    return None
  kind, signed = u.dtype.kind, x.dtype.kind == "int"
  if kind == "bool":
    return (split.low | split.high).ne(0)
  if kind != "float":
    return to(split.low, u.dtype.scalar())
  if u.dtype.bits < 64:
    return to(h.to_float(split, signed), u.dtype.scalar())
  # both halves are exact in float64, so the sum is rounded once
  top = split.high.bitcast(dtypes.int32.vec(u.dtype.count)) if signed else split.high
  return to(top, dtypes.float64) * 2.0**32 + to(split.low, dtypes.float64)


@_of_halves
def _retype(u: UOp, value: Halves) -> UOp:
  """BITCAST between the two 64-bit types."""
  return _join(value, u)


_x = UPat.var("x")


def _pair(s: Samples, slot: int, dtype: DType = dtypes.int64) -> UOp:
  """A value that has been split."""
  return UOp(Ops.VECTORIZE, dtype, (s.value(dtypes.uint32, slot), s.value(dtypes.uint32, slot + 1)), HALVES)


def _whole(s: Samples, slot: int) -> UOp:
  """A value that has not been split yet: its users wait."""
  return s.value(dtypes.int64, slot)


def _right(s: Samples, op: Ops, dtype: DType) -> UOp:
  """A right operand: any, but of a shift what a shift has a meaning for."""
  if op not in (Ops.SHL, Ops.SHR):
    return _pair(s, 2, dtype)
  count, zero = s.value(dtypes.uint32, 2) & 63, UOp.const(dtypes.uint32, 0)
  return UOp(Ops.VECTORIZE, dtype, (count, zero), HALVES)


def _pair_of_vectors(s: Samples) -> UOp:
  """A vector of two lanes that has been split."""
  halves = tuple([UOp(Ops.VECTORIZE, dtypes.uint32.vec(2), (x, y)) for x, y in zip(_pair(s, 0).src, _pair(s, 2).src)])
  return UOp(Ops.VECTORIZE, dtypes.int64.vec(2), halves, HALVES)


_COMPARE = (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
_PRODUCTS = (Ops.MUL, Ops.TRUNCDIV, Ops.TRUNCMOD)
_SIMPLE = tuple([op for op in _COMPUTE if op not in _PRODUCTS])
_NARROWER = (dtypes.bool, dtypes.int8, dtypes.uint32, dtypes.float32, dtypes.float64)
WIDE_RULES = (
  rule("split_const", UPat(Ops.CONST, _WIDE, name="u"), _constant, grows=MADE_OF_OTHERS,
       example=(lambda s: UOp.const(dtypes.int64, -5), lambda s: UOp.const(dtypes.uint64.vec(2), (1, 1 << 63))),
       near_miss=lambda s: s.i.const_like(-5)),
  rule("split_load", UPat(Ops.LOAD, _WIDE, name="u"), _load, grows=MADE_OF_OTHERS,
       example=(lambda s: _whole(s, 0), lambda s: place_in(s, dtypes.int64).load(dtype=dtypes.int64.vec(2)),
                lambda s: place_in(s, dtypes.int64, s.b).load(_pair(s, 0))),
       near_miss=(lambda s: s.i, lambda s: place_in(s, dtypes.int64, s.b).load(_whole(s, 0)))),
  rule("split_store", UPat(Ops.STORE, None, (UPat.var("index"), UPat.var("value", _WIDE))), _store,
       grows=MADE_OF_OTHERS,
       example=(lambda s: place_in(s, dtypes.int64).store(_pair(s, 0)),
                lambda s: place_in(s, dtypes.int64, s.b).store(_pair(s, 0))),
       near_miss=lambda s: place_in(s, dtypes.int64).store(_whole(s, 0))),
  rule("split_operation", UPat(_SIMPLE, _WIDE, name="u"), _compute, grows=MADE_OF_OTHERS,
       example=lambda s: tuple([_pair(s, 0, d).alu(op, _right(s, op, d)) for op in _SIMPLE for d in _WIDE]),
       near_miss=(lambda s: _whole(s, 0) + _pair(s, 0), lambda s: s.i + s.j)),
  rule("split_product", UPat(_PRODUCTS, _WIDE, name="u"), _compute, grows=MADE_OF_OTHERS,
       example=lambda s: tuple([_pair(s, 0, d).alu(op, _pair(s, 2, d)) for op in _PRODUCTS for d in _WIDE]),
       near_miss=(lambda s: _whole(s, 0) * _pair(s, 0), lambda s: s.i * s.j)),
  rule("split_negation", UPat(Ops.NEG, _WIDE, name="u"), _negate, grows=MADE_OF_OTHERS,
       example=lambda s: _pair(s, 0).alu(Ops.NEG), near_miss=lambda s: _whole(s, 0).alu(Ops.NEG)),
  rule("split_compare", UPat(GroupOp.Compare, None, (UPat(None, _WIDE), UPat()), name="u"), _compare,
       grows=MADE_OF_OTHERS,
       example=lambda s: tuple([_pair(s, 0, d).alu(op, _pair(s, 2, d)) for op in _COMPARE for d in _WIDE]),
       near_miss=lambda s: _whole(s, 0) < _pair(s, 0)),
  rule("split_where", UPat(Ops.WHERE, _WIDE, (UPat.var("c"), UPat.var("a"), UPat.var("b")), name="u"), _where,
       grows=MADE_OF_OTHERS,
       example=lambda s: s.c.where(_pair(s, 0), _pair(s, 4)), near_miss=lambda s: s.c.where(_pair(s, 0), _whole(s, 4))),
  rule("split_lanes", UPat(Ops.VECTORIZE, _WIDE, name="u"), _lanes, grows=MADE_OF_OTHERS,
       example=lambda s: UOp(Ops.VECTORIZE, dtypes.int64.vec(2), (_pair(s, 0), _pair(s, 2))),
       near_miss=lambda s: UOp(Ops.VECTORIZE, dtypes.int64.vec(2), (_pair(s, 0), _whole(s, 2)))),
  rule("split_extract", UPat(Ops.EXTRACT, _WIDE, name="u"), _extract, grows=MADE_OF_OTHERS,
       example=lambda s: _pair_of_vectors(s).extract(1),
       near_miss=lambda s: place_in(s, dtypes.int64).load(dtype=dtypes.int64.vec(2)).extract(1)),
  rule("split_widen", UPat(Ops.CAST, _WIDE, (_x,), name="u"), _widen, grows=MADE_OF_OTHERS,
       example=(lambda s: s.i.cast(dtypes.int64), lambda s: s.b.cast(dtypes.int64), lambda s: s.i.cast(dtypes.uint64),
                lambda s: s.value(dtypes.uint32, 0).cast(dtypes.int64), lambda s: s.f.cast(dtypes.int64),
                lambda s: _pair(s, 0).cast(dtypes.uint64)),
       near_miss=lambda s: _whole(s, 0).cast(dtypes.uint64)),
  rule("split_narrow", UPat(Ops.CAST, None, (UPat.var("x", _WIDE),), name="u"), _narrow, grows=MADE_OF_OTHERS,
       example=lambda s: tuple([_pair(s, 0, d).cast(to) for d in _WIDE for to in _NARROWER]),
       near_miss=lambda s: _whole(s, 0).cast(dtypes.int8)),
  rule("split_bitcast", UPat(Ops.BITCAST, _WIDE, (UPat(None, _WIDE),), name="u"), _retype,
       example=lambda s: _pair(s, 0).bitcast(dtypes.uint64), near_miss=lambda s: _whole(s, 0).bitcast(dtypes.uint64)),
)  # fmt: skip
