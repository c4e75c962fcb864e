"""Floats that a target has no registers for. In memory and between operations they are unsigned integers of their
width; arithmetic is in float32 and each operation's result is rounded.

With 24 bits for float32 and at most 11 for the emulated formats, rounding +, -, *, / and square root twice gives what
rounding once gives (Figueroa, "When is double rounding innocuous?", 1995). Every rule leaves a well-typed graph;
BITCASTs between a format and its bits meet and cancel. Conversions are integer operations: to nearest, ties to even,
overflow as `tiny_uop.truncate` does.
"""

from __future__ import annotations

from tiny_codegen.decompose.arithmetic import (
  MADE_OF_OTHERS,
  NAN,
  UNSIGNED,
  magnitude,
  place_in,
  reinterpret,
  to,
  unsigned_bits,
)
from tiny_codegen.target import Target
from tiny_uop import DType, GroupOp, Ops, PtrDType, Samples, UOp, UPat, dtypes, rule
from tiny_uop.pattern import Rule
from tiny_uop.truncate import FORMATS, to_bits

_INFINITY = 0x7F800000


def encode(x: UOp, dtype: DType) -> UOp:
  """The bits of float32 `x` in a narrower format, as unsigned integers of its width."""
  form = FORMATS[dtype.scalar().name]
  bits = unsigned_bits(x)
  size = bits & 0x7FFFFFFF
  shift = 23 - form.mantissa
  # half of the last place, less one, plus the last bit that is kept: carries exactly when rounding is up
  rounded = (size + ((1 << (shift - 1)) - 1) + ((size >> shift) & 1)) >> shift
  if form.exponent < 8:
    # the float addition rounds at the place where this format's subnormals end
    magic = 2.0 ** (24 - form.bias - form.mantissa)
    small = unsigned_bits(magnitude(x) + magic) - unsigned_bits(x.const_like(magic))
    rounded = rounded - ((127 - form.bias) << form.mantissa)
    rounded = (size < ((128 - form.bias) << 23)).where(small, rounded)
    rounded = (size > _INFINITY - 1).where(rounded.const_like(form.largest + 1), rounded)
    too_large = rounded.const_like(form.nan if form.finite else form.largest + 1)
    rounded = (rounded > form.largest).where(too_large, rounded)
  sign = (bits >> 31) << (form.exponent + form.mantissa)
  made = (size > _INFINITY).where(rounded.const_like(form.nan), rounded | sign)
  return to(made, dtypes.uint16 if dtype.bits == 16 else dtypes.uint8)


def decode(bits: UOp, dtype: DType) -> UOp:
  """float32 values from the bits of a narrower format; exact."""
  form = FORMATS[dtype.scalar().name]
  wide = to(bits, dtypes.uint32)
  shift = 23 - form.mantissa
  if form.exponent == 8:
    return reinterpret(wide << shift, dtypes.float32)
  size = wide & ((1 << (form.exponent + form.mantissa)) - 1)
  sign = (wide >> (form.exponent + form.mantissa)) << 31
  normal = reinterpret((size << shift) + ((127 - form.bias) << 23), dtypes.float32)
  small = to(size, dtypes.float32) * 2.0 ** (1 - form.bias - form.mantissa)
  value = unsigned_bits((size < (1 << form.mantissa)).where(small, normal))
  special = value.const_like(0x7FC00000) if form.finite else (size << shift) | _INFINITY
  value = (size > form.largest).where(special, value)
  return reinterpret(value | sign, dtypes.float32)


def to_odd_single(x: UOp) -> UOp:
  """float64 to float32, rounded to odd: what rounding once more to a format of at most 22 bits then gives is what
  rounding once would.

  (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.)
  """
  single = to(x, dtypes.float32)
  back = to(single, dtypes.float64)
  bits = unsigned_bits(single)
  toward_zero = (magnitude(x) < magnitude(back)).where(bits - 1, bits)
  odd = reinterpret(toward_zero | 1, dtypes.float32)
  return (back.ne(x) & x.eq(x)).where(odd, single)


def sticky_double(x: UOp) -> UOp:
  """A 64-bit integer to float64 so that rounding once more is right: bits below the 42nd from the top are gathered
  into one.
  """
  rest = (x & 0x7FF).ne(0)
  gathered = (x >> 11) | rest.where(x.const_like(1), x.const_like(0))
  small = x < (1 << 53) if x.dtype.kind == "uint" else (x < (1 << 53)) & (x.const_like(-(1 << 53)) < x)
  return small.where(to(x, dtypes.float64), to(gathered, dtypes.float64) * 2048.0)


_EMULATED = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)
_SMALL_INTEGERS = (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
_LARGE_INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)
# these give one of their operands, whose bits can be passed on as they are
_MOVES = frozenset({Ops.VECTORIZE, Ops.EXTRACT, Ops.WHERE})
_COMPUTED = GroupOp.ALU - GroupOp.Compare - _MOVES


def _bits_type(dtype: DType) -> DType:
  return UNSIGNED[dtype.bits].vec(dtype.count)


def _constant(u: UOp) -> UOp:
  scalar, lanes = u.dtype.scalar(), u.arg if isinstance(u.arg, tuple) else (u.arg,) * u.dtype.count
  bits = tuple([to_bits(scalar, v) for v in lanes])
  return UOp.const(_bits_type(u.dtype), bits if u.dtype.count > 1 else bits[0]).bitcast(u.dtype)


def _pointer(pointer: UOp) -> UOp:
  """The same memory seen as unsigned integers."""
  assert isinstance(pointer.dtype, PtrDType)
  kind = _bits_type(pointer.dtype.base).ptr(pointer.dtype.size, pointer.dtype.space)
  if pointer.op is Ops.AFTER:
    return UOp(Ops.AFTER, kind, (_pointer(pointer.src[0]), *pointer.src[1:]))
  return pointer.replace(dtype=kind)


def _place(index: UOp) -> UOp:
  pointer = _pointer(index.src[0])
  return UOp(Ops.INDEX, pointer.dtype, (pointer, *index.src[1:]))


def _load(u: UOp) -> UOp:
  kind = _bits_type(u.dtype)
  return UOp(Ops.LOAD, kind, (_place(u.src[0]), *(s.bitcast(kind) for s in u.src[1:])), u.arg).bitcast(u.dtype)


def _store(u: UOp, index: UOp, value: UOp) -> UOp:
  return UOp(Ops.STORE, u.dtype, (_place(index), value.bitcast(_bits_type(value.dtype))), u.arg)


def _move(u: UOp) -> UOp:
  """WHERE, VECTORIZE and EXTRACT of bits."""
  src = tuple([s if s.dtype.kind == "bool" else s.bitcast(_bits_type(s.dtype)) for s in u.src])
  return UOp(u.op, _bits_type(u.dtype), src, u.arg).bitcast(u.dtype)


def _compute(u: UOp) -> UOp:
  """An operation in float32, rounded."""
  src = tuple([to(s, dtypes.float32) for s in u.src])
  return to(UOp(u.op, dtypes.float32.vec(u.dtype.count), src, u.arg), u.dtype.scalar())


def _compare(u: UOp) -> UOp | None:
  return UOp(u.op, u.dtype, tuple([to(s, dtypes.float32) for s in u.src]))


def _through_float32(u: UOp, x: UOp) -> UOp:
  return to(to(x, dtypes.float32), u.dtype.scalar())


def _from_integer(u: UOp, x: UOp) -> UOp:
  """float32 holds an integer of 16 bits exactly, float64 one of 32; to bfloat16, 64 bits need care not to be rounded
  twice.
  """
  if x.dtype.bits == 64:
    return to(sticky_double(x), u.dtype.scalar())
  return to(to(x, dtypes.float64), u.dtype.scalar())


def _halfway(s: Samples, dtype: DType) -> UOp:
  """float32 at, and halfway between, values of a narrower format: subnormal, normal and too large ones."""
  form = FORMATS[dtype.name]
  steps = s.value(dtypes.uint16, 0).cast(dtypes.uint32) << (22 - form.mantissa)
  return (steps + ((127 - form.bias) << 23)).bitcast(dtypes.float32)


def _values(emulated: tuple[DType, ...]) -> list[Rule]:
  """What is kept and computed."""
  small, first = UPat.var("x", emulated), emulated[0]
  return [
    rule("emulated_const", UPat(Ops.CONST, emulated, name="u"), _constant, grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([UOp.const(d, -1.5) for d in emulated]),
                  lambda s: UOp.const(first.vec(2), (0.5, NAN))),
         near_miss=lambda s: s.f.const_like(-1.5)),
    rule("emulated_load", UPat(Ops.LOAD, emulated, name="u"), _load, grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([s.value(d, 0) for d in emulated]),
                  lambda s: place_in(s, first, s.b).load(s.value(first, 0)),
                  lambda s: place_in(s, first).load(dtype=first.vec(2))),
         near_miss=lambda s: s.f),
    rule("emulated_store", UPat(Ops.STORE, src=(UPat.var("index"), UPat.var("value", emulated)), name="u"), _store,
         grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([place_in(s, d).store(s.value(d, 0)) for d in emulated]),
                  lambda s: place_in(s, first, s.b).store(s.value(first, 0))),
         near_miss=lambda s: place_in(s, dtypes.float32).store(s.f)),
    rule("emulated_move", UPat(_MOVES, emulated, name="u"), _move, grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([s.b.where(s.value(d, 0), s.value(d, 1)) for d in emulated]),
                  lambda s: UOp(Ops.VECTORIZE, first.vec(2), (s.value(first, 0), s.value(first, 1))),
                  lambda s: place_in(s, first).load(dtype=first.vec(2)).extract(1)),
         near_miss=lambda s: s.b.where(s.f, s.g)),
    rule("emulated_operation", UPat(_COMPUTED, emulated, name="u"), _compute, grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([s.value(d, 0) + s.value(d, 1) for d in emulated]),
                  lambda s: tuple([s.value(d, 0) * s.value(d, 1) for d in emulated]),
                  lambda s: tuple([s.value(d, 0) / s.value(d, 1) for d in emulated]),
                  lambda s: tuple([s.value(d, 0).sqrt() for d in emulated]),
                  lambda s: s.value(first, 0).maximum(s.value(first, 1))),
         near_miss=lambda s: s.f + s.g),
    rule("emulated_compare", UPat(GroupOp.Compare, None, (small, UPat.var("y"))).named("u"), _compare,
         grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([s.value(d, 0) < s.value(d, 1) for d in emulated]),
                  lambda s: s.value(first, 0).ne(s.value(first, 1)),
                  lambda s: s.value(first, 0).eq(s.value(first, 1))),
         near_miss=lambda s: s.f < s.g),
  ]  # fmt: skip


def _conversions(emulated: tuple[DType, ...], has_double: bool) -> list[Rule]:
  """CASTs and BITCASTs."""
  small, single, first = UPat.var("x", emulated), UPat.var("x", dtypes.float32), emulated[0]
  rules = [
    rule("emulated_from_float32", UPat(Ops.CAST, emulated, (single,), name="u"),
         lambda u, x: encode(x, u.dtype).bitcast(u.dtype), grows=MADE_OF_OTHERS,
         example=lambda s: tuple([x.cast(d) for d in emulated for x in (s.f, _halfway(s, d))]),
         near_miss=lambda s: s.i.cast(first)),
    rule("emulated_to_float32", UPat(Ops.CAST, dtypes.float32, (small,)),
         lambda x: decode(x.bitcast(_bits_type(x.dtype)), x.dtype), grows=MADE_OF_OTHERS,
         example=lambda s: tuple([s.value(d, 0).cast(dtypes.float32) for d in emulated]),
         near_miss=lambda s: s.value(first, 0).cast(dtypes.float64)),
    rule("emulated_to_other", UPat(Ops.CAST, None, (small,), name="u"), _through_float32, grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([s.value(d, 0).cast(dtypes.float64) for d in emulated]),
                  lambda s: tuple([s.value(d, 0).cast(dtypes.bool) for d in emulated])),
         near_miss=lambda s: s.f.cast(dtypes.float64)),
    rule("emulated_from_small_integer", UPat(Ops.CAST, emulated, (UPat.var("x", _SMALL_INTEGERS),), name="u"),
         _through_float32, grows=MADE_OF_OTHERS,
         example=(lambda s: tuple([s.value(dtypes.int16, 0).cast(d) for d in emulated]), lambda s: s.b.cast(first)),
         near_miss=lambda s: s.i.cast(first)),
    rule("bits_of_bits", UPat(Ops.BITCAST, None, (UPat(Ops.BITCAST, None, (UPat.var("x"),)),), name="u"),
         lambda u, x: x.bitcast(u.dtype),
         example=lambda s: s.f.bitcast(dtypes.uint32).bitcast(dtypes.int32),
         near_miss=lambda s: s.i.cast(dtypes.uint32).bitcast(dtypes.float32)),
  ]  # fmt: skip
  wide = UPat.var("x", _LARGE_INTEGERS)
  if has_double:
    rules.append(
      rule("emulated_from_integer", UPat(Ops.CAST, emulated, (wide,), name="u"), _from_integer, grows=MADE_OF_OTHERS,
           example=lambda s: tuple([s.value(k, 0).cast(d) for k in _LARGE_INTEGERS for d in emulated]),
           near_miss=lambda s: s.value(dtypes.int16, 0).cast(first)))  # fmt: skip
  else:
    rules.append(
      rule("emulated_from_integer_single", UPat(Ops.CAST, emulated, (wide,), name="u"), _through_float32,
           changes="rounded to float32 first", grows=MADE_OF_OTHERS,
           example=lambda s: s.i.cast(first),
           near_miss=lambda s: s.value(dtypes.int16, 0).cast(first)))  # fmt: skip
  return rules


def float_rules(target: Target) -> list[Rule]:
  """The rules for the float types that a target lacks. float32 is assumed."""
  emulated = tuple(d for d in _EMULATED if d not in target.native_dtypes)
  # half and narrower formats from double: processors round by way of float32, and that twice
  odd = rule("narrow_from_double", UPat(Ops.CAST, _EMULATED, (UPat.var("x", dtypes.float64),), name="u"),
             lambda u, x: to(to_odd_single(x), u.dtype.scalar()), grows=MADE_OF_OTHERS,
             example=lambda s: tuple([s.value(dtypes.float64, 0).cast(d) for d in _EMULATED]),
             near_miss=lambda s: s.f.cast(dtypes.float16))  # fmt: skip
  # native halves meet emulated formats in float32
  between = tuple(d for d in _EMULATED if d in target.native_dtypes)
  rules: list[Rule] = []
  if emulated:
    rules = [*_values(emulated), *_conversions(emulated, dtypes.float64 in target.native_dtypes)]
  if emulated and between:
    rules.append(
      rule("emulated_from_native", UPat(Ops.CAST, emulated, (UPat.var("x", between),), name="u"), _through_float32,
           grows=MADE_OF_OTHERS,
           example=lambda s: tuple([s.value(k, 0).cast(d) for k in between for d in emulated]),
           near_miss=lambda s: s.f.cast(emulated[0])))  # fmt: skip
  if not target.bfloat16_of_integers and dtypes.bfloat16 in between:
    rules.append(
      rule("bfloat16_from_integer", UPat(Ops.CAST, dtypes.bfloat16, (UPat.var("x", _LARGE_INTEGERS),), name="u"),
           _from_integer, grows=MADE_OF_OTHERS,
           example=lambda s: tuple([s.value(k, 0).cast(dtypes.bfloat16) for k in _LARGE_INTEGERS]),
           near_miss=lambda s: s.value(dtypes.int16, 0).cast(dtypes.bfloat16)))  # fmt: skip
  return [odd, *rules]
