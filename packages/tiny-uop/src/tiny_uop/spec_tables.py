"""The rows of the spec: for each operation the forms it may have at each level. A node is legal if one of the rows of
its op holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tiny_uop.args import AxisType, CustomGradient, KernelInfo, ProgramInfo, Stage
from tiny_uop.dtype import AddrSpace, DType, PtrDType, dtypes
from tiny_uop.kernel import is_kernel, kernel_params, written_params
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.shape import pairs, prod, same_shape, same_size
from tiny_uop.truncate import truncate
from tiny_uop.uop import UOp


class Row(NamedTuple):
  """One legal form: the operations it is for, what it looks like in words, and the test."""

  ops: frozenset[Ops]
  expects: str
  holds: Callable[[UOp], bool]


def row(ops: Ops | Iterable[Ops], expects: str, holds: Callable[[UOp], bool]) -> Row:
  """A row of the spec."""
  return Row(frozenset({ops} if isinstance(ops, Ops) else ops), expects, holds)


def _value(dtype: DType) -> bool:
  return dtype.kind != "void" and not isinstance(dtype, PtrDType)


def _integer(dtype: DType) -> bool:
  return _value(dtype) and dtype.kind in ("int", "uint", "index")


def _same(u: UOp, count: int) -> bool:
  return len(u.src) == count and all(s.dtype is u.dtype for s in u.src) and _value(u.dtype)


def _is(value: Any, kind: type) -> bool:
  return type(value) is kind


def _void(u: UOp) -> bool:
  return u.dtype is dtypes.void


def _deps(sources: tuple[UOp, ...]) -> bool:
  return all(_void(s) or s.op in (Ops.RANGE, Ops.AFTER, Ops.INDEX) or isinstance(s.dtype, PtrDType) for s in sources)


def _shaped(u: UOp) -> bool:
  u.shape  # noqa: B018  # raises where the sources' shapes do not agree
  return True


# *** elementwise ***


def _compare(u: UOp) -> bool:
  a, b = u.src
  return a.dtype is b.dtype and _value(a.dtype) and u.dtype is dtypes.bool.vec(a.dtype.count)


def _where(u: UOp) -> bool:
  cond, a, b = u.src
  return (
    cond.dtype.kind == "bool"
    and cond.dtype.count in (1, u.dtype.count)
    and a.dtype is b.dtype is u.dtype
    and _value(u.dtype)
  )


def _cast(u: UOp) -> bool:
  (x,) = u.src
  return _value(x.dtype) and _value(u.dtype) and x.dtype.count == u.dtype.count


def _bitcast(u: UOp) -> bool:
  (x,) = u.src
  return _value(x.dtype) and _value(u.dtype) and "index" not in (x.dtype.kind, u.dtype.kind)


_FLOAT_UNARY = {*GroupOp.Transcendental, Ops.SQRT, Ops.TRUNC}
_INT_BINARY = {Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR}
ELEMENTWISE = (
  row(_FLOAT_UNARY, "one float source of its dtype", lambda u: _same(u, 1) and u.dtype.kind == "float"),
  row({Ops.ADD, Ops.MUL, Ops.MAX}, "two sources of its dtype", lambda u: _same(u, 2)),
  row({Ops.FDIV, Ops.LDEXP}, "two float sources of its dtype", lambda u: _same(u, 2) and u.dtype.kind == "float"),
  row(_INT_BINARY, "two integer sources of its dtype", lambda u: _same(u, 2) and _integer(u.dtype)),
  row(
    {Ops.AND, Ops.OR, Ops.XOR},
    "two integer or bool sources of its dtype",
    lambda u: _same(u, 2) and u.dtype.kind != "float",
  ),
  row(GroupOp.Compare, "two sources of one dtype, and dtype bool", _compare),
  row(Ops.WHERE, "a bool and two sources of its dtype", _where),
  row(Ops.THREEFRY, "two uint64 sources and dtype uint64", lambda u: _same(u, 2) and u.dtype.scalar() is dtypes.uint64),
  row(Ops.CAST, "one source with as many lanes", _cast),
)
LATE = (
  row({Ops.SUB}, "two sources of its dtype", lambda u: _same(u, 2)),
  row({Ops.NEG}, "one source of its dtype", lambda u: _same(u, 1)),
  row({Ops.MULACC}, "three sources of its dtype", lambda u: _same(u, 3)),
)
_SAME_SIZE = row(
  Ops.BITCAST, "one source of the same item size", lambda u: _bitcast(u) and u.dtype.itemsize == u.src[0].dtype.itemsize
)
_ANY_SIZE = row(Ops.BITCAST, "one source, whose last axis the item sizes divide", lambda u: _bitcast(u) and _shaped(u))


# *** leaves ***


def _constant(u: UOp) -> bool:
  lanes = u.arg if isinstance(u.arg, tuple) else (u.arg,)
  scalar = u.dtype.scalar()
  exact = all(isinstance(lane, (bool, int, float)) and repr(truncate(scalar, lane)) == repr(lane) for lane in lanes)
  return _value(u.dtype) and exact and (not isinstance(u.arg, tuple) or len(lanes) == u.dtype.count > 1)


def _variable(u: UOp) -> bool:
  name, low, high = u.arg
  return (
    not u.src
    and _integer(u.dtype)
    and _is(name, str)
    and bool(name)
    and _is(low, int)
    and _is(high, int)
    and low <= high
  )


def _bind(u: UOp) -> bool:
  variable, value = u.src
  _, low, high = variable.arg
  return (
    variable.op is Ops.VARIABLE
    and value.op is Ops.CONST
    and u.dtype is variable.dtype is value.dtype
    and bool(low <= value.arg <= high)
  )


def _natural_pair(arg: Any) -> bool:
  first, second = arg
  return _is(first, int) and _is(second, int) and first >= 0 and second >= 0


def _loop(u: UOp) -> bool:
  number, kind = u.arg
  (extent,) = u.src
  return _is(number, int) and isinstance(kind, AxisType) and _integer(u.dtype) and extent.dtype is u.dtype


def _pointer(u: UOp, *spaces: AddrSpace) -> bool:
  return isinstance(u.dtype, PtrDType) and u.dtype.space in spaces and _is(u.arg, int) and not u.src


_PLAIN_CONST = row(Ops.CONST, "no sources and a number rounded to its dtype", lambda u: not u.src and _constant(u))
_DEVICE_CONST = row(Ops.CONST, "no source but a DEVICE, and a number rounded to its dtype",
                    lambda u: all(s.op is Ops.DEVICE for s in u.src) and len(u.src) < 2 and _constant(u))  # fmt: skip
_VARIABLE = row(Ops.VARIABLE, "an integer dtype and arg (name, min, max) with min <= max", _variable)
_BIND = row(Ops.BIND, "a VARIABLE and a CONST within its bounds", _bind)
_DEVICE = row(
  Ops.DEVICE, "no sources, dtype void and a name", lambda u: not u.src and _void(u) and _is(u.arg, str) and bool(u.arg)
)
_BUFFER = row(Ops.BUFFER, "a DEVICE as source and arg (id, size)",
              lambda u: u.src[0].op is Ops.DEVICE and len(u.src) == 1 and _natural_pair(u.arg))  # fmt: skip
_BUFFER_VIEW = row(Ops.BUFFER_VIEW, "a BUFFER as source and arg (byte offset, size)",
                   lambda u: u.src[0].op is Ops.BUFFER and len(u.src) == 1 and _natural_pair(u.arg))  # fmt: skip
_PARAM = row(
  Ops.PARAM, "a slot number and a GLOBAL pointer dtype", lambda u: _pointer(u, AddrSpace.GLOBAL) and u.arg >= 0
)
_LOOPS = (
  row(Ops.ALLOC, "an id and a LOCAL or REG pointer dtype", lambda u: _pointer(u, AddrSpace.LOCAL, AddrSpace.REG)),
  row(Ops.RANGE, "an extent of its integer dtype and arg (id, AxisType)", _loop),
  row(Ops.SPECIAL, "an extent of its integer dtype and a name",
      lambda u: len(u.src) == 1 and u.src[0].dtype is u.dtype and _integer(u.dtype) and _is(u.arg, str)),
)  # fmt: skip


# *** tensor level ***


def _geometry(u: UOp) -> bool:
  """The parts common to movement: dtype, and one extra integer source per None in the argument."""
  extra = u.src[1:]
  literal = all(a is None or _is(a, int) for a in u.arg)
  return (
    u.dtype is u.src[0].dtype
    and literal
    and sum(a is None for a in u.arg) == len(extra)
    and all(_integer(e.dtype) for e in extra)
  )


def _expand(u: UOp) -> bool:
  old, new = u.src[0].shape, u.shape
  return (
    _geometry(u)
    and len(old) == len(new)
    and all(same_size(o, n) or same_size(o, 1) for o, n in zip(old, new, strict=True))
  )


def _shrink(u: UOp) -> bool:
  old, bounds = u.src[0].shape, pairs(u.geometry)
  known = (
    (a, b, s)
    for (a, b), s in zip(bounds, old, strict=True)
    if isinstance(a, int) and isinstance(b, int) and isinstance(s, int)
  )
  return _geometry(u) and all(0 <= a <= b <= s for a, b, s in known)


def _pad(u: UOp) -> bool:
  return _geometry(u) and len(u.arg) == 2 * len(u.src[0].shape) and all(a is None or a >= 0 for a in u.arg)


def _axes(arg: Any, rank: int) -> bool:
  return isinstance(arg, tuple) and all(_is(a, int) and 0 <= a < rank for a in arg) and list(arg) == sorted(set(arg))


def _tensor_reduce(u: UOp) -> bool:
  op, axes = u.arg
  return op in (Ops.ADD, Ops.MUL, Ops.MAX) and _same(u, 1) and _axes(axes, len(u.src[0].shape))


def _tensor_store(u: UOp) -> bool:
  view, value = u.src
  target = view.base
  while target.op is Ops.BITCAST or target.op in GroupOp.Movement:
    target = target.src[0]
  return (
    _void(u)
    and target.op in (Ops.BUFFER, Ops.AFTER)
    and view.dtype is value.dtype
    and same_shape(view.shape, value.shape)
  )


def _sized(u: UOp) -> bool:
  # of shape () broadcasts: constants stand without a shape
  shapes = [s.shape for s in u.src]
  return all(shape == () or same_shape(shape, u.shape) for shape in shapes)


def _own_gradient(u: UOp) -> bool:
  value, bundle = u.src
  rule = u.arg
  results = bundle.src[rule.inputs :]
  return (
    isinstance(rule, CustomGradient)
    and bundle.op is Ops.SINK
    and u.dtype is value.dtype
    and _value(u.dtype)
    and 0 <= rule.inputs
    and 0 <= rule.output < len(results)
  )


def _tensor_call(u: UOp) -> bool:
  kernel, device, *inputs = u.src
  params, written = kernel_params(kernel), written_params(kernel)
  sizes = {n + len(written): (s.dtype, prod(s.shape)) for n, s in enumerate(inputs)}
  return (
    is_kernel(kernel)
    and device.op is Ops.DEVICE
    and written == set(range(len(written)))
    and _is(u.arg, int)
    and u.arg in written
    and params[u.arg].base is u.dtype
    and all(n in written or (p.base, p.size) == sizes.get(n) for n, p in params.items())
  )


_TENSOR = (
  row(Ops.RESHAPE, "one value and a shape of as many elements",
      lambda u: _geometry(u) and same_size(prod(u.shape), prod(u.src[0].shape))),
  row(Ops.EXPAND, "one value and a shape that differs where its size is 1", _expand),
  row(Ops.PERMUTE, "one value and an order of its axes",
      lambda u: len(u.src) == 1 and u.dtype is u.src[0].dtype and sorted(u.arg) == list(range(len(u.src[0].shape)))),
  row(Ops.PAD, "one value and (before, after) per axis", _pad),
  row(Ops.SHRINK, "one value and (start, stop) per axis, inside it", _shrink),
  row(Ops.FLIP, "one value and some of its axes, ascending",
      lambda u: _same(u, 1) and _axes(u.arg, len(u.src[0].shape))),
  row(Ops.REDUCE, "one value of its dtype and arg (ADD, MUL or MAX, ascending axes)", _tensor_reduce),
  row(GroupOp.Identity, "one source of its dtype", lambda u: _same(u, 1)),
  row(Ops.CUSTOM_GRADIENT, "a value of its dtype, a SINK of inputs and results, and CustomGradient as arg",
      _own_gradient),
  row(Ops.BARRIER, "a value of its dtype, and values that come before",
      lambda u: bool(u.src) and u.src[0].dtype is u.dtype and all(_value(s.dtype) for s in u.src)),
  row(Ops.CALL, "a kernel whose PARAMs are its results, then its inputs; a DEVICE; the inputs, of the sizes and dtypes "
      "of their PARAMs; the number of the result as arg, and its dtype", _tensor_call),
  row(Ops.COPY, "a value of its dtype and a DEVICE",
      lambda u: len(u.src) == 2 and u.src[0].dtype is u.dtype and u.src[1].op is Ops.DEVICE),
  row(Ops.STORE, "a view of a BUFFER or AFTER and a value of its dtype and shape", _tensor_store),
  row(Ops.AFTER, "a BUFFER, a view or an AFTER, and effects",
      lambda u: len(u.src) > 1 and u.src[0].dtype is u.dtype and _value(u.dtype) and all(_void(s) for s in u.src[1:])),
  row(Ops.SINK, "dtype void", _void),
)  # fmt: skip


# *** kernel and program level ***


def _index(u: UOp) -> bool:
  pointer, offset, *gate = u.src
  gated = not gate or (len(gate) == 1 and gate[0].dtype.kind == "bool")
  memory = pointer
  while memory.op is Ops.AFTER:
    memory = memory.src[0]
  start = memory.op in (Ops.PARAM, Ops.ALLOC)  # an INDEX of an INDEX would be checked against the wrong bounds
  return start and u.dtype is pointer.dtype and _integer(offset.dtype) and offset.dtype.count == 1 and gated


def _load(u: UOp) -> bool:
  address, *alternative = u.src
  base = address.dtype
  return (
    address.op is Ops.INDEX and isinstance(base, PtrDType) and base.base.scalar() is u.dtype.scalar()
    and len(alternative) < 2 and all(a.dtype is u.dtype for a in alternative)
  )  # fmt: skip


def _store(u: UOp) -> bool:
  address, value = u.src
  base = address.dtype
  return (
    _void(u) and address.op is Ops.INDEX and isinstance(base, PtrDType) and base.base.scalar() is value.dtype.scalar()
  )


def _closes(u: UOp) -> bool:
  return len(u.src) > 1 and all(r.op is Ops.RANGE for r in u.src[1:])


def _kernel_reduce(u: UOp) -> bool:
  op, axes = u.arg
  return op in (Ops.ADD, Ops.MUL, Ops.MAX) and axes == () and u.src[0].dtype is u.dtype and _closes(u)


_MEMORY = (
  row(Ops.INDEX, "a PARAM or ALLOC of its dtype (or its AFTER), one integer offset and possibly a bool gate", _index),
  row(Ops.LOAD, "an INDEX of its element type, and possibly an alternative of its dtype", _load),
  row(Ops.STORE, "an INDEX and a value of its element type", _store),
  row(Ops.AFTER, "a pointer of its dtype and dependencies",
      lambda u: isinstance(u.dtype, PtrDType) and u.src[0].dtype is u.dtype and _deps(u.src[1:])),
  row(Ops.GROUP, "effects", lambda u: _void(u) and _deps(u.src)),
  row(Ops.BARRIER, "dependencies", lambda u: _void(u) and _deps(u.src)),
  row(Ops.MMA, "three sources", lambda u: len(u.src) == 3 and u.arg is not None),
  row(Ops.VECTORIZE, "one scalar per lane",
      lambda u: len(u.src) == u.dtype.count > 1 and all(s.dtype is u.dtype.scalar() for s in u.src)),
  row(Ops.EXTRACT, "a vector, and lanes of it as arg",
      lambda u: len(u.src) == 1 and len(u.arg) == u.dtype.count and all(0 <= n < u.src[0].dtype.count for n in u.arg)
      and u.dtype.scalar() is u.src[0].dtype.scalar()),
)  # fmt: skip
_KERNEL = (
  row(Ops.REDUCE, "a value of its dtype, RANGEs and arg (ADD, MUL or MAX, ())", _kernel_reduce),
  row(Ops.END, "an effect and RANGEs", lambda u: _void(u) and _deps(u.src[:1]) and _closes(u)),
  row(Ops.STAGE, "a value of its dtype, RANGEs and a Stage",
      lambda u: u.src[0].dtype is u.dtype and isinstance(u.arg, Stage) and all(r.op is Ops.RANGE for r in u.src[1:])),
  row(Ops.SINK, "effects, and KernelInfo as arg",
      lambda u: _void(u) and isinstance(u.arg, KernelInfo) and _deps(u.src)),
)  # fmt: skip
_PROGRAM = (
  row(Ops.END, "an effect and RANGEs", lambda u: _void(u) and any(s.op is Ops.RANGE for s in u.src)),
  row(Ops.IF, "a bool condition", lambda u: _void(u) and len(u.src) >= 1 and u.src[0].dtype is dtypes.bool),
  row(Ops.ENDIF, "its IF", lambda u: _void(u) and len(u.src) >= 1 and any(s.op is Ops.IF for s in u.src)),
  row(Ops.LINEAR, "instructions, and dtype void", _void),
  row(Ops.PROGRAM, "SINK, LINEAR, SOURCE first, and ProgramInfo as arg",
      lambda u: [s.op for s in u.src[:3]] == [Ops.SINK, Ops.LINEAR, Ops.SOURCE] and isinstance(u.arg, ProgramInfo)),
  row(Ops.SOURCE, "text as arg", lambda u: not u.src and _is(u.arg, str)),
  row(Ops.SINK, "dtype void", _void),
)  # fmt: skip


def _copy_body(u: UOp) -> bool:
  return u.op is Ops.COPY and [s.op for s in u.src] == [Ops.PARAM, Ops.PARAM] and [s.arg for s in u.src] == [0, 1]


_SCHEDULE = (
  row(Ops.LINEAR, "CALLs", lambda u: _void(u) and all(s.op is Ops.CALL for s in u.src)),
  row(Ops.CALL, "a kernel SINK or COPY(PARAM 0, PARAM 1), then BUFFERs and BUFFER_VIEWs, then BINDs",
      lambda u: _void(u) and (u.src[0].op is Ops.SINK or _copy_body(u.src[0])) and _arguments(u.src[1:])),
  row(Ops.COPY, "in the body of a CALL: PARAM 0 and PARAM 1", _copy_body),
)  # fmt: skip


def _arguments(sources: tuple[UOp, ...]) -> bool:
  kinds = [s.op for s in sources]
  buffers = sum(k in (Ops.BUFFER, Ops.BUFFER_VIEW) for k in kinds)
  return all(k in (Ops.BUFFER, Ops.BUFFER_VIEW) for k in kinds[:buffers]) and all(
    k is Ops.BIND for k in kinds[buffers:]
  )


def _table(*rows: Row) -> dict[Ops, tuple[Row, ...]]:
  found: dict[Ops, list[Row]] = {}
  for r in rows:
    for op in r.ops:
      found.setdefault(op, []).append(r)
  return {op: tuple(forms) for op, forms in found.items()}


def _with_shape(r: Row) -> Row:
  return Row(r.ops, f"{r.expects}, all of one shape", lambda u: r.holds(u) and _sized(u))


_TENSOR_ELEMENTWISE = tuple(_with_shape(r) for r in ELEMENTWISE)
LEVELS: dict[str, dict[Ops, tuple[Row, ...]]] = {
  "tensor": _table(*_TENSOR_ELEMENTWISE, _ANY_SIZE, _DEVICE_CONST, _VARIABLE, _BIND, _DEVICE, _BUFFER, *_TENSOR),
  "schedule": _table(*_SCHEDULE, _PLAIN_CONST, _VARIABLE, _BIND, _DEVICE, _BUFFER, _BUFFER_VIEW),
  "kernel": _table(*ELEMENTWISE, *LATE, _SAME_SIZE, _PLAIN_CONST, _VARIABLE, _PARAM, *_LOOPS, *_MEMORY, *_KERNEL),
  "program": _table(*ELEMENTWISE, *LATE, _SAME_SIZE, _PLAIN_CONST, _VARIABLE, _PARAM, *_LOOPS, *_MEMORY, *_PROGRAM),
}
