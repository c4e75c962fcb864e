"""The rows of the spec: for each operation the forms it may have at each level. A node is legal if one of the rows of
its op holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiny_uop.args import (
  ACCUMULATORS,
  ASYNC,
  STREAMING,
  Accumulate,
  AxisType,
  Collective,
  KernelInfo,
  NativeCode,
  ProgramInfo,
  Stage,
)
from tiny_uop.dtype import AddrSpace, DType, PtrDType, dtypes
from tiny_uop.evaluate import lanes_of
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.spec.rows import Row, alike, are_names, is_a, is_integer, is_name, is_value, row, void, waitable
from tiny_uop.spec.tensor_rows import REDUCED, TENSOR, is_sized
from tiny_uop.truncate import truncate

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

# *** elementwise ***


def _compare(u: UOp) -> bool:
  a, b = u.src
  return a.dtype is b.dtype and is_value(a.dtype) and u.dtype is dtypes.bool.vec(a.dtype.count)


def _where(u: UOp) -> bool:
  cond, a, b = u.src
  chooses = cond.dtype.kind == "bool" and cond.dtype.count in (1, u.dtype.count)
  return chooses and a.dtype is b.dtype is u.dtype and is_value(u.dtype)


def _cast(u: UOp) -> bool:
  (x,) = u.src
  return is_value(x.dtype) and is_value(u.dtype) and x.dtype.count == u.dtype.count


def _bitcast(u: UOp) -> bool:
  (x,) = u.src
  return is_value(x.dtype) and is_value(u.dtype) and "index" not in (x.dtype.kind, u.dtype.kind)


_FLOAT_UNARY = {*GroupOp.Transcendental, Ops.SQRT, Ops.TRUNC}
_INT_BINARY = {Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR}
_BITS = {Ops.AND, Ops.OR, Ops.XOR}
ELEMENTWISE = (
  row(_FLOAT_UNARY, "one float source of its dtype", lambda u: alike(u, 1) and u.dtype.kind == "float"),
  row({Ops.ADD, Ops.MUL, Ops.MAX}, "two sources of its dtype", lambda u: alike(u, 2)),
  row({Ops.FDIV, Ops.LDEXP}, "two float sources of its dtype", lambda u: alike(u, 2) and u.dtype.kind == "float"),
  row(_INT_BINARY, "two integer sources of its dtype", lambda u: alike(u, 2) and is_integer(u.dtype)),
  row(_BITS, "two integer or bool sources of its dtype", lambda u: alike(u, 2) and u.dtype.kind != "float"),
  row(GroupOp.Compare, "two sources of one dtype, and dtype bool", _compare),
  row(Ops.WHERE, "a bool and two sources of its dtype", _where),
  row(Ops.THREEFRY, "two uint64 sources and dtype uint64", lambda u: alike(u, 2) and u.dtype.scalar() is dtypes.uint64),
  row(Ops.CAST, "one source with as many lanes", _cast),
)
LATE = (
  row({Ops.SUB}, "two sources of its dtype", lambda u: alike(u, 2)),
  row({Ops.NEG}, "one source of its dtype", lambda u: alike(u, 1)),
  row({Ops.MULACC}, "three sources of its dtype", lambda u: alike(u, 3)),
)
_SAME_SIZE = row(Ops.BITCAST, "one source of the same item size",
                 lambda u: _bitcast(u) and u.dtype.itemsize == u.src[0].dtype.itemsize)  # fmt: skip
# asking for the shape raises where the item sizes do not divide it
_ANY_SIZE = row(Ops.BITCAST, "one source, whose last axis the item sizes divide",
                lambda u: _bitcast(u) and u.shape is not None)  # fmt: skip


# *** leaves ***


def _constant(u: UOp) -> bool:
  lanes = lanes_of(u.arg, 1)
  scalar = u.dtype.scalar()
  exact = all(isinstance(lane, (bool, int, float)) and repr(truncate(scalar, lane)) == repr(lane) for lane in lanes)
  return is_value(u.dtype) and exact and (not isinstance(u.arg, tuple) or len(lanes) == u.dtype.count > 1)


def _variable(u: UOp) -> bool:
  name, low, high = u.arg
  return not u.src and is_integer(u.dtype) and is_name(name) and is_a(low, int) and is_a(high, int) and low <= high


def _bind(u: UOp) -> bool:
  variable, value = u.src
  _, low, high = variable.arg
  typed = variable.op is Ops.VARIABLE and value.op is Ops.CONST and u.dtype is variable.dtype is value.dtype
  return typed and bool(low <= value.arg <= high)


def _over(u: UOp, *ops: Ops) -> bool:
  return tuple(s.op for s in u.src) == ops


def _natural_pair(arg: Any) -> bool:
  return len(arg) == 2 and all(is_a(n, int) and n >= 0 for n in arg)


def _counter(u: UOp) -> bool:
  (extent,) = u.src
  return is_integer(u.dtype) and extent.dtype is u.dtype


def _loop(u: UOp) -> bool:
  number, kind = u.arg
  return _counter(u) and is_a(number, int) and isinstance(kind, AxisType)


def _pointer(u: UOp, *spaces: AddrSpace) -> bool:
  return isinstance(u.dtype, PtrDType) and u.dtype.space in spaces and is_a(u.arg, int) and not u.src


_PLAIN_CONST = row(Ops.CONST, "no sources and a number rounded to its dtype", lambda u: not u.src and _constant(u))
_DEVICE_CONST = row(Ops.CONST, "no source but a DEVICE, and a number rounded to its dtype",
                    lambda u: all(s.op is Ops.DEVICE for s in u.src) and len(u.src) < 2 and _constant(u))  # fmt: skip
_VARIABLE = row(Ops.VARIABLE, "an integer dtype and arg (name, min, max) with min <= max", _variable)
_BIND = row(Ops.BIND, "a VARIABLE and a CONST within its bounds", _bind)
_DEVICE = row(Ops.DEVICE, "no sources, dtype void and a name; at tensor level also several names",
              lambda u: not u.src and void(u) and (is_name(u.arg) or are_names(u.arg)))  # fmt: skip
_BUFFER = row(Ops.BUFFER, "a DEVICE as source, of one name, and arg (id, size)",
              lambda u: _over(u, Ops.DEVICE) and is_name(u.src[0].arg) and _natural_pair(u.arg))  # fmt: skip
_BUFFER_VIEW = row(Ops.BUFFER_VIEW, "a BUFFER as source and arg (byte offset, size)",
                   lambda u: _over(u, Ops.BUFFER) and _natural_pair(u.arg))  # fmt: skip
_LOOPS = (
  row(Ops.PARAM, "a slot number and a GLOBAL pointer dtype", lambda u: _pointer(u, AddrSpace.GLOBAL) and u.arg >= 0),
  row(Ops.ALLOC, "an id and a LOCAL or REG pointer dtype", lambda u: _pointer(u, AddrSpace.LOCAL, AddrSpace.REG)),
  row(Ops.RANGE, "an extent of its integer dtype and arg (id, AxisType)", _loop),
  row(Ops.SPECIAL, "an extent of its integer dtype and a name", lambda u: _counter(u) and is_a(u.arg, str)),
)


# *** kernel and program level ***


def _index(u: UOp) -> bool:
  pointer, offset, *gate = u.src
  gated = not gate or (len(gate) == 1 and gate[0].dtype.kind == "bool")
  memory = pointer
  while memory.op is Ops.AFTER:
    memory = memory.src[0]
  start = memory.op in (Ops.PARAM, Ops.ALLOC)  # an INDEX of an INDEX would be checked against the wrong bounds
  return start and u.dtype is pointer.dtype and is_integer(offset.dtype) and offset.dtype.count == 1 and gated


def _holds(address: UOp, dtype: DType) -> bool:
  """Whether an INDEX is of memory for elements of a type."""
  base = address.dtype
  return address.op is Ops.INDEX and isinstance(base, PtrDType) and base.base.scalar() is dtype.scalar()


def _load(u: UOp) -> bool:
  address, *alternative = u.src
  return _holds(address, u.dtype) and len(alternative) < 2 and all(a.dtype is u.dtype for a in alternative)


def _store(u: UOp) -> bool:
  address, value = u.src
  return void(u) and _holds(address, value.dtype)


def _space(pointer: UOp) -> AddrSpace | None:
  return pointer.dtype.space if isinstance(pointer.dtype, PtrDType) else None


def _copies(u: UOp) -> bool:
  """An asynchronous STORE copies what a LOAD reads to LOCAL memory."""
  local = _space(u.src[0]) is AddrSpace.LOCAL
  return u.arg is None or (u.arg == ASYNC and local and u.src[1].op is Ops.LOAD)


def _accumulates(u: UOp) -> bool:
  """A STORE combines by an operation that its value has."""
  how, kind = u.arg, u.src[1].dtype.kind
  return isinstance(how, Accumulate) and how.op in (ACCUMULATORS[:3] if kind == "float" else ACCUMULATORS)


def _atomic(u: UOp) -> bool:
  return bool(u.arg.atomic) and u.src[1].dtype.count == 1


def _native(u: UOp) -> bool:
  params = all(s.op is Ops.PARAM for s in u.src) and len(set(u.src)) == len(u.src)
  return void(u) and params and isinstance(u.arg, NativeCode) and set(u.arg.written) <= set(range(len(u.src)))


def _prefetch(u: UOp) -> bool:
  address, *alternative = u.src
  gated = len(address.src) > 2 and address.src[2].dtype.count == 1
  places = all(s.op is Ops.INDEX for s in u.src) and (not alternative or (gated and len(alternative) == 1))
  access, level = u.arg
  return void(u) and places and access in ("read", "write") and is_a(level, int) and level > 0


def _closes(u: UOp) -> bool:
  return len(u.src) > 1 and all(r.op is Ops.RANGE for r in u.src[1:])


_MEMORY = (
  row(Ops.INDEX, "a PARAM or ALLOC of its dtype (or its AFTER), one integer offset and possibly a bool gate", _index),
  row(Ops.LOAD, "an INDEX of its element type, and possibly an alternative of its dtype", _load),
  row(Ops.STORE, "an INDEX and a value of its element type, and arg None, or ASYNC where a LOAD goes to LOCAL memory",
      lambda u: _store(u) and _copies(u)),
  row(Ops.AFTER, "a pointer of its dtype and dependencies",
      lambda u: isinstance(u.dtype, PtrDType) and u.src[0].dtype is u.dtype and waitable(u.src[1:])),
  row(Ops.GROUP, "effects", lambda u: void(u) and waitable(u.src)),
  row(Ops.PREFETCH, 'an INDEX, another one if the first has a scalar gate, and arg ("read" or "write", a cache level)',
      _prefetch),
  row(Ops.BARRIER, "dependencies, and arg None or a number of groups of asynchronous STOREs",
      lambda u: void(u) and waitable(u.src) and (u.arg is None or (is_a(u.arg, int) and u.arg >= 0))),
  row(Ops.MMA, "three sources", lambda u: len(u.src) == 3 and u.arg is not None),
  row(Ops.SHUFFLE, "a value of its dtype, and a number above 0 as arg",
      lambda u: len(u.src) == 1 and u.src[0].dtype is u.dtype and is_a(u.arg, int) and u.arg > 0),
  row(Ops.VECTORIZE, "scalars or vectors, which together have its lanes",
      lambda u: sum(s.dtype.count for s in u.src) == u.dtype.count > 1
      and all(s.dtype.scalar() is u.dtype.scalar() for s in u.src)),
  row(Ops.EXTRACT, "a vector, and lanes of it as arg",
      lambda u: len(u.src) == 1 and len(u.arg) == u.dtype.count and all(0 <= n < u.src[0].dtype.count for n in u.arg)
      and u.dtype.scalar() is u.src[0].dtype.scalar()),
)  # fmt: skip
_KERNEL = (
  row(Ops.STORE, "an INDEX, a value of its element type, and as arg an Accumulate with an operation of that type",
      lambda u: _store(u) and _accumulates(u)),
  row(Ops.REDUCE, "a value of its dtype, RANGEs and arg (ADD, MUL or MAX, ())",
      lambda u: u.arg in [(op, ()) for op in REDUCED] and u.src[0].dtype is u.dtype and _closes(u)),
  row(Ops.COLLECTIVE, "PARAMs from 0 on, as many that are written as are read after these, and Collective as arg",
      lambda u: void(u) and isinstance(u.arg, Collective) and [s.arg for s in u.src] == list(range(len(u.src)))
      and len(u.src) % 2 == 0 and all(s.op is Ops.PARAM for s in u.src)),
  row(Ops.NATIVE, "PARAMs, each once, and as arg a NativeCode that writes some of them", _native),
  row(Ops.END, "an effect and RANGEs", lambda u: void(u) and waitable(u.src[:1]) and _closes(u)),
  row(Ops.STAGE, "a value of its dtype, RANGEs and a Stage",
      lambda u: u.src[0].dtype is u.dtype and isinstance(u.arg, Stage) and all(r.op is Ops.RANGE for r in u.src[1:])),
  row(Ops.SINK, "effects, and KernelInfo as arg",
      lambda u: void(u) and isinstance(u.arg, KernelInfo) and waitable(u.src)),
)  # fmt: skip
_PROGRAM = (
  row(Ops.STORE, "an INDEX of GLOBAL memory, a value of its element type, and STREAMING as arg",
      lambda u: _store(u) and u.arg == STREAMING and _space(u.src[0]) is AddrSpace.GLOBAL),
  row(Ops.STORE, "an INDEX, a scalar of its element type, and as arg an Accumulate of that type which is atomic",
      lambda u: _store(u) and _accumulates(u) and _atomic(u)),
  row(Ops.END, "an effect and RANGEs", lambda u: void(u) and any(s.op is Ops.RANGE for s in u.src)),
  row(Ops.IF, "a bool condition", lambda u: void(u) and len(u.src) >= 1 and u.src[0].dtype is dtypes.bool),
  row(Ops.ENDIF, "its IF", lambda u: void(u) and len(u.src) >= 1 and any(s.op is Ops.IF for s in u.src)),
  row(Ops.LINEAR, "instructions, and dtype void", void),
  row(Ops.PROGRAM, "SINK, LINEAR, SOURCE first, and ProgramInfo as arg",
      lambda u: [s.op for s in u.src[:3]] == [Ops.SINK, Ops.LINEAR, Ops.SOURCE] and isinstance(u.arg, ProgramInfo)),
  row(Ops.SOURCE, "text as arg", lambda u: not u.src and is_a(u.arg, str)),
  row(Ops.SINK, "dtype void", void),
)  # fmt: skip


def _copy_body(u: UOp) -> bool:
  return u.op is Ops.COPY and _over(u, Ops.PARAM, Ops.PARAM) and [s.arg for s in u.src] == [0, 1]


_SCHEDULE = (
  row(Ops.LINEAR, "CALLs", lambda u: void(u) and all(s.op is Ops.CALL for s in u.src)),
  row(Ops.CALL, "a kernel SINK or COPY(PARAM 0, PARAM 1), then BUFFERs and BUFFER_VIEWs, then BINDs",
      lambda u: void(u) and (u.src[0].op is Ops.SINK or _copy_body(u.src[0])) and _arguments(u.src[1:])),
  row(Ops.COPY, "in the body of a CALL: PARAM 0 and PARAM 1", _copy_body),
)  # fmt: skip


def _arguments(sources: tuple[UOp, ...]) -> bool:
  bound = [s.op is Ops.BIND for s in sources]
  memory = all(s.op in (Ops.BUFFER, Ops.BUFFER_VIEW, Ops.BIND) for s in sources)
  return memory and bound == sorted(bound)


def _table(*rows: Row) -> dict[Ops, tuple[Row, ...]]:
  return {op: tuple([r for r in rows if op in r.ops]) for op in frozenset[Ops]().union(*[r.ops for r in rows])}


def _with_shape(r: Row) -> Row:
  return Row(r.ops, f"{r.expects}, all of one shape", lambda u: r.holds(u) and is_sized(u))


_TENSOR_ELEMENTWISE = tuple(_with_shape(r) for r in ELEMENTWISE)
_SCALAR = (*ELEMENTWISE, *LATE, _SAME_SIZE, _PLAIN_CONST, _VARIABLE)
LEVELS: dict[str, dict[Ops, tuple[Row, ...]]] = {
  "tensor": _table(*_TENSOR_ELEMENTWISE, _ANY_SIZE, _DEVICE_CONST, _VARIABLE, _BIND, _DEVICE, _BUFFER, *TENSOR),
  "schedule": _table(*_SCHEDULE, _PLAIN_CONST, _VARIABLE, _BIND, _DEVICE, _BUFFER, _BUFFER_VIEW),
  "kernel": _table(*_SCALAR, *_LOOPS, *_MEMORY, *_KERNEL),
  "program": _table(*_SCALAR, *_LOOPS, *_MEMORY, *_PROGRAM),
}
"""For each level the rows of each operation that may be there."""
